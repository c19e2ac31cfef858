//! A job with a long history: all of it can be read, and it breaks no rule.

use windlass_kernel::{By, Digest, WorkerId, ops::Checkpoint};

use crate::common::*;

for_each_backend!(all_of_a_long_history_can_be_read,);

const CHECKPOINTS: u64 = 600;

fn all_of_a_long_history_can_be_read(backend: Backend) {
    let test = TestStore::new(backend);
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
    let events = test.wait(test.store.events(&Scope::Every, job_id));
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=expected).collect::<Vec<_>>());
    assert_eq!(windlass_kernel::fold(&events).unwrap().state, job.state);

    let report = test.close().check();
    assert!(report.violations.is_empty(), "{report}");
}
