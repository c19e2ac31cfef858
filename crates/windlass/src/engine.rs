//! The engine: a store, the one way to write to it, and what runs around it.
//!
//! An [`Engine`] is cheap to clone; all clones share one Committer and one set of timers. It runs until
//! [`Engine::close`] is called or the last clone is dropped: then what was accepted is still written.

mod local;
mod open;
mod progress;
mod store_clock;
mod submit;
mod wait;

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
};
use windlass_kernel::{
    Actor, Answer, By, DlqId, Jitter, Job, JobId, Op, Principal, Refusal, Retention, State,
    TenantId, Timestamp, TraceId, WorkerId,
    ops::{Cancel, Enqueue, Requeue, Rerun, RetryNow},
};
use windlass_store::{
    self as store, Client, Commit, Request, Store, TenantOp, Write, read::Scope, rusqlite,
    sqlite::EnqueueInError,
};

pub(crate) use self::store_clock::StoreClock;
use self::{local::Local, open::Opened, wait::Ends};
pub use self::{progress::Progress, wait::Ended};
use crate::{
    Committer, Error, Handle, Health, Ids, JobRequest, SubmitError, TraceContext, Tracer, clock,
    committer,
    condition::{Condition, Watch},
    ids::{Random, system_random},
    tally::{Tallied, Tally},
    timers::{self, Timers},
    touched::Touched,
    worker::WorkerBuilder,
};

/// What an engine runs on, and how. Everything has a usual value.
#[derive(Clone)]
pub struct Config {
    /// Tells the time. A store on PostgreSQL has a clock of its own, which decides leases.
    pub clock: clock::Clock,
    /// Gives chance, for ids and for the spread of retries.
    pub random: Random,
    /// The bounds of the Committer.
    pub committer: committer::Config,
    /// How timers and recovery go about it. Without it this engine looks after no timers: then another one
    /// on the same store has to, and a time that is said as a wait is counted by `clock`, not by the store's.
    pub timers: Option<timers::Config>,
    /// How long finished jobs are kept. None keeps them for ever.
    pub retention: Option<Retention>,
    /// Where this process answers. Whoever finds a SQLite file in use is told.
    pub address: Option<String>,
    /// What lets us in, if the store is a server: `http://…`. Without it, `WINDLASS_TOKEN` of the environment does.
    pub token: Option<String>,
    /// Is told of each enqueue and each execution, as a span. If the store is a server it is not: the server tells.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use windlass::{Config, Span};
    ///
    /// let tracer = Arc::new(|span: Span| eprintln!("{} {}", span.at, span.name()));
    /// let config = Config { tracer: Some(tracer), ..Config::default() };
    /// ```
    pub tracer: Option<Tracer>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clock: clock::system(),
            random: system_random(),
            committer: committer::Config::default(),
            timers: Some(timers::Config::default()),
            retention: Some(Retention::default()),
            address: None,
            token: None,
            tracer: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("committer", &self.committer).finish_non_exhaustive()
    }
}

/// A job system: enqueue, watch and act on jobs, and run workers.
///
/// ```no_run
/// # async fn example() -> Result<(), windlass::Error> {
/// let engine = windlass::Engine::open("sqlite:windlass.db").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    tenant: TenantId,
    actor: Actor,
    /// The trace of new jobs that bring none.
    trace: Option<TraceId>,
    /// The span in which it acts.
    span: Option<TraceContext>,
}

/// What all clones share.
pub(crate) struct Inner {
    /// The store, or the server that has it.
    pub(crate) store: Arc<dyn Client>,
    /// The store, if it is open in this process. Only then are timers, retention and proofs of life ours.
    pub(crate) own: Option<Arc<dyn Store>>,
    pub(crate) ids: Ids,
    handle: Handle,
    sqlite: Option<Arc<store::sqlite::Sqlite>>,
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only PostgreSQL has one"))]
    schema: Option<String>,
    /// The store, if it is a server.
    #[cfg(feature = "client")]
    pub(crate) remote: Option<Arc<crate::client::Remote>>,
    tally: Arc<Tally>,
    pub(crate) condition: Arc<Condition>,
    touched: Arc<Touched>,
    /// Who is told of spans.
    pub(crate) tracer: Option<Tracer>,
    ends: Ends,
    pub(crate) local: Local,
    pub(crate) store_clock: Arc<StoreClock>,
    /// Ends what runs in the background. Dropping it does the same.
    shutdown: watch::Sender<Stage>,
    /// In the order in which they end.
    services: Mutex<Vec<JoinHandle<()>>>,
}

