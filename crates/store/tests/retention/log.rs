//! What the log still says when jobs are forgotten, and what a reader of the feed is told.

use windlass_kernel::{JobId, ops::NewJob};
use windlass_store::{Error, Store as _};

use crate::{DAY, HOUR, common::*, count, finish, older_than, prune};

#[test]
fn a_log_row_with_few_living_lines_is_thinned_and_they_keep_their_numbers() {
    let test = TestStore::new();
    test.commit((1..=10).map(|number| write(enqueue(number, plain()))).collect());
    let at = Some(test.now().plus(1000 * DAY));
    let waits = test.enqueue(11, NewJob { scheduled_at: at, ..plain() });
    let mut granted = test.claim("w1", 1, 10);
    let last = granted.pop().unwrap().job;
    for granted in granted {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    let before: Vec<_> = [last.id, waits].map(|id| test.wait(test.store.events(id))).into();
    let size = "SELECT sum(length(events)) FROM log";
    let (bytes, numbers) = (count(&test, size), event_numbers(&test, last.id));
    test.pass(DAY);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 9);
    assert!(count(&test, size) * 3 < bytes, "{} of {bytes} bytes are left", count(&test, size));
    let after: Vec<_> = [last.id, waits].map(|id| test.wait(test.store.events(id))).into();
    assert_eq!((after, event_numbers(&test, last.id)), (before, numbers));
    assert_eq!(count(&test, "SELECT count(*) FROM pruned"), 1, "only what the last row speaks of");
    test.op(settle(last.id, last.epoch, succeeded())).unwrap();
    test.pass(DAY);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 1);
}

fn event_numbers(test: &TestStore, id: JobId) -> String {
    let sql = "SELECT group_concat(number) FROM events WHERE job_id = ?1";
    test.sql().query_row(sql, [id.to_string()], |row| row.get(0)).unwrap()
}

#[test]
fn a_reader_of_the_feed_that_was_away_too_long_is_told() {
    let test = TestStore::new();
    for number in 1..=5 {
        finish(&test, number, plain());
    }
    let all = test.wait(test.store.feed(0, 100));
    assert_eq!(all.len(), 20);
    test.pass(DAY);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 5);
    let error = test.runtime.block_on(test.store.feed(3, 100)).unwrap_err();
    let Error::FeedGone { from } = error else { panic!("{error}") };
    assert_eq!((error.code(), from), ("FEED_GONE", 20));
    assert!(error.to_string().contains("from number 20 on"), "{error}");
    // The last row stays, so that numbers go on where they were.
    assert_eq!(test.wait(test.store.feed(from - 1, 100)), all[19..]);
    assert!(test.wait(test.store.feed(from, 100)).is_empty());

    let (path, folder) = test.close();
    let again = TestStore::open(&path).unwrap();
    again.pass(2 * DAY);
    again.enqueue(6, plain());
    let feed = again.wait(again.store.feed(from, 100));
    assert_eq!(feed.iter().map(|event| event.number).collect::<Vec<_>>(), [21]);
    drop((again, folder));
}
