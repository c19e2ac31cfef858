//! The request that creates a task.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    IdempotencyKey, IdempotencyScope, Kind, Payload, Queue, Refusal, RetryPolicy, Tag, TaskId,
    Timestamp, TraceId,
    job::Priority,
    ops::{Idempotency, NewJob, NewTask},
};

/// A task to create. What is left out is as usual; a field that we do not know is refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTask {
    /// The task; a fresh one, if it is not named.
    pub task_id: Option<TaskId>,
    /// How it comes to have its time: `at`. Any other word is refused, with the way to schedules.
    pub schedule_type: Option<String>,
    /// When it becomes ready; at once, if nothing is said.
    pub scheduled_at: Option<Timestamp>,
    /// How long one attempt may take.
    #[serde(rename = "timeout_ms", with = "crate::time::duration_ms_option", default)]
    pub timeout: Option<Duration>,
    /// How many times it is tried again.
    pub max_retries: Option<u32>,
    /// The name of this request: sent again, it creates nothing.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Where the key is unique.
    pub idempotency_scope: Option<IdempotencyScope>,
    /// What the handler gets, byte for byte.
    pub payload: Option<Box<RawValue>>,
    /// Which handler it needs.
    pub kind: Option<Kind>,
    /// Where it waits.
    pub queue: Option<Queue>,
    /// How urgent it is.
    pub priority: Option<Priority>,
    /// Labels for filters.
    #[serde(default)]
    pub tags: Vec<Tag>,
    /// The trace it belongs to.
    pub trace_id: Option<TraceId>,
    /// How long it waits between attempts.
    pub retry: Option<RetryPolicy>,
}

impl CreateTask {
    /// What to enqueue. The payload may have up to this many bytes.
    pub fn into_new_job(self, payload_max_bytes: usize) -> Result<NewJob, Refusal> {
        if self.schedule_type.is_some_and(|word| word != "at") {
            let why = "must be at: a task that repeats is made by POST /api/v1/schedules";
            return Err(Refusal::invalid("schedule_type", why));
        }
        let payload = self.payload.as_ref().map_or("null", |payload| payload.get());
        let payload = Payload::parse(payload, payload_max_bytes)?;
        let kind = self.kind.map_or_else(|| Kind::new(NewJob::DEFAULT_NAME), Ok)?;
        let usual = NewJob::new(kind, payload);
        let idempotency = match (self.idempotency_key, self.idempotency_scope) {
            (Some(key), scope) => {
                let scope = scope.unwrap_or_else(IdempotencyScope::default_scope);
                Idempotency::Key { scope, key }
            }
            (None, Some(_)) => {
                return Err(Refusal::invalid("idempotency_key", "is needed with a scope"));
            }
            (None, None) => Idempotency::OwnId,
        };
        Ok(NewJob {
            queue: self.queue.unwrap_or(usual.queue),
            priority: self.priority.unwrap_or(usual.priority),
            scheduled_at: self.scheduled_at,
            timeout: self.timeout,
            max_retries: self.max_retries.unwrap_or(usual.max_retries),
            retry: self.retry.unwrap_or(usual.retry),
            idempotency,
            task: self.task_id.map(|task_id| NewTask { task_id, may_rerun: false }),
            tags: self.tags,
            trace_id: self.trace_id,
            ..usual
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NewJob, Refusal> {
        serde_json::from_str::<CreateTask>(text).unwrap().into_new_job(1_000)
    }

    #[test]
    fn an_empty_request_creates_the_usual_job() {
        let new = parse("{}").unwrap();
        let kind = Kind::new(NewJob::DEFAULT_NAME).unwrap();
        assert_eq!(new, NewJob::new(kind, Payload::parse("null", 4).unwrap()));
    }

    #[test]
    fn a_scope_without_a_key_is_refused() {
        assert!(parse(r#"{"idempotency_scope": "tenant_a"}"#).is_err());
    }

    #[test]
    fn a_payload_passes_byte_for_byte() {
        for payload in [r#"{"b": 1.10,  "a":12345678901234567890.5e400}"#, "null", "\"\\u00e9\""] {
            let new = parse(&format!("{{\"payload\": {payload} }}")).unwrap();
            assert_eq!(new.payload.as_str(), payload);
        }
    }

    #[test]
    fn everything_that_can_be_said_is_heard() {
        let new = parse(
            r#"{"task_id": "t", "scheduled_at": "2026-02-25T12:00:00Z", "timeout_ms": 5,
                "max_retries": 0, "idempotency_key": "k", "idempotency_scope": "s", "kind": "mail",
                "queue": "slow", "priority": -3, "tags": ["a"], "trace_id": "trace",
                "retry": {"base_ms": 7}, "schedule_type": "at"}"#,
        )
        .unwrap();
        assert_eq!(new.task.unwrap().task_id.as_str(), "t");
        assert_eq!(new.scheduled_at.unwrap().to_string(), "2026-02-25T12:00:00Z");
        assert_eq!((new.timeout, new.max_retries), (Some(Duration::from_millis(5)), 0));
        let scope = IdempotencyScope::new("s").unwrap();
        let key = IdempotencyKey::new("k").unwrap();
        assert_eq!(new.idempotency, Idempotency::Key { scope, key });
        assert_eq!((new.kind.as_str(), new.queue.as_str()), ("mail", "slow"));
        assert_eq!((new.priority, new.tags.len()), (Priority(-3), 1));
        assert_eq!(new.trace_id.unwrap().as_str(), "trace");
        let retry = RetryPolicy { base: Duration::from_millis(7), ..RetryPolicy::default() };
        assert_eq!(new.retry, retry);
    }

    #[test]
    fn a_key_without_a_scope_has_the_default_scope() {
        let idempotency = parse(r#"{"idempotency_key": "k"}"#).unwrap().idempotency;
        let scope = IdempotencyScope::default_scope();
        let key = IdempotencyKey::new("k").unwrap();
        assert_eq!(idempotency, Idempotency::Key { scope, key });
    }

    #[test]
    fn a_task_that_repeats_is_sent_to_the_schedules() {
        for word in ["cron", "every", "weekly"] {
            let refusal = parse(&format!(r#"{{"schedule_type": "{word}"}}"#)).unwrap_err();
            assert_eq!(refusal.code(), "INVALID_INPUT");
            assert!(refusal.to_string().contains("/api/v1/schedules"), "{refusal}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in [
            r#"{"timeout": 5}"#,
            r#"{"task_id": ""}"#,
            r#"{"idempotency_key": ""}"#,
            r#"{"scheduled_at": "soon"}"#,
            r#"{"max_retries": -1}"#,
        ] {
            assert!(serde_json::from_str::<CreateTask>(text).is_err(), "{text} was taken");
        }
        assert!(parse(&format!("{{\"payload\": \"{}\"}}", "x".repeat(1_000))).is_err());
    }
}
