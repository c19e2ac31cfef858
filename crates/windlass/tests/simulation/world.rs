//! A cluster lives for some minutes of its own time, and is judged.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use windlass::{JobId, State, job, testing};
use windlass_kernel::{Event, Fact};
use windlass_store::{Inspect as _, ReadFeed as _, ReadJobs as _, read::Scope};
use windlass_testkit::refusals::{self, RefusalNote, Step};

use crate::{
    chance::Chance,
    line::Weather,
    node::{Do, Ground, Node, Outside},
};

/// What a seed told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The hash of all events.
    pub(crate) history: u64,
    pub(crate) events: u64,
    pub(crate) jobs: u64,
    pub(crate) kills: u64,
    pub(crate) cuts: u64,
    pub(crate) lost_answers: u64,
    pub(crate) interruptions: u64,
    pub(crate) retries: u64,
    /// Writes of executions that had lost their lease, as a system outside saw them.
    pub(crate) stale: u64,
    /// What was refused and can be held against the history.
    pub(crate) refused: u64,
    /// Refusals for which the history has no reason.
    pub(crate) unfounded: Vec<RefusalNote>,
}

impl Told {
    pub(crate) fn add(&mut self, other: &Told) {
        self.history ^= other.history;
        self.events += other.events;
        self.jobs += other.jobs;
        self.kills += other.kills;
        self.cuts += other.cuts;
        self.lost_answers += other.lost_answers;
        self.interruptions += other.interruptions;
        self.retries += other.retries;
        self.stale += other.stale;
        self.refused += other.refused;
        self.unfounded.extend(&other.unfounded);
    }
}

/// Lets a cluster live through what this seed brings.
pub(crate) fn live(seed: u64) -> Told {
    live_with(seed, 0)
}

/// The same in a world in which so many of a hundred settles are refused by a lie.
pub(crate) fn live_with(seed: u64, lies_percent: u64) -> Told {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { World::new(seed, lies_percent).live().await })
}

/// How long things go wrong.
const TROUBLE: Duration = Duration::from_secs(60);
/// How long the cluster may then take to come to rest.
const REST: Duration = Duration::from_secs(600);

struct World {
    seed: u64,
    chance: Chance,
    ground: Ground,
    nodes: Vec<Option<Node>>,
    jobs: Vec<JobId>,
    told: Told,
}

impl World {
    fn new(seed: u64, lies_percent: u64) -> Self {
        let clock = testing::clock();
        let store = testing::store(clock.clone()).unwrap();
        let dead = Arc::new(Mutex::new(BTreeSet::new()));
        let (outside, refused) = (Arc::new(Outside::default()), Arc::default());
        let ground = Ground { store, clock, dead, outside, refused, lies_percent };
        let (nodes, jobs, told) = (Vec::new(), Vec::new(), Told::default());
        Self { seed, chance: Chance::new(seed), ground, nodes, jobs, told }
    }

    async fn live(mut self) -> Told {
        for _ in 0..2 + self.chance.below(3) {
            let node = Node::start(&self.ground, &self.chance).await;
            self.nodes.push(Some(node));
        }
        let began = Instant::now();
        while began.elapsed() < TROUBLE {
            self.happen().await;
            sleep(self.chance.ms(0, 1_500)).await;
        }
        self.heal().await;
        self.come_to_rest().await;
        for node in std::mem::take(&mut self.nodes).into_iter().flatten() {
            self.told.lost_answers += node.end().await.lost_answers();
        }
        self.judge().await;
        self.told
    }

    /// One thing happens.
    async fn happen(&mut self) {
        let place = self.chance.index(self.nodes.len());
        match self.chance.below(100) {
            0..55 => self.enqueue(place).await,
            55..67 => self.kill(place),
            67..77 => self.restart(place).await,
            77..90 => self.change_weather(place),
            90..95 => self.rerun(place).await,
            _ => self.cancel(place).await,
        }
    }

    async fn enqueue(&mut self, place: usize) {
        let Some(node) = &self.nodes[place] else { return };
        let chance = &self.chance;
        let what = match chance.below(10) {
            0..4 => Do::SleepMs(chance.below(12_000)),
            4..6 => Do::FailTimes(1 + u32::try_from(chance.below(5)).unwrap()),
            6 => Do::FailForGood,
            7 => Do::PanicTimes(1),
            8 => Do::HangTimes(1),
            _ => Do::SnoozeMs(chance.below(5_000)),
        };
        let mut request = job(what).timeout(Duration::from_secs(20));
        if chance.percent(20) {
            request = request.after(chance.ms(0, 10_000));
        }
        if chance.percent(10) {
            request = request.max_interruptions(2);
        }
        if let Some(parent) = self.jobs.last().filter(|_| chance.percent(10)) {
            request = request.parent(*parent);
        }
        // What is not acknowledged may be there or not: nothing is promised.
        if let Ok(enqueued) = node.engine.enqueue(request).await {
            self.jobs.push(enqueued.id);
        }
    }

