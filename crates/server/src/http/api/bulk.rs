//! Acts on many: a filter says which, a preview says how many, and an operation that is stored does it.
//!
//! An operation is a job of our own: it survives a crash and goes on where it was, it can be cancelled, and its
//! events tell who asked for it. It concerns only what was there when it was asked for, and it takes its time, so that
//! others are served meanwhile. Each of its acts has an identity that is made of the operation and the job: done
//! again after a crash, it is done once.

use std::time::Instant;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use windlass::wire::{JobDocument, List, raw};
use windlass::{Context, Engine, HandlerResult, Outcome, Stop};
use windlass_kernel::{
    Actor, By, Digest, DlqId, IdempotencyKey, Job, JobId, Kind, LetterState, LimitKey, Op, Payload,
    Principal, Queue, Refusal, State, Tag, Timestamp,
    ops::{
        Cancel, Checkpoint, Idempotency, NewJob, Promote, PromoteWhen, Requeue, Rerun, RetryNow,
    },
};
use windlass_store::{
    Write,
    read::{JobFilter, LetterFilter, PageFrom, Position, Scope},
};

use crate::http::{
    api::jobs::{create, cursor},
    core::{
        pace::Pace,
        problem::Problem,
        route::{Answer, Call},
    },
};

/// Where operations wait, and what kind they are.
pub(crate) const QUEUE: &str = "windlass.operations";
pub(crate) const KIND: &str = "windlass.operation";

/// An act on many.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkBody {
    /// What is to happen to each.
    act: Act,
    /// Which: all that fit.
    #[serde(default)]
    filter: BulkFilter,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How many a second at the most; 100, if nothing is said, and never more than 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    per_second: Option<u32>,
}

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// Ask jobs to stop.
    Cancel,
    /// Make retries due now, and run the tasks of jobs that failed or were cancelled again.
    Retry,
    /// Let new jobs take over from open dead letters.
    Requeue,
}

/// Which jobs, or the letters of which jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BulkFilter {
    /// In one of these states. Not for requeue: those have failed.
    #[schemars(with = "Vec<String>")]
    states: Vec<State>,
    /// In this queue.
    #[schemars(with = "Option<String>")]
    queue: Option<Queue>,
    /// Of this kind.
    #[schemars(with = "Option<String>")]
    kind: Option<Kind>,
    /// With this tag.
    #[schemars(with = "Option<String>")]
    tag: Option<Tag>,
    /// Whose last failure has this code.
    code: Option<String>,
    /// With this limit key.
    #[schemars(with = "Option<String>")]
    limit_key: Option<LimitKey>,
    /// Created at this time or later.
    #[schemars(with = "Option<String>")]
    created_from: Option<Timestamp>,
    /// Created before this time.
    #[schemars(with = "Option<String>")]
    created_before: Option<Timestamp>,
    /// Failed for good at this time or later.
    #[schemars(with = "Option<String>")]
    failed_from: Option<Timestamp>,
    /// Failed for good before this time.
    #[schemars(with = "Option<String>")]
    failed_before: Option<Timestamp>,
}

impl BulkFilter {
    /// Does it say nothing?
    fn is_empty(&self) -> bool {
        let Self { states, queue, kind, tag, code, limit_key, .. } = self;
        let times = [self.created_from, self.created_before, self.failed_from, self.failed_before];
        states.is_empty()
            && queue.is_none()
            && kind.is_none()
            && tag.is_none()
            && code.is_none()
            && limit_key.is_none()
            && times.iter().all(Option::is_none)
    }

    /// As a store knows it, but for states.
    fn jobs(&self, scope: &Scope) -> JobFilter {
        JobFilter {
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            tag: self.tag.clone(),
            code: self.code.clone(),
            limit_key: self.limit_key.clone(),
            created_from: self.created_from,
            created_before: self.created_before,
            failed_from: self.failed_from,
            failed_before: self.failed_before,
            ..JobFilter::of(scope.clone())
        }
    }
}

/// An operation as its job keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Operation {
    #[serde(flatten)]
    body: BulkBody,
    /// It concerns what was there at this time.
    snapshot_at: Timestamp,
    /// Who asked.
    principal: Principal,
}

