//! Contract `ingest`: a job as a task that fetches one slice of a plan.
//!
//! Here the lease shows: a task is `DISPATCHED` until it first starts, and `EXECUTING` from then on until
//! its end, whatever happens in between. What a task was derived from is not the machine's to know: it
//! comes in as [`Lineage`].

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Addition, Contract, Told, error_code};
use crate::{Actor, Event, Job, Spec, State, TaskId, Timestamp, WorkerId};

/// The contract.
pub static CONTRACT: Contract = Contract {
    name: "ingest",
    states: &["QUEUED", "DISPATCHED", "EXECUTING", "SUCCEEDED", "FAILED", "PARTIAL", "CANCELLED"],
    begins: &["QUEUED"],
    ends: &["SUCCEEDED", "FAILED", "PARTIAL", "CANCELLED"],
    moves: &[
        ("QUEUED", "DISPATCHED"),
        ("DISPATCHED", "EXECUTING"),
        ("EXECUTING", "SUCCEEDED"),
        ("EXECUTING", "FAILED"),
        ("EXECUTING", "PARTIAL"),
        ("EXECUTING", "CANCELLED"),
    ],
    additions: &[
        Addition {
            from: "DISPATCHED",
            to: "QUEUED",
            why: "A task whose lease lapsed before it started can be claimed again.",
        },
        Addition { from: "QUEUED", to: "CANCELLED", why: CANCEL },
        Addition { from: "DISPATCHED", to: "CANCELLED", why: CANCEL },
    ],
    codes: &[],
    image,
};

const CANCEL: &str = "A task that nobody wants any more need not start in order to end.";

fn image(state: State, started: bool) -> Option<&'static str> {
    match state {
        State::Scheduled => Some("QUEUED"),
        State::Queued if !started => Some("QUEUED"),
        State::Dispatched if !started => Some("DISPATCHED"),
        State::Queued | State::Dispatched | State::Running => Some("EXECUTING"),
        State::Waiting | State::RetryScheduled | State::Interrupted => Some("EXECUTING"),
        State::DlqPending | State::DlqRecorded => None,
        State::Succeeded => Some("SUCCEEDED"),
        State::Partial => Some("PARTIAL"),
        State::Failed => Some("FAILED"),
        State::Cancelled => Some("CANCELLED"),
    }
}

/// What a task was derived from, and what came of it. Whoever has the rows fills it in.
#[derive(Clone, Debug, Default)]
pub struct Lineage<'a> {
    /// The run of the schedule that made the plan.
    pub schedule_instance_id: Option<String>,
    /// The plan.
    pub plan_id: Option<String>,
    /// The slice of the plan.
    pub slice_id: Option<String>,
    /// The hash of the source's compiled expression.
    pub expr_hash: Option<String>,
    /// The hash of the slice's bounds.
    pub slice_signature_hash: Option<String>,
    /// Should the planner cut what is left into smaller slices?
    pub re_slice_suggested: Option<bool>,
    /// The figures of the last attempt.
    pub stats: Option<&'a RawValue>,
}

/// A task.
#[derive(Clone, Debug, Serialize)]
pub struct IngestTaskDocument<'a> {
    /// The task.
    pub task_id: TaskId,
    /// Where it stands.
    pub status: &'static str,
    /// The worker that holds it.
    pub lease_owner: Option<WorkerId>,
    /// When its lease runs out.
    pub leased_until: Option<Timestamp>,
    /// Claims and renewals over its whole life.
    pub lease_count: u64,
    /// Which attempt it is at, from 1.
    pub attempt: u32,
    /// The run of the schedule that made the plan.
    pub schedule_instance_id: Option<String>,
    /// The plan.
    pub plan_id: Option<String>,
    /// The slice of the plan.
    pub slice_id: Option<String>,
    /// The hash of the source's compiled expression.
    pub expr_hash: Option<String>,
    /// The hash of the slice's bounds.
    pub slice_signature_hash: Option<String>,
    /// Should the planner cut what is left into smaller slices?
    #[serde(rename = "reSliceSuggested")]
    pub re_slice_suggested: Option<bool>,
    /// The figures of the last attempt.
    pub stats: Option<&'a RawValue>,
}

