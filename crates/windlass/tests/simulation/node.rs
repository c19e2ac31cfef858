//! A node: an engine and a worker, which can be killed and started again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use windlass::{
    Clock, Config, Context, Engine, Epoch, Failure, HandlerResult, JobId, Outcome, Work, Worker,
    testing,
};
use windlass_kernel::WorkerId;
use windlass_store::sqlite::Sqlite;
use windlass_testkit::refusals::RefusalNote;

use crate::{chance::Chance, line::Line};

/// A job that does what it says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Do {
    SleepMs(u64),
    FailTimes(u32),
    FailForGood,
    PanicTimes(u32),
    HangTimes(u32),
    SnoozeMs(u64),
}

impl Work for Do {
    const KIND: &str = "do";
}

/// What is seen from outside: which executions began, and what a fenced system let through.
#[derive(Default)]
pub(crate) struct Outside {
    began: Mutex<BTreeSet<(JobId, Epoch)>>,
    newest: Mutex<BTreeMap<JobId, Epoch>>,
    /// Writes that came with an old epoch.
    stale: Mutex<u64>,
}

impl Outside {
    fn begin(&self, context: &Context) {
        let is_new = self.began.lock().unwrap().insert((context.job_id(), context.epoch()));
        assert!(is_new, "one lease, two executions: {:?}", context.fence());
    }

    /// Only if it is as new as the last that was seen.
    fn write(&self, context: &Context) {
        let mut newest = self.newest.lock().unwrap();
        let last = newest.entry(context.job_id()).or_insert(context.epoch());
        if context.epoch() < *last {
            *self.stale.lock().unwrap() += 1;
        }
        *last = context.epoch().max(*last);
    }

    pub(crate) fn stale(&self) -> u64 {
        *self.stale.lock().unwrap()
    }

    pub(crate) fn began(&self) -> Vec<(JobId, Epoch)> {
        self.began.lock().unwrap().iter().copied().collect()
    }
}

async fn act(what: Do, context: Context, outside: Arc<Outside>) -> HandlerResult<Outcome> {
    outside.begin(&context);
    // A system outside is written to late, by somebody who does not look whether the lease is still there.
    let (late, elsewhere) = (context.clone(), outside.clone());
    tokio::spawn(async move {
        sleep(Duration::from_secs(9)).await;
        elsewhere.write(&late);
    });
    let attempt = context.attempt();
    match what {
        Do::SleepMs(ms) => sleep(Duration::from_millis(ms)).await,
        Do::FailTimes(times) if attempt <= times => return Err("not yet".into()),
        Do::FailForGood => return Err(Failure::permanent("GONE", "it is gone").into()),
        Do::PanicTimes(times) if attempt <= times => panic!("on purpose"),
        Do::HangTimes(times) if attempt <= times => std::future::pending().await,
        Do::SnoozeMs(ms) if context.woken().is_none() => {
            return Ok(Outcome::snooze(Duration::from_millis(ms)));
        }
        _ => {}
    }
    outside.write(&context);
    Ok(Outcome::done(&attempt))
}

/// What a node is made on.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) store: Arc<Sqlite>,
    pub(crate) clock: Clock,
    pub(crate) dead: Arc<Mutex<BTreeSet<WorkerId>>>,
    pub(crate) outside: Arc<Outside>,
    /// All that was refused.
    pub(crate) refused: Arc<Mutex<Vec<RefusalNote>>>,
    /// So many of a hundred settles are refused by a lie.
    pub(crate) lies_percent: u64,
}

pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) line: Arc<Line>,
    worker: Worker,
}

impl Node {
    pub(crate) async fn start(ground: &Ground, chance: &Chance) -> Self {
        let line = Line::new(ground.store.clone(), chance.fork(), ground.dead.clone());
        let line = line.by_ways(1 + chance.index(3));
        let line = Arc::new(line.noting(ground.refused.clone(), ground.lies_percent));
        let config = Config {
            retention: None,
            ..testing::config(ground.clock.clone(), chance.fork().random())
        };
        let engine = Engine::on(line.clone(), &config);
        let lease = chance.ms(2_000, 8_000);
        let slots = 1 + usize::try_from(chance.below(6)).unwrap();
        let worker = engine.worker().state(ground.outside.clone()).lease(lease);
        let worker = worker.concurrency(slots).grace(chance.ms(0, 3_000)).handle(act);
        let worker = worker.start().await.unwrap();
        Self { engine, line, worker }
    }

    /// Dies at once. If `proven`, everybody can know.
    pub(crate) fn kill(self, ground: &Ground, proven: bool) -> Arc<Line> {
        if proven {
            ground.dead.lock().unwrap().insert(self.worker.id().clone());
        }
        self.worker.kill();
        self.engine.kill();
        self.line
    }

    /// Ends in good order.
    pub(crate) async fn end(self) -> Arc<Line> {
        self.worker.shutdown().await.unwrap();
        self.engine.close().await;
        self.line
    }
}
