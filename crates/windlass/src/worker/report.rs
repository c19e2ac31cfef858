//! Reports: how the store is told what became of an execution.
//!
//! Most executions end with a settle, and many end at about the same time: what has come together is sent together.
//! What the store could not take then is sent again, each on its own, for as long as its lease can still be saved.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};
use windlass_kernel::{
    Failure, Jitter, Job, Op, Refusal, State,
    failure::RESULT_UNFIT,
    job::{Wait, WaitOn},
    ops::{Advance, Entry, Outcome, Settle, WaitFor},
};
use windlass_store::{self as store, Reply, Request as _, TenantOp, Write};

use super::{outcome::Park, run::Shared};
use crate::SubmitError;

/// What a worker has reported of an execution.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The job, as it was claimed.
    pub job: &'a Job,
    /// The state that the job is in by the report; none, if the lease was lost and nothing was reported.
    pub state: Option<State>,
    /// How long it took, from the call of its claim to the durable answer to its report.
    pub took: Duration,
}

/// Hears of each execution that has ended.
pub(super) type Observer = Arc<dyn Fn(&Report<'_>) + Send + Sync>;

/// Settles that wait to be sent together: one round trip for all that end at about the same time.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<Vec<Settlement>>,
}

/// How an execution ended, before the store has heard of it.
#[derive(Debug)]
struct Settlement {
    job: Arc<Job>,
    /// What is recorded in the ledger first.
    entries: Vec<Entry>,
    outcome: Outcome,
}

/// The back-off of a report that the store could not take.
const BACK_OFF: Duration = Duration::from_millis(200);

/// Reports how an execution ended, soon and together with others. Nobody need wait for it.
pub(super) fn settle_soon(
    shared: &Arc<Shared>,
    job: Arc<Job>,
    entries: Vec<Entry>,
    outcome: Outcome,
) {
    let is_first = {
        let mut waiting = shared.outbox.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(Settlement { job, entries, outcome });
        waiting.len() == 1
    };
    if is_first {
        tokio::spawn(send(shared.clone()));
    }
}

/// Sends what has come together.
async fn send(shared: Arc<Shared>) {
    // Those that are just about to end come along.
    yield_now().await;
    let outgoing =
        std::mem::take(&mut *shared.outbox.waiting.lock().unwrap_or_else(PoisonError::into_inner));
    let mut writes = Vec::with_capacity(outgoing.len());
    for Settlement { job, entries, outcome } in &outgoing {
        writes.extend(advance_op(&shared, job, entries).map(|op| write(job, op)));
        writes.push(write(job, settle_op(&shared, job, outcome)));
    }
    let mut answers = shared.inner().submit_many(writes).await.into_iter();
    for Settlement { job, entries, outcome } in outgoing {
        let advanced = if entries.is_empty() { None } else { answers.next() };
        let recorded = advanced.is_none_or(|advanced| advanced.is_ok());
        let answer = answers.next().expect("each write is answered");
        match Verdict::of(answer) {
            Some(Verdict::Accepted(state)) => ended(&shared, &job, Some(state)),
            Some(Verdict::Refused(Refusal::Invalid { .. })) | None => {
                let entries = if recorded { Vec::new() } else { entries };
                tokio::spawn(settle_alone(shared.clone(), job, entries, outcome));
            }
            Some(Verdict::Refused(_) | Verdict::Lost) => ended(&shared, &job, None),
        }
    }
}

async fn settle_alone(shared: Arc<Shared>, job: Arc<Job>, entries: Vec<Entry>, outcome: Outcome) {
    if let Some(op) = advance_op(&shared, &job, &entries) {
        report(&shared, &job, op).await;
    }
    let state = settle(&shared, &job, outcome).await;
    ended(&shared, &job, state);
}

/// Reports how an execution ended. What cannot be kept is reported as a failure instead.
async fn settle(shared: &Shared, job: &Job, outcome: Outcome) -> Option<State> {
    let refused = match report(shared, job, settle_op(shared, job, &outcome)).await {
        Verdict::Refused(refusal @ Refusal::Invalid { .. }) => refusal,
        verdict => return verdict.state(),
    };
    // Left as it is, the job would run again and again, and never come to an end.
    let failure = Failure::own(RESULT_UNFIT, &refused.to_string());
    report(shared, job, settle_op(shared, job, &Outcome::Failed(failure))).await.state()
}

