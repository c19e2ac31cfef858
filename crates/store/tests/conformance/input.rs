//! What goes in comes out byte for byte, and only for its own tenant.

use std::time::Duration;

use windlass_kernel::{
    By, Digest, DlqId, Epoch, Jitter, JobId, Op, OpKind, State, TenantId,
    ids::{ClaimId, CorrelationKey},
    job::{Wait, WaitOn},
    ops::{
        ApproveDiscard, Bury, Cancel, Checkpoint, Claim, Discard, Expire, Expiry, Outcome, Promote,
        PromoteWhen, Release, Renew, Requeue, Rerun, Resolve, RetryNow, Settle, Start, WaitFor,
        Wake, WakeBy,
    },
};
use windlass_store::Write;

use crate::common::*;

for_each_backend!(
    a_job_that_is_made_from_another_has_its_payload,
    what_belongs_to_another_tenant_is_not_found,
    the_same_key_of_two_tenants_is_two_jobs,
);

for_each_lasting_backend!(payloads_results_and_figures_are_kept_byte_for_byte,);

fn payloads_results_and_figures_are_kept_byte_for_byte(backend: Backend) {
    let test = TestStore::new(backend);
    for (number, text) in (1..).zip(texts()) {
        let id = test.enqueue(number, with_payload(&text));
        let granted = test.claim("w1", number, 1).remove(0);
        assert_eq!(granted.payload, text, "as a worker gets it");
        let (result, remaining) = (Some(payload(&text)), payload(&text));
        let outcome = Outcome::Partial { result, remaining };
        let mut settle = settle(id, granted.job.epoch, outcome);
        settle.stats = Some(payload(&text));
        test.op(settle).unwrap();
    }
    check_kept(&test);
    check_kept(&test.reopen());
}

fn check_kept(test: &TestStore) {
    for (number, text) in (1..).zip(texts()) {
        let id = JobId::from_u128(number);
        assert_eq!(test.wait(test.store.payload(&Scope::Every, id)).as_ref(), Some(&text));
        let output = test.wait(test.store.last_output(&Scope::Every, id)).unwrap();
        assert_eq!((output.result, output.remaining), (Some(text.clone()), Some(text.clone())));
        assert_eq!(output.stats.as_ref(), Some(&text));
        let attempts = test.wait(test.store.attempts(&Scope::Every, id, 0, 10)).items;
        let attempt = attempts.into_iter().next().unwrap();
        assert_eq!(attempt.stats.unwrap().as_str(), text);
    }
}

fn a_job_that_is_made_from_another_has_its_payload(backend: Backend) {
    let test = TestStore::new(backend);
    for (number, text) in (1..).zip(texts()) {
        let id = test.enqueue(number, with_payload(&text));
        let epoch = test.claim("w1", number, 1)[0].job.epoch;
        test.op(settle(id, epoch, failed_for_good())).unwrap();
        let (dlq_id, new_job_id) = (DlqId::of_job(id), JobId::from_u128(number + 1000));
        test.op(Requeue { dlq_id, new_job_id, payload: None, by: person("ann") }).unwrap();
        assert_eq!(test.wait(test.store.payload(&Scope::Every, new_job_id)), Some(text));
        let epoch = test.claim("w1", number + 1000, 1)[0].job.epoch;
        test.op(settle(new_job_id, epoch, succeeded())).unwrap();
    }
}

