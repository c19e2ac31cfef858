//! Problem documents, and what they mean here: a refusal of the rules, or an error of the store.

use serde::Deserialize;
use windlass_kernel::{JobId, LetterState, OpKind, Refusal, RuleName, State, TaskId, Timestamp};
use windlass_store::Error;

/// What a server says when it cannot do what it is asked. Also one entry of a batch says it so.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) detail: String,
    pub(super) job_id: Option<JobId>,
}

impl Problem {
    /// The document of an answer. What stands between may answer without one.
    pub(super) fn read(status: u16, text: &[u8]) -> Self {
        let problem = serde_json::from_slice::<Self>(text).unwrap_or_default();
        let detail = if problem.code.is_empty() {
            format!("the server answered with status {status}")
        } else {
            problem.detail
        };
        Self { status, detail, ..problem }
    }

    /// Is what was asked for not there?
    pub(super) fn is_not_found(&self) -> bool {
        self.code == "NOT_FOUND"
    }

    /// What it means for a write: the rules say no, or nobody could be asked.
    pub(super) fn into_refusal(self) -> Result<Refusal, Error> {
        match self.as_error() {
            Some(error) => Err(error),
            None => Ok(self.refusal()),
        }
    }

    /// What it means for a read.
    pub(super) fn into_error(self) -> Error {
        self.as_error().unwrap_or_else(|| Error::Denied(self.detail))
    }

    /// The error of the store that it is, if it is one.
    fn as_error(&self) -> Option<Error> {
        let why = || self.detail.clone().into();
        Some(match (self.code.as_str(), self.status) {
            ("UNAVAILABLE" | "OVERLOADED" | "STOPPING" | "TOO_MANY_REQUESTS" | "TOO_SLOW", _) => {
                Error::Unavailable(why())
            }
            ("DISK_FULL", _) => Error::DiskFull(why()),
            ("STORE_CONTRADICTION", _) => Error::Contradiction(why()),
            ("STORE_DAMAGED", _) => Error::Damaged(self.detail.clone()),
            // It may have been written, and another server, or the same one in a moment, may know.
            ("AMBIGUOUS" | "STORE_STOPPED" | "INTERNAL", _) => Error::Ambiguous(why()),
            (_, 429 | 503) => Error::Unavailable(why()),
            (_, 500..) => Error::Ambiguous(why()),
            _ => return None,
        })
    }

    /// The refusal of this code. What cannot be rebuilt says in its own words what is wrong.
    fn refusal(&self) -> Refusal {
        let rebuilt = match self.code.as_str() {
            "STALE_ATTEMPT" => Some(Refusal::StaleAttempt),
            "OUTDATED" => Some(Refusal::Outdated),
            "CANCEL_REQUESTED" => Some(Refusal::CancelRequested),
            "NOT_WAITING_FOR" => Some(Refusal::NotWaitingFor),
            "CLAIM_ALONE" => Some(Refusal::ClaimAlone),
            "INVALID_TRANSITION" => self.invalid_transition(),
            "NOT_FOUND" => self.not_found(),
            "NOT_DUE" => {
                self.after("it is not due before ").map(|at: Timestamp| Refusal::NotDue { at })
            }
            "IDEMPOTENCY_CONFLICT" => self.conflict(),
            "JOB_EXISTS" => self.job_id.map(|job_id| Refusal::JobExists { job_id }),
            "TASK_ACTIVE" => self.task_active(),
            "TASK_DUPLICATE" => self.task_duplicate(),
            "APPROVAL_REQUIRED" => self.approval(),
            "DLQ_REQUEUE_CONFLICT" => {
                self.letter_state().map(|state| Refusal::DlqRequeueConflict { state })
            }
            "DLQ_CLOSED" => self.letter_state().map(|state| Refusal::DlqClosed { state }),
            "LAST_ADMIN" => self
                .after("it is the last token of an admin for tenant ")
                .map(|tenant: String| Refusal::LastAdmin { tenant }),
            "DRAINING" => self.draining(),
            _ => None,
        };
        rebuilt.unwrap_or_else(|| self.invalid())
    }

    fn invalid(&self) -> Refusal {
        let field = match (self.code.as_str(), self.detail.split_once(' ')) {
            ("INVALID_INPUT", Some((word, why))) => match known(FIELDS, word) {
                Some(field) => return Refusal::invalid(field, why),
                None => "request",
            },
            ("UNAUTHORIZED" | "FORBIDDEN", _) => "token",
            _ => "request",
        };
        Refusal::invalid(field, format!("was refused: {}", self.detail))
    }

    fn invalid_transition(&self) -> Option<Refusal> {
        let (from, op) =
            self.detail.strip_prefix("a job that is ")?.split_once(" cannot be changed by ")?;
        Some(Refusal::InvalidTransition { from: State::parse(from)?, op: OpKind::parse(op)? })
    }

    fn not_found(&self) -> Option<Refusal> {
        let what = self.detail.strip_prefix("no ")?.strip_suffix(" of that name was found")?;
        Some(Refusal::NotFound { what: known(THINGS, what)? })
    }

    fn conflict(&self) -> Option<Refusal> {
        let (_, fields) = self.detail.split_once("which differs in ")?;
        let fields = fields.split(", ").map(|word| known(FIELDS, word));
        Some(Refusal::IdempotencyConflict {
            job_id: self.job_id?,
            fields: fields.collect::<Option<_>>()?,
        })
    }

