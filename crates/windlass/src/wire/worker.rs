//! Workers.

use serde::{Deserialize, Serialize};
use windlass_kernel::{Kind, Queue, Refusal, Timestamp};
use windlass_store::read::SessionView;

use super::job::own_name;

/// A worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerDocument {
    /// Its name, as its events have it.
    pub worker_id: String,
    /// When the last of its leases runs out; none, if it never had one.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub leased_until: Option<Timestamp>,
    /// How often it kept its leases.
    pub renewals: u64,
    /// How many jobs it holds.
    pub held: u64,
    /// The queues that it listens to; none, if it is not there any more.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub queues: Vec<Queue>,
    /// The kinds that it runs; all, if none is named.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub kinds: Vec<Kind>,
}

impl WorkerDocument {
    /// About how long it is in an answer.
    pub fn bytes(&self) -> usize {
        let queues = self.queues.iter().map(|queue| queue.as_str().len() + 3);
        let kinds = self.kinds.iter().map(|kind| kind.as_str().len() + 3);
        200 + queues.sum::<usize>() + kinds.sum::<usize>()
    }

    /// The session of the worker; none, if it never had a lease.
    pub fn into_view(self) -> Option<Result<SessionView, Refusal>> {
        let Self { worker_id, leased_until, renewals, held, .. } = self;
        let lapses_at = leased_until?;
        let view = |worker| SessionView { worker, lapses_at, renewals, held };
        Some(own_name(&worker_id).map(view))
    }
}
