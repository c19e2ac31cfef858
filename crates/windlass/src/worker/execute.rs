//! One execution: from its start to the end of its handler.

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
    Failure, Job,
    ops::{self, Release, Start},
};
use windlass_store::Granted;

use super::{
    context::Context,
    middleware::Next,
    outcome::{Kind, Outcome, panicked},
    report::{self, report},
    run::Shared,
    signal::{Signal, Signals},
};
use crate::span::Executing;

/// How long a handler whose lease is lost may go on, so that it can see it.
const LOST_GRACE: Duration = Duration::from_millis(100);

/// Runs a job that is started, or starts it first. Its report may be on its way when this ends.
pub(super) async fn execute(shared: Arc<Shared>, granted: Granted, started: bool, told: Signals) {
    let job = granted.job.clone();
    let is_running = started || start(&shared, &job).await;
    let ended = if is_running { run(&shared, granted, &told).await } else { None };
    let begin_report = || shared.executions.begin_report(job.id, job.epoch, Instant::now());
    let outcome = match ended {
        Some(ended) if begin_report() => ended.map(|outcome| outcome.0),
        None if is_running && told.get() == Signal::Abandon && begin_report() => {
            let op = Release { job_id: job.id, epoch: job.epoch, by: shared.by() };
            let state = report(&shared, &job, op.into()).await.state();
            return report::ended(&shared, &job, state);
        }
        // The lease is lost: nothing more is written.
        Some(_) | None => return report::ended(&shared, &job, None),
    };
    let outcome = match outcome {
        Ok(Kind::Snooze { wait }) => {
            let state = report::snooze(&shared, &job, wait).await;
            return report::ended(&shared, &job, state);
        }
        Ok(Kind::Done { result }) => ops::Outcome::Succeeded { result },
        Ok(Kind::Partial { result, remaining }) => ops::Outcome::Partial { result, remaining },
        Ok(Kind::Cancelled { reason }) => ops::Outcome::Cancelled { reason },
        Ok(Kind::Unfit(failure)) | Err(failure) => ops::Outcome::Failed(failure),
    };
    report::settle_soon(&shared, job, outcome);
}

/// Starts a job of the local queue. False, if it may not run.
async fn start(shared: &Shared, job: &Job) -> bool {
    let op = Start { job_id: job.id, epoch: job.epoch, by: shared.by() };
    report(shared, job, op.into()).await.state().is_some()
}

/// Runs its handler, and gives back how it ended; none, if it was dropped before.
async fn run(
    shared: &Shared,
    granted: Granted,
    told: &Signals,
) -> Option<Result<Outcome, Failure>> {
    let Granted { job, payload } = granted;
    let (engine, span) =
        (shared.engine_of(&job), Executing::begin(shared.inner(), &job, &shared.worker));
    let handler = shared.handlers.get(&job.spec.kind).cloned();
    let handler = handler.expect("only kinds that have a handler are claimed");
    let context = Context::new(job, engine, shared.worker.clone(), shared.lease, told.clone());
    let next = Next::new(shared.layers.clone(), handler, payload.into());
    let mut handling = pin!(caught(async move { next.run(context).await }));
    let ended = tokio::select! {
        biased;
        ended = &mut handling => ended,
        () = given_up(told) => return None,
    };
    if let Some(span) = span {
        span.ended(failure_of(&ended));
    }
    Some(ended)
}

fn failure_of(ended: &Result<Outcome, Failure>) -> Option<&Failure> {
    match ended {
        Ok(Outcome(Kind::Unfit(failure))) | Err(failure) => Some(failure),
        Ok(_) => None,
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
