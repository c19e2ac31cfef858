//! Contract `runs`, as a caller asks for a run and as its history is told.

use std::time::Duration;

use windlass::{Engine, Ids, JobId, RetryPolicy, Work};
use windlass_kernel::{
    Actor, Answer, IdempotencyKey, Kind, Op, Payload, Principal, TaskId, TenantId,
    contract::{
        Told,
        runs::{self, RunStatusChanged},
    },
    ops::{Enqueue, NewJob},
};
use windlass_store::{Reply, Write, read::Scope};

use crate::handlers::Do;

/// Asks for a run of a task under a key. One that fails is tried again soon.
pub(crate) async fn create_for_task(engine: &Engine, task: &str, key: &str, what: &Do) -> Answer {
    let payload = serde_json::to_string(what).unwrap();
    let new = runs::create_for_task(
        TaskId::new(task).unwrap(),
        IdempotencyKey::new(key).unwrap(),
        Kind::new(Do::KIND).unwrap(),
        Payload::parse(&payload, 1_000).unwrap(),
    );
    let soon = Duration::from_millis(100);
    let new = NewJob { retry: RetryPolicy { base: soon, max_backoff: soon }, ..new };
    let tenant = TenantId::new(Engine::TENANT_DEFAULT).unwrap();
    let by = Actor::User(Principal::new("ann").unwrap()).into();
    let ids = Ids::system();
    let (job_id, random) = (ids.job_id(), ids.random());
    let op = Enqueue { job_id, tenant: tenant.clone(), new: Box::new(new), random, by };
    match engine.committer().submit(Write::Op { tenant, op: Op::Enqueue(op) }).await.unwrap() {
        Reply::Answer(answer, _) => answer,
        other => panic!("a run was answered with {other:?}"),
    }
}

/// The history of a run.
pub(crate) async fn history(engine: &Engine, run: JobId) -> Vec<Told<RunStatusChanged>> {
    let spec = engine.job(run).await.unwrap().spec;
    let events = engine.store().events(&Scope::Every, run).await.unwrap();
    events.iter().filter_map(|event| runs::tell(event, &spec, 1)).collect()
}
