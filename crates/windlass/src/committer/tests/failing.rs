//! Refusals and errors: who hears of them, and who does not.

use windlass_kernel::Refusal;
use windlass_store::{Error, Write};

use super::fake::*;
use crate::committer::{Config, Handle, SubmitError, Ticket};

/// Submits marks 1 to `last` so that they share a batch, behind mark 0.
async fn one_batch(store: &Fake, handle: &Handle, last: u32) -> Vec<Ticket> {
    drop(handle.try_submit(enqueue(0, 0)).unwrap());
    store.begins().await;
    (1..=last).map(|mark| handle.try_submit(cancel(u128::from(mark % 3), mark)).unwrap()).collect()
}

fn has(writes: &[Write], mark: u32) -> bool {
    writes.iter().any(|write| mark_of(write) == mark)
}

#[tokio::test]
async fn a_refused_write_does_not_fail_its_neighbours() {
    let store = Fake::judging_shut(refusing(&[2, 5]));
    let handle = start(&store, Config::default());
    let tickets = one_batch(&store, &handle, 6).await;
    store.let_through(2);
    for (ticket, mark) in tickets.into_iter().zip(1..) {
        let answer = ticket.await;
        if mark == 2 || mark == 5 {
            assert!(matches!(answer, Err(SubmitError::Refused(Refusal::StaleAttempt))));
        } else {
            assert_eq!(echoed(answer), mark);
        }
    }
    assert_eq!(store.batches().len(), 2);
}

#[tokio::test]
async fn a_write_that_the_store_cannot_digest_is_singled_out() {
    let store = Fake::judging_shut(|writes| {
        if has(writes, 3) { Err(Error::Contradiction("mark 3".into())) } else { Ok(echo(writes)) }
    });
    let handle = start(&store, Config::default());
    let tickets = one_batch(&store, &handle, 8).await;
    store.let_through(100);
    for (ticket, mark) in tickets.into_iter().zip(1..) {
        let answer = ticket.await;
        if mark == 3 {
            assert_eq!(store_error(answer), "the database contradicts the rules");
        } else {
            assert_eq!(echoed(answer), mark);
        }
    }
    let parts: [&[u32]; 8] = [
        &[0],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[1, 2, 3, 4],
        &[1, 2],
        &[3, 4],
        &[3],
        &[4],
        &[5, 6, 7, 8],
    ];
    assert_eq!(store.batches(), parts);
    assert_eq!(echoed(handle.submit(enqueue(9, 9)).await), 9);
}

#[tokio::test]
async fn if_every_write_is_to_blame_the_batch_takes_less_than_twice_its_size() {
    let store = Fake::judging_shut(|writes| {
        if has(writes, 0) { Ok(echo(writes)) } else { Err(Error::Contradiction("all".into())) }
    });
    let handle = start(&store, Config::default());
    let tickets = one_batch(&store, &handle, 100).await;
    store.let_through(1000);
    for ticket in tickets {
        assert_eq!(store_error(ticket.await), "the database contradicts the rules");
    }
    assert_eq!(store.batches().len(), 1 + 199);
}

/// Everybody in a batch is told the same, the batch is not tried again, and the next one goes on.
async fn check_told_to_all(error: fn() -> Error) {
    let store = Fake::judging_shut(
        move |writes| {
            if has(writes, 3) { Err(error()) } else { Ok(echo(writes)) }
        },
    );
    let handle = start(&store, Config::default());
    let tickets = one_batch(&store, &handle, 8).await;
    store.let_through(100);
    for ticket in tickets {
        assert_eq!(store_error(ticket.await), error().to_string());
    }
    assert_eq!(store.batches().len(), 2);
    assert_eq!(echoed(handle.submit(enqueue(9, 9)).await), 9);
}

#[tokio::test]
async fn a_store_that_is_away_is_told_to_all() {
    check_told_to_all(|| Error::Unavailable("away".into())).await;
    check_told_to_all(|| Error::DiskFull("full".into())).await;
}

#[tokio::test]
async fn an_unknown_outcome_is_told_to_all() {
    check_told_to_all(|| Error::Ambiguous("cut".into())).await;
}

#[tokio::test]
async fn if_the_store_goes_away_while_a_batch_is_halved_the_rest_is_told() {
    let store = Fake::judging_shut(|writes| match writes.len() {
        8 => Err(Error::Contradiction("somewhere".into())),
        4 if has(writes, 1) => Ok(echo(writes)),
        4 => Err(Error::Unavailable("away".into())),
        _ => Ok(echo(writes)),
    });
    let handle = start(&store, Config::default());
    let tickets = one_batch(&store, &handle, 8).await;
    store.let_through(100);
    for (ticket, mark) in tickets.into_iter().zip(1..) {
        let answer = ticket.await;
        if mark <= 4 {
            assert_eq!(echoed(answer), mark);
        } else {
            assert_eq!(store_error(answer), "the database is unavailable");
        }
    }
}

#[tokio::test]
async fn a_store_that_forgets_an_answer_makes_it_ambiguous() {
    let store = Fake::judging_shut(|writes| Ok(echo(&writes[..1])));
    let handle = start(&store, Config::default());
    let mut tickets = one_batch(&store, &handle, 2).await.into_iter();
    store.let_through(2);
    assert_eq!(echoed(tickets.next().unwrap().await), 1);
    assert_eq!(store_error(tickets.next().unwrap().await), "the commit's outcome is unknown");
}
