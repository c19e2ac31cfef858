//! Whoever looks after alarms is told when it has to look earlier than it knows, and not otherwise.

use std::time::Duration;

use windlass_kernel::{
    By, JobId, Timestamp,
    job::{Wait, WaitOn},
    ops::{NewJob, WaitFor},
};
use windlass_store::{ClaimMany, Listener, Write};

use crate::common::{
    Backend, TestStore, enqueue, failed_for_now, plain, settle, succeeded, wanted, worker,
};

for_each_backend!(
    an_earlier_alarm_is_told_and_a_later_one_is_not,
    a_lease_is_told_if_it_ends_before_all_that_is_known,
    a_retry_and_a_follow_up_are_told,
    commits_while_others_look_are_not_missed,
);

const SECOND: Duration = Duration::from_secs(1);

/// Whoever looks after alarms.
struct Watcher<'a> {
    test: &'a TestStore,
    sooner: Listener,
}

impl<'a> Watcher<'a> {
    fn new(test: &'a TestStore) -> Self {
        Self { test, sooner: test.store.sooner() }
    }

    /// Looks, and says when it will look again.
    fn look(&mut self) -> Option<Timestamp> {
        let due = self.test.wait(self.test.store.due(100));
        self.sooner.mark_heard();
        [due.next_at, due.next_retry_at].into_iter().flatten().min()
    }

    #[track_caller]
    fn is_told(&mut self) {
        assert!(self.sooner.is_rung(), "it was not told");
        self.sooner.mark_heard();
    }

    #[track_caller]
    fn is_not_told(&mut self) {
        assert!(!self.sooner.is_rung(), "it was told");
    }
}

fn scheduled(test: &TestStore, number: u128, seconds: u32) {
    let at = test.now().plus(SECOND * seconds);
    test.enqueue(number, NewJob { scheduled_at: Some(at), ..plain() });
}

fn an_earlier_alarm_is_told_and_a_later_one_is_not(backend: Backend) {
    let test = TestStore::new(backend);
    let start = test.now();
    let mut watcher = Watcher::new(&test);
    test.enqueue(1, plain());
    watcher.is_not_told();
    scheduled(&test, 2, 100);
    watcher.is_told();
    assert_eq!(watcher.look(), Some(start.plus(SECOND * 100)));
    scheduled(&test, 3, 101);
    scheduled(&test, 4, 100);
    watcher.is_not_told();
    scheduled(&test, 5, 99);
    watcher.is_told();
    // It has been told of 99 seconds, and has not looked since.
    scheduled(&test, 6, 99);
    watcher.is_not_told();
    scheduled(&test, 7, 98);
    watcher.is_told();
    assert_eq!(watcher.look(), Some(start.plus(SECOND * 98)));
    let other = NewJob { scheduled_at: Some(start.plus(SECOND)), ..plain() };
    test.op(enqueue(1, other)).unwrap_err();
    watcher.is_not_told();
    // What a job of the batch waits for counts like an alarm that a new one brings.
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    assert_eq!(watcher.look(), Some(start.plus(SECOND * 60)));
    let wait = Wait { on: WaitOn::Time, until: Some(start.plus(SECOND * 50)) };
    let by = By::worker(worker("w1"));
    test.op(WaitFor { job_id: JobId::from_u128(1), epoch, by, wait, mails_seen: None }).unwrap();
    watcher.is_told();
    assert_eq!(watcher.look(), Some(start.plus(SECOND * 50)));
    test.pass(SECOND * 100);
    assert_eq!(watcher.look(), Some(start.plus(SECOND * 101)));
}

fn claim_for(test: &TestStore, by: &str, claim: u128, lease: Duration) {
    test.enqueue(claim, plain());
    test.write(Write::Claim(ClaimMany { lease, ..wanted(by, claim, 1) })).unwrap();
}

fn a_lease_is_told_if_it_ends_before_all_that_is_known(backend: Backend) {
    let test = TestStore::new(backend);
    let mut watcher = Watcher::new(&test);
    assert_eq!(watcher.look(), None);
    claim_for(&test, "w1", 1, SECOND * 60);
    watcher.is_told();
    assert_eq!(watcher.look(), Some(test.now().plus(SECOND * 60)));
    claim_for(&test, "w1", 2, SECOND * 60);
    claim_for(&test, "w2", 3, SECOND * 61);
    watcher.is_not_told();
    claim_for(&test, "w2", 4, SECOND * 30);
    watcher.is_told();
    test.write(Write::RenewSession { worker: worker("w2"), lease: SECOND * 90 }).unwrap();
    assert_eq!(watcher.look(), Some(test.now().plus(SECOND * 60)));
    // Its session lasts longer than the lease by itself.
    claim_for(&test, "w2", 5, SECOND * 30);
    watcher.is_not_told();
    assert_eq!(watcher.look(), Some(test.now().plus(SECOND * 60)));
}

fn a_retry_and_a_follow_up_are_told(backend: Backend) {
    let test = TestStore::new(backend);
    let parent = test.enqueue(1, plain());
    test.enqueue(2, NewJob { parent: Some(parent), ..plain() });
    let granted = test.claim("w1", 1, 2);
    let mut watcher = Watcher::new(&test);
    watcher.look();
    let job = granted[0].job.clone();
    assert_eq!(job.id, parent);
    test.op(settle(job.id, job.epoch, failed_for_now())).unwrap();
    watcher.is_told();
    assert_eq!(watcher.look(), test.job(job.id).next_retry_at);
    let child = granted[1].job.clone();
    test.op(settle(child.id, child.epoch, succeeded())).unwrap();
    watcher.is_told();
    let stored = test.wait(test.store.follow_ups(10));
    test.write(Write::FollowUpDone { id: stored[0].id }).unwrap();
    watcher.is_not_told();
}

/// One looks again and again while alarms are set: after each, either it was told or its last look said so.
fn commits_while_others_look_are_not_missed(backend: Backend) {
    let test = TestStore::new(backend);
    let start = test.now();
    let mut sooner = test.store.sooner();
    let store = test.store.clone();
    // Each alarm is earlier than all before it.
    let rounds = 200_u32;
    let looking = test.runtime.spawn(async move {
        let first = start.plus(SECOND);
        loop {
            let due = store.due(10).await.unwrap();
            if due.next_at == Some(first) {
                return;
            }
            let told = tokio::time::timeout(Duration::from_secs(20), sooner.rung()).await;
            told.unwrap_or_else(|_| panic!("nobody told, and {:?} was known", due.next_at));
        }
    });
    for round in 1..=rounds {
        scheduled(&test, u128::from(round), rounds + 1 - round);
    }
    test.runtime.block_on(looking).unwrap();
}
