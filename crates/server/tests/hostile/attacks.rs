//! The attacks. Each goes on until it is dropped.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};

use crate::{client::client, server::Server};

/// Something that a hostile tenant does.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Hostile) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

macro_rules! attacks {
    ($($name:ident),* $(,)?) => {
        pub(crate) const ATTACKS: &[Attack] = &[$(Attack {
            name: stringify!($name),
            run: |hostile| Box::pin($name(hostile)),
        }),*];
    };
}

attacks!(
    claims_that_name_very_many_queues,
    claims_under_ever_new_names,
    batches_of_many_jobs,
    many_queues_and_those_who_ask_for_alerts,
    many_bells,
    many_who_wait_for_work,
    many_who_follow_the_feed,
    large_bodies_that_never_end,
    answers_that_nobody_reads,
    tokens_that_nobody_has,
    connections_that_say_nothing,
);

/// What an attack needs.
#[derive(Clone)]
pub(crate) struct Hostile {
    client: Client,
    address: String,
    worker: String,
    viewer: String,
    operator: String,
    is_deep: bool,
}

impl Hostile {
    pub(crate) fn new(server: &Server, tokens: &[String; 3], is_deep: bool) -> Self {
        let [worker, viewer, operator] = tokens.clone();
        let address = server.address().to_owned();
        Self { client: client(), address, worker, viewer, operator, is_deep }
    }

    /// One number for the usual test, and one for the deep one.
    fn size(&self, usual: usize, deep: usize) -> usize {
        if self.is_deep { deep } else { usual }
    }

    fn request(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("http://{}{path}", self.address));
        request.bearer_auth(token).header("content-type", "application/json")
    }

    /// Sends it, and does not care what comes back.
    async fn post(&self, path: &str, token: &str, body: String) {
        let sent = self.request(Method::POST, path, token).body(body).send().await;
        if let Ok(answer) = sent {
            let _ = answer.bytes().await;
        }
    }

    async fn get(&self, path: &str, token: &str) {
        if let Ok(answer) = self.request(Method::GET, path, token).send().await {
            let _ = answer.bytes().await;
        }
    }
}

/// So many do the same again and again.
async fn all<F>(count: usize, what: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    (0..count).for_each(|number| drop(tasks.spawn(what(number))));
    while tasks.join_next().await.is_some() {}
    // Those that only hold something open are done: it stays so.
    std::future::pending::<()>().await;
}

/// A number that was not given before.
fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

async fn claims_that_name_very_many_queues(hostile: Hostile) {
    let names: Vec<String> =
        (0..hostile.size(40_000, 120_000)).map(|it| format!("q{it}")).collect();
    let body = Arc::new(json!({ "worker_id": "w", "queues": names }).to_string());
    all(4, |_| {
        let (hostile, body) = (hostile.clone(), body.clone());
        async move {
            loop {
                hostile.post("/api/v1/claims", &hostile.worker, body.to_string()).await;
            }
        }
    })
    .await;
}

async fn claims_under_ever_new_names(hostile: Hostile) {
    all(4, |_| {
        let hostile = hostile.clone();
        async move {
            loop {
                let name = |it: usize| format!("{it:0>100}");
                let names: Vec<String> = (0..1_000).map(name).collect();
                let worker = format!("w{}", next());
                let body = json!({ "worker_id": worker, "queues": names, "kinds": names });
                hostile.post("/api/v1/claims", &hostile.worker, body.to_string()).await;
                hostile.get("/api/v1/workers", &hostile.viewer).await;
            }
        }
    })
    .await;
}

fn batch(count: usize, job: impl Fn(usize) -> Value) -> String {
    json!({ "jobs": (0..count).map(job).collect::<Vec<Value>>() }).to_string()
}

async fn batches_of_many_jobs(hostile: Hostile) {
    all(hostile.size(8, 32), |_| {
        let hostile = hostile.clone();
        async move {
            loop {
                let body = batch(1_000, |_| json!({ "queue": "flood" }));
                hostile.post("/api/v1/jobs/batch", &hostile.worker, body).await;
            }
        }
    })
    .await;
}

/// Jobs that are ready, each in a queue of its own.
async fn many_queues(hostile: &Hostile, count: usize) {
    for first in (0..count).step_by(500) {
        let body = batch(500, |it| json!({ "queue": format!("many-{}", first + it) }));
        hostile.post("/api/v1/jobs/batch", &hostile.worker, body).await;
    }
}

