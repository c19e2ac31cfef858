//! Leases: a worker elsewhere starts, keeps, settles and gives back what it claimed.
//!
//! Every entry names its job and its epoch, and is judged by itself: one that is refused does not concern its
//! neighbours.

use std::time::Duration;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use windlass::wire::{
    LeaseBody, LeasesBody, OpResult, RenewBody, RenewEntry, Results, SettleEntry, WaitEntry,
};
use windlass::{Error, Span};
use windlass_kernel::{
    Actor, By, Job, JobId, Op, Payload, Refusal, State, TenantId, Timestamp, WorkerId,
    contract::Contract,
    job::{Wait, WaitOn},
    ops::{Outcome, Release, Renew, Settle, Start, WaitFor},
};
use windlass_store::{RenewSession, RenewalReply, Request, TenantOp, read::Scope};

use crate::http::{
    api::{
        claims::{former_session, still_listens, worker_of},
        jobs::{check_batch, failed},
    },
    core::{
        contract,
        problem::Problem,
        route::{Answer, Call, read_entry},
    },
};

/// `POST /api/v1/leases/start`
pub(crate) async fn start(call: Call) -> Result<Answer, Problem> {
    each(&call, |lease: LeaseBody, by| {
        Ok((lease.job_id, Start { job_id: lease.job_id, epoch: lease.epoch, by }.into()))
    })
    .await
}

/// `POST /api/v1/leases/release`
pub(crate) async fn release(call: Call) -> Result<Answer, Problem> {
    each(&call, |lease: LeaseBody, by| {
        Ok((lease.job_id, Release { job_id: lease.job_id, epoch: lease.epoch, by }.into()))
    })
    .await
}

/// `POST /api/v1/leases/wait`
pub(crate) async fn wait(call: Call) -> Result<Answer, Problem> {
    each(&call, |entry: WaitEntry, by| {
        let WaitEntry { job_id, epoch, until } = entry;
        let wait = Wait { on: WaitOn::Time, until: Some(until) };
        Ok((job_id, WaitFor { job_id, epoch, by, wait, mails_seen: None }.into()))
    })
    .await
}

const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// `POST /api/v1/leases/renew`
pub(crate) async fn renew(call: Call) -> Result<Answer, Problem> {
    let body: RenewBody = call.body()?;
    let lease = body.lease.unwrap_or(LEASE_DEFAULT);
    let Some(leases) = body.leases else {
        let needed = || Refusal::invalid("worker_id", "is needed to renew all that a worker holds");
        return renew_session(&call, &body.worker_id.ok_or_else(needed)?, lease).await;
    };
    check_batch(leases.len())?;
    let by = by(&call, body.worker_id.as_ref())?;
    let entries = leases.into_iter().map(|entry| {
        let progress = entry.progress.as_ref().map(|text| Payload::parse(text.get(), PROGRESS_MAX));
        let op = progress.transpose().map(|progress| {
            let RenewEntry { job_id, epoch, heartbeat, .. } = entry;
            Op::Renew(Renew { job_id, epoch, by: by.clone(), lease, heartbeat, progress })
        });
        match op {
            Ok(op) => Ok((entry.job_id, op)),
            Err(refusal) => Err(Problem::from(refusal).of_job(entry.job_id)),
        }
    });
    let results = carry_out(&call, entries.collect()).await?;
    heard_of(&call, &by.actor, &results).await;
    Ok(Answer::ok(&results))
}

/// Notes that the worker lives which has renewed these. If it did not say who it is, one of its leases does.
async fn heard_of(call: &Call, actor: &Actor, results: &Results<OpResult>) {
    let Some(kept) = results.results.iter().find(|it| it.ok).and_then(|it| it.job_id) else {
        return;
    };
    let worker = match actor {
        Actor::Worker(worker) if !worker.as_str().ends_with('/') => Some(worker.clone()),
        _ => {
            let job = call.engine().store().job(call.scope(), kept).await;
            job.ok().flatten().and_then(|job| job.lease).map(|lease| lease.worker)
        }
    };
    if let Some(worker) = worker {
        still_listens(call, worker);
    }
}

