//! A history that somebody changed behind our back is found, and the first event that does not fit is named.

use windlass_testkit::postgres::Cluster;

use crate::{
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(verify);

/// What somebody does to the log, and what is said of it.
const CHANGES: &[(&str, &str)] = &[
    ("Somebody else is said to have asked for it.", "replace(events, '\"user:', '\"user:not-')"),
    ("Its end is said to be another.", "replace(events, '\"succeeded\"', '\"dispatched\"')"),
    ("An event has another number.", "replace(events, ',3,\"started\"', ',4,\"started\"')"),
    ("A line cannot be read.", "replace(events, '\"started\"', '\"begun\"')"),
];

async fn verify(store: Store) {
    let server = Server::start(&store);
    let made = server.post("/api/v1/jobs", r#"{"kind":"mail"}"#).await.ok();
    let id = made.at("/job/job_id");
    let path = format!("/api/v1/jobs/{id}/verify");
    let mut page = Page::new(&server, "verify", "Is a history the one that was written?");
    page.get("It has begun, and it is.", &path).await;
    let claim = r#"{"worker_id":"w1","start":true}"#;
    let claimed = server.post("/api/v1/claims", claim).await.ok();
    let epoch = claimed.at("/leases/0/epoch");
    let settle = format!(
        r#"{{"worker_id":"w1","leases":[{{"job_id":"{id}","epoch":{epoch},"outcome":"succeeded"}}]}}"#
    );
    server.post("/api/v1/leases/settle", &settle).await.ok();
    page.get("It came to its end, and it is.", &path).await;
    for (about, change) in CHANGES {
        store.sql("CREATE TABLE kept AS SELECT * FROM log");
        store.sql(&format!("UPDATE log SET events = {change}"));
        page.get(about, &path).await;
        store.sql("DELETE FROM log; INSERT INTO log SELECT * FROM kept; DROP TABLE kept");
    }
    page.get("It was put right again.", &path).await;
    store.sql("DELETE FROM log");
    page.get("The log is gone.", &path).await;
    page.get("One that is not there.", "/api/v1/jobs/job_00000000000000000000000007/verify").await;
    page.finish();
}

impl Store {
    /// Does something to the database behind the server's back.
    fn sql(&self, sql: &str) {
        let Some(file) = self.url().strip_prefix("sqlite:") else {
            let schema = self.url().rsplit_once("schema=").expect("it names a schema").1;
            Cluster::shared().psql(&format!("SET search_path = {schema}; {sql}"));
            return;
        };
        let file = rusqlite::Connection::open(file).expect("the file can be opened");
        file.busy_timeout(std::time::Duration::from_secs(10)).expect("it can wait");
        file.execute_batch(sql).expect("it can be done");
    }
}
