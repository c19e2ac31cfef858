//! Very many queues on PostgreSQL: what tells of queues is linear in their number, and answers in time.
//!
//! With `WINDLASS_DEEP` there are ten times as many. The times are printed, and are no part of the test.

use std::time::{Duration, Instant};

use serde_json::json;
use windlass::{Config, Engine, JobRequest};
use windlass_store::read::Scope;
use windlass_testkit::postgres::Cluster;

use crate::{
    client::Answer,
    server::{Server, Store, block_on},
};

fn count() -> usize {
    if std::env::var_os("WINDLASS_DEEP").is_some() { 20_000 } else { 2_000 }
}

/// Rows that were read of the tables of a schema, by whatever way, as far as the server has counted them.
fn rows_read(schema: &str) -> u64 {
    let sql = format!(
        "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_user_tables
         WHERE schemaname = '{schema}'"
    );
    Cluster::shared().psql(&sql).parse().expect("it is a number")
}

/// The address of a store in this schema, whose connections have its name.
fn url(schema: &str) -> String {
    let port = Cluster::shared().port();
    format!(
        "postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}&application_name={schema}"
    )
}

/// Waits until nobody is connected on behalf of this schema: what a connection read is counted when it ends.
async fn until_nobody_is_there(schema: &str) {
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'");
    while Cluster::shared().psql(&sql) != "0" {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn very_many_queues_are_told_in_time() {
    block_on(async {
        let store = Store::at(&url("many_queues"));
        let server = Server::start_with_config(&store, "[alerts]\nqueue_age_ms = 1\n");
        let count = count();
        for first in (0..count).step_by(1_000) {
            let name = |number| json!({ "queue": format!("q{number:05}") });
            let jobs: Vec<_> = (first..first + 1_000).map(name).collect();
            server.post("/api/v1/jobs/batch", &json!({ "jobs": jobs }).to_string()).await.ok();
        }
        // Alerts are looked for now and then: here after all queues are there.
        let more = format!("and {} more queues of tenant default", count - 20);
        loop {
            let alerts = server.get("/api/v1/alerts").await.ok().text;
            assert!(!alerts.contains("alerts_incomplete"), "{alerts}");
            assert!(!alerts.contains("store_unavailable"), "{alerts}");
            if alerts.contains(&more) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let ask = async |path: &str| -> Answer {
            let began = Instant::now();
            let answer = server.get(path).await.ok();
            println!(
                "{path} of {count} queues: {:?}, {} bytes",
                began.elapsed(),
                answer.text.len()
            );
            answer
        };
        let (mut listed, mut cursor) = (0, String::new());
        loop {
            let page = ask(&format!("/api/v1/queues?limit=1000&cursor={cursor}")).await.json();
            listed += page["items"].as_array().expect("a list").len();
            match page["next"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(listed, count);
        let figures = ask("/metrics").await.text;
        assert!(figures.contains("windlass_store_up 1\n"), "{figures}");
        assert_eq!(figures.matches("\nwindlass_oldest_ready_seconds{").count(), count);
        let alerts = ask("/api/v1/alerts").await.json();
        assert_eq!(alerts["items"].as_array().map(Vec::len), Some(21));
        let overview = ask("/api/v1/overview").await.json();
        assert_eq!(overview["queues"].as_array().map(Vec::len), Some(1_000));
        assert_eq!(overview["queues_left_out"], count - 1_000);
        assert!(server.stop().success());
    });
}

/// What is asked reads each row a few times, however many there are: a plan that compares all with all reads their square.
#[test]
fn each_row_is_read_a_few_times_however_many_queues_there_are() {
    const TIMES: u64 = 5;
    block_on(async {
        let (count, schema) = (count(), "linear_queues");
        let url = url(schema);
        let open = async || {
            let config = Config { timers: None, ..Config::default() };
            Engine::open_with(&url, &config).await.expect("the store can be opened")
        };
        let engine = open().await;
        let request = |number: usize| JobRequest::of("k", &()).queue(&format!("q{number:05}"));
        for first in (0..count).step_by(1_000) {
            let made = engine.enqueue_all((first..first + 1_000).map(request)).await;
            assert!(made.iter().all(Result::is_ok));
        }
        engine.close().await;
        // What the planner knows of the tables is of before they were filled, or of now: both have to do.
        let analyze = format!("ANALYZE {schema}.jobs, {schema}.job_groups");
        for prepares in ["SELECT 1", &analyze] {
            until_nobody_is_there(schema).await;
            Cluster::shared().psql(prepares);
            let before = rows_read(schema);
            let engine = open().await;
            for _ in 0..TIMES {
                let counts = engine.store().counts(&Scope::Every).await.expect("it answers");
                let oldest = engine.store().oldest_ready(&Scope::Every).await.expect("it answers");
                assert_eq!((counts.len(), oldest.len()), (count, count));
            }
            engine.close().await;
            until_nobody_is_there(schema).await;
            let read = rows_read(schema) - before;
            // Each question reads jobs and their groups; to open a store reads a few more.
            let most = (TIMES * 2 * 3 + 10) * count as u64;
            println!("{read} rows were read, {most} may be");
            assert!(read >= TIMES * 2 * count as u64, "{read} rows were counted");
            assert!(read <= most, "{read} rows were read to tell {count} queues {TIMES} times");
        }
    });
}
