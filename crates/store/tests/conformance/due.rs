//! What time brings is found when it comes, in batches, and each time it is said when to look again.

use std::{collections::BTreeMap, time::Duration};

use windlass_kernel::{
    By, Jitter, JobId, Op, Timestamp,
    job::{Priority, Wait, WaitOn},
    ops::{Cancel, NewJob, Renew, WaitFor},
    timer::{self, Alarm},
};
use windlass_store::{
    ClaimMany, Write,
    read::{Due, DueJob},
};

use crate::common::{
    Backend, TestStore, failed_for_now, granted, person, plain, queue, settle, succeeded, wanted,
    worker,
};

for_each_backend!(
    each_alarm_rings_when_its_time_comes_and_not_before,
    what_rings_comes_in_batches_and_neither_kind_waits_for_the_other,
    a_lease_ends_when_neither_it_nor_its_session_lasts,
    a_retry_is_announced_until_it_can_be_claimed,
    whoever_looks_sees_no_earlier_time_than_whoever_wrote,
);

const SECOND: Duration = Duration::from_secs(1);
const IN_10_S: Duration = Duration::from_secs(10);

/// Carries out what an alarm asks for.
fn carry_out(test: &TestStore, due: &DueJob) {
    let job = test.job(due.job_id);
    assert_eq!((due.version, &due.tenant), (job.version, &job.spec.tenant));
    let op: Op = timer::op(&job, due.alarm, Jitter::NONE);
    test.op(op).unwrap();
}

fn due(test: &TestStore, max: usize) -> Due {
    let due = test.wait(test.store.due(max));
    assert_eq!(due.now, test.now());
    due
}

/// The numbers of the jobs that ring, and what rings.
fn rings(due: &Due) -> BTreeMap<u128, Alarm> {
    let rings: BTreeMap<u128, Alarm> =
        due.jobs.iter().map(|it| (it.job_id.as_u128(), it.alarm)).collect();
    assert_eq!(rings.len(), due.jobs.len(), "none is here twice");
    rings
}

/// A job that nobody claims in this file.
fn elsewhere() -> NewJob {
    NewJob { queue: queue("elsewhere"), ..plain() }
}

/// A worker takes one job for so long, and starts it.
fn claim_for(test: &TestStore, by: &str, claim: u128, lease: Duration) -> JobId {
    let wanted = ClaimMany { lease, ..wanted(by, claim, 1) };
    let reply = test.write(Write::Claim(wanted)).unwrap();
    granted(&reply)[0].job.id
}

fn each_alarm_rings_when_its_time_comes_and_not_before(backend: Backend) {
    let test = TestStore::new(backend);
    let at = test.now().plus(IN_10_S);
    test.enqueue(1, NewJob { scheduled_at: Some(at), ..plain() });
    test.enqueue(2, plain());
    test.enqueue(3, NewJob { timeout: Some(IN_10_S), ..plain() });
    test.enqueue(4, NewJob { heartbeat_timeout: Some(IN_10_S), ..plain() });
    test.enqueue(5, plain());
    // Of two at the same time the more final one counts.
    let both = NewJob { timeout: Some(IN_10_S), deadline_at: Some(at), ..plain() };
    test.enqueue(6, both);
    let granted = test.claim("w1", 1, 5);
    let epoch = granted[0].job.epoch;
    let (by, wait) = (By::worker(worker("w1")), Wait { on: WaitOn::Time, until: Some(at) });
    test.op(WaitFor { job_id: JobId::from_u128(2), epoch, by, wait, mails_seen: None }).unwrap();
    let (job_id, by) = (JobId::from_u128(5), person("ann"));
    test.op(Cancel { job_id, force: false, grace: IN_10_S, reason: None, by }).unwrap();
    test.enqueue(7, NewJob { schedule_to_start: Some(IN_10_S), ..elsewhere() });
    test.enqueue(8, NewJob { deadline_at: Some(at), ..elsewhere() });
    test.enqueue(9, plain());
    assert_eq!(claim_for(&test, "w2", 2, IN_10_S).as_u128(), 9);
    test.enqueue(10, NewJob { scheduled_at: Some(at.plus(SECOND)), ..plain() });

    let early = due(&test, 100);
    assert_eq!((early.jobs.len(), early.next_at, early.next_retry_at), (0, Some(at), None));
    test.pass(IN_10_S - Duration::from_micros(1));
    let early = due(&test, 100);
    assert_eq!((early.jobs.len(), early.next_at), (0, Some(at)));
    test.pass(Duration::from_micros(1));
    let now = due(&test, 100);
    let expected = [
        (1, Alarm::Due),
        (2, Alarm::Wait),
        (3, Alarm::StartToClose),
        (4, Alarm::Heartbeat),
        (5, Alarm::CancelGrace),
        (6, Alarm::Deadline),
        (7, Alarm::ScheduleToStart),
        (8, Alarm::Deadline),
        (9, Alarm::Lease),
    ];
    assert_eq!(rings(&now), BTreeMap::from(expected));
    assert_eq!(now.next_at, Some(at.plus(SECOND)));
    for it in &now.jobs {
        let holder = match it.job_id.as_u128() {
            3..=6 => Some(worker("w1")),
            9 => Some(worker("w2")),
            _ => None,
        };
        assert_eq!(it.held_by, holder, "{it:?}");
        carry_out(&test, it);
    }
    let later = due(&test, 100);
    assert_eq!((later.jobs.len(), later.next_at), (0, Some(at.plus(SECOND))));
}

