//! Schedules over HTTP, answer by answer.

use reqwest::Method;

use serde_json::{Value, json};

use crate::{
    client::{Answer, client, send},
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(schedules, a_schedule_is_not_triggered_with_the_id_of_anothers_job);

const SCHEDULES: &str = "/api/v1/schedules";

async fn schedules(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "schedules", "Jobs that are made at their times.");
    let body = r#"{
  "name": "nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin", "start_at": "2126-01-01T00:00:00Z",
  "overlap": "skip", "catch_up": "one", "job": {"kind": "report", "queue": "office", "payload": {"n": 1.50}}
}"#;
    page.post("A new one.", SCHEDULES, body).await;
    page.post("The same again changes nothing.", SCHEDULES, body).await;
    page.get("As it stands.", "/api/v1/schedules/nightly").await;
    page.get("All of them.", "/api/v1/schedules?limit=1").await;
    page.get("Its next slots.", "/api/v1/schedules/nightly/preview?limit=2").await;
    let body = r#"{"reason": "the office moves"}"#;
    page.post("It is held back.", "/api/v1/schedules/nightly/pause", body).await;
    page.post("It goes on.", "/api/v1/schedules/nightly/resume", "").await;
    page.post("A job now.", "/api/v1/schedules/nightly/trigger", "").await;
    let body = r#"{"from": "1999-01-01T00:00:00Z", "to": "1999-01-01T03:00:00Z"}"#;
    let hourly = r#"{"name": "hourly", "cron": "0 * * * *", "job": {}}"#;
    server.post(SCHEDULES, hourly).await.ok();
    page.post("Slots that are past.", "/api/v1/schedules/hourly/backfill", body).await;
    page.post("They have their jobs.", "/api/v1/schedules/hourly/backfill", body).await;
    page.get("What was noted about it.", "/api/v1/schedules/nightly/history?limit=2").await;
    let delete = Method::DELETE;
    page.ask("It ends.", delete.clone(), "/api/v1/schedules/nightly", &[], "").await;
    page.ask("It is gone.", delete, "/api/v1/schedules/nightly", &[], "").await;
    for (method, path) in [
        (Method::GET, "nightly"),
        (Method::GET, "nightly/preview"),
        (Method::POST, "nightly/pause"),
        (Method::POST, "nightly/resume"),
        (Method::POST, "nightly/trigger"),
    ] {
        let path = format!("{SCHEDULES}/{path}");
        page.ask("One that is not there.", method, &path, &[], "").await;
    }
    page.post("Nor can it be made up for.", "/api/v1/schedules/nightly/backfill", body).await;
    page.post("No time.", SCHEDULES, r#"{"name": "a", "job": {}}"#).await;
    let body = r#"{"name": "a", "cron": "@hourly", "every_ms": 1000, "job": {}}"#;
    page.post("Two times.", SCHEDULES, body).await;
    page.post("No cron.", SCHEDULES, r#"{"name": "a", "cron": "61 * * * *", "job": {}}"#).await;
    let body = r#"{"name": "a", "cron": "@daily", "zone": "Mars/Base", "job": {}}"#;
    page.post("No place on earth.", SCHEDULES, body).await;
    page.post("No job.", SCHEDULES, r#"{"name": "a", "cron": "@hourly"}"#).await;
    let body = r#"{"from": "1999-01-02T00:00:00Z", "to": "1999-01-01T00:00:00Z"}"#;
    page.post("The wrong way round.", "/api/v1/schedules/hourly/backfill", body).await;
    page.get("More than is told at once.", "/api/v1/schedules/hourly/preview?limit=100000").await;
    page.get("A place that is no number.", "/api/v1/schedules/hourly/history?cursor=x").await;
    page.finish();
}

/// A trigger may name the id of the job that it makes. One that is another tenant's is answered as one that is nobody's to
/// use: nothing is made, and nothing is told of that job.
async fn a_schedule_is_not_triggered_with_the_id_of_anothers_job(store: Store) {
    let [ann, bob] = ["a", "b"].map(|tenant| store.token("op", "operator", tenant));
    let server = Server::start_guarded(&store);
    let call = async |method: Method, path: &str, token: &str, body: &Value| -> Answer {
        let request = client().request(method, server.url(path)).bearer_auth(token);
        let request = request.header("content-type", "application/json").body(body.to_string());
        send(request).await.expect("it answers")
    };
    let post =
        async |path: &str, token: &str, body: Value| call(Method::POST, path, token, &body).await;
    let theirs = post("/api/v1/jobs", &ann, json!({ "payload": "canary" })).await.ok();
    let theirs = theirs.at("/job/job_id");
    let schedule = json!({ "name": "s", "cron": "0 0 1 1 *", "job": {} });
    post(SCHEDULES, &bob, schedule).await.ok();
    let trigger = async |id: &str| {
        post("/api/v1/schedules/s/trigger", &bob, json!({ "new_job_id": id })).await
    };
    let refused = trigger(&theirs).await;
    assert_eq!(refused.status, reqwest::StatusCode::NOT_FOUND, "{}", refused.text);
    assert_eq!(refused.at("/code"), "NOT_FOUND", "{}", refused.text);
    let after = call(Method::GET, "/api/v1/schedules/s", &bob, &json!({})).await.ok();
    assert!(!after.text.contains(&theirs), "{}", after.text);
    let history = call(Method::GET, "/api/v1/schedules/s/history", &bob, &json!({})).await.ok();
    assert!(!history.text.contains(&theirs), "{}", history.text);
    let jobs = call(Method::GET, "/api/v1/jobs", &bob, &json!({})).await.ok().json();
    assert_eq!(jobs["items"], json!([]), "nothing is made");
    // One of its own, sent twice, is one job.
    let free = theirs.replace("job_0", "job_1");
    assert_eq!(trigger(&free).await.ok().at("/job_id"), free);
    assert_eq!(trigger(&free).await.ok().at("/job_id"), free);
    drop(server);
    store.check();
}
