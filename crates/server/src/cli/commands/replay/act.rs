//! Lives through a replay as a worker does, and looks at what is told of it.

use axum::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    script::{REFUSED, Script},
    told::Told,
};
use crate::cli::{
    api::{Api, path, with_query},
    trouble::Trouble,
};

/// What is read of a lease.
#[derive(Deserialize)]
struct Lease {
    epoch: u64,
    execution_key: String,
}

/// What is read of a job in the words of the contract.
#[derive(Deserialize)]
struct Job {
    trace_id: String,
    status: String,
    retry_count: u64,
    dlq_id: Option<String>,
}

pub(super) async fn live(api: &Api, script: &Script) -> Result<Told, Trouble> {
    let trace = script.name.to_ascii_lowercase();
    let body = json!({"kind": "replay", "trace_id": trace}).to_string();
    let made: Value = api.post(&path(&["jobs"]), Some(body)).await?.read()?;
    let id = made["job"]["job_id"].as_str().unwrap_or_default().to_owned();
    let (mut failures, mut refused_with, mut epoch) = (Vec::new(), Vec::new(), 0);
    let tries = script.fails + u32::from(script.succeeds);
    for retry_count in 0..tries {
        let lease = claim(api).await?;
        epoch = lease.epoch;
        let key = format!("{id}+{retry_count}");
        if lease.execution_key != key {
            failures.push(format!("the execution was {}, and must be {key}", lease.execution_key));
        }
        settle(api, &id, lease.epoch, retry_count < script.fails).await?;
        if retry_count + 1 < tries {
            // It is due a little later. That time is not waited for.
            api.post(&path(&["jobs", &id, "retry"]), Some("{}".to_owned())).await?;
        }
    }
    let before = seen(api, &id).await?;
    if script.is_written_again {
        refused_with = write_again(api, &id, epoch, &mut failures).await?;
        let after = seen(api, &id).await?;
        if after != before {
            failures.push(format!("its end was changed: {}", after.join(" -> ")));
        }
    }
    Ok(Told { refused_with, ..judge(api, script, id, failures).await? })
}

async fn claim(api: &Api) -> Result<Lease, Trouble> {
    let body =
        json!({"worker_id": "replay", "kinds": ["replay"], "start": true, "wait_ms": 10_000});
    let claimed: Value = api.post(&path(&["claims"]), Some(body.to_string())).await?.read()?;
    let lease = claimed["leases"].get(0).cloned().unwrap_or_default();
    serde_json::from_value(lease).map_err(|_| Trouble::failed("there was nothing to claim"))
}

async fn settle(api: &Api, id: &str, epoch: u64, fails: bool) -> Result<(), Trouble> {
    let mut lease = json!({"job_id": id, "epoch": epoch, "outcome": "succeeded"});
    if fails {
        lease["outcome"] = json!("failed");
        lease["error"] = json!({"code": "UPSTREAM_BUSY", "class": "transient", "retryable": true});
    }
    let body = json!({"worker_id": "replay", "leases": [lease]}).to_string();
    let settled: Value = api.post(&path(&["leases", "settle"]), Some(body)).await?.read()?;
    match settled["results"][0]["ok"] == true {
        true => Ok(()),
        false => Err(Trouble::failed(format!("{id} could not be settled: {settled}"))),
    }
}

/// Whatever would change an end must be refused, each way it may be tried: by the worker that ended the job, by the call
/// for replays, and by a person. It gives back the codes.
async fn write_again(
    api: &Api,
    id: &str,
    epoch: u64,
    failures: &mut Vec<String>,
) -> Result<Vec<String>, Trouble> {
    let mut codes: Vec<String> = Vec::new();
    let run = path(&["internal", "jobs", id, "run"]);
    let contract = [("contract", Some("jobs".to_owned()))];
    let tries = [
        ("another success", run.clone()),
        ("a failure", format!("{run}?force_fail=true")),
        ("a retry", format!("{run}?transient_fail=true")),
        ("a cancel", with_query(&path(&["jobs", id, "cancel"]), &contract)),
    ];
    for outcome in ["failed", "cancelled"] {
        let mut lease = json!({"job_id": id, "epoch": epoch, "outcome": outcome});
        if outcome == "failed" {
            lease["error"] = json!({"code": "TOO_LATE", "class": "permanent", "retryable": false});
        }
        let body = json!({"worker_id": "replay", "leases": [lease]}).to_string();
        let path = with_query(&path(&["leases", "settle"]), &contract);
        let settled: Value = api.post(&path, Some(body)).await?.read()?;
        let code = settled["results"][0]["code"].as_str().unwrap_or("nothing").to_owned();
        if code != REFUSED {
            failures
                .push(format!("the worker's {outcome} was answered with {code}, not {REFUSED}"));
        }
        codes.push(code);
    }
    for (what, path) in tries {
        let (status, answer) = api.answer(Method::POST, &path, Some("{}".to_owned())).await?;
        let code = answer.read::<Value>()?["code"].as_str().unwrap_or("nothing").to_owned();
        if (status, code.as_str()) != (409, REFUSED) {
            failures.push(format!("{what} was answered with {status} {code}, not 409 {REFUSED}"));
        }
        codes.push(code);
    }
    codes.sort();
    codes.dedup();
    Ok(codes)
}

/// The states of a job in the words of the contract, in their order.
async fn seen(api: &Api, id: &str) -> Result<Vec<String>, Trouble> {
    let query = [("contract", Some("jobs".to_owned()))];
    let page = api.page(&with_query(&path(&["jobs", id, "events"]), &query)).await?;
    let events: Vec<Value> = page.read()?;
    let word = |event: &Value| event["payload"]["status"].as_str().unwrap_or("?").to_owned();
    Ok(events.iter().map(word).collect())
}

async fn judge(
    api: &Api,
    script: &Script,
    id: String,
    mut failures: Vec<String>,
) -> Result<Told, Trouble> {
    let query = [("contract", Some("jobs".to_owned()))];
    let job: Job = api.get(&with_query(&path(&["jobs", &id]), &query)).await?.read()?;
    let path_seen = seen(api, &id).await?;
    let mut check = |what: &str, found: String, wanted: String| {
        if found != wanted {
            failures.push(format!("{what} was {found}, and must be {wanted}"));
        }
    };
    check("status_transition", path_seen.join(" -> "), script.path.join(" -> "));
    check("retry_count", job.retry_count.to_string(), script.retry_count.to_string());
    check("trace_id", job.trace_id.clone(), script.name.to_ascii_lowercase());
    check("status", job.status.clone(), (*script.path.last().unwrap_or(&"")).to_owned());
    let letter_of = match &job.dlq_id {
        None => None,
        Some(letter) => {
            let letter: Value = api.get(&path(&["dlq", letter])).await?.read()?;
            letter["job_id"].as_str().map(str::to_owned)
        }
    };
    let wanted = (!script.succeeds).then(|| id.clone());
    let name = |job: Option<String>| job.unwrap_or_else(|| "nobody's".to_owned());
    check("its dead letter", name(letter_of), name(wanted));
    Ok(Told {
        replay: script.name.to_owned(),
        about: script.about,
        passed: failures.is_empty(),
        trace_id: job.trace_id,
        job_id: id,
        retry_count: job.retry_count,
        status_transition: path_seen,
        status: job.status,
        dlq_id: job.dlq_id,
        refused_with: Vec::new(),
        failures,
    })
}
