//! The job machine: the states of a job and the table of its legal moves.
//!
//! [`MOVES`] is the only list of moves. An op names a cause; the table says where that cause leads from
//! the job's state, or that it leads nowhere. The diagram and table in `docs/states.md`, the exhaustive
//! test and the walk through the contracts are all made from it.
//!
//! Always true: one cause leads from one state to one state, and nothing leads out of an end.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A word list: an enum whose variants have one spelling everywhere, and one sentence each.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $(#[doc = $meaning:literal] $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $(#[doc = $meaning] #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// All of them, in the order of the definition.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The word that rows, documents and people see.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word),*
                }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $($name::$variant => $meaning.trim_ascii()),*
                }
            }

            /// Reads the word back.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words!(
    /// Where a job is in its life.
    State {
        /// Created with a time in the future.
        Scheduled = "scheduled",
        /// Due: a worker may claim it.
        Queued = "queued",
        /// Claimed: a worker holds a lease and has not started.
        Dispatched = "dispatched",
        /// Started: the handler runs.
        Running = "running",
        /// Parked on a signal, a time or a child. Holds no lease.
        Waiting = "waiting",
        /// Failed, and will be tried again at `next_retry_at`.
        RetryScheduled = "retry_scheduled",
        /// Lost its worker; any worker may resume it.
        Interrupted = "interrupted",
        /// On its way to the dead letters. Seen only inside one transaction.
        DlqPending = "dlq_pending",
        /// Its dead letter is written. Seen only inside one transaction.
        DlqRecorded = "dlq_recorded",
        /// End: done.
        Succeeded = "succeeded",
        /// End: done in part; what is left is described.
        Partial = "partial",
        /// End: given up, with a dead letter.
        Failed = "failed",
        /// End: cancelled.
        Cancelled = "cancelled",
    }
);

impl State {
    /// Does nothing follow it?
    pub const fn is_end(self) -> bool {
        matches!(self, State::Succeeded | State::Partial | State::Failed | State::Cancelled)
    }

    /// Does a job in this state hold a lease?
    pub const fn is_leased(self) -> bool {
        matches!(self, State::Dispatched | State::Running)
    }

    /// Can a job be in this state and have started (or not) at some time before?
    pub const fn allows_started(self, started: bool) -> bool {
        match self {
            State::Scheduled => !started,
            State::Queued | State::Dispatched | State::Cancelled => true,
            State::Running
            | State::Waiting
            | State::RetryScheduled
            | State::Interrupted
            | State::DlqPending
            | State::DlqRecorded
            | State::Succeeded
            | State::Partial
            | State::Failed => started,
        }
    }
}

words!(
    /// Why a job moved, in the words that its events use.
    Cause {
        /// Created, due now.
        Enqueued = "enqueued",
        /// Created, due later.
        Scheduled = "scheduled",
        /// Its time came.
        Due = "due",
        /// Someone made it due before its time.
        RunNow = "run_now",
        /// A worker claimed it.
        WorkerClaim = "worker_claim",
        /// A worker claimed it, for its retry was due.
        RetryDue = "retry_due",
        /// A worker claimed it to resume after an interruption.
        RecoveryResume = "recovery_resume",
        /// The handler began.
        Started = "started",
        /// The worker gave it back before it started.
        Released = "released",
        /// Nobody renewed the lease.
        LeaseExpired = "lease_expired",
        /// The worker's process is known to be dead.
        ProcessRestart = "process_restart",
        /// The worker shut down in good order.
        Shutdown = "shutdown",
        /// The handler succeeded.
        Completed = "completed",
        /// The handler did a part, and says what is left.
        CompletedInPart = "completed_in_part",
        /// The handler parked it on a signal, a time or a child.
        JobWaiting = "job_waiting",
        /// Its wait is over: what it waited for came, or did not come in time, or it is to be cancelled.
        WaitCompleted = "wait_completed",
        /// It failed, and trying again may help.
        RetryableError = "retryable_error",
        /// It ran longer than its time-out.
        Timeout = "timeout",
        /// Its handler gave no sign of life in time.
        HeartbeatTimeout = "heartbeat_timeout",
        /// It failed, and trying again will not help.
        NonRetryableError = "non_retryable_error",
        /// It failed, and no retry is left.
        RetriesExhausted = "retries_exhausted",
        /// It was interrupted too often.
        RecoveryAbort = "recovery_abort",
        /// Its deadline passed.
        DeadlinePassed = "deadline_passed",
        /// A person gave up on it.
        OperatorGaveUp = "operator_gave_up",
        /// Its dead letter was written.
        DlqWritten = "dlq_written",
        /// The dead-letter path is complete.
        DlqClosed = "dlq_closed",
        /// Someone cancelled it.
        CancelCommand = "cancel_command",
        /// It did not start in time.
        ScheduleToStartTimeout = "schedule_to_start_timeout",
        /// Note: someone asked to cancel it.
        CancelRequested = "cancel_requested",
        /// Note: someone made its retry due now.
        RetryNow = "retry_now",
        /// Note: the handler saved its progress.
        Checkpoint = "checkpoint",
        /// Note: a step of the handler began.
        StepBegun = "tool_invocation_started",
        /// Note: a try of a step failed, and another one may follow.
        StepTryFailed = "retryable_failure",
        /// Note: a step of the handler ended.
        StepFinished = "tool_invocation_finished",
        /// Note: what came of a step is on record.
        StepCommitted = "command_committed",
        /// Note: a signal, a message or the end of a child came.
        SignalReceived = "signal_received",
        /// Note: a person stated what became of a step, or let a parked job go on.
        StepResolved = "step_resolved",
    }
);

