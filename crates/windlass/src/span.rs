//! Spans: how long each enqueue and each execution took, for whoever traces.
//!
//! Off unless [`Config::tracer`](crate::Config::tracer) is set, and then nothing is made or measured. An enqueue is told when
//! it is durable, an execution when its handler has ended or was dropped. Ids follow from jobs
//! ([`TraceContext`]), so an execution has its enqueue as its parent wherever both happened.
//!
//! Never here: a payload, or a word of one.

use std::sync::Arc;

use windlass_kernel::{
    Failure, Job, JobId, Kind, Op, Queue, TenantId, Timestamp, TraceId, WorkerId, job::Origin,
};
use windlass_store::{Reply, Write, read::Scope};

use crate::{SubmitError, TraceContext, engine::Inner};

/// Is told of each span when it has ended. It is called where the work is done and should come back at once: put the span
/// into a queue.
pub type Tracer = Arc<dyn Fn(Span) + Send + Sync>;

/// A span that has ended: an enqueue or an execution of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Which of the two.
    pub of: SpanOf,
    /// Its place in the trace of the job. It is not sampled if what enqueued the job is not.
    pub at: TraceContext,
    /// The span that it is part of, in the same trace.
    pub parent: Option<TraceContext>,
    /// Spans that it comes from and is not part of.
    pub links: Vec<TraceContext>,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The job.
    pub job_id: JobId,
    /// Whose job it is.
    pub tenant: TenantId,
    /// What the job does.
    pub kind: Kind,
    /// Where it waits.
    pub queue: Queue,
    /// The code of the failure, if it ended in one.
    pub error: Option<String>,
}

/// What a span is of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanOf {
    /// A job was made: to OpenTelemetry, a producer.
    Enqueue,
    /// Its handler ran: a consumer.
    Execution {
        /// Which attempt it was, from 1.
        attempt: u32,
        /// Who ran it.
        worker: WorkerId,
    },
}

impl Span {
    /// `enqueue KIND` or `execute KIND`.
    pub fn name(&self) -> String {
        match self.of {
            SpanOf::Enqueue => format!("enqueue {}", self.kind),
            SpanOf::Execution { .. } => format!("execute {}", self.kind),
        }
    }

    /// The execution of a job that was claimed last. Its parent is the enqueue.
    pub fn of_execution(
        job: &Job,
        worker: WorkerId,
        began_at: Timestamp,
        ended_at: Timestamp,
        error: Option<String>,
    ) -> Self {
        let spec = &job.spec;
        Self {
            of: SpanOf::Execution { attempt: job.attempt, worker },
            at: TraceContext::of_execution(job),
            parent: Some(TraceContext::of_enqueue(&spec.trace_id, job.id)),
            links: Vec::new(),
            began_at,
            ended_at,
            job_id: job.id,
            tenant: spec.tenant.clone(),
            kind: spec.kind.clone(),
            queue: spec.queue.clone(),
            error,
        }
    }
}

/// A job that was made.
struct Made {
    id: JobId,
    tenant: TenantId,
    trace: TraceId,
    kind: Kind,
    queue: Queue,
    /// The job whose task it runs again.
    before: Option<JobId>,
}

impl Made {
    fn of(job: &Job) -> Self {
        let spec = &job.spec;
        let before = match spec.origin {
            Origin::Enqueued => None,
            Origin::Requeued(letter) => Some(letter.job_id()),
            Origin::Rerun(job_id) => Some(job_id),
        };
        let (tenant, trace) = (spec.tenant.clone(), spec.trace_id.clone());
        let (kind, queue) = (spec.kind.clone(), spec.queue.clone());
        Self { id: job.id, tenant, trace, kind, queue, before }
    }

    /// Part of what caused it, if that is in the same trace, and else of the enqueue of the job before, or of the span that
    /// the job was given with its trace. What it is no part of is a link.
    fn span(self, cause: Option<TraceContext>, began_at: Timestamp, ended_at: Timestamp) -> Span {
        let at = TraceContext::of_enqueue(&self.trace, self.id);
        let before = match self.before {
            Some(before) => Some(TraceContext::of_enqueue(&self.trace, before)),
            None => self.trace.as_str().parse().ok(),
        };
        let mut links: Vec<TraceContext> = cause.into_iter().chain(before).collect();
        let parent = links.iter().position(|from| from.trace == at.trace);
        let parent = parent.map(|place| links.remove(place));
        Span {
            of: SpanOf::Enqueue,
            at: TraceContext { sampled: cause.is_none_or(|cause| cause.sampled), ..at },
            parent,
            links,
            began_at,
            ended_at,
            job_id: self.id,
            tenant: self.tenant,
            kind: self.kind,
            queue: self.queue,
            error: None,
        }
    }
}

