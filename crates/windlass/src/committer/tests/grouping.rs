//! What shares a transaction, and who waits for whom.

use std::{future::poll_fn, sync::atomic::Ordering::SeqCst};

use super::fake::*;
use crate::committer::{Config, SubmitError};
use windlass_store::Overlap;

#[tokio::test]
async fn alone_a_write_is_a_commit_and_waits_for_nothing() {
    let store = Fake::open();
    let handle = start(&store, Config::default());
    for mark in 0..5 {
        assert_eq!(echoed(handle.submit(enqueue(u128::from(mark), mark)).await), mark);
    }
    assert_eq!(store.batches(), [[0], [1], [2], [3], [4]]);
}

#[tokio::test]
async fn what_comes_during_a_commit_is_the_next_batch() {
    let store = Fake::shut();
    let handle = start(&store, Config::default());
    let first = handle.try_submit(enqueue(0, 0)).unwrap();
    store.begins().await;
    let others: Vec<_> =
        (1..=500).map(|mark| handle.try_submit(enqueue(u128::from(mark), mark)).unwrap()).collect();
    store.let_through(1);
    assert_eq!(echoed(first.await), 0);
    store.begins().await;
    store.let_through(1);
    for (ticket, mark) in others.into_iter().zip(1..) {
        assert_eq!(echoed(ticket.await), mark);
    }
    assert_eq!(store.batches(), [vec![0], (1..=500).collect()]);
}

#[tokio::test]
async fn a_second_commit_sets_out_when_it_has_become_many() {
    let store = Fake::shut_with(Overlap { commits_max: 2, writes_min: 3 });
    let handle = start(&store, Config::default());
    let submit = |mark: u32| handle.try_submit(enqueue(u128::from(mark), mark)).unwrap();
    let mut tickets = vec![submit(0)];
    store.begins().await;
    tickets.extend([submit(1), submit(2)]);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.batches(), [[0]], "two are too few to set out");
    tickets.push(submit(3));
    store.begins().await;
    // Two are on their way, and no more fit. Then one has landed, and it is not the last.
    tickets.extend([submit(4), submit(5), submit(6)]);
    store.let_through(1);
    store.begins().await;
    assert_eq!(store.batches(), [vec![0], vec![1, 2, 3], vec![4, 5, 6]]);
    // When nothing is on its way, one is enough.
    store.let_through(2);
    for (ticket, mark) in tickets.into_iter().zip(0..) {
        assert_eq!(echoed(ticket.await), mark);
    }
    store.let_through(1);
    assert_eq!(echoed(submit(7).await), 7);
}

#[tokio::test]
async fn claims_that_wait_for_each_other_let_settles_pass() {
    let store = Fake::shut_with(Overlap { commits_max: 2, writes_min: 2 });
    store.claims_wait.store(true, SeqCst);
    let handle = start(&store, Config::default());
    tokio::task::yield_now().await;
    let submit = |write| handle.try_submit(write).unwrap();
    let mut tickets = vec![submit(claim(500, 0))];
    store.begins().await;
    tickets.push(submit(claim(500, 1)));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.batches(), [[0]], "what waits for another is not much");
    tickets.extend([submit(settle(2, 2)), submit(settle(3, 3))]);
    store.begins().await;
    assert_eq!(store.batches(), [vec![0], vec![2, 3]]);
    store.let_through(1);
    tickets.push(submit(claim(500, 4)));
    store.begins().await;
    assert_eq!(store.batches().last(), Some(&vec![1, 4]), "claims that wait go together");
    store.let_through(2);
    for (ticket, mark) in tickets.into_iter().zip(0..) {
        assert_eq!(echoed(ticket.await), mark);
    }
}

#[tokio::test]
async fn claims_that_do_not_wait_for_each_other_overlap() {
    let store = Fake::shut_with(Overlap { commits_max: 2, writes_min: 2 });
    let handle = start(&store, Config::default());
    let first = handle.try_submit(claim(500, 0)).unwrap();
    store.begins().await;
    let second = handle.try_submit(claim(500, 1)).unwrap();
    store.begins().await;
    assert_eq!(store.batches(), [[0], [1]]);
    store.let_through(2);
    assert_eq!((echoed(first.await), echoed(second.await)), (0, 1));
}

