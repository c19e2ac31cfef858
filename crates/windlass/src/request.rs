//! What a caller asks for: a new job, and all that can be said about it.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};
use windlass_kernel::{
    IdempotencyKey, IdempotencyScope, JobId, Kind, LimitKey, Payload, Queue, Refusal, RetryPolicy,
    Tag, TaskId, Timestamp, TraceId, UniqueKey,
    job::Priority,
    ops::{Idempotency, NewJob, NewTask},
};

use crate::{Error, TraceContext};

/// A type whose values are the payloads of one kind of job.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::Work;
///
/// #[derive(Serialize, Deserialize)]
/// struct SendMail {
///     to: String,
/// }
///
/// impl Work for SendMail {
///     const KIND: &str = "send_mail";
/// }
/// ```
pub trait Work: Serialize + DeserializeOwned + Send + 'static {
    /// The kind of these jobs: it picks the handler. It is stored with each job, so it must not change while
    /// jobs of it are open.
    const KIND: &str;

    /// What is said about each such job unless the caller says otherwise, such as its queue or its time-out.
    fn defaults(request: JobRequest) -> JobRequest {
        request
    }

    /// The key that limits and turns of such a job go by, taken from its payload: a customer's id, say.
    fn limit_key(&self) -> Option<String> {
        None
    }
}

/// A new job with this payload, about which more can be said before it is enqueued.
///
/// ```
/// # use std::time::Duration;
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Engine, Work, job};
/// # #[derive(Serialize, Deserialize)]
/// # struct SendMail { to: String }
/// # impl Work for SendMail { const KIND: &str = "send_mail"; }
/// # async fn example(engine: Engine) -> Result<(), windlass::Error> {
/// let mail = SendMail { to: "ann".to_owned() };
/// engine.enqueue(job(mail).queue("mail").after(Duration::from_secs(60)).key("order-17")).await?;
/// # Ok(())
/// # }
/// ```
#[expect(clippy::needless_pass_by_value, reason = "a caller makes the payload for this job alone")]
pub fn job<W: Work>(payload: W) -> JobRequest {
    let request = W::defaults(JobRequest::of(W::KIND, &payload));
    match payload.limit_key() {
        Some(key) => request.limit_key(&key),
        None => request,
    }
}

impl<W: Work> From<W> for JobRequest {
    fn from(payload: W) -> Self {
        job(payload)
    }
}

/// What is asked for: a new job, with everything as usual unless something is said.
///
/// A value that cannot be accepted is refused when the job is enqueued, by name.
#[derive(Debug)]
#[must_use = "a request does nothing until it is enqueued"]
pub struct JobRequest {
    new: Result<Box<NewJob>, Error>,
    due: Option<Due>,
    scope: Option<IdempotencyScope>,
    pub(crate) id: Option<JobId>,
    pub(crate) span: Option<TraceContext>,
}

/// When a job is to run.
#[derive(Clone, Copy, Debug)]
enum Due {
    At(Timestamp),
    After(Duration),
}

impl JobRequest {
    /// A job of this kind whose payload is this value, for those who have no type for it.
    pub fn of(kind: &str, payload: &impl Serialize) -> Self {
        let text = serde_json::to_string(payload);
        let text = text.map_err(|source| Error::Json { what: "the payload", source });
        Self { new: text.and_then(|text| parsed(kind, &text)), ..Self::empty() }
    }

    /// A job of this kind with this JSON text as its payload, which is kept byte for byte.
    pub fn raw(kind: &str, payload: &str) -> Self {
        Self { new: parsed(kind, payload), ..Self::empty() }
    }

    fn empty() -> Self {
        Self { new: Err(Error::Closed), due: None, scope: None, id: None, span: None }
    }

    /// Where it waits; `default`, if nothing is said.
    pub fn queue(self, queue: &str) -> Self {
        self.set(|new| {
            new.queue = Queue::new(queue)?;
            Ok(())
        })
    }

    /// How urgent it is, from -1000 to 1000: smaller is sooner, 0 is usual. Each step is worth a minute of
    /// waiting, so nothing starves.
    pub fn priority(self, priority: i16) -> Self {
        self.set(|new| {
            new.priority = Priority(priority);
            Ok(())
        })
    }

    /// Not before this time.
    pub fn at(self, at: Timestamp) -> Self {
        Self { due: Some(Due::At(at)), ..self }
    }

    /// Not before this much time has passed.
    pub fn after(self, wait: Duration) -> Self {
        Self { due: Some(Due::After(wait)), ..self }
    }

