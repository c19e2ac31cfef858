//! A good day: what callers and handlers do, with nothing but the address changed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use windlass::{
    Context, Engine, Error, Failure, HandlerResult, JobRequest, Outcome, Refusal, State, Stop,
    Work,
    faults::{Fault, Faults},
    job, rule,
    why::Reason,
};
use windlass_kernel::job::Wakeup;
use windlass_store::read::{JobFilter, PageFrom, Scope};

use crate::{
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(
    the_first_job_of_the_readme,
    payloads_and_results_pass_byte_for_byte,
    a_failure_is_tried_again_and_in_the_end_a_dead_letter,
    a_handler_can_wait_and_say_how_far_it_is,
    a_cancel_reaches_a_handler_that_runs,
    a_shutdown_gives_back_what_runs_and_it_counts_for_nothing,
    a_shutdown_says_goodbye,
    a_thousand_jobs_go_at_once_and_a_key_gives_one,
    a_job_starts_at_once_on_an_idle_worker,
    rules_schedules_and_lists_are_the_same,
    an_injected_fault_takes_a_lease_away,
);

#[derive(Serialize, Deserialize)]
struct SendMail {
    to: String,
}

impl Work for SendMail {
    const KIND: &str = "send_mail";
}

async fn send(mail: SendMail) -> HandlerResult<String> {
    Ok(format!("sent to {}", mail.to))
}

fn mail(to: &str) -> SendMail {
    SendMail { to: to.to_owned() }
}

async fn the_first_job_of_the_readme(store: Store) {
    let server = Server::start(&store);
    let example = async || -> HandlerResult<String> {
        let engine = Engine::open(&server.url()).await?;
        let worker = engine.worker().handle(send).start().await?;

        let job = engine.enqueue(SendMail { to: "ann@example.com".to_owned() }).await?;
        let answer: String = engine.wait(job.id).await?.result()?;

        worker.shutdown().await?;
        Ok(answer)
    };
    assert_eq!(example().await.unwrap(), "sent to ann@example.com");
    drop(server);
    store.check();
}

async fn payloads_and_results_pass_byte_for_byte(store: Store) {
    const TEXT: &str =
        r#"{"n":1.50,"large":123456789012345678901234567890,"é":"\u00e9", "e":1e400}"#;
    let server = Server::start(&store);
    let engine = server.engine().await;
    async fn echo(payload: Box<RawValue>) -> HandlerResult<Box<RawValue>> {
        Ok(payload)
    }
    let worker = engine.worker().handle_kind("echo", echo).start().await.unwrap();
    let made = engine.enqueue(JobRequest::raw("echo", TEXT)).await.unwrap();
    let ended = engine.wait(made.id).await.unwrap();
    assert_eq!(ended.result.as_deref(), Some(TEXT));
    let kept = engine.store().payload(&Scope::Every, made.id).await.unwrap();
    assert_eq!(kept.as_deref(), Some(TEXT));
    worker.shutdown().await.unwrap();
}

async fn a_failure_is_tried_again_and_in_the_end_a_dead_letter(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    async fn flaky(succeeds_at: u32, context: Context) -> HandlerResult<u32> {
        match context.retry_count() {
            tries if tries >= succeeds_at => Ok(tries),
            0 => panic!("the first time it panics"),
            _ => Err(Failure::transient("MAIL_DOWN", "nobody answers").into()),
        }
    }
    let worker = engine.worker().handle_kind("flaky", flaky).start().await.unwrap();
    let soon = Duration::from_millis(5);
    let request = |at: u32| JobRequest::of("flaky", &at).backoff(soon, soon).max_retries(2);
    let made = engine.enqueue(request(2)).await.unwrap();
    assert_eq!(engine.wait(made.id).await.unwrap().result::<u32>().unwrap(), 2);
    let attempts = engine.store().attempts(&Scope::Every, made.id, 0, 10).await.unwrap().items;
    let codes: Vec<_> =
        attempts.iter().map(|it| it.failure.as_ref().map(|it| it.code.as_str())).collect();
    assert_eq!(codes, [Some("HANDLER_PANICKED"), Some("MAIL_DOWN"), None]);

    let made = engine.enqueue(request(9)).await.unwrap();
    let ended = engine.wait(made.id).await.unwrap();
    assert_eq!(ended.job.state, State::Failed);
    assert_eq!(ended.job.error.as_ref().map(|it| it.code.as_str()), Some("MAIL_DOWN"));
    let letter = ended.job.dlq_id.expect("it has a dead letter");
    let again = engine.requeue(letter).await.unwrap();
    assert_ne!(again.id, made.id);
    assert_eq!(engine.wait(again.id).await.unwrap().job.state, State::Failed);
    let refused = engine.requeue(letter).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::DlqRequeueConflict { .. })), "{refused}");
    let third = engine.rerun(again.id).await.unwrap();
    assert_eq!(engine.wait(third.id).await.unwrap().job.state, State::Failed);
    let refused = engine.retry_now(third.id).await.unwrap_err();
    assert!(
        matches!(refused, Error::Refused(Refusal::InvalidTransition { from: State::Failed, .. })),
        "it is not run again by a retry: {refused}"
    );
    worker.shutdown().await.unwrap();
    drop(server);
    store.check();
}

