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
    Failure, Job, Op, Refusal,
    job::{Wait, WaitOn},
    ops::{self, Release, Settle, Start, WaitFor},
};
use windlass_store::{self as store, Granted, Reply, Write};

use super::{
    context::{Context, Stop},
    executions::{Signal, Signals},
    middleware::Next,
    outcome::{Kind, Outcome, RESULT_UNFIT, panicked},
    run::Shared,
};
use crate::SubmitError;

/// How long a handler whose lease is lost may go on, so that it can see it.
const LOST_GRACE: Duration = Duration::from_millis(100);

/// How long to wait before a report is sent again that the store could not take.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Runs a job that is started, or starts it first.
pub(super) async fn execute(shared: Arc<Shared>, granted: Granted, started: bool, told: Signals) {
    let (job_id, epoch) = (granted.job.id, granted.job.epoch);
    if started || start(&shared, &granted.job).await {
        run(&shared, granted, told).await;
    }
    shared.executions.end(job_id, epoch);
}

/// Starts a job of the local queue. False, if it may not run.
async fn start(shared: &Shared, job: &Job) -> bool {
    let op = Start { job_id: job.id, epoch: job.epoch, by: shared.by() };
    match report(shared, job, op.into()).await {
        Reported::Answered => true,
        Reported::Refused(_) | Reported::Lost => false,
    }
}

async fn run(shared: &Shared, granted: Granted, mut told: Signals) {
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
            () = given_up(&mut told) => None,
        }
    };
    let (job_id, epoch) = (job.id, job.epoch);
    match ended {
        Some(ended) if shared.executions.begin_report(job_id, epoch, Instant::now()) => {
            settle(shared, &job, ended).await;
        }
        None if *told.borrow() == Signal::Abandon
            && shared.executions.begin_report(job_id, epoch, Instant::now()) =>
        {
            let op = Release { job_id, epoch, by: shared.by() };
            report(shared, &job, op.into()).await;
        }
        // The lease is lost: nothing more is written.
        Some(_) | None => {}
    }
}

/// Ready when the execution is to be dropped.
async fn given_up(told: &mut Signals) {
    let lost = Signal::Stop(Stop::LeaseLost);
    let signal = match told.wait_for(|signal| *signal >= lost).await {
        Ok(signal) => *signal,
        // The worker is gone.
        Err(_) => return,
    };
    if signal == lost {
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
async fn settle(shared: &Shared, job: &Job, ended: Result<Outcome, Failure>) {
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
                _ => return,
            }
        }
        Ok(Kind::Done { result }) => ops::Outcome::Succeeded { result },
        Ok(Kind::Partial { result, remaining }) => ops::Outcome::Partial { result, remaining },
        Ok(Kind::Cancelled { reason }) => ops::Outcome::Cancelled { reason },
        Ok(Kind::Unfit(failure)) | Err(failure) => ops::Outcome::Failed(failure),
    };
    let refused = match report(shared, job, settle_op(shared, job, outcome)).await {
        Reported::Refused(refusal @ Refusal::Invalid { .. }) => refusal,
        Reported::Answered | Reported::Refused(_) | Reported::Lost => return,
    };
    // Left as it is, the job would run again and again, and never come to an end.
    let failure = Failure::permanent(RESULT_UNFIT, &refused.to_string());
    report(shared, job, settle_op(shared, job, ops::Outcome::Failed(failure))).await;
}

fn settle_op(shared: &Shared, job: &Job, outcome: ops::Outcome) -> Op {
    let jitter = shared.jitter();
    let (job_id, epoch, by) = (job.id, job.epoch, shared.by());
    Settle { job_id, epoch, by, outcome, stats: None, jitter }.into()
}

/// What became of something that an execution said.
enum Reported {
    Answered,
    Refused(Refusal),
    /// The store could not be told while the lease lasted.
    Lost,
}

/// Tells the store, again and again while the lease lasts: the same op has the same answer.
async fn report(shared: &Shared, job: &Job, op: Op) -> Reported {
    let write = Write::Op { tenant: job.spec.tenant.clone(), op };
    loop {
        match shared.inner().submit(write.clone()).await {
            Ok(Reply::Answer(_)) => return Reported::Answered,
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
