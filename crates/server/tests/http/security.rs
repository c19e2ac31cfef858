//! Who may do what: every route with every role, and with the things of another tenant.
//!
//! The routes come from the server itself, so that none can be forgotten.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::{
    client::{Answer, client, send},
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(
    every_route_asks_for_a_role,
    another_tenants_things_are_not_there,
    a_token_ends_when_it_is_revoked,
    what_is_secret_is_nowhere_to_be_read,
    claims_of_two_tenants_do_not_meet,
    a_bell_rings_for_its_own_tenant_alone,
    names_of_rules_are_the_tenants_own,
);

const ROLES: [&str; 4] = ["viewer", "worker", "operator", "admin"];

/// A route, as the server's own document has it.
struct Route {
    method: Method,
    path: String,
    roles: Vec<String>,
    is_dev: bool,
}

async fn routes(server: &Server) -> Vec<Route> {
    let document = call(server, &Method::GET, "/openapi.json", None, "").await.json();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("there are paths") {
        for (method, operation) in operations.as_object().expect("there are operations") {
            let roles = operation["x-windlass-roles"].as_array().expect("each names its roles");
            let roles = roles.iter().map(|role| role.as_str().unwrap_or_default().to_owned());
            routes.push(Route {
                method: method.to_uppercase().parse().expect("it is a method"),
                path: path.clone(),
                roles: roles.collect(),
                is_dev: operation["x-windlass-dev"] == true,
            });
        }
    }
    assert!(routes.len() > 50, "there are {} routes", routes.len());
    routes
}

/// Calls, and reads the answer unless it is a stream that never ends.
async fn call(
    server: &Server,
    method: &Method,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> Answer {
    let mut request = client().request(method.clone(), server.url(path));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if !body.is_empty() {
        request = request.header("content-type", "application/json").body(body.to_owned());
    }
    if path.ends_with("/stream") || path.ends_with("/ready") {
        let response = request.send().await.expect("it answers");
        let (status, headers) = (response.status(), response.headers().clone());
        return Answer { status, headers, text: String::new() };
    }
    send(request).await.expect("it answers")
}

async fn every_route_asks_for_a_role(store: Store) {
    let admin = store.token("root", "admin", "*");
    let tokens = ROLES.map(|role| (role, store.token(role, role, "acme")));
    let server = Server::start_guarded(&store);
    let soon = r#"{"principal": "late", "role": "admin", "expires_at": "2999-01-01T00:00:00Z"}"#;
    let revoked = call(&server, &Method::POST, "/api/v1/tokens", Some(&admin), soon).await.ok();
    let path = format!("/api/v1/tokens/{}", revoked.at("/token_id"));
    call(&server, &Method::DELETE, &path, Some(&admin), "").await.ok();
    let revoked = revoked.at("/token");
    let (mut unknown, mut changed) = (admin.clone(), admin.clone());
    unknown.replace_range(10..12, "zz");
    changed.pop();
    for route in routes(&server).await {
        let Route { method, path, roles, is_dev } = &route;
        let path = path.replace("{id}", "nobody").replace("{name}", "nobody");
        let answer = call(&server, method, &path, None, "").await;
        if *is_dev {
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path} is there without --dev");
            continue;
        }
        if roles.is_empty() {
            assert!(answer.status.is_success(), "{path}: {}", answer.text);
            continue;
        }
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path} without a token");
        for wrong in [revoked.as_str(), &unknown, &changed, "", "x", "windlass__"] {
            let answer = call(&server, method, &path, Some(wrong), "").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path} with {wrong:?}");
        }
        for (role, token) in &tokens {
            let answer = call(&server, method, &path, Some(token), "").await;
            let is_refused = answer.status == StatusCode::FORBIDDEN;
            // The clock is every tenant's, so no role of one tenant may say that it is right.
            let may = roles.iter().any(|known| known == role) && !path.ends_with("/clock/accept");
            assert_eq!(is_refused, !may, "{method} {path} as {role}: {}", answer.text);
            assert_ne!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path} as {role}");
            assert!(answer.status.as_u16() < 500, "{method} {path} as {role}: {}", answer.text);
        }
    }
    let path = "/api/v1/clock/accept";
    call(&server, &Method::POST, path, Some(&admin), r#"{"reason": "NTP is right"}"#).await.ok();
}

/// What the tenant has: a job, a dead letter, a token, an operation.
struct Things {
    job: String,
    letter: String,
    token: String,
    operation: String,
}

