//! How far a handler says it has come: the last report of the epoch that holds the lease, and no history.

use std::time::Duration;

use windlass_kernel::{Answer, By, Epoch, JobId, Refusal, Retention, ops::Renew};
use windlass_store::read::Progress;

use crate::common::*;

for_each_backend!(
    a_report_is_kept_byte_for_byte_and_the_next_one_replaces_it,
    a_renewal_without_a_report_leaves_the_last_one,
    only_the_epoch_that_holds_the_lease_can_report,
    a_report_that_is_too_long_changes_nothing,
    of_several_reports_in_one_commit_the_last_one_counts,
    a_report_is_no_event,
    a_report_outlives_its_epoch_and_goes_with_its_job,
);

for_each_lasting_backend!(a_report_is_there_after_a_restart);

const LEASE: Duration = Duration::from_secs(60);

fn renew(job_id: JobId, epoch: Epoch, progress: Option<&str>) -> Renew {
    let progress = progress.map(payload);
    Renew { job_id, epoch, by: By::worker(worker("w1")), lease: LEASE, heartbeat: true, progress }
}

fn report(test: &TestStore, id: JobId, epoch: Epoch, text: &str) -> Result<Answer, Refusal> {
    test.op(renew(id, epoch, Some(text)))
}

fn progress(test: &TestStore, id: JobId) -> Option<Progress> {
    test.wait(test.store.progress(&Scope::Every, id))
}

fn value(test: &TestStore, id: JobId) -> Option<String> {
    progress(test, id).map(|it| it.value)
}

/// A job that runs, and the epoch that runs it.
fn running(test: &TestStore, number: u128) -> (JobId, Epoch) {
    let id = test.enqueue(number, plain());
    let granted = test.claim("w1", number, 1);
    assert_eq!(granted[0].job.id, id);
    (id, granted[0].job.epoch)
}

