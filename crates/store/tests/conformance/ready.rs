//! Whoever waits for jobs is told when there may be some, by commits that are durable.

use std::time::Duration;

use windlass_kernel::{
    By, JobId, Op,
    ids::CorrelationKey,
    job::{Wait, WaitOn},
    ops::{NewJob, Release, RetryNow, WaitFor},
};
use windlass_store::{Listener, read::Scope};

use crate::common::{
    Backend, TestStore, enqueue, failed_for_now, person, plain, settle, signal, succeeded, worker,
};

for_each_backend!(
    what_makes_a_job_ready_is_told,
    what_makes_no_job_ready_is_not_told,
    a_job_of_the_inbox_is_told_when_it_is_promoted,
);

/// Was there news since this was last asked?
fn is_told(ready: &mut Listener) -> bool {
    let told = ready.is_rung();
    ready.mark_heard();
    told
}

fn what_makes_a_job_ready_is_told(backend: Backend) {
    let test = TestStore::new(backend);
    let mut ready = test.store.ready();
    let mut check = |what: &str, op: Op| {
        ready.mark_heard();
        test.op(op).unwrap();
        assert!(is_told(&mut ready), "{what} was not told");
    };
    check("a new job", enqueue(1, plain()).into());
    let (job_id, by) = (JobId::from_u128(1), By::worker(worker("w1")));
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let key = CorrelationKey::new("paid").unwrap();
    let wait = Wait { on: WaitOn::Signal(key.clone()), until: None };
    test.op(WaitFor { job_id, epoch, by: by.clone(), wait, mails_seen: None }).unwrap();
    check("a job whose wait is over", signal(job_id, key).into());
    let epoch = test.claim("w1", 2, 1)[0].job.epoch;
    check("a job that was given back", Release { job_id, epoch, by }.into());
    let epoch = test.claim("w1", 3, 1)[0].job.epoch;
    test.op(settle(job_id, epoch, failed_for_now())).unwrap();
    check("a retry that is due now", RetryNow { job_id, by: person("ann") }.into());
    assert_eq!(test.claim("w1", 4, 1).len(), 1);
}

fn what_makes_no_job_ready_is_not_told(backend: Backend) {
    let test = TestStore::new(backend);
    let mut ready = test.store.ready();
    // A node of PostgreSQL tells once a second in any case: so it may take more than one try to see that it was
    // not told for this.
    let mut check = |what: &str, act: &dyn Fn(u128)| {
        let untold = (1..=10).any(|round| {
            ready.mark_heard();
            act(round);
            !is_told(&mut ready)
        });
        assert!(untold, "{what} was told");
    };
    let far = test.now().plus(Duration::from_secs(3600));
    check("a job for later", &|round| {
        test.enqueue(round, NewJob { scheduled_at: Some(far), ..plain() });
    });
    test.enqueue(100, plain());
    check("an op that was refused", &|_| {
        let other = NewJob { max_retries: 9, ..plain() };
        test.op(enqueue(100, other)).unwrap_err();
    });
    check("a claim", &|round| drop(test.claim("w1", round, 1)));
    let job = test.job(JobId::from_u128(100));
    check("an end", &|_| {
        test.op(settle(job.id, job.epoch, succeeded())).unwrap();
    });
    check("a commit of nothing", &|_| drop(test.commit(Vec::new())));
}

fn a_job_of_the_inbox_is_told_when_it_is_promoted(backend: Backend) {
    let test = TestStore::new(backend);
    let mut ready = test.store.ready();
    let mut user = test.home.user();
    user.begin();
    user.put(&enqueue(1, plain()), test.now()).unwrap();
    user.sql("COMMIT");
    // It is promoted by itself, and told with the promotion: nobody need ask. A node of PostgreSQL may have said
    // something before.
    test.runtime.block_on(async {
        loop {
            let told = tokio::time::timeout(Duration::from_secs(30), ready.rung());
            told.await.expect("it is told");
            if !test.store.counts(&Scope::Every).await.unwrap().is_empty() {
                return;
            }
        }
    });
    assert_eq!(test.claim("w1", 1, 1).len(), 1);
}
