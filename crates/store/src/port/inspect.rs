//! Looks into a store that no other interface offers: for tools, and for those who explain a job.

use windlass_kernel::{Job, JobId, TaskId};

use crate::{
    StoreFuture,
    read::{InboxResult, ListeningWorker, Scope, Standing},
};

/// Looks for tools and explanations, which only the process can take that has the store.
pub trait Inspect: Send + Sync {
    /// The job of a task with the highest attempt. If several tenants have a task of this name, it is one of theirs.
    fn newest_of_task(&self, scope: &Scope, task: &TaskId) -> StoreFuture<'_, Option<Job>>;

    /// All jobs that are not at an end.
    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>>;

    /// Workers that are there, and what they listen to, whether they hold anything or not.
    fn listening(&self, scope: &Scope) -> StoreFuture<'_, Vec<ListeningWorker>>;

    /// What became of an enqueue of a user's own transaction that made no job, by the id that was given.
    fn inbox_result(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<InboxResult>>;

    /// Everything that says why a job is not running. It is the same look at the rules as a claim has. Of jobs that hold
    /// what it waits for, and of workers, it names those that the scope may see.
    fn standing(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Standing>>;
}
