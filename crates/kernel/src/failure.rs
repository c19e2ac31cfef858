//! A failure: the user's code did not succeed. It is data, kept with the attempt.
//!
//! It says whether trying again may help (`retryable`); whether it *will* be tried again is for the
//! rules to say. Not to be mixed up with a [`crate::Refusal`], which is the rules saying no.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Refusal, ids::unfit, time::as_ms};

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
pub const INTERRUPTED_TOO_OFTEN: &str = "INTERRUPTED_TOO_OFTEN";
/// A person gave up on it.
pub const GIVEN_UP: &str = "GIVEN_UP";

impl Failure {
    /// The longest code.
    pub const CODE_MAX_BYTES: usize = 128;
    /// The longest message. What is longer is cut: an error must never be lost for its length.
    pub const MESSAGE_MAX_BYTES: usize = 16 * 1024;

    /// The failure as it is kept: a proper code, and a message of bounded length.
    pub(crate) fn bounded(&self) -> Result<Self, Refusal> {
        if let Some(why) = unfit(&self.code, Self::CODE_MAX_BYTES) {
            return Err(Refusal::invalid("error.code", why));
        }
        let end = self.message.floor_char_boundary(Self::MESSAGE_MAX_BYTES);
        // Rows and requests have whole milliseconds.
        let retry_after = self.retry_after.map(|it| Duration::from_millis(as_ms(it)));
        Ok(Self { message: self.message[..end].to_owned(), retry_after, ..self.clone() })
    }

    /// The same, to be tried again no sooner than after this time.
    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// So that a handler can return it as any other error.
impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_and_a_bad_code_is_refused() {
        assert_eq!(Failure::MESSAGE_MAX_BYTES, 16_384);
        let long = "é".repeat(Failure::MESSAGE_MAX_BYTES);
        let kept = Failure::transient("SLOW", &long).bounded().unwrap();
        assert_eq!(kept.message.len(), Failure::MESSAGE_MAX_BYTES);
        let odd = format!("x{long}");
        let kept = Failure::transient("SLOW", &odd).bounded().unwrap();
        assert_eq!(kept.message.len(), Failure::MESSAGE_MAX_BYTES - 1);
        let short = Failure::permanent("GONE", "it is gone");
        assert_eq!(short.bounded().unwrap(), short);
        for code in ["", "A\nB", &"x".repeat(129)] {
            assert!(Failure::permanent(code, "").bounded().is_err(), "{code:?} was taken");
        }
    }
}
