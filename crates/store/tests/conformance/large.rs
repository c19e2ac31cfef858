//! Large jobs: a claim is granted no more bytes than fit into one answer, and what does not fit is left as it is.

use std::{collections::BTreeMap, time::Duration};

use windlass_kernel::{
    JobId, State, TenantId, Timestamp,
    ops::{NewJob, Settle},
    rule::{Each, Rate},
};
use windlass_store::{ClaimMany, Granted, Reply, Write};

use super::rules::{default_queue, enqueue_of, limit, of, put, with_key};
use crate::common::*;

for_each_backend!(
    a_claim_is_granted_no_more_bytes_than_fit,
    claims_of_one_batch_have_an_answer_each,
    large_jobs_of_one_tenant_leave_turns_to_another,
    those_whose_large_jobs_did_not_fit_are_next,
    what_does_not_fit_uses_up_no_rate,
    large_jobs_with_keys_are_granted_in_parts,
    what_a_failure_said_counts_too,
    attempts_come_in_parts,
);

/// Eight of these fit, and nine do not.
const LARGE: usize = 1_000_000;

fn large() -> NewJob {
    with_payload(&format!("\"{}\"", "x".repeat(LARGE - 2)))
}

fn fill(test: &TestStore, numbers: impl Iterator<Item = u128>, new: impl Fn(u128) -> NewJob) {
    for number in numbers {
        test.enqueue(number, new(number));
    }
}

/// What a claim got, and when it is to ask again.
fn claim(test: &TestStore, claim: u128, max: usize) -> (Vec<Granted>, Option<Timestamp>) {
    match test.write(claim_many("w1", claim, max)).unwrap() {
        Reply::Granted { jobs, again_at, .. } => (jobs, again_at),
        other => panic!("a claim was answered with {other:?}"),
    }
}

fn numbers(granted: &[Granted]) -> Vec<u128> {
    granted.iter().map(|it| it.job.id.as_u128()).collect()
}

fn bytes(granted: &[Granted]) -> usize {
    granted.iter().map(|it| it.payload.len()).sum()
}

fn a_claim_is_granted_no_more_bytes_than_fit(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=20, |_| large());
    let (first, again_at) = claim(&test, 1, 100);
    assert_eq!(numbers(&first), (1..=8).collect::<Vec<_>>());
    assert_eq!(again_at, Some(test.now()), "there is more, at once");
    // What did not fit is as it was: it has no lease, no epoch and no event.
    let left = test.job(JobId::from_u128(9));
    assert_eq!((left.state, left.epoch.get(), left.version), (State::Queued, 0, 1));
    let (same, _) = claim(&test, 1, 100);
    assert_eq!((numbers(&same), bytes(&same)), (numbers(&first), 8 * LARGE));
    let (second, again_at) = claim(&test, 2, 100);
    assert_eq!(numbers(&second), (9..=16).collect::<Vec<_>>());
    assert!(again_at.is_some());
    let (rest, again_at) = claim(&test, 3, 100);
    assert_eq!((numbers(&rest), again_at), ((17..=20).collect(), None));
    // Whoever asks for fewer than fit is not told to hurry.
    fill(&test, 21..=30, |_| large());
    let (few, again_at) = claim(&test, 4, 3);
    assert_eq!((few.len(), again_at), (3, None));
}

fn claims_of_one_batch_have_an_answer_each(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=20, |_| large());
    let replies = test.commit(vec![claim_many("w1", 1, 50), claim_many("w2", 2, 50)]);
    let counts: Vec<usize> = replies.iter().map(|it| granted(it.as_ref().unwrap()).len()).collect();
    assert_eq!(counts, [8, 8]);
    assert_eq!(claim(&test, 3, 50).0.len(), 4);
}

fn large_jobs_of_one_tenant_leave_turns_to_another(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=20 {
        test.write(enqueue_of("acme", number, large())).unwrap();
        test.write(enqueue_of("bolt", 100 + number, plain())).unwrap();
    }
    let mut counts: BTreeMap<TenantId, usize> = BTreeMap::new();
    for number in 1..=2 {
        let (granted, again_at) = claim(&test, number, 100);
        assert!(bytes(&granted) <= ClaimMany::BYTES_MAX);
        assert!(again_at.is_some(), "claim {number} leaves something");
        granted.iter().for_each(|it| *counts.entry(it.job.spec.tenant.clone()).or_default() += 1);
    }
    assert!(counts[&of("acme")] >= 4 && counts[&of("bolt")] >= 4, "{counts:?}");
}

