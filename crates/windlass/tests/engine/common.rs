//! What the tests share: a job that does what its payload says, and stores to run it on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use windlass::{
    Context, Engine, Failure, HandlerResult, Ids, JobId, Outcome, State, SubmitError, Work, testing,
};
use windlass_kernel::{
    Actor, Answer, Jitter, Principal, TenantId,
    ops::{Enqueue, NewJob},
};
use windlass_store::{Reply, Write, read::Scope};
use windlass_testkit::postgres::Cluster;

/// A job that does what it says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Do {
    /// Succeeds with its name.
    Succeed(String),
    /// Fails, and may be tried again.
    Fail,
    /// Fails for good.
    FailForGood,
    /// Fails in its first so many attempts.
    FailTimes(u32),
    /// Panics.
    Panic,
    /// Never returns.
    Hang,
    /// Takes this long.
    SleepMs(u64),
    /// Snoozes once, for so long.
    SnoozeMs(u64),
    /// Is done in part.
    Partial,
    /// Waits until it is told to stop, and cleans up.
    UntilStopped,
}

impl Work for Do {
    const KIND: &str = "do";
}

impl Do {
    pub(crate) fn succeed() -> Self {
        Do::Succeed("ok".to_owned())
    }
}

pub(crate) async fn act(what: Do, context: Context) -> HandlerResult<Outcome> {
    match what {
        Do::Succeed(name) => Ok(Outcome::done(&name)),
        Do::Fail => Err("it failed".into()),
        Do::FailForGood => Err(Failure::permanent("GONE", "it is gone").into()),
        Do::FailTimes(times) if context.attempt() <= times => Err("not yet".into()),
        Do::FailTimes(_) => Ok(Outcome::done(&context.attempt())),
        Do::Panic => panic!("it panicked"),
        Do::Hang => std::future::pending().await,
        Do::SleepMs(ms) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(Outcome::done(&ms))
        }
        Do::SnoozeMs(ms) if context.woken().is_none() => {
            Ok(Outcome::snooze(Duration::from_millis(ms)))
        }
        Do::SnoozeMs(_) => Ok(Outcome::done(&context.epoch().get())),
        Do::Partial => Ok(Outcome::partial(&1, &"two and three")),
        Do::UntilStopped => {
            let why = context.stopped().await;
            Ok(Outcome::cancelled(format!("{why:?}")))
        }
    }
}

/// An engine in memory on which nothing is left to chance: a retry waits exactly as long as it has to.
pub(crate) fn steady_engine() -> Engine {
    let (clock, made) = (testing::clock(), AtomicU32::new(1));
    // The spread of a retry is what is left of a number when it is divided by this.
    let spread = Jitter::MAX_MS + 1;
    let random =
        Arc::new(move || u128::from(made.fetch_add(1, Ordering::SeqCst)) * u128::from(spread));
    let store = testing::store(clock.clone()).unwrap();
    Engine::on(store, &testing::config(clock, random))
}

/// Asks for a new job in the words of the kernel, as the contracts have them.
pub(crate) async fn enqueue_new(engine: &Engine, new: NewJob) -> Result<Answer, SubmitError> {
    let ids = Ids::system();
    let tenant = TenantId::new(Engine::TENANT_DEFAULT).unwrap();
    let by = Actor::User(Principal::new("ann").unwrap()).into();
    let (job_id, random) = (ids.job_id(), ids.random());
    let op = Enqueue { job_id, tenant: tenant.clone(), new: Box::new(new), random, by };
    match engine.committer().submit(Write::Op { tenant, op: op.into() }).await? {
        Reply::Answer(answer, _) => Ok(answer),
        other => panic!("an op was answered with {other:?}"),
    }
}

/// Jobs that a worker has in hand while all its slots are taken.
pub(crate) struct Ahead {
    /// Those in its slots, which take long.
    pub(crate) long: Vec<JobId>,
    /// Those in its local queue.
    pub(crate) waiting: Vec<JobId>,
}

/// Lets a worker with two slots claim ahead. It does many short jobs, so that its pace is high; then two long ones take
/// its slots, and short ones wait behind them.
pub(crate) async fn claim_ahead(engine: &Engine, long_ms: u64) -> HandlerResult<Ahead> {
    enqueue_later(engine, vec![Do::SleepMs(10); 100]).await?;
    let long = enqueue_later(engine, vec![Do::SleepMs(long_ms); 2]).await?;
    let waiting = enqueue_later(engine, vec![Do::succeed(); 6]).await?;
    for id in &long {
        while engine.job(*id).await?.state != State::Running {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for id in &waiting {
        assert_eq!(engine.job(*id).await?.state, State::Dispatched, "it is not claimed ahead");
    }
    Ok(Ahead { long, waiting })
}

/// Enqueues jobs that are claimed after all that are there.
async fn enqueue_later(engine: &Engine, what: Vec<Do>) -> HandlerResult<Vec<JobId>> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let enqueued = engine.enqueue_all(what).await.into_iter();
    Ok(enqueued.map(|it| it.map(|it| it.id)).collect::<Result<_, _>>()?)
}

/// A text with all times cut to whole seconds. Timers ring up to a few milliseconds late.
pub(crate) fn in_whole_seconds(text: &str) -> String {
    let mut parts = text.split('.');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_fraction = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        match part.split_once('Z') {
            Some((digits, rest)) if is_fraction(digits) => whole = format!("{whole}Z{rest}"),
            _ => whole = format!("{whole}.{part}"),
        }
    }
    whole
}

/// How a job came to where it is, as words: `queued dispatched running succeeded`.
pub(crate) async fn path(engine: &Engine, id: JobId) -> String {
    let events = engine.store().events(&Scope::Every, id).await.unwrap();
    let moves = events.iter().filter(|event| event.is_move());
    moves.map(|event| event.to.as_str()).collect::<Vec<_>>().join(" ")
}

/// A real store with a home of its own, which goes when this does.
pub(crate) struct Home {
    pub(crate) url: String,
    _folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("w.db").display());
        Self { url, _folder: folder }
    }

    pub(crate) fn postgres() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let schema = format!("engine_{}", NEXT.fetch_add(1, Ordering::SeqCst));
        let port = Cluster::shared().port();
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}");
        Self { url, _folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) async fn open(&self) -> Engine {
        Engine::open(&self.url).await.unwrap()
    }
}

/// Counts what happens outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicU32>);

impl Counter {
    pub(crate) fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}
