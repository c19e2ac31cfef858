//! Every way to end, and what those who wait are told.

use windlass_store::Error;

use super::fake::*;
use crate::committer::{Committer, Config, SubmitError};

#[tokio::test]
async fn shutdown_commits_what_was_accepted_and_accepts_no_more() {
    let store = Fake::shut();
    let (handle, shutdown, ended) = start_until(&store, Config { batch_max: 2, queue_max: 5 });
    let first = handle.try_submit(enqueue(0, 0)).unwrap();
    store.begins().await;
    let tickets: Vec<_> =
        (1..=5).map(|mark| handle.try_submit(enqueue(u128::from(mark), mark)).unwrap()).collect();
    let waits_for_room = tokio::spawn({
        let handle = handle.clone();
        async move { handle.submit(enqueue(6, 6)).await }
    });
    tokio::task::yield_now().await;
    shutdown.send(()).unwrap();
    assert!(matches!(waits_for_room.await.unwrap(), Err(SubmitError::Closed)));
    assert!(matches!(handle.try_submit(settle(7, 7)), Err(SubmitError::Closed)));
    assert!(matches!(handle.submit(enqueue(8, 8)).await, Err(SubmitError::Closed)));
    let many = handle.submit_many(vec![enqueue(9, 9), settle(9, 10)]).await;
    assert!(many.iter().all(|answer| matches!(answer, Err(SubmitError::Closed))));

    store.let_through(100);
    assert_eq!(echoed(first.await), 0);
    for (ticket, mark) in tickets.into_iter().zip(1..) {
        assert_eq!(echoed(ticket.await), mark);
    }
    assert!(ended.await.unwrap().is_ok());
    assert_eq!(store.batches(), [vec![0], vec![1, 2], vec![3, 4], vec![5]]);
}

#[tokio::test]
async fn an_idle_committer_ends_at_once() {
    let (handle, shutdown, ended) = start_until(&Fake::open(), Config::default());
    tokio::task::yield_now().await;
    shutdown.send(()).unwrap();
    assert!(ended.await.unwrap().is_ok());
    assert!(matches!(handle.submit(enqueue(1, 1)).await, Err(SubmitError::Closed)));
}

#[tokio::test]
async fn a_stopped_store_ends_the_committer_and_everybody_is_told() {
    let store = Fake::judging_shut(|_| Err(Error::Stopped("the disk failed".to_owned())));
    let (handle, _shutdown, ended) = start_until(&store, Config { batch_max: 2, queue_max: 10 });
    let first = handle.try_submit(enqueue(0, 0)).unwrap();
    store.begins().await;
    let others = [enqueue(1, 1), settle(2, 2), cancel(2, 3), renew(4), enqueue(5, 5)]
        .map(|write| handle.try_submit(write).unwrap());
    store.let_through(1);
    for ticket in [first].into_iter().chain(others) {
        assert_eq!(store_error(ticket.await), "the store has stopped: the disk failed");
    }
    let error = ended.await.unwrap().unwrap_err();
    assert!(matches!(*error, Error::Stopped(_)));
    // Whoever comes later hears the same: that it is about to end would be another story.
    let late = handle.submit(enqueue(6, 6)).await;
    assert_eq!(store_error(late), "the store has stopped: the disk failed");
    assert!(matches!(handle.try_submit(enqueue(7, 7)), Err(SubmitError::Store(_))));
    assert_eq!(store.batches(), [[0]]);
}

#[tokio::test]
async fn a_panic_loses_no_answer() {
    let store = Fake::judging_shut(|_| panic!("a store that breaks"));
    let (handle, _shutdown, ended) = start_until(&store, Config::default());
    let in_flight = handle.try_submit(enqueue(0, 0)).unwrap();
    store.begins().await;
    let waiting = handle.try_submit(enqueue(1, 1)).unwrap();
    store.let_through(1);
    assert!(ended.await.unwrap_err().is_panic());
    assert_eq!(store_error(in_flight.await), "the commit's outcome is unknown");
    assert!(matches!(waiting.await, Err(SubmitError::Closed)));
    assert!(matches!(handle.try_submit(enqueue(2, 2)), Err(SubmitError::Closed)));
}

#[tokio::test]
async fn a_committer_that_is_dropped_in_flight_loses_no_answer() {
    let store = Fake::shut();
    let (handle, _shutdown, ended) = start_until(&store, Config::default());
    let in_flight = handle.try_submit(enqueue(0, 0)).unwrap();
    store.begins().await;
    let waiting = handle.try_submit(enqueue(1, 1)).unwrap();
    ended.abort();
    assert!(ended.await.unwrap_err().is_cancelled());
    assert_eq!(store_error(in_flight.await), "the commit's outcome is unknown");
    assert!(matches!(waiting.await, Err(SubmitError::Closed)));
}

#[tokio::test]
async fn a_committer_that_never_ran_loses_no_answer() {
    let committer = Committer::new(Fake::open(), Config::default());
    let handle = committer.handle();
    let waiting = handle.try_submit(enqueue(0, 0)).unwrap();
    drop(committer);
    assert!(matches!(waiting.await, Err(SubmitError::Closed)));
    assert!(matches!(handle.submit(enqueue(1, 1)).await, Err(SubmitError::Closed)));
}
