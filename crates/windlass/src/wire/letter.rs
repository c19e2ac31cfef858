//! Dead letters.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    Approval, Cause, DeadLetter, DlqId, Epoch, JobId, LetterState, Refusal, State, Timestamp,
    letter::ApprovalStep,
};
use windlass_store::read;

use super::{FailureDocument, JobDocument, job::digest};

/// A dead letter.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LetterDocument {
    /// Its id.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub dlq_id: DlqId,
    /// Who it belongs to.
    pub tenant: String,
    /// The job that failed.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// What became of it: open, discard_requested, discarded or requeued.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub state: LetterState,
    /// Why the job failed.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub why: Cause,
    /// What went wrong.
    pub error: FailureDocument,
    /// The state in which the job was given up.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub began_in: State,
    /// The attempt that failed last.
    pub attempt: u32,
    /// The last epoch.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// When it was written.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub created_at: Timestamp,
    /// The job that took over.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub requeued_as: Option<JobId>,
    /// Who asked to discard it.
    pub discard_requested_by: Option<String>,
    /// Why it should be discarded.
    pub discard_reason: Option<String>,
    /// When it was requeued or discarded.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub closed_at: Option<Timestamp>,
    /// The job that failed, with its payload; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobDocument>,
    /// Who had a say; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Vec<ApprovalDocument>>,
}

/// One person's say on a dead letter.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalDocument {
    /// Who.
    pub principal: String,
    /// What they did: requested or approved.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub step: ApprovalStep,
    /// Why.
    pub reason: String,
    /// When.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at: Timestamp,
}

impl From<&DeadLetter> for LetterDocument {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            dlq_id: letter.id,
            tenant: letter.tenant.to_string(),
            job_id: letter.job_id,
            state: letter.state,
            why: letter.why,
            error: (&letter.failure).into(),
            began_in: letter.began_in,
            attempt: letter.attempt,
            epoch: letter.epoch,
            created_at: letter.created_at,
            requeued_as: letter.requeued_as,
            discard_requested_by: letter.discard_requested_by.as_ref().map(ToString::to_string),
            discard_reason: letter.discard_reason.clone(),
            closed_at: letter.closed_at,
            job: None,
            approvals: None,
        }
    }
}

impl From<Approval> for ApprovalDocument {
    fn from(approval: Approval) -> Self {
        Self {
            principal: approval.principal.to_string(),
            step: approval.step,
            reason: approval.reason,
            at: approval.at,
        }
    }
}

/// Dead letters that have one cause.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LetterGroup {
    /// The code of the failure.
    pub code: String,
    /// Its message, without what differs from one letter to the next.
    pub message: String,
    /// How many there are.
    pub count: u64,
    /// The oldest of them.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub first_at: Timestamp,
    /// The newest of them.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub last_at: Timestamp,
    /// The newest of them, as an example.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub example: DlqId,
}

/// Dead letters by cause.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Groups {
    /// The largest first, 1,000 at the most.
    pub items: Vec<LetterGroup>,
    /// How many letters there are in all groups.
    pub looked_at: u64,
    /// Are there more groups than these?
    pub more: bool,
}

/// How a dead letter is requeued.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RequeueBody {
    /// Another payload than the one that failed.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
    /// The id of the new job, for a caller that makes it before its first try: sent again, it gives the same job.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub new_job_id: Option<JobId>,
}

/// The job that took over.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Requeued"))]
pub struct Requeued<J = JobDocument> {
    /// The letter.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub dlq_id: DlqId,
    /// The new job.
    #[cfg_attr(feature = "schema", schemars(with = "JobDocument"))]
    pub job: J,
}

/// Why a dead letter is thrown away.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiscardBody {
    /// Why. It must be said.
    pub reason: String,
}

impl LetterDocument {
    /// Who had a say, if it is told.
    pub fn into_approvals(self) -> Result<Vec<Approval>, Refusal> {
        let dlq_id = self.dlq_id;
        let approval = |it: ApprovalDocument| {
            let principal = it.principal.try_into()?;
            Ok(Approval { dlq_id, principal, step: it.step, reason: it.reason, at: it.at })
        };
        self.approvals.unwrap_or_default().into_iter().map(approval).collect()
    }

    /// The letter. The digest of its payload is right if its job is told.
    pub fn into_letter(self) -> Result<DeadLetter, Refusal> {
        Ok(DeadLetter {
            id: self.dlq_id,
            tenant: self.tenant.try_into()?,
            job_id: self.job_id,
            state: self.state,
            why: self.why,
            failure: self.error.into(),
            began_in: self.began_in,
            attempt: self.attempt,
            epoch: self.epoch,
            payload_digest: digest(self.job.as_ref().and_then(|job| job.payload.as_deref())),
            created_at: self.created_at,
            requeued_as: self.requeued_as,
            discard_requested_by: self.discard_requested_by.map(TryInto::try_into).transpose()?,
            discard_reason: self.discard_reason,
            closed_at: self.closed_at,
        })
    }
}

impl From<read::LetterGroups> for Groups {
    fn from(found: read::LetterGroups) -> Self {
        let group = |group: read::LetterGroup| LetterGroup {
            code: group.code,
            message: group.cause,
            count: group.count,
            first_at: group.first_at,
            last_at: group.last_at,
            example: group.newest,
        };
        let items = found.groups.into_iter().map(group).collect();
        Self { items, looked_at: found.letters, more: found.more }
    }
}

impl From<Groups> for read::LetterGroups {
    fn from(told: Groups) -> Self {
        let group = |group: LetterGroup| read::LetterGroup {
            code: group.code,
            cause: group.message,
            count: group.count,
            first_at: group.first_at,
            last_at: group.last_at,
            newest: group.example,
        };
        let groups = told.items.into_iter().map(group).collect();
        Self { groups, letters: told.looked_at, more: told.more }
    }
}