/// Parks a job for some time. One that is to be cancelled need not wait for that.
pub(super) async fn snooze(shared: &Shared, job: &Job, wait: Duration) -> Option<State> {
    let until = Some(shared.inner().now().plus(wait));
    let wait = Wait { on: WaitOn::Time, until };
    let op = WaitFor { job_id: job.id, epoch: job.epoch, by: shared.by(), wait, mails_seen: None };
    match report(shared, job, op.into()).await {
        Verdict::Refused(Refusal::CancelRequested) => {
            settle(shared, job, Outcome::Cancelled { reason: None }).await
        }
        verdict => verdict.state(),
    }
}

/// Parks a durable job, after what is to be recorded. One that is to be cancelled is refused.
pub(super) async fn park(shared: &Shared, job: &Job, park: Park) -> Verdict {
    let Park { entries, wait, mails_seen } = park;
    let (job_id, epoch, by) = (job.id, job.epoch, shared.by());
    let wait = Op::from(WaitFor { job_id, epoch, by, wait, mails_seen });
    match advance_op(shared, job, &entries) {
        Some(advance) => {
            let writes = vec![write(job, advance.clone()), write(job, wait.clone())];
            let mut answers = shared.inner().submit_many(writes).await.into_iter();
            let advanced = answers.next().and_then(Verdict::of);
            match (advanced, answers.next().and_then(Verdict::of)) {
                (Some(_), Some(parked)) => parked,
                _ => {
                    report(shared, job, advance).await;
                    report(shared, job, wait).await
                }
            }
        }
        None => report(shared, job, wait).await,
    }
}

fn advance_op(shared: &Shared, job: &Job, entries: &[Entry]) -> Option<Op> {
    let (job_id, epoch, by) = (job.id, job.epoch, shared.by());
    let entries = entries.to_vec();
    (!entries.is_empty()).then(|| Advance { job_id, epoch, by, entries }.into())
}

/// An execution is over, and whoever wants to know is told.
pub(super) fn ended(shared: &Shared, job: &Job, state: Option<State>) {
    let claimed_at = shared.executions.end(job.id, job.epoch);
    if let (Some(observer), Some(claimed_at)) = (&shared.observer, claimed_at) {
        observer(&Report { job, state, took: claimed_at.elapsed() });
    }
}

fn settle_op(shared: &Shared, job: &Job, outcome: &Outcome) -> Op {
    let jitter = match outcome {
        Outcome::Failed(_) => shared.jitter(),
        _ => Jitter::NONE,
    };
    let (job_id, epoch, by, outcome) = (job.id, job.epoch, shared.by(), outcome.clone());
    Settle { job_id, epoch, by, outcome, stats: None, jitter }.into()
}

fn write(job: &Job, op: Op) -> Write {
    Write::Op { tenant: job.spec.tenant.clone(), op }
}

/// What the store said to a report.
pub(super) enum Verdict {
    /// The job is in this state by it.
    Accepted(State),
    Refused(Refusal),
    /// The store could not be told while the lease lasted.
    Lost,
}

impl Verdict {
    /// What an answer means; none, if it may be sent again.
    fn of(answer: Result<Reply, SubmitError>) -> Option<Self> {
        match answer {
            Ok(reply) => Some(Verdict::Accepted(TenantOp::expect(reply).0.state)),
            Err(SubmitError::Refused(refusal)) => Some(Verdict::Refused(refusal)),
            Err(SubmitError::Store(error)) if is_hopeless(&error) => Some(Verdict::Lost),
            Err(SubmitError::Closed) => Some(Verdict::Lost),
            Err(SubmitError::Store(_) | SubmitError::Full) => None,
        }
    }

    pub(super) fn state(self) -> Option<State> {
        match self {
            Verdict::Accepted(state) => Some(state),
            Verdict::Refused(_) | Verdict::Lost => None,
        }
    }
}

/// Tells the store, in a retry loop while the lease lasts: the same op has the same answer.
pub(super) async fn report(shared: &Shared, job: &Job, op: Op) -> Verdict {
    let write = write(job, op);
    loop {
        if let Some(verdict) = Verdict::of(shared.inner().submit(write.clone()).await) {
            return verdict;
        }
        if shared.executions.has_lapsed(job.id, job.epoch, Instant::now()) {
            return Verdict::Lost;
        }
        sleep(BACK_OFF).await;
    }
}

/// Will the same never be taken? What is damaged may be mended while the lease lasts.
fn is_hopeless(error: &store::Error) -> bool {
    !error.info().retryable && !matches!(error, store::Error::Damaged(_))
}