    fn task_active(&self) -> Option<Refusal> {
        let (_, task) = self.detail.split_once(" of task ")?;
        let task = task.strip_suffix(" has not come to its end")?;
        Some(Refusal::TaskActive { task_id: TaskId::new(task).ok()?, job_id: self.job_id? })
    }

    fn task_duplicate(&self) -> Option<Refusal> {
        let task = self.detail.strip_prefix("task ")?.strip_suffix(" exists already")?;
        Some(Refusal::TaskDuplicate { task_id: TaskId::new(task).ok()? })
    }

    fn approval(&self) -> Option<Refusal> {
        let (_, why) = self.detail.split_once(": ")?;
        Some(Refusal::ApprovalRequired { why: known(APPROVALS, why)? })
    }

    fn letter_state(&self) -> Option<LetterState> {
        LetterState::parse(self.detail.rsplit(' ').next()?)
    }

    fn draining(&self) -> Option<Refusal> {
        let rule = self.detail.strip_prefix("nothing new is taken in: rule ")?;
        Some(Refusal::Draining { rule: RuleName::new(rule.strip_suffix(" drains it")?).ok()? })
    }

    fn after<T: std::str::FromStr>(&self, words: &str) -> Option<T> {
        self.detail.strip_prefix(words)?.parse().ok()
    }
}

/// The word of our own that this is.
fn known(words: &[&'static str], word: &str) -> Option<&'static str> {
    words.iter().copied().find(|known| *known == word)
}

const THINGS: &[&str] =
    &["job", "dead letter", "schedule", "rule", "tenant", "parent", "child", "session", "token"];

const FIELDS: &[&str] = &[
    "task_id",
    "kind",
    "queue",
    "queues",
    "kinds",
    "schedule_type",
    "scheduled_at",
    "timeout_ms",
    "heartbeat_timeout_ms",
    "schedule_to_start_ms",
    "deadline_at",
    "max_retries",
    "max_interruptions",
    "retry",
    "payload",
    "priority",
    "idempotency_key",
    "idempotency_scope",
    "limit_key",
    "unique_key",
    "tags",
    "trace_id",
    "parent",
    "parent_job_id",
    "reason",
    "lease_ms",
    "worker_id",
    "progress",
    "result",
    "remaining",
    "error",
    "stats",
    "when",
    "name",
    "scope",
    "says",
    "until",
    "op",
    "wait",
    "grace_ms",
    "catch_up",
    "jitter_ms",
    "end_at",
    "job_id",
    "id",
    "tenant",
];

const APPROVALS: &[&str] = &[
    "it was asked for before, and someone else has to approve",
    "someone else has to ask for it first, and say why",
    "whoever asked cannot approve",
    "only people can ask and approve",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(refusal: &Refusal, job_id: Option<JobId>) -> Refusal {
        let (code, detail) = (refusal.code().to_owned(), refusal.to_string());
        let problem = Problem { status: 409, code, detail, job_id };
        problem.into_refusal().unwrap()
    }

    #[test]
    fn every_refusal_comes_back_as_it_was_sent() {
        let job_id = JobId::from_u128(7);
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let task_id = TaskId::new("a task of mine").unwrap();
        let all = [
            Refusal::StaleAttempt,
            Refusal::InvalidTransition { from: State::Succeeded, op: OpKind::Cancel },
            Refusal::NotFound { what: "dead letter" },
            Refusal::NotDue { at },
            Refusal::Outdated,
            Refusal::invalid("queue", "must not be empty"),
            Refusal::IdempotencyConflict { job_id, fields: vec!["kind", "payload"] },
            Refusal::JobExists { job_id },
            Refusal::TaskActive { task_id: task_id.clone(), job_id },
            Refusal::TaskDuplicate { task_id },
            Refusal::ApprovalRequired { why: "whoever asked cannot approve" },
            Refusal::DlqRequeueConflict { state: LetterState::Discarded },
            Refusal::DlqClosed { state: LetterState::Requeued },
            Refusal::LastAdmin { tenant: "acme".to_owned() },
            Refusal::CancelRequested,
            Refusal::NotWaitingFor,
            Refusal::ClaimAlone,
            Refusal::Draining { rule: RuleName::new("drain mail").unwrap() },
        ];
        for refusal in &all {
            assert_eq!(told(refusal, Some(job_id)), *refusal);
        }
        let missing: Vec<_> = Refusal::CODES
            .iter()
            .filter(|info| !all.iter().any(|it| it.code() == info.code))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn what_nobody_could_decide_is_no_refusal() {
        for (status, text, code) in [
            (503, r#"{"code": "STOPPING", "detail": "the server stops"}"#, "UNAVAILABLE"),
            (503, "", "UNAVAILABLE"),
            (429, "slow down", "UNAVAILABLE"),
            (502, "<html>", "AMBIGUOUS"),
            (503, r#"{"code": "AMBIGUOUS", "detail": "lost"}"#, "AMBIGUOUS"),
            (503, r#"{"code": "DISK_FULL", "detail": "full"}"#, "DISK_FULL"),
        ] {
            let error = Problem::read(status, text.as_bytes()).into_refusal().unwrap_err();
            assert_eq!(error.code(), code, "{status} {text}");
        }
    }

    #[test]
    fn who_may_not_is_told_why() {
        let text = br#"{"code": "FORBIDDEN", "detail": "a viewer may not do this"}"#;
        let problem = Problem::read(403, text);
        let refusal = problem.clone().into_refusal().unwrap();
        assert_eq!(refusal.to_string(), "token was refused: a viewer may not do this");
        assert_eq!(problem.into_error().code(), "DENIED");
    }
}