/// One legal move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The state it leaves; none for a new job.
    pub from: Option<State>,
    /// Why it moves.
    pub cause: Cause,
    /// The state it enters.
    pub to: State,
}

macro_rules! moves {
    ($([$($from:ident)*] $cause:ident => $to:ident;)*) => {
        &[$($(Move { from: moves!(@ $from), cause: Cause::$cause, to: State::$to },)*)*]
    };
    (@ New) => { None };
    (@ $from:ident) => { Some(State::$from) };
}

/// Every legal move of a job.
pub const MOVES: &[Move] = moves! {
    [New] Enqueued => Queued;
    [New] Scheduled => Scheduled;
    [Scheduled] Due => Queued;
    [Scheduled] RunNow => Queued;

    [Queued] WorkerClaim => Dispatched;
    [RetryScheduled] RetryDue => Dispatched;
    [Interrupted] RecoveryResume => Dispatched;
    [Dispatched] Started => Running;
    [Dispatched] Released => Queued;
    [Dispatched] LeaseExpired => Queued;
    [Dispatched] ProcessRestart => Queued;

    [Running] Completed => Succeeded;
    [Running] CompletedInPart => Partial;

    [Running] JobWaiting => Waiting;
    [Waiting] WaitCompleted => Queued;

    [Running] RetryableError => RetryScheduled;
    [Running] Timeout => RetryScheduled;
    [Running] HeartbeatTimeout => RetryScheduled;

    [Running] LeaseExpired => Interrupted;
    [Running] ProcessRestart => Interrupted;
    [Running] Shutdown => Interrupted;

    [Running] NonRetryableError => DlqPending;
    [Running] RetriesExhausted => DlqPending;
    [Interrupted] RecoveryAbort => DlqPending;
    [Running Interrupted Waiting] DeadlinePassed => DlqPending;
    [Running Interrupted Waiting] OperatorGaveUp => DlqPending;
    [DlqPending] DlqWritten => DlqRecorded;
    [DlqRecorded] DlqClosed => Failed;

    [Scheduled Queued Dispatched Running Waiting RetryScheduled Interrupted] CancelCommand => Cancelled;
    [Scheduled Queued Dispatched RetryScheduled] DeadlinePassed => Cancelled;
    [Queued Dispatched] ScheduleToStartTimeout => Cancelled;
};

/// What may be noted in which state: an event that moves nothing.
pub const NOTES: &[(State, Cause)] = &[
    (State::Running, Cause::CancelRequested),
    (State::Waiting, Cause::CancelRequested),
    (State::RetryScheduled, Cause::RetryNow),
    (State::Running, Cause::Checkpoint),
    (State::Running, Cause::StepBegun),
    (State::Running, Cause::StepTryFailed),
    (State::Running, Cause::StepFinished),
    (State::Running, Cause::StepCommitted),
    (State::Waiting, Cause::StepFinished),
    (State::Waiting, Cause::StepCommitted),
    (State::Waiting, Cause::StepResolved),
    (State::Scheduled, Cause::SignalReceived),
    (State::Queued, Cause::SignalReceived),
    (State::Dispatched, Cause::SignalReceived),
    (State::Running, Cause::SignalReceived),
    (State::Waiting, Cause::SignalReceived),
    (State::RetryScheduled, Cause::SignalReceived),
    (State::Interrupted, Cause::SignalReceived),
];

