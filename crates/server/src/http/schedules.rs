//! Schedules: jobs that are made at their times.

use std::time::Duration;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    About, JobId, Refusal, Schedule, ScheduleName, ScheduleOp, Timestamp,
    schedule::{Action, CatchUp, Overlap, Pause, PreviewSlot, ScheduleSpec, When, preview},
    time::{as_ms, duration_ms_option},
};
use windlass_store::{Reply, Scheduled, Write, read::Traces};

use super::{
    document::{List, raw},
    jobs::NewJobBody,
    problem::Problem,
    route::{Answer, Call},
};

/// A schedule that is asked for: one of `cron`, `every_ms` and `at` says when.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleBody {
    /// Its name. The same again changes the one that is there.
    #[schemars(with = "String")]
    name: ScheduleName,
    /// Times of a wall clock: five fields, six with seconds first, or `@hourly` and the like.
    cron: Option<String>,
    /// Where the clock hangs, such as `Europe/Berlin`; UTC, if nothing is said.
    zone: Option<String>,
    /// How far its slots lie apart.
    #[serde(rename = "every_ms", with = "duration_ms_option", default)]
    #[schemars(with = "Option<u64>")]
    every: Option<Duration>,
    /// The first slot of an interval; now, if nothing is said.
    #[schemars(with = "Option<String>")]
    anchor: Option<Timestamp>,
    /// One slot.
    #[schemars(with = "Option<String>")]
    at: Option<Timestamp>,
    /// By how much a slot may be fired later than its time.
    #[serde(rename = "jitter_ms", with = "duration_ms_option", default)]
    #[schemars(with = "Option<u64>")]
    jitter: Option<Duration>,
    /// What becomes of slots that were missed: `skip`, `one` or `{"all": {"max": 10}}`.
    catch_up: Option<CatchUpBody>,
    /// What a slot does while the last job is not at its end: allow, skip or queue.
    #[schemars(with = "Option<String>")]
    overlap: Option<Overlap>,
    /// It has no slot before this.
    #[schemars(with = "Option<String>")]
    start_at: Option<Timestamp>,
    /// It has no slot at this time or later.
    #[schemars(with = "Option<String>")]
    end_at: Option<Timestamp>,
    /// The job that is made for each slot. Its key and its time are those of the slot.
    job: NewJobBody,
}

/// What becomes of slots that were missed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CatchUpBody {
    /// They are skipped.
    Skip,
    /// The last of them is fired, and the others are skipped.
    One,
    /// They are fired, oldest first.
    All(CatchUpAllBody),
}

/// Missed slots that are fired.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CatchUpAllBody {
    /// How many at the most: of more the oldest are skipped.
    max: u32,
}

impl From<CatchUpBody> for CatchUp {
    fn from(body: CatchUpBody) -> Self {
        match body {
            CatchUpBody::Skip => CatchUp::Skip,
            CatchUpBody::One => CatchUp::One,
            CatchUpBody::All(CatchUpAllBody { max }) => CatchUp::All { max },
        }
    }
}

impl ScheduleBody {
    fn into_spec(self, now: Timestamp) -> Result<ScheduleSpec, Refusal> {
        let invalid = |why: &str| Refusal::invalid("when", why);
        let when = match (self.cron, self.every, self.at) {
            (Some(expression), None, None) => {
                When::Cron { expression, zone: self.zone.unwrap_or_else(|| "UTC".to_owned()) }
            }
            (None, Some(period), None) => {
                When::Every { period, anchor: self.anchor.unwrap_or(now) }
            }
            (None, None, Some(at)) => When::At(at),
            _ => return Err(invalid("must be said once: cron, every_ms or at")),
        };
        if self.job.job_id().is_some() {
            let why = "cannot be given: each job of a schedule has its own";
            return Err(Refusal::invalid("job_id", why));
        }
        Ok(ScheduleSpec {
            when,
            jitter: self.jitter.unwrap_or_default(),
            catch_up: self.catch_up.map_or_else(CatchUp::default, CatchUp::from),
            overlap: self.overlap.unwrap_or(Overlap::Allow),
            start_at: self.start_at,
            end_at: self.end_at,
            job: self.job.into_new()?,
        })
    }
}

