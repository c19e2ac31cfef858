//! What a backend hands to the rules: rows as plain values, whatever database they stood in.

use std::{collections::HashMap, fmt, time::Duration};

use windlass_kernel::{Approval, DeadLetter, DlqId, Job, JobId, LetterState, TenantId, Timestamp};

use super::ActKind;
use crate::log::Chain;

/// What rows refer to by number: few, and held for the whole check.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Groups by number.
    pub(crate) groups: HashMap<i64, Group>,
    /// Worker names by the number of their session.
    pub(crate) sessions: HashMap<i64, String>,
}

/// Jobs that are offered to workers together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) queue: String,
    pub(crate) tenant: String,
    pub(crate) kind: String,
    pub(crate) isolated: bool,
}

/// A row of the log.
pub(crate) struct LogRow<'a> {
    pub(crate) id: u64,
    pub(crate) at: Timestamp,
    /// How many lines it says it has.
    pub(crate) count: i64,
    pub(crate) events: &'a str,
}

/// One line of the log, with what its row says.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) log_id: u64,
    pub(crate) tenant: String,
    pub(crate) at: Timestamp,
    pub(crate) text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log {} at {}: {}", self.log_id, self.at, self.text)
    }
}

/// A job that retention has taken.
pub(crate) struct PrunedRow {
    pub(crate) at: Timestamp,
    /// How long before that it had to be at its end.
    pub(crate) least: Duration,
    /// The number of its last event.
    pub(crate) version: u64,
    /// How many log rows still speak of it.
    pub(crate) rows: u64,
}

/// What one log row says.
#[derive(Default)]
pub(crate) struct Spoken<'a> {
    /// Of jobs.
    pub(crate) of_jobs: Vec<(JobId, &'a str)>,
    /// Of the inbox, with the numbers of the events.
    pub(crate) of_inbox: Vec<(u64, &'a str)>,
    /// Of what is neither, with the numbers of the events.
    pub(crate) notes: Vec<(u64, &'a str)>,
    /// What people did, or may have done, by the numbers of the events that tell it.
    pub(crate) acts: Vec<(u64, ActKind)>,
}

/// What became of an enqueue that made no job, and the line that tells it. One may be missing.
pub(crate) struct InboxPair {
    /// The number of the event.
    pub(crate) event: u64,
    pub(crate) row: Option<InboxRow>,
    pub(crate) line: Option<Line>,
}

/// A result of the inbox.
pub(crate) struct InboxRow {
    pub(crate) job_id: JobId,
    pub(crate) tenant: String,
    pub(crate) at: Timestamp,
    pub(crate) outcome: String,
    pub(crate) existing: Option<JobId>,
    pub(crate) code: Option<String>,
    pub(crate) why: Option<String>,
    /// Is what was asked for still there?
    pub(crate) is_kept: bool,
}

/// A job's row: the job without its lease, and the columns beside it.
pub(crate) struct JobRow {
    pub(crate) job: Job,
    pub(crate) group_id: i64,
    pub(crate) timer_at: Option<Timestamp>,
    pub(crate) dlq_id: Option<DlqId>,
    pub(crate) lease: LeaseColumns,
    /// The log rows it points to, in order.
    pub(crate) log_ids: Vec<u64>,
    pub(crate) chain: Chain,
    pub(crate) payload: Option<String>,
    /// What stands in the outputs of its current attempt.
    pub(crate) result: Option<String>,
    pub(crate) remaining: Option<String>,
    /// Is it noted as a child of its parent, if it has one?
    pub(crate) parent_knows: bool,
    /// How many dead letters name it.
    pub(crate) letters: u64,
    /// For a job that took over from a letter: what that letter says, if it is there.
    pub(crate) came_from: Option<CameFrom>,
    /// Can retention have taken that letter?
    pub(crate) origin_forgotten: bool,
}

/// What a row says of its lease. Both are set, or none.
pub(crate) struct LeaseColumns {
    pub(crate) session: Option<i64>,
    pub(crate) beat_at: Option<Timestamp>,
}

/// What the letter says that a job came from.
pub(crate) struct CameFrom {
    pub(crate) tenant: String,
    pub(crate) requeued_as: Option<JobId>,
}

/// The attempts that one job made of a task.
pub(crate) struct Run {
    pub(crate) job: JobId,
    pub(crate) tenant: TenantId,
    pub(crate) task: String,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) ended: bool,
    /// What the task's own row says comes next.
    pub(crate) next_attempt: Option<i64>,
}

/// Where an idempotency key stands.
#[derive(PartialEq, Eq)]
pub(crate) struct KeyName {
    pub(crate) tenant: String,
    pub(crate) scope: String,
    pub(crate) key: Vec<u8>,
}

/// A dead letter's row, with everything it names.
pub(crate) struct LetterRow {
    pub(crate) id: DlqId,
    pub(crate) tenant: String,
    pub(crate) job_id: JobId,
    pub(crate) state: Option<LetterState>,
    pub(crate) code: String,
    pub(crate) created_at: Timestamp,
    pub(crate) requeued_as: Option<JobId>,
    pub(crate) closed_at: Option<Timestamp>,
    pub(crate) letter: DeadLetter,
    /// The job that failed, if it is there.
    pub(crate) job: Option<Job>,
    /// The job that took over, if it is there.
    pub(crate) heir: Option<Job>,
    /// Can retention have taken the job that took over?
    pub(crate) heir_forgotten: bool,
    pub(crate) approvals: Vec<Approval>,
}
