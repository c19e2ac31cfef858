//! A server that is killed again and again loses nothing that it acknowledged, and does nothing twice.
//!
//! Clients and workers send again what was not acknowledged: an enqueue under its key, a claim under its id, a settle
//! as it was. At the end the store has to say what they were told.

use std::{
    collections::HashMap,
    env,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    client::{Answer, client, send},
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(a_server_that_is_killed_keeps_what_it_acknowledged);

const CLIENTS: u32 = 3;
const WORKERS: u32 = 3;

async fn a_server_that_is_killed_keeps_what_it_acknowledged(store: Store) {
    let kills = if env::var_os("WINDLASS_DEEP").is_some() { 60 } else { 10 };
    let seed = RandomState::new().hash_one(0);
    println!("seed {seed}");
    let mut server = Server::start(&store);
    let address = server.address().to_owned();
    let world = Arc::new(World::new(format!("http://{address}"), seed));
    let clients: Vec<_> = (0..CLIENTS).map(|at| tokio::spawn(world.clone().enqueue(at))).collect();
    let workers: Vec<_> = (0..WORKERS).map(|at| tokio::spawn(world.clone().work(at))).collect();
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(50 + world.random(400))).await;
        server.kill();
        server = Server::start_at(&store, &address);
    }
    world.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("a client does not panic");
    }
    world.reach_the_end().await;
    world.is_idle.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("a worker does not panic");
    }
    world.check().await;
    assert!(server.stop().success());
    store.check();
}

/// What clients and workers share, and what they were told.
struct World {
    url: String,
    client: reqwest::Client,
    random: AtomicU64,
    claims: AtomicU32,
    /// Nobody asks for more jobs.
    is_over: AtomicBool,
    /// All jobs are at their end.
    is_idle: AtomicBool,
    /// The job of each key.
    enqueued: Mutex<HashMap<String, String>>,
    /// The settles of each job that were acknowledged, in order.
    settled: Mutex<HashMap<String, Vec<Settled>>>,
}

#[derive(Debug)]
enum Settled {
    Succeeded { result: Value },
    Failed,
}

impl World {
    fn new(url: String, seed: u64) -> Self {
        Self {
            url,
            client: client(),
            random: AtomicU64::new(seed),
            claims: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            enqueued: Mutex::default(),
            settled: Mutex::default(),
        }
    }

