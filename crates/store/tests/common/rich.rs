//! A store with a rich past: random histories, committed to a store and to a twin in memory.
//!
//! The twin is the kernel with nothing under it. Whatever it answers, the store has to answer.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use tokio::runtime::Runtime;
use windlass_kernel::{
    Actor, IdempotencyKey, IdempotencyScope, JobId, Kind, LetterState, Op, Payload, Principal,
    State, TaskId, TenantId, Timestamp,
    ledger::Step,
    ops::{Enqueue, Idempotency, NewJob, NewTask},
};
use windlass_store::{Error, Replies, Reply, Store, StoreFuture, Write, read::Scope};
use windlass_testkit::{
    MapStore,
    random::{Tally, World},
};

use super::{Backend, Home, runtime};

/// A store in a home of its own, and its twin. The home is the last to go.
pub struct Rich {
    pub store: Arc<dyn Store>,
    pub world: World,
    /// What the store has told.
    pub tally: Tally,
    /// Open jobs of worlds that are over.
    open_before: usize,
    now: Arc<Mutex<Timestamp>>,
    runtime: Runtime,
    pub home: Arc<dyn Home>,
    /// Each write is a commit of its own, and all of them are asked for at once.
    pub overlap: Option<Overlap>,
}

/// What happens while commits overlap.
pub struct Overlap {
    /// A commit that fails goes first.
    pub fails_first: Option<fn(u64) -> Write>,
    /// How many times it has.
    pub failures: u64,
}

impl Rich {
    pub fn new(backend: Backend) -> Self {
        Self::new_in(backend.new_home())
    }

    /// A store in this home.
    pub fn new_in(home: Arc<dyn Home>) -> Self {
        let now = Arc::new(Mutex::new(Timestamp::MIN));
        let clock = now.clone();
        let runtime = runtime(1);
        let store = home.open(Arc::new(move || *clock.lock().unwrap()), &runtime).unwrap();
        let (world, tally) = (World::default(), Tally::default());
        Self { store, world, tally, open_before: 0, now, runtime, home, overlap: None }
    }

    /// Another world begins in the same store.
    pub fn begin(&mut self, family: u64) {
        self.open_before += self.open_now();
        self.world = World::of_family(family, self.world.store.incarnation, self.world.now);
    }

    fn open_now(&self) -> usize {
        self.world.store.jobs.values().filter(|job| !job.state.is_end()).count()
    }

    pub fn wait<T>(&self, future: StoreFuture<'_, T>) -> T {
        self.runtime.block_on(future).unwrap()
    }

    /// Commits writes at this time.
    pub fn commit(&mut self, writes: Vec<Write>, now: Timestamp) -> Replies {
        *self.now.lock().unwrap() = now;
        match self.overlap.take() {
            None => self.wait(self.store.commit(writes.into())),
            Some(mut overlap) => {
                let replies = self.commit_at_once(writes, &mut overlap);
                self.overlap = Some(overlap);
                replies
            }
        }
    }

    /// Someone else holds the database until all of it was asked for: so nothing is written before the rest
    /// is decided, as far as the store decides ahead.
    fn commit_at_once(&self, writes: Vec<Write>, overlap: &mut Overlap) -> Replies {
        let mut user = self.home.user();
        user.begin();
        let failing = overlap.fails_first.map(|failing| {
            overlap.failures += 1;
            failing(overlap.failures)
        });
        let expects_failure = failing.is_some();
        let commits = failing.into_iter().chain(writes);
        let commits = commits.map(|write| self.store.commit(vec![write].into()));
        let all = self.runtime.block_on(async {
            let held = async {
                tokio::time::sleep(Duration::from_millis(3)).await;
                user.sql("ROLLBACK");
            };
            tokio::join!(all_at_once(commits.collect()), held).0
        });
        let mut all = all.into_iter();
        if expects_failure {
            let error = all.next().unwrap().unwrap_err();
            assert_eq!(error.code(), "STORE_CONTRADICTION");
        }
        all.flat_map(Result::unwrap).collect()
    }

