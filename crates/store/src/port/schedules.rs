//! Reads of schedules.

use windlass_kernel::{Schedule, ScheduleName, TenantId};

use crate::{StoreFuture, read::FeedEvent};

/// Reads schedules, and what was noted about them.
pub trait ReadSchedules: Send + Sync {
    /// A schedule as it stands.
    fn schedule(&self, tenant: &TenantId, name: &ScheduleName)
    -> StoreFuture<'_, Option<Schedule>>;

    /// The schedules of a tenant by name, after this one, so many at the most.
    fn schedules(
        &self,
        tenant: &TenantId,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Schedule>>;

    /// What was noted about a schedule before an event, newest first, so many at the most.
    fn schedule_history(
        &self,
        tenant: &TenantId,
        name: &ScheduleName,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Vec<FeedEvent>>;
}
