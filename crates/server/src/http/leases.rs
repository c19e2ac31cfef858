//! Leases: a worker elsewhere starts, keeps, settles and gives back what it claimed.
//!
//! Every entry names its job and its epoch, and is judged by itself: one that is refused does not concern its
//! neighbours.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;
use windlass::{Error, Span};
use windlass_kernel::{
    Actor, By, Class, Epoch, Failure, Job, JobId, Op, Payload, Refusal, State, TenantId, Timestamp,
    WorkerId,
    contract::Contract,
    job::{Wait, WaitOn},
    ops::{Outcome, Release, Renew, Settle, Start, WaitFor},
    time::duration_ms_option,
};
use windlass_store::{Reply, Write, read::Scope};

use super::{
    claims::{former_session, still_listens, worker_of},
    contract,
    jobs::{OpResult, Results, check_batch},
    problem::Problem,
    route::{Answer, Call, read_entry},
};

/// Leases that something is to happen to.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeasesBody<T> {
    /// The worker that holds them. It need not be said; another one than the holder is refused.
    #[schemars(with = "Option<String>")]
    worker_id: Option<WorkerId>,
    /// At most 1,000.
    leases: Vec<T>,
}

/// One lease.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseBody {
    /// The job.
    #[schemars(with = "String")]
    job_id: JobId,
    /// The epoch of the lease.
    #[schemars(with = "u64")]
    epoch: Epoch,
}

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

/// A lease that is given up for some time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitEntry {
    /// The job.
    #[schemars(with = "String")]
    job_id: JobId,
    /// The epoch of the lease.
    #[schemars(with = "u64")]
    epoch: Epoch,
    /// When it goes on.
    #[schemars(with = "String")]
    until: Timestamp,
}

/// `POST /api/v1/leases/wait`
pub(crate) async fn wait(call: Call) -> Result<Answer, Problem> {
    each(&call, |entry: WaitEntry, by| {
        let WaitEntry { job_id, epoch, until } = entry;
        let wait = Wait { on: WaitOn::Time, until: Some(until) };
        Ok((job_id, WaitFor { job_id, epoch, by, wait }.into()))
    })
    .await
}

/// Leases that are to be kept.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewBody {
    /// The worker: without `leases` all that it holds is kept.
    #[schemars(with = "Option<String>")]
    worker_id: Option<WorkerId>,
    /// How long from now; 30,000, if nothing is said.
    #[serde(rename = "lease_ms", with = "duration_ms_option", default)]
    #[schemars(with = "Option<u64>")]
    lease: Option<Duration>,
    /// At most 1,000; all of the worker, if nothing is said.
    leases: Option<Vec<RenewEntry>>,
}

/// A lease that is to be kept.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewEntry {
    /// The job.
    #[schemars(with = "String")]
    job_id: JobId,
    /// The epoch of the lease.
    #[schemars(with = "u64")]
    epoch: Epoch,
    /// Is it a sign of life of the handler, too?
    #[serde(default)]
    heartbeat: bool,
    /// How far the handler has come, in its own words.
    #[schemars(with = "Option<serde_json::Value>")]
    progress: Option<Box<RawValue>>,
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
        (entry.job_id, op.map_err(Problem::from))
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
    let renew = |worker: &WorkerId| Write::RenewSession { worker: worker.clone(), lease };
    let mut reply = call.engine().submit(renew(&worker)).await;
    if matches!(reply, Err(Error::Refused(Refusal::NotFound { .. })))
        && let Some(former) = begun_before(call, name).await?
    {
        worker = former;
        reply = call.engine().submit(renew(&worker)).await;
    }
    let reply = reply?;
    still_listens(call, worker);
    let Reply::Renewed { until, cancelled, mut held } = reply else {
        unreachable!("a renewal is answered by the session")
    };
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
    let held = call.engine().store().held_by(&worker, HELD_MAX).await?;
    let is_mine = !held.is_empty() && held.iter().all(|(tenant, ..)| call.scope().admits(tenant));
    Ok(is_mine.then_some(worker))
}

