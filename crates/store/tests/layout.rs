//! How SQLite keeps it: rows stay small, and what is forgotten makes room.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::time::Duration;

use common::*;
use windlass_kernel::{
    By, Digest, JobId, Retention, WorkerId,
    ops::{Checkpoint, NewJob},
};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const CHECKPOINTS: u64 = 600;

fn count(test: &FileStore, sql: &str) -> u64 {
    test.sql().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A whole pass by age. It gives back how many jobs are gone.
fn prune(test: &FileStore) -> u64 {
    let retention = Retention { finished_for: HOUR, ..Retention::default() };
    let mut jobs = 0;
    loop {
        let pruned = test.wait(test.store.prune(retention, 100));
        let report = test.home.check();
        assert!(report.is_clean(), "{report}");
        jobs += pruned.jobs;
        if !pruned.more {
            return jobs;
        }
    }
}

#[test]
fn a_small_payload_stands_in_the_row_and_a_large_one_beside_it() {
    let test = FileStore::new();
    for (number, text) in (1..).zip(texts()) {
        test.enqueue(number, with_payload(&text));
        let seq: i64 = number.try_into().unwrap();
        let sql = "SELECT payload IS NOT NULL, EXISTS (SELECT 1 FROM payloads WHERE payloads.seq = jobs.seq)
                   FROM jobs WHERE seq = ?1";
        let places = test.sql().query_row(sql, [seq], |row| Ok((row.get(0)?, row.get(1)?)));
        let is_small = text.len() <= 256;
        assert_eq!(places, Ok((is_small, !is_small)), "{} bytes", text.len());
    }
}

#[test]
fn a_row_does_not_grow_with_the_history_of_its_job() {
    let test = FileStore::new();
    let job_id = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let by = By::worker(WorkerId::new("w1").unwrap());
    for number in 0..CHECKPOINTS {
        let state = Digest::of(&number.to_string());
        test.op(Checkpoint { job_id, epoch, by: by.clone(), state, kept: None }).unwrap();
    }
    test.op(settle(job_id, epoch, succeeded())).unwrap();
    // Creation, claim and start, then the checkpoints, then the end.
    let expected = CHECKPOINTS + 4;
    let (in_row, elsewhere): (u64, u64) = test
        .sql()
        .query_row("SELECT length(history), (SELECT count(*) FROM job_log) FROM jobs", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert!(in_row <= 32 + 17 * 8, "{in_row} bytes of history in the row");
    // One commit each, but for the claim, which started the job too.
    assert_eq!(elsewhere + (in_row - 32) / 8, expected - 1);
}

#[test]
fn a_log_row_with_few_living_lines_is_thinned_and_they_keep_their_numbers() {
    let test = FileStore::new();
    test.commit((1..=10).map(|number| write(enqueue(number, plain()))).collect());
    let at = Some(test.now().plus(1000 * DAY));
    let waits = test.enqueue(11, NewJob { scheduled_at: at, ..plain() });
    let mut granted = test.claim("w1", 1, 10);
    let last = granted.pop().unwrap().job;
    for granted in granted {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    let before: Vec<_> =
        [last.id, waits].map(|id| test.wait(test.store.events(&Scope::Every, id))).into();
    let size = "SELECT sum(length(events)) FROM log";
    let (bytes, numbers) = (count(&test, size), event_numbers(&test, last.id));
    test.pass(DAY);
    assert_eq!(prune(&test), 9);
    assert!(count(&test, size) * 3 < bytes, "{} of {bytes} bytes are left", count(&test, size));
    let after: Vec<_> =
        [last.id, waits].map(|id| test.wait(test.store.events(&Scope::Every, id))).into();
    assert_eq!((after, event_numbers(&test, last.id)), (before, numbers));
    assert_eq!(count(&test, "SELECT count(*) FROM pruned"), 1, "only what the last row speaks of");
    test.op(settle(last.id, last.epoch, succeeded())).unwrap();
    test.pass(DAY);
    assert_eq!(prune(&test), 1);
}

fn event_numbers(test: &FileStore, id: JobId) -> String {
    let sql = "SELECT group_concat(number) FROM events WHERE job_id = ?1";
    test.sql().query_row(sql, [id.to_string()], |row| row.get(0)).unwrap()
}

#[test]
fn what_is_forgotten_makes_room_for_what_is_new() {
    let test = FileStore::new();
    let retention = Retention { finished_for: HOUR, ..Retention::default() };
    let mut sizes = Vec::new();
    for round in 0..12_u128 {
        let numbers = round * 200 + 1..=round * 200 + 200;
        let text = format!("\"{}\"", "x".repeat(500));
        test.commit(numbers.map(|it| write(enqueue(it, with_payload(&text)))).collect());
        for granted in test.claim("w1", round + 1, 1000) {
            test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
        }
        test.pass(HOUR);
        while test.wait(test.store.prune(retention, 1000)).more {}
        sizes.push(count(&test, "SELECT page_count FROM pragma_page_count"));
    }
    assert!(sizes[11] <= sizes[2], "the file grows: {sizes:?} pages");
}
