//! Alerts: each fires when it should, and is gone when what it told of is gone.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_testkit::postgres::{Cluster, Options, Stop};

use crate::{
    client::{client, send},
    on_both_stores,
    server::{Server, Store, block_on},
};

on_both_stores!(
    alerts_fire_and_clear,
    slots_that_were_missed_are_told,
    one_tenants_queues_do_not_push_out_the_alerts_of_another,
);

const CONFIG: &str = "
[alerts]
look_every_ms = 100
retrying_share = 0.5
retrying_jobs_min = 12
dlq_per_minute = 3
invalid_transitions = 4
queue_age_ms = 1500
lease_churn = 2
";

/// Waits until the alert of this name is there, or is not.
async fn until(server: &Server, name: &str, is_there: bool) -> Option<Value> {
    for _ in 0..300 {
        let alerts = server.get("/api/v1/alerts").await.ok().json();
        let found = alerts["items"].as_array().expect("a list").iter();
        let found = found.into_iter().find(|alert| alert["name"] == name).cloned();
        if found.is_some() == is_there {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} is {} there", if is_there { "not" } else { "still" });
}

/// Waits until the figures have this line.
async fn until_metrics(server: &Server, line: &str) {
    for _ in 0..300 {
        if server.get("/metrics").await.text.contains(line) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("there is no {line:?}");
}

/// The database goes away, and comes back. It is told while it is away.
#[test]
fn a_store_that_does_not_answer_is_an_alert_until_it_is_back() {
    block_on(async {
        let cluster = Cluster::start(&Options { fsync: false, ..Options::default() });
        let store =
            Store::at(&format!("postgres://postgres@127.0.0.1:{}/postgres", cluster.port()));
        let server = Server::start_with_config(&store, "[alerts]\nlook_every_ms = 100\n");
        server.post("/api/v1/jobs", "{}").await.ok();
        until(&server, "store_unavailable", false).await;
        cluster.stop(Stop::Immediate);
        let alert = until(&server, "store_unavailable", true).await.expect("it is there");
        assert_eq!(alert["severity"], "P1");
        cluster.restart(Stop::Immediate);
        until(&server, "store_unavailable", false).await;
        server.post("/api/v1/jobs", "{}").await.ok();
    });
}

/// The server is away while slots come. With the policy skip they are skipped as soon as it is back, and that is told.
async fn slots_that_were_missed_are_told(store: Store) {
    let config = "[alerts]\nlook_every_ms = 100\n";
    let server = Server::start_with_config(&store, config);
    let schedule = r#"{"name": "tick", "every_ms": 1000, "catch_up": "skip", "job": {}}"#;
    server.post("/api/v1/schedules", schedule).await.ok();
    until(&server, "skipped_slots", false).await;
    server.stop();
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    let server = Server::start_with_config(&store, config);
    let alert = until(&server, "skipped_slots", true).await.expect("it is there");
    assert_eq!((&alert["tenant"], &alert["severity"]), (&"default".into(), &"P2".into()));
    until_metrics(&server, "windlass_skipped_slots_total{tenant=\"default\",reason=\"missed\"} ")
        .await;
    server.stop();
}

async fn alerts_fire_and_clear(store: Store) {
    let server = Server::start_with_config(&store, CONFIG);
    let quiet = server.get("/api/v1/alerts").await.ok().json();
    assert_eq!(quiet["items"], serde_json::json!([]));

    // More than half of the open jobs wait for a retry.
    let mut jobs = Vec::new();
    for _ in 0..12 {
        let job = server
            .post("/api/v1/jobs", r#"{"retry": {"base_ms": 600000, "max_backoff_ms": 600000}}"#);
        jobs.push(job.await.ok().at("/job/job_id"));
    }
    for id in &jobs {
        let path = format!("/api/v1/internal/jobs/{id}/run?transient_fail=true");
        server.post(&path, "").await.ok();
    }
    let alert = until(&server, "retrying_share", true).await.expect("it is there");
    let summary = alert["summary"].as_str().expect("it says what it means");
    assert!(summary.ends_with(" of 12 jobs that are not at an end wait for a retry"), "{summary}");
    assert!(alert["value"].as_f64() > alert["threshold"].as_f64(), "{alert}");
    for id in &jobs {
        server.post(&format!("/api/v1/jobs/{id}/cancel"), "").await.ok();
    }
    until(&server, "retrying_share", false).await;

    // Dead letters of a tenant grow.
    for _ in 0..5 {
        let id = server.post("/api/v1/jobs", "{}").await.ok().at("/job/job_id");
        server.post(&format!("/api/v1/internal/jobs/{id}/run?force_fail=true"), "").await.ok();
    }
    let alert = until(&server, "dead_letters", true).await.expect("it is there");
    assert_eq!((&alert["tenant"], &alert["severity"]), (&"default".into(), &"P2".into()));
    let line = "windlass_dead_letters_total{tenant=\"default\"} 5\n";
    until_metrics(&server, line).await;

    // Illegal moves one after the other wake people up: here of a worker that ended a job and reports another end.
    server.post("/api/v1/jobs", r#"{"queue": "twice"}"#).await.ok();
    let claim = r#"{"worker_id": "w", "queues": ["twice"], "start": true}"#;
    let lease = server.post("/api/v1/claims", claim).await.ok();
    let (id, epoch) = (lease.at("/leases/0/job/job_id"), lease.at("/leases/0/epoch"));
    for (place, outcome) in
        ["succeeded", "cancelled", "cancelled", "cancelled", "cancelled", "cancelled"]
            .iter()
            .enumerate()
    {
        let entry = format!(r#"{{"job_id": "{id}", "epoch": {epoch}, "outcome": "{outcome}"}}"#);
        let body = format!(r#"{{"worker_id": "w", "leases": [{entry}]}}"#);
        let settled = server.post("/api/v1/leases/settle?contract=jobs", &body).await.ok();
        let expected = if place == 0 { "" } else { "WF_STATE_TRANSITION_INVALID" };
        assert_eq!(settled.json()["results"][0]["code"].as_str().unwrap_or(""), expected);
    }
    let alert = until(&server, "invalid_transitions", true).await.expect("it is there");
    assert_eq!(alert["severity"], "P1");

    // A job that nobody takes grows old, until it is cancelled.
    let old = server.post("/api/v1/jobs", r#"{"queue": "lonely"}"#).await.ok().at("/job/job_id");
    let alert = until(&server, "queue_age", true).await.expect("it is there");
    assert_eq!(alert["queue"], "lonely");
    server.post(&format!("/api/v1/jobs/{old}/cancel"), "").await.ok();
    until(&server, "queue_age", false).await;

    // Workers lose their jobs.
    for _ in 0..4 {
        server.post("/api/v1/jobs", r#"{"queue": "churn"}"#).await.ok();
    }
    let claim =
        r#"{"worker_id": "w", "queues": ["churn"], "max": 4, "lease_ms": 200, "start": true}"#;
    server.post("/api/v1/claims", claim).await.ok();
    until(&server, "lease_churn", true).await;
}

/// How many queues the greedy tenant has.
const GREEDY: usize = 2_000;

async fn one_tenants_queues_do_not_push_out_the_alerts_of_another(store: Store) {
    let [greedy, modest] = ["greedy", "modest"].map(|tenant| store.token("w", "worker", tenant));
    let all = store.token("root", "viewer", "*");
    let config = "[alerts]\nlook_every_ms = 100\nqueue_age_ms = 1000\n";
    let server = Server::start_guarded_with(&store, config);
    let enqueue = async |token: &str, jobs: Vec<Value>| {
        let request = client().post(server.url("/api/v1/jobs/batch")).bearer_auth(token);
        let body = json!({ "jobs": jobs }).to_string();
        let request = request.header("content-type", "application/json").body(body);
        send(request).await.expect("it answers").ok();
    };
    for first in (0..GREEDY).step_by(1_000) {
        let name = |number| json!({ "queue": format!("greedy-{number:05}") });
        enqueue(&greedy, (first..first + 1_000).map(name).collect()).await;
    }
    // Of all that wait it has waited the least, in a queue that the other tenant uses too.
    enqueue(&modest, vec![json!({ "queue": "greedy-00000" })]).await;
    let alerts = async |token: &str| -> Vec<Value> {
        let request = client().get(server.url("/api/v1/alerts")).bearer_auth(token);
        let list = send(request).await.expect("it answers").ok().json();
        list["items"].as_array().expect("a list").clone()
    };
    let of = |alerts: &[Value], tenant: &str| -> Vec<Value> {
        alerts.iter().filter(|alert| alert["tenant"] == tenant).cloned().collect()
    };
    let mut seen = alerts(&all).await;
    for _ in 0..600 {
        if !of(&seen, "modest").is_empty() && of(&seen, "greedy").len() > 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        seen = alerts(&all).await;
    }
    let theirs = of(&seen, "modest");
    assert_eq!(theirs.len(), 1, "{seen:?}");
    assert_eq!(
        (&theirs[0]["name"], &theirs[0]["queue"]),
        (&"queue_age".into(), &"greedy-00000".into())
    );
    let others = of(&seen, "greedy");
    assert_eq!(others.len(), 21, "{others:?}");
    let (named, rest) = others.split_at(20);
    assert!(named.iter().all(|alert| alert["queue"].is_string()), "{named:?}");
    assert_eq!((&rest[0]["queue"], &rest[0]["value"]), (&Value::Null, &json!(1_980.0)));
    let summary = rest[0]["summary"].as_str().expect("it says what it means");
    assert!(summary.starts_with("and 1980 more queues of tenant greedy"), "{summary}");
    // Each tenant sees its own, the same as the caretaker, and nothing of the other.
    assert_eq!(alerts(&modest).await.len(), 1);
    let own = alerts(&greedy).await;
    assert_eq!((own.len(), of(&own, "greedy").len()), (21, 21), "{own:?}");
}
