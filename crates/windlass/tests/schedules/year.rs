//! A year of two nodes, in which things go wrong.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use windlass::{Clock, Config, Engine, Timestamp, testing, timers};
use windlass_kernel::{
    Actor, By, Jitter, Principal, Queue, ScheduleName, ScheduleOp, TenantId, WorkerId,
    ids::ClaimId,
    ops::{Outcome, Settle},
    schedule::Action,
};
use windlass_store::{ClaimMany, Commit as _, Reply, Write, sqlite::Sqlite};

use crate::{
    chance::Chance,
    judge,
    line::{Line, Weather},
    plan::{Plan, WORKED_ON},
};

/// What the year told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Slots that made a job.
    pub(crate) fired: u64,
    /// Slots that were skipped because nobody was there.
    pub(crate) missed: u64,
    /// Slots that were skipped because the last job was not at its end.
    pub(crate) overlapped: u64,
    /// Slots that were moved out of an hour that was missing.
    pub(crate) missing_hour: u64,
    /// Slots in an hour that was shown twice.
    pub(crate) doubled_hour: u64,
    pub(crate) kills: u64,
    /// How often no node could reach the store.
    pub(crate) outages: u64,
    pub(crate) lost_answers: u64,
}

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(crate) fn live(seed: u64, count: usize) -> Told {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { World::new(seed, count).live().await })
}

/// One node, or the place of one that is dead.
#[derive(Default)]
struct Place {
    node: Option<(Engine, Arc<Line>)>,
    is_cut_off: bool,
}

struct World {
    chance: Chance,
    clock: Clock,
    store: Arc<Sqlite>,
    plans: Vec<Plan>,
    places: [Place; 2],
    /// Since when no node can reach the store, and when none could.
    dark_since: Option<Timestamp>,
    dark: Vec<(Timestamp, Timestamp)>,
    told: Told,
}

impl World {
    fn new(seed: u64, count: usize) -> Self {
        println!("seed {seed}");
        let (chance, clock) = (Chance::new(seed), testing::clock());
        let store = testing::store(clock.clone()).unwrap();
        let plans = (0..count).map(|number| Plan::draw(number, &chance)).collect();
        let told = Told::default();
        let (places, dark) = (<[Place; 2]>::default(), Vec::new());
        Self { chance, clock, store, plans, places, dark_since: None, dark, told }
    }

    async fn live(mut self) -> Told {
        self.put_schedules().await;
        for place in 0..self.places.len() {
            self.start(place);
        }
        let worker = tokio::spawn(work(self.store.clone(), self.clock.clone()));
        let end = Instant::now() + YEAR;
        while Instant::now() < end {
            // Often several things go wrong within hours, and then nothing does for days.
            let pause = if self.chance.percent(70) { 6 * HOUR } else { 8 * DAY };
            let most = u64::try_from(pause.as_millis()).unwrap();
            sleep(self.chance.ms(0, most).min(end.duration_since(Instant::now()))).await;
            self.happen();
        }
        self.heal();
        // What is late is made up for.
        sleep(HOUR).await;
        worker.abort();
        self.end().await;
        judge::judge(&self.store, &self.plans, &self.dark, &mut self.told).await;
        self.told
    }

    async fn put_schedules(&self) {
        let by: By = Actor::User(Principal::new("ann").unwrap()).into();
        let put = |plan: &Plan| {
            Write::Schedule(ScheduleOp {
                tenant: tenant(),
                name: ScheduleName::new(&plan.name).unwrap(),
                action: Action::Put(Box::new(plan.spec.clone())),
                by: by.clone(),
            })
        };
        for plans in self.plans.chunks(500) {
            let writes: Vec<Write> = plans.iter().map(put).collect();
            let replies = self.store.commit(writes.into()).await.unwrap();
            assert!(replies.iter().all(Result::is_ok), "{replies:?}");
        }
    }

    /// One thing happens.
    fn happen(&mut self) {
        let place = usize::try_from(self.chance.below(2)).unwrap();
        match self.chance.below(100) {
            0..30 => self.kill(place),
            30..55 => self.start(place),
            55..75 => self.change_weather(place),
            // Everybody is gone, for as long as it takes until something else happens.
            75..85 => (0..2).for_each(|place| self.kill(place)),
            _ => self.heal(),
        }
        self.look_around();
    }

