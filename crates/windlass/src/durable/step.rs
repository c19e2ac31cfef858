//! Steps: pieces of a handler whose results are recorded.

use std::{
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::{Sleep as Timer, sleep};
use windlass_kernel::{
    Digest, Failure, Payload,
    failure::{RESULT_UNFIT, STEP_FAILED, STEP_TIMEOUT},
    ids::StepKey,
    ledger::{self, RecordedBy, Shape, StepOutcome},
};

use super::{
    Exec, StepError,
    exec::{unknown, within_step},
    journal::{Phase, Wanted},
    wait::Waiting,
};
use crate::worker::{BoxError, BoxFuture, Fence, Stop, failure_of};

/// A step that is being set up. It runs when it has said its mode and is awaited.
///
/// The mode says what may happen if the worker dies in the middle of the step:
///
/// - [`once`](Step::once): it is begun, durably, before its effect runs. If its worker is lost before the result is recorded, the
///   effect is never run again unless it is known that nothing happened.
/// - [`idempotent`](Step::idempotent): it is run again with the same [`Fx::key`], and the other side sees that it is the same.
/// - [`pure`](Step::pure): it has no effect outside, so it is simply run again.
#[must_use = "a step runs when it has a mode and is awaited"]
pub struct Step<'f, F: Effect, M = Unsaid> {
    waiting: Waiting,
    effect: Box<F>,
    /// Takes an error of the code for any error. It is known where the step is made, so that nothing has to be proven of the
    /// error while the handler's future is looked at.
    convert: fn(F::Error) -> BoxError,
    input: Option<Digest>,
    timeout: Option<Duration>,
    retry: StepRetry,
    reconcile: Option<Reconcile<'f>>,
    on_unknown: OnUnknown,
    upgrade: Option<Upgrade<'f, F::Output>>,
    mode: PhantomData<fn() -> M>,
}

type Reconcile<'f> = Box<dyn Fn(Fx) -> Asking<'f> + Send + 'f>;
type Asking<'f> = Pin<Box<dyn Future<Output = Reconciled<Payload>> + Send + 'f>>;
type Upgrade<'f, T> = Box<dyn Fn(Value) -> Result<T, BoxError> + Send + 'f>;

/// A mode that was not said yet.
pub struct Unsaid;
/// See [`Step::once`].
pub struct Once;
/// See [`Step::idempotent`].
pub struct Idempotent;
/// See [`Step::pure`].
pub struct Pure;

/// What may happen to a step if its worker dies.
#[diagnostic::on_unimplemented(
    message = "this step does not say what may happen if the worker dies in the middle of it",
    label = "say `.once()`, `.idempotent()` or `.pure()` before `.await`",
    note = "`.once()`: never run again unless it is known that nothing happened",
    note = "`.idempotent()`: run again with the same key",
    note = "`.pure()`: no effect outside, so it can be run again"
)]
pub trait Mode: Send + Unpin + 'static {
    /// Its name.
    const MODE: ledger::Mode;
}

impl Mode for Once {
    const MODE: ledger::Mode = ledger::Mode::Once;
}

impl Mode for Idempotent {
    const MODE: ledger::Mode = ledger::Mode::Idempotent;
}

impl Mode for Pure {
    const MODE: ledger::Mode = ledger::Mode::Pure;
}

/// The code of a step: a closure that takes an [`Fx`] and gives a future.
pub trait Effect: Send {
    /// Its result.
    type Output: Serialize + DeserializeOwned + Send;
    /// Its error.
    type Error;
    /// What runs.
    type Future: Future<Output = Result<Self::Output, Self::Error>> + Send;

    /// Runs it.
    fn call(&self, fx: Fx) -> Self::Future;
}

impl<F, R, T, E> Effect for F
where
    F: Fn(Fx) -> R + Send,
    R: Future<Output = Result<T, E>> + Send,
    T: Serialize + DeserializeOwned + Send,
{
    type Output = T;
    type Error = E;
    type Future = R;

    fn call(&self, fx: Fx) -> R {
        self(fx)
    }
}

/// What the code of a step knows. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Fx {
    exec: Arc<Exec>,
    key: Arc<str>,
    tries: u32,
}

