//! The life of a worker: claim, run, renew; and at a shutdown say goodbye and end in good order.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use windlass_kernel::{By, Jitter, Job, Kind, Op, Queue, WorkerId, ops::Release};
use windlass_store::{Granted, Write, read::Word};

use super::{
    claim::claim_all,
    executions::Executions,
    handler::AnyHandler,
    middleware::Middleware,
    notice::Notice,
    renew::renew,
    report::{Observer, Outbox},
};
use crate::{Engine, Error, engine};

/// What the parts of a worker share.
pub(super) struct Shared {
    pub(super) engine: Engine,
    pub(super) worker: WorkerId,
    pub(super) queues: Vec<Queue>,
    pub(super) handlers: BTreeMap<Kind, AnyHandler>,
    pub(super) layers: Arc<[Arc<dyn Middleware>]>,
    pub(super) executions: Arc<Executions>,
    pub(super) outbox: Outbox,
    pub(super) observer: Option<Observer>,
    pub(super) lease: Duration,
    pub(super) renew_every: Duration,
    pub(super) poll: Duration,
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Orders {
    /// Go on.
    Work,
    /// Claim nothing more, and let what runs come to its end; after the grace period give it back.
    End {
        /// None waits as long as it takes.
        grace: Option<Duration>,
    },
}

/// How long a handler that was dropped may take to let go.
const LET_GO: Duration = Duration::from_secs(1);
/// How long a goodbye may take. It is a courtesy: without it others find out by themselves.
const GOODBYE: Duration = Duration::from_secs(2);

impl Shared {
    pub(super) fn inner(&self) -> &Arc<engine::Inner> {
        self.engine.inner()
    }

    pub(super) fn by(&self) -> By {
        By::worker(self.worker.clone())
    }

    pub(super) fn engine_of(&self, job: &Job) -> Engine {
        self.engine.of_handler(job, &self.worker)
    }

    pub(super) fn jitter(&self) -> Jitter {
        self.inner().jitter()
    }
}

/// Works until it is told to end. It fails if the store has stopped.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut orders: watch::Receiver<Orders>,
) -> Result<(), Error> {
    let mut tasks = JoinSet::new();
    let grace = {
        let renewing = renew(&shared);
        let claiming = claim_all(&shared, &mut tasks, orders.clone());
        tokio::select! {
            biased;
            ended = claiming => ended?,
            () = renewing => unreachable!("it renews until it is dropped"),
        }
    };
    let renewing = renew(&shared);
    let ending = end(&shared, &mut tasks, grace, &mut orders);
    let ending = async { tokio::join!(say_goodbye(&shared, grace), ending) };
    tokio::select! {
        biased;
        ((), ()) = ending => {}
        () = renewing => unreachable!("it renews until it is dropped"),
    }
    if let Some(store) = &shared.inner().own {
        // If it fails, the session is found dead or lapses; it holds nothing.
        let _ = store.stop_vouching(&shared.worker).await;
    }
    Ok(())
}

/// Says that this worker listens to nothing any more. What it holds it keeps until it is done with it.
async fn say_goodbye(shared: &Shared, grace: Option<Duration>) {
    let (worker, word) = (shared.worker.clone(), Word::Goodbye);
    let goodbye = Write::Listens { worker, tenant: None, word };
    let most = grace.unwrap_or(GOODBYE).min(GOODBYE);
    let _ = tokio::time::timeout(most, shared.inner().submit_known(goodbye)).await;
}

/// Gives back what has not started, and lets the rest finish within the grace period.
async fn end(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    grace: Option<Duration>,
    orders: &mut watch::Receiver<Orders>,
) {
    release(shared, shared.executions.take_queue()).await;
    shared.executions.tell_all(Notice::Shutdown);
    let began = Instant::now();
    let (mut grace, mut is_handled) = (grace, true);
    loop {
        let over = async {
            match grace {
                Some(grace) => sleep_until(began + grace).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = all_ended(shared, tasks) => return,
            () = over => break,
            // A drain whose caller gives up becomes a shutdown, which has a grace period.
            changed = orders.changed(), if is_handled => {
                is_handled = changed.is_ok();
                if let Orders::End { grace: shorter } = *orders.borrow() {
                    grace = shorter;
                }
            }
        }
    }
    shared.executions.tell_all(Notice::Abandon);
    // One that blocks its thread cannot be dropped. Its lease lapses.
    let _ = tokio::time::timeout(LET_GO, all_ended(shared, tasks)).await;
}

/// Waits until nothing runs any more and everything is reported.
async fn all_ended(shared: &Shared, tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
    shared.executions.idle().await;
}

/// Gives back what has not started.
pub(super) async fn release(shared: &Shared, queue: Vec<Granted>) {
    let release = |granted: Granted| {
        let (job_id, epoch) = (granted.job.id, granted.job.epoch);
        let tenant = granted.job.spec.tenant.clone();
        Write::Op { tenant, op: Op::Release(Release { job_id, epoch, by: shared.by() }) }
    };
    // A job whose release fails is freed when its lease runs out, or given back after a renewal.
    let _ = shared.inner().submit_many(queue.into_iter().map(release).collect()).await;
}
