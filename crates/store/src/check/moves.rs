//! The legal moves, written a second time from the design and not from the kernel.

use windlass_kernel::{
    Cause,
    State::{self, *},
};

/// States with nothing after them.
pub(super) const ENDS: &[State] = &[Succeeded, Partial, Failed, Cancelled];

/// States in which a worker holds the job.
pub(super) const LEASED: &[State] = &[Dispatched, Running];

/// From which states, why, and where to.
const MOVES: &[(&[State], &[&str], State)] = &[
    (&[Scheduled], &["due", "run_now"], Queued),
    (&[Queued], &["worker_claim"], Dispatched),
    (&[RetryScheduled], &["retry_due"], Dispatched),
    (&[Interrupted], &["recovery_resume"], Dispatched),
    (&[Dispatched], &["started"], Running),
    (&[Dispatched], &["released", "lease_expired", "process_restart"], Queued),
    (&[Running], &["completed"], Succeeded),
    (&[Running], &["completed_in_part"], Partial),
    (&[Running], &["job_waiting"], Waiting),
    (&[Waiting], &["wait_completed"], Queued),
    (&[Running], &["retryable_error", "timeout", "heartbeat_timeout"], RetryScheduled),
    (&[Running], &["lease_expired", "process_restart", "shutdown"], Interrupted),
    (&[Running], &["non_retryable_error", "retries_exhausted"], DlqPending),
    (&[Interrupted], &["recovery_abort"], DlqPending),
    (&[Running, Interrupted, Waiting], &["deadline_passed", "operator_gave_up"], DlqPending),
    (&[DlqPending], &["dlq_written"], DlqRecorded),
    (&[DlqRecorded], &["dlq_closed"], Failed),
    (
        &[Scheduled, Queued, Dispatched, Running, Waiting, RetryScheduled, Interrupted],
        &["cancel_command"],
        Cancelled,
    ),
    (&[Scheduled, Queued, Dispatched, RetryScheduled], &["deadline_passed"], Cancelled),
    (&[Queued, Dispatched], &["schedule_to_start_timeout"], Cancelled),
];

/// What may be noted in a state without leaving it.
const NOTES: &[(State, &str)] = &[
    (Running, "cancel_requested"),
    (Waiting, "cancel_requested"),
    (Running, "checkpoint"),
    (Running, "tool_invocation_started"),
    (Running, "retryable_failure"),
    (Running, "tool_invocation_finished"),
    (Running, "command_committed"),
    (Waiting, "tool_invocation_finished"),
    (Waiting, "command_committed"),
    (Waiting, "step_resolved"),
    (Scheduled, "signal_received"),
    (Queued, "signal_received"),
    (Dispatched, "signal_received"),
    (Running, "signal_received"),
    (Waiting, "signal_received"),
    (RetryScheduled, "signal_received"),
    (Interrupted, "signal_received"),
    (RetryScheduled, "retry_now"),
];

/// How a job may come to be.
const BIRTHS: &[(&str, State)] = &[("enqueued", Queued), ("scheduled", Scheduled)];

/// May a job move like that?
pub(super) fn is_legal(from: Option<State>, why: Cause, to: State) -> bool {
    let why = why.as_str();
    match from {
        None => BIRTHS.contains(&(why, to)),
        Some(state) if state == to => NOTES.contains(&(state, why)),
        Some(state) => MOVES.iter().any(|(from, causes, into)| {
            from.contains(&state) && causes.contains(&why) && *into == to
        }),
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::machine;

    use super::*;

    #[test]
    fn both_tables_allow_the_same() {
        let states = || State::ALL.iter().copied();
        for from in states().map(Some).chain([None]) {
            for why in Cause::ALL {
                for to in states() {
                    let kernel = machine::target(from, *why) == Some(to);
                    assert_eq!(is_legal(from, *why, to), kernel, "{from:?} {why} {to}");
                }
            }
        }
    }
}
