//! Dead letters: what is left of a job that failed, until someone decides.
//!
//! A letter is written in the transaction that fails its job. It can be requeued (a new job takes over)
//! or discarded (by two different people, with a reason), once. Its approvals are its history: one row
//! for each person who had a say.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    About, By, Cause, Digest, DlqId, Epoch, Failure, Job, JobId, Note, Principal, State, TenantId,
    Timestamp, machine::words,
};

/// What is left of a job that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its id.
    pub id: DlqId,
    /// Who it belongs to.
    pub tenant: TenantId,
    /// The job that failed.
    pub job_id: JobId,
    /// What became of it.
    pub state: LetterState,
    /// Why the job failed.
    pub why: Cause,
    /// What went wrong.
    pub failure: Failure,
    /// The state in which the job was when it was given up.
    pub began_in: State,
    /// The attempt that failed last.
    pub attempt: u32,
    /// The last epoch.
    pub epoch: Epoch,
    /// The digest of the job's payload.
    pub payload_digest: Digest,
    /// When it was written.
    pub created_at: Timestamp,
    /// The job that took over.
    pub requeued_as: Option<JobId>,
    /// Who asked to discard it.
    pub discard_requested_by: Option<Principal>,
    /// Why it should be discarded.
    pub discard_reason: Option<String>,
    /// When it was requeued or discarded.
    pub closed_at: Option<Timestamp>,
}

impl DeadLetter {
    /// The letter of `job`, which is being given up.
    pub(crate) fn new(
        job: &Job,
        why: Cause,
        failure: Failure,
        began_in: State,
        now: Timestamp,
    ) -> Self {
        Self {
            id: DlqId::of_job(job.id),
            tenant: job.spec.tenant.clone(),
            job_id: job.id,
            state: LetterState::Open,
            why,
            failure,
            began_in,
            attempt: job.attempt,
            epoch: job.epoch,
            payload_digest: job.spec.payload_digest,
            created_at: now,
            requeued_as: None,
            discard_requested_by: None,
            discard_reason: None,
            closed_at: None,
        }
    }

    /// What is told of it: what somebody did with it.
    pub(crate) fn note(&self, what: &'static str, by: &By) -> Note {
        let note = Note::new(self.tenant.clone(), About::Letter(self.id), what, by.clone());
        Note { job_id: Some(self.job_id), ..note }
    }
}

words!(
    /// What became of a dead letter.
    LetterState {
        /// Nobody has decided.
        Open = "open",
        /// One person wants it discarded.
        DiscardRequested = "discard_requested",
        /// Two people discarded it.
        Discarded = "discarded",
        /// A new job took over.
        Requeued = "requeued",
    }
);

impl LetterState {
    /// Is there nothing left to decide?
    pub const fn is_closed(self) -> bool {
        matches!(self, LetterState::Discarded | LetterState::Requeued)
    }
}

/// One person's say on a dead letter. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The letter.
    pub dlq_id: DlqId,
    /// Who.
    pub principal: Principal,
    /// What they did: the request, or the consent to it.
    pub step: ApprovalStep,
    /// Why, in the words of the first.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

words!(
    /// A step on the way to discarding a letter.
    ApprovalStep {
        /// The first person asks.
        Requested = "requested",
        /// The second person agrees.
        Approved = "approved",
    }
);
