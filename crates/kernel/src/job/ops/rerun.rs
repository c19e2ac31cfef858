//! Rerun: a task whose job failed or was cancelled runs again, as a new job.
//!
//! An end stays an end: the old job does not change. The new one has the next attempt of the same task,
//! and is refused while a job of that task is not at an end.
//!
//! A job that failed left a dead letter, and its re-run is a requeue of that letter: the letter closes in the same
//! transaction. So the work of a letter is done again once, whichever of the two is asked for, and however often. A job
//! that was cancelled is run again once too: it is the last job of a task that is run again, and none before it.

use std::sync::Arc;

use crate::footprint::{Footprint, Makes};
use crate::{
    By, DlqId, IdempotencyKey, IdempotencyScope, Job, JobId, NewPayload, OpKind, Payload, Refusal,
    Spec, State, Timestamp, Transition,
    job::{Origin, ScheduleType},
    ops::{Current, Requeue, enqueue, requeue},
    own_names::is_own,
};

/// A task runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rerun {
    /// The job that failed or was cancelled.
    pub job_id: JobId,
    /// The id of the new job.
    pub new_job_id: JobId,
    /// Who.
    pub by: By,
}

impl Rerun {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let makes = Makes::Again { new_job_id: self.new_job_id };
        let letter = Some(DlqId::of_job(self.job_id));
        Footprint { letter, ..Footprint::of_job(self.job_id).making(makes) }
    }
}

pub(crate) fn decide(
    ended: &Job,
    current: &Current<'_>,
    op: &Rerun,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    if !ended.state.is_end() {
        let task_id = ended.spec.task_id.clone();
        return Err(Refusal::TaskActive { task_id, job_id: ended.id });
    }
    if !matches!(ended.state, State::Failed | State::Cancelled) {
        return Err(Refusal::InvalidTransition { from: ended.state, op: OpKind::Rerun });
    }
    if let Some(new) = current.new.filter(|new| is_rerun(new, ended)) {
        return Ok(Transition::recorded(new));
    }
    if let Some(letter) = current.letter {
        check_active(ended, current)?;
        let (new_job_id, by) = (op.new_job_id, op.by.clone());
        let op = Requeue { dlq_id: letter.id, new_job_id, payload: None, by };
        return requeue::decide(letter, ended, current, &op, now);
    }
    let origin = Origin::Rerun(ended.id);
    let again = Again { new_job_id: op.new_job_id, origin, payload: None, by: &op.by };
    create(ended, current, &again, now)
}

/// Is it what a re-run of that job makes?
fn is_rerun(new: &Job, ended: &Job) -> bool {
    match new.spec.origin {
        Origin::Rerun(earlier) => earlier == ended.id,
        Origin::Requeued(letter) => {
            letter == DlqId::of_job(ended.id)
                && new.spec.payload_digest == ended.spec.payload_digest
        }
        Origin::Enqueued => false,
    }
}

/// One job of a task at a time is not at its end.
fn check_active(ended: &Job, current: &Current<'_>) -> Result<(), Refusal> {
    match current.task.and_then(|task| task.active) {
        Some(job_id) => Err(Refusal::TaskActive { task_id: ended.spec.task_id.clone(), job_id }),
        None => Ok(()),
    }
}

/// Whoever asks for a job again that was run again before asks for the second time. A caller may name a job of the
/// server's own as its task, and keeps nobody from running that job again.
fn check_last(ended: &Job, current: &Current<'_>) -> Result<(), Refusal> {
    let is_last = current.task.is_none_or(|task| task.next_attempt <= ended.attempt + 1);
    if is_last || is_own(ended.spec.kind.as_str()) {
        return Ok(());
    }
    Err(Refusal::TaskDuplicate { task_id: ended.spec.task_id.clone() })
}

/// How a job is made again.
pub(crate) struct Again<'a> {
    pub(crate) new_job_id: JobId,
    pub(crate) origin: Origin,
    pub(crate) payload: Option<&'a Payload>,
    pub(crate) by: &'a By,
}

/// A new job for the task of one that is at its end.
pub(crate) fn create(
    ended: &Job,
    current: &Current<'_>,
    again: &Again<'_>,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    if current.new.is_some() {
        return Err(Refusal::JobExists { job_id: again.new_job_id });
    }
    check_active(ended, current)?;
    check_last(ended, current)?;
    enqueue::check_drained(current)?;
    let known_next = current.task.map_or(1, |task| task.next_attempt);
    let attempt = known_next.max(ended.attempt + 1);
    let spec = Spec {
        task_given: true,
        schedule_type: ScheduleType::At,
        scheduled_at: None,
        due_at: now,
        // The old deadline is past or near; whoever wants the task again wants it done.
        deadline_at: None,
        idempotency_scope: IdempotencyScope::own_id(),
        idempotency_key: IdempotencyKey::of_job(again.new_job_id),
        payload_digest: again.payload.map_or(ended.spec.payload_digest, Payload::digest),
        unique_key: None,
        parent: None,
        origin: again.origin,
        created_at: now,
        ..ended.spec.as_ref().clone()
    };
    let payload =
        again.payload.map_or(NewPayload::Of(ended.id), |new| NewPayload::Given(new.clone()));
    Ok(enqueue::create(again.new_job_id, Arc::new(spec), attempt, payload, again.by, now))
}
