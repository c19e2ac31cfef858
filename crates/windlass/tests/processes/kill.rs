//! A process that is killed loses no job: another one finds out at once, and the run goes on.

use std::time::{Duration, Instant};

use windlass::{Engine, HandlerResult, Ids, JobId, Work};
use windlass_kernel::{
    Actor, IdempotencyKey, Kind, Op, Payload, Principal, TaskId, TenantId, contract::runs,
    ops::Enqueue,
};
use windlass_store::{Reply, Write};

use crate::{
    common::{for_each_store, until},
    handlers::Do,
    home::Home,
    node::{Node, Role, told},
};

for_each_store!(a_run_whose_process_is_killed_is_interrupted_and_goes_on_at_once);

async fn a_run_whose_process_is_killed_is_interrupted_and_goes_on_at_once(
    home: Home,
) -> HandlerResult {
    let engine = home.open().await;
    let run = create_for_task(&engine, "report", "monday", &Do::HangFirst).await;
    engine.close().await;
    let (outside, limit) = (home.outside(), Duration::from_secs(60));
    // One process may have several workers. All of them are dead with it.
    let role = Role { workers: 2, ..Role::on(&home) };
    let first = Node::start(&role);
    let begun = until("the first start", limit, || outside.first(run, "begun")).await;
    assert_eq!(begun.process, first.id());
    first.kill();
    let killed_at = Instant::now();
    let second = Node::start(&role);
    let done = until("the second end", limit, || outside.first(run, "done")).await;
    // The lease lasts ten minutes: only a proof of death can be the reason.
    let took = told("a killed process was recovered from within", killed_at);
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(done.process, second.id());
    second.stop().await;

    let engine = home.open().await;
    let steps = [
        ("null", "\"queued\"", "user:ann".to_owned()),
        ("\"queued\"", "\"running\"", format!("worker:{}", begun.worker)),
        ("\"running\"", "\"interrupted\"", "recovery".to_owned()),
        ("\"interrupted\"", "\"running\"", format!("worker:{}", done.worker)),
        ("\"running\"", "\"succeeded\"", format!("worker:{}", done.worker)),
    ];
    let expected = steps.map(|(previous, status, actor)| {
        format!(r#"run.status.changed {{"run_id":"{run}","task_id":"report","#)
            + &format!(r#""previous_status":{previous},"status":{status},"attempt":1,"#)
            + r#""idempotency_key":"monday","next_retry_at":null,"error_code":null,"#
            + &format!(r#""actor":"{actor}"}}"#)
    });
    assert_eq!(history(&engine, run).await, expected);
    let again = create_for_task(&engine, "report", "monday", &Do::SleepMs(1)).await;
    assert_eq!(again, run, "a known key gives the run that exists");
    engine.close().await;
    home.check().await;
    Ok(())
}

/// Asks for a run of a task under a key, as contract `runs` has it.
async fn create_for_task(engine: &Engine, task: &str, key: &str, what: &Do) -> JobId {
    let payload = serde_json::to_string(what).unwrap();
    let new = runs::create_for_task(
        TaskId::new(task).unwrap(),
        IdempotencyKey::new(key).unwrap(),
        Kind::new(Do::KIND).unwrap(),
        Payload::parse(&payload, 1_000).unwrap(),
    );
    let tenant = TenantId::new(Engine::TENANT_DEFAULT).unwrap();
    let by = Actor::User(Principal::new("ann").unwrap()).into();
    let ids = Ids::system();
    let op = Enqueue {
        job_id: ids.job_id(),
        tenant: tenant.clone(),
        new: Box::new(new),
        random: ids.random(),
        by,
    };
    match engine.committer().submit(Write::Op { tenant, op: Op::Enqueue(op) }).await.unwrap() {
        Reply::Answer(answer) => answer.job_id,
        other => panic!("a run was answered with {other:?}"),
    }
}

/// The history of a run, as contract `runs` tells it: the name and the payload of each event.
async fn history(engine: &Engine, run: JobId) -> Vec<String> {
    let spec = engine.job(run).await.unwrap().spec;
    let events = engine.store().events(run).await.unwrap();
    let told = events.iter().filter_map(|event| runs::tell(event, &spec));
    told.map(|told| format!("{} {}", told.name, serde_json::to_string(&told.payload).unwrap()))
        .collect()
}
