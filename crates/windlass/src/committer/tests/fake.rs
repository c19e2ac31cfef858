//! A store that records its batches, waits when it is told to and fails as a test wants.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinHandle,
};
use windlass_kernel::{
    Actor, By, DlqId, Epoch, Jitter, JobId, Kind, Op, Payload, Principal, Refusal, TenantId,
    Timestamp, WorkerId,
    ids::ClaimId,
    ops::{Cancel, Enqueue, NewJob, Outcome, Requeue, Settle},
};
use windlass_store::{ClaimMany, Commit, Error, Overlap, Replies, Reply, StoreFuture, Write};

use super::schedules::race_point;
use crate::committer::{Committer, Config, Handle, SubmitError};

/// Says what becomes of a batch.
type Judge = Box<dyn Fn(&[Write]) -> Result<Replies, Error> + Send + Sync>;

/// A store that only commits.
pub(super) struct Fake {
    /// Each batch that it was given, as the marks of its writes, in order.
    batches: Mutex<Vec<Vec<u32>>>,
    /// The marks that were written, in order.
    pub durable: Mutex<Vec<u32>>,
    overlap: Overlap,
    /// Do claims only wait for each other?
    pub claims_wait: AtomicBool,
    in_flight: AtomicUsize,
    /// One permit for each commit that has begun.
    begun: Semaphore,
    /// A commit takes one permit before it ends.
    gate: Semaphore,
    judge: Judge,
}

impl Fake {
    /// Commits everything, at once.
    pub(super) fn open() -> Arc<Self> {
        Self::judging(|writes| Ok(echo(writes)))
    }

    /// Commits everything, each batch when it is let through.
    pub(super) fn shut() -> Arc<Self> {
        Self::shut_with(Overlap::NONE)
    }

    /// The same, and it can use several commits at once.
    pub(super) fn shut_with(overlap: Overlap) -> Arc<Self> {
        Self::new(0, overlap, Box::new(|writes| Ok(echo(writes))))
    }

    /// Decides each batch like this, at once.
    pub(super) fn judging(
        judge: impl Fn(&[Write]) -> Result<Replies, Error> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::new(Semaphore::MAX_PERMITS, Overlap::NONE, Box::new(judge))
    }

    /// Decides each batch like this, when it is let through.
    pub(super) fn judging_shut(
        judge: impl Fn(&[Write]) -> Result<Replies, Error> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::new(0, Overlap::NONE, Box::new(judge))
    }

    fn new(gate: usize, overlap: Overlap, judge: Judge) -> Arc<Self> {
        let (begun, gate) = (Semaphore::new(0), Semaphore::new(gate));
        let (batches, durable) = (Mutex::default(), Mutex::default());
        let in_flight = AtomicUsize::new(0);
        let claims_wait = AtomicBool::new(false);
        Arc::new(Self { batches, durable, overlap, claims_wait, in_flight, begun, gate, judge })
    }

    /// Waits until one more commit has begun.
    pub(super) async fn begins(&self) {
        self.begun.acquire().await.unwrap().forget();
    }

    /// Lets so many commits end.
    pub(super) fn let_through(&self, commits: usize) {
        self.gate.add_permits(commits);
    }

    pub(super) fn batches(&self) -> Vec<Vec<u32>> {
        self.batches.lock().unwrap().clone()
    }

    /// All marks in the order in which they were given to the store.
    pub(super) fn given(&self) -> Vec<u32> {
        self.batches().concat()
    }
}

/// Replies that show which write they belong to.
pub(super) fn echo(writes: &[Write]) -> Replies {
    let reply = |write| Reply::Renewed {
        until: Timestamp::from_micros(i64::from(mark_of(write))),
        cancelled: Vec::new(),
        held: Vec::new(),
    };
    writes.iter().map(|write| Ok(reply(write))).collect()
}

/// The mark in a reply of [`echo`].
pub(super) fn echoed(answer: Result<Reply, SubmitError>) -> u32 {
    match answer {
        Ok(Reply::Renewed { until, .. }) => u32::try_from(until.as_micros()).unwrap(),
        other => panic!("no echo: {other:?}"),
    }
}

/// The error that the store gave, as text.
pub(super) fn store_error(answer: Result<Reply, SubmitError>) -> String {
    match answer {
        Err(SubmitError::Store(error)) => error.to_string(),
        other => panic!("no error of the store: {other:?}"),
    }
}

impl Commit for Fake {
    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(async move {
            self.batches.lock().unwrap().push(writes.iter().map(mark_of).collect());
            self.begun.add_permits(1);
            let before = self.in_flight.fetch_add(1, SeqCst);
            assert!(before < self.overlap.commits_max, "too many transactions at once");
            race_point();
            self.gate.acquire().await.unwrap().forget();
            let replies = (self.judge)(&writes);
            if replies.is_ok() {
                self.durable.lock().unwrap().extend(writes.iter().map(mark_of));
            }
            self.in_flight.fetch_sub(1, SeqCst);
            race_point();
            replies
        })
    }

    fn overlap(&self) -> Overlap {
        self.overlap
    }

    fn claims_wait(&self) -> bool {
        self.claims_wait.load(SeqCst)
    }

    fn health(&self) -> StoreFuture<'_, ()> {
        panic!("the Committer only commits")
    }
}