async fn many_queues_and_those_who_ask_for_alerts(hostile: Hostile) {
    many_queues(&hostile, hostile.size(1_000, 40_000)).await;
    all(6, |_| {
        let hostile = hostile.clone();
        async move {
            loop {
                hostile.get("/api/v1/alerts", &hostile.viewer).await;
            }
        }
    })
    .await;
}

/// Enqueues a job now and then, which rings the bells of its tenant.
async fn ring(hostile: &Hostile) {
    loop {
        hostile.post("/api/v1/jobs", &hostile.worker, "{}".to_owned()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn follow(hostile: &Hostile, path: &str, token: &str) {
    if let Ok(mut stream) = hostile.request(Method::GET, path, token).send().await {
        while let Ok(Some(_)) = stream.chunk().await {}
    }
}

async fn many_bells(hostile: Hostile) {
    many_queues(&hostile, hostile.size(1_000, 5_000)).await;
    let count = hostile.size(100, 2_000);
    all(count + 1, |number| {
        let hostile = hostile.clone();
        async move {
            match number == count {
                true => ring(&hostile).await,
                false => follow(&hostile, "/api/v1/ready", &hostile.worker).await,
            }
        }
    })
    .await;
}

async fn many_who_wait_for_work(hostile: Hostile) {
    all(hostile.size(200, 2_400), |number| {
        let hostile = hostile.clone();
        async move {
            loop {
                let queues = [format!("nothing-{number}")];
                let body = json!({ "worker_id": format!("wait-{number}"), "queues": queues, "wait_ms": 30_000 });
                hostile.post("/api/v1/claims", &hostile.worker, body.to_string()).await;
            }
        }
    })
    .await;
}

async fn many_who_follow_the_feed(hostile: Hostile) {
    let count = hostile.size(100, 2_400);
    all(count + 1, |number| {
        let hostile = hostile.clone();
        async move {
            match number == count {
                true => ring(&hostile).await,
                false => follow(&hostile, "/api/v1/events/stream", &hostile.viewer).await,
            }
        }
    })
    .await;
}

/// Sends the head of a request and what there is of its body, and holds the connection.
async fn hold(address: &str, text: String, body: Vec<u8>) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.write_all(&body).await.ok()?;
    Some(stream)
}

async fn large_bodies_that_never_end(hostile: Hostile) {
    const LENGTH: usize = 8 * 1024 * 1024;
    all(hostile.size(100, 300), |_| {
        let hostile = hostile.clone();
        async move {
            loop {
                let (address, token) = (&hostile.address, &hostile.worker);
                let head = format!(
                    "POST /api/v1/jobs HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
                     content-type: application/json\r\ncontent-length: {LENGTH}\r\n\r\n"
                );
                let held = hold(address, head, vec![b' '; LENGTH - 1]).await;
                if held.is_some() {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    })
    .await;
}

async fn answers_that_nobody_reads(hostile: Hostile) {
    for number in 0..hostile.size(12, 120) {
        let payload = "x".repeat(1_000_000);
        let body = json!({ "name": format!("s{number}"), "cron": "0 0 1 1 *", "job": { "payload": payload } });
        hostile.post("/api/v1/schedules", &hostile.operator, body.to_string()).await;
    }
    all(hostile.size(40, 400), |_| {
        let hostile = hostile.clone();
        async move {
            loop {
                let (address, token) = (&hostile.address, &hostile.viewer);
                let head = format!(
                    "GET /api/v1/schedules HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n"
                );
                let held = hold(address, head, Vec::new()).await;
                if held.is_some() {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    })
    .await;
}

async fn tokens_that_nobody_has(hostile: Hostile) {
    all(8, |_| {
        let hostile = hostile.clone();
        async move {
            loop {
                let token = format!("windlass_{:026}_{}", next(), "x".repeat(43));
                hostile.get("/api/v1/jobs", &token).await;
            }
        }
    })
    .await;
}

/// The first words of HTTP/2, and settings that say nothing.
const HTTP2: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";

async fn connections_that_say_nothing(hostile: Hostile) {
    all(hostile.size(500, 10_000), |_| {
        let hostile = hostile.clone();
        async move {
            loop {
                let held = hold(&hostile.address, HTTP2.to_owned(), Vec::new()).await;
                if held.is_some() {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    })
    .await;
}
