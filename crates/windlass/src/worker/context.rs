//! The context of an execution: what a handler knows about its job, and what it can say meanwhile.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::Serialize;
use windlass_kernel::{
    By, Epoch, Job, JobId, Kind, Op, Payload, Queue, Refusal, TenantId, TraceId, WorkerId,
    job::Wakeup,
    ops::{Entry, Renew},
};
use windlass_store::Write;

use super::notice::{Notice, Notices};
use crate::{Engine, Error, SubmitError, TraceContext};

/// What a handler knows about its job. Clones are cheap and are the same context.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    job: Arc<Job>,
    engine: Engine,
    worker: WorkerId,
    lease: Duration,
    notices: Notices,
    /// What a durable handler has left to be recorded with the report of its execution.
    left: Mutex<Vec<Entry>>,
}

/// Why a handler should come to its end soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// The worker shuts down. A handler that goes on is interrupted when the grace period is over, and its job
    /// goes on elsewhere; that uses up nothing.
    Shutdown,
    /// Someone wants the job to be cancelled: clean up, and return [`Outcome::cancelled`](super::Outcome::cancelled).
    Cancelled,
    /// The lease is lost: the job timed out, was cancelled by force, or is run elsewhere by now. Whatever is
    /// returned is not kept. The execution is dropped in a moment.
    LeaseLost,
}

/// The fencing token of an execution, for writes to other systems.
///
/// Each time a job is claimed its epoch grows. A system that remembers the greatest epoch it has seen of a job, and
/// refuses what comes with a smaller one, can never be changed by an execution that has lost its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The job.
    pub job_id: JobId,
    /// The number that grows with each claim of the job.
    pub epoch: Epoch,
    /// `<job_id>:<epoch>`: the name of this grant, which no other execution has.
    pub attempt_id: String,
    /// `<job_id>+<retry_count>`: the same for an attempt that was interrupted and goes on, another one for the
    /// next attempt.
    pub execution_key: String,
}

impl Context {
    pub(super) fn new(
        job: Arc<Job>,
        engine: Engine,
        worker: WorkerId,
        lease: Duration,
        notices: Notices,
    ) -> Self {
        let left = Mutex::default();
        Self { inner: Arc::new(Inner { job, engine, worker, lease, notices, left }) }
    }

    /// The job as it was when it was claimed.
    pub fn job(&self) -> &Job {
        &self.inner.job
    }

    /// The id of the job.
    pub fn job_id(&self) -> JobId {
        self.inner.job.id
    }

    /// Who it belongs to.
    pub fn tenant(&self) -> &TenantId {
        &self.inner.job.spec.tenant
    }

    /// What it does.
    pub fn kind(&self) -> &Kind {
        &self.inner.job.spec.kind
    }

    /// Where it waited.
    pub fn queue(&self) -> &Queue {
        &self.inner.job.spec.queue
    }

    /// The trace it belongs to.
    pub fn trace_id(&self) -> &TraceId {
        &self.inner.job.spec.trace_id
    }

    /// The span of this execution, for what the handler calls: as text it is the header `traceparent`.
    pub fn trace_context(&self) -> TraceContext {
        TraceContext::of_execution(&self.inner.job)
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.job.attempt
    }

    /// How many retries it has used.
    pub fn retry_count(&self) -> u32 {
        self.inner.job.retry_count
    }

    /// Is a failure of this attempt final?
    pub fn is_last_attempt(&self) -> bool {
        self.inner.job.retry_count >= self.inner.job.spec.max_retries
    }

    /// How often it was interrupted without progress.
    pub fn interruptions(&self) -> u32 {
        self.inner.job.interruptions
    }

    /// How its last wait ended, if it had waited or snoozed.
    pub fn woken(&self) -> Option<Wakeup> {
        self.inner.job.woken
    }

    /// The worker that runs it.
    pub fn worker(&self) -> &WorkerId {
        &self.inner.worker
    }

    /// The number that grows with each claim of the job: see [`Fence`].
    pub fn epoch(&self) -> Epoch {
        self.inner.job.epoch
    }

    /// The fencing token, for writes to other systems.
    pub fn fence(&self) -> Fence {
        let job = &self.inner.job;
        Fence {
            job_id: job.id,
            epoch: job.epoch,
            attempt_id: job.attempt_id(),
            execution_key: job.execution_key(),
        }
    }

    /// The engine, for a handler that enqueues more. It acts for the tenant of the job, and what it enqueues belongs to
    /// the trace of the job, unless the request names [another](crate::JobRequest::trace).
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Why the handler should come to its end soon; none, if it may go on.
    pub fn stop(&self) -> Option<Stop> {
        self.inner.notices.get().stop()
    }

    /// Waits until the handler should come to its end soon, and says why.
    pub async fn stopped(&self) -> Stop {
        let notice = self.inner.notices.at_least(Notice::Shutdown).await;
        notice.stop().expect("it was waited for")
    }

    /// Waits until someone wants the job to be cancelled.
    pub(crate) async fn cancel_requested(&self) {
        self.inner.notices.at_least(Notice::Cancelled).await;
    }

    /// Leaves this to be recorded with the report of the execution.
    pub(crate) fn leave(&self, entries: Vec<Entry>) {
        *self.inner.left.lock().unwrap_or_else(PoisonError::into_inner) = entries;
    }

    /// What was left to be recorded.
    pub(super) fn take_left(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.inner.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A sign of life, for a job with a heartbeat time-out. It fails if the lease is lost: then stop.
    pub async fn heartbeat(&self) -> Result<(), Error> {
        self.renew(None).await
    }

    /// Says how far the handler has come, for anyone who asks [`Engine::progress`]; what was said before is replaced.
    /// It is a sign of life, too, and fails like one if the lease is lost.
    ///
    /// The value is at most 16 KiB of JSON. Each report is a write that is durable: say something when a person would see
    /// a difference, not for each of a million rows.
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use windlass::{Context, HandlerResult, Work};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Import {
    ///     files: Vec<String>,
    /// }
    ///
    /// impl Work for Import {
    ///     const KIND: &str = "import";
    /// }
    ///
    /// async fn import(job: Import, context: Context) -> HandlerResult {
    ///     for (done, file) in job.files.iter().enumerate() {
    ///         context.progress(&(done, file)).await?;
    ///         // ...
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn progress(&self, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(value)
            .map_err(|source| Error::Json { what: "the progress", source })?;
        let value = Payload::parse(&text, Renew::PROGRESS_BYTES_MAX);
        let value = value.map_err(|refusal| match refusal {
            Refusal::Invalid { why, .. } => Refusal::invalid("progress", why),
            other => other,
        })?;
        self.renew(Some(value)).await
    }

    async fn renew(&self, progress: Option<Payload>) -> Result<(), Error> {
        let job = &self.inner.job;
        let (job_id, epoch, lease) = (job.id, job.epoch, self.inner.lease);
        let by = By::worker(self.inner.worker.clone());
        let op = Op::Renew(Renew { job_id, epoch, by, lease, heartbeat: true, progress });
        let write = Write::Op { tenant: job.spec.tenant.clone(), op };
        let engine = self.inner.engine.inner();
        match engine.submit(write).await {
            Ok(_) => Ok(()),
            Err(error) => {
                // What cannot be accepted says nothing about the lease.
                let is_lost = |refusal: &Refusal| !matches!(refusal, Refusal::Invalid { .. });
                if matches!(&error, SubmitError::Refused(refusal) if is_lost(refusal)) {
                    engine.local.lose(job_id, epoch);
                }
                Err(error.into())
            }
        }
    }
}
