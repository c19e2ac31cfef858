//! Whatever happened in a store, it is what its twin in memory is, and the checker finds nothing wrong.

use std::time::Duration;

use windlass_kernel::{
    Actor, By, Epoch, Jitter, JobId, Kind, Op, Payload, Principal, Queue, TenantId, Timestamp,
    WorkerId,
    ids::ClaimId,
    ops::{Enqueue, NewJob, Outcome, Settle},
};
use windlass_store::{ClaimMany, Reply, Write};

use crate::common::{Backend, rich::Rich};

for_each_backend!(
    a_store_with_a_rich_past_is_its_twin_and_breaks_no_rule,
    batches_are_what_their_ops_are,
    claims_by_queue_break_no_rule,
);

fn a_store_with_a_rich_past_is_its_twin_and_breaks_no_rule(backend: Backend) {
    let mut rich = Rich::new(backend);
    rich.live(1, 2_000, 1);
    rich.compare();
    rich.compare_totals();
    check_healthy(&rich);
}

fn batches_are_what_their_ops_are(backend: Backend) {
    for seed in 1..=4 {
        let mut rich = Rich::new(backend);
        rich.live(seed, 1_500, 12);
        rich.compare();
        rich.compare_totals();
        check_healthy(&rich);
    }
}

fn claims_by_queue_break_no_rule(backend: Backend) {
    let mut rich = Rich::new(backend);
    let worker = WorkerId::new("w1").unwrap();
    let at = |minute: i64| Timestamp::from_micros(1_772_000_000_000_000 + minute * 60_000_000);
    let replies = rich.commit((1..=300).map(enqueue).collect(), at(0));
    assert!(replies.iter().all(Result::is_ok));
    for round in 1..=6 {
        let granted = rich.commit(vec![claim(&worker, round)], at(i64::from(round)));
        let Some(Ok(Reply::Granted { jobs: granted, .. })) = granted.first() else {
            panic!("{granted:?}")
        };
        assert_eq!(granted.len(), 40);
        let renew = Write::RenewSession { worker: worker.clone(), lease: Duration::from_secs(90) };
        let settled = granted.iter().skip(5).map(|it| settle(it.job.id, it.job.epoch, &worker));
        let replies =
            rich.commit([renew].into_iter().chain(settled).collect(), at(i64::from(round)));
        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    }
    check_healthy(&rich);
}

fn check_healthy(rich: &Rich) {
    let report = rich.home.check();
    assert!(report.is_clean(), "{report}");
    assert!(report.jobs > 100 && report.events > 500, "too little to speak of: {report}");
}

fn enqueue(number: u128) -> Write {
    let tenant = TenantId::new(if number.is_multiple_of(3) { "zeta" } else { "acme" }).unwrap();
    let size = if number.is_multiple_of(7) { 1_000 } else { 10 };
    let payload = Payload::parse(&format!("\"{}\"", "x".repeat(size)), 2_000).unwrap();
    let new = Box::new(NewJob::new(Kind::new("mail").unwrap(), payload));
    let by = Actor::User(Principal::new("ann").unwrap()).into();
    let job_id = JobId::from_u128(number);
    let op = Op::from(Enqueue { job_id, tenant: tenant.clone(), new, random: number, by });
    Write::Op { tenant, op }
}

fn claim(worker: &WorkerId, round: u32) -> Write {
    Write::Claim(ClaimMany {
        claim_id: ClaimId::from_u128(u128::from(round)),
        worker: worker.clone(),
        trace_id: None,
        tenant: None,
        except: Vec::new(),
        queues: vec![Queue::new("default").unwrap()],
        kinds: Vec::new(),
        max: 40,
        lease: Duration::from_secs(30),
        start: true,
        neighbours: Vec::new(),
    })
}

fn settle(job_id: JobId, epoch: Epoch, worker: &WorkerId) -> Write {
    let tenant = TenantId::new(if job_id.as_u128().is_multiple_of(3) { "zeta" } else { "acme" });
    let outcome =
        Outcome::Succeeded { result: Some(Payload::parse("{\"done\":true}", 100).unwrap()) };
    let by = By::worker(worker.clone());
    let op = Settle { job_id, epoch, by, outcome, stats: None, jitter: Jitter::NONE }.into();
    Write::Op { tenant: tenant.unwrap(), op }
}