/// How `run` ended.
pub(super) type Ended = JoinHandle<Result<(), Arc<Error>>>;

/// A Committer that runs for ever.
pub(super) fn start(store: &Arc<Fake>, config: Config) -> Handle {
    let committer = Committer::new(store.clone(), config);
    let handle = committer.handle();
    tokio::spawn(committer.run(pending()));
    handle
}

/// A Committer that runs until the sender is used or dropped.
pub(super) fn start_until(
    store: &Arc<Fake>,
    config: Config,
) -> (Handle, oneshot::Sender<()>, Ended) {
    let committer = Committer::new(store.clone(), config);
    let handle = committer.handle();
    let (shutdown, told) = oneshot::channel();
    let ended = tokio::spawn(committer.run(async { told.await.unwrap_or(()) }));
    (handle, shutdown, ended)
}

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn by(mark: u32) -> By {
    Actor::User(Principal::new(mark.to_string()).unwrap()).into()
}

/// A new job. Like all writes here it has a mark, by which a test knows it again.
pub(super) fn enqueue(job: u128, mark: u32) -> Write {
    enqueue_large(job, mark, 0)
}

/// A new job with so many bytes of payload.
pub(super) fn enqueue_large(job: u128, mark: u32, bytes: usize) -> Write {
    let payload = format!("\"{}\"", "x".repeat(bytes));
    let payload = Payload::parse(&payload, payload.len()).unwrap();
    let new = Box::new(NewJob::new(Kind::new("noop").unwrap(), payload));
    let (job_id, tenant) = (JobId::from_u128(job), tenant());
    op(Enqueue { job_id, tenant, new, random: 0, by: by(mark) })
}

/// A new job of another tenant.
pub(super) fn enqueue_of(name: &str, job: u128, mark: u32) -> Write {
    let Write::Op { op: Op::Enqueue(op), .. } = enqueue(job, mark) else {
        unreachable!("it is an enqueue")
    };
    let tenant = TenantId::new(name).unwrap();
    Write::Op { tenant: tenant.clone(), op: Enqueue { tenant, ..op }.into() }
}

/// A cancel: it waits in the bulk lane.
pub(super) fn cancel(job: u128, mark: u32) -> Write {
    let (job_id, grace) = (JobId::from_u128(job), Cancel::GRACE_DEFAULT);
    op(Cancel { job_id, force: false, grace, reason: None, by: by(mark) })
}

/// A settle: it waits in the lease lane.
pub(super) fn settle(job: u128, mark: u32) -> Write {
    let job_id = JobId::from_u128(job);
    let (by, outcome) = (by(mark), Outcome::Cancelled { reason: None });
    op(Settle { job_id, epoch: Epoch::new(1), by, outcome, stats: None, jitter: Jitter::NONE })
}

/// A requeue: it names two jobs.
pub(super) fn requeue(failed: u128, new: u128, mark: u32) -> Write {
    let (dlq_id, new_job_id) = (DlqId::from_u128(failed), JobId::from_u128(new));
    op(Requeue { dlq_id, new_job_id, payload: None, by: by(mark) })
}

/// The renewal of a session: it names no job.
pub(super) fn renew(mark: u32) -> Write {
    let worker = WorkerId::new(mark.to_string()).unwrap();
    Write::RenewSession { worker, lease: std::time::Duration::from_secs(30) }
}

/// A claim of this many jobs: it names none.
pub(super) fn claim(max: usize, mark: u32) -> Write {
    Write::Claim(ClaimMany {
        claim_id: ClaimId::from_u128(mark.into()),
        worker: WorkerId::new(mark.to_string()).unwrap(),
        trace_id: None,
        tenant: None,
        except: Vec::new(),
        queues: Vec::new(),
        kinds: Vec::new(),
        max,
        lease: std::time::Duration::from_secs(30),
        start: true,
        neighbours: Vec::new(),
    })
}

fn op(op: impl Into<Op>) -> Write {
    Write::Op { tenant: tenant(), op: op.into() }
}

pub(super) fn mark_of(write: &Write) -> u32 {
    let by = match write {
        Write::RenewSession { worker, .. } => return worker.as_str().parse().unwrap(),
        Write::Claim(wanted) => return wanted.worker.as_str().parse().unwrap(),
        Write::Op { op: Op::Enqueue(op), .. } => &op.by,
        Write::Op { op: Op::Cancel(op), .. } => &op.by,
        Write::Op { op: Op::Settle(op), .. } => &op.by,
        Write::Op { op: Op::Requeue(op), .. } => &op.by,
        other => panic!("no mark in {other:?}"),
    };
    let Actor::User(name) = &by.actor else { panic!("no mark in {by:?}") };
    name.as_str().parse().unwrap()
}

/// Refuses the writes with these marks.
pub(super) fn refusing(marks: &'static [u32]) -> impl Fn(&[Write]) -> Result<Replies, Error> {
    move |writes| {
        let judge = |(write, reply)| {
            if marks.contains(&mark_of(write)) { Err(Refusal::StaleAttempt) } else { reply }
        };
        Ok(writes.iter().zip(echo(writes)).map(judge).collect())
    }
}