async fn a_handler_can_wait_and_say_how_far_it_is(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    async fn patient(files: u32, context: Context) -> HandlerResult<Outcome> {
        if context.woken().is_none() {
            context.heartbeat().await?;
            context.progress(&(1, "a.csv")).await?;
            return Ok(Outcome::snooze(Duration::from_millis(100)));
        }
        assert_eq!(context.woken(), Some(Wakeup::Time));
        let child = context.engine().enqueue(mail("bob")).await?;
        Ok(Outcome::partial(&child.id, &(files - 1)))
    }
    let worker = engine.worker().handle_kind("patient", patient).handle(send);
    let worker = worker.start().await.unwrap();
    let made = engine.enqueue(JobRequest::of("patient", &7)).await.unwrap();
    let ended = engine.wait(made.id).await.unwrap();
    assert_eq!(ended.job.state, State::Partial);
    assert_eq!(ended.remaining.as_deref(), Some("6"));
    let progress = engine.progress(made.id).await.unwrap().expect("it said something");
    assert_eq!(progress.get::<(u32, String)>().unwrap(), (1, "a.csv".to_owned()));
    let child = ended.result().unwrap();
    let child = engine.wait(child).await.unwrap();
    assert_eq!(child.job.spec.trace_id, ended.job.spec.trace_id);
    worker.shutdown().await.unwrap();
    drop(server);
    store.check();
}

/// Runs until it is told to stop.
async fn endless(_: (), context: Context, began: Arc<Notify>) -> HandlerResult<Outcome> {
    began.notify_one();
    match context.stopped().await {
        Stop::Cancelled => Ok(Outcome::cancelled("stopped half-way".to_owned())),
        _ => std::future::pending().await,
    }
}

async fn a_cancel_reaches_a_handler_that_runs(store: Store) {
    let server = Server::start(&store);
    let (engine, elsewhere) = (server.engine().await, server.engine().await);
    let began = Arc::new(Notify::new());
    let worker = engine.worker().state(began.clone()).handle_kind("endless", endless);
    let worker = worker.lease(Duration::from_secs(5)).renew_every(Duration::from_millis(100));
    let worker = worker.start().await.unwrap();
    for canceller in [&engine, &elsewhere] {
        let made = engine.enqueue(JobRequest::of("endless", &())).await.unwrap();
        began.notified().await;
        assert_eq!(canceller.cancel(made.id).await.unwrap(), State::Running);
        assert_eq!(engine.wait(made.id).await.unwrap().job.state, State::Cancelled);
        let refused = canceller.cancel(made.id).await.unwrap_err();
        assert!(matches!(refused, Error::Refused(Refusal::InvalidTransition { .. })), "{refused}");
    }
    let nobody = windlass::JobId::from_u128(7);
    let refused = engine.cancel(nobody).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::NotFound { what: "job" })), "{refused}");
    assert!(matches!(engine.job(nobody).await, Err(Error::NoJob(_))));
    worker.shutdown().await.unwrap();
}

async fn a_shutdown_gives_back_what_runs_and_it_counts_for_nothing(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    let began = Arc::new(Notify::new());
    let worker = engine.worker().state(began.clone()).handle_kind("endless", endless);
    let worker = worker.grace(Duration::from_millis(50)).start().await.unwrap();
    let made = engine.enqueue(JobRequest::of("endless", &())).await.unwrap();
    began.notified().await;
    worker.shutdown().await.unwrap();
    let job = engine.job(made.id).await.unwrap();
    assert_eq!((job.state, job.interruptions, job.retry_count), (State::Interrupted, 0, 0));
    async fn quick(_: ()) -> HandlerResult {
        Ok(())
    }
    let worker = engine.worker().handle_kind("endless", quick).start().await.unwrap();
    let ended = engine.wait(made.id).await.unwrap();
    assert_eq!((ended.job.state, ended.job.attempt), (State::Succeeded, 1));
    worker.shutdown().await.unwrap();
    drop(server);
    store.check();
}