    /// How long one execution may take, from start to end. Then it has failed with `TASK_TIMEOUT`, whatever
    /// its handler does.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|new| {
            new.timeout = Some(timeout);
            Ok(())
        })
    }

    /// How long its handler may be silent between two heartbeats.
    pub fn heartbeat_timeout(self, timeout: Duration) -> Self {
        self.set(|new| {
            new.heartbeat_timeout = Some(timeout);
            Ok(())
        })
    }

    /// How long it may wait for its first start.
    pub fn schedule_to_start(self, timeout: Duration) -> Self {
        self.set(|new| {
            new.schedule_to_start = Some(timeout);
            Ok(())
        })
    }

    /// When it has to be at an end, retries and all.
    pub fn deadline(self, at: Timestamp) -> Self {
        self.set(|new| {
            new.deadline_at = Some(at);
            Ok(())
        })
    }

    /// How many times it is tried again after a failure; 3, if nothing is said.
    pub fn max_retries(self, retries: u32) -> Self {
        self.set(|new| {
            new.max_retries = retries;
            Ok(())
        })
    }

    /// The first wait before a retry, which doubles each time, and the longest.
    pub fn backoff(self, base: Duration, max_backoff: Duration) -> Self {
        self.set(|new| {
            new.retry = RetryPolicy { base, max_backoff };
            Ok(())
        })
    }

    /// The interruption without progress at which recovery gives up; 5, if nothing is said.
    pub fn max_interruptions(self, interruptions: u32) -> Self {
        self.set(|new| {
            new.max_interruptions = interruptions;
            Ok(())
        })
    }

    /// The name of this request: asking again under the same name gives the same job, and asking for
    /// something else under it is refused.
    pub fn key(self, key: &str) -> Self {
        self.set(|new| {
            let (scope, key) = (IdempotencyScope::default_scope(), IdempotencyKey::new(key)?);
            new.idempotency = Idempotency::Key { scope, key };
            Ok(())
        })
    }

    /// The same for a job that the server makes for itself, whose kind begins with `windlass.`: asking again gives the
    /// same job, whatever else is asked for. Callers have no such keys, and cannot take one in advance.
    pub fn server_key(self, key: &str) -> Self {
        self.set(|new| {
            new.idempotency = Idempotency::Server { key: IdempotencyKey::new(key)? };
            Ok(())
        })
    }

    /// Where its key is unique. It means nothing without a key.
    pub fn key_scope(mut self, scope: &str) -> Self {
        match IdempotencyScope::new(scope) {
            Ok(scope) => Self { scope: Some(scope), ..self },
            Err(refusal) => {
                self.new = self.new.and(Err(refusal.into()));
                self
            }
        }
    }

    /// What it has in common with other jobs of its tenant, such as a customer: rules can limit each key, and keys
    /// can take turns.
    pub fn limit_key(self, key: &str) -> Self {
        self.set(|new| {
            new.limit_key = Some(LimitKey::new(key)?);
            Ok(())
        })
    }

    /// What no other job that is not at its end may have: while one has it, enqueueing gives that one. When it is
    /// at its end, the next can be made.
    pub fn unique(self, key: &str) -> Self {
        self.set(|new| {
            new.unique_key = Some(UniqueKey::new(key)?);
            Ok(())
        })
    }

    /// What it is a run of. A task that ran before, and is at its end, runs again.
    pub fn task_id(self, task_id: &str) -> Self {
        self.set(|new| {
            let task_id = TaskId::new(task_id)?;
            new.task = Some(NewTask { task_id, may_rerun: true });
            Ok(())
        })
    }

    /// A label for filters. It can have several.
    pub fn tag(self, tag: &str) -> Self {
        self.set(|new| {
            new.tags.push(Tag::new(tag)?);
            Ok(())
        })
    }

    /// The trace it belongs to: the id of a trace, or a whole `traceparent`. If nothing is said, what a handler enqueues
    /// through its context belongs to the trace of the handler's own job, and any other job begins a trace.
    pub fn trace(self, trace_id: &str) -> Self {
        self.set(|new| {
            new.trace_id = Some(TraceId::new(trace_id)?);
            Ok(())
        })
    }

    /// The span that it comes from, for a caller that [`Engine::in_span`](crate::Engine::in_span) does not suit because its
    /// requests come from several. The trace of the job is another word: see [`trace`](Self::trace).
    pub fn from_span(self, span: TraceContext) -> Self {
        Self { span: Some(span), ..self }
    }

    /// The job that is its parent: it is cancelled with it, and can wait for its end.
    pub fn parent(self, parent: JobId) -> Self {
        self.set(|new| {
            new.parent = Some(parent);
            Ok(())
        })
    }

    /// The id of the new job, for a caller that has to know it beforehand. Sending the same id again gives the
    /// same job.
    pub fn id(self, id: JobId) -> Self {
        Self { id: Some(id), ..self }
    }

    fn set(mut self, change: impl FnOnce(&mut NewJob) -> Result<(), Refusal>) -> Self {
        if let Ok(new) = &mut self.new
            && let Err(refusal) = change(new)
        {
            self.new = Err(refusal.into());
        }
        self
    }

    /// All that was said, as an op has it.
    pub(crate) fn into_new(self, now: impl FnOnce() -> Timestamp) -> Result<NewJob, Error> {
        let mut new = self.new?;
        new.scheduled_at = match self.due {
            None => new.scheduled_at,
            Some(Due::At(at)) => Some(at),
            Some(Due::After(wait)) => Some(now().plus(wait)),
        };
        if let (Some(wanted), Idempotency::Key { scope, .. }) = (self.scope, &mut new.idempotency) {
            *scope = wanted;
        }
        Ok(*new)
    }
}

fn parsed(kind: &str, payload: &str) -> Result<Box<NewJob>, Error> {
    let payload = Payload::parse(payload, Payload::MAX_BYTES_DEFAULT)?;
    Ok(Box::new(NewJob::new(Kind::new(kind)?, payload)))
}