    /// Makes as many steps, in batches of up to `batch`, and compares every answer and every job that
    /// was named with the twin's.
    ///
    /// All ops of a batch happen at the time of the last: they were meant for a little earlier, and the
    /// world goes on from what the twin made of them then.
    pub fn live(&mut self, seed: u64, steps: u64, batch: u64) {
        let mut number = seed;
        let mut made = 0;
        while made < steps {
            let mut twin = self.world.store.clone();
            let mut ops = Vec::new();
            for _ in 0..=(number % batch) {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                let step = self.world.step(number ^ (number >> 29));
                ops.push(step.op);
            }
            made += ops.len() as u64;
            let now = self.world.now;
            while twin.incarnation < self.world.store.incarnation {
                self.wait(self.store.raise_incarnation());
                twin.incarnation += 1;
            }
            let (mut writes, mut expected) = (Vec::new(), Vec::new());
            for op in &ops {
                writes.push(Write::Op { tenant: tenant(&twin, op), op: op.clone() });
                expected.push(twin.commit(op, now));
            }
            let mut named = BTreeSet::new();
            let replies = self.commit(writes, now);
            for ((reply, expected), op) in replies.iter().zip(expected).zip(&ops) {
                let answer = match reply {
                    Ok(Reply::Answer(answer, _)) => Ok(answer.clone()),
                    Ok(other) => panic!("an op was answered with {other:?}"),
                    Err(refusal) => Err(refusal.clone()),
                };
                assert_eq!(
                    answer, expected,
                    "seed {seed}, after {made} steps, at {now}: {op:#?} in {ops:#?}"
                );
                self.tally.count_result(op, &answer);
                named.extend(op.job_id().into_iter().chain(answer.ok().map(|it| it.job_id)));
            }
            for id in named {
                let job = self.wait(self.store.job(&Scope::Every, id));
                assert_eq!(job.as_ref(), twin.jobs.get(&id), "seed {seed}, after {made} steps");
            }
            self.world.store = twin;
        }
    }

    /// Everything that the store tells is what the twin holds.
    pub fn compare(&self) {
        let twin = &self.world.store;
        for (id, job) in &twin.jobs {
            assert_eq!(self.wait(self.store.job(&Scope::Every, *id)).as_ref(), Some(job));
            let events: Vec<_> = twin.events_of(*id).into_iter().cloned().collect();
            assert_eq!(self.wait(self.store.events(&Scope::Every, *id)), events, "{id}");
            let verified = self.wait(self.store.verify(&Scope::Every, *id)).unwrap();
            assert!(verified.is_whole() && verified.events == job.version, "{verified:?}");
            let attempts = twin.attempts.values().filter(|attempt| attempt.job_id == *id);
            let attempts: Vec<_> = attempts.cloned().collect();
            let page = self.wait(self.store.attempts(&Scope::Every, *id, 0, usize::MAX));
            assert_eq!((page.items, page.more), (attempts, false), "{id}");
            let payload = self.wait(self.store.payload(&Scope::Every, *id));
            assert_eq!(payload.as_deref(), Some(twin.payloads[id].as_str()));
            assert_eq!(self.last_output(*id), outputs_of(twin, *id).pop(), "{id}");
            let progress = self.wait(self.store.progress(&Scope::Every, *id));
            let progress = progress.map(|it| (it.epoch, it.at, it.value));
            let said = twin.progress.get(id);
            let said = said.map(|it| (it.epoch, it.at, it.value.as_str().to_owned()));
            assert_eq!(progress, said, "{id}");
            let ledger = self.wait(self.store.ledger(&Scope::Every, *id, 0)).unwrap();
            let of = |step: &&Step| step.job_id == *id;
            let mut steps: Vec<Step> = twin.steps.values().filter(of).cloned().collect();
            let number = |step: &Step| step.record.as_ref().map_or(u32::MAX, |it| it.number);
            steps.sort_by_key(|step| (number(step), step.key.clone()));
            let mut ledger = ledger;
            ledger.steps.sort_by_key(|step| (number(step), step.key.clone()));
            let mut mails: Vec<_> = twin.mails.values().filter(|it| it.job_id == *id).collect();
            mails.sort_by_key(|mail| mail.number);
            let effects: Vec<_> = twin.effects.values().filter(|it| it.job_id == *id).collect();
            assert_eq!(ledger.steps, steps, "{id}");
            assert_eq!(ledger.mails.iter().collect::<Vec<_>>(), mails, "{id}");
            assert_eq!(ledger.effects.iter().collect::<Vec<_>>(), effects, "{id}");
        }
        for (id, letter) in &twin.letters {
            assert_eq!(self.wait(self.store.letter(&Scope::Every, *id)).as_ref(), Some(letter));
            let said = twin.approvals.iter().filter(|approval| approval.dlq_id == *id);
            assert_eq!(
                self.wait(self.store.approvals(&Scope::Every, *id)),
                said.cloned().collect::<Vec<_>>()
            );
        }
    }

