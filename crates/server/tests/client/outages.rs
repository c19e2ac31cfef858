//! A bad day: the server is killed, or a worker freezes. What was accepted is done, and once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, Semaphore};
use windlass::{Context, Engine, Error, HandlerResult, JobRequest, Refusal, State, worker::Worker};
use windlass_kernel::{
    By, JobId, WorkerId,
    ops::{Outcome, Settle},
};
use windlass_store::{Write, read::Scope};

use crate::{
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(
    a_server_that_is_killed_in_the_middle_loses_nothing,
    a_worker_that_was_frozen_cannot_settle,
    a_goodbye_that_nobody_hears_holds_up_no_shutdown,
);

/// A handler that goes on when it may.
#[derive(Default)]
struct Gate {
    began: Notify,
    runs: AtomicU32,
    open: Option<Semaphore>,
}

async fn through(_: u32, _: Context, gate: Arc<Gate>) -> HandlerResult<&'static str> {
    gate.runs.fetch_add(1, Ordering::SeqCst);
    gate.began.notify_one();
    let _open = gate.open.as_ref().expect("it is there").acquire().await?;
    Ok("done")
}

async fn a_server_that_is_killed_in_the_middle_loses_nothing(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    let gate = Arc::new(Gate { open: Some(Semaphore::new(0)), ..Gate::default() });
    let worker = engine.worker().state(gate.clone()).handle_kind("gate", through);
    let worker = worker.lease(Duration::from_secs(60)).renew_every(Duration::from_millis(200));
    let worker: Worker =
        worker.concurrency(64).poll(Duration::from_secs(3600)).start().await.unwrap();
    let first = engine.enqueue(JobRequest::of("gate", &0)).await.unwrap();
    gate.began.notified().await;

    let address = server.address().to_owned();
    let enqueuing = tokio::spawn(enqueue_all_the_same(engine.clone(), 1..41));
    tokio::time::sleep(Duration::from_millis(30)).await;
    server.kill();
    gate.open.as_ref().unwrap().add_permits(1_000);
    // What ends now cannot be reported yet.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let server = Server::start_at(&store, &address);

    let mut ids = enqueuing.await.unwrap();
    ids.push(first.id);
    for id in &ids {
        let ended = engine.wait(*id).await.unwrap();
        assert_eq!(ended.result::<String>().unwrap(), "done");
        assert_eq!((ended.job.attempt, ended.job.retry_count), (1, 0), "{id}");
        let events = engine.store().events(&Scope::Every, *id).await.unwrap();
        let ends = events.iter().filter(|event| event.to.is_end()).count();
        assert_eq!(ends, 1, "{id} ends once");
    }
    let runs = gate.runs.load(Ordering::SeqCst);
    println!("{} jobs, {runs} runs", ids.len());
    worker.shutdown().await.unwrap();
    drop(server);
    store.check();
}

/// Enqueues each of these once, however often it takes.
async fn enqueue_all_the_same(engine: Engine, numbers: std::ops::Range<u32>) -> Vec<JobId> {
    let mut ids = Vec::new();
    for number in numbers {
        let id = engine.ids().job_id();
        while let Err(error) = engine.enqueue(JobRequest::of("gate", &number).id(id)).await {
            assert!(error.is_retryable(), "{error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ids.push(id);
    }
    ids
}

/// What a worker's observer was told.
type Reports = Arc<Mutex<Vec<Option<State>>>>;

async fn a_worker_that_was_frozen_cannot_settle(store: Store) {
    const LEASE: Duration = Duration::from_secs(1);
    let server = Server::start(&store);
    let engine = server.engine().await;
    let (began, reports) = (Arc::new(Notify::new()), Reports::default());
    let url = server.url();
    let frozen = {
        let (began, reports) = (began.clone(), reports.clone());
        // A thread of its own, which stands still with all that is on it.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let engine = Engine::open(&url).await.unwrap();
                let worker = engine.worker().state(began).handle_kind("slow", freeze).lease(LEASE);
                let told = reports.clone();
                let worker = worker.name("frozen").observe(move |report| {
                    told.lock().unwrap().push(report.state);
                });
                let worker = worker.start().await.unwrap();
                while reports.lock().unwrap().is_empty() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                worker.shutdown().await.unwrap();
            });
        })
    };
    // Only the frozen one is there yet.
    let made = engine.enqueue(JobRequest::of("slow", &()).max_retries(0)).await.unwrap();
    began.notified().await;
    let epoch = engine.job(made.id).await.unwrap().epoch;
    async fn fresh(_: ()) -> HandlerResult<&'static str> {
        Ok("fresh")
    }
    let worker = engine.worker().name("fresh").handle_kind("slow", fresh).start().await.unwrap();
    let ended = engine.wait(made.id).await.unwrap();
    assert_eq!(ended.result::<String>().unwrap(), "fresh");
    assert!(ended.job.epoch > epoch);
    tokio::task::spawn_blocking(move || frozen.join().unwrap()).await.unwrap();
    assert_eq!(*reports.lock().unwrap(), [None], "it lost its lease, and reported nothing");

    let by = By::worker(WorkerId::new("frozen").unwrap());
    let (outcome, jitter) = (Outcome::Succeeded { result: None }, windlass_kernel::Jitter::NONE);
    let settle = Settle { job_id: made.id, epoch, by, outcome, stats: None, jitter };
    let tenant = ended.job.spec.tenant.clone();
    let refused = engine.submit(Write::Op { tenant, op: settle.into() }).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::StaleAttempt)), "{refused}");
    worker.shutdown().await.unwrap();
    drop(server);
    store.check();
}

/// The call of a goodbye alone may take 30 seconds.
async fn a_goodbye_that_nobody_hears_holds_up_no_shutdown(store: Store) {
    let server = Server::start(&store);
    let engine = server.engine().await;
    let gate = Arc::new(Gate { open: Some(Semaphore::new(0)), ..Gate::default() });
    let worker = engine.worker().state(gate.clone()).handle_kind("gate", through);
    // With its only slot taken it asks for nothing, so no claim is on its way.
    let worker = worker.concurrency(1).grace(Duration::from_secs(1)).start().await.unwrap();
    engine.enqueue(JobRequest::of("gate", &1u32)).await.unwrap();
    gate.began.notified().await;
    server.freeze();
    let began = std::time::Instant::now();
    worker.shutdown().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
}

/// Stops the whole thread for longer than the lease, and then says that all went well.
async fn freeze(_: (), _: Context, began: Arc<Notify>) -> HandlerResult<&'static str> {
    began.notify_one();
    // Whoever waits for it is on another thread.
    std::thread::sleep(Duration::from_secs(4));
    Ok("late")
}
