//! One execution: from its start to its report.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep};
use windlass_kernel::{
    Failure, Jitter, Job, Op, Refusal, State,
    job::{Wait, WaitOn},
    ops::{self, Release, Settle, Start, WaitFor},
};
use windlass_store::{self as store, Granted, Reply, Write};

use super::{
    context::Context,
    middleware::Next,
    outcome::{Kind, Outcome, RESULT_UNFIT, panicked},
    run::Shared,
    signal::{Signal, Signals},
};
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

/// How long a handler whose lease is lost may go on, so that it can see it.
const LOST_GRACE: Duration = Duration::from_millis(100);

/// How long to wait before a report is sent again that the store could not take.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Runs a job that is started, or starts it first.
pub(super) async fn execute(shared: Arc<Shared>, granted: Granted, started: bool, told: Signals) {
    let job = granted.job.clone();
    let mut state = None;
    if started || start(&shared, &job).await {
        state = run(&shared, granted, told).await;
    }
    let claimed_at = shared.executions.end(job.id, job.epoch);
    if let (Some(observer), Some(claimed_at)) = (&shared.observer, claimed_at) {
        observer(&Report { job: &job, state, took: claimed_at.elapsed() });
    }
}

/// Starts a job of the local queue. False, if it may not run.
async fn start(shared: &Shared, job: &Job) -> bool {
    let op = Start { job_id: job.id, epoch: job.epoch, by: shared.by() };
    match report(shared, job, op.into()).await {
        Reported::Answered(_) => true,
        Reported::Refused(_) | Reported::Lost => false,
    }
}

/// Runs its handler, and gives back the state that the job is in by its report; none, if it was lost.
async fn run(shared: &Shared, granted: Granted, told: Signals) -> Option<State> {
    let Granted { job, payload } = granted;
    let engine = shared.engine_of(&job.spec.tenant);
    let context =
        Context::new(job.clone(), engine, shared.worker.clone(), shared.lease, told.clone());
    let handler = shared.handlers.get(&job.spec.kind).cloned();
    let handler = handler.expect("only kinds that have a handler are claimed");
    let next = Next::new(shared.layers.clone(), handler, payload.into());
    let ended = {
        let mut handling = pin!(caught(async move { next.run(context).await }));
        tokio::select! {
            biased;
            ended = &mut handling => Some(ended),
            () = given_up(&told) => None,
        }
    };
    let (job_id, epoch) = (job.id, job.epoch);
    match ended {
        Some(ended) if shared.executions.begin_report(job_id, epoch, Instant::now()) => {
            settle(shared, &job, ended).await
        }
        None if told.get() == Signal::Abandon
            && shared.executions.begin_report(job_id, epoch, Instant::now()) =>
        {
            let op = Release { job_id, epoch, by: shared.by() };
            report(shared, &job, op.into()).await.state()
        }
        // The lease is lost: nothing more is written.
        Some(_) | None => None,
    }
}

/// Ready when the execution is to be dropped.
async fn given_up(told: &Signals) {
    if told.at_least(Signal::LeaseLost).await == Signal::LeaseLost {
        sleep(LOST_GRACE).await;
    }
}

/// A panic of the handler is a failure of this attempt, never of the worker.
async fn caught(
    handling: impl Future<Output = Result<Outcome, Failure>>,
) -> Result<Outcome, Failure> {
    let mut handling = pin!(handling);
    std::future::poll_fn(move |context| {
        let poll = AssertUnwindSafe(|| handling.as_mut().poll(context));
        match catch_unwind(poll) {
            Ok(polled) => polled,
            Err(panic) => Poll::Ready(Err(panicked(&*panic))),
        }
    })
    .await
}

/// Reports how the handler ended. What cannot be kept is reported as a failure instead.
async fn settle(shared: &Shared, job: &Job, ended: Result<Outcome, Failure>) -> Option<State> {
    let by = shared.by();
    let outcome = match ended.map(|outcome| outcome.0) {
        Ok(Kind::Snooze { wait }) => {
            let until = Some(shared.inner().now().plus(wait));
            let wait = Wait { on: WaitOn::Time, until };
            let op = WaitFor { job_id: job.id, epoch: job.epoch, by, wait };
            match report(shared, job, op.into()).await {
                // It is to be cancelled, so it need not wait for that.
                Reported::Refused(Refusal::CancelRequested) => {
                    ops::Outcome::Cancelled { reason: None }
                }
                reported => return reported.state(),
            }
        }
        Ok(Kind::Done { result }) => ops::Outcome::Succeeded { result },
        Ok(Kind::Partial { result, remaining }) => ops::Outcome::Partial { result, remaining },
        Ok(Kind::Cancelled { reason }) => ops::Outcome::Cancelled { reason },
        Ok(Kind::Unfit(failure)) | Err(failure) => ops::Outcome::Failed(failure),
    };
    let refused = match report(shared, job, settle_op(shared, job, outcome)).await {
        Reported::Refused(refusal @ Refusal::Invalid { .. }) => refusal,
        reported => return reported.state(),
    };
    // Left as it is, the job would run again and again, and never come to an end.
    let failure = Failure::permanent(RESULT_UNFIT, &refused.to_string());
    report(shared, job, settle_op(shared, job, ops::Outcome::Failed(failure))).await.state()
}

fn settle_op(shared: &Shared, job: &Job, outcome: ops::Outcome) -> Op {
    let jitter = match outcome {
        ops::Outcome::Failed(_) => shared.jitter(),
        _ => Jitter::NONE,
    };
    let (job_id, epoch, by) = (job.id, job.epoch, shared.by());
    Settle { job_id, epoch, by, outcome, stats: None, jitter }.into()
}

/// What became of something that an execution said.
enum Reported {
    /// The job is in this state by it.
    Answered(State),
    Refused(Refusal),
    /// The store could not be told while the lease lasted.
    Lost,
}

impl Reported {
    fn state(self) -> Option<State> {
        match self {
            Reported::Answered(state) => Some(state),
            Reported::Refused(_) | Reported::Lost => None,
        }
    }
}

/// Tells the store, again and again while the lease lasts: the same op has the same answer.
async fn report(shared: &Shared, job: &Job, op: Op) -> Reported {
    let write = Write::Op { tenant: job.spec.tenant.clone(), op };
    loop {
        match shared.inner().submit(write.clone()).await {
            Ok(Reply::Answer(answer)) => return Reported::Answered(answer.state),
            Ok(_) => unreachable!("an op is answered by an answer"),
            Err(SubmitError::Refused(refusal)) => return Reported::Refused(refusal),
            Err(SubmitError::Store(error)) if is_hopeless(&error) => return Reported::Lost,
            Err(SubmitError::Closed) => return Reported::Lost,
            Err(SubmitError::Store(_) | SubmitError::Full) => {}
        }
        if shared.executions.has_lapsed(job.id, job.epoch, Instant::now()) {
            return Reported::Lost;
        }
        sleep(SEND_AGAIN_AFTER).await;
    }
}

/// Will the same never be taken?
fn is_hopeless(error: &store::Error) -> bool {
    !error.info().retryable
}
