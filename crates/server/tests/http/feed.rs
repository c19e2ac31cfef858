//! The feed over HTTP: pages, and a stream that goes on where it broke off.

use serde_json::Value;

use crate::{
    client::{client, send},
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(
    feed,
    a_stream_tells_everything_once_and_goes_on_where_it_broke_off,
    what_is_told_of_tokens_is_for_admins_alone,
);

async fn feed(store: Store) {
    let server = Server::start(&store);
    let job = server.post("/api/v1/jobs", r#"{"kind":"mail","trace_id":"t-1"}"#).await.ok();
    let run = format!("/api/v1/internal/jobs/{}/run", job.at("/job/job_id"));
    server.post(&run, "").await.ok();
    let mut page = Page::new(&server, "feed", "Everything that happens, in order.");
    page.get("The beginning.", "/api/v1/events?limit=1").await;
    for contract in ["runs", "tasks", "jobs", "ingest"] {
        let path = format!("/api/v1/events?contract={contract}");
        page.get(&format!("In the words of contract {contract}."), &path).await;
    }
    page.get("Past the end.", "/api/v1/events?after=1000000").await;
    page.get("After what is no number.", "/api/v1/events?after=x").await;
    page.get("A limit that is too high.", "/api/v1/events?limit=1001").await;
    page.get("A contract that is not there.", "/api/v1/events?contract=none").await;
    let path = "/api/v1/events/stream?contract=none";
    page.get("The same of the stream.", path).await;
    page.get("A place that is no number.", "/api/v1/events/stream?after=x").await;
    page.finish();
}

async fn a_stream_tells_everything_once_and_goes_on_where_it_broke_off(store: Store) {
    let server = Server::start(&store);
    let enqueue = async || server.post("/api/v1/jobs", "{}").await.ok().at("/job/job_id");
    let (first, second) = (enqueue().await, enqueue().await);
    let mut reader = Reader::open(&server, None).await;
    let (number, job_id) = reader.next().await;
    assert_eq!(job_id, first);
    drop(reader);
    // What happened while nobody read is told, and so is what happens from now on.
    let third = enqueue().await;
    let mut reader = Reader::open(&server, Some(&number)).await;
    assert_eq!(reader.next().await.1, second);
    assert_eq!(reader.next().await.1, third);
    let fourth = enqueue().await;
    assert_eq!(reader.next().await.1, fourth);
    // A server that stops ends its streams.
    assert!(server.stop().success());
    assert!(reader.rest().await.is_none());
}

/// Tokens are told of in the audit, which is for admins. The feed is for all, and leaves that out: as pages, and as streams
/// of which several stand at one place and are read for together.
async fn what_is_told_of_tokens_is_for_admins_alone(store: Store) {
    let [admin, viewer] = ["admin", "viewer"].map(|role| store.token(role, role, "a"));
    let all = store.token("root", "viewer", "*");
    let server = Server::start_guarded(&store);
    let post = async |path: &str, body: &str| {
        let request = client().post(server.url(path)).bearer_auth(&admin).body(body.to_owned());
        send(request.header("content-type", "application/json")).await.expect("it answers").ok()
    };
    post("/api/v1/tokens", r#"{"principal": "canary", "role": "worker", "label": "canary"}"#).await;
    let last = post("/api/v1/jobs", "{}").await.at("/job/job_id");
    let page = async |token: &str| {
        let request = client().get(server.url("/api/v1/events")).bearer_auth(token);
        send(request).await.expect("it answers").ok().text
    };
    for (token, sees) in [(&admin, true), (&viewer, false), (&all, false)] {
        let told = page(token).await;
        assert!(told.contains(&last), "{told}");
        assert_eq!(told.contains("canary"), sees, "{told}");
        assert_eq!(told.contains(r#""about":"token""#), sees, "{told}");
    }
    // Whoever comes first, a page is read for those who may see the same.
    for order in [[(&admin, true), (&viewer, false)], [(&viewer, false), (&admin, true)]] {
        for (token, sees) in order {
            let told = told_until(&server, token, &last).await;
            assert_eq!(told.contains("canary"), sees, "{told}");
        }
        // The feed goes on, and both begin at another place of it.
        post("/api/v1/jobs", "{}").await;
    }
}

/// What a stream tells from its beginning, up to what is told of this job.
async fn told_until(server: &Server, token: &str, job: &str) -> String {
    let request = client().get(server.url("/api/v1/events/stream")).bearer_auth(token);
    let mut stream = request.send().await.expect("it answers");
    let mut told = String::new();
    while !told.contains(job) {
        let chunk = stream.chunk().await.expect("it goes on").expect("it goes on");
        told.push_str(std::str::from_utf8(&chunk).expect("it is text"));
    }
    told
}

/// Reads server-sent events.
struct Reader {
    response: reqwest::Response,
    text: String,
}

impl Reader {
    async fn open(server: &Server, last: Option<&str>) -> Self {
        let mut request = client().get(server.url("/api/v1/events/stream"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.expect("it answers");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The number of the next event, and its job.
    async fn next(&mut self) -> (String, String) {
        self.rest().await.expect("there is another event")
    }

    async fn rest(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name| event.lines().find_map(|line| line.strip_prefix(name));
                if let (Some(id), Some(data)) = (field("id: "), field("data: ")) {
                    let data: Value = serde_json::from_str(data).expect("it is JSON");
                    let job_id = data["payload"]["job_id"].as_str().expect("it is about a job");
                    return Some((id.to_owned(), job_id.to_owned()));
                }
                continue;
            }
            let bytes = self.response.chunk().await.ok()??;
            self.text.push_str(std::str::from_utf8(&bytes).expect("it is text"));
        }
    }
}
