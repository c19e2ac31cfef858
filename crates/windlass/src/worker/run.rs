//! The life of a worker: claim, run, renew; and, when it is told to, say goodbye and come to an end in good order.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use windlass_kernel::{
    By, Jitter, Job, Kind, Op, Queue, TenantId, Timestamp, WorkerId, ops::Release,
};
use windlass_store::{self as store, ClaimMany, Granted, Reply, Write, read::Word};

use super::{
    BoxFuture,
    execute::execute,
    executions::{Executions, Wanted},
    handler::AnyHandler,
    middleware::Middleware,
    renew::renew,
    report::{Observer, Outbox},
    signal::{Signal, Signals},
};
use crate::{Engine, Error, SubmitError, engine};

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

/// The most jobs of one claim.
const CLAIM_MAX: usize = 1_000;
/// How long to wait before the next claim after one that failed, at first and later.
const CLAIM_AGAIN: Duration = Duration::from_millis(50);
const CLAIM_AGAIN_MAX: Duration = Duration::from_secs(2);
/// How long to wait for a little more room.
const ROOM_SOON: Duration = Duration::from_millis(2);
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
    // If it fails, the session is found dead or lapses; it holds nothing.
    let _ = shared.inner().store.stop_vouching(&shared.worker).await;
    Ok(())
}

/// Says that this worker listens to nothing any more. What it holds it keeps until it is done with it.
async fn say_goodbye(shared: &Shared, grace: Option<Duration>) {
    let (worker, word) = (shared.worker.clone(), Word::Goodbye);
    let goodbye = Write::Listens { worker, tenant: None, word };
    let most = grace.unwrap_or(GOODBYE).min(GOODBYE);
    let _ = tokio::time::timeout(most, shared.inner().submit_known(goodbye)).await;
}

/// Claims jobs and lets them run, until the worker is told to end.
async fn claim_all(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    mut orders: watch::Receiver<Orders>,
) -> Result<Option<Duration>, Error> {
    let ready = shared.inner().store.ready();
    let (mut ready, mut retry_due) = (ready, shared.inner().local.retry_due.listen());
    // May there be jobs that this worker has not heard of?
    let mut hungry = true;
    // May there be some that wait until this worker is idle? A job that has to be alone waits for that, or lets
    // others wait until it has ended, and nobody tells.
    let mut hungry_when_idle = false;
    // May there be some of tenants that have as many slots as they may?
    let mut hungry_when_changed = false;
    let mut again = CLAIM_AGAIN;
    // When a rule lets the next job go, if time alone does that.
    let mut claim_at = None;
    // Is a little more room worth waiting for? Once.
    let mut patient = true;
    // A claim whose answer was lost, and when it was first sent: what it got, it gets again, and nothing else.
    let mut lost: Option<(ClaimMany, Instant)> = None;
    loop {
        while tasks.try_join_next().is_some() {}
        while let Some((granted, told)) = shared.executions.next() {
            spawn(tasks, shared, granted, false, told);
        }
        let overdue = shared.executions.take_overdue(Instant::now());
        if !overdue.is_empty() {
            let shared = shared.clone();
            tasks.spawn(async move { release(&shared, overdue).await });
        }
        if let Orders::End { grace } = *orders.borrow() {
            return Ok(grace);
        }
        let wanted = match hungry {
            true => shared.executions.wanted(patient, Instant::now()),
            false => Wanted::Nothing,
        };
        if let Wanted::Jobs(max, start) = wanted {
            let (full, room) = shared.executions.tenants();
            let free = max.min(CLAIM_MAX);
            let new = || (wanted_claim(shared, free.min(room), start, full), Instant::now());
            let was_lost = lost.is_some();
            let (claim, sent) = lost.take().unwrap_or_else(new);
            let (max, start) = (claim.max, claim.start);
            // What becomes ready from here on is heard of again.
            ready.mark_heard();
            retry_due.mark_heard();
            patient = true;
            shared.executions.set_claiming(true);
            match send_claim(shared, claim.clone()).await {
                Ok(Claimed { leases, again_at, repeated }) => {
                    claim_at = again_at.map(|at| Instant::now() + at.since(shared.inner().now()));
                    again = CLAIM_AGAIN;
                    // One that was granted something before has not seen what there is now.
                    hungry = repeated || leases.len() >= max;
                    // Those whose slots are all taken may have more, for when one is free.
                    hungry_when_changed = !claim.except.is_empty();
                    hungry_when_idle = leases.is_empty() || leases.iter().any(is_alone);
                    for granted in leases {
                        take(shared, tasks, granted, start, sent);
                    }
                    shared.executions.set_claiming(false);
                }
                Err(SubmitError::Closed) => return Err(Error::Closed),
                Err(SubmitError::Store(error)) if is_the_end(&error) => {
                    return Err(Error::Store(error));
                }
                Err(SubmitError::Refused(refusal)) => return Err(refusal.into()),
                Err(error @ (SubmitError::Store(_) | SubmitError::Full)) => {
                    lost = (was_lost || is_lost(&error)).then_some((claim, sent));
                    shared.executions.set_claiming(false);
                    tokio::select! {
                        biased;
                        _ = orders.changed() => {}
                        () = sleep(again) => {}
                    }
                    again = (again * 2).min(CLAIM_AGAIN_MAX);
                }
            }
            continue;
        }
        if !hungry && !hungry_when_idle && !hungry_when_changed {
            shared.executions.rest();
        }
        let poll = if wanted == Wanted::MoreRoom { ROOM_SOON } else { shared.poll };
        let poll_at = Instant::now() + poll;
        let poll_at = claim_at.map_or(poll_at, |at: Instant| at.min(poll_at));
        let overdue_at = shared.executions.next_overdue().unwrap_or(poll_at);
        tokio::select! {
            biased;
            // The builder's handle is gone: nobody can say anything more.
            changed = orders.changed() => if changed.is_err() {
                return Ok(None);
            },
            () = shared.executions.changed() => {
                hungry |= std::mem::take(&mut hungry_when_changed);
                if shared.executions.is_idle() {
                    hungry |= std::mem::take(&mut hungry_when_idle);
                }
            }
            () = ready.rung() => hungry = true,
            () = retry_due.rung() => hungry = true,
            () = sleep_until(poll_at.min(overdue_at)) => {
                claim_at = claim_at.filter(|_| poll_at > overdue_at);
                hungry |= poll_at <= overdue_at;
                patient = false;
            }
        }
    }
}

