//! Contract `jobs`: a job with its dead letters in plain sight.
//!
//! `failed` comes only after `dlq_recorded`, and each of the three steps on the way is told. A
//! [`Replay`] is the record of what a job went through, to be compared with what was expected.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Addition, Contract, Told, error_code};
use crate::{
    Actor, DlqId, Event, Fact, IdempotencyKey, Job, JobId, Kind, Spec, State, TenantId, Timestamp,
    TraceId, job::Origin,
};

/// The contract.
pub static CONTRACT: Contract = Contract {
    name: "jobs",
    states: &[
        "queued",
        "running",
        "retrying",
        "succeeded",
        "dlq_pending",
        "dlq_recorded",
        "failed",
        "cancelled",
    ],
    begins: &["queued"],
    ends: &["succeeded", "failed", "cancelled"],
    moves: &[
        ("queued", "running"),
        ("running", "succeeded"),
        ("running", "retrying"),
        ("running", "dlq_pending"),
        ("retrying", "running"),
        ("retrying", "dlq_pending"),
        ("dlq_pending", "dlq_recorded"),
        ("dlq_recorded", "failed"),
    ],
    additions: &[
        Addition { from: "queued", to: "cancelled", why: CANCEL },
        Addition { from: "running", to: "cancelled", why: CANCEL },
        Addition { from: "retrying", to: "cancelled", why: CANCEL },
    ],
    codes: &[("INVALID_TRANSITION", "WF_STATE_TRANSITION_INVALID")],
    image,
};

const CANCEL: &str = "Whoever does not want a job any more needs an end that is not a failure.";

fn image(state: State, started: bool) -> Option<&'static str> {
    Some(match state {
        State::Scheduled => "queued",
        State::Queued | State::Dispatched if !started => "queued",
        State::Queued | State::Dispatched | State::Running => "running",
        State::Waiting | State::Interrupted => "running",
        State::RetryScheduled => "retrying",
        State::DlqPending => "dlq_pending",
        State::DlqRecorded => "dlq_recorded",
        State::Succeeded | State::Partial => "succeeded",
        State::Failed => "failed",
        State::Cancelled => "cancelled",
    })
}

/// A job.
#[derive(Clone, Debug, Serialize)]
pub struct JobDocument<'a> {
    /// The job.
    pub job_id: JobId,
    /// Who it belongs to.
    pub tenant_id: TenantId,
    /// Which handler it needs.
    pub job_type: Kind,
    /// Where it stands.
    pub status: &'static str,
    /// Retries used so far.
    pub retry_count: u32,
    /// The key it was asked for under.
    pub idempotency_key: IdempotencyKey,
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// The code of its last failure.
    pub error_code: Option<String>,
    /// What the handler gets, byte for byte; null where it is not shown.
    pub payload_json: Option<&'a RawValue>,
    /// Its own dead letter.
    pub dlq_id: Option<DlqId>,
    /// The dead letter that it was made from.
    pub requeued_from_dlq_id: Option<DlqId>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl<'a> JobDocument<'a> {
    /// The document of `job`, with its payload if the caller has it.
    pub fn new(job: &Job, payload: Option<&'a RawValue>) -> Self {
        Self {
            job_id: job.id,
            tenant_id: job.spec.tenant.clone(),
            job_type: job.spec.kind.clone(),
            status: CONTRACT.status(job),
            retry_count: job.retry_count,
            idempotency_key: job.spec.idempotency_key.clone(),
            trace_id: job.spec.trace_id.clone(),
            error_code: job.error.as_ref().map(|failure| failure.code.clone()),
            payload_json: payload,
            dlq_id: job.dlq_id,
            requeued_from_dlq_id: match job.spec.origin {
                Origin::Requeued(letter) => Some(letter),
                Origin::Enqueued | Origin::Rerun(_) => None,
            },
            created_at: job.spec.created_at,
            updated_at: job.updated_at,
        }
    }
}