impl Fx {
    /// The key for the other side: the same in every try and after every crash, and different for every other step.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Which try this is, from 1.
    pub fn try_number(&self) -> u32 {
        self.tries + 1
    }

    /// The fencing token of the execution. It is beside the key and never in it.
    pub fn fence(&self) -> Fence {
        self.exec.context.fence()
    }

    /// Why the step should come to its end soon; none, if it may go on.
    pub fn stop(&self) -> Option<Stop> {
        self.exec.context.stop()
    }

    /// A sign of life, for a job with a heartbeat time-out.
    pub async fn heartbeat(&self) -> Result<(), crate::Error> {
        self.exec.context.heartbeat().await
    }
}

/// What became of a step that a worker which is gone had begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled<T> {
    /// It happened, and this is its result.
    Happened(T),
    /// Nothing happened: it may run.
    NotDone,
    /// Nobody can tell.
    Unknown,
}

/// Shorter for [`Reconciled::Happened`].
pub use self::Reconciled::Happened;

/// The error of a `once` step of which it is certain that nothing happened: it may be tried again.
#[derive(Debug, thiserror::Error)]
#[error("nothing happened: {0}")]
pub struct NotDone(#[source] pub BoxError);

impl NotDone {
    /// Nothing happened, for this reason.
    pub fn because(why: impl Into<BoxError>) -> Self {
        Self(why.into())
    }
}

/// What becomes of a job when nobody knows what became of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnknown {
    /// It fails with `EFFECT_UNKNOWN`, and its dead letter says which step it was.
    #[default]
    DeadLetter,
    /// It waits until a person states what happened.
    Ask,
    /// The code is given [`StepError::Unknown`].
    Hand,
}

/// How often a step is tried, and how long in between. A step that says nothing is tried once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRetry {
    tries: u32,
    backoff: Duration,
}

impl StepRetry {
    /// So many tries in all, with a second before the second one and twice as long before each further one.
    pub fn times(tries: u32) -> Self {
        Self { tries: tries.max(1), backoff: Duration::from_secs(1) }
    }

    /// How long before the second try.
    pub fn backoff(mut self, backoff: Duration) -> Self {
        self.backoff = backoff;
        self
    }

    fn next(&self, failed: u32) -> Option<Duration> {
        (failed < self.tries).then(|| self.backoff * 2_u32.saturating_pow((failed - 1).min(16)))
    }
}

impl<'f, F: Effect> Step<'f, F> {
    pub(super) fn new(waiting: Waiting, effect: F, convert: fn(F::Error) -> BoxError) -> Self {
        Self {
            waiting,
            effect: Box::new(effect),
            convert,
            input: None,
            timeout: None,
            retry: StepRetry::times(1),
            reconcile: None,
            on_unknown: OnUnknown::default(),
            upgrade: None,
            mode: PhantomData,
        }
    }

    /// Its effect runs at most once: it is begun, durably, before it runs, and behind a crash it is not run blindly.
    ///
    /// An error means that it may have happened, unless it is [`NotDone`]. Its future owns what it uses, because the engine brings
    /// a step that has begun to its record even if the code stops waiting for it.
    pub fn once(self) -> Step<'f, F, Once>
    where
        F::Future: 'static,
        F::Output: 'static,
        F::Error: 'static,
    {
        self.of_mode()
    }

    /// It is run again with the same key if its worker dies.
    pub fn idempotent(self) -> Step<'f, F, Idempotent> {
        self.of_mode()
    }

    /// It has no effect outside. Its result is durable before something outside can depend on it, and not before.
    pub fn pure(self) -> Step<'f, F, Pure> {
        self.of_mode()
    }

    fn of_mode<M>(self) -> Step<'f, F, M> {
        Step {
            waiting: self.waiting,
            effect: self.effect,
            convert: self.convert,
            input: self.input,
            timeout: self.timeout,
            retry: self.retry,
            reconcile: self.reconcile,
            on_unknown: self.on_unknown,
            upgrade: self.upgrade,
            mode: PhantomData,
        }
    }
}

impl<F: Effect, M> Step<'_, F, M> {
    /// What goes into it. It is part of the key, and a replay compares it.
    pub fn input(mut self, input: &impl Serialize) -> Self {
        let text = serde_json::to_string(input).unwrap_or_default();
        self.input = Exec::payload(&text).ok().map(|payload| payload.digest());
        self
    }

    /// How long one try may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How often it is tried.
    pub fn retry(mut self, retry: StepRetry) -> Self {
        self.retry = retry;
        self
    }
}