async fn a_shutdown_says_goodbye(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    let worker = engine.worker().handle(send).start().await.unwrap();
    let made = engine.enqueue(mail("ann")).await.unwrap();
    engine.wait(made.id).await.unwrap();
    worker.shutdown().await.unwrap();
    let made = engine.enqueue(mail("bob")).await.unwrap();
    let why = engine.why(made.id).await.unwrap();
    assert!(matches!(&why.reasons[..], [Reason::NoWorkerForKind { .. }]), "{why}");
}

async fn a_thousand_jobs_go_at_once_and_a_key_gives_one(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    let done = Arc::new(AtomicU32::new(0));
    async fn count(_: SendMail, _: Context, done: Arc<AtomicU32>) -> HandlerResult {
        done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    let began = Instant::now();
    let made = engine.enqueue_all((0..1_000).map(|number| mail(&format!("{number}")))).await;
    let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    println!("1,000 jobs are enqueued in {:?}", began.elapsed());
    let traces = engine.job(made[0].id).await.unwrap().spec.trace_id.clone();
    assert_ne!(traces, engine.job(made[1].id).await.unwrap().spec.trace_id);
    let worker = engine.worker().state(done.clone()).handle(count).concurrency(100);
    let worker = worker.start().await.unwrap();
    let began = Instant::now();
    for made in &made {
        assert!(!made.idempotent_hit);
        assert!(engine.wait(made.id).await.unwrap().is_success());
    }
    println!("and done in {:?}", began.elapsed());
    assert_eq!(done.load(Ordering::Relaxed), 1_000);
    worker.shutdown().await.unwrap();

    let first = engine.enqueue(job(mail("ann")).key("order-17")).await.unwrap();
    let again = engine.enqueue(job(mail("ann")).key("order-17")).await.unwrap();
    assert_eq!((again.id, first.idempotent_hit, again.idempotent_hit), (first.id, false, true));
    let refused = engine.enqueue(job(mail("bob")).key("order-17")).await.unwrap_err();
    let Error::Refused(Refusal::IdempotencyConflict { job_id, fields }) = refused else {
        panic!("{refused}")
    };
    assert_eq!((job_id, fields), (first.id, vec!["payload"]));
    let id = engine.ids().job_id();
    let first = engine.enqueue(job(mail("eve")).id(id)).await.unwrap();
    let again = engine.enqueue(job(mail("eve")).id(id)).await.unwrap();
    assert_eq!((first.id, again.id), (id, id));
    assert_eq!((first.idempotent_hit, again.idempotent_hit), (false, true));
    drop(server);
    store.check();
}

async fn a_job_starts_at_once_on_an_idle_worker(store: Store) {
    const POLL: Duration = Duration::from_secs(3600);
    const ROUNDS: usize = 30;
    let server = Server::start(&store);
    let (engine, elsewhere) = (server.engine().await, server.engine().await);
    let (began, told) = tokio::sync::mpsc::unbounded_channel();
    async fn tell(
        _: (),
        _: Context,
        began: Arc<tokio::sync::mpsc::UnboundedSender<Instant>>,
    ) -> HandlerResult {
        began.send(Instant::now())?;
        Ok(())
    }
    let worker = engine.worker().state(Arc::new(began)).handle_kind("tell", tell).poll(POLL);
    let worker = worker.start().await.unwrap();
    let mut told = told;
    let mut waits = Vec::new();
    for _ in 0..ROUNDS {
        // It is idle by now.
        tokio::time::sleep(Duration::from_millis(30)).await;
        let sent = Instant::now();
        elsewhere.enqueue(JobRequest::of("tell", &())).await.unwrap();
        waits.push(told.recv().await.expect("it began").duration_since(sent));
    }
    waits.sort_unstable();
    let (middle, longest) = (waits[ROUNDS / 2], waits[ROUNDS - 1]);
    println!("from the call of an enqueue to the handler: {middle:?}, at most {longest:?}");
    assert!(longest < Duration::from_secs(10), "{waits:?}");
    // A retry becomes due because time passes, and is heard of too.
    async fn twice(_: (), context: Context) -> HandlerResult {
        match context.retry_count() {
            0 => Err("once more".into()),
            _ => Ok(()),
        }
    }
    let patient = engine.worker().handle_kind("twice", twice).poll(POLL).start().await.unwrap();
    let soon = Duration::from_millis(100);
    let made = engine.enqueue(JobRequest::of("twice", &()).backoff(soon, soon)).await.unwrap();
    let later = engine.enqueue(JobRequest::of("twice", &()).after(soon).max_retries(0));
    let later = later.await.unwrap();
    assert!(engine.wait(made.id).await.unwrap().is_success());
    assert_eq!(engine.wait(later.id).await.unwrap().job.state, State::Failed);
    patient.shutdown().await.unwrap();
    worker.shutdown().await.unwrap();
}

async fn rules_schedules_and_lists_are_the_same(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    let worker = engine.worker().handle(send).start().await.unwrap();
    let pause = rule("mail stop").queue("default").reason("maintenance").pause();
    engine.put_rule(pause).await.unwrap();
    assert_eq!(engine.rules().await.unwrap().len(), 1);
    let made = engine.enqueue(job(mail("ann")).tag("slow").priority(5)).await.unwrap();
    let why = engine.why(made.id).await.unwrap();
    assert!(
        matches!(&why.reasons[..], [Reason::Rule { blocked, .. }] if blocked.rule.as_str() == "mail stop"),
        "{why}"
    );
    let page = |states: Vec<State>| {
        let filter = JobFilter { states, ..JobFilter::of(Scope::Every) };
        let filter = JobFilter { tag: Some("slow".parse().unwrap()), ..filter };
        engine.store().jobs(filter, PageFrom { from: None, limit: 10 })
    };
    assert_eq!(page(vec![State::Queued]).await.unwrap().items[0].id, made.id);
    assert!(page(vec![State::Failed, State::Running]).await.unwrap().items.is_empty());
    let dropped = engine.drop_rule("mail stop", None).await.unwrap();
    assert_eq!(dropped.reason.as_deref(), Some("maintenance"));
    let missing = engine.drop_rule("mail stop", None).await.unwrap_err();
    assert!(matches!(missing, Error::Refused(Refusal::NotFound { what: "rule" })), "{missing}");
    assert!(engine.wait(made.id).await.unwrap().is_success());
    let why = engine.why(made.id).await.unwrap();
    assert!(matches!(&why.reasons[..], [Reason::Ended { at: Some(_) }]), "{why}");
    let events = engine.store().events(&Scope::Every, made.id).await.unwrap();
    let states: Vec<State> = events.iter().map(|event| event.to).collect();
    assert_eq!(states.first(), Some(&State::Queued));
    assert_eq!(states.last(), Some(&State::Succeeded));
    assert!(!events[0].started && events.last().is_some_and(|event| event.started));

    let nightly = engine.schedule("nightly", job(mail("bob")).max_retries(5));
    let put = nightly.cron("0 3 * * *", "Europe/Berlin").put().await.unwrap();
    assert_eq!(put.spec.job.max_retries, 5);
    let schedules = engine.schedules();
    let made = schedules.trigger("nightly").await.unwrap();
    assert_eq!(engine.wait(made).await.unwrap().result::<String>().unwrap(), "sent to bob");
    assert_eq!(schedules.get("nightly").await.unwrap().last_job, Some(made));
    schedules.pause("nightly", Some("holiday".to_owned())).await.unwrap();
    assert!(schedules.list(None, 10).await.unwrap()[0].pause.is_some());
    assert_eq!(schedules.preview("nightly", 3).await.unwrap().len(), 3);
    assert!(schedules.history("nightly", None, 10).await.unwrap().len() >= 2);
    schedules.resume("nightly").await.unwrap();
    schedules.delete("nightly").await.unwrap();
    assert!(schedules.get("nightly").await.is_err());
    worker.shutdown().await.unwrap();
}

/// Through a server, too, a lease that is taken away is an interruption of the same attempt, and no failure.
async fn an_injected_fault_takes_a_lease_away(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    async fn echo(number: u32) -> HandlerResult<u32> {
        Ok(number)
    }
    let faults = Faults::new();
    let worker = engine.worker().layer(faults.clone()).handle_kind("echo", echo);
    let worker = worker.start().await.unwrap();
    for fault in [Fault::ProcessRestartInterrupt, Fault::LostLease] {
        faults.inject(fault, 1);
        let made = engine.enqueue(JobRequest::of("echo", &7_u32)).await.unwrap();
        let ended = engine.wait(made.id).await.unwrap();
        let job = &ended.job;
        assert_eq!(
            (job.state, job.attempt, job.retry_count),
            (State::Succeeded, 1, 0),
            "{fault:?}"
        );
        assert_eq!((job.interruptions, job.epoch.get()), (1, 2), "{fault:?}");
        assert!(faults.is_spent(), "{fault:?}");
    }
    worker.shutdown().await.unwrap();
    drop(server);
    store.check();
}
