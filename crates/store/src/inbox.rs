//! The inbox: an enqueue of a user's own transaction as its row holds it, and how the log tells of one
//! that made no job.
//!
//! Fields are never renamed, and one that says nothing is left out: rows of older versions stay readable.
//! A field that we do not know makes a row unreadable, for nobody can say what leaving it out would change.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_kernel::{
    Actor, Answer, By, IdempotencyKey, IdempotencyScope, JobId, Kind, LimitKey, Payload, Queue,
    Refusal, RetryPolicy, Tag, TaskId, TenantId, Timestamp, TraceId, UniqueKey,
    job::{Priority, ScheduleType},
    ops::{Enqueue, Idempotency, NewJob, NewTask},
    time::as_ms,
};

use crate::{Reply, read::InboxOutcome};

/// How many rows of the inbox one transaction promotes.
pub(crate) const ROWS_MAX: usize = 500;

/// One transaction takes no further row once it has this much, whatever stands in the rows.
pub(crate) const BYTES_MAX: usize = 4 * 1024 * 1024;

/// An enqueue without what has a column of its own: job id, tenant and payload.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    by: Actor,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_trace_id: Option<TraceId>,
    /// 32 hexadecimal digits: few readers of JSON have numbers of 128 bits.
    random: String,
    kind: Kind,
    queue: Queue,
    priority: Priority,
    max_retries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule_type: Option<ScheduleType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule_to_start_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_interruptions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency: Option<GivenKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Task>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_key: Option<LimitKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<UniqueKey>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    tags: Vec<Tag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<TraceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<JobId>,
}

/// A key that the caller gave. The keys of runs and of slots have no scope of the caller's.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum GivenKey {
    Key { scope: IdempotencyScope, key: IdempotencyKey },
    Run { key: IdempotencyKey },
    Slot { key: IdempotencyKey },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    task_id: TaskId,
    may_rerun: bool,
}

impl Request {
    pub(crate) fn of(op: &Enqueue) -> Self {
        let new = &op.new;
        let usual = NewJob::MAX_INTERRUPTIONS_DEFAULT;
        Self {
            by: op.by.actor.clone(),
            by_trace_id: op.by.trace_id.clone(),
            random: format!("{:032x}", op.random),
            kind: new.kind.clone(),
            queue: new.queue.clone(),
            priority: new.priority,
            max_retries: new.max_retries,
            schedule_type: Some(new.schedule_type).filter(|it| *it != ScheduleType::At),
            scheduled_at: new.scheduled_at,
            timeout_ms: new.timeout.map(as_ms),
            heartbeat_timeout_ms: new.heartbeat_timeout.map(as_ms),
            schedule_to_start_ms: new.schedule_to_start.map(as_ms),
            deadline_at: new.deadline_at,
            retry: Some(new.retry).filter(|it| *it != RetryPolicy::default()),
            max_interruptions: Some(new.max_interruptions).filter(|it| *it != usual),
            idempotency: GivenKey::of(&new.idempotency),
            task: new
                .task
                .as_ref()
                .map(|task| Task { task_id: task.task_id.clone(), may_rerun: task.may_rerun }),
            limit_key: new.limit_key.clone(),
            unique_key: new.unique_key.clone(),
            tags: new.tags.clone(),
            trace_id: new.trace_id.clone(),
            parent: new.parent,
        }
    }

    /// The op as it was, with what stood in columns of its own. It fails with what is wrong.
    pub(crate) fn into_op(
        self,
        job_id: JobId,
        tenant: TenantId,
        payload: Payload,
    ) -> Result<Enqueue, String> {
        let random = &self.random;
        if random.len() != 32 || !random.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(format!("random is {random:?}, not 32 hexadecimal digits"));
        }
        let random = u128::from_str_radix(random, 16).map_err(|error| error.to_string())?;
        let new = NewJob {
            kind: self.kind,
            payload,
            queue: self.queue,
            priority: self.priority,
            schedule_type: self.schedule_type.unwrap_or(ScheduleType::At),
            scheduled_at: self.scheduled_at,
            timeout: self.timeout_ms.map(Duration::from_millis),
            heartbeat_timeout: self.heartbeat_timeout_ms.map(Duration::from_millis),
            schedule_to_start: self.schedule_to_start_ms.map(Duration::from_millis),
            deadline_at: self.deadline_at,
            max_retries: self.max_retries,
            retry: self.retry.unwrap_or_default(),
            max_interruptions: self.max_interruptions.unwrap_or(NewJob::MAX_INTERRUPTIONS_DEFAULT),
            idempotency: self.idempotency.map_or(Idempotency::OwnId, GivenKey::into_idempotency),
            task: self.task.map(|Task { task_id, may_rerun }| NewTask { task_id, may_rerun }),
            limit_key: self.limit_key,
            unique_key: self.unique_key,
            tags: self.tags,
            trace_id: self.trace_id,
            parent: self.parent,
        };
        let by = By { actor: self.by, trace_id: self.by_trace_id };
        Ok(Enqueue { job_id, tenant, new: Box::new(new), random, by })
    }
}

