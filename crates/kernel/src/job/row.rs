//! A job: one unit of work, with one life cycle.
//!
//! It has two halves. [`Spec`] is what was asked for and never changes. The rest is where the job stands,
//! and changes only by events. A [`Lease`] is not history: who holds the job now, and until when.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Actor, Cause, Digest, DlqId, Epoch, Failure, IdempotencyKey, IdempotencyScope, JobId, Kind,
    Lane, LimitKey, Queue, RetryPolicy, State, Tag, TaskId, TenantId, Timestamp, TraceId,
    UniqueKey, WorkerId,
    ids::{Channel, ClaimId, CorrelationKey, StepKey},
    ledger::{LedgerHead, MailName},
    machine::words,
};

/// What was asked for. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Who it belongs to.
    pub tenant: TenantId,
    /// What it is a run of.
    pub task_id: TaskId,
    /// Was the task named by the caller? Then its row outlives this job.
    pub task_given: bool,
    /// Which handler it needs.
    pub kind: Kind,
    /// Where it waits.
    pub queue: Queue,
    /// How urgent it is.
    pub priority: Priority,
    /// How it came to have its time.
    pub schedule_type: ScheduleType,
    /// The time that was asked for, if one was.
    pub scheduled_at: Option<Timestamp>,
    /// When it may first be claimed.
    pub due_at: Timestamp,
    /// How long one execution may take, from start to settle.
    #[serde(rename = "timeout_ms", with = "crate::time::duration_ms_option")]
    pub timeout: Option<Duration>,
    /// How long a handler may be silent.
    #[serde(rename = "heartbeat_timeout_ms", with = "crate::time::duration_ms_option")]
    pub heartbeat_timeout: Option<Duration>,
    /// How long it may wait for its first start.
    #[serde(rename = "schedule_to_start_ms", with = "crate::time::duration_ms_option")]
    pub schedule_to_start: Option<Duration>,
    /// When it has to be at an end, whatever happens.
    pub deadline_at: Option<Timestamp>,
    /// How many times it is tried again.
    pub max_retries: u32,
    /// How long it waits in between.
    pub retry: RetryPolicy,
    /// The interruption at which recovery gives up.
    pub max_interruptions: u32,
    /// Where its key is unique.
    pub idempotency_scope: IdempotencyScope,
    /// The name of the request that made it.
    pub idempotency_key: IdempotencyKey,
    /// The digest of its payload.
    pub payload_digest: Digest,
    /// What it has in common with others: limits and turns can be by key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<LimitKey>,
    /// What no other job of its tenant that is not at its end has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<UniqueKey>,
    /// Labels for filters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// The job that waits for its end, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// Where it came from.
    pub origin: Origin,
    /// When it was created.
    pub created_at: Timestamp,
}

impl Spec {
    /// Its place among the jobs that can be claimed: see [`Rank`].
    pub fn rank(&self) -> Rank {
        Rank::new(self.due_at, self.priority)
    }

    /// Where it waits beside others: with those that have its key.
    pub fn lane(&self) -> Lane {
        self.limit_key.as_ref().map_or(Lane::NONE, |key| Lane::of(&self.tenant, key))
    }
}

/// Where a job came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Someone enqueued it.
    Enqueued,
    /// It was made from a dead letter.
    Requeued(DlqId),
    /// It runs the task of an earlier job again.
    Rerun(JobId),
}

words!(
    /// How a job came to have its time.
    ScheduleType {
        /// Created directly, for now or for a time.
        At = "at",
        /// Fired by a cron schedule.
        Cron = "cron",
        /// Fired by an interval.
        Every = "every",
    }
);

/// How urgent a job is: smaller is sooner, 0 is usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(pub i16);

impl Priority {
    /// The largest value either side of 0.
    pub const MAX: i16 = 1_000;

    /// The priority of a job that was due then and has this rank; none if no priority gives it.
    pub fn of_rank(rank: Rank, due_at: Timestamp) -> Option<Self> {
        let waits = rank.0.checked_sub(due_at.as_micros())?;
        let priority = Self(i16::try_from(waits / Rank::STEP).ok()?);
        (Rank::new(due_at, priority) == rank).then_some(priority)
    }
}

/// A job's place among those that can be claimed: smaller is first.
///
/// It is the due time, moved by [`Rank::AGEING`] for each step of priority. It never changes, so ageing
/// costs nothing: whatever waits, waits its way to the front, and nothing starves. A job that was woken
/// or interrupted keeps its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub i64);

impl Rank {
    /// How much waiting one step of priority is worth.
    pub const AGEING: Duration = Duration::from_secs(60);

    /// The same in microseconds.
    const STEP: i64 = 60_000_000;

    /// The rank of a job that is due at `due_at`.
    pub fn new(due_at: Timestamp, priority: Priority) -> Self {
        Self(due_at.as_micros() + i64::from(priority.0) * Self::STEP)
    }
}