impl<'a> IngestTaskDocument<'a> {
    /// The task that `job` is.
    pub fn new(job: &Job, lineage: Lineage<'a>) -> Self {
        let lease = job.lease.as_ref();
        Self {
            task_id: job.spec.task_id.clone(),
            status: CONTRACT.status(job),
            lease_owner: lease.map(|lease| lease.worker.clone()),
            leased_until: lease.map(|lease| lease.until),
            lease_count: job.lease_count,
            attempt: job.attempt,
            schedule_instance_id: lineage.schedule_instance_id,
            plan_id: lineage.plan_id,
            slice_id: lineage.slice_id,
            expr_hash: lineage.expr_hash,
            slice_signature_hash: lineage.slice_signature_hash,
            re_slice_suggested: lineage.re_slice_suggested,
            stats: lineage.stats,
        }
    }
}

/// The payload of `task.status.changed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IngestStatusChanged {
    /// The task.
    pub task_id: TaskId,
    /// Where it stood; nothing at its creation.
    pub previous_status: Option<&'static str>,
    /// Where it stands.
    pub status: &'static str,
    /// Which attempt it is at, from 1.
    pub attempt: u32,
    /// The code of the failure, if this is what happened.
    pub error_code: Option<String>,
    /// Who did it.
    pub actor: Actor,
}

/// The event as this contract tells it; none, if it sees no change. `number` is its number in the store.
pub fn tell(event: &Event, spec: &Spec, number: u64) -> Option<Told<IngestStatusChanged>> {
    let step = CONTRACT.step(event)?;
    let payload = IngestStatusChanged {
        task_id: spec.task_id.clone(),
        previous_status: step.previous,
        status: step.now,
        attempt: event.attempt,
        error_code: error_code(event),
        actor: event.actor.clone(),
    };
    Some(Told::new("task.status.changed", event, spec, number, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Payload,
        contract::{
            life::{Life, usual},
            tests::check_moves,
        },
        ops::Outcome,
    };

    const BORN: &str = "2026-02-21T08:00:00Z";

    #[test]
    fn the_moves_are_those_of_the_document() {
        check_moves(&CONTRACT, "QUEUED→DISPATCHED→EXECUTING→SUCCEEDED/FAILED/PARTIAL/CANCELLED");
    }

    #[test]
    fn a_retry_is_still_the_same_execution_to_this_contract() {
        let mut life = Life::begin(usual(), BORN);
        let remaining = Payload::parse("{}", 2).unwrap();
        life.start().fail().start().settle(Outcome::Partial { result: None, remaining });
        let told = life.events.iter().filter_map(|event| tell(event, &life.job.spec, 9));
        let steps: Vec<_> =
            told.map(|told| (told.payload.previous_status, told.payload.status)).collect();
        let expected = [
            (None, "QUEUED"),
            (Some("QUEUED"), "DISPATCHED"),
            (Some("DISPATCHED"), "EXECUTING"),
            (Some("EXECUTING"), "PARTIAL"),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_task_has_exactly_the_fields_of_the_document() {
        let mut life = Life::begin(usual(), BORN);
        life.start();
        let stats = RawValue::from_string(r#"{"items":3}"#.to_owned()).unwrap();
        let lineage = Lineage {
            plan_id: Some("plan_1".to_owned()),
            re_slice_suggested: Some(false),
            stats: Some(&stats),
            ..Lineage::default()
        };
        let document = IngestTaskDocument::new(&life.job, lineage);
        assert_eq!(
            serde_json::to_string(&document).unwrap(),
            r#"{"task_id":"job_00000000000000000000000001","status":"EXECUTING","#.to_owned()
                + r#""lease_owner":"w1","leased_until":"2026-02-21T09:00:00Z","lease_count":1,"#
                + r#""attempt":1,"schedule_instance_id":null,"plan_id":"plan_1","#
                + r#""slice_id":null,"expr_hash":null,"slice_signature_hash":null,"#
                + r#""reSliceSuggested":false,"stats":{"items":3}}"#
        );
    }

    #[test]
    fn a_lease_that_ended_is_not_shown() {
        let mut life = Life::begin(usual(), BORN);
        life.start().fail();
        let document = IngestTaskDocument::new(&life.job, Lineage::default());
        assert_eq!((document.lease_owner, document.leased_until), (None, None));
        assert_eq!(document.lease_count, 1);
    }
}