const PROGRESS_MAX: usize = Renew::PROGRESS_BYTES_MAX;

/// All that the worker holds.
async fn renew_session(call: &Call, name: &WorkerId, lease: Duration) -> Result<Answer, Problem> {
    let mut worker = worker_of(call, name)?;
    let renew = |worker: &WorkerId| RenewSession { worker: worker.clone(), lease };
    let mut reply = call.engine().submit(renew(&worker)).await;
    if matches!(reply, Err(Error::Refused(Refusal::NotFound { .. })))
        && let Some(former) = begun_before(call, name).await?
    {
        worker = former;
        reply = call.engine().submit(renew(&worker)).await;
    }
    let RenewalReply { until, cancelled, mut held } = reply?;
    still_listens(call, worker);
    held.sort_unstable();
    let results = held.into_iter().map(|job_id| OpResult {
        job_id: Some(job_id),
        ok: true,
        leased_until: Some(until),
        cancel_requested: Some(cancelled.contains(&job_id)),
        ..OpResult::default()
    });
    Ok(Answer::ok(&Results { results: results.collect() }))
}

/// The session of the worker, if it began before sessions named their principals and holds jobs of its tenant alone.
async fn begun_before(call: &Call, name: &WorkerId) -> Result<Option<WorkerId>, Problem> {
    const HELD_MAX: usize = 1_000;
    let Some(worker) = former_session(call, name) else { return Ok(None) };
    let held = call.engine().own_store()?.held_by(&worker, HELD_MAX).await?;
    let is_mine = !held.is_empty() && held.iter().all(|(tenant, ..)| call.scope().admits(tenant));
    Ok(is_mine.then_some(worker))
}

/// `POST /api/v1/leases/settle`
pub(crate) async fn settle(call: Call) -> Result<Answer, Problem> {
    each(&call, |entry: SettleEntry, by| {
        // Each has its own: what failed together must not come back together.
        let jitter = call.engine().jitter();
        let (job_id, epoch) = (entry.job_id, entry.epoch);
        let stats = entry.stats()?;
        let outcome = entry.into_outcome()?;
        Ok((job_id, Settle { job_id, epoch, by, outcome, stats, jitter }.into()))
    })
    .await
}

/// Makes an op of each entry, and carries them out.
async fn each<T: DeserializeOwned>(
    call: &Call,
    op: impl Fn(T, By) -> Result<(JobId, Op), Refusal>,
) -> Result<Answer, Problem> {
    let body: LeasesBody<Box<RawValue>> = call.body()?;
    check_batch(body.leases.len())?;
    let by = by(call, body.worker_id.as_ref())?;
    let entries = body.leases.iter().map(|entry| {
        let named = || serde_json::from_str::<Named>(entry.get()).map(|named| named.job_id);
        match read_entry::<T>("leases", entry).and_then(|entry| op(entry, by.clone())) {
            Ok(entry) => Ok(entry),
            Err(refusal) => Err(Problem { job_id: named().ok(), ..refusal.into() }),
        }
    });
    let entries: Vec<_> = entries.collect();
    Ok(Answer::ok(&carry_out(call, entries).await?))
}

/// Who writes: the worker that is named, or any of the caller's.
pub(crate) fn by(call: &Call, worker: Option<&WorkerId>) -> Result<By, Problem> {
    let actor = match worker {
        Some(worker) => Actor::Worker(worker_of(call, worker)?),
        None => call.caller.as_worker(),
    };
    Ok(By { actor, trace_id: call.given_trace().cloned() })
}

/// The job of an entry whose rest does not fit.
#[derive(Deserialize)]
struct Named {
    job_id: JobId,
}

