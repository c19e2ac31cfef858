//! Durable jobs over HTTP: steps of a worker elsewhere, signals, messages, and what people state.

use crate::{
    client::Answer,
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(steps, barrier, signals, messages, resolved);

/// Makes a job of this queue, claims and starts it; gives its path and its lease.
async fn run(server: &Server, queue: &str) -> (String, Answer) {
    let body = format!(r#"{{"kind":"order","queue":"{queue}"}}"#);
    let id = server.post("/api/v1/jobs", &body).await.ok().at("/job/job_id");
    let claimed = claim(server, "w1", queue).await;
    (format!("/api/v1/jobs/{id}"), claimed)
}

async fn claim(server: &Server, worker: &str, queue: &str) -> Answer {
    let body = format!(r#"{{"worker_id":"{worker}","queues":["{queue}"],"start":true}}"#);
    server.post("/api/v1/claims", &body).await.ok()
}

fn with_epoch(claimed: &Answer, rest: &str) -> String {
    let epoch = claimed.at("/leases/0/epoch");
    format!(r#"{{"worker_id":"w1","epoch":{epoch},{rest}}}"#)
}

async fn steps(store: Store) {
    let server = Server::start(&store);
    let (path, claimed) = run(&server, "steps").await;
    let mut page = Page::new(&server, "steps", "A worker elsewhere runs the steps of a job.");
    let begin = r#""begin":{"step_key":"charge","mode":"once","call_id":1,"input":{"cents":7}}"#;
    let begin = with_epoch(&claimed, begin);
    let (begins, commits) = (format!("{path}/steps/begin"), format!("{path}/steps/commit"));
    page.post("It begins a step: run it.", &begins, &begin).await;
    page.post("The same call again: run it.", &begins, &begin).await;
    let other = begin.replace(r#""call_id":1"#, r#""call_id":2"#);
    page.post("Another call: wait for the first.", &begins, &other).await;
    let changed = begin.replace("7", "8");
    page.post("The code has changed.", &begins, &changed).await;
    let commit = r#""step_key":"charge","mode":"once","input":{"cents":7},"output":{"id":"ch_1"},
        "begin":{"step_key":"mail","mode":"once","call_id":3}"#;
    let commit = with_epoch(&claimed, commit);
    page.post("What came of it is recorded, and the next one begins.", &commits, &commit).await;
    page.post("The same again is answered from the record.", &commits, &commit).await;
    page.post("It is on record: do not run it.", &begins, &begin).await;
    let another = commit.replace("ch_1", "ch_2");
    page.post("Another result is refused.", &commits, &another).await;
    let failed =
        r#""step_key":"mail","mode":"once","error":{"code":"BOUNCED","message":"no such box"}"#;
    page.post("One that fails for good.", &commits, &with_epoch(&claimed, failed)).await;
    let pure = r#""step_key":"price","mode":"pure","output":12"#;
    page.post("One that needs no begin.", &commits, &with_epoch(&claimed, pure)).await;
    let once = r#""step_key":"refund","mode":"once","output":12"#;
    page.post("One that does.", &commits, &with_epoch(&claimed, once)).await;
    let state = r#""state":{"page":3}"#;
    let checkpoint = format!("{path}/checkpoint");
    page.post("It saves its state.", &checkpoint, &with_epoch(&claimed, state)).await;
    page.get("The ledger.", &format!("{path}/steps")).await;
    page.get("One that is not there.", "/api/v1/jobs/job_00000000000000000000000007/steps").await;
    page.finish();
}

async fn barrier(store: Store) {
    let server = Server::start(&store);
    let (path, claimed) = run(&server, "barrier").await;
    let begins = format!("{path}/steps/begin");
    let begin = r#""begin":{"step_key":"charge","mode":"once","call_id":1}"#;
    server.post(&begins, &with_epoch(&claimed, begin)).await.ok();
    // Its worker lets go of it in the middle of the step.
    let id = path.rsplit('/').next().expect("a path has parts").to_owned();
    let lease = format!(r#"{{"job_id":"{id}","epoch":{}}}"#, claimed.at("/leases/0/epoch"));
    let body = format!(r#"{{"worker_id":"w1","leases":[{lease}]}}"#);
    server.post("/api/v1/leases/release", &body).await.ok();
    let second = claim(&server, "w1", "barrier").await;
    let mut page = Page::new(&server, "barrier", "A step that a worker which is gone had begun.");
    page.post("Nobody knows what became of it.", &begins, &with_epoch(&second, begin)).await;
    let commits = format!("{path}/steps/commit");
    let blindly = r#""step_key":"charge","mode":"once","output":1"#;
    page.post("Nobody runs it blindly.", &commits, &with_epoch(&second, blindly)).await;
    let late = r#""step_key":"charge","output":{"id":"ch_1"}"#;
    let effects = format!("{path}/effects");
    page.post("Who did not begin it cannot say.", &effects, &with_epoch(&second, late)).await;
    let by_first = with_epoch(&claimed, late);
    page.post("The worker that began it says what happened.", &effects, &by_first).await;
    page.get("It is unknown until somebody records it.", &format!("{path}/steps")).await;
    let asked = r#""step_key":"charge","mode":"once","output":{"id":"ch_1"},"reconciled":true"#;
    page.post("The other side was asked.", &commits, &with_epoch(&second, asked)).await;
    page.finish();
}

async fn signals(store: Store) {
    let server = Server::start(&store);
    let (path, claimed) = run(&server, "signals").await;
    let signals = format!("{path}/signals");
    let mut page = Page::new(&server, "signals", "A job is signalled.");
    let early = r#"{"correlation_key":"early","payload":{"by":"card"}}"#;
    page.post("Nobody waits for it yet: it is kept.", &signals, early).await;
    page.post("The same again.", &signals, early).await;
    let other = r#"{"correlation_key":"early","payload":{"by":"cash"}}"#;
    page.post("Another payload under the same key.", &signals, other).await;
    let expected = r#"{"correlation_key":"paid","expect_waiting":true}"#;
    page.post("It is expected to be waited for, and is not.", &signals, expected).await;
    page.post("Without a key.", &signals, "{}").await;
    let nobody = "/api/v1/jobs/job_00000000000000000000000007/signals";
    page.post("For a job that is not there.", nobody, early).await;
    let waits = format!("{path}/waits");
    let wait = with_epoch(&claimed, r#""correlation_key":"paid""#);
    page.post("The job waits.", &waits, &wait).await;
    page.post("For something else: it is kept.", &signals, r#"{"correlation_key":"late"}"#).await;
    let id = path.rsplit('/').next().expect("a path has parts");
    let short = format!("/api/jobs/{id}/signal");
    let paid = r#"{"correlation_key":"paid","payload":7}"#;
    page.post("What it waits for comes, under the short path.", &short, paid).await;
    page.post("The same again, though the job waits no more.", &signals, paid).await;
    let no = r#"{"correlation_key":"no","error":{"code":"DECLINED","message":"not enough"}}"#;
    page.post("A no instead of a payload.", &signals, no).await;
    page.get("What came.", &format!("{path}/steps")).await;
    server.post(&format!("{path}/cancel"), r#"{"force":true}"#).await.ok();
    page.post("After its end, the same again.", &signals, paid).await;
    let new = r#"{"correlation_key":"new"}"#;
    page.post("After its end, another one.", &signals, new).await;
    page.finish();
}

async fn messages(store: Store) {
    let server = Server::start(&store);
    let (path, _) = run(&server, "messages").await;
    let messages = format!("{path}/messages");
    let mut page = Page::new(&server, "messages", "A job is sent messages.");
    let first = r#"{"channel":"chat","message_id":"m1","payload":"hello"}"#;
    page.post("The first.", &messages, first).await;
    page.post("The same again.", &messages, first).await;
    let second = r#"{"channel":"chat","message_id":"m2","payload":"hello"}"#;
    page.post("The second.", &messages, second).await;
    let other = r#"{"channel":"chat","message_id":"m1","payload":"bye"}"#;
    page.post("Another one under the same id.", &messages, other).await;
    page.get("What came.", &format!("{path}/steps")).await;
    page.finish();
}

async fn resolved(store: Store) {
    let server = Server::start(&store);
    let (path, claimed) = run(&server, "resolved").await;
    let wait = with_epoch(&claimed, r#""correlation_key":"paid""#);
    server.post(&format!("{path}/waits"), &wait).await.ok();
    let resolve = format!("{path}/resolve");
    let mut page = Page::new(&server, "resolve", "A person states what became of a step.");
    let reason = r#"{"reason":"the bank says so"}"#;
    page.post("The job does not wait for a person.", &resolve, reason).await;
    page.post("No reason.", &resolve, r#"{"reason":""}"#).await;
    let both = r#"{"step_key":"charge","output":1,"not_done":true,"reason":"both"}"#;
    page.post("It cannot have happened and not.", &resolve, both).await;
    page.post("Of which step?", &resolve, r#"{"output":1,"reason":"it happened"}"#).await;
    let (path, claimed) = run(&server, "asks").await;
    let begin = r#""begin":{"step_key":"charge","mode":"once","call_id":1}"#;
    server.post(&format!("{path}/steps/begin"), &with_epoch(&claimed, begin)).await.ok();
    let asks =
        r#""operator":{"code":"EFFECT_UNKNOWN","message":"was it charged?","step_key":"charge"}"#;
    server.post(&format!("{path}/waits"), &with_epoch(&claimed, asks)).await.ok();
    let resolve = format!("{path}/resolve");
    let other = r#"{"step_key":"mail","not_done":true,"reason":"wrong step"}"#;
    page.post("It asks about another step.", &resolve, other).await;
    let stated = r#"{"step_key":"charge","output":{"id":"ch_1"},"reason":"the bank says so"}"#;
    page.post("It happened: the job goes on.", &resolve, stated).await;
    page.get("It is stated, by whom and why stands in the history.", &format!("{path}/steps"))
        .await;
    page.finish();
}