/// A write, its answer, and the span that has caused it.
pub(crate) type Caused<'a> = (&'a Write, &'a Result<Reply, SubmitError>, Option<TraceContext>);

/// Writes are on their way, of which jobs may come.
#[derive(Clone, Copy)]
pub(crate) struct Enqueuing {
    began_at: Timestamp,
}

impl Inner {
    /// Writes are about to be submitted. None, if nobody listens.
    pub(crate) fn enqueuing(&self) -> Option<Enqueuing> {
        self.tracer.as_ref().map(|_| Enqueuing { began_at: self.ids.now() })
    }

    /// Tells of the jobs that were made. An answer from the record counts only if the write was sent twice.
    pub(crate) async fn tell_of_made(
        &self,
        Enqueuing { began_at }: Enqueuing,
        answers: impl Iterator<Item = Caused<'_>>,
        sent_twice: bool,
    ) {
        let Some(tracer) = &self.tracer else { return };
        let ended_at = self.ids.now();
        for (write, reply, cause) in answers {
            let Ok(reply) = reply else { continue };
            for made in self.made(write, reply, sent_twice).await {
                tracer(made.span(cause, began_at, ended_at));
            }
        }
    }

    /// The jobs that a write has made. An enqueue says itself what it makes; the others are looked up.
    async fn made(&self, write: &Write, reply: &Reply, sent_twice: bool) -> Vec<Made> {
        match (write, reply) {
            (Write::Op { tenant, op }, Reply::Answer(answer, _)) => {
                let (new, known) = match op {
                    Op::Enqueue(op) => (op.job_id, Some(op)),
                    Op::Requeue(op) => (op.new_job_id, None),
                    Op::Rerun(op) => (op.new_job_id, None),
                    _ => return Vec::new(),
                };
                if answer.job_id != new || (answer.recorded && !sent_twice) {
                    return Vec::new();
                }
                let Some(op) = known else { return self.look_up(tenant, &[new]).await };
                let (kind, queue) = (op.new.kind.clone(), op.new.queue.clone());
                let (tenant, trace) = (tenant.clone(), op.trace_id());
                vec![Made { id: new, tenant, trace, kind, queue, before: None }]
            }
            (Write::Schedule(op), Reply::Scheduled(told)) => {
                self.look_up(&op.tenant, &told.made).await
            }
            _ => Vec::new(),
        }
    }

    /// What cannot be read is not told.
    async fn look_up(&self, tenant: &TenantId, ids: &[JobId]) -> Vec<Made> {
        let scope = Scope::Of(tenant.clone());
        let mut made = Vec::new();
        for id in ids {
            made.extend(self.store.job(&scope, *id).await.ok().flatten().as_ref().map(Made::of));
        }
        made
    }
}

/// An execution that goes on. It is told when it is dropped, because an execution can be.
pub(crate) struct Executing {
    tracer: Tracer,
    engine: Arc<Inner>,
    job: Arc<Job>,
    worker: WorkerId,
    began_at: Timestamp,
    error: Option<String>,
}

impl Executing {
    /// None, if nobody listens.
    pub(crate) fn begin(engine: &Arc<Inner>, job: &Arc<Job>, worker: &WorkerId) -> Option<Self> {
        let tracer = engine.tracer.clone()?;
        let (engine, began_at) = (engine.clone(), engine.ids.now());
        let error = Some("DROPPED".to_owned());
        Some(Self { tracer, engine, job: job.clone(), worker: worker.clone(), began_at, error })
    }

    /// The handler came to its end.
    pub(crate) fn ended(mut self, failure: Option<&Failure>) {
        self.error = failure.map(|failure| failure.code.clone());
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        let (worker, error) = (self.worker.clone(), self.error.take());
        let ended_at = self.engine.ids.now();
        (self.tracer)(Span::of_execution(&self.job, worker, self.began_at, ended_at, error));
    }
}
