//! Every story of the kernel, unchanged, on SQLite.

use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use windlass_kernel::{
    Answer, Approval, Attempt, DeadLetter, DlqId, Event, Job, JobId, Op, Refusal, TenantId,
    Timestamp,
};
use windlass_store::{
    Reply, Store, StoreFuture, Write,
    sqlite::{Options, Sqlite},
};
use windlass_testkit::World;

/// A store in a folder of its own, whose clock the story sets.
struct SqliteWorld {
    store: Sqlite,
    now: Arc<Mutex<Timestamp>>,
    runtime: Runtime,
    _folder: TempDir,
}

impl SqliteWorld {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let now = Arc::new(Mutex::new(Timestamp::MIN));
        let clock = now.clone();
        let options = Options {
            path: folder.path().join("windlass.db"),
            clock: Arc::new(move || *clock.lock().expect("nobody panicked")),
            address: None,
        };
        let store = Sqlite::open(options).expect("a new file can be opened");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        Self { store, now, runtime, _folder: folder }
    }

    fn wait<T>(&self, future: StoreFuture<'_, T>) -> T {
        self.runtime.block_on(future).expect("the store answers")
    }

    fn tenant(&self, op: &Op) -> TenantId {
        if let Op::Enqueue(op) = op {
            return op.tenant.clone();
        }
        let of_letter = op.dlq_id().and_then(|id| self.wait(self.store.letter(id)));
        let id = op.job_id().or(of_letter.map(|letter| letter.job_id));
        let job = id.and_then(|id| self.wait(self.store.job(id)));
        job.map_or_else(|| TenantId::new("acme").expect("a name"), |job| job.spec.tenant.clone())
    }
}

impl World for SqliteWorld {
    fn commit(&mut self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        *self.now.lock().expect("nobody panicked") = now;
        let write = Write::Op { tenant: self.tenant(&op), op };
        match self.wait(self.store.commit(vec![write].into())).remove(0) {
            Ok(Reply::Answer(answer)) => Ok(answer),
            Ok(other) => panic!("an op was answered with {other:?}"),
            Err(refusal) => Err(refusal),
        }
    }

    fn job(&mut self, job_id: JobId) -> Option<Job> {
        self.wait(self.store.job(job_id))
    }

    fn events(&mut self, job_id: JobId) -> Vec<Event> {
        self.wait(self.store.events(job_id))
    }

    fn letter(&mut self, dlq_id: DlqId) -> Option<DeadLetter> {
        self.wait(self.store.letter(dlq_id))
    }

    fn approvals(&mut self, dlq_id: DlqId) -> Vec<Approval> {
        self.wait(self.store.approvals(dlq_id))
    }

    fn attempts(&mut self, job_id: JobId) -> Vec<Attempt> {
        self.wait(self.store.attempts(job_id))
    }

    fn open_jobs(&mut self) -> Vec<Job> {
        self.wait(self.store.open_jobs())
    }

    fn restore(&mut self) {
        self.wait(self.store.raise_incarnation());
    }
}

windlass_testkit::story_tests!(SqliteWorld::new);
