//! Queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_kernel::{State, Timestamp};

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueDocument {
    /// Its name.
    pub queue: String,
    /// How many jobs there are in each state.
    pub counts: BTreeMap<String, u64>,
    /// Since when the job waits that has been ready for longest.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub oldest_ready_at: Option<Timestamp>,
    /// Is nothing started?
    pub paused: bool,
    /// Is nothing new taken in?
    pub draining: bool,
}

/// Queues by name, or a part of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queues {
    /// The queues.
    pub items: Vec<QueueDocument>,
    /// Where the next part begins: send it as `cursor`. Null at the end.
    pub next: Option<String>,
    /// When their jobs were counted: of a million, not with each call.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub counted_at: Timestamp,
}

impl QueueDocument {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.queue
    }

    /// How many of its jobs are not at an end.
    pub fn open(&self) -> u64 {
        let is_open = |state: &str| State::parse(state).is_some_and(|state| !state.is_end());
        self.counts.iter().filter(|(state, _)| is_open(state)).map(|(_, count)| count).sum()
    }
}
