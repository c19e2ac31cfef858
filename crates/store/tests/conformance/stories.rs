//! Every story of the kernel, unchanged, on every backend.

use std::sync::{Arc, Mutex};

use tokio::runtime::Runtime;
use windlass_kernel::{
    Answer, Approval, Attempt, DeadLetter, DlqId, Event, Job, JobId, Op, Refusal, TenantId,
    Timestamp,
};
use windlass_store::{Reply, Store, StoreFuture, Write, read::Scope};
use windlass_testkit::World;

use crate::common::{Backend, Home, runtime};

mod postgres {
    windlass_testkit::story_tests!(|| super::StoreWorld::new(crate::common::Backend::Postgres));
}

mod memory {
    windlass_testkit::story_tests!(|| super::StoreWorld::new(crate::common::Backend::Memory));
}

mod sqlite {
    windlass_testkit::story_tests!(|| super::StoreWorld::new(crate::common::Backend::Sqlite));
}

/// A store in a home of its own, whose clock the story sets. The home is the last to go.
struct StoreWorld {
    store: Arc<dyn Store>,
    now: Arc<Mutex<Timestamp>>,
    runtime: Runtime,
    _home: Arc<dyn Home>,
}

impl StoreWorld {
    fn new(backend: Backend) -> Self {
        let home = backend.new_home();
        let now = Arc::new(Mutex::new(Timestamp::MIN));
        let clock = now.clone();
        let runtime = runtime(1);
        let store = home.open(Arc::new(move || *clock.lock().unwrap()), &runtime).unwrap();
        Self { store, now, runtime, _home: home }
    }

    fn wait<T>(&self, future: StoreFuture<'_, T>) -> T {
        self.runtime.block_on(future).unwrap()
    }

    fn tenant(&self, op: &Op) -> TenantId {
        if let Op::Enqueue(op) = op {
            return op.tenant.clone();
        }
        let of_letter = op.dlq_id().and_then(|id| self.wait(self.store.letter(&Scope::Every, id)));
        let id = op.job_id().or(of_letter.map(|letter| letter.job_id));
        let job = id.and_then(|id| self.wait(self.store.job(&Scope::Every, id)));
        job.map_or_else(|| TenantId::new("acme").unwrap(), |job| job.spec.tenant.clone())
    }
}

impl World for StoreWorld {
    fn commit(&mut self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        *self.now.lock().unwrap() = now;
        let write = Write::Op { tenant: self.tenant(&op), op };
        match self.wait(self.store.commit(vec![write].into())).remove(0) {
            Ok(Reply::Answer(answer, _)) => Ok(answer),
            Ok(other) => panic!("an op was answered with {other:?}"),
            Err(refusal) => Err(refusal),
        }
    }

    fn job(&mut self, job_id: JobId) -> Option<Job> {
        self.wait(self.store.job(&Scope::Every, job_id))
    }

    fn events(&mut self, job_id: JobId) -> Vec<Event> {
        self.wait(self.store.events(&Scope::Every, job_id))
    }

    fn letter(&mut self, dlq_id: DlqId) -> Option<DeadLetter> {
        self.wait(self.store.letter(&Scope::Every, dlq_id))
    }

    fn approvals(&mut self, dlq_id: DlqId) -> Vec<Approval> {
        self.wait(self.store.approvals(&Scope::Every, dlq_id))
    }

    fn attempts(&mut self, job_id: JobId) -> Vec<Attempt> {
        self.wait(self.store.attempts(&Scope::Every, job_id, 0, usize::MAX)).items
    }

    fn open_jobs(&mut self) -> Vec<Job> {
        self.wait(self.store.open_jobs())
    }

    fn restore(&mut self) {
        self.wait(self.store.raise_incarnation());
    }
}
