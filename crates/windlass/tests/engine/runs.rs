//! Contract `runs`, end to end: each way through its diagram, and the nine fields of its event.

use std::time::Duration;

use windlass::{
    Engine, HandlerResult, JobId, Refusal, Scope, State, SubmitError, Work, Worker,
    faults::{Fault, Faults},
};
use windlass_kernel::{
    IdempotencyKey, Kind, Payload, TaskId,
    contract::runs::{self, RunDocument, RunStatusChanged},
    ops::NewJob,
};

use crate::common::{Do, act, enqueue_new, steady_engine};

/// A run of this task under this key.
fn run_of(task: &str, key: &str, what: &Do) -> NewJob {
    let payload = serde_json::to_string(what).unwrap();
    runs::create_for_task(
        TaskId::new(task).unwrap(),
        IdempotencyKey::new(key).unwrap(),
        Kind::new(Do::KIND).unwrap(),
        Payload::parse(&payload, Payload::MAX_BYTES_DEFAULT).unwrap(),
    )
}

async fn create(engine: &Engine, new: NewJob) -> Result<JobId, SubmitError> {
    Ok(enqueue_new(engine, new).await?.job_id)
}

async fn told(engine: &Engine, id: JobId) -> Vec<RunStatusChanged> {
    let spec = engine.job(id).await.unwrap().spec;
    let events = engine.store().events(&Scope::Every, id).await.unwrap();
    events.iter().filter_map(|event| runs::tell(event, &spec, 1)).map(|told| told.payload).collect()
}

/// The states of a run, each with its attempt, its code and who did it.
async fn history(engine: &Engine, id: JobId) -> Vec<String> {
    let line = |step: &RunStatusChanged| {
        let actor = step.actor.to_string();
        let actor = actor.split(':').next().unwrap_or_default();
        let code = step.error_code.as_deref().unwrap_or("-");
        format!("{} {} {code} {actor}", step.status, step.attempt)
    };
    let told = told(engine, id).await;
    // Each step begins where the last one ended, and a time for a retry is there exactly while it is waited for.
    for (before, step) in told.iter().zip(&told[1..]) {
        assert_eq!(step.previous_status, Some(before.status));
    }
    for step in &told {
        assert_eq!(step.next_retry_at.is_some(), step.status == "retry_scheduled", "{step:?}");
    }
    told.iter().map(line).collect()
}

async fn work(engine: &Engine, faults: &Faults) -> HandlerResult<Worker> {
    Ok(engine.worker().layer(faults.clone()).handle(act).start().await?)
}

#[tokio::test(start_paused = true)]
async fn each_way_to_an_end_is_told_step_by_step() -> HandlerResult {
    let (engine, faults) = (steady_engine(), Faults::new());
    let worker = work(&engine, &faults).await?;
    let begins = ["queued 1 - user", "running 1 - worker"];
    for (fault, what, expected) in [
        (None, Do::succeed(), &["succeeded 1 - worker"][..]),
        (None, Do::FailForGood, &["failed 1 GONE worker"]),
        (
            Some(Fault::Timeout),
            Do::succeed(),
            &[
                "retry_scheduled 1 TASK_TIMEOUT scheduler",
                "running 2 - worker",
                "succeeded 2 - worker",
            ],
        ),
        (
            Some(Fault::TransientError),
            Do::succeed(),
            &[
                "retry_scheduled 1 TRANSIENT_ERROR worker",
                "running 2 - worker",
                "succeeded 2 - worker",
            ],
        ),
        (
            Some(Fault::ProcessRestartInterrupt),
            Do::succeed(),
            &["interrupted 1 - recovery", "running 1 - worker", "succeeded 1 - worker"],
        ),
    ] {
        if let Some(fault) = fault {
            faults.inject(fault, 1);
        }
        let name = format!("{what:?} {fault:?}");
        let new = NewJob { timeout: Some(Duration::from_secs(5)), ..run_of(&name, &name, &what) };
        let id = create(&engine, new).await?;
        engine.wait(id).await?;
        let history = history(&engine, id).await;
        assert_eq!(history[..2], begins);
        assert_eq!(history[2..], *expected, "{name}");
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_interrupted_too_often_is_given_up_by_recovery() -> HandlerResult {
    let (engine, faults) = (steady_engine(), Faults::new());
    faults.inject(Fault::ProcessRestartInterrupt, 2);
    let worker = work(&engine, &faults).await?;
    let new = NewJob { max_interruptions: 2, ..run_of("report", "monday", &Do::succeed()) };
    let id = create(&engine, new).await?;
    engine.wait(id).await?;
    let expected = [
        "queued 1 - user",
        "running 1 - worker",
        "interrupted 1 - recovery",
        "running 1 - worker",
        "interrupted 1 - recovery",
        "failed 1 INTERRUPTED_TOO_OFTEN recovery",
    ];
    assert_eq!(history(&engine, id).await, expected);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_run_can_be_cancelled_in_every_state_but_an_end() -> HandlerResult {
    let (engine, faults) = (steady_engine(), Faults::new());
    let queued = create(&engine, run_of("a", "a", &Do::succeed())).await?;
    engine.cancel(queued).await?;
    assert_eq!(history(&engine, queued).await, ["queued 1 - user", "cancelled 1 - user"]);

    let worker = work(&engine, &faults).await?;
    let retrying = create(&engine, run_of("b", "b", &Do::Fail)).await?;
    let running = create(&engine, run_of("c", "c", &Do::UntilStopped)).await?;
    let interrupted = create(&engine, run_of("d", "d", &Do::SleepMs(600_000))).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    engine.cancel(retrying).await?;
    engine.cancel(running).await?;
    engine.wait(running).await?;
    // A worker that goes interrupts what it runs.
    drop(worker);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(engine.job(interrupted).await?.state, State::Interrupted);
    engine.cancel(interrupted).await?;
    for (id, expected) in [
        (retrying, ["retry_scheduled 1 HANDLER_FAILED worker", "cancelled 1 - user"]),
        (running, ["running 1 - worker", "cancelled 1 - worker"]),
        (interrupted, ["interrupted 1 - worker", "cancelled 1 - user"]),
    ] {
        let history = history(&engine, id).await;
        assert_eq!(history[history.len() - 2..], expected);
        assert!(engine.cancel(id).await.is_err(), "nothing follows an end");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_known_key_gives_the_run_that_exists_and_a_task_runs_once_at_a_time() -> HandlerResult {
    let (engine, faults) = (steady_engine(), Faults::new());
    let first = create(&engine, run_of("report", "monday", &Do::succeed())).await?;
    let again = create(&engine, run_of("other", "monday", &Do::Fail)).await?;
    assert_eq!(again, first, "whatever else was sent");
    let refused = create(&engine, run_of("report", "tuesday", &Do::succeed())).await;
    let Err(SubmitError::Refused(refusal @ Refusal::TaskActive { .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refusal.code(), "TASK_ACTIVE");
    let worker = work(&engine, &faults).await?;
    engine.wait(first).await?;
    assert_eq!(create(&engine, run_of("report", "monday", &Do::Fail)).await?, first);
    let second = create(&engine, run_of("report", "tuesday", &Do::succeed())).await?;
    engine.wait(second).await?;
    let document = RunDocument::new(&engine.job(second).await?);
    assert_eq!((document.run_status, document.attempt), ("succeeded", 2));
    let trace = format!("trace-run-{second}-");
    assert!(document.trace_id.as_str().starts_with(&trace), "{}", document.trace_id);
    worker.shutdown().await?;
    Ok(())
}