    /// A number below the bound.
    fn random(&self, bound: u64) -> u64 {
        let step = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (step ^ (step >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % bound
    }

    /// Sends the same until it is answered, and not by a problem that may pass.
    async fn insist(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        loop {
            let mut request = self.client.post(format!("{}{path}", self.url));
            request = request.header("content-type", "application/json").body(body.to_string());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            match send(request).await {
                Ok(answer) if answer.status.is_success() => return answer,
                Ok(answer) => assert!(answer.status.is_server_error(), "{}", answer.text),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn get(&self, path: &str) -> Value {
        let request = self.client.get(format!("{}{path}", self.url));
        send(request).await.expect("it answers").ok().json()
    }

    /// A client: it asks for one job after the other.
    async fn enqueue(self: Arc<Self>, client: u32) {
        for number in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let key = format!("client-{client}-{number}");
            let answer = self.ask(&key).await;
            let id = answer.at("/job/job_id");
            self.enqueued.lock().expect("nobody panics with it").insert(key, id);
            tokio::time::sleep(Duration::from_millis(self.random(5))).await;
        }
    }

    async fn ask(&self, key: &str) -> Answer {
        let retry = json!({ "base_ms": 1, "max_backoff_ms": 1 });
        let body = json!({ "payload": key, "max_retries": 1_000, "retry": retry });
        self.insist("/api/v1/jobs", &[("idempotency-key", key)], &body).await
    }

    /// A worker: it claims, keeps and settles.
    async fn work(self: Arc<Self>, worker: u32) {
        let worker = format!("worker-{worker}");
        while !self.is_idle.load(Ordering::Relaxed) {
            let number = self.claims.fetch_add(1, Ordering::Relaxed);
            let body = json!({
                "worker_id": worker, "claim_id": format!("claim_{number:026}"), "start": true,
                "max": 1 + self.random(4), "wait_ms": 200, "lease_ms": 120_000,
            });
            let claimed = self.insist("/api/v1/claims", &[], &body).await.json();
            let leases = claimed["leases"].as_array().expect("a list").clone();
            if leases.is_empty() {
                continue;
            }
            let named = |lease: &Value| json!({ "job_id": lease["job"]["job_id"], "epoch": lease["epoch"] });
            let named: Vec<Value> = leases.iter().map(named).collect();
            if self.random(2) == 0 {
                let body = json!({ "worker_id": worker, "lease_ms": 120_000, "leases": named });
                let renewed = self.insist("/api/v1/leases/renew", &[], &body).await.json();
                assert_eq!(all_ok(&renewed), named.len(), "a lease was lost: {renewed}");
            }
            self.settle(&worker, &leases, named).await;
        }
    }

    async fn settle(&self, worker: &str, leases: &[Value], mut entries: Vec<Value>) {
        for (entry, lease) in entries.iter_mut().zip(leases) {
            if self.random(4) == 0 {
                entry["outcome"] = json!("failed");
                entry["error"] =
                    json!({ "code": "BAD_LUCK", "message": worker, "retryable": true });
            } else {
                entry["outcome"] = json!("succeeded");
                entry["result"] = json!({ "by": worker, "attempt_id": lease["attempt_id"] });
            }
        }
        let body = json!({ "worker_id": worker, "leases": entries });
        let told = self.insist("/api/v1/leases/settle", &[], &body).await.json();
        assert_eq!(all_ok(&told), entries.len(), "a settle was refused: {told}");
        let mut settled = self.settled.lock().expect("nobody panics with it");
        for entry in entries {
            let id = entry["job_id"].as_str().expect("an id").to_owned();
            settled.entry(id).or_default().push(match entry["outcome"].as_str() {
                Some("failed") => Settled::Failed,
                _ => Settled::Succeeded { result: entry["result"].clone() },
            });
        }
    }

    /// Waits until no job is left that is not at its end.
    async fn reach_the_end(&self) {
        const LEFT: &str = "/api/v1/jobs?limit=1&state=scheduled,queued,dispatched,running,waiting,\
                            retry_scheduled,interrupted,dlq_pending,dlq_recorded";
        for _ in 0..600 {
            let left = self.get(LEFT).await;
            if left["items"].as_array().is_some_and(Vec::is_empty) && left["next"].is_null() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("a job is stuck: {}", self.get(LEFT).await);
    }

    /// The store says what everybody was told.
    async fn check(&self) {
        let enqueued = self.enqueued.lock().expect("nobody panics with it").clone();
        println!("{} jobs", enqueued.len());
        assert!(!enqueued.is_empty(), "nothing was enqueued");
        let mut jobs: HashMap<String, String> = HashMap::new();
        let mut cursor = String::new();
        loop {
            let page = self.get(&format!("/api/v1/jobs?limit=500&cursor={cursor}")).await;
            for job in page["items"].as_array().expect("a list") {
                let text = |name: &str| job[name].as_str().expect("text").to_owned();
                let earlier = jobs.insert(text("idempotency_key"), text("job_id"));
                assert_eq!(earlier, None, "two jobs of one key: {job}");
            }
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        assert_eq!(jobs, enqueued, "the jobs that were acknowledged are there, and no others");
        let settled = std::mem::take(&mut *self.settled.lock().expect("nobody panics with it"));
        for (key, id) in &enqueued {
            let job = self.get(&format!("/api/v1/jobs/{id}")).await;
            assert_eq!((&job["state"], &job["payload"]), (&json!("succeeded"), &json!(key)));
            let mut told = settled.get(id).map(|told| told.iter()).unwrap_or_default();
            let Some(Settled::Succeeded { result }) = told.next_back() else {
                panic!("nobody was told of the end of {job}")
            };
            assert_eq!(job["result"], *result, "{job}");
            let failures = told.filter(|it| matches!(it, Settled::Failed)).count();
            assert_eq!(job["retry_count"], json!(failures), "{job}");
        }
    }
}

/// How many results are good.
fn all_ok(results: &Value) -> usize {
    let results = results["results"].as_array().expect("a list");
    results.iter().filter(|result| result["ok"] == true).count()
}
