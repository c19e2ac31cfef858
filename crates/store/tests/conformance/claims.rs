//! Claims and sessions: who gets what, told once more, and renewed.

use std::{collections::HashSet, time::Duration};

use windlass_kernel::{
    Event, Jitter, JobId, Kind, State,
    job::Priority,
    ops::{Cancel, Claim, Expire, Expiry, NewJob, Outcome, RetryNow},
};
use windlass_store::{
    ClaimMany, Reply, Write,
    read::{Listens, Word},
};

use crate::common::*;

for_each_backend!(
    a_claim_over_several_queues_takes_the_best,
    a_queue_that_is_named_twice_counts_once,
    the_same_claim_again_gets_the_same_leases,
    a_claim_may_ask_for_all_there_is,
    a_claim_that_comes_late_once_more_does_not_take_its_job_again,
    a_job_that_kills_its_workers_is_granted_alone,
    a_job_that_kills_its_workers_is_granted_alone_in_one_batch_too,
    a_session_renews_all_its_leases_and_they_are_counted,
    a_renewal_tells_what_is_to_be_cancelled_and_what_was_taken,
    sessions_and_claims_that_make_no_sense_are_refused,
    a_claim_names_a_bounded_number_of_queues_and_kinds,
);

for_each_lasting_backend!(a_lease_lasts_as_long_whether_the_writer_remembers_it_or_not,);

fn events(test: &TestStore, id: JobId) -> Vec<Event> {
    test.wait(test.store.events(&Scope::Every, id))
}

fn a_claim_over_several_queues_takes_the_best(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 0..25u128 {
        let queue = queue(["mail", "bills", "calls"][(number % 3) as usize]);
        // The order of priorities has nothing to do with the order of creation.
        let priority = Priority((number * 7 % 25).try_into().unwrap());
        test.enqueue(number + 1, NewJob { queue, priority, ..plain() });
    }
    let mut all = wanted("w1", 1, 10);
    all.queues = ["mail", "bills", "calls"].map(queue).to_vec();
    let got = granted(&test.write(Write::Claim(all)).unwrap());
    let mut priorities: Vec<i16> = got.iter().map(|it| it.job.spec.priority.0).collect();
    priorities.sort_unstable();
    assert_eq!(priorities, (0..10).collect::<Vec<_>>());
}

