//! The same claim sent again: it gets what it still holds of what it got before, and never anything else.

use std::{collections::HashSet, time::Duration};

use windlass_kernel::{
    By, Epoch, Jitter, JobId, Retention, State,
    ops::{Cancel, Claim, Expire, Expiry, NewJob, Release},
};
use windlass_store::{ClaimMany, Granted, Reply, Write};

use super::races::at_once;
use crate::common::*;

for_each_backend!(
    after_its_job_was_settled_it_gets_nothing,
    after_its_job_was_released_it_gets_nothing,
    after_its_lease_ran_out_it_gets_nothing,
    after_its_job_was_cancelled_it_gets_nothing,
    what_another_worker_sends_under_its_id_gets_nothing,
    it_gets_what_it_still_holds_and_nothing_beside_it,
    one_that_looks_through_several_queues_gets_nothing_either,
    one_that_got_nothing_may_take_jobs_later,
    twice_in_one_commit_it_counts_once,
    many_that_are_answered_together_get_no_more_than_they_want,
    from_many_sides_at_once_it_counts_once,
    it_is_known_for_an_hour,
    it_is_known_for_as_long_as_it_holds_something,
    claims_that_were_long_ago_are_forgotten,
);

for_each_lasting_backend!(after_the_store_was_opened_again_it_gets_nothing,);

/// What a claim is told: what it got, and whether it is told so once more.
fn told(test: &TestStore, claim: ClaimMany) -> (Vec<Granted>, bool) {
    match test.write(Write::Claim(claim)).unwrap() {
        Reply::Granted { jobs, repeated, .. } => (jobs, repeated),
        other => panic!("a claim was answered with {other:?}"),
    }
}

/// A store in which claim 1 of the worker got job 1, which does not run yet, and job 2 is ready.
fn with_one_claimed(backend: Backend) -> (TestStore, JobId, Epoch) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let (got, repeated) = told(&test, first());
    assert_eq!((got.len(), got[0].job.id, repeated), (1, id, false));
    test.enqueue(2, plain());
    (test, id, got[0].job.epoch)
}

fn first() -> ClaimMany {
    ClaimMany { start: false, ..wanted("w1", 1, 1) }
}

/// The same claim again gets nothing, and another one gets job 2: nothing was taken for nobody.
fn gets_nothing(test: &TestStore) {
    for _ in 0..2 {
        let (got, repeated) = told(test, first());
        assert!(got.is_empty() && repeated, "it got {got:?}");
    }
    let other = test.claim("w1", 2, 10);
    assert!(other.iter().any(|it| it.job.id == JobId::from_u128(2)));
}

fn after_its_job_was_settled_it_gets_nothing(backend: Backend) {
    let (test, id, epoch) = with_one_claimed(backend);
    test.op(windlass_kernel::ops::Start { job_id: id, epoch, by: By::worker(worker("w1")) })
        .unwrap();
    test.op(settle(id, epoch, succeeded())).unwrap();
    gets_nothing(&test);
}

fn after_its_job_was_released_it_gets_nothing(backend: Backend) {
    let (test, id, epoch) = with_one_claimed(backend);
    test.op(Release { job_id: id, epoch, by: By::worker(worker("w1")) }).unwrap();
    assert_eq!(test.job(id).state, State::Queued);
    gets_nothing(&test);
}

fn after_its_lease_ran_out_it_gets_nothing(backend: Backend) {
    let (test, id, _) = with_one_claimed(backend);
    test.pass(LEASE);
    let (version, what, jitter) = (test.job(id).version, Expiry::Lease, Jitter::NONE);
    test.op(Expire { job_id: id, version, what, jitter }).unwrap();
    gets_nothing(&test);
}

fn after_its_job_was_cancelled_it_gets_nothing(backend: Backend) {
    let (test, id, _) = with_one_claimed(backend);
    let (force, grace) = (true, Duration::ZERO);
    test.op(Cancel { job_id: id, force, grace, reason: None, by: person("ann") }).unwrap();
    gets_nothing(&test);
}