/// An entry of a batch: its job and the op, or what is wrong with it.
type Entry = Result<(JobId, Op), Problem>;

/// Sends the ops together, and tells what became of each.
async fn carry_out(call: &Call, entries: Vec<Entry>) -> Result<Results<OpResult>, Problem> {
    let contract = call.query.contract()?;
    let (mut results, mut places, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for (place, entry) in entries.into_iter().enumerate() {
        let owner = match entry {
            Ok((id, op)) => match tenant_of(call, id).await {
                Ok(tenant) => Ok((id, tenant, op)),
                Err(problem) => Err(problem.of_job(id)),
            },
            Err(problem) => Err(problem),
        };
        match owner {
            Ok((id, tenant, op)) => {
                places.push((place, id, running(call, &op).await));
                requests.push(TenantOp { tenant, op });
                results.push(OpResult::default());
            }
            Err(problem) => results.push(failed(None, &problem)),
        }
    }
    let replies = call.engine().submit_all(requests).await;
    for ((place, job_id, running), reply) in places.into_iter().zip(replies) {
        if let (Some(running), Ok(_)) = (running, &reply) {
            let Running { job, worker, began_at, error } = running;
            let ended_at = call.engine().ids().now();
            let span = Span::of_execution(&job, worker, began_at, ended_at, error);
            call.app.traces.tell_of_job(span);
        }
        results[place] = result(call, contract, job_id, reply).await;
    }
    Ok(Results { results })
}

/// An execution elsewhere that is about to end.
struct Running {
    job: Job,
    worker: WorkerId,
    began_at: Timestamp,
    error: Option<String>,
}

/// What is told of an execution, if its end is reported and anybody listens.
async fn running(call: &Call, op: &Op) -> Option<Running> {
    let Op::Settle(settle) = op else { return None };
    if !call.app.traces.is_on() {
        return None;
    }
    let job = call.engine().store().job(call.scope(), settle.job_id).await.ok()??;
    let began_at = job.execution_started_at.filter(|_| job.epoch == settle.epoch)?;
    let worker = job.lease.as_ref()?.worker.clone();
    let error = match &settle.outcome {
        Outcome::Failed(failure) => Some(failure.code.clone()),
        Outcome::Succeeded { .. } | Outcome::Partial { .. } | Outcome::Cancelled { .. } => None,
    };
    Some(Running { job, worker, began_at, error })
}

async fn result(
    call: &Call,
    contract: Option<&Contract>,
    job_id: JobId,
    reply: Result<<TenantOp as Request>::Reply, Error>,
) -> OpResult {
    match reply {
        Ok((answer, job)) => OpResult {
            job_id: Some(answer.job_id),
            ok: true,
            state: Some(word(contract, answer.state, job.as_deref()).to_owned()),
            leased_until: answer.leased_until,
            next_retry_at: answer.next_retry_at,
            dlq_id: answer.dlq_id,
            cancel_requested: answer.leased_until.map(|_| answer.cancel_requested),
            ..OpResult::default()
        },
        Err(error) => {
            let problem = contract::problem(contract, error);
            call.app.figures.problem(problem.code);
            failed(Some(job_id), &problem)
        }
    }
}

/// The state in the words of the contract, or in our own. A job that waits, or is about to start, may never have started.
fn word(contract: Option<&Contract>, state: State, job: Option<&Job>) -> &'static str {
    let Some(contract) = contract else { return state.as_str() };
    let started = match state {
        State::Queued | State::Dispatched => job.is_some_and(Job::has_started),
        _ => true,
    };
    contract.image(state, started).unwrap_or(state.as_str())
}

/// Whose job it is, as far as the caller can see.
async fn tenant_of(call: &Call, id: JobId) -> Result<TenantId, Problem> {
    match call.scope() {
        Scope::Of(tenant) => Ok(tenant.clone()),
        Scope::Every => Ok(call.app.job(call, id).await?.spec.tenant.clone()),
    }
}