    fn start(&mut self, place: usize) {
        if self.places[place].node.is_some() {
            return;
        }
        let dead = Arc::new(Mutex::new(BTreeSet::new()));
        let line = Arc::new(Line::new(self.store.clone(), self.chance.fork(), dead));
        // Nobody else writes what would have to be looked for, and a year has many seconds.
        let timers = timers::Config { look_every: 40 * DAY, ..timers::Config::default() };
        let config = Config {
            retention: None,
            timers: Some(timers),
            ..testing::config(self.clock.clone(), self.chance.fork().random())
        };
        self.places[place].node = Some((Engine::on(line.clone(), &config), line));
        self.places[place].is_cut_off = false;
        self.look_around();
    }

    fn kill(&mut self, place: usize) {
        if let Some((engine, line)) = self.places[place].node.take() {
            engine.kill();
            self.told.kills += 1;
            self.told.lost_answers += line.lost_answers();
        }
    }

    fn change_weather(&mut self, place: usize) {
        let weather = match self.chance.below(3) {
            0 => Weather::Fine,
            1 => Weather::Cut,
            _ => Weather::LosesAnswers,
        };
        self.set_weather(place, weather);
    }

    fn set_weather(&mut self, place: usize, weather: Weather) {
        // Whoever was cut off looks again after a second, which is the one thing that is not so here: it is replaced
        // by one that looks now.
        if self.places[place].is_cut_off && weather != Weather::Cut {
            self.kill(place);
            self.start(place);
        }
        let Place { node, is_cut_off } = &mut self.places[place];
        if let Some((_, line)) = node {
            line.set(weather);
            *is_cut_off = weather == Weather::Cut;
        }
    }

    /// Both nodes are there and reach the store.
    fn heal(&mut self) {
        for place in 0..2 {
            self.set_weather(place, Weather::Fine);
            self.start(place);
        }
        self.look_around();
    }

    /// Notes when nobody can reach the store.
    fn look_around(&mut self) {
        let is_dark = self.places.iter().all(|place| place.node.is_none() || place.is_cut_off);
        let now = (self.clock)();
        match self.dark_since {
            None if is_dark => self.dark_since = Some(now),
            Some(since) if !is_dark => {
                self.dark.push((since, now));
                self.dark_since = None;
                self.told.outages += 1;
            }
            _ => {}
        }
    }

    async fn end(&mut self) {
        for place in &mut self.places {
            if let Some((engine, line)) = place.node.take() {
                engine.close().await;
                self.told.lost_answers += line.lost_answers();
            }
        }
    }
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new(Engine::TENANT_DEFAULT).unwrap()
}

/// Jobs of schedules that must not overlap take up to half an hour and a little, in the months in which that matters.
async fn work(store: Arc<Sqlite>, clock: Clock) {
    for claim in 1.. {
        let month = (clock)().to_string()[5..7].parse::<u8>().unwrap();
        let is_busy = [3, 4, 9, 10, 11].contains(&month);
        sleep(if is_busy { Duration::from_secs(35 * 60) } else { 12 * HOUR }).await;
        let wanted = ClaimMany {
            claim_id: ClaimId::from_u128(claim),
            worker: WorkerId::new("w1").unwrap(),
            trace_id: None,
            tenant: None,
            except: Vec::new(),
            queues: vec![Queue::new(WORKED_ON).unwrap()],
            kinds: Vec::new(),
            max: 1_000,
            lease: HOUR,
            start: true,
            neighbours: Vec::new(),
        };
        let reply = store.commit(vec![Write::Claim(wanted)].into()).await.unwrap().remove(0);
        let Ok(Reply::Granted { jobs: granted, .. }) = reply else { panic!("{reply:?}") };
        let settle = |granted: windlass_store::Granted| Write::Op {
            tenant: tenant(),
            op: Settle {
                job_id: granted.job.id,
                epoch: granted.job.epoch,
                by: By::worker(WorkerId::new("w1").unwrap()),
                outcome: Outcome::Succeeded { result: None },
                stats: None,
                jitter: Jitter::NONE,
            }
            .into(),
        };
        let writes: Vec<Write> = granted.into_iter().map(settle).collect();
        if !writes.is_empty() {
            store.commit(writes.into()).await.unwrap();
        }
    }
}