/// How far an engine is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// The timers end. What they have begun can still be written.
    Closing,
    /// The Committer ends.
    Closed,
}

/// What became of a request for a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The job: the new one, or the one that the key already belongs to.
    pub id: JobId,
    /// Was it there already?
    pub idempotent_hit: bool,
    /// Where it stands.
    pub state: State,
}

impl Engine {
    /// The tenant whose jobs an engine speaks of unless it is told otherwise.
    pub const TENANT_DEFAULT: &'static str = "default";

    /// Opens a store by its address, with everything else as usual.
    ///
    /// `sqlite:windlass.db` is a file, which is made if it is not there; `sqlite::memory:` is gone with the
    /// engine; `postgres://user@host/database` is a PostgreSQL database, where `?schema=NAME` picks another
    /// schema than `windlass`; `http://127.0.0.1:7117` or `https://…` is a Windlass server, if this program is built
    /// with the feature `client`.
    ///
    /// On a server everything is as on the other stores, and handlers are the same. Timers and retention are the
    /// server's, whatever [`Config`] says, and so is the tenant: it goes with the token.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), windlass::Error> {
    /// let engine = windlass::Engine::open("http://127.0.0.1:7117").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::open_with(url, &Config::default()).await
    }

    /// Opens a store by its address.
    pub async fn open_with(url: &str, config: &Config) -> Result<Self, Error> {
        let opened = open::open(url, config).await?;
        Ok(Self::begin(opened, config))
    }

    /// Runs on a store that is open already. Two engines on one store are like two nodes.
    pub fn on(store: Arc<dyn Store>, config: &Config) -> Self {
        Self::begin(Opened::new(store), config)
    }

    /// The same, with all writes by way of `commit`: for those who count them, or hold them up.
    pub fn committing(store: Arc<dyn Store>, commit: Arc<dyn Commit>, config: &Config) -> Self {
        Self::begin(Opened { commit, ..Opened::new(store) }, config)
    }

    /// The same on a SQLite store, in whose file users can enqueue in their own transactions.
    pub fn on_sqlite(sqlite: Arc<store::sqlite::Sqlite>, config: &Config) -> Self {
        Self::begin(Opened { sqlite: Some(sqlite.clone()), ..Opened::new(sqlite) }, config)
    }

    fn begin(opened: Opened, config: &Config) -> Self {
        let tenant = TenantId::new(Self::TENANT_DEFAULT).expect("the default name is a name");
        let store_clock = Arc::new(StoreClock::new(clock::ticks_of(&config.clock)));
        let tracer = config.tracer.clone();
        // A server has timers of its own, and says what time it is and whose things we see.
        let timers = config.timers.filter(|_| opened.own.is_some());
        #[cfg(feature = "client")]
        let (tenant, store_clock, tracer) = match &opened.remote {
            Some(remote) => {
                (remote.tenant().cloned().unwrap_or(tenant), remote.store_clock(), None)
            }
            None => (tenant, store_clock, tracer),
        };
        let ids = Ids::new(config.clock.clone(), config.random.clone());
        let committer = Committer::new(opened.commit, config.committer);
        let (shutdown, told) = watch::channel(Stage::Open);
        let inner = Arc::new(Inner {
            store: opened.store,
            own: opened.own,
            ids,
            handle: committer.handle(),
            sqlite: opened.sqlite,
            schema: opened.schema,
            #[cfg(feature = "client")]
            remote: opened.remote,
            tally: committer.tally(),
            condition: committer.condition(),
            touched: committer.touched(),
            tracer,
            ends: Ends::default(),
            local: Local::default(),
            store_clock,
            shutdown,
            services: Mutex::default(),
        });
        let mut services = Vec::new();
        if let Some(timers) = timers {
            let timers = Timers::new(&inner, timers, config.retention);
            services.push(tokio::spawn(timers.run(until(told.clone(), Stage::Closing))));
        }
        services.push(tokio::spawn(async move {
            // Everybody who waited was told; whoever asks how the engine is hears it too.
            let watch = Watch::over(committer.condition());
            watch.ended(committer.run(until(told, Stage::Closed)).await);
        }));
        inner.services.try_lock().expect("nobody else has it yet").extend(services);
        let actor = Actor::User(Principal::new("app").expect("it is a name"));
        Self { inner, tenant, actor, trace: None, span: None }
    }

    /// The same engine, for the jobs of this tenant.
    pub fn tenant(&self, tenant: &str) -> Result<Self, Error> {
        Ok(Self { tenant: TenantId::new(tenant)?, ..self.clone() })
    }

    /// The same engine, acting in the name of this person or program. Events and dead letters keep the name.
    pub fn acting_as(&self, principal: &str) -> Result<Self, Error> {
        let actor = Actor::User(Principal::new(principal)?);
        Ok(Self { actor, ..self.clone() })
    }

    /// The same engine, acting in this span: what it makes is told as part of it, and belongs to its trace unless the request
    /// names another.
    ///
    /// ```
    /// # async fn example(engine: windlass::Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let engine = engine.in_span(header.parse()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_span(&self, span: TraceContext) -> Self {
        let trace = TraceId::new(format!("{:032x}", span.trace)).expect("it is short");
        Self { trace: Some(trace), span: Some(span), ..self.clone() }
    }

    /// What can be read of jobs, dead letters, schedules and queues, wherever the store is.
    pub fn store(&self) -> &Arc<dyn Client> {
        &self.inner.store
    }

    /// The store itself, with all that can be asked of it: the feed, tokens, and what has to be looked after. If the
    /// store is a server it is not here, and this is an error.
    pub fn own_store(&self) -> Result<&Arc<dyn Store>, store::Error> {
        self.inner.own.as_ref().ok_or_else(|| {
            let why = "the store is a server, which keeps this to itself: it cannot be asked for over HTTP";
            store::Error::Denied(why.to_owned())
        })
    }

    /// The way to submit any write, for those who have their own workers.
    pub fn committer(&self) -> &Handle {
        &self.inner.handle
    }

    /// Submits a write that has an identity, such as those of workers elsewhere: if its answer is lost on the way to
    /// the store, it is sent again and answered from the record. The type of the request says what it is told.
    pub async fn submit<R: Request>(&self, request: R) -> Result<R::Reply, Error> {
        Ok(self.inner.submit_caused(request, self.span).await?)
    }

    /// The same for many, in this order, with few transactions. Each has its own answer.
    pub async fn submit_all<R: Request>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<R::Reply, Error>> {
        let writes: Vec<Write> = requests.into_iter().map(R::into_write).collect();
        let replies = self.inner.submit_many_caused(&writes, |_| self.span).await;
        replies.into_iter().map(|reply| Ok(R::expect(reply?))).collect()
    }

    /// What this engine has written since it was opened, counted: for figures and rates.
    pub fn tally(&self) -> Tallied {
        self.inner.tally.read()
    }

    /// How this engine is: whether its store has stopped, whether it can be written to, and whether timers go on.
    pub fn health(&self) -> Health {
        self.inner.condition.health()
    }

    /// Asks the store whether it is there and can be written to. If it has stopped, [`Engine::stopped`] is told.
    pub async fn check(&self) -> Result<(), store::Error> {
        let health = self.inner.store.health().await;
        if let Err(error) = &health {
            self.inner.condition.heard(error);
        }
        health
    }

    /// Ready when the store has stopped for good, with the reason: after an error of the disk, say, or when its file is
    /// gone. Nothing is acknowledged any more, and this engine never recovers: open it again, or end the process. It is
    /// never ready if the store does not stop.
    ///
    /// ```
    /// # async fn example(engine: windlass::Engine) {
    /// tokio::spawn(async move {
    ///     let error = engine.stopped().await;
    ///     eprintln!("{error}");
    ///     std::process::exit(1);
    /// });
    /// # }
    /// ```
    pub async fn stopped(&self) -> Arc<store::Error> {
        let condition = self.inner.condition.clone();
        condition.stopped().await
    }

    /// Makes the ids of what is new.
    pub fn ids(&self) -> &Ids {
        &self.inner.ids
    }

    /// What the store's clock shows, as far as it is known here.
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }

    /// Chance, for the spread of retries.
    pub fn jitter(&self) -> Jitter {
        self.inner.jitter()
    }

    /// Rings whenever a retry has become due. With [`ready`](store::ReadQueues::ready) it tells of everything that can be claimed.
    pub fn retry_due(&self) -> store::Listener {
        self.inner.local.retry_due.listen()
    }

    /// Rings after each commit of this engine that wrote to jobs or schedules of this tenant. The store's bell rings
    /// before it, and for everybody.
    pub fn touched(&self, tenant: &TenantId) -> store::Listener {
        self.inner.touched.listen(tenant)
    }

    /// A worker, to be told what it can do and then started.
    ///
    /// One in a process is usual: it runs many handlers. A job that may be what kills its process runs when no worker
    /// of this engine has anything else in hand.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self.clone())
    }

    /// Enqueues a job. When it answers, the job is durable. If the store's answer is lost on the way, the same job is
    /// sent again: it is there once.
    pub async fn enqueue(&self, request: impl Into<JobRequest>) -> Result<Enqueued, Error> {
        let request = request.into();
        let span = request.span.or(self.span);
        let (id, op) = self.new_op(request)?;
        enqueued(id, self.inner.submit_caused(self.on_job(op), span).await)
    }

    /// Enqueues many jobs with few transactions. Each has its own answer: one that is refused does not
    /// concern the others. As with one job, what has no answer is sent again: it is there once.
    pub async fn enqueue_all<R: Into<JobRequest>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Enqueued, Error>> {
        let (mut ids, mut writes, mut spans) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            let request = request.into();
            let span = request.span.or(self.span);
            ids.push(self.new_op(request).map(|(id, op)| {
                writes.push(self.on_job(op).into_write());
                spans.push(span);
                id
            }));
        }
        let replies = self.inner.submit_many_caused(&writes, |place| spans[place]).await;
        let mut replies = replies.into_iter().map(|reply| reply.map(TenantOp::expect));
        let mut reply = || replies.next().unwrap_or(Err(SubmitError::Closed));
        ids.into_iter().map(|id| enqueued(id?, reply())).collect()
    }

    /// Enqueues a job in the caller's own SQLite transaction, and gives back its id: the job is there if and
    /// only if the caller's rows are. See [`crate::enqueue_in`] for what happens when.
    pub fn enqueue_in(
        &self,
        transaction: &rusqlite::Connection,
        request: impl Into<JobRequest>,
    ) -> Result<JobId, EnqueueInError> {
        let op = self.enqueue_op(request.into());
        let op = op.map_err(|error| EnqueueInError::Refused(refusal_of(error)))?;
        store::sqlite::enqueue_in(transaction, &op, self.inner.ids.now())?;
        Ok(op.job_id)
    }

    /// Enqueues a job in the caller's own transaction on PostgreSQL, and gives back its id. See
    /// [`crate::enqueue_in_postgres`].
    #[cfg(feature = "postgres")]
    pub async fn enqueue_in_postgres(
        &self,
        transaction: &impl store::postgres::tokio_postgres::GenericClient,
        request: impl Into<JobRequest>,
    ) -> Result<JobId, store::postgres::EnqueueInError> {
        let op = self.enqueue_op(request.into());
        let op = op.map_err(|error| store::postgres::EnqueueInError::Refused(refusal_of(error)))?;
        let schema = self.inner.schema.as_deref().unwrap_or("windlass");
        store::postgres::enqueue_in(transaction, schema, &op, self.inner.ids.now()).await?;
        Ok(op.job_id)
    }

    /// Has what was enqueued in the caller's own transactions made into jobs at once. Without it they start a
    /// little later.
    pub fn wake(&self) {
        self.inner.handle.wake();
    }

    /// The store, if it is SQLite: it gives connections for [`enqueue_in`](Engine::enqueue_in).
    pub fn sqlite(&self) -> Option<&Arc<store::sqlite::Sqlite>> {
        self.inner.sqlite.as_ref()
    }

    /// A job as it stands.
    pub async fn job(&self, id: JobId) -> Result<Job, Error> {
        self.inner.store.job(&self.scope(), id).await?.ok_or(Error::NoJob(id))
    }

    /// Waits until the job is at its end, and gives back how it ended.
    ///
    /// In the process whose worker runs the job the answer comes at once, elsewhere within half a second. While the
    /// store is away it waits for that, too: give it a time-out if you cannot.
    pub async fn wait(&self, id: JobId) -> Result<Ended, Error> {
        wait::wait(&self.inner, &self.scope(), id).await
    }

    /// How far the handler of a job said it had come, if it did. The last word of an attempt stands until the next
    /// one says something, and stays when the job has ended.
    ///
    /// ```
    /// # async fn example(engine: windlass::Engine, id: windlass::JobId) -> Result<(), windlass::Error> {
    /// if let Some(progress) = engine.progress(id).await? {
    ///     let (done, file): (usize, String) = progress.get()?;
    ///     println!("{done} files done, {file} is next, as of {}", progress.at);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn progress(&self, id: JobId) -> Result<Option<Progress>, Error> {
        self.job(id).await?;
        Ok(self.inner.store.progress(&self.scope(), id).await?.map(Progress::from))
    }

    /// Asks a job to stop. One that runs may clean up first, for the usual grace period; any other is
    /// cancelled at once.
    pub async fn cancel(&self, id: JobId) -> Result<State, Error> {
        self.cancel_with(id, Cancel::GRACE_DEFAULT, None).await
    }

    /// Asks a job to stop, for this reason, and gives it this time to clean up. With none at all it is not
    /// asked.
    pub async fn cancel_with(
        &self,
        id: JobId,
        grace: Duration,
        reason: Option<String>,
    ) -> Result<State, Error> {
        let (force, by) = (grace.is_zero(), self.by());
        let answer = self.act(Cancel { job_id: id, force, grace, reason, by }).await?;
        Ok(answer.state)
    }

    /// Makes a retry that is scheduled due at once.
    pub async fn retry_now(&self, id: JobId) -> Result<State, Error> {
        Ok(self.act(RetryNow { job_id: id, by: self.by() }).await?.state)
    }

    /// Runs the task of a job that failed or was cancelled again, as a new job.
    pub async fn rerun(&self, id: JobId) -> Result<Enqueued, Error> {
        let new_job_id = self.inner.ids.job_id();
        let op = Rerun { job_id: id, new_job_id, by: self.by() };
        enqueued(NewId::Made(new_job_id), self.send(op).await)
    }

    /// Lets a new job take over from a dead letter.
    pub async fn requeue(&self, letter: DlqId) -> Result<Enqueued, Error> {
        let new_job_id = self.inner.ids.job_id();
        let op = Requeue { dlq_id: letter, new_job_id, payload: None, by: self.by() };
        enqueued(NewId::Made(new_job_id), self.send(op).await)
    }

    /// Ends the timers and the Committer, after all that was accepted is written. Workers are to be shut down
    /// before: what they report afterwards is not taken.
    pub async fn close(self) {
        let mut services = self.inner.services.lock().await;
        self.inner.shutdown.send_replace(Stage::Closing);
        let committer = services.pop();
        for service in services.drain(..) {
            let _ = service.await;
        }
        self.inner.shutdown.send_replace(Stage::Closed);
        if let Some(committer) = committer {
            let _ = committer.await;
        }
    }

    /// Ends it like a crash: what was accepted and is not written is lost, and nobody is told. For tests.
    pub fn kill(self) {
        // Whoever is just closing it ends the same things.
        if let Ok(services) = self.inner.services.try_lock() {
            services.iter().for_each(JoinHandle::abort);
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The same engine, for the handler of a job: it acts for the tenant of the job, in the name of the worker, and
    /// what it enqueues belongs to the trace of the job and is part of this execution.
    pub(crate) fn of_handler(&self, job: &Job, worker: &WorkerId) -> Self {
        let (tenant, trace) = (job.spec.tenant.clone(), Some(job.spec.trace_id.clone()));
        let span = self.inner.tracer.as_ref().map(|_| TraceContext::of_execution(job));
        let actor = Actor::Worker(worker.clone());
        Self { tenant, trace, span, actor, inner: self.inner.clone() }
    }

    async fn act(&self, op: impl Into<Op>) -> Result<Answer, Error> {
        Ok(self.send(op).await?.0)
    }

    async fn send(&self, op: impl Into<Op>) -> OpReply {
        self.inner.submit_caused(self.on_job(op), self.span).await
    }

    fn on_job(&self, op: impl Into<Op>) -> TenantOp {
        TenantOp { tenant: self.tenant.clone(), op: op.into() }
    }

    /// What it may see: the things of its tenant.
    pub(crate) fn scope(&self) -> Scope {
        Scope::Of(self.tenant.clone())
    }

    /// The tenant whose jobs it is for.
    pub(crate) fn tenant_id(&self) -> &TenantId {
        &self.tenant
    }

    pub(crate) fn by(&self) -> By {
        self.actor.clone().into()
    }

    fn new_op(&self, request: JobRequest) -> Result<(NewId, Enqueue), Error> {
        let given = request.id.map(NewId::Given);
        let op = self.enqueue_op(request)?;
        Ok((given.unwrap_or(NewId::Made(op.job_id)), op))
    }

    pub(crate) fn enqueue_op(&self, request: JobRequest) -> Result<Enqueue, Error> {
        let ids = &self.inner.ids;
        let job_id = request.id.unwrap_or_else(|| ids.job_id());
        let mut new = Box::new(request.into_new(|| self.inner.now())?);
        new.trace_id = new.trace_id.or_else(|| self.trace.clone());
        let (tenant, random) = (self.tenant.clone(), ids.random());
        Ok(Enqueue { job_id, tenant, new, random, by: self.by() })
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// The id that a new job is to have.
#[derive(Clone, Copy)]
enum NewId {
    /// The caller has it from somewhere, and may have used it before.
    Given(JobId),
    /// It was made for this job.
    Made(JobId),
}

/// What an op on a job is told.
type OpReply = Result<<TenantOp as Request>::Reply, SubmitError>;

fn enqueued(id: NewId, reply: OpReply) -> Result<Enqueued, Error> {
    let (answer, _) = reply?;
    let idempotent_hit = match id {
        NewId::Given(id) => answer.job_id != id || answer.recorded,
        // If it is on record, then because it was sent twice: nobody else knows the id.
        NewId::Made(id) => answer.job_id != id,
    };
    Ok(Enqueued { id: answer.job_id, idempotent_hit, state: answer.state })
}

/// Why a request makes no op: a value is refused, or its payload is no JSON.
fn refusal_of(error: Error) -> Refusal {
    match error {
        Error::Refused(refusal) => refusal,
        other => Refusal::invalid("payload", other.to_string()),
    }
}

/// Ready when the engine has come so far, or is forgotten.
async fn until(mut told: watch::Receiver<Stage>, stage: Stage) {
    let _ = told.wait_for(|now| *now >= stage).await;
}

impl Inner {
    /// What the store's clock shows, as far as it is known here. In its transactions it is asked itself.
    pub(crate) fn now(&self) -> Timestamp {
        self.store_clock.at(self.ids.now())
    }

    /// Chance, for the spread of retries.
    pub(crate) fn jitter(&self) -> Jitter {
        let ms = u64::try_from(self.ids.random() % u128::from(Jitter::MAX_MS + 1));
        Jitter::from_ms(ms.expect("it is small")).expect("it is in its range")
    }
}