/// Where `cause` leads from `from`; nowhere, if that is not legal. A note leads to the same state.
pub fn target(from: Option<State>, cause: Cause) -> Option<State> {
    let by_move = MOVES.iter().find(|m| m.from == from && m.cause == cause).map(|m| m.to);
    by_move.or_else(|| from.filter(|state| NOTES.contains(&(*state, cause))))
}

/// The machine as a Mermaid diagram.
pub fn diagram() -> String {
    let name = |state: Option<State>| state.map_or("[*]", State::as_str);
    let mut text = String::from("stateDiagram-v2\n");
    for (place, step) in MOVES.iter().enumerate() {
        let same = |other: &&Move| (other.from, other.to) == (step.from, step.to);
        if MOVES[..place].iter().any(|other| same(&other)) {
            continue;
        }
        let causes: Vec<&str> = MOVES.iter().filter(same).map(|m| m.cause.as_str()).collect();
        let arrow = format!("{} --> {}", name(step.from), name(Some(step.to)));
        text.push_str(&format!("    {arrow}: {}\n", causes.join(", ")));
    }
    for state in State::ALL.iter().filter(|state| state.is_end()) {
        text.push_str(&format!("    {state} --> [*]\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_cause_leads_from_a_state_to_one_state() {
        for (place, step) in MOVES.iter().enumerate() {
            let twin = MOVES[..place].iter().find(|m| (m.from, m.cause) == (step.from, step.cause));
            assert_eq!(twin, None, "{step:?} is ambiguous");
            assert_eq!(target(step.from, step.cause), Some(step.to));
        }
    }

    #[test]
    fn nothing_leads_out_of_an_end() {
        for state in State::ALL.iter().filter(|state| state.is_end()) {
            for cause in Cause::ALL {
                assert_eq!(target(Some(*state), *cause), None, "{cause} leads out of {state}");
            }
        }
    }

    #[test]
    fn failed_comes_only_after_dlq_recorded() {
        let into_failed: Vec<_> = MOVES.iter().filter(|m| m.to == State::Failed).collect();
        assert_eq!(into_failed.len(), 1);
        assert_eq!(into_failed[0].from, Some(State::DlqRecorded));
    }

    #[test]
    fn every_state_and_every_cause_is_used() {
        let states: BTreeSet<State> = MOVES.iter().map(|m| m.to).collect();
        assert_eq!(states.len(), State::ALL.len());
        let notes = NOTES.iter().map(|(_, cause)| *cause);
        let causes: BTreeSet<Cause> = MOVES.iter().map(|m| m.cause).chain(notes).collect();
        assert_eq!(causes.len(), Cause::ALL.len());
    }

    #[test]
    fn a_state_that_is_no_end_has_a_way_out() {
        for state in State::ALL.iter().filter(|state| !state.is_end()) {
            assert!(MOVES.iter().any(|m| m.from == Some(*state)), "{state} is a trap");
        }
    }

    #[test]
    fn a_note_keeps_the_state() {
        assert_eq!(target(Some(State::Running), Cause::CancelRequested), Some(State::Running));
        assert_eq!(target(Some(State::Queued), Cause::CancelRequested), None);
        assert_eq!(target(None, Cause::CancelRequested), None);
    }

    #[test]
    fn the_diagram_has_each_arrow_once_with_all_its_causes() {
        let diagram = diagram();
        assert!(diagram.starts_with("stateDiagram-v2\n    [*] --> queued: enqueued\n"));
        assert!(
            diagram.contains(
                "    running --> interrupted: lease_expired, process_restart, shutdown\n"
            )
        );
        assert!(diagram.ends_with("    failed --> [*]\n    cancelled --> [*]\n"));
        let arrows: BTreeSet<_> = MOVES.iter().map(|m| (m.from, m.to)).collect();
        assert_eq!(diagram.lines().count(), 1 + arrows.len() + 4);
    }

    #[test]
    fn words_read_back_as_they_are_written() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(*state));
            assert_eq!(serde_json::to_string(state).unwrap(), format!("\"{state}\""));
        }
        assert_eq!(State::parse("Running"), None);
    }

    #[test]
    fn a_move_never_forgets_that_the_job_started() {
        for step in MOVES {
            for before in [false, true] {
                if step.from.is_some_and(|from| !from.allows_started(before)) {
                    continue;
                }
                let after = before || step.cause == Cause::Started;
                let fits = step.from.is_none() || step.to.allows_started(after);
                assert!(fits, "{step:?} with started {before}");
            }
        }
    }
}
