//! How a worker is set up, and the handle of one that runs.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinHandle};
use windlass_kernel::{Kind, Queue, Refusal, WorkerId, ops::NewJob};
use windlass_store::{
    ClaimMany, Write,
    read::{Listens, Word},
};

use super::{
    executions::{Executions, Slots},
    handler::{AnyHandler, Handler, erase},
    middleware::Middleware,
    report::{Observer, Outbox, Report},
    run::{Orders, Shared, run},
};
use crate::{
    Engine, Error, Work,
    durable::{self, DurableHandler},
};

/// A worker that is being set up.
///
/// ```no_run
/// # use windlass::{Engine, HandlerResult, Work};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct SendMail { to: String }
/// # impl Work for SendMail { const KIND: &str = "send_mail"; }
/// async fn send(mail: SendMail) -> HandlerResult {
///     println!("mail to {}", mail.to);
///     Ok(())
/// }
///
/// # async fn example(engine: Engine) -> Result<(), windlass::Error> {
/// let worker = engine.worker().concurrency(50).handle(send).start().await?;
/// # worker.shutdown().await
/// # }
/// ```
#[must_use = "a worker does nothing until it is started"]
pub struct WorkerBuilder<S = ()> {
    engine: Engine,
    state: Arc<S>,
    name: String,
    queues: Result<Vec<Queue>, Refusal>,
    handlers: BTreeMap<Kind, AnyHandler>,
    refused: Option<Error>,
    layers: Vec<Arc<dyn Middleware>>,
    observer: Option<Observer>,
    concurrency: usize,
    tenant_max: Option<usize>,
    ahead_max: Option<usize>,
    lease: Duration,
    renew_every: Option<Duration>,
    grace: Duration,
    poll: Duration,
}

