//! A process that is killed loses no job: another one finds out at once, and the run goes on.

use std::time::{Duration, Instant};

use windlass::HandlerResult;

use crate::{
    common::{for_each_store, until},
    handlers::Do,
    home::Home,
    node::{Node, Role, told},
    runs::{create_for_task, history},
};

for_each_store!(a_run_whose_process_is_killed_is_interrupted_and_goes_on_at_once);

async fn a_run_whose_process_is_killed_is_interrupted_and_goes_on_at_once(
    home: Home,
) -> HandlerResult {
    let engine = home.open().await;
    let run = create_for_task(&engine, "report", "monday", &Do::HangFirst).await.job_id;
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
    let history = history(&engine, run).await.into_iter();
    let history =
        history.map(|it| format!("{} {}", it.name, serde_json::to_string(&it.payload).unwrap()));
    assert_eq!(history.collect::<Vec<_>>(), expected);
    let again = create_for_task(&engine, "report", "monday", &Do::SleepMs(1)).await.job_id;
    assert_eq!(again, run, "a known key gives the run that exists");
    engine.close().await;
    home.check().await;
    Ok(())
}
