//! Schedules: jobs that are made at their times.

use axum::http::StatusCode;
use windlass::wire::{
    BackfillBody, Backfilled, List, ReasonBody, ScheduleBody, ScheduleDocument, SlotDocument,
    TriggerBody, Triggered,
};
use windlass_kernel::{
    Schedule, ScheduleName, ScheduleOp,
    schedule::{Action, PreviewSlot, preview},
};
use windlass_store::{Scheduled, read::Traces};

use crate::http::core::{
    problem::Problem,
    route::{Answer, Call},
};

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

/// `POST /api/v1/schedules/{name}/trigger`
pub(crate) async fn trigger(call: Call) -> Result<Answer, Problem> {
    let body: TriggerBody = call.body()?;
    let ids = call.engine().ids();
    let (job_id, random) = (body.new_job_id.unwrap_or_else(|| ids.job_id()), ids.random());
    act(&call, name(&call)?, Action::Trigger { job_id, random }).await?;
    Ok(Answer::json(StatusCode::CREATED, &Triggered { job_id }))
}

/// `POST /api/v1/schedules/{name}/backfill`
pub(crate) async fn backfill(call: Call) -> Result<Answer, Problem> {
    let BackfillBody { from, to } = call.body()?;
    let told = act(&call, name(&call)?, Action::Backfill { from, to }).await?;
    let (made, known) = (told.made, told.known);
    Ok(Answer::ok(&Backfilled { made, known, goes_on_from: told.goes_on_from }))
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
    let (tenant, name) = (call.caller.tenant()?, name(&call)?);
    let store = call.engine().store();
    let notes = store.schedule_history(tenant, &name, before, limit).await?;
    let next = notes.last().filter(|_| notes.len() == limit).map(|last| last.number.to_string());
    let shown = |note| crate::http::api::feed::shown(note, &Traces::new());
    let items = notes.iter().filter_map(shown).collect();
    Ok(Answer::ok(&List { items, next }))
}

async fn act(call: &Call, name: ScheduleName, action: Action) -> Result<Scheduled, Problem> {
    let (tenant, by) = (call.caller.tenant()?.clone(), call.by());
    Ok(call.engine().submit(ScheduleOp { tenant, name, action, by }).await?)
}