    fn kill(&mut self, place: usize) {
        if let Some(node) = self.nodes[place].take() {
            let line = node.kill(&self.ground, self.chance.percent(50));
            self.told.kills += 1;
            self.told.lost_answers += line.lost_answers();
        }
    }

    async fn restart(&mut self, place: usize) {
        if let Some(node) = self.nodes[place].take() {
            // It ends in good order, for the store can be reached.
            node.line.set(Weather::Fine);
            self.told.lost_answers += node.end().await.lost_answers();
        }
        self.nodes[place] = Some(Node::start(&self.ground, &self.chance).await);
    }

    fn change_weather(&mut self, place: usize) {
        let Some(node) = &self.nodes[place] else { return };
        let weather = match self.chance.below(3) {
            0 => Weather::Fine,
            1 => Weather::Cut,
            _ => Weather::LosesAnswers,
        };
        self.told.cuts += u64::from(weather == Weather::Cut);
        node.line.change(weather);
    }

    async fn cancel(&mut self, place: usize) {
        let Some(node) = &self.nodes[place] else { return };
        if self.jobs.is_empty() {
            return;
        }
        let which = self.chance.index(self.jobs.len());
        let grace = self.chance.ms(0, 3_000);
        let _ = node.engine.cancel_with(self.jobs[which], grace, None).await;
    }

    async fn rerun(&mut self, place: usize) {
        let Some(node) = &self.nodes[place] else { return };
        if self.jobs.is_empty() {
            return;
        }
        // It may have succeeded, or not have come to its end.
        let which = self.chance.index(self.jobs.len());
        if let Ok(again) = node.engine.rerun(self.jobs[which]).await {
            self.jobs.push(again.id);
        }
    }

    /// All lines are fine, and all nodes are there.
    async fn heal(&mut self) {
        for place in 0..self.nodes.len() {
            match &self.nodes[place] {
                Some(node) => node.line.set(Weather::Fine),
                None => {
                    let node = Node::start(&self.ground, &self.chance).await;
                    self.nodes[place] = Some(node);
                }
            }
        }
    }

    async fn come_to_rest(&self) {
        let began = Instant::now();
        loop {
            let open = self.ground.store.open_jobs().await.unwrap();
            if open.is_empty() {
                return;
            }
            let stuck = || {
                let jobs: Vec<String> = open.iter().map(|job| format!("{job:#?}")).collect();
                jobs.join("\n")
            };
            assert!(began.elapsed() < REST, "seed {}: stuck:\n{}", self.seed, stuck());
            sleep(Duration::from_secs(1)).await;
        }
    }

    async fn judge(&mut self) {
        let seed = self.seed;
        let store = self.ground.store.clone();
        for id in &self.jobs {
            let job = store.job(&Scope::Every, *id).await.unwrap();
            assert!(job.is_some(), "seed {seed}: {id} was acknowledged, and is gone");
        }
        let report = store.check().unwrap();
        assert!(report.is_clean(), "seed {seed}: {report}");
        self.hash_history().await;
        self.told.jobs = self.jobs.len() as u64;
        self.told.stale = self.ground.outside.stale();
        // Whatever ran was granted: its epoch is in the history.
        for (id, epoch) in self.ground.outside.began() {
            let events = store.events(&Scope::Every, id).await.unwrap();
            let started = |event: &Event| event.to == State::Running && event.epoch == epoch;
            assert!(events.iter().any(started), "seed {seed}: {id} ran in epoch {epoch}");
        }
    }

    async fn hash_history(&mut self) {
        let (mut hasher, mut history) = (DefaultHasher::new(), Vec::new());
        let mut after = 0;
        loop {
            let events = self.ground.store.feed(&Scope::Every, after, 1_000).await.unwrap();
            let Some(last) = events.events.last() else { break };
            after = last.number;
            for event in events.events {
                (event.number, event.tenant.as_str(), event.at.as_micros()).hash(&mut hasher);
                event.line.hash(&mut hasher);
                history.extend(event.event().map(|it| Step::of(event.number, &it)));
                self.told.events += 1;
            }
        }
        self.told.history = hasher.finish();
        let refused = self.ground.refused.lock().unwrap().clone();
        self.told.refused = refused.len() as u64;
        self.told.unfounded = refusals::unfounded(&refused, history);
        for id in &self.jobs {
            for event in self.ground.store.events(&Scope::Every, *id).await.unwrap() {
                self.told.retries += u64::from(event.to == State::RetryScheduled);
                let counted = matches!(event.fact, Fact::Interrupted { counted: true });
                self.told.interruptions += u64::from(counted);
            }
        }
    }
}
