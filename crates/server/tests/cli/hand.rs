//! A worker of our own, that runs what it is told to and ends it as it is told to.

use serde_json::{Value, json};

use crate::serving::{Server, until};

/// What a worker holds.
pub(crate) struct Held {
    pub(crate) job_id: String,
    pub(crate) epoch: u64,
}

/// Claims and starts the next job of a queue.
pub(crate) fn take(server: &Server, queue: &str) -> Held {
    let body = json!({"worker_id": "w1", "queues": [queue], "max": 1, "start": true});
    let mut lease = Value::Null;
    until("a job to claim", || {
        let (status, answer) = server.call("POST", "/api/v1/claims", Some(&body));
        assert_eq!(status, 200, "{answer}");
        lease = answer["leases"][0].clone();
        !lease.is_null()
    });
    let job_id = lease["job"]["job_id"].as_str().expect("an id").to_owned();
    Held { job_id, epoch: lease["epoch"].as_u64().expect("a number") }
}

impl Held {
    /// Reports how it ended.
    pub(crate) fn settle(&self, server: &Server, outcome: &Value) {
        let mut entry = json!({"job_id": self.job_id, "epoch": self.epoch});
        let fields = entry.as_object_mut().expect("it is an object");
        fields.extend(outcome.as_object().expect("it is an object").clone());
        let body = json!({"worker_id": "w1", "leases": [entry]});
        let (status, answer) = server.call("POST", "/api/v1/leases/settle", Some(&body));
        assert!(status == 200 && answer["results"][0]["ok"] == true, "{answer}");
    }

    pub(crate) fn succeed(&self, server: &Server, result: &Value) {
        self.settle(server, &json!({"outcome": "succeeded", "result": result}));
    }

    /// It fails with this code and message, and may be tried again or not.
    pub(crate) fn fail(&self, server: &Server, code: &str, message: &str, retryable: bool) {
        let class = if retryable { "transient" } else { "permanent" };
        let error =
            json!({"code": code, "message": message, "class": class, "retryable": retryable});
        self.settle(server, &json!({"outcome": "failed", "error": error}));
    }
}

/// Makes a job that fails for good, and gives back its letter.
pub(crate) fn bury(server: &Server, job: &Value, code: &str, message: &str) -> String {
    let id = server.enqueue(job);
    let held = take(server, job["queue"].as_str().unwrap_or("default"));
    assert_eq!(held.job_id, id);
    held.fail(server, code, message, false);
    id.replace("job_", "dlq_")
}