async fn things(server: &Server, admin: &str, worker: &str) -> Things {
    let post = async |path: &str, token: &str, body: &str| {
        call(server, &Method::POST, path, Some(token), body).await.ok()
    };
    let failing = post("/api/v1/jobs", admin, r#"{"queue": "q", "max_retries": 0}"#).await;
    let failing = failing.at("/job/job_id");
    post("/api/v1/claims", worker, r#"{"worker_id": "w", "queues": ["q"], "start": true}"#).await;
    let settle = format!(
        r#"{{"leases": [{{"job_id": "{failing}", "epoch": 1, "outcome": "failed", "error": {{"code": "NO", "retryable": true}}}}]}}"#
    );
    let settled = post("/api/v1/leases/settle", worker, &settle).await;
    let body = r#"{"task_id": "mine", "payload": {"secret": 1}, "idempotency_key": "k"}"#;
    let job = post("/api/v1/jobs", admin, body).await.at("/job/job_id");
    post("/api/v1/schedules", admin, r#"{"name": "s", "cron": "@daily", "job": {}}"#).await;
    let token = r#"{"principal": "x", "role": "viewer"}"#;
    let operation = r#"{"act": "cancel", "filter": {"queue": "none"}}"#;
    Things {
        job,
        letter: settled.at("/results/0/dlq_id"),
        token: post("/api/v1/tokens", admin, token).await.at("/token_id"),
        operation: post("/api/v1/operations", admin, operation).await.at("/operation_id"),
    }
}

/// The answer without what differs from one call to the next.
fn plain(answer: &Answer, id: &str) -> (StatusCode, String) {
    let mut json: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    if let Some(object) = json.as_object_mut() {
        object.remove("trace_id");
    }
    (answer.status, json.to_string().replace(id, "ID"))
}

async fn another_tenants_things_are_not_there(store: Store) {
    let (admin_a, worker_a) = (store.token("ann", "admin", "a"), store.token("w", "worker", "a"));
    let (admin_b, worker_b) = (store.token("bob", "admin", "b"), store.token("w", "worker", "b"));
    let server = Server::start_guarded(&store);
    let a = things(&server, &admin_a, &worker_a).await;
    things(&server, &admin_b, &worker_b).await;
    // The same shape, and nobody's.
    let nobody = |id: &str| {
        let (prefix, _) = id.split_once('_').expect("an id has a prefix");
        format!("{prefix}_00000000000000000000000001")
    };
    let mut tried = 0;
    for route in routes(&server).await {
        let Route { method, path, .. } = &route;
        if !path.contains("{id}") || route.is_dev {
            continue;
        }
        let id = match path.split('/').nth(3) {
            Some("dlq") => &a.letter,
            Some("tokens") => &a.token,
            Some("operations") => &a.operation,
            Some("tasks") => &"mine-alone_x".to_owned(),
            _ => &a.job,
        };
        let body = match path.rsplit('/').next() {
            Some("discard") => r#"{"reason": "x"}"#,
            _ => "",
        };
        let (theirs, none) = (path.replace("{id}", id), path.replace("{id}", &nobody(id)));
        let theirs = call(&server, method, &theirs, Some(&admin_b), body).await;
        let none = call(&server, method, &none, Some(&admin_b), body).await;
        assert_eq!(theirs.status, StatusCode::NOT_FOUND, "{method} {path}: {}", theirs.text);
        assert_eq!(plain(&theirs, id), plain(&none, &nobody(id)), "{method} {path}");
        tried += 1;
    }
    assert!(tried >= 12, "{tried} routes name a thing");
    // Nor does a new job that is given the id of another's tell that it is there.
    let body = format!(r#"{{"job_id": "{}"}}"#, a.job);
    let taken = call(&server, &Method::POST, "/api/v1/jobs", Some(&admin_b), &body).await;
    assert_eq!(taken.status, StatusCode::NOT_FOUND, "{}", taken.text);
    let body = format!(r#"{{"jobs": [{body}]}}"#);
    let taken = call(&server, &Method::POST, "/api/v1/jobs/batch", Some(&admin_b), &body).await;
    assert_eq!(taken.at("/results/0/code"), "NOT_FOUND", "{}", taken.text);
    // What is listed is one's own, and leases of another are nobody's.
    for path in ["/api/v1/jobs", "/api/v1/dlq", "/api/v1/events", "/api/v1/tokens", "/api/v1/audit"]
    {
        let listed = call(&server, &Method::GET, path, Some(&admin_b), "").await.ok();
        for id in [&a.job, &a.letter, &a.token, &a.operation] {
            assert!(!listed.text.contains(id.as_str()), "{path} shows {id}");
        }
        assert!(!listed.text.contains(r#""tenant":"a""#), "{path}: {}", listed.text);
    }
    for what in ["start", "renew", "settle", "release"] {
        let more = if what == "settle" { r#", "outcome": "succeeded""# } else { "" };
        let body = format!(r#"{{"leases": [{{"job_id": "{}", "epoch": 1{more}}}]}}"#, a.job);
        let path = format!("/api/v1/leases/{what}");
        let answer = call(&server, &Method::POST, &path, Some(&worker_b), &body).await.ok();
        assert_eq!(answer.at("/results/0/code"), "NOT_FOUND", "{what}: {}", answer.text);
    }
    // The same key and the same task are another tenant's own.
    let body = r#"{"task_id": "mine", "payload": {"secret": 2}, "idempotency_key": "k2"}"#;
    let again = call(&server, &Method::POST, "/api/v1/jobs", Some(&admin_b), body).await;
    assert_eq!(again.at("/code"), "TASK_ACTIVE");
    drop(server);
    store.check();
}

async fn a_token_ends_when_it_is_revoked(store: Store) {
    let admin = store.token("ann", "admin", "a");
    let server = Server::start_guarded(&store);
    let post =
        async |body: &str| call(&server, &Method::POST, "/api/v1/tokens", Some(&admin), body).await;
    let issued = post(r#"{"principal": "eve", "role": "viewer", "label": "laptop"}"#).await.ok();
    let token = issued.at("/token");
    let look = async |token: &str| {
        call(&server, &Method::GET, "/api/v1/jobs", Some(token), "").await.status
    };
    assert_eq!(look(&token).await, StatusCode::OK);
    let path = format!("/api/v1/tokens/{}", issued.at("/token_id"));
    call(&server, &Method::DELETE, &path, Some(&admin), r#"{"reason": "lost"}"#).await.ok();
    assert_eq!(look(&token).await, StatusCode::UNAUTHORIZED);
    // One that is about to expire is let in, and then not.
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1_500);
    let body = format!(r#"{{"principal": "eve", "role": "viewer", "expires_at": "{at}"}}"#);
    let short = post(&body).await.ok().at("/token");
    assert_eq!(look(&short).await, StatusCode::OK);
    tokio::time::sleep(std::time::Duration::from_millis(1_700)).await;
    assert_eq!(look(&short).await, StatusCode::UNAUTHORIZED);
    let refused = post(r#"{"principal": "x", "role": "viewer", "tenant": "b"}"#).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
    let refused = post(r#"{"principal": "x", "role": "viewer", "tenant": "*"}"#).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
    let refused = post(r#"{"principal": "x", "role": "root"}"#).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let audit = call(&server, &Method::GET, "/api/v1/audit", Some(&admin), "").await.ok();
    assert!(audit.text.contains(r#""reason":"lost""#), "{}", audit.text);
}

async fn what_is_secret_is_nowhere_to_be_read(store: Store) {
    let admin = store.token("ann", "admin", "a");
    let server = Server::start_guarded(&store);
    let issued = r#"{"principal": "eve", "role": "viewer"}"#;
    let issued = call(&server, &Method::POST, "/api/v1/tokens", Some(&admin), issued).await.ok();
    let secrets = [admin.clone(), issued.at("/token")]
        .map(|token| token.splitn(3, '_').nth(2).expect("a token has parts").to_owned());
    for path in ["/api/v1/tokens", "/api/v1/audit", "/api/v1/events", "/metrics"] {
        let answer = call(&server, &Method::GET, path, Some(&admin), "").await.ok();
        for secret in &secrets {
            assert!(!answer.text.contains(secret), "{path} shows a secret");
        }
    }
    let url = format!("/api/v1/jobs?token={admin}");
    let refused = call(&server, &Method::GET, &url, None, "").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(!refused.text.contains(&secrets[0]), "{}", refused.text);
    drop(server);
    if let Some(file) = store.url().strip_prefix("sqlite:") {
        let bytes = std::fs::read(file).expect("the database can be read");
        for secret in &secrets {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "the database holds a secret");
        }
    }
}

async fn claims_of_two_tenants_do_not_meet(store: Store) {
    let tokens = ["a", "b"].map(|tenant| store.token("w", "worker", tenant));
    let fleet = store.token("fleet", "worker", "*");
    let server = Server::start_guarded(&store);
    let post = async |path: &str, token: &str, body: &str| {
        call(&server, &Method::POST, path, Some(token), body).await.ok()
    };
    for token in &tokens {
        post("/api/v1/jobs", token, "{}").await;
        post("/api/v1/jobs", token, "{}").await;
    }
    // Two workers of one name, each with its own tenant's job.
    let claim = r#"{"worker_id": "same", "start": true}"#;
    for (token, tenant) in tokens.iter().zip(["a", "b"]) {
        let claimed = post("/api/v1/claims", token, claim).await;
        assert_eq!(claimed.at("/leases/0/job/tenant"), tenant);
        let renewed = post("/api/v1/leases/renew", token, r#"{"worker_id": "same"}"#).await;
        assert_eq!(renewed.json()["results"].as_array().map(Vec::len), Some(1), "{}", renewed.text);
        let job = claimed.at("/leases/0/job/job_id");
        assert_eq!(renewed.at("/results/0/job_id"), job);
    }
    // A fleet takes jobs of both, and settles them.
    let all = r#"{"worker_id": "f", "start": true, "max": 10}"#;
    let claimed = post("/api/v1/claims", &fleet, all).await.json();
    let leases = claimed["leases"].as_array().expect("there are leases");
    assert_eq!(leases.len(), 2, "{claimed}");
    let settles = leases.iter().map(|lease| {
        serde_json::json!({ "job_id": lease["job"]["job_id"], "epoch": lease["epoch"], "outcome": "succeeded" })
    });
    let body = serde_json::json!({ "worker_id": "f", "leases": settles.collect::<Vec<_>>() });
    let settled = post("/api/v1/leases/settle", &fleet, &body.to_string()).await;
    assert_eq!(settled.text.matches(r#""ok":true"#).count(), 2, "{}", settled.text);
    let nothing_new = call(&server, &Method::POST, "/api/v1/jobs", Some(&fleet), "{}").await;
    assert!(nothing_new.status.is_client_error(), "{}", nothing_new.text);
    drop(server);
    store.check();
}

/// Does the bell ring within this time?
async fn rings(bell: &mut reqwest::Response, within: Duration) -> bool {
    let ring = async {
        loop {
            let chunk = bell.chunk().await.expect("it goes on").expect("it goes on");
            if chunk.windows(5).any(|part| part == b"data:") {
                return;
            }
        }
    };
    tokio::time::timeout(within, ring).await.is_ok()
}

async fn a_bell_rings_for_its_own_tenant_alone(store: Store) {
    let [a, b] = ["a", "b"].map(|tenant| store.token("w", "worker", tenant));
    let server = Server::start_guarded(&store);
    let bell = client().get(server.url("/api/v1/ready")).bearer_auth(&a).send().await;
    let mut bell = bell.expect("it answers");
    for _ in 0..3 {
        call(&server, &Method::POST, "/api/v1/jobs", Some(&b), "{}").await.ok();
    }
    assert!(!rings(&mut bell, Duration::from_secs(1)).await, "it tells what another tenant does");
    call(&server, &Method::POST, "/api/v1/jobs", Some(&a), "{}").await.ok();
    assert!(rings(&mut bell, Duration::from_secs(10)).await, "it does not ring");
}

async fn names_of_rules_are_the_tenants_own(store: Store) {
    let admin = store.token("ann", "admin", "acme");
    let server = Server::start_guarded(&store);
    let post =
        async |path: &str, body: &str| call(&server, &Method::POST, path, Some(&admin), body).await;
    let drained = post("/api/v1/queues/post/drain", r#"{"reason": "moving"}"#).await.ok();
    let name = drained.at("/name");
    assert!(!name.contains("acme"), "{name}");
    let refused = post("/api/v1/jobs", r#"{"queue": "post"}"#).await;
    assert_eq!(refused.at("/code"), "DRAINING");
    assert!(refused.at("/detail").contains(&format!("rule {name} ")), "{}", refused.text);
    let refused = post("/api/v1/jobs/batch", r#"{"jobs": [{"queue": "post"}]}"#).await;
    let detail = refused.at("/results/0/detail");
    assert!(detail.contains(&format!("rule {name} ")), "{detail}");
    for path in ["/api/v1/audit", "/api/v1/events"] {
        let told = call(&server, &Method::GET, path, Some(&admin), "").await.ok();
        assert!(told.text.contains(&format!(r#""name":"{name}""#)), "{path}: {}", told.text);
        assert!(!told.text.contains("acme/"), "{path}: {}", told.text);
    }
}