#[tokio::test]
async fn a_wake_up_is_an_empty_batch_or_part_of_one_that_waits() {
    let store = Fake::shut();
    let handle = start(&store, Config::default());
    handle.wake();
    store.begins().await;
    handle.wake();
    handle.wake();
    let ticket = handle.try_submit(enqueue(0, 0)).unwrap();
    store.let_through(2);
    assert_eq!(echoed(ticket.await), 0);
    assert_eq!(store.batches(), [vec![], vec![0]]);
}

#[tokio::test]
async fn nothing_is_answered_before_the_commit_has_ended() {
    let store = Fake::shut();
    let handle = start(&store, Config::default());
    let mut ticket = handle.try_submit(enqueue(0, 0)).unwrap();
    store.begins().await;
    let is_ready = poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut ticket).poll(context).is_ready())
    });
    assert!(!is_ready.await);
    store.let_through(1);
    assert_eq!(echoed(ticket.await), 0);
}

#[tokio::test]
async fn a_batch_is_bounded_by_number_and_by_bytes() {
    let store = Fake::shut();
    let handle = start(&store, Config { batch_max: 4, queue_max: 100 });
    let first = handle.try_submit(enqueue(0, 0)).unwrap();
    store.begins().await;
    let mut tickets = vec![first];
    for mark in 1..=6 {
        tickets.push(handle.try_submit(enqueue(u128::from(mark), mark)).unwrap());
    }
    // Two of 8 KiB count for three each; one of 40 KiB is more than a batch and goes alone.
    for (mark, bytes) in [(7, 8 << 10), (8, 8 << 10), (9, 40 << 10), (10, 0)] {
        tickets.push(handle.try_submit(enqueue_large(u128::from(mark), mark, bytes)).unwrap());
    }
    store.let_through(10);
    for (ticket, mark) in tickets.into_iter().zip(0..) {
        assert_eq!(echoed(ticket.await), mark);
    }
    let expected = [vec![0], vec![1, 2, 3, 4], vec![5, 6], vec![7], vec![8], vec![9], vec![10]];
    assert_eq!(store.batches(), expected);
}

#[tokio::test]
async fn many_writes_keep_their_order_and_share_a_commit() {
    let store = Fake::open();
    let handle = start(&store, Config { batch_max: 10, queue_max: 10 });
    let writes = (0..25).map(|mark| cancel(7, mark)).collect();
    let answers = handle.submit_many(writes).await;
    assert_eq!(answers.into_iter().map(echoed).collect::<Vec<_>>(), (0..25).collect::<Vec<_>>());
    assert_eq!(store.given(), (0..25).collect::<Vec<_>>());
    assert_eq!(store.batches().len(), 3);
    assert!(handle.submit_many(Vec::new()).await.is_empty());
}