/// The payload of `job.status.changed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobStatusChanged {
    /// The job.
    pub job_id: JobId,
    /// Who it belongs to.
    pub tenant_id: TenantId,
    /// Where it stood; nothing at its creation.
    pub previous_status: Option<&'static str>,
    /// Where it stands.
    pub status: &'static str,
    /// Retries used so far.
    pub retry_count: u32,
    /// The code of the failure, if this is what happened.
    pub error_code: Option<String>,
    /// Its dead letter, once that is written.
    pub dlq_id: Option<DlqId>,
    /// Who did it.
    pub actor: Actor,
}

/// The event as this contract tells it; none, if it sees no change. `number` is its number in the store.
pub fn tell(event: &Event, spec: &Spec, number: u64) -> Option<Told<JobStatusChanged>> {
    let step = CONTRACT.step(event)?;
    let dlq_id = match &event.fact {
        Fact::Buried { dlq_id, .. } if event.to != State::DlqPending => Some(*dlq_id),
        _ => None,
    };
    let payload = JobStatusChanged {
        job_id: event.job_id,
        tenant_id: spec.tenant.clone(),
        previous_status: step.previous,
        status: step.now,
        retry_count: event.retry_count,
        error_code: error_code(event),
        dlq_id,
        actor: event.actor.clone(),
    };
    Some(Told::new("job.status.changed", event, spec, number, payload))
}

/// What a job went through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// The job.
    pub job_id: JobId,
    /// Retries used so far.
    pub retry_count: u32,
    /// The states it went through, with the one in which it began.
    pub status_transition: Vec<&'static str>,
    /// Where it stands.
    pub status: &'static str,
    /// Its own dead letter.
    pub dlq_id: Option<DlqId>,
}

