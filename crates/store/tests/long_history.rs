//! A job with a long history: its row stays small, and all of it can be read.

mod common;

use common::*;
use windlass_kernel::{By, Digest, WorkerId, ops::Checkpoint};
use windlass_store::{Store as _, sqlite};

const CHECKPOINTS: u64 = 600;

#[test]
fn a_row_does_not_grow_with_the_history_of_its_job() {
    let test = TestStore::new();
    let job_id = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let by = By::worker(WorkerId::new("w1").unwrap());
    for number in 0..CHECKPOINTS {
        let state = Digest::of(&number.to_string());
        test.op(Checkpoint { job_id, epoch, by: by.clone(), state }).unwrap();
    }
    test.op(settle(job_id, epoch, succeeded())).unwrap();

    // Creation, claim and start, then the checkpoints, then the end.
    let expected = CHECKPOINTS + 4;
    let job = test.job(job_id);
    assert_eq!(job.version, expected);
    let events = test.wait(test.store.events(job_id));
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=expected).collect::<Vec<_>>());
    assert_eq!(windlass_kernel::fold(&events).unwrap().state, job.state);

    let (in_row, elsewhere): (u64, u64) = test
        .sql()
        .query_row("SELECT length(history), (SELECT count(*) FROM job_log) FROM jobs", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert!(in_row <= 32 + 17 * 8, "{in_row} bytes of history in the row");
    // One commit each, but for the claim, which started the job too.
    assert_eq!(elsewhere + (in_row - 32) / 8, expected - 1);

    let (path, _folder) = test.close();
    let report = sqlite::check(&path).unwrap();
    assert!(report.violations.is_empty(), "{report}");
}