#[tokio::test]
async fn many_writes_of_both_lanes_keep_their_order_on_one_job() {
    let store = Fake::open();
    let handle = start(&store, Config { batch_max: 3, queue_max: 4 });
    let write = |mark: u32| if mark.is_multiple_of(3) { settle(1, mark) } else { cancel(1, mark) };
    let answers = handle.submit_many((0..50).map(write).collect()).await;
    assert_eq!(answers.into_iter().map(echoed).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
    assert_eq!(store.given(), (0..50).collect::<Vec<_>>());
}

#[tokio::test]
async fn leases_are_not_starved_by_a_flood_of_new_jobs() {
    let store = Fake::shut();
    let handle = start(&store, Config { batch_max: 8, queue_max: 1000 });
    drop(handle.try_submit(enqueue(0, 0)).unwrap());
    store.begins().await;
    for mark in 1..=1000 {
        drop(handle.try_submit(enqueue(u128::from(mark), mark)).unwrap());
    }
    // The bulk lane is full, the lease lane is not.
    assert!(matches!(handle.try_submit(enqueue(1, 1)), Err(SubmitError::Full)));
    let settled = handle.try_submit(settle(5000, 2001)).unwrap();
    let renewed = handle.try_submit(renew(2002)).unwrap();
    store.let_through(2);
    assert_eq!(echoed(settled.await), 2001);
    assert_eq!(echoed(renewed.await), 2002);
    assert_eq!(store.batches()[1], [2001, 2002, 1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn new_jobs_are_not_starved_by_a_flood_of_leases() {
    let store = Fake::shut();
    let handle = start(&store, Config { batch_max: 16, queue_max: 1000 });
    drop(handle.try_submit(enqueue(0, 0)).unwrap());
    store.begins().await;
    for mark in 1..=100 {
        drop(handle.try_submit(renew(mark)).unwrap());
    }
    let tickets: Vec<_> = (101..=104)
        .map(|mark| handle.try_submit(enqueue(u128::from(mark), mark)).unwrap())
        .collect();
    store.let_through(3);
    for (ticket, mark) in tickets.into_iter().zip(101..) {
        assert_eq!(echoed(ticket.await), mark);
    }
    let second: Vec<u32> = (1..=14).chain([101, 102]).collect();
    assert_eq!(store.batches()[1], second);
}

#[tokio::test]
async fn a_full_queue_makes_a_submitter_wait_and_says_so_to_who_will_not() {
    let store = Fake::shut();
    let handle = start(&store, Config { batch_max: 2, queue_max: 2 });
    drop(handle.try_submit(enqueue(0, 0)).unwrap());
    store.begins().await;
    drop(handle.try_submit(enqueue(1, 1)).unwrap());
    drop(handle.try_submit(enqueue(2, 2)).unwrap());
    assert!(matches!(handle.try_submit(enqueue(3, 3)), Err(SubmitError::Full)));

    let patient = tokio::spawn({
        let handle = handle.clone();
        async move { handle.submit(enqueue(4, 4)).await }
    });
    let withdrawn = tokio::spawn({
        let handle = handle.clone();
        async move { handle.submit(enqueue(5, 5)).await }
    });
    tokio::task::yield_now().await;
    withdrawn.abort();
    assert!(withdrawn.await.unwrap_err().is_cancelled());
    assert!(!patient.is_finished());
    store.let_through(3);
    assert_eq!(echoed(patient.await.unwrap()), 4);
    assert_eq!(store.batches(), [vec![0], vec![1, 2], vec![4]]);
}

#[tokio::test]
async fn a_tenant_that_floods_the_queue_waits_for_its_own_and_another_finds_room() {
    let store = Fake::shut();
    // A tenant has an eighth of 80.
    let handle = start(&store, Config { batch_max: 4, queue_max: 80 });
    drop(handle.try_submit(enqueue(0, 0)).unwrap());
    store.begins().await;
    let flood: Vec<_> = (1..=100)
        .map(|mark| {
            let handle = handle.clone();
            tokio::spawn(async move { handle.submit(enqueue(u128::from(mark), mark)).await })
        })
        .collect();
    let withdrawn = {
        let handle = handle.clone();
        tokio::spawn(async move { handle.submit(enqueue(1_000, 1_000)).await })
    };
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
    // One that was withdrawn while it waited has given back what it had.
    withdrawn.abort();
    let quiet = {
        let handle = handle.clone();
        tokio::spawn(async move { handle.submit(enqueue_of("quiet", 2_000, 2_000)).await })
    };
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
    store.let_through(1_000);
    assert_eq!(echoed(quiet.await.unwrap()), 2_000);
    let before = store.given().iter().position(|mark| *mark == 2_000).unwrap();
    assert_eq!(before, 11, "one on its way, and ten that found room before it");
    for (ticket, mark) in flood.into_iter().zip(1..) {
        assert_eq!(echoed(ticket.await.unwrap()), mark, "none is left behind");
    }
}