/// How an execution ended.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleEntry {
    /// The job.
    #[schemars(with = "String")]
    job_id: JobId,
    /// The epoch of the lease.
    #[schemars(with = "u64")]
    epoch: Epoch,
    /// How it ended.
    outcome: OutcomeWord,
    /// What came out.
    #[schemars(with = "Option<serde_json::Value>")]
    result: Option<Box<RawValue>>,
    /// What is left to do, if it ended in part.
    #[serde(default, deserialize_with = "even_null")]
    #[schemars(with = "Option<serde_json::Value>")]
    remaining: Option<Box<RawValue>>,
    /// What went wrong, if it failed.
    error: Option<ErrorBody>,
    /// Why it stopped, if it was cancelled.
    reason: Option<String>,
    /// Figures for the attempt.
    #[schemars(with = "Option<serde_json::Value>")]
    stats: Option<Box<RawValue>>,
}

/// A null that is sent is a value.
fn even_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// How an execution ended.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeWord {
    /// Done.
    Succeeded,
    /// Done in part.
    Partial,
    /// Not done.
    Failed,
    /// It stopped because it was asked to.
    Cancelled,
}

/// What went wrong.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorBody {
    /// A short name for programs, such as `SMTP_TIMEOUT`.
    code: String,
    /// A sentence for people.
    #[serde(default)]
    message: String,
    /// What sort of failure it is: validation, business_rule, transient, permanent or security_sensitive.
    #[schemars(with = "Option<String>")]
    class: Option<Class>,
    /// May trying again help? Needed, unless `class` is there: then only what is `transient` is tried again.
    retryable: Option<bool>,
    /// Wait at least this long before the next try.
    #[serde(rename = "retry_after_ms", with = "duration_ms_option", default)]
    #[schemars(with = "Option<u64>")]
    retry_after: Option<Duration>,
}

/// What has to be sent with a failure that says neither.
const RETRYABLE_NEEDED: &str = "must say whether trying again may help: send \"retryable\": true or false, or a \
    \"class\" (transient is tried again; validation, business_rule, permanent and security_sensitive are not)";

impl TryFrom<ErrorBody> for Failure {
    type Error = Refusal;

    /// Nobody guesses whether a failure may be tried again: its worker says so.
    fn try_from(error: ErrorBody) -> Result<Self, Refusal> {
        let by_class = error.class.map(|class| class == Class::Transient);
        let needed = || Refusal::invalid("error", RETRYABLE_NEEDED);
        let retryable = error.retryable.or(by_class).ok_or_else(needed)?;
        let usual = if retryable { Class::Transient } else { Class::Permanent };
        Ok(Self {
            code: error.code,
            message: error.message,
            class: error.class.unwrap_or(usual),
            retryable,
            retry_after: error.retry_after,
        })
    }
}

/// `POST /api/v1/leases/settle`
pub(crate) async fn settle(call: Call) -> Result<Answer, Problem> {
    each(&call, |entry: SettleEntry, by| {
        // Each has its own: what failed together must not come back together.
        let jitter = call.engine().jitter();
        let (job_id, epoch) = (entry.job_id, entry.epoch);
        let stats = payload(entry.stats.as_deref())?;
        let outcome = outcome(entry)?;
        Ok((job_id, Settle { job_id, epoch, by, outcome, stats, jitter }.into()))
    })
    .await
}