/// A schedule.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ScheduleDocument {
    /// Its name.
    name: String,
    /// Who it belongs to.
    tenant: String,
    /// Its slots: `{"cron": …}`, `{"every": …}` or `{"at": …}`.
    #[schemars(with = "serde_json::Value")]
    when: When,
    /// By how much a slot may be fired later than its time.
    jitter_ms: u64,
    /// What becomes of slots that were missed.
    #[schemars(with = "serde_json::Value")]
    catch_up: CatchUp,
    /// What a slot does while the last job is not at its end.
    #[schemars(with = "String")]
    overlap: Overlap,
    /// It has no slot before this.
    #[schemars(with = "Option<String>")]
    start_at: Option<Timestamp>,
    /// It has no slot at this time or later.
    #[schemars(with = "Option<String>")]
    end_at: Option<Timestamp>,
    /// The kind of its jobs.
    kind: String,
    /// The queue of its jobs.
    queue: String,
    /// The payload of its jobs.
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
    /// Who paused it, when and why; null, if it goes on.
    #[schemars(with = "Option<serde_json::Value>")]
    pause: Option<Pause>,
    /// Its next slot.
    #[schemars(with = "Option<String>")]
    next_at: Option<Timestamp>,
    /// Its last slot that made a job.
    #[schemars(with = "Option<String>")]
    last_slot: Option<Timestamp>,
    /// The last job that it made.
    #[schemars(with = "Option<String>")]
    last_job_id: Option<JobId>,
    /// It grows with each change.
    version: u64,
    /// When it was created.
    #[schemars(with = "String")]
    created_at: Timestamp,
    /// When it last changed.
    #[schemars(with = "String")]
    updated_at: Timestamp,
}

impl From<&Schedule> for ScheduleDocument {
    fn from(schedule: &Schedule) -> Self {
        let spec = &schedule.spec;
        Self {
            name: schedule.name.to_string(),
            tenant: schedule.tenant.to_string(),
            when: spec.when.clone(),
            jitter_ms: as_ms(spec.jitter),
            catch_up: spec.catch_up,
            overlap: spec.overlap,
            start_at: spec.start_at,
            end_at: spec.end_at,
            kind: spec.job.kind.to_string(),
            queue: spec.job.queue.to_string(),
            payload: raw(spec.job.payload.as_str().to_owned()),
            pause: schedule.pause.clone(),
            next_at: schedule.next_at,
            last_slot: schedule.last_slot,
            last_job_id: schedule.last_job,
            version: schedule.version,
            created_at: schedule.created_at,
            updated_at: schedule.updated_at,
        }
    }
}

/// `POST /api/v1/schedules`
pub(crate) async fn put(call: Call) -> Result<Answer, Problem> {
    let body: ScheduleBody = call.body()?;
    let name = body.name.clone();
    let is_known = call.engine().store().schedule(call.caller.tenant()?, &name).await?.is_some();
    let spec = body.into_spec(call.engine().now())?;
    let told = act(&call, name, Action::Put(Box::new(spec))).await?;
    let status = if is_known { StatusCode::OK } else { StatusCode::CREATED };
    let schedule = told.schedule.expect("it was just put");
    Ok(Answer::json(status, &ScheduleDocument::from(&*schedule)))
}

/// `GET /api/v1/schedules`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let after: Option<ScheduleName> = call.query.get("cursor")?;
    let limit = call.query.number("limit", 1_000)?.unwrap_or(100).max(1);
    let limit = usize::try_from(limit).expect("it is bounded");
    let (found, is_more) = page(&call, after, limit).await?;
    let next = found.last().filter(|_| is_more).map(|last| last.name.to_string());
    let items = found.iter().map(ScheduleDocument::from).collect();
    Ok(Answer::ok(&List { items, next }))
}

/// The most bytes of payloads in one page of schedules. Each may have a megabyte.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many are read at a time.
const READ: usize = 16;

/// Schedules by name, as many as one answer holds, and whether there are more.
async fn page(
    call: &Call,
    mut after: Option<ScheduleName>,
    limit: usize,
) -> Result<(Vec<Schedule>, bool), Problem> {
    let (store, tenant) = (call.engine().store(), call.caller.tenant()?);
    let (mut page, mut bytes): (Vec<Schedule>, usize) = (Vec::new(), 0);
    loop {
        let read = READ.min(limit - page.len()) + 1;
        let found = store.schedules(tenant, after.as_ref(), read).await?;
        let is_last = found.len() < read;
        for schedule in found {
            if page.len() == limit || (bytes > PAGE_BYTES_MAX && !page.is_empty()) {
                return Ok((page, true));
            }
            bytes += schedule.spec.job.payload.as_str().len();
            page.push(schedule);
        }
        if is_last {
            return Ok((page, false));
        }
        after = page.last().map(|last| last.name.clone());
    }
}

fn name(call: &Call) -> Result<ScheduleName, Problem> {
    ScheduleName::new(call.param("name")).map_err(|_| Problem::not_found("schedule"))
}

async fn schedule(call: &Call) -> Result<Schedule, Problem> {
    let found = call.engine().store().schedule(call.caller.tenant()?, &name(call)?).await?;
    found.ok_or_else(|| Problem::not_found("schedule"))
}

/// `GET /api/v1/schedules/{name}`
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    Ok(Answer::ok(&ScheduleDocument::from(&schedule(&call).await?)))
}

/// `DELETE /api/v1/schedules/{name}`
pub(crate) async fn delete(call: Call) -> Result<Answer, Problem> {
    let schedule = schedule(&call).await?;
    act(&call, schedule.name.clone(), Action::Delete).await?;
    Ok(Answer::ok(&ScheduleDocument::from(&schedule)))
}

