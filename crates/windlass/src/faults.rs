//! Faults on purpose, for users' own tests.
//!
//! [`Faults`] is a middleware: a worker that has it fails as it is told, in ways that are hard to bring about
//! otherwise. It exists in debug builds, and in others only with the feature `faults`.
//!
//! ```
//! use windlass::{HandlerResult, Work, faults::{Fault, Faults}, testing};
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! # struct Charge;
//! # impl Work for Charge { const KIND: &str = "charge"; }
//! # async fn charge(_: Charge) -> HandlerResult { Ok(()) }
//! # fn main() {
//! #     let mut runtime = tokio::runtime::Builder::new_current_thread();
//! #     let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
//! #     runtime.block_on(async { example().await.expect("it passes") });
//! # }
//! # async fn example() -> HandlerResult {
//! let faults = Faults::new();
//! faults.inject(Fault::ProcessRestartInterrupt, 1);
//! let engine = testing::engine()?;
//! let worker = engine.worker().layer(faults).handle(charge).start().await?;
//! let job = engine.enqueue(Charge).await?;
//! let ended = engine.wait(job.id).await?;
//! assert!(ended.is_success() && ended.job.interruptions == 1 && ended.job.attempt == 1);
//! # worker.shutdown().await?;
//! # Ok(())
//! # }
//! ```

use std::{
    collections::VecDeque,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

pub use windlass_kernel::failure::TRANSIENT_ERROR;
use windlass_kernel::{
    Failure, Jitter, Kind, Op, Timestamp,
    failure::TASK_TIMEOUT,
    ops::{Expire, Expiry},
};
use windlass_store::Write;

use crate::{
    Clock,
    worker::{BoxFuture, Context, Middleware, Next, Outcome},
};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The handler hangs until its time is over. A job without a time-out fails as if it had one.
    Timeout,
    /// The handler fails in a way that passes, without being run.
    TransientError,
    /// The process that runs the job restarts: the job is interrupted, and goes on elsewhere. The handler is not run.
    ProcessRestartInterrupt,
    /// The lease is taken away while the handler runs, and the worker does not notice: its report is refused.
    LostLease,
    /// The handler is run twice at the same time under one lease, as after a message that is delivered twice.
    DuplicateDelivery,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 5] = [
        Fault::Timeout,
        Fault::TransientError,
        Fault::ProcessRestartInterrupt,
        Fault::LostLease,
        Fault::DuplicateDelivery,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fault::Timeout => "timeout",
            Fault::TransientError => "transient_error",
            Fault::ProcessRestartInterrupt => "process_restart_interrupt",
            Fault::LostLease => "lost_lease",
            Fault::DuplicateDelivery => "duplicate_delivery",
        }
    }

    /// The fault of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.as_str() == name)
    }
}

/// What is to go wrong next. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    planned: Arc<Mutex<VecDeque<Planned>>>,
    jumped_micros: Arc<AtomicI64>,
}

#[derive(Debug)]
struct Planned {
    fault: Fault,
    kind: Option<Kind>,
    times: usize,
}

impl Faults {
    /// Nothing goes wrong yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next so many executions go wrong like this, after those that were planned before.
    pub fn inject(&self, fault: Fault, times: usize) {
        self.planned().push_back(Planned { fault, kind: None, times });
    }

    /// The same for executions of this kind alone.
    pub fn inject_into(&self, kind: &str, fault: Fault, times: usize) {
        let kind = Some(Kind::new(kind).expect("the name of a kind"));
        self.planned().push_back(Planned { fault, kind, times });
    }

    /// Is nothing left of what was planned?
    pub fn is_spent(&self) -> bool {
        self.planned().is_empty()
    }

    /// The clock that an engine or a store is to be given, so that it can [`jump`](Faults::jump).
    pub fn clock(&self, clock: Clock) -> Clock {
        let jumped = self.jumped_micros.clone();
        Arc::new(move || {
            let micros = clock().as_micros().saturating_add(jumped.load(Ordering::SeqCst));
            Timestamp::from_micros(micros)
        })
    }

    /// The clock jumps ahead by this much from now on.
    pub fn jump(&self, ahead: Duration) {
        let micros = i64::try_from(ahead.as_micros()).unwrap_or(i64::MAX);
        self.jumped_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// The clock jumps back by this much from now on.
    pub fn jump_back(&self, back: Duration) {
        let micros = i64::try_from(back.as_micros()).unwrap_or(i64::MAX);
        self.jumped_micros.fetch_sub(micros, Ordering::SeqCst);
    }

    fn next(&self, context: &Context) -> Option<Fault> {
        let mut planned = self.planned();
        let is_meant =
            |plan: &Planned| plan.kind.as_ref().is_none_or(|kind| kind == context.kind());
        let place = planned.iter().position(is_meant)?;
        let plan = &mut planned[place];
        let fault = plan.fault;
        plan.times = plan.times.saturating_sub(1);
        if plan.times == 0 {
            planned.remove(place);
        }
        Some(fault)
    }

    fn planned(&self) -> MutexGuard<'_, VecDeque<Planned>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Middleware for Faults {
    fn around(&self, context: Context, next: Next) -> BoxFuture<Result<Outcome, Failure>> {
        match self.next(&context) {
            None => next.run(context),
            Some(fault) => Box::pin(fail(fault, context, next)),
        }
    }
}

async fn fail(fault: Fault, context: Context, next: Next) -> Result<Outcome, Failure> {
    match fault {
        Fault::Timeout if context.job().spec.timeout.is_some() => pending().await,
        Fault::Timeout => Err(Failure::own(TASK_TIMEOUT, "injected: start_to_close timeout")),
        Fault::TransientError => Err(Failure::own(TRANSIENT_ERROR, "injected")),
        Fault::ProcessRestartInterrupt => {
            take_lease(&context).await?;
            // Nothing comes after the end of a process.
            context.engine().inner().local.lose(context.job_id(), context.epoch());
            pending().await
        }
        Fault::LostLease => {
            take_lease(&context).await?;
            next.run(context).await
        }
        Fault::DuplicateDelivery => {
            let again = next.clone();
            let (first, _second) = tokio::join!(next.run(context.clone()), again.run(context));
            first
        }
    }
}

/// Ends the lease as recovery does when a process has died. The worker is not told.
async fn take_lease(context: &Context) -> Result<(), Failure> {
    let unable = |why: String| Failure::own(TRANSIENT_ERROR, &why);
    let (engine, job_id) = (context.engine(), context.job_id());
    let job = engine.job(job_id).await.map_err(|error| unable(error.to_string()))?;
    let (version, what, jitter) = (job.version, Expiry::DeadSession, Jitter::NONE);
    let op = Op::Expire(Expire { job_id, version, what, jitter });
    let write = Write::Op { tenant: context.tenant().clone(), op };
    // Straight to the Committer, past those who would tell the worker.
    let taken = engine.committer().submit(write).await;
    taken.map(drop).map_err(|error| unable(error.to_string()))
}