impl<'f, F: Effect> Step<'f, F, Once> {
    /// Asks the other side what became of the step. It may be asked more than once; an error means that it cannot tell.
    pub fn reconcile<C, R, E>(mut self, ask: C) -> Self
    where
        C: Fn(Fx) -> R + Send + 'f,
        R: Future<Output = Result<Reconciled<F::Output>, E>> + Send + 'f,
    {
        self.reconcile = Some(Box::new(move |fx| {
            let asking = ask(fx);
            Box::pin(async move {
                match asking.await {
                    Ok(Reconciled::Happened(value)) => match encode(&value) {
                        Ok(payload) => Reconciled::Happened(payload),
                        Err(_) => Reconciled::Unknown,
                    },
                    Ok(Reconciled::NotDone) => Reconciled::NotDone,
                    Ok(Reconciled::Unknown) | Err(_) => Reconciled::Unknown,
                }
            })
        }));
        self
    }

    /// What becomes of the job when nobody knows what became of this step.
    pub fn on_unknown(mut self, choice: OnUnknown) -> Self {
        self.on_unknown = choice;
        self
    }
}

impl<'f, F: Effect, M> Step<'f, F, M> {
    /// Reads a record that is not what the code expects any more.
    pub fn upgrade(
        mut self,
        read: impl Fn(Value) -> Result<F::Output, BoxError> + Send + 'f,
    ) -> Self {
        self.upgrade = Some(Box::new(read));
        self
    }
}

impl<'f, F, M> IntoFuture for Step<'f, F, M>
where
    F: Effect + 'f,
    M: Mode,
    Running<'f, F, M>: Future<Output = Result<F::Output, StepError>>,
{
    type Output = Result<F::Output, StepError>;
    type IntoFuture = Running<'f, F, M>;

    fn into_future(mut self) -> Self::IntoFuture {
        self.waiting.shape = Shape::step(M::MODE, self.input);
        Running { step: self, work: Work::None }
    }
}

/// A step that is awaited.
pub struct Running<'f, F: Effect, M> {
    step: Step<'f, F, M>,
    work: Work<'f, F::Future>,
}

enum Work<'f, R> {
    None,
    Here { running: Pin<Box<R>>, timer: Option<Pin<Box<Timer>>>, tries: u32 },
    Asks(Asking<'f>),
}

impl<F, M> Running<'_, F, M>
where
    F: Effect,
    M: Mode,
{
    fn fx(&self, tries: u32) -> Fx {
        let exec = self.step.waiting.exec().clone();
        let key = self.step.waiting.key().expect("a step without a key is never run");
        let key = ledger::Step::downstream_key(exec.job_id(), key, self.step.input).into();
        Fx { exec, key, tries }
    }

    /// The phase of the step, if it is time to do something.
    fn phase(&self) -> Option<Phase> {
        let key = self.step.waiting.key()?;
        let journal = self.step.waiting.exec().journal();
        journal.cells.get(key).map(|cell| cell.phase.clone())
    }

    fn set(&self, phase: Phase) {
        if let Some(key) = self.step.waiting.key() {
            let mut journal = self.step.waiting.exec().journal();
            if let Some(cell) = journal.cells.get_mut(key) {
                cell.phase = phase;
            }
        }
    }

    fn key(&self) -> StepKey {
        self.step.waiting.key().expect("it was asked for").clone()
    }

    fn end(&self, outcome: StepOutcome, by: RecordedBy) {
        let key = self.key();
        self.step.waiting.exec().journal().end(&key, outcome, by, None);
    }

    /// A try failed, and it is certain that it may be made again.
    fn failed(&self, failure: Failure, tries: u32) {
        let exec = self.step.waiting.exec();
        match self.step.retry.next(tries + 1).filter(|_| failure.retryable) {
            Some(pause) => {
                let pause = failure.retry_after.map_or(pause, |least| pause.max(least));
                let next_try_at = Some(exec.context.engine().inner().now().plus(pause));
                exec.journal().try_failed(&self.key(), failure, next_try_at);
            }
            None => self.end(StepOutcome::Failed(failure), RecordedBy::Executed),
        }
    }

    /// Nobody knows whether it happened, and the other side could not tell.
    fn unknown(&self, why: &str) {
        let (exec, key) = (self.step.waiting.exec(), self.key());
        match self.step.on_unknown {
            OnUnknown::DeadLetter => exec.give_up(&key, why),
            OnUnknown::Ask => exec.ask_operator(&key, why),
            OnUnknown::Hand => {
                self.end(StepOutcome::Failed(unknown(&key, why)), RecordedBy::Executed);
            }
        }
    }

    /// Asks the other side. False, if nobody can be asked: then it is as the step says.
    fn reconcile(&mut self, why: &str) -> bool {
        let Some(ask) = &self.step.reconcile else {
            self.unknown(why);
            return false;
        };
        self.work = Work::Asks(ask(self.fx(0)));
        self.set(Phase::Runs);
        true
    }

    fn poll_asking(&mut self, task: &mut TaskContext<'_>) {
        let Work::Asks(asking) = &mut self.work else { return };
        let Poll::Ready(answer) = within_step(|| asking.as_mut().poll(task)) else { return };
        self.work = Work::None;
        match answer {
            Reconciled::Happened(payload) => {
                self.end(StepOutcome::Done(payload), RecordedBy::Reconciled);
            }
            Reconciled::NotDone => {
                let failure = Failure::own(STEP_FAILED, "nothing had happened");
                let key = self.key();
                self.step.waiting.exec().journal().try_failed(&key, failure, None);
            }
            Reconciled::Unknown => {
                self.set(Phase::Unknown);
                self.unknown("the other side cannot tell");
            }
        }
    }
}

