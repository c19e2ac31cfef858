//! Answers on the spot: a future is ready when it is first polled, and no time passes meanwhile.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::runtime::{Builder, Handle};
use windlass_kernel::{JobId, Retention, State, Timestamp};
use windlass_store::{
    Commit as _, Keep as _, ReadFeed as _, ReadJobs as _, ReadQueues as _, StoreFuture,
    read::{FeedEvent, Scope},
    sqlite::{MemoryOptions, Sqlite},
};

use super::{
    common::{rich::Rich, *},
    enqueue_own, in_memory,
};

/// The answer of a future that is polled once, by nobody who could be woken.
fn at_once<T>(mut future: StoreFuture<'_, T>) -> T {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.unwrap(),
        Poll::Pending => panic!("it makes its caller wait"),
    }
}

#[test]
fn whatever_is_asked_is_answered_at_the_first_poll() {
    let store = in_memory(true);
    let id = JobId::from_u128(1);
    at_once(store.commit(vec![write(enqueue(1, plain()))].into())).remove(0).unwrap();
    assert_eq!(at_once(store.job(&Scope::Every, id)).unwrap().state, State::Queued);
    assert_eq!(at_once(store.events(&Scope::Every, id)).len(), 1);
    assert_eq!(at_once(store.feed(&Scope::Every, 0, 10)).events.len(), 1);
    assert_eq!(at_once(store.counts(&Scope::Every)).len(), 1);
    assert_eq!(at_once(store.prune(Retention::default(), 10)).jobs, 0);
    at_once(store.raise_incarnation());
}

#[test]
fn the_inbox_is_promoted_by_a_commit_and_by_nothing_else() {
    let store = in_memory(true);
    enqueue_own(&store, 1, plain());
    // Whoever watched the inbox would have noticed.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(at_once(store.counts(&Scope::Every)), []);
    at_once(store.commit(Arc::default()));
    assert_eq!(at_once(store.counts(&Scope::Every)).len(), 1);
}

/// More than tokio lets a task do before it has to yield.
const COMMITS: u128 = 400;

#[test]
fn no_time_passes_while_the_store_works() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let start = runtime.block_on(async { tokio::time::Instant::now() });
    // The store asks on a thread of its own, where tokio's time is known only to whoever enters.
    let handle: Handle = runtime.handle().clone();
    let clock = Arc::new(move || {
        let _entered = handle.enter();
        Timestamp::from_micros(START).plus(start.elapsed())
    });
    let store = Sqlite::in_memory(MemoryOptions { clock, ticks: None, inline: true }).unwrap();
    runtime.block_on(async {
        // A timer that is due soon would be the first thing to happen if the runtime were ever idle.
        let timer = tokio::spawn(tokio::time::sleep(Duration::from_millis(1)));
        for number in 1..=COMMITS {
            store.commit(vec![write(enqueue(number, plain()))].into()).await.unwrap();
            let job = store.job(&Scope::Every, JobId::from_u128(number)).await.unwrap().unwrap();
            assert_eq!(job.spec.created_at, Timestamp::from_micros(START));
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(!timer.is_finished());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        store.commit(vec![write(enqueue(1_000, plain()))].into()).await.unwrap();
        let job = store.job(&Scope::Every, JobId::from_u128(1_000)).await.unwrap().unwrap();
        assert_eq!(job.spec.created_at.since(Timestamp::from_micros(START)), start.elapsed());
    });
}

/// What the feed says after a random past.
fn feed_of(seed: u64) -> Vec<FeedEvent> {
    let mut rich = Rich::new_in(Arc::new(MemoryHome::new_inline()));
    rich.live(seed, 300, 5);
    for claim in 1..=20 {
        let now = rich.world.now;
        rich.commit(vec![claim_many("w1", claim, 3), claim_many("w2", claim << 32, 2)], now);
    }
    rich.use_inbox();
    let report = rich.home.check();
    assert!(report.is_clean(), "{report}");
    let feed = rich.wait(rich.store.feed(&Scope::Every, 0, 10_000));
    assert!(feed.events.len() > 100, "{} events prove little", feed.events.len());
    feed.events
}

#[test]
fn the_same_past_gives_the_same_feed() {
    for seed in 1..=5 {
        assert_eq!(feed_of(seed), feed_of(seed), "seed {seed}");
    }
    assert_ne!(feed_of(1), feed_of(2));
}

/// Several threads may ask at once; each of them waits for its own answer.
#[test]
fn many_threads_may_wait_at_once() {
    let store = in_memory(true);
    std::thread::scope(|scope| {
        for thread in 1..=100u128 {
            let store = &store;
            scope.spawn(move || {
                for number in 1..=5 {
                    let id = thread << 32 | number;
                    at_once(store.commit(vec![write(enqueue(id, plain()))].into()));
                    assert!(at_once(store.job(&Scope::Every, JobId::from_u128(id))).is_some());
                }
            });
        }
    });
    assert_eq!(at_once(store.feed(&Scope::Every, 0, 1_000)).events.len(), 500);
}
