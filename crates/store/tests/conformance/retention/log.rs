//! What the histories still say when jobs were forgotten, and what a reader of the feed is told.

use windlass_store::Error;

use super::{DAY, HOUR, finish, older_than, prune};
use crate::common::*;

for_each_backend!(what_lives_keeps_its_history_when_its_neighbours_in_a_commit_are_forgotten,);

for_each_lasting_backend!(a_reader_of_the_feed_that_was_away_too_long_is_told,);

fn what_lives_keeps_its_history_when_its_neighbours_in_a_commit_are_forgotten(backend: Backend) {
    let test = TestStore::new(backend);
    test.commit((1..=10).map(|number| write(enqueue(number, plain()))).collect());
    let mut granted = test.claim("w1", 1, 10);
    let last = granted.pop().unwrap().job;
    for granted in granted {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    let before = test.wait(test.store.events(&Scope::Every, last.id));
    test.pass(DAY);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 9);
    assert_eq!(test.wait(test.store.events(&Scope::Every, last.id)), before);
    test.op(settle(last.id, last.epoch, succeeded())).unwrap();
    test.pass(DAY);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 1);
}

fn a_reader_of_the_feed_that_was_away_too_long_is_told(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=5 {
        finish(&test, number, plain());
    }
    let all = test.wait(test.store.feed(&Scope::Every, 0, 100));
    assert_eq!(all.events.len(), 20);
    test.pass(DAY);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 5);
    let error = test.runtime.block_on(test.store.feed(&Scope::Every, 3, 100)).unwrap_err();
    let Error::FeedGone { from } = error else { panic!("{error}") };
    assert_eq!((error.code(), from), ("FEED_GONE", 20));
    assert!(error.to_string().contains("from number 20 on"), "{error}");
    // The last row stays, so that numbers go on where they were.
    assert_eq!(test.wait(test.store.feed(&Scope::Every, from - 1, 100)).events, all.events[19..]);
    assert!(test.wait(test.store.feed(&Scope::Every, from, 100)).events.is_empty());

    let again = test.reopen();
    again.enqueue(6, plain());
    let feed = again.wait(again.store.feed(&Scope::Every, from, 100));
    assert_eq!(feed.events.iter().map(|event| event.number).collect::<Vec<_>>(), [21]);
}
