//! Claims by queue in a world that has a twin: what the store grants is what the kernel admits.

use std::{collections::BTreeMap, time::Duration};

use windlass_kernel::{
    Job, JobId, Kind, Lane, Op, Queue, TenantId, Timestamp, WorkerId,
    admit::{Head, NoBooks, Request, Turns, admit},
    ids::ClaimId,
    job::Rank,
    ops::Claim,
};
use windlass_store::{ClaimMany, Granted, Reply, Write};
use windlass_testkit::{MapStore, random::Chance};

use crate::common::rich::Rich;

/// The ranks of jobs, in order, and whether each has to be alone. Of jobs with one rank any may be first.
type Ranks = Vec<(Rank, bool)>;

/// A worker claims some jobs by queue. The store may grant what the kernel admits of the twin's jobs, and
/// each job is then what the twin makes of the same claim. It gives back how many were granted.
pub(crate) fn claim_by_queue(rich: &mut Rich, claim: u128, chance: &mut Chance) -> usize {
    let (now, mut twin) = (rich.world.now, rich.world.store.clone());
    let jobs: Vec<&Job> = twin.jobs.values().collect();
    let Some(tenant) = chance.pick(&jobs).map(|job| job.spec.tenant.clone()) else { return 0 };
    let queues = ["default", "slow"].map(|name| Queue::new(name).unwrap());
    let wanted = ClaimMany {
        claim_id: ClaimId::from_u128(claim),
        worker: WorkerId::new(format!("{tenant}:{}", chance.below(2))).unwrap(),
        trace_id: None,
        tenant: Some(tenant.clone()),
        queues: queues[..chance.weighted(&[(1, 1), (3, 2)])].to_vec(),
        kinds: Vec::new(),
        max: chance.weighted(&[(2, 1), (2, 3), (1, 20)]),
        lease: Duration::from_secs(20),
        start: chance.percent(60),
        neighbours: Vec::new(),
        except: Vec::new(),
    };
    let expected = admitted(&twin, &wanted, &tenant, now);
    let granted = granted(rich, &wanted, now);
    if let Some(expected) = expected {
        assert_eq!(ranks(&granted), expected, "{wanted:#?} at {now}");
    }
    for it in &granted {
        let op = Op::Claim(Claim {
            job_id: it.job.id,
            claim_id: wanted.claim_id,
            worker: wanted.worker.clone(),
            trace_id: None,
            lease: wanted.lease,
            start: wanted.start,
            alone: it.job.lease.as_ref().unwrap().alone,
        });
        let answer = twin.commit(&op, now).unwrap();
        assert!(!answer.recorded, "{} was granted before", it.job.id);
        assert_eq!(*it.job, twin.jobs[&it.job.id]);
        assert_eq!(it.payload, twin.payloads[&it.job.id].as_str());
    }
    let ids = |granted: &[Granted]| -> Vec<JobId> {
        let mut ids: Vec<JobId> = granted.iter().map(|it| it.job.id).collect();
        ids.sort();
        ids
    };
    if !granted.is_empty() && chance.percent(20) {
        assert_eq!(ids(&self::granted(rich, &wanted, now)), ids(&granted), "the same claim again");
    }
    rich.world.store = twin;
    granted.len()
}

fn granted(rich: &mut Rich, wanted: &ClaimMany, now: Timestamp) -> Vec<Granted> {
    match rich.commit(vec![Write::Claim(wanted.clone())], now).remove(0) {
        Ok(Reply::Granted { jobs, .. }) => jobs,
        other => panic!("a claim was answered with {other:?}"),
    }
}

/// The ranks that the kernel admits. None, if the store may choose: it looks only at the retries that have
/// been due for longest, and of two jobs with one rank it may take either first, also if one has to be alone. Retries
/// may be a line of their own, so of jobs that have to be alone either line may be the one that has waited longest.
fn admitted(
    twin: &MapStore,
    wanted: &ClaimMany,
    tenant: &TenantId,
    now: Timestamp,
) -> Option<Ranks> {
    let mut groups: BTreeMap<Group, Vec<&Job>> = BTreeMap::new();
    let is_ready = |job: &&Job| {
        job.spec.tenant == *tenant
            && wanted.queues.contains(&job.spec.queue)
            && job.claim_at().is_some_and(|at| at <= now)
    };
    for job in twin.jobs.values().filter(is_ready) {
        groups.entry(group_of(job)).or_default().push(job);
    }
    let retries = |jobs: &[&Job]| jobs.iter().filter(|job| job.next_retry_at.is_some()).count();
    if groups.values().any(|jobs| retries(jobs) > wanted.max) {
        return None;
    }
    let is_mixed = |jobs: &[&Job]| (1..jobs.len()).contains(&retries(jobs));
    if groups.iter().any(|((.., alone), jobs)| alone.is_some() && is_mixed(jobs)) {
        return None;
    }
    let ready: Vec<&Job> = groups.values().flatten().copied().collect();
    let same_rank = |job: &Job| ready.iter().filter(|it| it.spec.rank() == job.spec.rank()).count();
    if ready.iter().any(|job| job.is_isolated() && same_rank(job) > 1) {
        return None;
    }
    groups.values_mut().for_each(|jobs| jobs.sort_by_key(|job| job.spec.rank()));
    let heads = groups.iter().map(|((queue, kind, alone), jobs)| Head {
        queue,
        tenant,
        kind,
        lane: alone.unwrap_or(Lane::NONE),
        retries: false,
        ranks: jobs.iter().map(|job| job.spec.rank()).collect(),
        isolated_since: alone.map(|_| jobs[0].updated_at),
    });
    let leases = twin.jobs.values().filter_map(|job| job.lease.as_ref());
    let held: Vec<_> = leases.filter(|lease| lease.worker == wanted.worker).collect();
    let request = Request {
        max: wanted.max,
        held: held.len(),
        holds_isolated: held.iter().any(|lease| lease.alone),
        heads: heads.collect(),
    };
    let mut expected = Ranks::new();
    for quota in admit(&request, &[], &NoBooks, &mut Turns::default(), now).quotas {
        let ranks = &request.heads[quota.head].ranks[..quota.take];
        expected.extend(ranks.iter().map(|rank| (*rank, quota.alone)));
    }
    expected.sort();
    Some(expected)
}

fn ranks(granted: &[Granted]) -> Ranks {
    let rank = |it: &Granted| (it.job.spec.rank(), it.job.lease.as_ref().unwrap().alone);
    let mut ranks: Ranks = granted.iter().map(rank).collect();
    ranks.sort();
    ranks
}

/// Where a job waits, and, if it has to be alone, beside which others: of those the lane counts, because the one that has
/// waited longest comes first, lane by lane.
type Group = (Queue, Kind, Option<Lane>);

fn group_of(job: &Job) -> Group {
    let lane = job.is_isolated().then(|| job.spec.lane());
    (job.spec.queue.clone(), job.spec.kind.clone(), lane)
}
