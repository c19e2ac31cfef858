//! What a durable handler sees.

use std::{
    collections::BTreeMap, future::Future, marker::PhantomData, ops::RangeInclusive,
    panic::Location, sync::Arc, time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use windlass_kernel::{
    Digest, Failure, JobId, Payload, Refusal, Timestamp,
    failure::STEP_UNFIT,
    ids::{Channel, CorrelationKey, StepKey},
    ledger::{Mode, Shape, StepOp, StepOutcome},
};

use super::{
    Child, Exec, Fx, Receive, Signal, Sleep, Step, StepError,
    exec::nested,
    journal::Wanted,
    wait::{Waiting, shape},
};
use crate::{
    Error, JobRequest,
    worker::{BoxError, Context},
};

/// The context of a durable handler: what it does through this is recorded, and survives any crash.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
/// use windlass::{HandlerResult, Work, durable::Ctx};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     cents: u32,
/// }
///
/// impl Work for Order {
///     const KIND: &str = "order";
/// }
///
/// async fn order(ctx: &Ctx, order: Order) -> HandlerResult<u32> {
///     let price = ctx.step("price", |_| async { Ok::<_, windlass::BoxError>(order.cents * 2) }).pure().await?;
///     let charge = ctx
///         .step("charge", move |fx| {
///             let key = fx.key().to_owned();
///             async move { charge(&key, price).await }
///         })
///         .once()
///         .await?;
///     let approved: bool = ctx.signal("approve").within(Duration::from_secs(3 * 24 * 3600)).await?;
///     Ok(if approved { charge } else { 0 })
/// }
///
/// async fn charge(key: &str, price: u32) -> Result<u32, windlass::BoxError> {
///     Ok(price)
/// }
/// ```
#[derive(Debug)]
pub struct Ctx {
    pub(super) exec: Arc<Exec>,
    shielded: bool,
}

impl Ctx {
    pub(super) fn new(exec: Arc<Exec>) -> Self {
        Self { exec, shielded: false }
    }

    /// The context of the execution: the job, its attempt, its worker.
    pub fn context(&self) -> &Context {
        &self.exec.context
    }

    /// The id of the job.
    pub fn job_id(&self) -> JobId {
        self.exec.job_id()
    }

    /// A step: code whose result is recorded. Its key is fixed here, by its name and its place among steps of that name.
    #[track_caller]
    pub fn step<'f, F, R, T, E>(&self, name: &str, effect: F) -> Step<'f, F>
    where
        F: Fn(Fx) -> R + Send + 'f,
        R: Future<Output = Result<T, E>> + Send,
        T: Serialize + DeserializeOwned + Send,
        E: Into<BoxError>,
    {
        let key = self.key(name, |nth| StepKey::of_step(name, nth));
        Step::new(self.waiting(key, Shape::step(Mode::Pure, None)), effect, Into::into)
    }

    /// Waits for this long. The time is counted by the store's clock, and goes on while no worker is there.
    #[track_caller]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep { waiting: self.op(StepOp::Sleep, ""), duration }
    }

    /// Waits for a signal. There is one for each key, for ever: one that came before is there at once, and asking again gives the same.
    #[track_caller]
    pub fn signal<T: DeserializeOwned>(&self, key: &str) -> Signal<T> {
        let name = CorrelationKey::new(key).map_err(|refusal| refused(&refusal));
        Signal { waiting: self.op(StepOp::Signal, key), name, within: None, result: PhantomData }
    }

    /// Waits for the next message of a channel. Messages come in the order in which they were sent, each once.
    #[track_caller]
    pub fn recv<T: DeserializeOwned>(&self, channel: &str) -> Receive<T> {
        let name = Channel::new(channel).map_err(|refusal| refused(&refusal));
        let waiting = self.op(StepOp::Receive, channel);
        Receive { waiting, channel: name, within: None, result: PhantomData }
    }

    /// Makes a job of its own, and waits for what it gives back. Its id follows from this job and the place in the code, so a
    /// replay makes no second one. It is cancelled with this job.
    #[track_caller]
    pub fn child<T: DeserializeOwned>(&self, request: impl Into<JobRequest>) -> Child<T> {
        let engine = self.exec.context.engine();
        let mut child = JobId::from_u128(0);
        let waiting = match engine.enqueue_op(request.into().parent(self.job_id())) {
            Ok(mut op) => {
                let kind = op.new.kind.to_string();
                let mut waiting = self.op(StepOp::Child, &kind);
                waiting.shape.target = Some(kind);
                if let Some(key) = waiting.key() {
                    child = child_id(self.job_id(), key);
                    op.job_id = child;
                    self.exec.keep_child(key, op);
                }
                waiting
            }
            Err(error) => {
                let failure = Failure::own(STEP_UNFIT, &error.to_string());
                self.waiting(Err(failure), shape(StepOp::Child))
            }
        };
        Child { waiting, child, result: PhantomData }
    }

    /// The time, by the store's clock: that of what was last delivered to the handler. It is the same in every replay and never
    /// runs back.
    pub fn now(&self) -> Timestamp {
        self.exec.journal().now
    }

    /// A number by chance, which is the same in every replay.
    pub fn random(&self) -> u64 {
        u64::try_from(self.chance("@random") >> 64).expect("it is shifted")
    }

    /// A UUID of version 4, which is the same in every replay.
    pub fn uuid(&self) -> u128 {
        const VERSION: u128 = 0xf << 76;
        const VARIANT: u128 = 0b11 << 62;
        (self.chance("@uuid") & !VERSION & !VARIANT) | 0x4 << 76 | 0b10 << 62
    }

    fn chance(&self, name: &str) -> u128 {
        let nth = self.exec.journal().count(name);
        let digest = Digest::of(&format!("{}\n{name}\n{nth}", self.job_id()));
        let bytes: [u8; 16] = digest.as_bytes()[..16].try_into().expect("a digest is longer");
        u128::from_be_bytes(bytes)
    }

    /// Which version of this part of the code the job goes by: the newest that this code knows when the job first comes here,
    /// and the same ever after.
    pub async fn version(&self, name: &str, known: RangeInclusive<u32>) -> Result<u32, StepError> {
        let mut waiting = self.op(StepOp::Version, name);
        let newest = Payload::parse(&known.end().to_string(), 20).expect("a number is JSON");
        let version: u32 = std::future::poll_fn(|task| {
            let value = || Wanted::Value(StepOutcome::Done(newest.clone()));
            match waiting.poll(task, value) {
                std::task::Poll::Ready(Ok(payload)) => waiting.decode(&payload),
                std::task::Poll::Ready(Err(error)) => std::task::Poll::Ready(Err(error)),
                std::task::Poll::Pending => std::task::Poll::Pending,
            }
        })
        .await?;
        if !known.contains(&version) {
            let message = format!(
                "the job goes by version {version} of {name}, and the code knows {known:?}"
            );
            self.exec.journal().park("NONDETERMINISTIC", message, None);
            self.exec.changed.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(version)
    }

    /// The state of the last checkpoint, if there is one.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let state = self.exec.journal().state.clone();
        let state = state.map(|text| serde_json::from_str(&text)).transpose();
        state.map_err(|source| Error::Json { what: "the state of the checkpoint", source })
    }

    /// Saves the state of the handler. After a crash it begins with [`Ctx::state`], and what came before this is not replayed.
    ///
    /// Call it while no step of the handler runs.
    pub async fn checkpoint(&self, state: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(state)
            .map_err(|source| Error::Json { what: "the state of the checkpoint", source })?;
        self.exec.checkpoint(&text).await
    }

    /// The same context, whose operations go on while the job is to be cancelled: for cleaning up.
    pub fn shield(&self) -> Ctx {
        Ctx { exec: self.exec.clone(), shielded: true }
    }

    #[track_caller]
    fn op(&self, op: StepOp, about: &str) -> Waiting {
        let name = format!("@{op}:{about}");
        let key = self.key(&name, |nth| StepKey::of_op(op, about, nth));
        self.waiting(key, shape(op))
    }

    fn key(
        &self,
        name: &str,
        key: impl FnOnce(u32) -> Result<StepKey, Refusal>,
    ) -> Result<StepKey, Failure> {
        if let Some(nested) = nested() {
            return Err(nested);
        }
        let mut journal = self.exec.journal();
        if journal.is_nearly_full() {
            let job = self.job_id();
            tracing::warn!(job.id = %job, "a durable job has used four fifths of its steps");
        }
        key(journal.count(name)).map_err(|refusal| refused(&refusal))
    }

    #[track_caller]
    fn waiting(&self, key: Result<StepKey, Failure>, shape: Shape) -> Waiting {
        let place = Location::caller();
        let mut location = format!("{}:{}", place.file(), place.line());
        if location.len() > 200 {
            location = location.split_off(location.len() - 190);
        }
        Waiting::new(&self.exec, key, shape, Some(location), self.shielded)
    }
}

/// The id of a child: it follows from its parent and the step that makes it.
fn child_id(parent: JobId, key: &StepKey) -> JobId {
    let digest = Digest::of(&format!("child\n{parent}\n{key}"));
    let mut bytes: [u8; 16] = digest.as_bytes()[..16].try_into().expect("a digest is longer");
    // Ids grow with time: the first part is that of the parent.
    bytes[..6].copy_from_slice(&parent.as_u128().to_be_bytes()[..6]);
    JobId::from_u128(u128::from_be_bytes(bytes))
}

fn refused(refusal: &Refusal) -> Failure {
    Failure::own(STEP_UNFIT, &refusal.to_string())
}

/// Children that are to be made, by their steps.
pub(super) type Children = BTreeMap<StepKey, windlass_kernel::ops::Enqueue>;
