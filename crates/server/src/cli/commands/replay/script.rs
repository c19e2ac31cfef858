//! What each replay is: what happens, and what must then be seen.

/// One replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(super) name: &'static str,
    /// What it is about.
    pub(super) about: &'static str,
    /// How often a worker fails before it succeeds, if it does.
    pub(super) fails: u32,
    /// Does it succeed in the end?
    pub(super) succeeds: bool,
    /// Is something then tried that would change its end?
    pub(super) is_written_again: bool,
    /// The states that must be seen, in the words of the contract.
    pub(super) path: &'static [&'static str],
    /// The retries that must be counted.
    pub(super) retry_count: u64,
}

/// What a write to an end must be refused with.
pub(super) const REFUSED: &str = "WF_STATE_TRANSITION_INVALID";

pub(super) static SCRIPTS: [Script; 5] = [
    Script {
        name: "RP-001",
        about: "a worker takes a queued job, and the job succeeds",
        fails: 0,
        succeeds: true,
        is_written_again: false,
        path: &["queued", "running", "succeeded"],
        retry_count: 0,
    },
    Script {
        name: "RP-002",
        about: "a transient error, then success",
        fails: 1,
        succeeds: true,
        is_written_again: false,
        path: &["queued", "running", "retrying", "running", "succeeded"],
        retry_count: 1,
    },
    Script {
        name: "RP-003",
        about: "three transient errors, then success",
        fails: 3,
        succeeds: true,
        is_written_again: false,
        path: &[
            "queued",
            "running",
            "retrying",
            "running",
            "retrying",
            "running",
            "retrying",
            "running",
            "succeeded",
        ],
        retry_count: 3,
    },
    Script {
        name: "RP-004",
        about: "a fourth transient error leads to the dead letters",
        fails: 4,
        succeeds: false,
        is_written_again: false,
        path: &[
            "queued",
            "running",
            "retrying",
            "running",
            "retrying",
            "running",
            "retrying",
            "running",
            "dlq_pending",
            "dlq_recorded",
            "failed",
        ],
        retry_count: 3,
    },
    Script {
        name: "RP-005",
        about: "an end that is written again stays as it is",
        fails: 0,
        succeeds: true,
        is_written_again: true,
        path: &["queued", "running", "succeeded"],
        retry_count: 0,
    },
];