impl BulkBody {
    const PER_SECOND_DEFAULT: u32 = 100;
    const PER_SECOND_MAX: u32 = 10_000;
    const REASON_MAX: usize = 4_096;
    const CODE_MAX: usize = 256;
    /// What was asked for is shown up to this length. Whatever was taken in within its bounds is shorter.
    const SHOWN_MAX: usize = 32 * 1024;

    fn check(&self) -> Result<(), Refusal> {
        if self.per_second.is_some_and(|rate| rate == 0 || rate > Self::PER_SECOND_MAX) {
            return Err(Refusal::invalid("per_second", "must lie between 1 and 10000"));
        }
        if self.reason.as_ref().is_some_and(|reason| reason.len() > Self::REASON_MAX) {
            return Err(Refusal::invalid("reason", "must be at most 4096 bytes long"));
        }
        if self.filter.code.as_ref().is_some_and(|code| code.len() > Self::CODE_MAX) {
            return Err(Refusal::invalid("code", "must be at most 256 bytes long"));
        }
        if self.filter.is_empty() {
            let why = "must say which: with none it would be all that there is";
            return Err(Refusal::invalid("filter", why));
        }
        if self.act == Act::Requeue && !self.filter.states.is_empty() {
            return Err(Refusal::invalid("states", "does not go with requeue: those have failed"));
        }
        Ok(())
    }

    /// The states of which the act makes sense, unless the filter says which.
    fn states(&self) -> Vec<State> {
        if !self.filter.states.is_empty() {
            return self.filter.states.clone();
        }
        let all = State::ALL.iter().copied();
        match self.act {
            Act::Cancel => all.filter(|state| !state.is_end()).collect(),
            Act::Retry => vec![State::RetryScheduled, State::Failed, State::Cancelled],
            Act::Requeue => vec![State::Failed],
        }
    }
}

/// What an operation would concern.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Preview {
    /// How many.
    count: u64,
    /// Were there more than were counted?
    at_least: bool,
    /// Some of them.
    sample: Vec<JobDocument>,
    /// It is so as of this time.
    #[schemars(with = "String")]
    snapshot_at: Timestamp,
}

/// How many are counted, and how many shown.
const COUNT_MAX: u64 = 10_000;
const SAMPLE: usize = 10;

/// `POST /api/v1/operations/preview`
pub(crate) async fn preview(call: Call) -> Result<Answer, Problem> {
    let body: BulkBody = call.body()?;
    body.check()?;
    let snapshot_at = call.engine().now();
    let mut preview = Preview { count: 0, at_least: false, sample: Vec::new(), snapshot_at };
    let scope = Scope::Of(call.caller.tenant()?.clone());
    let mut from = None;
    loop {
        let cursor = PageFrom { from, limit: PAGE_MAX };
        let (found, next) = matching(call.engine(), &scope, &body, snapshot_at, cursor).await?;
        for target in found {
            preview.count += 1;
            if preview.sample.len() < SAMPLE {
                preview.sample.push(JobDocument::from(&target.job));
            }
        }
        from = next;
        preview.at_least = from.is_some() && preview.count >= COUNT_MAX;
        if from.is_none() || preview.at_least {
            return Ok(Answer::ok(&preview));
        }
    }
}

/// `POST /api/v1/operations`
pub(crate) async fn begin(call: Call) -> Result<Answer, Problem> {
    let body: BulkBody = call.body()?;
    body.check()?;
    let principal = call.caller.principal.clone();
    let operation = Operation { body, snapshot_at: call.engine().now(), principal };
    let payload = serde_json::to_string(&operation).expect("it is plain data");
    let payload = Payload::parse(&payload, Payload::MAX_BYTES_DEFAULT)?;
    let job_id = call.engine().ids().job_id();
    let new = NewJob {
        queue: Queue::new(QUEUE)?,
        idempotency: Idempotency::Server { key: IdempotencyKey::of_job(job_id) },
        trace_id: Some(call.trace.clone()),
        ..NewJob::new(Kind::new(KIND)?, payload)
    };
    let (_, job) = create(&call, Some(job_id), new).await?;
    let document = document(&call, &job).await?;
    Ok(Answer::json(StatusCode::CREATED, &document))
}