impl GivenKey {
    fn of(idempotency: &Idempotency) -> Option<Self> {
        match idempotency {
            Idempotency::OwnId => None,
            Idempotency::Key { scope, key } => {
                Some(GivenKey::Key { scope: scope.clone(), key: key.clone() })
            }
            Idempotency::Run { key } => Some(GivenKey::Run { key: key.clone() }),
            Idempotency::Slot { key } => Some(GivenKey::Slot { key: key.clone() }),
            // A row cannot say that a job is the server's own: read back, it is refused for its scope.
            Idempotency::Server { key } => {
                Some(GivenKey::Key { scope: IdempotencyScope::server(), key: key.clone() })
            }
        }
    }

    fn into_idempotency(self) -> Idempotency {
        match self {
            GivenKey::Key { scope, key } => Idempotency::Key { scope, key },
            GivenKey::Run { key } => Idempotency::Run { key },
            GivenKey::Slot { key } => Idempotency::Slot { key },
        }
    }
}

/// A line of the log that tells what became of an enqueue that made no job.
///
/// It is an object, where a line about a job is an array: it is part of no job's history.
#[derive(Serialize)]
pub(crate) struct ResultLine<'a> {
    pub(crate) inbox: InboxOutcome,
    /// The id that the user was given.
    pub(crate) job_id: JobId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) existing: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<&'a str>,
    pub(crate) actor: &'a Actor,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<&'a TraceId>,
}

/// How an enqueue ended without a job.
pub(crate) struct Without {
    pub(crate) outcome: InboxOutcome,
    pub(crate) existing: Option<JobId>,
    pub(crate) refusal: Option<(&'static str, String)>,
}

impl Without {
    /// None, if there is a new job.
    pub(crate) fn of(reply: &Result<Reply, Refusal>) -> Option<Self> {
        let refusal = match reply {
            Ok(Reply::Answer(Answer { recorded: true, job_id, .. }, _)) => {
                let (outcome, existing) = (InboxOutcome::Hit, Some(*job_id));
                return Some(Self { outcome, existing, refusal: None });
            }
            Ok(_) => return None,
            Err(refusal) => refusal,
        };
        let (outcome, existing) = match refusal {
            Refusal::IdempotencyConflict { job_id, .. } => (InboxOutcome::Conflict, Some(*job_id)),
            Refusal::JobExists { job_id } | Refusal::TaskActive { job_id, .. } => {
                (InboxOutcome::Refused, Some(*job_id))
            }
            _ => (InboxOutcome::Refused, None),
        };
        Some(Self { outcome, existing, refusal: Some((refusal.code(), refusal.to_string())) })
    }

    /// The line that tells it.
    pub(crate) fn line(&self, op: &Enqueue) -> String {
        let line = ResultLine {
            inbox: self.outcome,
            job_id: op.job_id,
            existing: self.existing,
            code: self.refusal.as_ref().map(|(code, _)| *code),
            why: self.refusal.as_ref().map(|(_, why)| why.as_str()),
            actor: &op.by.actor,
            trace_id: op.by.trace_id.as_ref(),
        };
        serde_json::to_string(&line).expect("a line is plain data")
    }
}

/// The op of a row of the inbox, or what is wrong with it. A column may be unreadable itself.
pub(crate) fn read_op(
    job_id: JobId,
    tenant: Result<&str, String>,
    request: Result<&str, String>,
    payload: Result<&str, String>,
) -> Result<Enqueue, String> {
    let said = |field: &str, why: String| format!("{field}: {why}");
    let tenant = tenant.and_then(|it| TenantId::new(it).map_err(|why| why.to_string()));
    let tenant = tenant.map_err(|why| said("tenant", why))?;
    let request = request.and_then(|it| serde_json::from_str(it).map_err(|why| why.to_string()));
    let request: Request = request.map_err(|why| said("op", why))?;
    let payload =
        payload.and_then(|it| Payload::parse(it, usize::MAX).map_err(|why| why.to_string()));
    let payload = payload.map_err(|why| said("payload", why))?;
    request.into_op(job_id, tenant, payload).map_err(|why| said("op", why))
}

/// Does a line of the log tell of the inbox, or is it a note? It is in no job's history then, and goes by its age.
pub(crate) fn is_line(line: &str) -> bool {
    line.starts_with('{')
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};
    use windlass_kernel::Principal;

    use super::*;

    fn text<T: std::str::FromStr<Err = windlass_kernel::Refusal> + std::fmt::Debug>()
    -> impl Strategy<Value = T> {
        "[a-zA-Zäß€ \"\\\\{}]{1,12}".prop_map(|text| text.parse().expect("it is a name"))
    }

    fn instant() -> impl Strategy<Value = Timestamp> {
        (0..Timestamp::MAX.as_micros()).prop_map(Timestamp::from_micros)
    }

    fn duration() -> impl Strategy<Value = Duration> {
        any::<u32>().prop_map(|ms| Duration::from_millis(u64::from(ms)))
    }