fn what_rings_comes_in_batches_and_neither_kind_waits_for_the_other(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=4 {
        test.enqueue(number, plain());
        claim_for(&test, &format!("w{number}"), number, IN_10_S);
    }
    // All of these ring earlier than any lease.
    let at = Some(test.now().plus(SECOND));
    for number in 5..=12 {
        test.enqueue(number, NewJob { scheduled_at: at, ..plain() });
    }
    test.pass(IN_10_S);
    let alone = due(&test, 1);
    assert_eq!((alone.jobs.len(), alone.jobs[0].alarm), (1, Alarm::Due), "it rings longest");
    let mut found: BTreeMap<u128, Alarm> = BTreeMap::new();
    let mut batches = Vec::new();
    loop {
        let batch = due(&test, 4);
        if batch.jobs.is_empty() {
            assert_eq!(batch.next_at, None);
            break;
        }
        let leases = batch.jobs.iter().filter(|it| it.alarm == Alarm::Lease).count();
        batches.push((batch.jobs.len(), leases));
        assert_eq!(batch.next_at, Some(test.now()), "there may be more");
        batch.jobs.iter().for_each(|it| carry_out(&test, it));
        let before = found.len();
        found.extend(rings(&batch));
        assert_eq!(found.len(), before + batch.jobs.len(), "none comes twice");
    }
    assert_eq!(batches, [(4, 2), (4, 2), (4, 0)]);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
}

fn a_lease_ends_when_neither_it_nor_its_session_lasts(backend: Backend) {
    let test = TestStore::new(backend);
    let start = test.now();
    let at = |seconds: u32| Some(start.plus(SECOND * seconds));
    for number in 1..=4 {
        test.enqueue(number, plain());
    }
    let seconds = Duration::from_secs;
    // A session that holds nothing any more has no lease that could run out.
    let done = test.enqueue(5, NewJob { priority: Priority(-9), ..plain() });
    let granted = test.claim("w0", 9, 1);
    assert_eq!(granted[0].job.id, done);
    test.op(settle(done, granted[0].job.epoch, succeeded())).unwrap();
    let first = claim_for(&test, "w1", 1, seconds(10));
    let second = claim_for(&test, "w1", 2, seconds(10));
    let other = claim_for(&test, "w2", 3, seconds(20));
    assert_eq!(due(&test, 100).next_at, at(10));
    test.pass(seconds(5));
    test.write(Write::RenewSession { worker: worker("w1"), lease: seconds(30) }).unwrap();
    assert_eq!(due(&test, 100).next_at, at(20), "the session keeps both until 35");
    let epoch = test.job(second).epoch;
    let lease = seconds(70);
    test.op(Renew {
        job_id: second,
        epoch,
        by: By::worker(worker("w1")),
        lease,
        heartbeat: false,
        progress: None,
    })
    .unwrap();
    let third = claim_for(&test, "w1", 4, seconds(50));
    let check = |elapsed: u32, lapsed: &[JobId], next: Option<Timestamp>| {
        let found = due(&test, 100);
        let mut ids: Vec<JobId> = found.jobs.iter().map(|it| it.job_id).collect();
        ids.sort();
        assert_eq!((ids.as_slice(), found.next_at), (lapsed, next), "after {elapsed} s");
    };
    let mut elapsed = 5;
    let cases: [(u32, &[JobId], Option<Timestamp>); 7] = [
        (10, &[], at(20)),
        (20, &[other], at(35)),
        (34, &[other], at(35)),
        (35, &[first, other], at(55)),
        (54, &[first, other], at(55)),
        (55, &[first, third, other], at(75)),
        (75, &[first, second, third, other], None),
    ];
    for (then, lapsed, next) in cases {
        test.pass(SECOND * (then - elapsed));
        elapsed = then;
        let mut lapsed = lapsed.to_vec();
        lapsed.sort();
        check(elapsed, &lapsed, next);
    }
    due(&test, 100).jobs.iter().for_each(|it| carry_out(&test, it));
    check(elapsed, &[], None);
}

fn a_retry_is_announced_until_it_can_be_claimed(backend: Backend) {
    let test = TestStore::new(backend);
    test.enqueue(1, plain());
    test.enqueue(2, plain());
    let mut at = Vec::new();
    for claim in 1..=2 {
        let granted = test.claim("w1", claim, 1).remove(0);
        test.op(settle(granted.job.id, granted.job.epoch, failed_for_now())).unwrap();
        at.push(test.job(granted.job.id).next_retry_at.unwrap());
        test.pass(Duration::from_millis(100));
    }
    assert!(at[0] < at[1]);
    let early = due(&test, 10);
    assert_eq!((early.next_retry_at, early.next_at), (Some(at[0]), None));
    test.pass(at[0].since(test.now()));
    assert_eq!(due(&test, 10).next_retry_at, Some(at[1]));
    assert_eq!(test.claim("w1", 3, 10).len(), 1);
    test.pass(at[1].since(test.now()));
    assert_eq!(due(&test, 10).next_retry_at, None);
}

fn whoever_looks_sees_no_earlier_time_than_whoever_wrote(backend: Backend) {
    let test = TestStore::new(backend);
    let at = test.now();
    test.enqueue(1, NewJob { scheduled_at: Some(at.plus(SECOND)), ..plain() });
    test.go_back(IN_10_S);
    let due = test.wait(test.store.due(10));
    assert_eq!((due.now, due.jobs.len()), (at, 0));
}
