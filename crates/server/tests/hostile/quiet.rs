//! The quiet tenant: it enqueues a job now and then, and notes how long each takes.
//!
//! It has a thread of its own: what it waits for is the server, and not its turn among those who attack.

use std::time::{Duration, Instant};

use reqwest::Client;

use crate::{client::client, server::Server};

/// How often it enqueues.
const EVERY: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(crate) struct Quiet {
    url: String,
    token: String,
}

impl Quiet {
    pub(crate) fn new(server: &Server, token: &str) -> Self {
        let url = server.url("/api/v1/jobs");
        Self { url, token: token.to_owned() }
    }

    /// How long all but one in a hundred of its jobs take at the most, over this time. Each must be taken.
    pub(crate) async fn p99(&self, over: Duration) -> Duration {
        let quiet = self.clone();
        let measured = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("it can be built").block_on(quiet.measure(&client(), over))
        });
        measured.await.expect("each is taken")
    }

    async fn measure(&self, client: &Client, over: Duration) -> Duration {
        let until = Instant::now() + over;
        let mut took = Vec::new();
        while Instant::now() < until {
            let began = Instant::now();
            let request = client.post(&self.url).bearer_auth(&self.token);
            let request = request.header("content-type", "application/json").body("{}");
            let answer = request.timeout(Duration::from_secs(60)).send().await.expect("it answers");
            assert!(answer.status().is_success(), "{}", answer.status());
            answer.bytes().await.expect("it is whole");
            took.push(began.elapsed());
            tokio::time::sleep(EVERY.saturating_sub(began.elapsed())).await;
        }
        took.sort_unstable();
        took[(took.len() * 99).div_ceil(100).max(1) - 1]
    }
}
