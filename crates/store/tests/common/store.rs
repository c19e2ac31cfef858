//! A store of any backend, whose clock the test sets.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::runtime::Runtime;
use windlass_kernel::{Answer, Job, JobId, Op, Refusal, Timestamp, ops::NewJob};
use windlass_store::{
    Error, Granted, Replies, Reply, Store, Ticks, Write, read::Scope, sqlite::Clock,
};

use super::{Backend, Home, answer, claim_many, enqueue, granted, write};

/// When the clock of a test begins.
pub const START: i64 = 1_772_000_000_000_000;

/// A store, the time that it is told, and a runtime to wait on.
///
/// The fields are dropped in their order: a store may need its runtime to close, and its home is the last to go.
pub struct TestStore {
    pub store: Arc<dyn Store>,
    pub runtime: Runtime,
    pub home: Arc<dyn Home>,
    now: Arc<AtomicI64>,
    /// The monotonic clock, if there is one: time that passes, passes on both.
    ticks: Option<Arc<AtomicI64>>,
}

impl TestStore {
    /// A new store in a home of its own.
    pub fn new(backend: Backend) -> Self {
        Self::open(backend.new_home()).unwrap()
    }

    /// The store of this home.
    pub fn open(home: Arc<dyn Home>) -> Result<Self, Error> {
        let now = Arc::new(AtomicI64::new(START));
        let runtime = runtime(4);
        let store = home.open(clock(&now), &runtime)?;
        Ok(Self { store, runtime, home, now, ticks: None })
    }

    /// The store of this home, with a monotonic clock beside the one that can be set.
    pub fn open_with_ticks(home: Arc<dyn Home>) -> Self {
        let now = Arc::new(AtomicI64::new(START));
        let hand = Some(Arc::new(AtomicI64::new(0)));
        let runtime = runtime(4);
        let store = home.open_with_ticks(clock(&now), ticks(&hand), &runtime).unwrap();
        Self { store, runtime, home, now, ticks: hand }
    }

    /// Another node on the same home, with the same clocks.
    pub fn another_node(&self) -> Self {
        let (now, hand, runtime) = (self.now.clone(), self.ticks.clone(), runtime(4));
        let store = self.home.open_with_ticks(clock(&now), ticks(&hand), &runtime).unwrap();
        Self { store, runtime, home: self.home.clone(), now, ticks: hand }
    }

    /// Closes the store and opens it again. The clock goes on.
    #[must_use]
    pub fn reopen(self) -> Self {
        let Self { store, runtime, home, now, ticks: hand } = self;
        drop(store);
        let store = home.open_with_ticks(clock(&now), ticks(&hand), &runtime).unwrap();
        Self { store, runtime, home, now, ticks: hand }
    }

    /// Closes the store and gives back where it was.
    pub fn close(self) -> Arc<dyn Home> {
        self.home
    }

    pub fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> T {
        self.runtime.block_on(future).unwrap()
    }

    pub fn pass(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        self.now.fetch_add(micros, Ordering::SeqCst);
        if let Some(ticks) = &self.ticks {
            ticks.fetch_add(micros, Ordering::SeqCst);
        }
    }

    /// The clock is set ahead.
    pub fn go_ahead(&self, time: Duration) {
        self.now.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// The clock is set back.
    pub fn go_back(&self, time: Duration) {
        self.now.fetch_sub(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst))
    }

    pub fn commit(&self, writes: Vec<Write>) -> Replies {
        self.wait(self.store.commit(writes.into()))
    }

    /// One write, alone.
    pub fn write(&self, write: Write) -> Result<Reply, Refusal> {
        self.commit(vec![write]).remove(0)
    }

    /// An op of the usual tenant.
    pub fn op(&self, op: impl Into<Op>) -> Result<Answer, Refusal> {
        self.write(write(op)).map(|reply| answer(&reply))
    }

    pub fn enqueue(&self, number: u128, new: NewJob) -> JobId {
        self.op(enqueue(number, new)).unwrap().job_id
    }

    /// A worker takes jobs from the default queue and starts them.
    pub fn claim(&self, worker: &str, claim: u128, max: usize) -> Vec<Granted> {
        granted(&self.write(claim_many(worker, claim, max)).unwrap())
    }

    pub fn job(&self, id: JobId) -> Job {
        self.wait(self.store.job(&Scope::Every, id)).unwrap()
    }
}

/// A runtime that goes on with what a store does in the background also while nobody waits for it.
pub fn runtime(threads: usize) -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(threads).enable_all().build().unwrap()
}

fn ticks(hand: &Option<Arc<AtomicI64>>) -> Option<Ticks> {
    let hand = hand.clone()?;
    let ticks = move || hand.load(Ordering::SeqCst).unsigned_abs();
    Some(Arc::new(move || Duration::from_micros(ticks())))
}

/// A clock that shows what the test sets.
pub fn clock(now: &Arc<AtomicI64>) -> Clock {
    let now = now.clone();
    Arc::new(move || Timestamp::from_micros(now.load(Ordering::SeqCst)))
}