    fn idempotency() -> impl Strategy<Value = Idempotency> {
        prop_oneof![
            Just(Idempotency::OwnId),
            (text(), text()).prop_map(|(scope, key)| Idempotency::Key { scope, key }),
            text().prop_map(|key| Idempotency::Run { key }),
            text().prop_map(|key| Idempotency::Slot { key }),
        ]
    }

    fn actor() -> impl Strategy<Value = Actor> {
        prop_oneof![
            Just(Actor::Scheduler),
            Just(Actor::Recovery),
            text().prop_map(Actor::Worker),
            text::<Principal>().prop_map(Actor::User),
        ]
    }

    prop_compose! {
        fn times()(
            scheduled_at in option::of(instant()),
            timeout in option::of(duration()),
            heartbeat_timeout in option::of(duration()),
            schedule_to_start in option::of(duration()),
            deadline_at in option::of(instant()),
            retry in option::of((duration(), duration())),
            schedule_type in prop::sample::select(
                &[ScheduleType::At, ScheduleType::Cron, ScheduleType::Every][..]),
        ) -> NewJob {
            let payload = Payload::parse("null", 4).expect("it is JSON");
            let kind = Kind::new("x").expect("it is a name");
            let retry = retry.map(|(base, max_backoff)| RetryPolicy { base, max_backoff });
            NewJob {
                scheduled_at, timeout, heartbeat_timeout, schedule_to_start, deadline_at,
                retry: retry.unwrap_or_default(), schedule_type, ..NewJob::new(kind, payload)
            }
        }
    }

    prop_compose! {
        fn new_job()(
            times in times(),
            kind in text(),
            queue in text(),
            priority in any::<i16>(),
            max_retries in any::<u32>(),
            max_interruptions in any::<u32>(),
            idempotency in idempotency(),
            task in option::of((text(), any::<bool>())),
            tags in vec(text(), 0..4),
            trace_id in option::of(text()),
            parent in option::of(any::<u128>()),
            limit_key in option::of(text()),
            unique_key in option::of(text()),
        ) -> NewJob {
            NewJob {
                kind, queue, priority: Priority(priority), max_retries, max_interruptions,
                idempotency, tags, trace_id, limit_key, unique_key,
                task: task.map(|(task_id, may_rerun)| NewTask { task_id, may_rerun }),
                parent: parent.map(JobId::from_u128),
                ..times
            }
        }
    }

    proptest! {
        #[test]
        fn an_enqueue_comes_back_as_it_was(
            new in new_job(),
            (random, job_id) in any::<(u128, u128)>(),
            (actor, trace_id) in (actor(), option::of(text())),
        ) {
            let by = By { actor, trace_id };
            let tenant = TenantId::new("acme").expect("it is a name");
            let payload = new.payload.clone();
            let job_id = JobId::from_u128(job_id);
            let op = Enqueue { job_id, tenant: tenant.clone(), new: Box::new(new), random, by };
            let row = serde_json::to_string(&Request::of(&op)).expect("it is plain data");
            let read: Request = serde_json::from_str(&row).expect("it is what was written");
            prop_assert_eq!(read.into_op(job_id, tenant, payload), Ok(op));
        }
    }

    /// A row as an earlier version wrote it. It is never changed: users have such rows.
    const PLAIN: &str = r#"{"by":"user:ann","random":"0000000000000000000000000000002a","kind":"mail","queue":"default","priority":0,"max_retries":3}"#;

    #[test]
    fn the_usual_row_is_small_and_its_form_is_fixed() {
        let payload = Payload::parse("null", 4).expect("it is JSON");
        let new = Box::new(NewJob::new(Kind::new("mail").expect("a name"), payload.clone()));
        let by = Actor::User(Principal::new("ann").expect("a name")).into();
        let tenant = TenantId::new("acme").expect("a name");
        let job_id = JobId::from_u128(7);
        let op = Enqueue { job_id, tenant: tenant.clone(), new, random: 42, by };
        assert_eq!(serde_json::to_string(&Request::of(&op)).expect("plain data"), PLAIN);
        let read: Request = serde_json::from_str(PLAIN).expect("it is a row");
        assert_eq!(read.into_op(job_id, tenant, payload), Ok(op));
    }

    #[test]
    fn what_is_not_understood_is_not_read() {
        for (from, to) in [
            ("\"max_retries\":3", "\"max_retries\":3,\"colour\":\"red\""),
            ("\"max_retries\":3", "\"max_retries\":-3"),
            ("\"kind\":\"mail\",", ""),
            ("\"kind\":\"mail\"", "\"kind\":\"\""),
            ("user:ann", "ann"),
        ] {
            let row = PLAIN.replace(from, to);
            assert!(serde_json::from_str::<Request>(&row).is_err(), "{row} was read");
        }
        let row = PLAIN.replace("000000000000000000000000000000", "+00000000000000000000000000000");
        let read: Request = serde_json::from_str(&row).expect("its fields are there");
        let payload = Payload::parse("null", 4).expect("it is JSON");
        let tenant = TenantId::new("acme").expect("a name");
        assert!(read.into_op(JobId::from_u128(1), tenant, payload).is_err());
    }
}