impl<F, M> Running<'_, F, M>
where
    F: Effect,
    M: Mode,
{
    /// Runs it as part of the handler.
    fn run_here(&mut self, tries: u32) {
        let running = Box::pin(self.step.effect.call(self.fx(tries)));
        let timer = self.step.timeout.map(|timeout| Box::pin(sleep(timeout)));
        self.work = Work::Here { running, timer, tries };
        self.set(Phase::Runs);
    }

    fn poll_here(&mut self, task: &mut TaskContext<'_>) {
        let Work::Here { running, timer, tries } = &mut self.work else { return };
        let (tries, convert) = (*tries, self.step.convert);
        let polled = within_step(|| running.as_mut().poll(task));
        let ended = match polled {
            Poll::Ready(ended) => ended.map_err(|error| step_failure(convert(error))),
            Poll::Pending => {
                let timer = timer.as_mut().map(|timer| timer.as_mut().poll(task));
                match timer {
                    Some(Poll::Ready(())) => Err(timed_out()),
                    _ => return,
                }
            }
        };
        self.work = Work::None;
        match ended.and_then(|value| encode(&value)) {
            Ok(payload) => self.end(StepOutcome::Done(payload), RecordedBy::Executed),
            Err(failure) => self.failed(failure, tries),
        }
    }
}

/// What a step does when it may run, by its mode.
pub(super) trait Run {
    fn run(&mut self, tries: u32);
}

impl<F> Run for Running<'_, F, Pure>
where
    F: Effect,
{
    fn run(&mut self, tries: u32) {
        self.run_here(tries);
    }
}

impl<F> Run for Running<'_, F, Idempotent>
where
    F: Effect,
{
    fn run(&mut self, tries: u32) {
        self.run_here(tries);
    }
}

