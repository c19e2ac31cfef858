//! A lease belongs to the principal that claimed it, and a tenant called `default` is a tenant like others.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    client::{Answer, client, send},
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(
    only_the_principal_that_claimed_writes_about_a_lease,
    what_the_server_holds_is_not_for_callers,
    two_nodes_agree_on_who_holds_a_lease,
    names_of_workers_are_the_principals_own,
    only_the_principal_itself_says_goodbye,
    tenant_default_sees_its_own_things_alone,
    tenants_with_a_slash_have_their_own_rules,
    nobody_takes_the_rules_of_others,
);

/// A server, and a client whose connections are used again.
struct At {
    server: Server,
    http: reqwest::Client,
}

impl From<Server> for At {
    fn from(server: Server) -> Self {
        Self { server, http: client() }
    }
}

async fn call(at: &At, method: Method, path: &str, token: &str, body: &Value) -> Answer {
    let url = at.server.url(&format!("/api/v1/{path}"));
    let mut request = at.http.request(method, url).bearer_auth(token);
    if !body.is_null() {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    send(request).await.expect("it answers")
}

async fn post(server: &At, path: &str, token: &str, body: Value) -> Answer {
    call(server, Method::POST, path, token, &body).await
}

async fn get(server: &At, path: &str, token: &str) -> Value {
    call(server, Method::GET, path, token, &Value::Null).await.ok().json()
}

/// Enqueues a job and claims it: its lease, as other calls name it.
async fn claimed(server: &At, token: &str, worker: &str) -> Value {
    post(server, "jobs", token, json!({ "queue": worker })).await.ok();
    let body = json!({ "worker_id": worker, "queues": [worker], "start": true });
    let lease = post(server, "claims", token, body).await.ok().json()["leases"][0].clone();
    json!({ "job_id": lease["job"]["job_id"], "epoch": lease["epoch"] })
}

/// The code that an entry is refused with; none, if it goes well.
async fn code(server: &At, path: &str, token: &str, body: Value) -> Option<String> {
    let answer = post(server, path, token, body).await;
    let json = answer.json();
    let result = if answer.status.is_success() { &json["results"][0] } else { &json };
    result["code"].as_str().map(str::to_owned)
}

/// All that can be written about a lease, as `with` has it.
fn writes(lease: &Value) -> Vec<(&'static str, Value)> {
    let with = |more: Value| {
        let mut entry = lease.clone();
        for (name, value) in more.as_object().into_iter().flatten() {
            entry[name] = value.clone();
        }
        entry
    };
    vec![
        ("leases/start", lease.clone()),
        ("leases/renew", with(json!({ "progress": 1 }))),
        ("leases/wait", with(json!({ "until": "2126-01-01T00:00:00Z" }))),
        ("leases/release", lease.clone()),
        ("leases/settle", with(json!({ "outcome": "succeeded" }))),
    ]
}

async fn only_the_principal_that_claimed_writes_about_a_lease(store: Store) {
    let ann = store.token("ann", "worker", "acme");
    let ann_too = store.token("ann", "worker", "acme");
    let eve = store.token("eve", "admin", "acme");
    let all = store.token("ann", "admin", "*");
    let server = At::from(Server::start_guarded(&store));
    let lease = claimed(&server, &ann, "w1").await;
    for other in [&eve, &all] {
        for (path, entry) in writes(&lease) {
            for worker in [Value::Null, json!("w1")] {
                let body = json!({ "worker_id": worker, "leases": [entry.clone()] });
                let refused = code(&server, path, other, body).await;
                assert_eq!(refused.as_deref(), Some("STALE_ATTEMPT"), "{path}");
            }
        }
    }
    let settle = |worker: Value| {
        let entry = writes(&lease).pop().expect("the last is to settle").1;
        json!({ "worker_id": worker, "leases": [entry] })
    };
    let refused = code(&server, "leases/settle", &ann, settle(json!("w2"))).await;
    assert_eq!(refused.as_deref(), Some("STALE_ATTEMPT"), "another worker of ann's");
    let job = get(&server, &format!("jobs/{}", lease["job_id"].as_str().unwrap_or("")), &ann).await;
    assert_eq!(job["state"], "running");
    // A person keeps what is theirs when a token is replaced, and history names the worker that ran it.
    assert_eq!(code(&server, "leases/settle", &ann_too, settle(Value::Null)).await, None);
    let path = format!("jobs/{}/events", lease["job_id"].as_str().unwrap_or(""));
    let events = get(&server, &path, &ann).await;
    let last = events["items"].as_array().and_then(|all| all.last()).expect("there are events");
    assert_eq!(last["actor"], "worker:acme/ann/w1", "{last}");
}

/// The server's own workers hold what they run: here an act on many that takes its time.
async fn what_the_server_holds_is_not_for_callers(store: Store) {
    let admin = store.token("root", "admin", "acme");
    let server = At::from(Server::start_guarded(&store));
    let jobs: Vec<Value> = (0..50).map(|_| json!({ "queue": "old" })).collect();
    post(&server, "jobs/batch", &admin, json!({ "jobs": jobs })).await.ok();
    let body = json!({ "act": "cancel", "filter": { "queue": "old" }, "per_second": 1 });
    let id = post(&server, "operations", &admin, body).await.ok().at("/operation_id");
    let mut job = Value::Null;
    while job["state"] != "running" {
        job = get(&server, &format!("jobs/{id}"), &admin).await;
    }
    let owner = job["lease_owner"].as_str().expect("somebody holds it").to_owned();
    assert!(owner.starts_with("windlass."), "{owner}");
    let lease = json!({ "job_id": id, "epoch": job["epoch"] });
    for (path, entry) in writes(&lease) {
        let body = json!({ "leases": [entry.clone()] });
        let refused = code(&server, path, &admin, body).await;
        assert_eq!(refused.as_deref(), Some("STALE_ATTEMPT"), "{path}");
        let body = json!({ "worker_id": owner, "leases": [entry] });
        let refused = code(&server, path, &admin, body).await;
        assert_eq!(refused.as_deref(), Some("INVALID_INPUT"), "{path}");
    }
    let body = json!({ "worker_id": owner, "lease_ms": 86_400_000 });
    assert_eq!(post(&server, "leases/renew", &admin, body).await.status, 422);
    let workers = get(&server, "workers", &admin).await.to_string();
    assert!(!workers.contains(&owner), "{workers}");
}

async fn two_nodes_agree_on_who_holds_a_lease(store: Store) {
    if !store.url().starts_with("postgres") {
        return;
    }
    let (ann, eve) = (store.token("ann", "worker", "acme"), store.token("eve", "worker", "acme"));
    let (one, two) = (Server::start_guarded(&store), Server::start_guarded(&store));
    let (one, two) = (At::from(one), At::from(two));
    let lease = claimed(&one, &ann, "w1").await;
    let (path, entry) = writes(&lease).pop().expect("the last is to settle");
    let body = json!({ "leases": [entry] });
    let refused = code(&two, path, &eve, body.clone()).await;
    assert_eq!(refused.as_deref(), Some("STALE_ATTEMPT"));
    assert_eq!(code(&two, path, &ann, body).await, None);
}

/// Whoever names another principal's worker is told what they would be told of one that nobody knows.
async fn only_the_principal_itself_says_goodbye(store: Store) {
    let ann = store.token("ann", "worker", "acme");
    let ann_too = store.token("ann", "worker", "acme");
    let eve = store.token("eve", "admin", "acme");
    let bob = store.token("bob", "worker", "bbb");
    let viewer = store.token("vic", "viewer", "acme");
    let server = At::from(Server::start_guarded(&store));
    let lease = claimed(&server, &ann, "w1").await;
    let next = post(&server, "jobs", &ann, json!({ "queue": "w1" })).await.ok();
    let path = format!("jobs/{}/why", next.at("/job/job_id"));
    let why = async || get(&server, &path, &ann).await["reasons"][0]["reason"].clone();
    let goodbye = async |token: &str, worker: &str| {
        let path = format!("workers/{worker}");
        call(&server, Method::DELETE, &path, token, &Value::Null).await
    };
    for token in [&eve, &bob] {
        let [foreign, unknown] = [goodbye(token, "w1").await, goodbye(token, "w9").await];
        assert_eq!((foreign.status.as_u16(), unknown.status.as_u16()), (404, 404));
        let [mut foreign, mut unknown] = [foreign.json(), unknown.json()];
        (foreign["trace_id"], unknown["trace_id"]) = (Value::Null, Value::Null);
        assert_eq!(foreign, unknown);
    }
    for worker in ["acme%2Fann%2Fw1", "ann%2Fw1"] {
        assert_eq!(goodbye(&eve, worker).await.status, 404, "{worker}");
    }
    assert_eq!(goodbye(&viewer, "w1").await.status, 403);
    assert_eq!(why().await, "in_line", "it is still there");
    assert_eq!(goodbye(&ann_too, "w1").await.status, 200, "a person has all of their tokens");
    assert_eq!(why().await, "no_worker_for_queue");
    let (path, entry) = writes(&lease).pop().expect("the last is to settle");
    let body = json!({ "worker_id": "w1", "leases": [entry] });
    assert_eq!(code(&server, path, &ann, body).await, None, "it keeps what it holds");
}

/// Two principals that use one name have two sessions: neither keeps, or sees, what the other holds.
async fn names_of_workers_are_the_principals_own(store: Store) {
    let ann = store.token("ann", "worker", "default");
    let bob = store.token("bob", "worker", "bbb");
    let eve = store.token("eve", "worker", "default");
    let long = store.token(&"x".repeat(128), "worker", "default");
    let server = At::from(Server::start_guarded(&store));
    for token in [&ann, &bob] {
        claimed(&server, token, "w1").await;
    }
    let renew = json!({ "worker_id": "w1", "lease_ms": 60_000 });
    assert_eq!(post(&server, "leases/renew", &eve, renew.clone()).await.status, 404);
    for token in [&ann, &bob] {
        let kept = post(&server, "leases/renew", token, renew.clone()).await.ok().json();
        assert_eq!(kept["results"].as_array().map(Vec::len), Some(1), "{kept}");
    }
    let lease = claimed(&server, &long, "a-worker-with-a-name-of-some-length").await;
    let (path, entry) = writes(&lease).pop().expect("the last is to settle");
    assert_eq!(code(&server, path, &long, json!({ "leases": [entry] })).await, None);
    let seen = get(&server, "workers", &eve).await.to_string();
    assert!(seen.contains("default/ann/w1") && !seen.contains("bbb/"), "{seen}");
}

async fn tenant_default_sees_its_own_things_alone(store: Store) {
    let bob = store.token("bob", "admin", "bbb");
    let eve = store.token("eve", "admin", "default");
    let all = store.token("root", "admin", "*");
    let config = "[alerts]\nqueue_age_ms = 1\nlook_every_ms = 100\n";
    let server = At::from(Server::start_guarded_with_config(&store, config));
    post(&server, "jobs", &bob, json!({ "queue": "bobs-secret" })).await.ok();
    post(&server, "jobs", &eve, json!({ "queue": "eves-own" })).await.ok();
    let told = async |token: &str| get(&server, "alerts", token).await.to_string();
    while !(told(&all).await.contains("bobs-secret") && told(&eve).await.contains("eves-own")) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for path in ["alerts", "overview", "queues", "workers"] {
        let seen = get(&server, path, &eve).await;
        assert!(!seen.to_string().contains("bobs-secret"), "{path}: {seen}");
        assert!(!get(&server, path, &bob).await.to_string().contains("eves-own"), "{path}");
    }
    assert_eq!(get(&server, "overview", &eve).await["totals"], Value::Null);
    assert_ne!(get(&server, "overview", &all).await["totals"], Value::Null);
}

/// A new tenant has no slash in its name, so no name of a rule is another tenant's.
async fn tenants_with_a_slash_have_their_own_rules(store: Store) {
    let all = store.token("root", "admin", "*");
    let acme = store.token("ann", "operator", "acme");
    let server = At::from(Server::start_guarded(&store));
    for tenant in ["acme/eu", "ac me", "acme\u{202e}", "_windlass", "windlass.acme"] {
        let body = json!({ "principal": "eve", "role": "operator", "tenant": tenant });
        assert_eq!(post(&server, "tokens", &all, body).await.status, 422, "{tenant}");
    }
    // What the caretaker says of a tenant is not the tenant's to drop.
    let cap = json!({ "scope": { "tenant": "acme" }, "says": "pause" });
    call(
        &server,
        Method::PUT,
        "rules/acme%2Fcap",
        &all,
        &json!({ "scope": { "queue": "q" }, "says": "drain" }),
    )
    .await
    .ok();
    call(&server, Method::PUT, "rules/other", &all, &cap).await.ok();
    for name in ["cap", "other"] {
        let path = format!("rules/{name}");
        let dropped = call(&server, Method::DELETE, &path, &acme, &json!({})).await;
        assert_eq!(dropped.status, 404, "{name}: {}", dropped.text);
    }
    let body = json!({ "scope": { "queue": "q" }, "says": { "concurrency": { "max": 1, "each": "together" } } });
    assert_eq!(call(&server, Method::PUT, "rules/cap", &acme, &body).await.status, 422);
}

async fn nobody_takes_the_rules_of_others(store: Store) {
    let greedy = store.token("eve", "operator", "greedy");
    let other = store.token("ann", "operator", "other");
    let all = store.token("root", "admin", "*");
    let server = At::from(Server::start_guarded(&store));
    let cap = json!({ "scope": { "queue": "q" }, "says": { "concurrency": { "max": 1, "each": "together" } } });
    let full = async |from: u32, upto: u32| {
        for number in from..upto {
            let path = format!("rules/r{number}");
            call(&server, Method::PUT, &path, &greedy, &cap).await.ok();
        }
    };
    tokio::join!(full(0, 250), full(250, 500), full(500, 750), full(750, 1_000));
    assert_eq!(call(&server, Method::PUT, "rules/more", &greedy, &cap).await.status, 422);
    call(&server, Method::PUT, "rules/mine", &other, &cap).await.ok();
    let long = "q".repeat(128);
    for (token, queue) in [(&greedy, "pay"), (&other, "pay"), (&all, "pay"), (&other, &long)] {
        post(&server, &format!("queues/{queue}/pause"), token, json!({})).await.ok();
        post(&server, &format!("queues/{queue}/resume"), token, json!({})).await.ok();
    }
}