fn outcome(entry: SettleEntry) -> Result<Outcome, Refusal> {
    let result = payload(entry.result.as_deref())?;
    let unwanted = |field, is_there: bool| match is_there {
        true => Err(Refusal::invalid(field, "does not belong to this outcome")),
        false => Ok(()),
    };
    if !matches!(entry.outcome, OutcomeWord::Failed) {
        unwanted("error", entry.error.is_some())?;
    }
    if !matches!(entry.outcome, OutcomeWord::Partial) {
        unwanted("remaining", entry.remaining.is_some())?;
    }
    match entry.outcome {
        OutcomeWord::Succeeded => Ok(Outcome::Succeeded { result }),
        OutcomeWord::Partial => {
            let needed = || Refusal::invalid("remaining", "is needed: what is left to do?");
            let remaining = payload(entry.remaining.as_deref())?.ok_or_else(needed)?;
            Ok(Outcome::Partial { result, remaining })
        }
        OutcomeWord::Failed => {
            unwanted("result", result.is_some())?;
            let needed = || Refusal::invalid("error", "is needed: what went wrong?");
            Ok(Outcome::Failed(entry.error.ok_or_else(needed)?.try_into()?))
        }
        OutcomeWord::Cancelled => {
            unwanted("result", result.is_some())?;
            Ok(Outcome::Cancelled { reason: entry.reason })
        }
    }
}

fn payload(text: Option<&RawValue>) -> Result<Option<Payload>, Refusal> {
    text.map(|text| Payload::parse(text.get(), Payload::MAX_BYTES_DEFAULT)).transpose()
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
            Ok((job_id, op)) => (Some(job_id), Ok(op)),
            Err(refusal) => (named().ok(), Err(Problem::from(refusal))),
        }
    });
    let entries: Vec<_> = entries.collect();
    Ok(Answer::ok(&carry_out_all(call, entries).await?))
}

/// Who writes: the worker that is named, or any of the caller's.
fn by(call: &Call, worker: Option<&WorkerId>) -> Result<By, Problem> {
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

async fn carry_out(
    call: &Call,
    entries: Vec<(JobId, Result<Op, Problem>)>,
) -> Result<Results<OpResult>, Problem> {
    carry_out_all(call, entries.into_iter().map(|(id, op)| (Some(id), op)).collect()).await
}

/// Sends the ops together, and tells what became of each.
async fn carry_out_all(
    call: &Call,
    entries: Vec<(Option<JobId>, Result<Op, Problem>)>,
) -> Result<Results<OpResult>, Problem> {
    let contract = call.query.contract()?;
    let (mut results, mut places, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (job_id, op)) in entries.into_iter().enumerate() {
        let owner = match (op, job_id) {
            (Ok(op), Some(id)) => tenant_of(call, id).await.map(|tenant| (tenant, op)),
            (Ok(_), None) => unreachable!("an op names its job"),
            (Err(problem), _) => Err(problem),
        };
        match owner {
            Ok((tenant, op)) => {
                places.push((place, job_id, running(call, &op).await));
                writes.push(Write::Op { tenant, op });
                results.push(OpResult::default());
            }
            Err(problem) => results.push(OpResult::problem(job_id, &problem)),
        }
    }
    let replies = call.engine().submit_all(&writes).await;
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
    job_id: Option<JobId>,
    reply: Result<Reply, Error>,
) -> OpResult {
    match reply {
        Ok(Reply::Answer(answer)) => OpResult {
            job_id: Some(answer.job_id),
            ok: true,
            state: Some(word(call, contract, answer.job_id, answer.state).await),
            leased_until: answer.leased_until,
            next_retry_at: answer.next_retry_at,
            dlq_id: answer.dlq_id,
            cancel_requested: answer.leased_until.map(|_| answer.cancel_requested),
            ..OpResult::default()
        },
        Ok(_) => unreachable!("an op is answered by an answer"),
        Err(error) => {
            let problem = contract::problem(contract, error);
            call.app.figures.problem(problem.code);
            OpResult::problem(job_id, &problem)
        }
    }
}

/// The state in the words of the contract, or in our own. Whoever has a job that waits or is about to start has to ask
/// whether it ever started: everything else has.
async fn word(call: &Call, contract: Option<&Contract>, id: JobId, state: State) -> &'static str {
    let Some(contract) = contract else { return state.as_str() };
    let started = match state {
        State::Queued | State::Dispatched => {
            let job = call.engine().store().job(call.scope(), id).await;
            job.is_ok_and(|job| job.is_some_and(|job| job.has_started()))
        }
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