impl WorkerBuilder {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            state: Arc::new(()),
            name: "worker".to_owned(),
            queues: Queue::new(NewJob::DEFAULT_NAME).map(|queue| vec![queue]),
            handlers: BTreeMap::new(),
            refused: None,
            layers: Vec::new(),
            observer: None,
            concurrency: 16,
            tenant_max: None,
            ahead_max: None,
            lease: Duration::from_secs(30),
            renew_every: None,
            grace: Duration::from_secs(30),
            poll: Duration::from_secs(1),
        }
    }

    /// What the handlers share. It comes before them, so that their types can be checked against it.
    pub fn state<S: Send + Sync + 'static>(self, state: Arc<S>) -> WorkerBuilder<S> {
        WorkerBuilder {
            engine: self.engine,
            state,
            name: self.name,
            queues: self.queues,
            handlers: self.handlers,
            refused: self.refused,
            layers: self.layers,
            observer: self.observer,
            concurrency: self.concurrency,
            tenant_max: self.tenant_max,
            ahead_max: self.ahead_max,
            lease: self.lease,
            renew_every: self.renew_every,
            grace: self.grace,
            poll: self.poll,
        }
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Runs jobs of the payload's kind with this handler.
    pub fn handle<A, H>(self, handler: H) -> Self
    where
        H: Handler<S, A>,
        H::Payload: Work,
    {
        let kind = <H::Payload as Work>::KIND;
        self.handle_kind(kind, handler)
    }

    /// Runs jobs of this kind with this handler, whatever its payload is.
    pub fn handle_kind<A, H>(self, kind: &str, handler: H) -> Self
    where
        H: Handler<S, A>,
        H::Payload: DeserializeOwned,
    {
        let handler = erase(handler, self.state.clone());
        self.add(kind, handler)
    }

    fn add(mut self, kind: &str, handler: AnyHandler) -> Self {
        match Kind::new(kind) {
            Ok(kind) if self.handlers.contains_key(&kind) => {
                let why = format!("there are two handlers for {kind}");
                self.refused.get_or_insert(Error::Worker(why));
            }
            Ok(kind) => {
                self.handlers.insert(kind, handler);
            }
            Err(refusal) => {
                self.refused.get_or_insert(refusal.into());
            }
        }
        self
    }

    /// Runs durable jobs of the payload's kind with this handler: see [`durable`](crate::durable).
    pub fn durable<P, H>(self, handler: H) -> Self
    where
        P: Work + DeserializeOwned + Send + 'static,
        H: for<'c> DurableHandler<'c, P>,
    {
        self.add(P::KIND, durable::erase(handler))
    }

    /// Runs around every handler. The first one is the outermost.
    pub fn layer(mut self, middleware: impl Middleware) -> Self {
        self.layers.push(Arc::new(middleware));
        self
    }

    /// Hears of each execution that has ended, for figures. It is called between executions, so it must be quick.
    pub fn observe(mut self, observer: impl Fn(&Report<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The queues it listens to. The default is the queue `default`.
    pub fn queues<Q: AsRef<str>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        self.queues = queues.into_iter().map(Queue::new).collect();
        self
    }

    /// How many handlers run at the same time. The default is 16.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How many jobs it claims ahead into its local queue at the most. The default is none.
    ///
    /// A job that is claimed ahead is started by a write of its own, so this is for short jobs on a
    /// store that is far away. The worker claims ahead only as many jobs as it has lately finished in a
    /// tenth of a second, so long jobs are left to other workers. A job that has waited for a second
    /// is given back.
    pub fn prefetch(mut self, jobs: usize) -> Self {
        self.ahead_max = Some(jobs);
        self
    }

    /// How long its leases last. The default is 30 seconds. After a crash that nobody can prove, its jobs
    /// wait at most that long.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often it renews its leases. The default is ten times in a lease. With a renewal it also hears
    /// of cancel requests of other processes.
    pub fn renew_every(mut self, every: Duration) -> Self {
        self.renew_every = Some(every);
        self
    }

    /// How long handlers may go on at a shutdown. The default is 30 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How many jobs of one tenant it has in hand at the most. The default is as many as there are slots.
    /// The rest of the slots is for other tenants, also while those have no jobs. An engine on a server
    /// ignores it.
    pub fn tenant_max(mut self, jobs: usize) -> Self {
        self.tenant_max = Some(jobs);
        self
    }

    /// How often it polls for jobs when nothing wakes it. The default is once a second.
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every;
        self
    }

    /// What it is called in events and lists, before a part that is new at each start.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Starts it.
    pub async fn start(self) -> Result<Worker, Error> {
        let grace = self.grace;
        let shared = Arc::new(self.shared()?);
        let inner = shared.inner();
        // A server cannot know that a process elsewhere is dead: there the leases of this worker run out.
        if let Some(store) = &inner.own {
            store.vouch(&shared.worker).await?;
        }
        let listens = Listens {
            queues: shared.queues.clone(),
            kinds: shared.handlers.keys().cloned().collect(),
            tenant: None,
        };
        let word = Word::To(listens);
        let (worker, tenant) = (shared.worker.clone(), None);
        inner.submit_known(Write::Listens { worker, tenant, word }).await?;
        inner.local.add(&shared.worker, &shared.executions);
        let (orders, told) = watch::channel(Orders::Work);
        let worker = shared.worker.clone();
        let task = tokio::spawn(run(shared, told));
        Ok(Worker { worker, orders, grace, task: Some(task) })
    }

    /// Starts it, lets it work until `shutdown` is ready, and shuts it down.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let mut worker = self.start().await?;
        tokio::select! {
            biased;
            () = shutdown => worker.shutdown().await,
            ended = worker.ended() => ended,
        }
    }

    fn shared(self) -> Result<Shared, Error> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let refuse = |why: &str| Err(Error::Worker(why.to_owned()));
        if self.handlers.is_empty() {
            return refuse("it has no handler; give it one with handle()");
        }
        if self.concurrency == 0 {
            return refuse("its concurrency is zero");
        }
        let queues = self.queues?;
        if queues.is_empty() {
            return refuse("it listens to no queue");
        }
        let most = ClaimMany::NAMES_MAX;
        if queues.len() > most || self.handlers.len() > most {
            let why = "it names more than {most} queues or kinds; let several workers share them";
            return refuse(&why.replace("{most}", &most.to_string()));
        }
        let renew_every = self.renew_every.unwrap_or(self.lease / 10);
        if renew_every.is_zero() || renew_every > self.lease / 2 {
            return refuse("it must renew at least twice in a lease");
        }
        let random = self.engine.inner().ids.random();
        let worker = WorkerId::new(format!("{}-{:08x}", self.name, random & 0xffff_ffff))?;
        let slots = Slots {
            concurrency: self.concurrency,
            ahead_max: self.ahead_max.unwrap_or(0),
            tenant_max: self.tenant_max.unwrap_or(usize::MAX).max(1),
            reports_max: (self.concurrency * 2).max(1_000),
        };
        Ok(Shared {
            engine: self.engine,
            worker,
            queues,
            handlers: self.handlers,
            layers: self.layers.into(),
            executions: Arc::new(Executions::new(slots)),
            outbox: Outbox::default(),
            observer: self.observer,
            lease: self.lease,
            renew_every,
            poll: self.poll,
        })
    }
}

/// A worker that runs. Dropping it shuts it down in the background.
#[derive(Debug)]
#[must_use = "dropping it shuts it down"]
pub struct Worker {
    worker: WorkerId,
    orders: watch::Sender<Orders>,
    grace: Duration,
    task: Option<JoinHandle<Result<(), Error>>>,
}

impl Worker {
    /// Its name, which is new at each start.
    pub fn id(&self) -> &WorkerId {
        &self.worker
    }

    /// Claims nothing more, says goodbye, gives back what has not started, and lets the rest finish within the grace
    /// period. What is still running then is interrupted, and goes on elsewhere; that uses up nothing.
    ///
    /// From its goodbye on it listens to nothing: [`Engine::why`] does not count on it any more. A store that does not
    /// answer keeps it from its end no longer than a moment.
    pub async fn shutdown(mut self) -> Result<(), Error> {
        self.orders.send_replace(Orders::End { grace: Some(self.grace) });
        self.ended().await
    }

    /// The same, but it waits for what runs as long as it takes.
    pub async fn drain(mut self) -> Result<(), Error> {
        self.orders.send_replace(Orders::End { grace: None });
        self.ended().await
    }

    /// Waits until it has ended by itself, because the store has stopped.
    pub async fn ended(&mut self) -> Result<(), Error> {
        match &mut self.task {
            Some(task) => {
                let ended = task.await;
                self.task = None;
                ended.unwrap_or_else(|error| Err(Error::Worker(error.to_string())))
            }
            None => Ok(()),
        }
    }

    /// Ends it like a crash: nothing is given back, nothing is reported, and its leases stay until they lapse.
    pub fn kill(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders.send_replace(Orders::End { grace: Some(self.grace) });
    }
}