/// Why something is done.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReasonBody {
    /// In the caller's words.
    pub(crate) reason: Option<String>,
}

/// `POST /api/v1/schedules/{name}/pause`
pub(crate) async fn pause(call: Call) -> Result<Answer, Problem> {
    let body: ReasonBody = call.body()?;
    act(&call, name(&call)?, Action::Pause { reason: body.reason }).await?;
    show(call).await
}

/// `POST /api/v1/schedules/{name}/resume`
pub(crate) async fn resume(call: Call) -> Result<Answer, Problem> {
    act(&call, name(&call)?, Action::Resume).await?;
    show(call).await
}

/// How a job is made now.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TriggerBody {
    /// The id of the new job, for a caller that makes it before its first try: sent again, it gives the same job.
    #[schemars(with = "Option<String>")]
    new_job_id: Option<JobId>,
}

/// The job that was made.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Triggered {
    /// The job.
    #[schemars(with = "String")]
    job_id: JobId,
}

/// `POST /api/v1/schedules/{name}/trigger`
pub(crate) async fn trigger(call: Call) -> Result<Answer, Problem> {
    let body: TriggerBody = call.body()?;
    let ids = call.engine().ids();
    let (job_id, random) = (body.new_job_id.unwrap_or_else(|| ids.job_id()), ids.random());
    act(&call, name(&call)?, Action::Trigger { job_id, random }).await?;
    Ok(Answer::json(StatusCode::CREATED, &Triggered { job_id }))
}

/// A time from which and before which slots are made up for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackfillBody {
    /// The first slot is this one or a later one.
    #[schemars(with = "String")]
    from: Timestamp,
    /// The last slot lies before it.
    #[schemars(with = "String")]
    to: Timestamp,
}

/// What a backfill did.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Backfilled {
    /// Jobs that were made.
    #[schemars(with = "Vec<String>")]
    made: Vec<JobId>,
    /// Jobs of slots that had been fired before.
    #[schemars(with = "Vec<String>")]
    known: Vec<JobId>,
    /// Where to go on: send it as `from`. Null, if all is done.
    #[schemars(with = "Option<String>")]
    goes_on_from: Option<Timestamp>,
}

/// `POST /api/v1/schedules/{name}/backfill`
pub(crate) async fn backfill(call: Call) -> Result<Answer, Problem> {
    let BackfillBody { from, to } = call.body()?;
    let told = act(&call, name(&call)?, Action::Backfill { from, to }).await?;
    let (made, known) = (told.made, told.known);
    Ok(Answer::ok(&Backfilled { made, known, goes_on_from: told.goes_on_from }))
}

/// A slot that will come.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SlotDocument {
    /// Its time, in UTC.
    #[schemars(with = "String")]
    at: Timestamp,
    /// What the clock of the schedule shows then, with its offset and its zone.
    local: String,
    /// When it is fired, if all goes well: its time and its jitter.
    #[schemars(with = "String")]
    fires_at: Timestamp,
}

impl From<PreviewSlot> for SlotDocument {
    fn from(PreviewSlot { at, local, fires_at }: PreviewSlot) -> Self {
        Self { at, local, fires_at }
    }
}

/// `GET /api/v1/schedules/{name}/preview`
pub(crate) async fn next_slots(call: Call) -> Result<Answer, Problem> {
    let count = call.query.number("limit", PreviewSlot::MAX as u64)?.unwrap_or(10);
    let count = usize::try_from(count).expect("it is bounded");
    let Schedule { tenant, name, spec, .. } = schedule(&call).await?;
    let slots = preview(&tenant, &name, &spec, call.engine().now(), count)?;
    let items = slots.into_iter().map(SlotDocument::from).collect();
    Ok(Answer::ok(&List { items, next: None }))
}

/// `GET /api/v1/schedules/{name}/history`
pub(crate) async fn history(call: Call) -> Result<Answer, Problem> {
    let before = call.query.number("cursor", u64::MAX)?.unwrap_or(u64::MAX);
    let limit = call.query.number("limit", 1_000)?.unwrap_or(100).max(1);
    let limit = usize::try_from(limit).expect("it is bounded");
    let (tenant, about) = (call.caller.tenant()?, About::Schedule(name(&call)?));
    let notes = call.engine().store().notes(tenant, &about, before, limit).await?;
    let next = notes.last().filter(|_| notes.len() == limit).map(|last| last.number.to_string());
    let shown = |note| super::feed::shown(note, &Traces::new());
    let items = notes.iter().filter_map(shown).collect();
    Ok(Answer::ok(&List { items, next }))
}

async fn act(call: &Call, name: ScheduleName, action: Action) -> Result<Scheduled, Problem> {
    let (tenant, by) = (call.caller.tenant()?.clone(), call.by());
    let write = Write::Schedule(ScheduleOp { tenant, name, action, by });
    match call.engine().submit(write).await? {
        Reply::Scheduled(told) => Ok(*told),
        _ => unreachable!("an op on a schedule is answered by what it did"),
    }
}