/// A job and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id, for its whole life.
    pub id: JobId,
    /// What was asked for.
    pub spec: Arc<Spec>,
    /// Where it is in its life.
    pub state: State,
    /// The number of its last event. It grows with every change that is history.
    pub version: u64,
    /// Which execution of its task this is.
    pub attempt: u32,
    /// Retries used so far.
    pub retry_count: u32,
    /// The last epoch granted.
    pub epoch: Epoch,
    /// The claim that granted it.
    pub claim_id: Option<ClaimId>,
    /// Interruptions since the last progress.
    pub interruptions: u32,
    /// When it first started.
    pub started_at: Option<Timestamp>,
    /// When its current attempt first started.
    pub attempt_started_at: Option<Timestamp>,
    /// When its current execution started.
    pub execution_started_at: Option<Timestamp>,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it came to its end.
    pub finished_at: Option<Timestamp>,
    /// When its retry is due. Set if and only if it is `retry_scheduled`.
    pub next_retry_at: Option<Timestamp>,
    /// What it waits for. Set if and only if it is `waiting`.
    pub wait: Option<Wait>,
    /// How its last wait ended.
    pub woken: Option<Wakeup>,
    /// Someone asked to cancel it.
    pub cancel: Option<CancelRequest>,
    /// Its last failure.
    pub error: Option<Failure>,
    /// Why it is at its end.
    pub ended_by: Option<Cause>,
    /// Its own dead letter. Set if and only if it is `failed`.
    pub dlq_id: Option<DlqId>,
    /// The digest of its result.
    pub result: Option<Digest>,
    /// The digest of what is left to do.
    pub remaining: Option<Digest>,
    /// The last settles, so that the same settle again gets the same answer.
    pub settles: Vec<Settled>,
    /// Who holds it now. Set if and only if it is `dispatched` or `running`.
    pub lease: Option<Lease>,
    /// Claims and renewals over its whole life.
    pub lease_count: u64,
    /// How much stands in its ledger.
    pub ledger: LedgerHead,
}

impl Job {
    /// From this many interruptions on, a job is claimed alone: it may be what kills its worker.
    pub const ISOLATED_FROM: u32 = 2;
    /// How many settles a job remembers.
    pub const SETTLES_KEPT: usize = 16;

    /// Does a live lease of this epoch exist? Only its holder may write.
    pub fn has_live_lease(&self, epoch: Epoch) -> bool {
        self.lease.is_some() && self.epoch == epoch
    }

    /// Had it ever started?
    pub fn has_started(&self) -> bool {
        self.started_at.is_some()
    }

    /// When it can be claimed; never, if only something else can move it.
    pub fn claim_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Queued | State::Interrupted => Some(self.updated_at),
            State::RetryScheduled => self.next_retry_at,
            State::Scheduled
            | State::Dispatched
            | State::Running
            | State::Waiting
            | State::DlqPending
            | State::DlqRecorded
            | State::Succeeded
            | State::Partial
            | State::Failed
            | State::Cancelled => None,
        }
    }

    /// Must it be claimed alone, so that it buries no neighbour?
    pub fn is_isolated(&self) -> bool {
        self.interruptions >= Self::ISOLATED_FROM
    }

    /// The name of the current grant: `<job_id>:<epoch>`.
    pub fn attempt_id(&self) -> String {
        format!("{}:{}", self.id, self.epoch)
    }

    /// The key of the current try for systems downstream: `<job_id>+<retry_count>`.
    pub fn execution_key(&self) -> String {
        format!("{}+{}", self.id, self.retry_count)
    }

    /// Did a settle of this epoch bring the job to its end?
    pub fn was_settled_for_good_by(&self, epoch: Epoch) -> bool {
        let last = self.settles.last();
        self.state.is_end() && last.is_some_and(|last| last.epoch == epoch && last.state.is_end())
    }

    /// What a settle of this identity was told.
    pub fn recorded_settle(&self, epoch: Epoch, digest: Digest) -> Option<&Settled> {
        self.settles.iter().find(|settled| (settled.epoch, settled.digest) == (epoch, digest))
    }
}

/// Who holds a job, and until when. Not history: a renewal writes no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The worker session that holds it.
    pub worker: WorkerId,
    /// When it runs out. Time alone does not end a lease: someone has to expire it.
    pub until: Timestamp,
    /// Was it granted alone?
    pub alone: bool,
    /// When the handler last gave a sign of life.
    pub beat_at: Timestamp,
}

/// A worker's session: one row whose renewal renews all its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id, fresh at each start of the process.
    pub worker: WorkerId,
    /// When all its leases run out.
    pub until: Timestamp,
    /// How often it was renewed.
    pub renewals: u64,
}

impl Session {
    /// The session after a renewal. Its end never moves back.
    pub fn renewed(&self, lease: Duration, now: Timestamp) -> Session {
        Session {
            worker: self.worker.clone(),
            until: self.until.max(now.plus(lease)),
            renewals: self.renewals + 1,
        }
    }
}

