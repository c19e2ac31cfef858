//! Evolve: what an event makes of a job. Folding all events of a job rebuilds its row.
//!
//! This is the only place where a job's row changes. It decides nothing: whether an event may happen was
//! settled before it was written. Lease and payload are not history and are not rebuilt here, except
//! that a lease ends with the state that held it.

use std::sync::Arc;

use crate::{
    Cause, Epoch, Event, Fact, Job, State,
    job::{CancelRequest, Settled},
    ledger::LedgerHead,
};

/// The job after `event`. Only the creation of a job has no job before it.
///
/// # Panics
/// If the first event is not a creation, or a later one is: then it is not a history.
pub fn evolve(job: Option<Job>, event: &Event) -> Job {
    let mut job = match (job, &event.fact) {
        (None, Fact::Created { spec, attempt }) => new_job(event, spec.clone(), *attempt),
        (Some(_), Fact::Created { .. }) => panic!("a job is created once"),
        (Some(job), _) => job,
        (None, _) => panic!("a history begins with the creation of its job"),
    };
    change(&mut job, event);
    job
}

/// Makes of a job what it is after `event`.
pub(crate) fn change(job: &mut Job, event: &Event) {
    job.state = event.to;
    job.version = event.number;
    job.updated_at = event.at;
    // What a state has outlasts an event that moves nothing.
    if event.is_move() {
        (job.next_retry_at, job.wait) = (None, None);
    }
    if !event.to.is_leased() {
        job.lease = None;
        job.execution_started_at = None;
    }
    if event.to.is_end() {
        job.finished_at = Some(event.at);
        job.ended_by = Some(event.cause);
    }
    apply(job, event);
}

/// The job that a whole history makes; none if the history is empty.
pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<Job> {
    events.into_iter().fold(None, |job, event| Some(evolve(job, event)))
}

fn new_job(event: &Event, spec: Arc<crate::Spec>, attempt: u32) -> Job {
    Job {
        id: event.job_id,
        spec,
        state: event.to,
        version: event.number,
        attempt,
        retry_count: 0,
        epoch: Epoch::ZERO,
        claim_id: None,
        interruptions: 0,
        started_at: None,
        attempt_started_at: None,
        execution_started_at: None,
        updated_at: event.at,
        finished_at: None,
        next_retry_at: None,
        wait: None,
        woken: None,
        cancel: None,
        error: None,
        ended_by: None,
        dlq_id: None,
        result: None,
        remaining: None,
        settles: Vec::new(),
        lease: None,
        lease_count: 0,
        ledger: LedgerHead::default(),
    }
}

fn apply(job: &mut Job, event: &Event) {
    match &event.fact {
        Fact::Created { .. } => {}
        Fact::Plain if event.cause == Cause::Started => {
            job.started_at.get_or_insert(event.at);
            job.attempt_started_at.get_or_insert(event.at);
            job.execution_started_at = Some(event.at);
        }
        Fact::Plain if event.cause == Cause::RetryNow => job.next_retry_at = Some(event.at),
        Fact::Plain => {}
        Fact::Claimed { epoch, claim_id, .. } => {
            (job.epoch, job.claim_id) = (*epoch, Some(*claim_id));
            if event.cause == Cause::RetryDue {
                job.attempt += 1;
                job.attempt_started_at = None;
            }
        }
        Fact::Interrupted { counted } => job.interruptions += u32::from(*counted),
        Fact::Finished { settle, result, remaining } => {
            (job.result, job.remaining) = (*result, *remaining);
            job.error = None;
            remember(job, event, *settle);
        }
        Fact::Parked { wait } => {
            job.wait = Some(wait.clone());
            job.woken = None;
        }
        Fact::Woken { how, .. } => job.woken = Some(*how),
        Fact::Retry { failure, next_retry_at, settle } => {
            job.retry_count += 1;
            job.next_retry_at = Some(*next_retry_at);
            job.error = Some(failure.clone());
            settle.iter().for_each(|settle| remember(job, event, *settle));
        }
        Fact::Buried { dlq_id, why, failure, settle, .. } => {
            job.error = Some(failure.clone());
            if event.to == State::Failed {
                (job.dlq_id, job.ended_by) = (Some(*dlq_id), Some(*why));
                settle.iter().for_each(|settle| remember(job, event, *settle));
            }
        }
        Fact::CancelRequested { reason, grace_until } => {
            let (by, reason) = (event.actor.clone(), reason.clone());
            job.cancel = Some(CancelRequest { by, reason, grace_until: *grace_until });
        }
        Fact::Cancelled { failure, settle, .. } => {
            if let Some(failure) = failure {
                job.error = Some(failure.clone());
            }
            settle.iter().for_each(|settle| remember(job, event, *settle));
        }
        Fact::Checkpoint { kept, .. } => {
            job.interruptions = 0;
            if let Some(bytes) = kept {
                let ledger = &mut job.ledger;
                (ledger.steps, ledger.recorded) = (ledger.steps + 1, ledger.recorded + 1);
                (ledger.checkpoint, ledger.bytes) = (ledger.recorded, ledger.bytes + bytes);
            }
        }
        Fact::StepBegun { is_new, .. } => job.ledger.steps += u32::from(*is_new),
        Fact::StepTryFailed { .. } | Fact::StepFinished { .. } | Fact::Resolved { .. } => {}
        Fact::StepCommitted { number, bytes, takes_mail, .. } => {
            job.interruptions = 0;
            let ledger = &mut job.ledger;
            (ledger.recorded, ledger.bytes) = (*number, ledger.bytes + bytes);
            ledger.taken += u32::from(*takes_mail);
        }
        Fact::Signalled { .. } => job.ledger.mails += 1,
    }
}

/// Keeps the answer of a settle, and forgets the oldest when there are too many.
fn remember(job: &mut Job, event: &Event, digest: crate::Digest) {
    if job.settles.len() == Job::SETTLES_KEPT {
        job.settles.remove(0);
    }
    let (epoch, next_retry_at) = (job.epoch, job.next_retry_at);
    job.settles.push(Settled { epoch, digest, state: event.to, next_retry_at });
}
