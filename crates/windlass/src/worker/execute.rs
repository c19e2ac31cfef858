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
    Failure, Job, Refusal, State,
    ops::{self, Entry, Release, Start},
};
use windlass_store::{Granted, read::Scope};

use super::{
    context::Context,
    middleware::Next,
    notice::{Notice, Notices},
    outcome::{Kind, Outcome, panicked},
    report::{self, Verdict, report},
    run::Shared,
};
use crate::span::Executing;

/// How long a handler whose lease is lost may go on, so that it can see it.
const LOST_GRACE: Duration = Duration::from_millis(100);

/// Runs a job that is started, or starts it first. Its report may be on its way when this ends.
pub(super) async fn execute(
    shared: Arc<Shared>,
    granted: Granted,
    started: bool,
    notices: Notices,
) {
    let job = granted.job.clone();
    let is_running = started || start(&shared, &job).await;
    let ended = if is_running { run_or_park(&shared, granted, &notices).await } else { None };
    let (ended, left) = match ended {
        Some(Ran::Ended(ended, left)) => (Some(ended), left),
        Some(Ran::Parked(state)) => return report::ended(&shared, &job, state),
        None => (None, Vec::new()),
    };
    let begin_report = || shared.executions.begin_report(job.id, job.epoch, Instant::now());
    let outcome = match ended {
        Some(ended) if begin_report() => ended.map(|outcome| outcome.0),
        None if is_running && notices.get() == Notice::Abandon && begin_report() => {
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
        Ok(Kind::Park(_)) => unreachable!("a durable handler that waits is parked"),
        Ok(Kind::Done { result }) => ops::Outcome::Succeeded { result },
        Ok(Kind::Partial { result, remaining }) => ops::Outcome::Partial { result, remaining },
        Ok(Kind::Cancelled { reason }) => ops::Outcome::Cancelled { reason },
        Ok(Kind::Unfit(failure)) | Err(failure) => ops::Outcome::Failed(failure),
    };
    report::settle_soon(&shared, job, left, outcome);
}

/// Starts a job of the local queue. False, if it may not run.
async fn start(shared: &Shared, job: &Job) -> bool {
    let op = Start { job_id: job.id, epoch: job.epoch, by: shared.by() };
    report(shared, job, op.into()).await.state().is_some()
}

/// How an execution came to its end.
enum Ran {
    /// Its handler ended so, and left this to be recorded.
    Ended(Result<Outcome, Failure>, Vec<Entry>),
    /// It is parked, and the job is in this state by it; none, if the lease was lost.
    Parked(Option<State>),
}

/// Runs its handler. A durable one that can only wait is parked; if it may not be, because somebody wants to cancel the job, it
/// runs once more, to clean up.
async fn run_or_park(shared: &Shared, mut granted: Granted, notices: &Notices) -> Option<Ran> {
    loop {
        let (ended, left) = run(shared, granted.clone(), notices).await?;
        let park = match ended {
            Ok(Outcome(Kind::Park(park))) => *park,
            ended => return Some(Ran::Ended(ended, left)),
        };
        match report::park(shared, &granted.job, park).await {
            Verdict::Refused(Refusal::CancelRequested) => {}
            verdict => return Some(Ran::Parked(verdict.state())),
        }
        notices.raise(Notice::Cancelled);
        let job = shared.inner().store.job(&Scope::Every, granted.job.id).await.ok().flatten()?;
        granted.job = Arc::new(job);
    }
}

/// Runs its handler, and gives back how it ended; none, if it was dropped before.
async fn run(
    shared: &Shared,
    granted: Granted,
    notices: &Notices,
) -> Option<(Result<Outcome, Failure>, Vec<Entry>)> {
    let Granted { job, payload } = granted;
    let (engine, span) =
        (shared.engine_of(&job), Executing::begin(shared.inner(), &job, &shared.worker));
    let handler = shared.handlers.get(&job.spec.kind).cloned();
    let handler = handler.expect("only kinds that have a handler are claimed");
    let context = Context::new(job, engine, shared.worker.clone(), shared.lease, notices.clone());
    let next = Next::new(shared.layers.clone(), handler, payload.into());
    let running = context.clone();
    let mut handling = pin!(caught(async move { next.run(running).await }));
    let ended = tokio::select! {
        biased;
        ended = &mut handling => ended,
        () = given_up(notices) => return None,
    };
    if let Some(span) = span {
        span.ended(failure_of(&ended));
    }
    Some((ended, context.take_left()))
}

fn failure_of(ended: &Result<Outcome, Failure>) -> Option<&Failure> {
    match ended {
        Ok(Outcome(Kind::Unfit(failure))) | Err(failure) => Some(failure),
        Ok(_) => None,
    }
}

/// Ready when the execution is to be dropped.
async fn given_up(notices: &Notices) {
    if notices.at_least(Notice::LeaseLost).await == Notice::LeaseLost {
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
