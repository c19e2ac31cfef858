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
    ops::{Outcome, Settle, WaitFor},
};
use windlass_store::{self as store, Reply, Write};

use super::run::Shared;
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

/// Settles that wait to be sent together.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<Vec<Outgoing>>,
}

#[derive(Debug)]
struct Outgoing {
    job: Arc<Job>,
    outcome: Outcome,
}

/// How long to wait before a report is sent again that the store could not take.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Reports how an execution ended, soon and together with others. Nobody need wait for it.
pub(super) fn settle_soon(shared: &Arc<Shared>, job: Arc<Job>, outcome: Outcome) {
    let is_first = {
        let mut waiting = shared.outbox.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(Outgoing { job, outcome });
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
    let writes = outgoing.iter().map(|it| write(&it.job, settle_op(&shared, &it.job, &it.outcome)));
    let answers = shared.inner().submit_many(writes.collect()).await;
    for (Outgoing { job, outcome }, answer) in outgoing.into_iter().zip(answers) {
        match Reported::of(answer) {
            Some(Reported::Answered(state)) => ended(&shared, &job, Some(state)),
            Some(Reported::Refused(Refusal::Invalid { .. })) | None => {
                tokio::spawn(settle_alone(shared.clone(), job, outcome));
            }
            Some(Reported::Refused(_) | Reported::Lost) => ended(&shared, &job, None),
        }
    }
}

async fn settle_alone(shared: Arc<Shared>, job: Arc<Job>, outcome: Outcome) {
    let state = settle(&shared, &job, outcome).await;
    ended(&shared, &job, state);
}

/// Reports how an execution ended. What cannot be kept is reported as a failure instead.
async fn settle(shared: &Shared, job: &Job, outcome: Outcome) -> Option<State> {
    let refused = match report(shared, job, settle_op(shared, job, &outcome)).await {
        Reported::Refused(refusal @ Refusal::Invalid { .. }) => refusal,
        reported => return reported.state(),
    };
    // Left as it is, the job would run again and again, and never come to an end.
    let failure = Failure::own(RESULT_UNFIT, &refused.to_string());
    report(shared, job, settle_op(shared, job, &Outcome::Failed(failure))).await.state()
}

/// Parks a job for some time. One that is to be cancelled need not wait for that.
pub(super) async fn snooze(shared: &Shared, job: &Job, wait: Duration) -> Option<State> {
    let until = Some(shared.inner().now().plus(wait));
    let wait = Wait { on: WaitOn::Time, until };
    let op = WaitFor { job_id: job.id, epoch: job.epoch, by: shared.by(), wait };
    match report(shared, job, op.into()).await {
        Reported::Refused(Refusal::CancelRequested) => {
            settle(shared, job, Outcome::Cancelled { reason: None }).await
        }
        reported => reported.state(),
    }
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

/// What became of something that an execution said.
pub(super) enum Reported {
    /// The job is in this state by it.
    Answered(State),
    Refused(Refusal),
    /// The store could not be told while the lease lasted.
    Lost,
}

impl Reported {
    /// What an answer means; none, if it may be sent again.
    fn of(answer: Result<Reply, SubmitError>) -> Option<Self> {
        match answer {
            Ok(Reply::Answer(answer)) => Some(Reported::Answered(answer.state)),
            Ok(_) => unreachable!("an op is answered by an answer"),
            Err(SubmitError::Refused(refusal)) => Some(Reported::Refused(refusal)),
            Err(SubmitError::Store(error)) if is_hopeless(&error) => Some(Reported::Lost),
            Err(SubmitError::Closed) => Some(Reported::Lost),
            Err(SubmitError::Store(_) | SubmitError::Full) => None,
        }
    }

    pub(super) fn state(self) -> Option<State> {
        match self {
            Reported::Answered(state) => Some(state),
            Reported::Refused(_) | Reported::Lost => None,
        }
    }
}

/// Tells the store, again and again while the lease lasts: the same op has the same answer.
pub(super) async fn report(shared: &Shared, job: &Job, op: Op) -> Reported {
    let write = write(job, op);
    loop {
        if let Some(reported) = Reported::of(shared.inner().submit(write.clone()).await) {
            return reported;
        }
        if shared.executions.has_lapsed(job.id, job.epoch, Instant::now()) {
            return Reported::Lost;
        }
        sleep(SEND_AGAIN_AFTER).await;
    }
}

/// Will the same never be taken? What is damaged may be mended while the lease lasts.
fn is_hopeless(error: &store::Error) -> bool {
    !error.info().retryable && !matches!(error, store::Error::Damaged(_))
}
