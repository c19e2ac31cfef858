//! Random histories: a small world in which most things go well and everything can go wrong.
//!
//! A world has two tenants, a few tasks, keys that collide on purpose, three workers whose
//! processes die, and a clock that only its steps move. One number makes one step, so a list of
//! numbers is a history, and a shorter list is a shorter history. Nothing here comes from a clock;
//! only the seed of a run comes from real chance, and it is printed.

mod chance;
mod ledger;
mod ops;
mod seed;
mod tally;
mod willing;

use windlass_kernel::{
    Answer, Event, JobId, Op, Refusal, TenantId, Timestamp,
    ops::{Claim, Enqueue, Settle},
};

pub use self::{
    chance::Chance,
    seed::{cases, seed},
    tally::Tally,
};
use crate::MapStore;

/// A store, its time, and what its callers remember.
#[derive(Clone, Debug)]
pub struct World {
    /// The store.
    pub store: MapStore,
    /// The time.
    pub now: Timestamp,
    /// Which world it is of those that share a store. The first has no number in its names.
    family: u64,
    /// How many ids were made.
    made: u64,
    /// How often each worker's process was started.
    starts: [u64; 3],
    /// Requests that may be sent again.
    enqueues: Vec<Enqueue>,
    claims: Vec<Claim>,
    settles: Vec<Settle>,
    /// Timers that were set and may come too late.
    timers: Vec<Op>,
}

/// One op, and what it did.
#[derive(Clone, Debug)]
pub struct Step {
    /// The op.
    pub op: Op,
    /// When.
    pub now: Timestamp,
    /// The store before.
    pub before: MapStore,
    /// The events that it wrote.
    pub events: Vec<Event>,
    /// What the caller was told.
    pub result: Result<Answer, Refusal>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            store: MapStore::default(),
            now: Timestamp::from_micros(1_772_000_000_000_000),
            family: 0,
            made: 0,
            starts: [1; 3],
            enqueues: Vec::new(),
            claims: Vec::new(),
            settles: Vec::new(),
            timers: Vec::new(),
        }
    }
}

impl World {
    /// A world that begins now in a store where others have lived before. Its tenants and its ids are its
    /// own; its workers, queues, kinds and keys have the names that all worlds use.
    pub fn of_family(family: u64, incarnation: u32, now: Timestamp) -> Self {
        let store = MapStore { incarnation, ..MapStore::default() };
        Self { store, now, family, ..Self::default() }
    }

    /// Makes one step. The same world and the same number make the same step.
    pub fn step(&mut self, number: u64) -> Step {
        let chance = &mut Chance::new(number);
        self.pass_time(chance);
        let op = self.next_op(chance);
        self.commit(op)
    }

    /// Commits an op now, and says what it did.
    pub fn commit(&mut self, op: Op) -> Step {
        let (before, now) = (self.store.clone(), self.now);
        let result = self.store.commit(&op, now);
        let events = self.store.events[before.events.len()..].to_vec();
        Step { op, now, before, events, result }
    }

    /// Mostly a moment, sometimes minutes, now and then a day. Meanwhile a process may die, and
    /// rarely the store comes back from an old copy.
    fn pass_time(&mut self, chance: &mut Chance) {
        let longest_ms = chance.weighted(&[(70, 300), (20, 5_000), (9, 120_000), (1, 86_400_000)]);
        self.now = self.now.plus(chance.ms(0, longest_ms));
        if chance.percent(3) {
            let worker = usize::try_from(chance.below(3)).expect("one of three");
            self.starts[worker] += 1;
        }
        if chance.below(500) == 0 {
            self.store.incarnation += 1;
        }
    }

    /// A fresh id.
    fn fresh_id(&mut self) -> u128 {
        self.made += 1;
        u128::from(self.family) << 64 | u128::from(self.made)
    }

    /// One of the two tenants.
    fn tenant(&self, chance: &mut Chance) -> TenantId {
        let name = *chance.pick(&["acme", "zeta"]).expect("two");
        let name =
            if self.family == 0 { name.to_owned() } else { format!("{name}-{}", self.family) };
        TenantId::new(name).expect("a name")
    }

    fn fresh_job_id(&mut self) -> JobId {
        JobId::from_u128(self.fresh_id())
    }
}

/// The first part in which two stores differ; none if they are equal.
pub fn difference(one: &MapStore, other: &MapStore) -> Option<&'static str> {
    let parts = [
        ("jobs", one.jobs == other.jobs),
        ("payloads", one.payloads == other.payloads),
        ("events", one.events == other.events),
        ("attempts", one.attempts == other.attempts),
        ("letters", one.letters == other.letters),
        ("approvals", one.approvals == other.approvals),
        ("tasks", one.tasks == other.tasks),
        ("follow_ups", one.follow_ups == other.follow_ups),
    ];
    parts.into_iter().find(|(_, equal)| !equal).map(|(name, _)| name)
}

/// The history that these numbers make, one line for each step.
pub fn told(numbers: &[u64]) -> String {
    let mut world = World::default();
    let mut lines = numbers.iter().enumerate().map(|(place, number)| {
        let step = world.step(*number);
        let result = match &step.result {
            Ok(answer) if answer.recorded => "recorded".to_owned(),
            Ok(answer) => format!("{} {}", answer.job_id, answer.state),
            Err(refusal) => format!("refused {}", refusal.code()),
        };
        format!("{:3}  {}  {:?}\n       -> {result}\n", place + 1, step.now, step.op)
    });
    lines.by_ref().collect()
}
