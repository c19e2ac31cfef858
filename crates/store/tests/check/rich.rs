//! A store with a rich past: random histories, committed to the file and to a twin in memory.
//!
//! The twin is the kernel with nothing under it. Whatever it answers, the store has to answer.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use windlass_kernel::{
    Actor, IdempotencyKey, IdempotencyScope, JobId, Kind, Op, Payload, Principal, State, TaskId,
    TenantId, Timestamp,
    ops::{Enqueue, Idempotency, NewJob, NewTask},
};
use windlass_store::{
    Replies, Reply, Store, StoreFuture, Write,
    sqlite::{self, Options, Sqlite},
};
use windlass_testkit::{
    MapStore,
    random::{Tally, World},
};

/// A store in a folder of its own, and its twin.
pub(crate) struct Rich {
    pub(crate) store: Sqlite,
    pub(crate) world: World,
    pub(crate) tally: Tally,
    now: Arc<Mutex<Timestamp>>,
    runtime: Runtime,
    folder: TempDir,
}

impl Rich {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(Mutex::new(Timestamp::MIN));
        let clock = now.clone();
        let options = Options {
            address: None,
            path: folder.path().join("windlass.db"),
            clock: Arc::new(move || *clock.lock().unwrap()),
        };
        let store = Sqlite::open(options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (world, tally) = (World::default(), Tally::default());
        Self { store, world, tally, now, runtime, folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("windlass.db")
    }

    pub(crate) fn wait<T>(&self, future: StoreFuture<'_, T>) -> T {
        self.runtime.block_on(future).unwrap()
    }

    /// Commits writes at this time.
    pub(crate) fn commit(&self, writes: Vec<Write>, now: Timestamp) -> Replies {
        *self.now.lock().unwrap() = now;
        self.wait(self.store.commit(writes.into()))
    }

    /// Makes as many steps, in batches of up to `batch`, and compares every answer with the twin's.
    ///
    /// All ops of a batch happen at the time of the last: they were meant for a little earlier, and the
    /// world goes on from what the twin made of them then.
    pub(crate) fn live(&mut self, seed: u64, steps: u64, batch: u64) {
        let mut number = seed;
        let mut made = 0;
        while made < steps {
            let mut twin = self.world.store.clone();
            let mut ops = Vec::new();
            for _ in 0..=(number % batch) {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                let step = self.world.step(number ^ (number >> 29));
                self.tally.count(&step);
                ops.push(step.op);
            }
            made += ops.len() as u64;
            let now = self.world.now;
            while twin.incarnation < self.world.store.incarnation {
                self.store.raise_incarnation().unwrap();
                twin.incarnation += 1;
            }
            let (mut writes, mut expected) = (Vec::new(), Vec::new());
            for op in &ops {
                writes.push(Write::Op { tenant: tenant(&twin, op), op: op.clone() });
                expected.push(twin.commit(op, now));
            }
            for ((reply, expected), op) in self.commit(writes, now).iter().zip(expected).zip(&ops) {
                let answer = match reply {
                    Ok(Reply::Answer(answer)) => Ok(answer.clone()),
                    Ok(other) => panic!("an op was answered with {other:?}"),
                    Err(refusal) => Err(refusal.clone()),
                };
                assert_eq!(
                    answer, expected,
                    "seed {seed}, after {made} steps, at {now}: {op:#?} in {ops:#?}"
                );
            }
            self.world.store = twin;
        }
    }

    /// Everything that the store tells is what the twin holds.
    pub(crate) fn compare(&self) {
        let twin = &self.world.store;
        for (id, job) in &twin.jobs {
            assert_eq!(self.wait(self.store.job(*id)).as_ref(), Some(job));
            let events: Vec<_> = twin.events_of(*id).into_iter().cloned().collect();
            assert_eq!(self.wait(self.store.events(*id)), events, "{id}");
            let attempts = twin.attempts.values().filter(|attempt| attempt.job_id == *id);
            let attempts: Vec<_> = attempts.cloned().collect();
            assert_eq!(self.wait(self.store.attempts(*id)), attempts, "{id}");
            let payload = self.wait(self.store.payload(*id));
            assert_eq!(payload.as_deref(), Some(twin.payloads[id].as_str()));
        }
        for (id, letter) in &twin.letters {
            assert_eq!(self.wait(self.store.letter(*id)).as_ref(), Some(letter));
            let said = twin.approvals.iter().filter(|approval| approval.dlq_id == *id);
            assert_eq!(self.wait(self.store.approvals(*id)), said.cloned().collect::<Vec<_>>());
        }
        let open = twin.jobs.values().filter(|job| !job.state.is_end()).count();
        assert_eq!(self.wait(self.store.open_jobs()).len(), open);
    }

    /// A user enqueues in a transaction of its own: a job, a hit, a conflict and a refusal for each tenant.
    pub(crate) fn use_inbox(&self) {
        let mut user = rusqlite::Connection::open(self.path()).unwrap();
        let transaction = user.transaction().unwrap();
        let mut id = 1 << 100;
        for tenant in ["acme", "zeta"] {
            for (key, text, task) in
                [("k1", "1", "t1"), ("k1", "1", "t1"), ("k1", "2", "t1"), ("k2", "1", "t1")]
            {
                id += 1;
                let op = user_enqueue(id, tenant, key, text, task);
                sqlite::enqueue_in(&transaction, &op, self.world.now).unwrap();
            }
        }
        transaction.commit().unwrap();
        assert!(self.commit(Vec::new(), self.world.now).is_empty());
    }

    /// Is there a job in each state that a row can have?
    pub(crate) fn has_every_state(&self) -> bool {
        let passing = [State::DlqPending, State::DlqRecorded];
        let mut states = State::ALL.iter().filter(|state| !passing.contains(state));
        states.all(|state| self.world.store.jobs.values().any(|job| job.state == *state))
    }

    /// A copy of the file, whole, for someone to damage.
    pub(crate) fn copy_to(&self, path: &Path) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
    }
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