impl<F> Run for Running<'_, F, Once>
where
    F: Effect,
    F::Future: 'static,
    F::Output: 'static,
    F::Error: 'static,
{
    /// Runs it beside the handler: it comes to its record even if nobody waits for it.
    fn run(&mut self, tries: u32) {
        let (exec, key) = (self.step.waiting.exec().clone(), self.key());
        let mut effect = Box::pin(self.step.effect.call(self.fx(tries)));
        let (timeout, convert) = (self.step.timeout, self.step.convert);
        self.set(Phase::Runs);
        let running: BoxFuture<()> = Box::pin(async move {
            let polled = std::future::poll_fn(|task| within_step(|| effect.as_mut().poll(task)));
            let ended = match timeout {
                Some(timeout) => tokio::time::timeout(timeout, polled).await.ok(),
                None => Some(polled.await),
            };
            let outcome = match ended {
                Some(Ok(value)) => match encode(&value) {
                    Ok(payload) => Ok(payload),
                    // It happened, and its result cannot be kept.
                    Err(failure) => Err(Once::certain(failure)),
                },
                Some(Err(error)) => Err(Once::uncertain(convert(error))),
                None => Err(Uncertain::Maybe(timed_out().message)),
            };
            match outcome {
                Ok(payload) => exec.ended_beside(&key, StepOutcome::Done(payload)),
                Err(Uncertain::Failed(failure)) => {
                    exec.ended_beside(&key, StepOutcome::Failed(failure));
                }
                Err(Uncertain::NotDone(failure)) => {
                    exec.once_failed(&key, OnceEnd::NotDone(failure));
                }
                Err(Uncertain::Maybe(why)) => exec.once_failed(&key, OnceEnd::Maybe(why)),
            }
        });
        tokio::spawn(running);
    }
}

/// How a `once` step ended without a result.
enum Uncertain {
    /// It is on record as failed.
    Failed(Failure),
    /// Nothing happened.
    NotDone(Failure),
    /// It may have happened.
    Maybe(String),
}

/// How the driver hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OnceEnd {
    NotDone(Failure),
    Maybe(String),
}

impl Once {
    fn certain(failure: Failure) -> Uncertain {
        Uncertain::Failed(failure)
    }

    fn uncertain(error: BoxError) -> Uncertain {
        match error.downcast::<NotDone>() {
            Ok(not_done) => Uncertain::NotDone(step_failure(not_done.0)),
            Err(error) => Uncertain::Maybe(step_failure(error).message),
        }
    }
}

impl<F, M> Future for Running<'_, F, M>
where
    F: Effect,
    M: Mode,
    Self: Run,
{
    type Output = Result<F::Output, StepError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        loop {
            match self.step.waiting.poll(task, || Wanted::Step) {
                Poll::Ready(Ok(payload)) => return self.decode(&payload),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
            match (self.phase(), &self.work) {
                (Some(Phase::May { tries }), _) => self.run(tries),
                (Some(Phase::Unknown), _) => {
                    if !self.reconcile("its worker was lost") {
                        return Poll::Pending;
                    }
                }
                (Some(Phase::Maybe(why)), _) => {
                    if !self.reconcile(&why) {
                        return Poll::Pending;
                    }
                }
                (Some(Phase::NotDone(failure)), _) => {
                    let tries = self.step.waiting.exec().journal().tries(&self.key());
                    self.failed(failure, tries);
                    return Poll::Pending;
                }
                (Some(Phase::Runs), Work::Here { .. }) => {
                    self.poll_here(task);
                    return Poll::Pending;
                }
                (Some(Phase::Runs), Work::Asks(_)) => {
                    self.poll_asking(task);
                    return Poll::Pending;
                }
                _ => return Poll::Pending,
            }
        }
    }
}

impl<F: Effect, M> Running<'_, F, M> {
    fn decode(&self, payload: &Payload) -> Poll<Result<F::Output, StepError>> {
        if let Some(upgrade) = &self.step.upgrade
            && serde_json::from_str::<F::Output>(payload.as_str()).is_err()
            && let Ok(old) = serde_json::from_str(payload.as_str())
            && let Ok(value) = upgrade(old)
        {
            return Poll::Ready(Ok(value));
        }
        self.step.waiting.decode(payload)
    }
}

fn encode(value: &impl Serialize) -> Result<Payload, Failure> {
    let unfit = |why: String| {
        Failure::own(RESULT_UNFIT, &format!("the result of the step cannot be kept: {why}"))
    };
    let text = serde_json::to_string(value).map_err(|error| unfit(error.to_string()))?;
    Exec::payload(&text).map_err(|refusal| unfit(refusal.to_string()))
}

/// The failure that an error of a step is.
fn step_failure(error: BoxError) -> Failure {
    let failure = failure_of(error);
    match failure.code.as_str() {
        windlass_kernel::failure::HANDLER_FAILED => {
            Failure { message: failure.message, ..Failure::own(STEP_FAILED, "") }
        }
        _ => failure,
    }
}

fn timed_out() -> Failure {
    Failure::own(STEP_TIMEOUT, "the step took longer than its time-out")
}