/// An operation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OperationDocument {
    /// Its id. It is a job: it can be looked at, and cancelled.
    #[schemars(with = "String")]
    operation_id: JobId,
    /// Where it stands, as jobs do.
    #[schemars(with = "String")]
    state: State,
    /// What was asked for.
    #[schemars(with = "serde_json::Value")]
    asked: Option<Box<serde_json::value::RawValue>>,
    /// How far it has come.
    #[schemars(with = "serde_json::Value")]
    progress: Option<Box<serde_json::value::RawValue>>,
    /// When it was asked for.
    #[schemars(with = "String")]
    created_at: Timestamp,
    /// When it came to its end.
    #[schemars(with = "Option<String>")]
    finished_at: Option<Timestamp>,
}

async fn document(call: &Call, job: &Job) -> Result<OperationDocument, Problem> {
    let store = call.engine().store();
    let payload = store.payload(call.scope(), job.id).await?;
    let progress = store.progress(call.scope(), job.id).await?;
    Ok(OperationDocument {
        operation_id: job.id,
        state: job.state,
        asked: payload.filter(|payload| payload.len() <= BulkBody::SHOWN_MAX).and_then(raw),
        progress: progress.and_then(|progress| raw(progress.value)),
        created_at: job.spec.created_at,
        finished_at: job.finished_at,
    })
}

/// `GET /api/v1/operations`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let kind = Some(Kind::new(KIND)?);
    let filter = JobFilter { kind, ..JobFilter::of(call.scope().clone()) };
    let page = call.engine().store().jobs(filter, cursor(&call)?).await?;
    let mut items = Vec::new();
    for job in page.items {
        items.push(document(&call, &job).await?);
    }
    Ok(Answer::ok(&List { items, next: page.next.map(|next| next.to_string()) }))
}

/// `GET /api/v1/operations/{id}`
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id().map_err(|_| Problem::not_found("operation"))?;
    let job = call.engine().store().job(call.scope(), id).await?;
    let job = job.filter(|job| job.spec.kind.as_str() == KIND);
    let job = job.ok_or_else(|| Problem::not_found("operation"))?;
    Ok(Answer::ok(&document(&call, &job).await?))
}

/// One that an operation concerns.
struct Target {
    job: Job,
    letter: Option<DlqId>,
}

/// A part of what fits, and where the next part begins.
async fn matching(
    engine: &Engine,
    scope: &Scope,
    body: &BulkBody,
    snapshot_at: Timestamp,
    cursor: PageFrom,
) -> Result<(Vec<Target>, Option<Position>), windlass_store::Error> {
    let filter = &body.filter;
    if body.act != Act::Requeue {
        let before = filter.created_before.map_or(snapshot_at, |before| before.min(snapshot_at));
        let wanted =
            JobFilter { states: body.states(), created_before: Some(before), ..filter.jobs(scope) };
        let page = engine.store().jobs(wanted, cursor).await?;
        // Operations themselves are left alone.
        let jobs = page.items.into_iter().filter(|job| job.spec.kind.as_str() != KIND);
        return Ok((jobs.map(|job| Target { job, letter: None }).collect(), page.next));
    }
    let before = filter.failed_before.map_or(snapshot_at, |before| before.min(snapshot_at));
    let jobs = JobFilter { failed_before: Some(before), ..filter.jobs(scope) };
    let (scope, state) = (scope.clone(), Some(LetterState::Open));
    let page = engine.store().letters(LetterFilter { scope, state, jobs }, cursor).await?;
    let mut found = Vec::new();
    for letter in page.items {
        let job = engine.store().job(&Scope::Of(letter.tenant), letter.job_id).await?;
        found.extend(job.map(|job| Target { job, letter: Some(letter.id) }));
    }
    Ok((found, page.next))
}

/// How far an operation has come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Done {
    /// Acts that were carried out.
    done: u64,
    /// Acts that the rules refused: the job had changed meanwhile.
    refused: u64,
    /// Where it goes on.
    cursor: Option<String>,
}

/// The most that one look finds.
const PAGE_MAX: usize = 500;

/// How often it acts in a second.
const STEPS: u32 = 10;