/// One op of each kind that names something of the tenant `acme`.
fn ops(job_id: JobId, epoch: Epoch, dead: JobId) -> Vec<Op> {
    let (by, ann) = (By::worker(worker("w1")), person("ann"));
    let dlq_id = DlqId::of_job(dead);
    let new_job_id = JobId::from_u128(500);
    let version = 3;
    let reason = "enough".to_owned();
    let wait = Wait { on: WaitOn::Time, until: None };
    let key = CorrelationKey::new("paid").unwrap();
    vec![
        Promote { job_id, when: PromoteWhen::Now { by: ann.clone() } }.into(),
        Claim {
            job_id,
            claim_id: ClaimId::from_u128(9),
            worker: worker("w1"),
            trace_id: None,
            lease: LEASE,
            start: true,
            alone: false,
        }
        .into(),
        Start { job_id, epoch, by: by.clone() }.into(),
        Renew {
            job_id,
            epoch,
            by: By::worker(worker("w1")),
            lease: LEASE,
            heartbeat: true,
            progress: None,
        }
        .into(),
        Release { job_id, epoch, by: by.clone() }.into(),
        Settle { jitter: Jitter::NONE, ..settle(job_id, epoch, succeeded()) }.into(),
        Checkpoint { job_id, epoch, by: by.clone(), state: Digest::of("1"), kept: None }.into(),
        WaitFor { job_id, epoch, by, wait, mails_seen: None }.into(),
        Wake { job_id, by: WakeBy::Time { version } }.into(),
        signal(job_id, key).into(),
        advance(job_id, epoch).into(),
        hand_in(job_id, epoch).into(),
        Resolve { job_id, statement: None, reason: reason.clone(), by: ann.clone() }.into(),
        Expire { job_id, version, what: Expiry::DeadSession, jitter: Jitter::NONE }.into(),
        Cancel { job_id, force: true, grace: Duration::ZERO, reason: None, by: ann.clone() }.into(),
        RetryNow { job_id, by: ann.clone() }.into(),
        Bury { job_id, reason: reason.clone(), by: ann.clone() }.into(),
        Requeue { dlq_id, new_job_id, payload: None, by: ann.clone() }.into(),
        Discard { dlq_id, reason, by: ann.clone() }.into(),
        ApproveDiscard { dlq_id, by: person("bob") }.into(),
        Rerun { job_id: dead, new_job_id, by: ann }.into(),
    ]
}

fn what_belongs_to_another_tenant_is_not_found(backend: Backend) {
    let test = TestStore::new(backend);
    let dead = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    test.op(settle(dead, epoch, failed_for_good())).unwrap();
    let id = test.enqueue(2, plain());
    let epoch = test.claim("w1", 2, 1)[0].job.epoch;
    let before = (test.job(id), test.job(dead), test.wait(test.store.feed(&Scope::Every, 0, 100)));

    let ops = ops(id, epoch, dead);
    let kinds: Vec<OpKind> = ops.iter().map(Op::kind).collect();
    let all = OpKind::ALL.iter().filter(|kind| **kind != OpKind::Enqueue);
    assert!(all.clone().all(|kind| kinds.contains(kind)), "an op is missing");
    let stranger = TenantId::new("other").unwrap();
    for op in ops {
        let refusal = test.write(Write::Op { tenant: stranger.clone(), op: op.clone() });
        assert_eq!(refusal.unwrap_err().code(), "NOT_FOUND", "{op:?}");
    }
    // Nor does a request that names another tenant than the caller's make a job for it.
    let foreign = Write::Op { tenant: stranger, op: enqueue(3, plain()).into() };
    assert_eq!(test.write(foreign).unwrap_err().code(), "NOT_FOUND");
    let mut claim = wanted("w9", 9, 10);
    claim.tenant = Some(TenantId::new("other").unwrap());
    test.enqueue(4, plain());
    assert!(granted(&test.write(Write::Claim(claim)).unwrap()).is_empty());

    assert_eq!(test.job(id), before.0);
    assert_eq!(test.job(dead), before.1);
    assert_eq!(
        test.wait(test.store.feed(&Scope::Every, 0, 100)).events[..before.2.events.len()],
        before.2.events
    );
    assert_eq!(test.wait(test.store.open_jobs()).len(), 2);
    assert_eq!(test.job(id).state, State::Running);
}

fn the_same_key_of_two_tenants_is_two_jobs(backend: Backend) {
    let test = TestStore::new(backend);
    let key = || windlass_kernel::ops::Idempotency::Key {
        scope: windlass_kernel::IdempotencyScope::default_scope(),
        key: windlass_kernel::IdempotencyKey::new("order-1").unwrap(),
    };
    let mut ids = Vec::new();
    for (number, name) in [(1, "acme"), (2, "other")] {
        let mut op = enqueue(number, plain());
        op.new.idempotency = key();
        op.tenant = TenantId::new(name).unwrap();
        let write = Write::Op { tenant: op.tenant.clone(), op: op.into() };
        ids.push(answer(&test.write(write).unwrap()).job_id.as_u128());
    }
    assert_eq!(ids, [1, 2]);
}