/// A request to cancel that the handler may still answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// Who asked.
    pub by: Actor,
    /// In their words.
    pub reason: Option<String>,
    /// When it is cancelled all the same.
    pub grace_until: Timestamp,
}

/// What a waiting job waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// What ends the wait.
    pub on: WaitOn,
    /// When the wait is over in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What ends a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitOn {
    /// A signal with this key.
    Signal(CorrelationKey),
    /// The time alone.
    Time,
    /// The end of a child.
    Child(JobId),
    /// The next message of a channel.
    Message(Channel),
    /// Any of these.
    Any(Vec<WaitOn>),
    /// A person, who has to state something or let the job go on.
    Operator {
        /// Why, as a code.
        code: String,
        /// The step in question, if its result is to be stated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StepKey>,
        /// The same for people.
        message: String,
    },
}

words!(
    /// How a wait ended.
    Wakeup {
        /// Its signal came.
        Signal = "signal",
        /// Its time came.
        Time = "time",
        /// Its child came to an end.
        Child = "child",
        /// What it waited for did not come in time.
        TimedOut = "timed_out",
        /// It was woken to clean up, for it is to be cancelled.
        Cancelled = "cancelled",
        /// A message came.
        Message = "message",
        /// A person let it go on.
        Operator = "operator",
    }
);

impl WaitOn {
    /// The mail that ends it, as far as its names are known: the next message of a channel has none yet.
    pub fn mails(&self) -> Vec<MailName> {
        match self {
            WaitOn::Signal(key) => vec![MailName::Signal(key.clone())],
            WaitOn::Child(child) => vec![MailName::Child(*child)],
            WaitOn::Any(all) => all.iter().flat_map(WaitOn::mails).collect(),
            WaitOn::Time | WaitOn::Message(_) | WaitOn::Operator { .. } => Vec::new(),
        }
    }

    /// Is it a wait for messages?
    pub fn has_message(&self) -> bool {
        match self {
            WaitOn::Message(_) => true,
            WaitOn::Any(all) => all.iter().any(WaitOn::has_message),
            WaitOn::Signal(_) | WaitOn::Child(_) | WaitOn::Time => false,
            WaitOn::Operator { .. } => false,
        }
    }

    /// Is the time alone one of the things that end it?
    pub fn has_time(&self) -> bool {
        match self {
            WaitOn::Time => true,
            WaitOn::Any(all) => all.iter().any(WaitOn::has_time),
            WaitOn::Signal(_) | WaitOn::Child(_) | WaitOn::Message(_) => false,
            WaitOn::Operator { .. } => false,
        }
    }
}

impl fmt::Display for WaitOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitOn::Signal(key) => write!(f, "signal {key}"),
            WaitOn::Time => f.write_str("time"),
            WaitOn::Child(job_id) => write!(f, "child {job_id}"),
            WaitOn::Message(channel) => write!(f, "message {channel}"),
            WaitOn::Any(all) => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&all.join(" or "))
            }
            WaitOn::Operator { code, step: Some(step), .. } => {
                write!(f, "operator {code} at {step}")
            }
            WaitOn::Operator { code, step: None, .. } => write!(f, "operator {code}"),
        }
    }
}

/// The answer that a settle got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Who settled.
    pub epoch: Epoch,
    /// What it said.
    pub digest: Digest,
    /// Where the job went.
    pub state: State,
    /// When its retry is due, if one is.
    pub next_retry_at: Option<Timestamp>,
}

/// What is known of a task whose id was given: its row outlives its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Who it belongs to.
    pub tenant: TenantId,
    /// Its id.
    pub task_id: TaskId,
    /// The attempt that its next run begins with.
    pub next_attempt: u32,
    /// Its job that is not at an end, if there is one.
    pub active: Option<JobId>,
    /// Its last job, if that failed.
    pub failed: Option<JobId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_tells_its_priority_and_no_other_number_does() {
        assert_eq!(u128::try_from(Rank::STEP).unwrap(), Rank::AGEING.as_micros());
        let due_at = Timestamp::from_micros(1_000_007);
        for priority in [-1_000, -1, 0, 1, 1_000].map(Priority) {
            let rank = Rank::new(due_at, priority);
            assert_eq!(Priority::of_rank(rank, due_at), Some(priority));
            assert_eq!(Priority::of_rank(Rank(rank.0 + 1), due_at), None);
        }
        assert_eq!(Priority::of_rank(Rank(i64::MIN), due_at), None);
    }

    #[test]
    fn a_session_is_renewed_and_counted_and_never_ends_earlier() {
        let worker = WorkerId::new("w1").unwrap();
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let session = Session { worker, until: at(60), renewals: 2 };
        let longer = session.renewed(Duration::from_secs(30), at(40));
        assert_eq!((longer.until, longer.renewals), (at(70), 3));
        let same = session.renewed(Duration::from_secs(5), at(40));
        assert_eq!((same.until, same.renewals), (at(60), 3));
    }
}