fn those_whose_large_jobs_did_not_fit_are_next(backend: Backend) {
    let test = TestStore::new(backend);
    // Eight have older jobs than the last two, and each claim has room for eight.
    for number in 0..40 {
        let tenant = if number < 36 { number % 8 } else { 8 + number % 2 };
        test.write(enqueue_of(&format!("t{tenant}"), number + 1, large())).unwrap();
        test.pass(Duration::from_millis(1));
    }
    let mut counts: BTreeMap<TenantId, usize> = BTreeMap::new();
    for number in 1..=2 {
        let (granted, _) = claim(&test, number, 20);
        assert_eq!(granted.len(), 8);
        granted.iter().for_each(|it| *counts.entry(it.job.spec.tenant.clone()).or_default() += 1);
    }
    assert_eq!(counts.len(), 10, "each has had a turn: {counts:?}");
    assert!(counts.values().all(|count| *count <= 2), "{counts:?}");
}

fn what_does_not_fit_uses_up_no_rate(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=20, |_| large());
    let per = Duration::from_secs(3600);
    let rate = Rate { count: 12, per, burst: Some(12), each: Each::Together };
    test.write(put("slowly", default_queue(), windlass_kernel::Says::Rate(rate))).unwrap();
    let counts: Vec<usize> = (1..=3).map(|number| claim(&test, number, 100).0.len()).collect();
    assert_eq!(counts, [8, 4, 0]);
}

fn large_jobs_with_keys_are_granted_in_parts(backend: Backend) {
    let test = TestStore::new(backend);
    test.write(put("each", default_queue(), limit(1, Each::Key))).unwrap();
    let keyed = |number: u128| NewJob { payload: large().payload, ..with_key(&number.to_string()) };
    fill(&test, 1..=20, keyed);
    let both = vec![claim_many("w1", 1, 50), claim_many("w2", 2, 50)];
    let replies = test.commit(both);
    let mut got: Vec<u128> =
        replies.iter().flat_map(|it| numbers(&granted(it.as_ref().unwrap()))).collect();
    assert_eq!(got.len(), 16);
    let (rest, again_at) = claim(&test, 3, 50);
    assert_eq!((rest.len(), again_at), (4, None));
    got.extend(numbers(&rest));
    got.sort_unstable();
    assert_eq!(got, (1..=20).collect::<Vec<_>>());
}

fn attempts_come_in_parts(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, NewJob { max_retries: 20, ..plain() });
    let stats = large().payload;
    for number in 1..=10 {
        let epoch = claim(&test, number, 1).0[0].job.epoch;
        let settle = Settle { stats: Some(stats.clone()), ..settle(id, epoch, failed_for_now()) };
        test.op(settle).unwrap();
        test.pass(Duration::from_secs(3600));
    }
    let (mut after, mut parts) = (0, Vec::new());
    loop {
        let page = test.wait(test.store.attempts(&Scope::Every, id, after, 1_000));
        assert!(page.items.iter().all(|it| it.stats.as_ref() == Some(&stats)));
        parts.push(page.items.iter().map(|it| it.attempt).collect::<Vec<_>>());
        after = page.items.last().unwrap().attempt;
        if !page.more {
            break;
        }
    }
    assert_eq!(parts, [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9, 10]]);
    let few = test.wait(test.store.attempts(&Scope::Every, id, 2, 1));
    assert_eq!((few.items[0].attempt, few.items.len(), few.more), (3, 1, true));
    let last = test.wait(test.store.last_output(&Scope::Every, id)).unwrap();
    assert_eq!((last.attempt, last.stats.as_deref()), (10, Some(stats.as_str())));
}

fn what_a_failure_said_counts_too(backend: Backend) {
    let test = TestStore::new(backend);
    let message = "x".repeat(windlass_kernel::Failure::MESSAGE_MAX_BYTES);
    let count = ClaimMany::BYTES_MAX / message.len() + 10;
    for first in (0..count as u128).step_by(100) {
        let last = (first + 100).min(count as u128);
        let writes = (first..last).map(|number| write(enqueue(number + 1, plain()))).collect();
        assert!(test.commit(writes).iter().all(Result::is_ok));
    }
    let all = claim(&test, 1, 1_000).0;
    assert_eq!(all.len(), count);
    let failure = windlass_kernel::Failure::transient("BUSY", &message);
    let settles = all.iter().map(|it| {
        let outcome = windlass_kernel::ops::Outcome::Failed(failure.clone());
        write(settle(it.job.id, it.job.epoch, outcome))
    });
    let settles: Vec<Write> = settles.collect();
    for some in settles.chunks(100) {
        assert!(test.commit(some.to_vec()).iter().all(Result::is_ok));
    }
    test.pass(Duration::from_secs(3600));
    let (again, again_at) = claim(&test, 2, 1_000);
    assert!(again.len() < count && again.len() > count / 2, "{} of {count}", again.len());
    assert!(again_at.is_some());
}