/// Carries out an operation: the handler of its job.
pub(crate) async fn carry_out(operation: Operation, context: Context) -> HandlerResult<Outcome> {
    let engine = context.engine().clone();
    let scope = Scope::Of(context.tenant().clone());
    let known = engine.progress(context.job_id()).await?;
    let mut done: Done = known.and_then(|known| known.get().ok()).unwrap_or_default();
    let per_second = operation.body.per_second.unwrap_or(BulkBody::PER_SECOND_DEFAULT);
    let in_step = usize::try_from(per_second.div_ceil(STEPS))?;
    let mut pace = Pace::new(per_second, Instant::now());
    // What takes a second is noted together, so whoever is killed now and then still gets on.
    let limit = usize::try_from(per_second)?.clamp(1, PAGE_MAX);
    let mut is_noted = context.interruptions() == 0;
    loop {
        let from = done.cursor.as_deref().map(str::parse).transpose()?;
        let (body, snapshot_at) = (&operation.body, operation.snapshot_at);
        let cursor = PageFrom { from, limit };
        let (targets, next) = matching(&engine, &scope, body, snapshot_at, cursor).await?;
        for step in targets.chunks(in_step) {
            tokio::time::sleep(pace.take(step.len(), Instant::now())).await;
            if matches!(context.stop(), Some(Stop::Cancelled)) {
                context.progress(&done).await?;
                return Ok(Outcome::cancelled(None));
            }
            let writes = step.iter().map(|target| write(&operation, &context, target));
            for reply in engine.submit_all(writes).await {
                match reply {
                    Ok(_) => done.done += 1,
                    Err(windlass::Error::Refused(_)) => done.refused += 1,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        done.cursor = next.map(|next| next.to_string());
        context.progress(&done).await?;
        if !std::mem::replace(&mut is_noted, true) {
            checkpoint(&engine, &context, &done).await?;
        }
        if done.cursor.is_none() {
            return Ok(Outcome::done(&done));
        }
    }
}

/// Says that it gets on although it was interrupted: what is interrupted again and again without that is given up.
async fn checkpoint(engine: &Engine, context: &Context, done: &Done) -> HandlerResult {
    let op = Checkpoint {
        job_id: context.job_id(),
        epoch: context.epoch(),
        by: By::worker(context.worker().clone()),
        state: Digest::of(&serde_json::to_string(done)?),
        kept: None,
    };
    engine.submit(Write::Op { tenant: context.tenant().clone(), op: op.into() }).await?;
    Ok(())
}

fn write(operation: &Operation, context: &Context, target: &Target) -> Write {
    let actor = Actor::User(operation.principal.clone());
    let by = By { actor, trace_id: Some(context.trace_id().clone()) };
    let (job_id, new_job_id) = (target.job.id, new_job_id(context.job_id(), target.job.id));
    let op: Op = match (operation.body.act, target.letter) {
        (Act::Requeue, Some(dlq_id)) => Requeue { dlq_id, new_job_id, payload: None, by }.into(),
        (Act::Cancel, _) => {
            let (reason, grace) = (operation.body.reason.clone(), Cancel::GRACE_DEFAULT);
            Cancel { job_id, force: false, grace, reason, by }.into()
        }
        _ => match target.job.state {
            State::Failed | State::Cancelled => Rerun { job_id, new_job_id, by }.into(),
            State::Scheduled => Promote { job_id, when: PromoteWhen::Now { by } }.into(),
            _ => RetryNow { job_id, by }.into(),
        },
    };
    Write::Op { tenant: context.tenant().clone(), op }
}

/// The id of the job that an operation makes of another one: the same each time. It has the time of the operation.
fn new_job_id(operation: JobId, job: JobId) -> JobId {
    const RANDOM_BITS: u32 = 80;
    let digest = Sha256::digest(format!("{operation} {job}"));
    let random = u128::from_be_bytes(digest[..16].try_into().expect("a digest is longer"));
    let time = operation.as_u128() >> RANDOM_BITS << RANDOM_BITS;
    JobId::from_u128(time | (random & ((1 << RANDOM_BITS) - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_that_an_operation_makes_has_one_id() {
        let (operation, job) = (JobId::from_u128(7 << 80 | 9), JobId::from_u128(8 << 80));
        let made = new_job_id(operation, job);
        assert_eq!(made, new_job_id(operation, job));
        assert_eq!(made.as_u128() >> 80, 7);
        assert_ne!(made, new_job_id(operation, JobId::from_u128(8 << 80 | 1)));
    }
}