fn what_another_worker_sends_under_its_id_gets_nothing(backend: Backend) {
    let (test, id, _) = with_one_claimed(backend);
    let (got, repeated) = told(&test, ClaimMany { worker: worker("w2"), ..first() });
    assert!(got.is_empty() && repeated, "it got {got:?}");
    let (got, _) = told(&test, first());
    assert_eq!((got.len(), got[0].job.id), (1, id));
}

fn it_gets_what_it_still_holds_and_nothing_beside_it(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=6 {
        test.enqueue(number, plain());
    }
    let got = test.claim("w1", 1, 3);
    for left in [2, 1, 0] {
        let done = &got[left].job;
        test.op(settle(done.id, done.epoch, succeeded())).unwrap();
        let (again, repeated) = told(&test, wanted("w1", 1, 3));
        let ids = |got: &[Granted]| got.iter().map(|it| it.job.id).collect::<HashSet<_>>();
        assert_eq!((ids(&again), repeated), (ids(&got[..left]), true));
    }
    assert_eq!(test.claim("w1", 2, 10).len(), 3);
}

/// PostgreSQL has another way for these.
fn one_that_looks_through_several_queues_gets_nothing_either(backend: Backend) {
    let test = TestStore::new(backend);
    let queues = ["mail", "bills"].map(queue).to_vec();
    let wanted = |claim| ClaimMany { queues: queues.clone(), ..wanted("w1", claim, 1) };
    for number in 1..=4 {
        let queue = queues[number as usize % 2].clone();
        test.enqueue(number, NewJob { queue, ..plain() });
    }
    let job = told(&test, wanted(1)).0.remove(0).job;
    test.op(settle(job.id, job.epoch, succeeded())).unwrap();
    // Beside others that want the same, and are answered together with it.
    let claims = [2, 1, 3, 1].map(|claim| Write::Claim(wanted(claim)));
    let replies = test.commit(claims.to_vec());
    let got: Vec<usize> = replies.iter().map(|it| granted(it.as_ref().unwrap()).len()).collect();
    assert_eq!(got, [1, 0, 1, 0]);
}

fn one_that_got_nothing_may_take_jobs_later(backend: Backend) {
    let test = TestStore::new(backend);
    for _ in 0..2 {
        let (got, repeated) = told(&test, wanted("w1", 1, 1));
        assert!(got.is_empty() && !repeated);
    }
    let id = test.enqueue(1, plain());
    let (got, repeated) = told(&test, wanted("w1", 1, 1));
    assert_eq!((got.len(), got[0].job.id, repeated), (1, id, false));
}

/// PostgreSQL answers claims together that want the same, up to a bound. One that is beyond it comes between others that
/// were answered already.
fn many_that_are_answered_together_get_no_more_than_they_want(backend: Backend) {
    let test = TestStore::new(backend);
    let queues = ["mail", "bills"].map(queue).to_vec();
    let new = |number: u128| {
        let queue = queues[usize::from(number.is_multiple_of(2))].clone();
        enqueue(number, NewJob { queue, ..plain() })
    };
    for first in (1..=7_000).step_by(1_000) {
        test.commit((first..first + 1_000).map(|number| write(new(number))).collect());
    }
    let sizes = [900, 900, 900, 900, 900, 900, 500];
    let claims = (1..).zip(sizes).map(|(claim, max)| {
        Write::Claim(ClaimMany { queues: queues.clone(), ..wanted("w1", claim, max) })
    });
    let replies = test.commit(claims.collect());
    let got: Vec<usize> = replies.iter().map(|it| granted(it.as_ref().unwrap()).len()).collect();
    assert_eq!(got, sizes);
    let held = (1..=7_000).filter(|id| test.job(JobId::from_u128(*id)).lease.is_some()).count();
    assert_eq!(held, sizes.iter().sum::<usize>(), "each lease is in somebody's answer");
}