/// What a claim got.
struct Claimed {
    leases: Vec<Granted>,
    /// When to ask again at the latest.
    again_at: Option<Timestamp>,
    /// Was it granted something before? Then it gets nothing else.
    repeated: bool,
}

fn wanted_claim(shared: &Shared, max: usize, start: bool, except: Vec<TenantId>) -> ClaimMany {
    ClaimMany {
        claim_id: shared.inner().ids.claim_id(),
        worker: shared.worker.clone(),
        trace_id: None,
        tenant: None,
        except,
        queues: shared.queues.clone(),
        kinds: shared.handlers.keys().cloned().collect(),
        max,
        lease: shared.lease,
        start,
        neighbours: shared.inner().local.neighbours_of(&shared.worker),
    }
}

async fn send_claim(shared: &Shared, wanted: ClaimMany) -> Result<Claimed, SubmitError> {
    match shared.inner().submit_known(Write::Claim(wanted)).await? {
        Reply::Granted { jobs: leases, again_at, repeated } => {
            Ok(Claimed { leases, again_at, repeated })
        }
        _ => unreachable!("a claim is answered by leases"),
    }
}

/// Will no claim ever be answered? What is damaged or contradicts the rules may be mended, and the store's health tells
/// of it meanwhile.
fn is_the_end(error: &store::Error) -> bool {
    let may_pass = matches!(error, store::Error::Damaged(_) | store::Error::Contradiction(_));
    !error.info().retryable && !may_pass
}

/// Does nobody know what became of it?
fn is_lost(error: &SubmitError) -> bool {
    matches!(error, SubmitError::Store(error) if matches!(**error, store::Error::Ambiguous(_)))
}

fn is_alone(granted: &Granted) -> bool {
    granted.job.lease.as_ref().is_some_and(|lease| lease.alone)
}

fn take(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    granted: Granted,
    start: bool,
    claimed_at: Instant,
) {
    let told = shared.executions.add(&granted, start, claimed_at, shared.lease);
    if start {
        spawn(tasks, shared, granted, true, told);
    }
}

/// The task is boxed: tokio copies a task whenever its stage changes, and this one is large.
fn spawn(
    tasks: &mut JoinSet<()>,
    shared: &Arc<Shared>,
    granted: Granted,
    started: bool,
    told: Signals,
) {
    let running: BoxFuture<()> = Box::pin(execute(shared.clone(), granted, started, told));
    tasks.spawn(running);
}

/// Gives back what has not started, and lets the rest finish within the grace period.
async fn end(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    grace: Option<Duration>,
    orders: &mut watch::Receiver<Orders>,
) {
    release(shared, shared.executions.take_queue()).await;
    shared.executions.tell_all(Signal::Shutdown);
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
            // Someone who had time has it no longer.
            changed = orders.changed(), if is_handled => {
                is_handled = changed.is_ok();
                if let Orders::End { grace: shorter } = *orders.borrow() {
                    grace = shorter;
                }
            }
        }
    }
    shared.executions.tell_all(Signal::Abandon);
    // One that blocks its thread cannot be dropped. Its lease lapses.
    let _ = tokio::time::timeout(LET_GO, all_ended(shared, tasks)).await;
}

/// Waits until nothing runs any more and everything is reported.
async fn all_ended(shared: &Shared, tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
    shared.executions.idle().await;
}

/// Gives back what has not started.
async fn release(shared: &Shared, queue: Vec<Granted>) {
    let release = |granted: Granted| {
        let (job_id, epoch) = (granted.job.id, granted.job.epoch);
        let tenant = granted.job.spec.tenant.clone();
        Write::Op { tenant, op: Op::Release(Release { job_id, epoch, by: shared.by() }) }
    };
    // What the store cannot be told of lapses, or is still held at the next renewal.
    let _ = shared.inner().submit_many(queue.into_iter().map(release).collect()).await;
}
