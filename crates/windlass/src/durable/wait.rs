//! Waits: a time, a signal, a message, the end of a child.
//!
//! A job whose handler can only wait is parked: it holds no lease, no slot and no memory until what it waits for is there.

use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use serde::de::DeserializeOwned;
use windlass_kernel::{
    Failure, JobId, Payload,
    ids::{Channel, CorrelationKey, StepKey},
    ledger::{Shape, StepOp},
};

use super::{
    Exec, StepError,
    journal::{Cell, Phase, Wanted},
};

/// A durable operation that is waited for.
pub(super) struct Waiting {
    exec: Arc<Exec>,
    key: Result<StepKey, Failure>,
    asked: bool,
    pub(super) shape: Shape,
    pub(super) location: Option<String>,
    pub(super) shielded: bool,
}

impl Waiting {
    pub(super) fn new(
        exec: &Arc<Exec>,
        key: Result<StepKey, Failure>,
        shape: Shape,
        location: Option<String>,
        shielded: bool,
    ) -> Self {
        Self { exec: exec.clone(), key, asked: false, shape, location, shielded }
    }

    pub(super) fn key(&self) -> Option<&StepKey> {
        self.key.as_ref().ok()
    }

    pub(super) fn exec(&self) -> &Arc<Exec> {
        &self.exec
    }

    pub(super) fn poll(
        &mut self,
        task: &TaskContext<'_>,
        wanted: impl FnOnce() -> Wanted,
    ) -> Poll<Result<Payload, StepError>> {
        let key = match &self.key {
            Ok(key) => key,
            Err(failure) => return Poll::Ready(Err(StepError::Failed(failure.clone()))),
        };
        let (shape, location, shielded) = (&self.shape, &mut self.location, self.shielded);
        self.exec.poll(key, &mut self.asked, task, || Cell {
            shape: shape.clone(),
            wanted: wanted(),
            location: location.take(),
            phase: Phase::Asked,
            waker: None,
            shielded,
            dropped: false,
        })
    }

    /// Reads what was recorded; if it is not what the code expects, a person has to look.
    pub(super) fn decode<T: DeserializeOwned>(
        &self,
        payload: &Payload,
    ) -> Poll<Result<T, StepError>> {
        match serde_json::from_str(payload.as_str()) {
            Ok(value) => Poll::Ready(Ok(value)),
            Err(error) => {
                let key = self.key().map_or("", StepKey::as_str);
                let expected = std::any::type_name::<T>();
                let message = format!("what is on record of {key} is no {expected}: {error}");
                self.exec.journal().park("STEP_DECODE", message, None);
                self.exec.changed.notify_one();
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (true, Ok(key)) = (self.asked, &self.key) {
            self.exec.journal().drop_asked(key);
        }
    }
}

/// A wait for a time: see [`Ctx::sleep`](super::Ctx::sleep).
#[must_use = "a sleep begins when it is awaited"]
pub struct Sleep {
    pub(super) waiting: Waiting,
    pub(super) duration: Duration,
}

impl Future for Sleep {
    type Output = Result<(), StepError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let now = self.waiting.exec().context.engine().inner().now();
        let until = now.plus(self.duration);
        self.waiting.poll(task, || Wanted::Sleep { until }).map_ok(drop)
    }
}

/// A wait for a signal: see [`Ctx::signal`](super::Ctx::signal).
#[must_use = "a wait begins when it is awaited"]
pub struct Signal<T> {
    pub(super) waiting: Waiting,
    pub(super) name: Result<CorrelationKey, Failure>,
    pub(super) within: Option<Duration>,
    pub(super) result: PhantomData<fn() -> T>,
}

impl<T> Signal<T> {
    /// It has to come within this time, or [`StepError::TimedOut`] comes instead.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }
}

impl<T: DeserializeOwned> Future for Signal<T> {
    type Output = Result<T, StepError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let key = match &self.name {
            Ok(key) => key.clone(),
            Err(failure) => return Poll::Ready(Err(StepError::Failed(failure.clone()))),
        };
        let now = self.waiting.exec().context.engine().inner().now();
        let until = self.within.map(|within| now.plus(within));
        match self.waiting.poll(task, || Wanted::Signal { key, until }) {
            Poll::Ready(Ok(payload)) => self.waiting.decode(&payload),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// A wait for the next message of a channel: see [`Ctx::recv`](super::Ctx::recv).
#[must_use = "a wait begins when it is awaited"]
pub struct Receive<T> {
    pub(super) waiting: Waiting,
    pub(super) channel: Result<Channel, Failure>,
    pub(super) within: Option<Duration>,
    pub(super) result: PhantomData<fn() -> T>,
}

impl<T> Receive<T> {
    /// One has to come within this time, or [`StepError::TimedOut`] comes instead.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }
}

impl<T: DeserializeOwned> Future for Receive<T> {
    type Output = Result<T, StepError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let channel = match &self.channel {
            Ok(channel) => channel.clone(),
            Err(failure) => return Poll::Ready(Err(StepError::Failed(failure.clone()))),
        };
        let now = self.waiting.exec().context.engine().inner().now();
        let until = self.within.map(|within| now.plus(within));
        match self.waiting.poll(task, || Wanted::Receive { channel, until }) {
            Poll::Ready(Ok(payload)) => self.waiting.decode(&payload),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The end of a child: see [`Ctx::child`](super::Ctx::child).
#[must_use = "a child is made when it is awaited"]
pub struct Child<T> {
    pub(super) waiting: Waiting,
    pub(super) child: JobId,
    pub(super) result: PhantomData<fn() -> T>,
}

impl<T> Child<T> {
    /// The id of the child. It is the same in every replay.
    pub fn id(&self) -> JobId {
        self.child
    }
}

impl<T: DeserializeOwned> Future for Child<T> {
    type Output = Result<T, StepError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let child = self.child;
        match self.waiting.poll(task, || Wanted::Child { child }) {
            Poll::Ready(Ok(payload)) => self.waiting.decode(&payload),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The shape of a wait.
pub(super) fn shape(op: StepOp) -> Shape {
    Shape::of(op)
}
