//! A failure: the user's code did not succeed. It is data, kept with the attempt.
//!
//! It says whether trying again may help (`retryable`); whether it *will* be tried again is for the
//! rules to say. Not to be mixed up with a [`crate::Refusal`], which is the rules saying no.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What went wrong in one execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A short name for programs, such as `SMTP_TIMEOUT`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// What sort of failure it is.
    pub class: Class,
    /// May trying again help?
    pub retryable: bool,
    /// Wait at least this long before the next try.
    #[serde(
        rename = "retry_after_ms",
        with = "crate::time::duration_ms_option",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub retry_after: Option<Duration>,
}

/// The sort of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The input was not acceptable.
    Validation,
    /// The input was fine, and the business says no.
    BusinessRule,
    /// It may pass: a time-out, a lost connection, a full queue.
    Transient,
    /// It will not pass by itself.
    Permanent,
    /// It concerns access or secrets: shown with care.
    SecuritySensitive,
}

/// The execution ran longer than its `timeout_ms`.
pub const TASK_TIMEOUT: &str = "TASK_TIMEOUT";
/// The handler did not report life in time.
pub const HEARTBEAT_TIMEOUT: &str = "HEARTBEAT_TIMEOUT";
/// It waited for its first start longer than it may.
pub const SCHEDULE_TO_START_TIMEOUT: &str = "SCHEDULE_TO_START_TIMEOUT";
/// Its `deadline_at` passed.
pub const DEADLINE_EXCEEDED: &str = "DEADLINE_EXCEEDED";
/// It was interrupted too often: recovery gave up.
pub const RECOVERY_ABORTED: &str = "RECOVERY_ABORTED";
/// A person gave up on it.
pub const GIVEN_UP: &str = "GIVEN_UP";

impl Failure {
    /// A failure that may pass by itself.
    pub fn transient(code: &str, message: &str) -> Self {
        Self::new(code, message, Class::Transient, true)
    }

    /// A failure that will not pass by itself.
    pub fn permanent(code: &str, message: &str) -> Self {
        Self::new(code, message, Class::Permanent, false)
    }

    fn new(code: &str, message: &str, class: Class, retryable: bool) -> Self {
        Self {
            code: code.to_owned(),
            message: message.to_owned(),
            class,
            retryable,
            retry_after: None,
        }
    }
}
