//! Reads of jobs: as they stand, what they carry and gave back, and their histories.

use windlass_kernel::{Event, Job, JobId};

use crate::{
    StoreFuture,
    read::{AttemptsPage, JobFilter, Output, Page, PageFrom, Progress, Scope, Traces, Verified},
};

/// Reads jobs and their histories.
pub trait ReadJobs: Send + Sync {
    /// A job as it stands.
    ///
    /// Every read that is told a [`Scope`] finds only what that may see: another's job is not there.
    fn job(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Job>>;

    /// The payload of a job, byte for byte.
    fn payload(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<String>>;

    /// What the handler of the last attempt gave back that gave back anything.
    fn last_output(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Output>>;

    /// How far the handler of a job said it had come, if it did: the last report that counted.
    fn progress(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Progress>>;

    /// The history of a job, in order.
    fn events(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Vec<Event>>;

    /// The traces of these jobs, as far as they are there. An event that brought no trace shows that of its job.
    fn traces(&self, scope: &Scope, ids: Vec<JobId>) -> StoreFuture<'_, Traces> {
        let scope = scope.clone();
        Box::pin(async move {
            let mut traces = Traces::new();
            for id in ids {
                let job = self.job(&scope, id).await?;
                traces.extend(job.map(|job| (id, job.spec.trace_id.clone())));
            }
            Ok(traces)
        })
    }

    /// Makes the chain of hashes of a job's history anew and says whether it is the one that was kept.
    fn verify(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Verified>>;

    /// The attempts of a job after this one, in order: at most so many, and no more than a part of them holds.
    fn attempts(
        &self,
        scope: &Scope,
        id: JobId,
        after: u32,
        limit: usize,
    ) -> StoreFuture<'_, AttemptsPage>;

    /// Jobs by filter, newest first, page by page.
    fn jobs(&self, filter: JobFilter, cursor: PageFrom) -> StoreFuture<'_, Page<Job>>;
}
