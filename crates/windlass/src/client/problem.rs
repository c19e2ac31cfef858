//! Problem documents, and what they mean here: a refusal of the rules, or an error of the store.

use windlass_kernel::{
    JobId, LetterState, OpKind, Refusal, RuleName, State, TaskId, Timestamp,
    ids::{Channel, CorrelationKey, MessageId, StepKey},
    ledger::MailName,
};
use windlass_store::Error;

use crate::wire::{NewJobBody, ProblemDocument, fields};

/// What of a problem document says what it means. Also one entry of a batch says it so.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) detail: String,
    pub(super) job_id: Option<JobId>,
}

impl Problem {
    /// The document of an answer. What stands between may answer without one.
    pub(super) fn read(status: u16, text: &[u8]) -> Self {
        match serde_json::from_slice::<ProblemDocument>(text) {
            Ok(ProblemDocument { code, detail, job_id, .. }) => {
                Self { status, code, detail, job_id }
            }
            Err(_) => {
                let detail = format!("the server answered with status {status}");
                Self { status, code: String::new(), detail, job_id: None }
            }
        }
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
            "NONDETERMINISTIC" => self.nondeterministic(),
            "STEP_RECORDED" => self
                .step(" is on record with another outcome")
                .map(|key| Refusal::StepRecorded { key }),
            "STEP_NOT_BEGUN" => self
                .step(" runs at most once, and was not begun")
                .map(|key| Refusal::StepNotBegun { key }),
            "BARRIER" => self
                .step(" was begun by a worker that is gone: what became of it is unknown")
                .map(|key| Refusal::Barrier { key }),
            "HISTORY_LIMIT" => self.history_limit(),
            "SIGNAL_CONFLICT" => self.signal_conflict(),
            _ => None,
        };
        rebuilt.unwrap_or_else(|| self.invalid())
    }

    fn invalid(&self) -> Refusal {
        let field = match (self.code.as_str(), self.detail.split_once(' ')) {
            ("INVALID_INPUT", Some((word, why))) => match field(word) {
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
        let fields = fields.split(", ").map(field);
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

    fn nondeterministic(&self) -> Option<Refusal> {
        let (key, shapes) = self.detail.strip_prefix("step ")?.split_once(" is on record as ")?;
        let (expected, actual) = shapes.split_once(", and the code now asks for ")?;
        let (expected, actual) = (expected.to_owned(), actual.to_owned());
        Some(Refusal::Nondeterministic { key: StepKey::new(key).ok()?, expected, actual })
    }

    /// The step that the detail begins with, if these words follow.
    fn step(&self, words: &str) -> Option<StepKey> {
        self.detail.strip_prefix("step ")?.strip_suffix(words)?.parse().ok()
    }

    fn history_limit(&self) -> Option<Refusal> {
        let (max, what) = self.detail.strip_prefix("a job can have at most ")?.split_once(' ')?;
        Some(Refusal::HistoryLimit { what: known(LIMITED, what)?, max: max.parse().ok()? })
    }

    fn signal_conflict(&self) -> Option<Refusal> {
        let shown = self.detail.strip_suffix(" came before, with another content")?;
        let name = match shown.split_once(' ')? {
            ("signal", key) => MailName::Signal(CorrelationKey::new(key).ok()?),
            ("message", rest) => {
                let (id, channel) = rest.split_once(" of channel ")?;
                let (id, channel) = (MessageId::new(id).ok()?, Channel::new(channel).ok()?);
                MailName::Message { channel, id }
            }
            (_, rest) => MailName::Child(rest.strip_prefix("end of ")?.parse().ok()?),
        };
        Some(Refusal::SignalConflict { name })
    }

    fn after<T: std::str::FromStr>(&self, words: &str) -> Option<T> {
        self.detail.strip_prefix(words)?.parse().ok()
    }
}

/// The field of ours that has this name.
fn field(word: &str) -> Option<&'static str> {
    known(fields::<NewJobBody>(), word).or_else(|| known(FIELDS, word))
}

/// The word of our own that this is.
fn known(words: &[&'static str], word: &str) -> Option<&'static str> {
    words.iter().copied().find(|known| *known == word)
}

const THINGS: &[&str] = &[
    "job",
    "dead letter",
    "schedule",
    "rule",
    "tenant",
    "parent",
    "child",
    "session",
    "token",
    "step",
    "mail",
];

/// The fields that a refusal can name beside those of a new job.
const FIELDS: &[&str] = &[
    "queues",
    "kinds",
    "schedule_type",
    "parent",
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
    "id",
    "tenant",
    "step",
    "step_key",
    "entries",
    "mode",
    "location",
    "mail",
    "channel",
    "message_id",
];

const APPROVALS: &[&str] = &[
    "it was asked for before, and someone else has to approve",
    "someone else has to ask for it first, and say why",
    "whoever asked cannot approve",
    "only people can ask and approve",
];

/// What a ledger can hold only so much of.
const LIMITED: &[&str] =
    &["steps", "bytes of one result", "bytes of results", "signals and messages that wait"];

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
        let key = StepKey::new("charge the card#2").unwrap();
        let (expected, actual) = ("step".to_owned(), "sleep of 60s".to_owned());
        let channel = Channel::new("chat").unwrap();
        let id = MessageId::new("m 1").unwrap();
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
            Refusal::Nondeterministic { key: key.clone(), expected, actual },
            Refusal::StepRecorded { key: key.clone() },
            Refusal::StepNotBegun { key: key.clone() },
            Refusal::Barrier { key },
            Refusal::HistoryLimit { what: "bytes of results", max: 268_435_456 },
            Refusal::SignalConflict {
                name: MailName::Signal(CorrelationKey::new("paid").unwrap()),
            },
            Refusal::SignalConflict { name: MailName::Message { channel, id } },
            Refusal::SignalConflict { name: MailName::Child(job_id) },
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

    fn document(code: &str, detail: &str) -> String {
        serde_json::json!({
            "type": "/docs/errors", "title": "", "status": 0, "detail": detail, "code": code,
            "class": "transient", "retryable": true, "trace_id": "t-1",
        })
        .to_string()
    }

    #[test]
    fn what_nobody_could_decide_is_no_refusal() {
        for (status, text, code) in [
            (503, document("STOPPING", "the server stops"), "UNAVAILABLE"),
            (503, String::new(), "UNAVAILABLE"),
            (429, "slow down".to_owned(), "UNAVAILABLE"),
            (502, "<html>".to_owned(), "AMBIGUOUS"),
            (503, document("AMBIGUOUS", "lost"), "AMBIGUOUS"),
            (503, document("DISK_FULL", "full"), "DISK_FULL"),
        ] {
            let error = Problem::read(status, text.as_bytes()).into_refusal().unwrap_err();
            assert_eq!(error.code(), code, "{status} {text}");
        }
    }

    #[test]
    fn who_may_not_is_told_why() {
        let text = document("FORBIDDEN", "a viewer may not do this");
        let problem = Problem::read(403, text.as_bytes());
        let refusal = problem.clone().into_refusal().unwrap();
        assert_eq!(refusal.to_string(), "token was refused: a viewer may not do this");
        assert_eq!(problem.into_error().code(), "DENIED");
    }
}