impl Replay {
    /// What `job` went through in these events: its whole history, or the end of it.
    pub fn new(job: &Job, events: &[Event]) -> Self {
        let steps: Vec<_> = events.iter().filter_map(|event| CONTRACT.step(event)).collect();
        let began_in = steps.first().and_then(|step| step.previous);
        Self {
            trace_id: job.spec.trace_id.clone(),
            job_id: job.id,
            retry_count: job.retry_count,
            status_transition: began_in.into_iter().chain(steps.iter().map(|s| s.now)).collect(),
            status: CONTRACT.status(job),
            dlq_id: job.dlq_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Jitter, RetryPolicy,
        contract::{
            Step,
            life::{Life, usual},
            tests::check_moves,
        },
        retry::MAX_RETRIES_DEFAULT,
        time::as_ms,
    };

    const BORN: &str = "2026-02-21T08:00:00Z";

    const MOVES: &str = "
        queued -> running -> succeeded
        running -> retrying
        running -> dlq_pending
        retrying -> running
        retrying -> dlq_pending
        dlq_pending -> dlq_recorded -> failed";

    fn replay(life: &Life) -> (String, u32) {
        let replay = Replay::new(&life.job, &life.events);
        (replay.status_transition.join(" "), replay.retry_count)
    }

    #[test]
    fn the_moves_are_those_of_the_document() {
        check_moves(&CONTRACT, MOVES);
    }

    #[test]
    fn nothing_succeeds_that_did_not_run_and_nothing_fails_without_its_letter() {
        let allows = |from, now| CONTRACT.allows(Step { previous: Some(from), now });
        assert!(!allows("queued", "succeeded"));
        assert!(!allows("dlq_pending", "failed"));
        let into_failed: Vec<_> = CONTRACT.all_moves().filter(|(_, to)| *to == "failed").collect();
        assert_eq!(into_failed, [("dlq_recorded", "failed")]);
    }

    #[test]
    fn the_retry_policy_is_that_of_the_document() {
        let policy = RetryPolicy::default();
        assert_eq!((as_ms(policy.base), as_ms(policy.max_backoff)), (1_000, 30_000));
        assert_eq!((MAX_RETRIES_DEFAULT, Jitter::MAX_MS), (3, 300));
    }

    #[test]
    fn a_job_that_succeeds_is_replayed() {
        let mut life = Life::begin(usual(), BORN);
        life.start().succeed();
        assert_eq!(replay(&life), ("queued running succeeded".to_owned(), 0));
    }

    #[test]
    fn a_replay_of_the_end_of_a_history_begins_where_the_job_was() {
        let mut life = Life::begin(usual(), BORN);
        life.start().fail();
        let seen = life.events.len();
        life.start().succeed();
        let replay = Replay::new(&life.job, &life.events[seen..]);
        assert_eq!(replay.status_transition, ["retrying", "running", "succeeded"]);
        assert_eq!(replay.retry_count, 1);
    }

    #[test]
    fn the_fourth_failure_goes_through_the_dead_letters() {
        let mut life = Life::begin(usual(), BORN);
        life.start().fail().start().fail().start().fail().start().fail();
        let expected = "queued running retrying running retrying running retrying running \
                        dlq_pending dlq_recorded failed";
        assert_eq!(replay(&life), (expected.to_owned(), 3));
        assert!(Replay::new(&life.job, &life.events).dlq_id.is_some());
    }

    #[test]
    fn a_letter_is_named_once_it_is_written() {
        let mut life = Life::begin(usual(), BORN);
        life.start().fail().start().fail().start().fail().start().fail();
        let told: Vec<_> = life.events.iter().filter_map(|e| tell(e, &life.job.spec, 9)).collect();
        let named = told.iter().filter(|told| told.payload.dlq_id.is_some());
        let statuses: Vec<_> = named.map(|told| told.payload.status).collect();
        assert_eq!(statuses, ["dlq_recorded", "failed"]);
    }

    #[test]
    fn a_job_and_its_events_have_exactly_the_fields_of_the_document() {
        let mut life = Life::begin(usual(), BORN);
        life.start().fail();
        let payload = RawValue::from_string(r#"{"n": 1.10}"#.to_owned()).unwrap();
        let document = JobDocument::new(&life.job, Some(&payload));
        assert_eq!(
            serde_json::to_string(&document).unwrap(),
            r#"{"job_id":"job_00000000000000000000000001","tenant_id":"acme","#.to_owned()
                + r#""job_type":"mail","status":"retrying","retry_count":1,"#
                + r#""idempotency_key":"job_00000000000000000000000001","#
                + r#""trace_id":"trace-run-job_00000000000000000000000001-"#
                + r#"00000000-0000-4000-8000-000000000007","error_code":"SMTP_DOWN","#
                + r#""payload_json":{"n": 1.10},"dlq_id":null,"requeued_from_dlq_id":null,"#
                + r#""created_at":"2026-02-21T08:00:00Z","updated_at":"2026-02-21T08:00:00Z"}"#
        );
        let event = tell(life.events.last().unwrap(), &life.job.spec, 9).unwrap();
        assert_eq!(
            serde_json::to_string(&event.payload).unwrap(),
            r#"{"job_id":"job_00000000000000000000000001","tenant_id":"acme","#.to_owned()
                + r#""previous_status":"running","status":"retrying","retry_count":1,"#
                + r#""error_code":"SMTP_DOWN","dlq_id":null,"actor":"worker:w1"}"#
        );
        assert_eq!(event.name, "job.status.changed");
    }

    #[test]
    fn a_job_keeps_its_id_and_each_retry_has_its_own_key() {
        let mut life = Life::begin(usual(), BORN);
        life.start();
        let first = (life.job.id, life.job.execution_key());
        life.fail().start();
        assert_eq!(life.job.id, first.0);
        assert_eq!(first.1, format!("{}+0", life.job.id));
        assert_eq!(life.job.execution_key(), format!("{}+1", life.job.id));
    }
}