fn a_queue_that_is_named_twice_counts_once(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=3 {
        test.enqueue(number, plain());
    }
    let mut twice = wanted("w1", 1, 10);
    twice.queues.push(queue(NewJob::DEFAULT_NAME));
    let got = granted(&test.write(Write::Claim(twice)).unwrap());
    assert_eq!(got.len(), 3);
    for got in got {
        let numbers: Vec<u64> = events(&test, got.job.id).iter().map(|it| it.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }
}

fn the_same_claim_again_gets_the_same_leases(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=6 {
        test.enqueue(number, plain());
    }
    let ids = |got: &[windlass_store::Granted]| -> HashSet<JobId> {
        got.iter().map(|it| it.job.id).collect()
    };
    let first = test.claim("w1", 1, 2);
    let again = test.claim("w1", 1, 2);
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(again[0].job.epoch, first[0].job.epoch);
    assert_eq!(test.job(first[0].job.id).lease_count, 1);

    // In one batch, too.
    let replies = test.commit(vec![claim_many("w1", 2, 2), claim_many("w1", 2, 2)]);
    let [one, other] = [&replies[0], &replies[1]].map(|it| granted(it.as_ref().unwrap()));
    assert_eq!(one.len(), 2);
    assert_eq!(ids(&one), ids(&other));

    // What it has given back in the meantime is no longer its own.
    let done = settle(first[0].job.id, first[0].job.epoch, succeeded());
    let replies = test.commit(vec![write(done), claim_many("w1", 1, 2)]);
    let left = granted(replies[1].as_ref().unwrap());
    assert_eq!(ids(&left), HashSet::from([first[1].job.id]));
}

fn a_claim_may_ask_for_all_there_is(backend: Backend) {
    let test = TestStore::new(backend);
    test.enqueue(1, plain());
    let first = test.claim("w1", 1, usize::MAX).remove(0).job;
    test.enqueue(2, plain());
    // What the same batch touched is left for the next claim.
    let done = write(settle(first.id, first.epoch, succeeded()));
    let replies =
        test.commit(vec![done, write(enqueue(3, plain())), claim_many("w1", 2, usize::MAX)]);
    assert_eq!(granted(replies[2].as_ref().unwrap()).len(), 1);
    assert_eq!(test.claim("w1", 3, usize::MAX).len(), 1);
    // Also if what it touched could be claimed, and was only looked at.
    let ready = test.enqueue(4, plain());
    let refused = write(RetryNow { job_id: ready, by: person("ann") });
    let replies = test.commit(vec![refused, claim_many("w1", 4, usize::MAX)]);
    assert!(replies[0].is_err());
    assert!(granted(replies[1].as_ref().unwrap()).len() <= 1);
    assert!(test.claim("w1", 5, usize::MAX).len() <= 1);
    assert_eq!(test.job(ready).state, State::Running);
}

fn a_claim_that_comes_late_once_more_does_not_take_its_job_again(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let (version, what, jitter) = (test.job(id).version, Expiry::DeadSession, Jitter::NONE);
    test.op(Expire { job_id: id, version, what, jitter }).unwrap();
    assert!(test.claim("w1", 1, 1).is_empty());
    assert_eq!(test.job(id).state, State::Interrupted);
    assert!(test.claim("w1", 2, 1)[0].job.epoch > epoch);
}

/// A job that was interrupted twice, and has waited for less than the patience of workers.
fn poison(test: &TestStore, number: u128) -> JobId {
    let id = test.enqueue(number, NewJob { priority: Priority(-1), ..plain() });
    for claim in 1..=2 {
        let got = test.claim("w0", number * 1000 + claim, 1);
        assert_eq!(got[0].job.id, id);
        let (version, what) = (test.job(id).version, Expiry::DeadSession);
        let jitter = Jitter::NONE;
        test.op(Expire { job_id: id, version, what, jitter }).unwrap();
    }
    id
}

fn a_job_that_kills_its_workers_is_granted_alone(backend: Backend) {
    let test = TestStore::new(backend);
    let poison = poison(&test, 1);
    for number in 2..=4 {
        test.enqueue(number, plain());
    }
    let got = test.claim("w1", 1, 10);
    assert_eq!(got.iter().map(|it| it.job.id).collect::<Vec<_>>(), [poison]);
    assert!(got[0].job.lease.as_ref().unwrap().alone);
    assert!(test.claim("w1", 2, 10).is_empty(), "it gets nothing beside it");
    assert_eq!(test.claim("w2", 3, 10).len(), 3);
    test.op(settle(poison, got[0].job.epoch, succeeded())).unwrap();
    test.enqueue(5, plain());
    assert_eq!(test.claim("w1", 4, 10).len(), 1);
}

fn a_job_that_kills_its_workers_is_granted_alone_in_one_batch_too(backend: Backend) {
    let test = TestStore::new(backend);
    let poison = poison(&test, 1);
    test.enqueue(2, plain());
    let replies = test.commit(vec![claim_many("w1", 1, 10), claim_many("w1", 2, 10)]);
    let got: Vec<_> = replies.iter().map(|it| granted(it.as_ref().unwrap())).collect();
    assert_eq!(got[0].iter().map(|it| it.job.id).collect::<Vec<_>>(), [poison]);
    assert!(got[1].is_empty(), "it got something beside it");

    // And whoever settles it can have the next at once.
    let done = write(settle(poison, got[0][0].job.epoch, succeeded()));
    let replies = test.commit(vec![done, claim_many("w1", 3, 10)]);
    assert_eq!(granted(replies[1].as_ref().unwrap()).len(), 1);
}

fn renew(by: &str, lease: Duration) -> Write {
    Write::RenewSession { worker: worker(by), lease }
}

fn a_session_renews_all_its_leases_and_they_are_counted(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=4 {
        test.enqueue(number, plain());
    }
    let early = test.claim("w1", 1, 2);
    let other = test.claim("w2", 2, 1);
    test.pass(Duration::from_secs(30));
    let until = test.now().plus(LEASE);
    let Ok(Reply::Renewed { until: told, cancelled, held }) = test.write(renew("w1", LEASE)) else {
        panic!("the renewal was not answered")
    };
    assert_eq!((told, cancelled.len(), held.len()), (until, 0, 2));
    let late = test.claim("w1", 3, 1);
    test.write(renew("w1", LEASE)).unwrap();

    let lease = |got: &windlass_store::Granted| {
        let job = test.job(got.job.id);
        (job.lease.unwrap().until, job.lease_count)
    };
    assert_eq!([lease(&early[0]), lease(&early[1])], [(until, 3); 2]);
    assert_eq!(lease(&late[0]), (until, 2));
    assert_eq!(lease(&other[0]).1, 1);
    // Nothing of it is history.
    assert_eq!(events(&test, early[0].job.id).len(), 3);
    // What was counted stays when the lease is gone.
    let id = early[0].job.id;
    test.op(settle(id, early[0].job.epoch, failed_for_now())).unwrap();
    assert_eq!(test.job(id).lease_count, 3);
}

fn a_renewal_tells_what_is_to_be_cancelled_and_what_was_taken(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=3 {
        test.enqueue(number, plain());
    }
    let got = test.claim("w1", 1, 3);
    let (job_id, grace) = (got[0].job.id, Duration::from_secs(30));
    let by = person("ann");
    test.op(Cancel { job_id, force: false, grace, reason: None, by }).unwrap();
    let cancelled_outcome = Outcome::Cancelled { reason: None };
    // A settle in the same batch counts before the renewal, and a claim is part of it.
    let done = write(settle(got[1].job.id, got[1].job.epoch, cancelled_outcome));
    let replies = test.commit(vec![done, renew("w1", LEASE)]);
    let Ok(Reply::Renewed { cancelled, held, .. }) = &replies[1] else {
        panic!("the renewal was not answered")
    };
    assert_eq!(cancelled, &[got[0].job.id]);
    let held: HashSet<JobId> = held.iter().copied().collect();
    assert_eq!(held, HashSet::from([got[0].job.id, got[2].job.id]));
}

fn sessions_and_claims_that_make_no_sense_are_refused(backend: Backend) {
    let test = TestStore::new(backend);
    test.enqueue(1, plain());
    let unknown = test.write(renew("w9", LEASE)).unwrap_err();
    assert_eq!(unknown.code(), "NOT_FOUND");
    for lease in [Duration::from_millis(99), Claim::LEASE_MAX + Duration::from_millis(1)] {
        let mut claim = wanted("w1", 1, 1);
        claim.lease = lease;
        for write in [Write::Claim(claim), renew("w1", lease)] {
            assert_eq!(test.write(write).unwrap_err().code(), "INVALID_INPUT");
        }
    }
}

fn a_claim_names_a_bounded_number_of_queues_and_kinds(backend: Backend) {
    let test = TestStore::new(backend);
    test.enqueue(1, plain());
    let most = ClaimMany::NAMES_MAX;
    let queues = |count: usize| (0..count).map(|it| queue(&format!("q{it}"))).collect::<Vec<_>>();
    let kinds = |count: usize| {
        let kind = |it| Kind::new(format!("k{it}")).unwrap();
        (0..count).map(kind).collect::<Vec<_>>()
    };
    let many_queues = ClaimMany { queues: queues(most + 1), ..wanted("w1", 1, 1) };
    let many_kinds = ClaimMany { kinds: kinds(most + 1), ..wanted("w1", 2, 1) };
    for (claim, field) in [(many_queues, "queues"), (many_kinds, "kinds")] {
        let to = Listens { queues: claim.queues.clone(), kinds: claim.kinds.clone(), tenant: None };
        let worker = claim.worker.clone();
        let (tenant, word) = (None, Word::To(to));
        for write in [Write::Claim(claim), Write::Listens { worker, tenant, word }] {
            let refused = test.write(write).unwrap_err();
            assert!(refused.to_string().contains(field), "{refused}");
            assert!(refused.to_string().contains("several workers"), "{refused}");
        }
    }
    let mut all = ClaimMany { queues: queues(most - 1), ..wanted("w1", 3, 1) };
    all.queues.push(queue(NewJob::DEFAULT_NAME));
    assert_eq!(granted(&test.write(Write::Claim(all)).unwrap()).len(), 1);
}

fn a_lease_lasts_as_long_whether_the_writer_remembers_it_or_not(backend: Backend) {
    for reopens in [false, true] {
        let mut test = TestStore::new(backend);
        test.enqueue(1, plain());
        test.enqueue(2, plain());
        test.claim("w1", 1, 1);
        // The session is renewed for an hour, and then claims for a minute: the hour holds for both.
        test.write(renew("w1", Duration::from_secs(3600))).unwrap();
        let id = test.claim("w1", 2, 1).remove(0).job.id;
        if reopens {
            test = test.reopen();
        }
        test.pass(Duration::from_secs(61));
        let version = test.job(id).version;
        let (what, jitter) = (Expiry::Lease, Jitter::NONE);
        let told = test.op(Expire { job_id: id, version, what, jitter }).unwrap_err();
        assert_eq!(told.code(), "NOT_DUE", "reopened: {reopens}");
    }
}