fn a_report_is_kept_byte_for_byte_and_the_next_one_replaces_it(backend: Backend) {
    let test = TestStore::new(backend);
    let (id, epoch) = running(&test, 1);
    assert_eq!(progress(&test, id), None, "nothing was said");
    let longest = format!("\"{}\"", "x".repeat(Renew::PROGRESS_BYTES_MAX - 2));
    let texts = [
        "{ \"b\" : 1.50,\t\"a\":[ ] }",
        "12345678901234567890.10",
        "\"\u{e9}\u{1f389} \\u0000 \\/\"",
        "null",
        &longest,
    ];
    for text in texts {
        test.pass(Duration::from_secs(7));
        report(&test, id, epoch, text).unwrap();
        let expected = Progress { epoch, at: test.now(), value: text.to_owned() };
        assert_eq!(progress(&test, id), Some(expected));
    }
    assert_eq!(test.home.count("progress"), 1);
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn a_renewal_without_a_report_leaves_the_last_one(backend: Backend) {
    let test = TestStore::new(backend);
    let (id, epoch) = running(&test, 1);
    report(&test, id, epoch, "1").unwrap();
    let said = progress(&test, id);
    test.pass(Duration::from_secs(7));
    test.op(renew(id, epoch, None)).unwrap();
    assert_eq!(progress(&test, id), said);
}

fn only_the_epoch_that_holds_the_lease_can_report(backend: Backend) {
    let test = TestStore::new(backend);
    let (id, old) = running(&test, 1);
    report(&test, id, old, "1").unwrap();
    test.pass(LEASE * 2);
    let first = test.wait(test.store.due(10)).jobs.remove(0);
    let jitter = windlass_kernel::Jitter::NONE;
    test.op(windlass_kernel::timer::op_for(id, first.version, first.alarm, jitter)).unwrap();
    assert_eq!(report(&test, id, old, "2").unwrap_err().code(), "STALE_ATTEMPT");
    let new = test.claim("w2", 2, 1)[0].job.epoch;
    assert_eq!(report(&test, id, old, "3").unwrap_err().code(), "STALE_ATTEMPT");
    assert_eq!(progress(&test, id).unwrap().epoch, old, "it stands until there is a newer one");
    assert_eq!(value(&test, id).as_deref(), Some("1"));
    report(&test, id, new, "4").unwrap();
    let said = progress(&test, id).unwrap();
    assert_eq!((said.epoch, said.value.as_str()), (new, "4"));
    test.op(settle(id, new, succeeded())).unwrap();
    assert!(report(&test, id, new, "5").is_err(), "it is at its end");
    assert_eq!(value(&test, id).as_deref(), Some("4"));
}

fn a_report_that_is_too_long_changes_nothing(backend: Backend) {
    let test = TestStore::new(backend);
    let (id, epoch) = running(&test, 1);
    report(&test, id, epoch, "1").unwrap();
    let before = test.job(id);
    test.pass(Duration::from_secs(1));
    let long = format!("\"{}\"", "x".repeat(Renew::PROGRESS_BYTES_MAX - 1));
    assert_eq!(report(&test, id, epoch, &long).unwrap_err().code(), "INVALID_INPUT");
    assert_eq!(value(&test, id).as_deref(), Some("1"));
    assert_eq!(test.job(id), before, "the lease is not renewed either");
}

fn of_several_reports_in_one_commit_the_last_one_counts(backend: Backend) {
    let test = TestStore::new(backend);
    let (first, first_epoch) = running(&test, 1);
    let (second, second_epoch) = running(&test, 2);
    let mut writes = Vec::new();
    for number in 0..10 {
        let text = number.to_string();
        writes.push(write(renew(second, second_epoch, Some(&text))));
        writes.push(write(renew(first, first_epoch, Some(&text))));
    }
    writes.push(write(renew(first, first_epoch, None)));
    // One that is refused does not concern its neighbours.
    writes.push(write(renew(second, Epoch::new(second_epoch.get() + 1), Some("99"))));
    let refused = test.commit(writes).iter().filter(|reply| reply.is_err()).count();
    assert_eq!(refused, 1);
    for id in [first, second] {
        assert_eq!(value(&test, id).as_deref(), Some("9"));
    }
}

fn a_report_is_no_event(backend: Backend) {
    let test = TestStore::new(backend);
    let (id, epoch) = running(&test, 1);
    let (before, version) =
        (test.wait(test.store.feed(&Scope::Every, 0, 100)).events.len(), test.job(id).version);
    report(&test, id, epoch, "1").unwrap();
    assert_eq!(test.wait(test.store.feed(&Scope::Every, 0, 100)).events.len(), before);
    assert_eq!(test.job(id).version, version);
    let lease = test.job(id).lease.unwrap();
    assert_eq!(lease.beat_at, test.now(), "it is a sign of life");
}

fn a_report_outlives_its_epoch_and_goes_with_its_job(backend: Backend) {
    let test = TestStore::new(backend);
    let (finished, epoch) = running(&test, 1);
    report(&test, finished, epoch, "1").unwrap();
    test.op(settle(finished, epoch, succeeded())).unwrap();
    let (open, epoch) = running(&test, 2);
    report(&test, open, epoch, "2").unwrap();
    assert_eq!(value(&test, finished).as_deref(), Some("1"), "also after its end");
    let hour = Duration::from_secs(3600);
    test.pass(hour);
    let retention = Retention { finished_for: hour, ..Retention::default() };
    while test.wait(test.store.prune(retention, 100)).more {}
    assert_eq!(value(&test, finished), None);
    assert_eq!(value(&test, open).as_deref(), Some("2"));
    assert_eq!(test.home.count("progress"), 1);
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn a_report_is_there_after_a_restart(backend: Backend) {
    let test = TestStore::new(backend);
    let (id, epoch) = running(&test, 1);
    report(&test, id, epoch, "[ 1 ]").unwrap();
    let said = progress(&test, id);
    let test = test.reopen();
    assert_eq!(progress(&test, id), said);
}