    /// The store has as many open jobs as all worlds together, and knows as much of tasks as the last.
    pub fn compare_totals(&self) {
        let open = self.open_before + self.open_now();
        assert_eq!(self.wait(self.store.open_jobs()).len(), open);
        let tasks = &self.world.store.tasks;
        for tenant in tasks.keys().map(|(tenant, _)| tenant).collect::<BTreeSet<_>>() {
            let of_tenant = tasks.iter().filter(|((owner, _), _)| owner == tenant);
            let mut expected: Vec<u32> = of_tenant.map(|(_, next)| *next).collect();
            expected.sort_unstable();
            assert_eq!(self.home.next_attempts(tenant), expected, "{tenant}");
        }
    }

    fn last_output(&self, id: JobId) -> Option<(u32, Option<String>, Option<String>)> {
        let output = self.wait(self.store.last_output(&Scope::Every, id));
        let given = output.filter(|it| it.result.is_some() || it.remaining.is_some());
        given.map(|it| (it.attempt, it.result, it.remaining))
    }

    /// A user enqueues in a transaction of its own: a job, a hit, a conflict and a refusal for each tenant.
    pub fn use_inbox(&mut self) {
        let mut user = self.home.user();
        user.begin();
        let mut id = 1 << 100;
        for tenant in ["acme", "zeta"] {
            for (key, text, task) in [
                ("i1", "1", "inbox"),
                ("i1", "1", "inbox"),
                ("i1", "2", "inbox"),
                ("i2", "1", "inbox"),
            ] {
                id += 1;
                let op = user_enqueue(id, tenant, key, text, task);
                user.put(&op, self.world.now).unwrap();
            }
        }
        user.sql("COMMIT");
        assert!(self.commit(Vec::new(), self.world.now).is_empty());
        // The store's own look at the inbox may be promoting at this moment, and then the commit took nothing. A read of a
        // job that waits in the inbox returns when it was promoted.
        let last = JobId::from_u128(id);
        assert_eq!(self.wait(self.store.job(&Scope::Every, last)), None, "it was refused");
    }

    /// Is there a job in each state that a row can have, and a dead letter that is open?
    pub fn has_every_state(&self) -> bool {
        let passing = [State::DlqPending, State::DlqRecorded];
        let mut states = State::ALL.iter().filter(|state| !passing.contains(state));
        let store = &self.world.store;
        states.all(|state| store.jobs.values().any(|job| job.state == *state))
            && store.letters.values().any(|letter| letter.state == LetterState::Open)
    }
}

/// Asks for all of these, in their order, before any has answered.
async fn all_at_once(mut commits: Vec<StoreFuture<'_, Replies>>) -> Vec<Result<Replies, Error>> {
    let mut done: Vec<_> = commits.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (commit, done) in commits.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(result) = commit.as_mut().poll(context)
            {
                *done = Some(result);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

fn outputs_of(twin: &MapStore, id: JobId) -> Vec<(u32, Option<String>, Option<String>)> {
    let text = |payload: &Option<Payload>| payload.as_ref().map(|it| it.as_str().to_owned());
    let of_job = twin.outputs.iter().filter(|((job, _), _)| *job == id);
    let parts = |((_, attempt), (result, remaining)): (&(JobId, u32), &(_, _))| {
        (*attempt, text(result), text(remaining))
    };
    of_job.map(parts).collect()
}

fn user_enqueue(id: u128, tenant: &str, key: &str, text: &str, task: &str) -> Enqueue {
    let new = NewJob {
        idempotency: Idempotency::Key {
            scope: IdempotencyScope::new("inbox").unwrap(),
            key: IdempotencyKey::new(key).unwrap(),
        },
        task: Some(NewTask {
            task_id: TaskId::new(format!("inbox-{task}")).unwrap(),
            may_rerun: false,
        }),
        ..NewJob::new(Kind::new("mail").unwrap(), Payload::parse(text, 10).unwrap())
    };
    let tenant = TenantId::new(tenant).unwrap();
    let by = Actor::User(Principal::new("ann").unwrap()).into();
    Enqueue { job_id: JobId::from_u128(id), tenant, new: Box::new(new), random: id, by }
}

/// Whose job an op is about.
fn tenant(store: &MapStore, op: &Op) -> TenantId {
    if let Op::Enqueue(op) = op {
        return op.tenant.clone();
    }
    let letter = op.dlq_id().and_then(|id| store.letters.get(&id));
    let id = op.job_id().or(letter.map(|letter| letter.job_id));
    let job = id.and_then(|id| store.jobs.get(&id));
    job.map_or_else(|| TenantId::new("acme").unwrap(), |job| job.spec.tenant.clone())
}