fn twice_in_one_commit_it_counts_once(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=6 {
        test.enqueue(number, plain());
    }
    let other = Write::Claim(wanted("w2", 1, 2));
    let replies = test.commit(vec![claim_many("w1", 1, 2), claim_many("w1", 1, 2), other]);
    let got: Vec<_> = replies.iter().map(|it| granted(it.as_ref().unwrap())).collect();
    assert_eq!([got[0].len(), got[1].len(), got[2].len()], [2, 2, 0]);
    // The settles of a commit come first, whatever stands before them.
    let done = got[0].iter().map(|it| write(settle(it.job.id, it.job.epoch, succeeded())));
    let replies = test.commit([claim_many("w1", 1, 2)].into_iter().chain(done).collect());
    assert!(granted(replies[0].as_ref().unwrap()).is_empty());
    assert_eq!(test.claim("w1", 2, 10).len(), 4);
}

fn from_many_sides_at_once_it_counts_once(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=40 {
        test.enqueue(number, plain());
    }
    let replies = at_once(&test, vec![claim_many("w1", 1, 1); 32]);
    let got: HashSet<JobId> =
        replies.iter().flat_map(|it| granted(it.as_ref().unwrap())).map(|it| it.job.id).collect();
    assert_eq!(got.len(), 1);
    assert_eq!(test.claim("w1", 2, 100).len(), 39);
}

/// Looks for what may be forgotten until nothing is left to do.
fn prune(test: &TestStore) {
    while test.wait(test.store.prune(Retention::default(), 100)).more {}
}

fn it_is_known_for_an_hour(backend: Backend) {
    let (test, id, _) = with_one_claimed(backend);
    let (force, grace) = (true, Duration::ZERO);
    test.op(Cancel { job_id: id, force, grace, reason: None, by: person("ann") }).unwrap();
    test.pass(Claim::REMEMBERED_FOR);
    prune(&test);
    gets_nothing(&test);
}

fn it_is_known_for_as_long_as_it_holds_something(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let day = Duration::from_secs(24 * 60 * 60);
    let long = || ClaimMany { lease: day, ..wanted("w1", 1, 1) };
    assert_eq!(told(&test, long()).0.len(), 1);
    test.enqueue(2, plain());
    test.pass(day / 2);
    prune(&test);
    let (again, repeated) = told(&test, long());
    assert_eq!((again.len(), again[0].job.id, repeated), (1, id, true));
}

fn claims_that_were_long_ago_are_forgotten(backend: Backend) {
    // More than one step takes.
    const CLAIMS: u128 = 5_000;
    let test = TestStore::new(backend);
    for batch in 0..10 {
        let numbers = || batch * CLAIMS / 10 + 1..=(batch + 1) * CLAIMS / 10;
        let jobs = numbers().map(|number| write(enqueue(number, plain())));
        assert!(test.commit(jobs.collect()).iter().all(Result::is_ok));
        let claims = numbers().map(|number| claim_many("w1", number, 1)).collect();
        let done = test.commit(claims).into_iter().map(|reply| {
            let job = granted(&reply.unwrap()).remove(0).job;
            write(settle(job.id, job.epoch, succeeded()))
        });
        let done = done.collect();
        assert!(test.commit(done).iter().all(Result::is_ok));
    }
    assert_eq!(u128::from(test.home.count("claims")), CLAIMS);
    // Those that got nothing are not kept.
    assert!(test.claim("w1", CLAIMS + 1, 1).is_empty());
    test.pass(Claim::REMEMBERED_FOR);
    prune(&test);
    assert_eq!(u128::from(test.home.count("claims")), CLAIMS);
    test.pass(2 * Claim::REMEMBERED_FOR);
    if !matches!(backend, Backend::Postgres) {
        // Also where nothing is ever pruned: each one that is added takes two of them away.
        for number in 1..=100 {
            test.enqueue(2 * CLAIMS + number, plain());
            assert_eq!(test.claim("w1", 2 * CLAIMS + number, 1).len(), 1);
        }
        assert_eq!(u128::from(test.home.count("claims")), CLAIMS - 2 * 100 + 100);
        test.pass(3 * Claim::REMEMBERED_FOR);
    }
    prune(&test);
    assert_eq!(test.home.count("claims"), 0);
}

fn after_the_store_was_opened_again_it_gets_nothing(backend: Backend) {
    let (test, id, epoch) = with_one_claimed(backend);
    test.op(Release { job_id: id, epoch, by: By::worker(worker("w1")) }).unwrap();
    gets_nothing(&test.reopen());
}
