//! What has to be looked after: what time brings, what follows for other jobs, and which workers live.

use windlass_kernel::{JobId, TenantId, WorkerId};

use crate::{
    ClockStanding, Listener, StoreFuture,
    read::{Due, StoredFollowUp},
};

/// Looks after what time brings, what follows for other jobs, and which workers live.
pub trait Watch: Send + Sync {
    /// Rings whenever something has to be looked after earlier than the last [`Watch::due`] said: an alarm or a
    /// retry was set, or something follows for another job. Other nodes tell those who wait there. Whoever listens
    /// before its first look, and looks each time it rings, misses nothing that is committed here.
    fn sooner(&self) -> Listener;

    /// What time has brought, in batches: jobs whose alarm rings and schedules whose slot has come, at most `max` of
    /// each, and when to look again. Of alarms
    /// of jobs and of leases that have run out, neither waits until there are no more of the other.
    fn due(&self, max: usize) -> StoreFuture<'_, Due>;

    /// What follows for other jobs and is not carried out yet, oldest first. [`Write::FollowUpDone`](crate::Write::FollowUpDone) says that it
    /// is.
    fn follow_ups(&self, max: usize) -> StoreFuture<'_, Vec<StoredFollowUp>>;

    /// Children of a job that are not at their end, at most `max`, after this one in the order in which they are given:
    /// whoever has seen it need not pass those before it again, at their end or not.
    fn open_children(
        &self,
        tenant: &TenantId,
        parent: JobId,
        after: Option<JobId>,
        max: usize,
    ) -> StoreFuture<'_, Vec<JobId>>;

    /// Says that this process runs the worker. If the process ends, it is known at once, or at the next start, that
    /// the worker has ended too, and nobody need wait until its leases run out. It fails while another process
    /// that lives has said the same.
    fn vouch(&self, worker: &WorkerId) -> StoreFuture<'_, ()>;

    /// The worker has ended well; or it is dead, and what it held is taken from it.
    fn stop_vouching(&self, worker: &WorkerId) -> StoreFuture<'_, ()>;

    /// Workers whose processes are proven dead. On PostgreSQL it takes two looks that lie two seconds apart.
    fn dead_workers(&self) -> StoreFuture<'_, Vec<WorkerId>>;

    /// What a worker holds, at most `max`: tenant, job and version, as an
    /// [`Expire`](windlass_kernel::ops::Expire) names it.
    fn held_by(
        &self,
        worker: &WorkerId,
        max: usize,
    ) -> StoreFuture<'_, Vec<(TenantId, JobId, u64)>>;

    /// How the clock that it follows stands to its own time, which never goes back and never stands still.
    fn clock(&self) -> ClockStanding;
}
