//! A failure: the user's code did not succeed. It is data, kept with the attempt.
//!
//! It says whether trying again may help (`retryable`); whether it *will* be tried again is for the
//! rules to say. Not to be mixed up with a [`crate::Refusal`], which is the rules saying no.
//!
//! Some failures are reported by Windlass itself. The table below says for each of their codes what it means and what
//! to do next; `docs/errors.md` is written from it.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Refusal, ids::unfit, refusal::CodeInfo, time::as_ms};

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

macro_rules! codes {
    ($($code:ident, $class:ident, $retryable:literal, $meaning:literal, $remedy:literal;)*) => {
        $(#[doc = $meaning] pub const $code: &str = stringify!($code);)*

        impl Failure {
            /// Every code that Windlass itself gives to a failure. All others are the users' own.
            pub const CODES: &'static [CodeInfo] = &[$(CodeInfo {
                code: $code,
                class: Class::$class,
                retryable: $retryable,
                meaning: $meaning,
                remedy: $remedy,
            }),*];
        }
    };
}

codes! {
    HANDLER_FAILED, Transient, true,
        "The handler returned an error that says nothing more about itself, or whose own code cannot be kept.",
        "The message is that of the error, with its causes. Return a Failure to name a code, and to say whether trying again may help.";
    HANDLER_PANICKED, Transient, true,
        "The handler panicked. Its worker goes on.",
        "The message is that of the panic. Mend the handler; a job that failed for good can be requeued or run again.";
    PAYLOAD_UNFIT, Validation, false,
        "The payload is not what the handler takes, so the handler was not run.",
        "The message says where and what kind of trouble, not what stands there. Let the handler take what was sent, or requeue the dead letter with another payload.";
    RESULT_UNFIT, Validation, false,
        "The handler succeeded, and what it gave back cannot be kept: it is no JSON, or too long.",
        "Its effects have happened. Give back less, or a reference to it, before you run the task again.";
    TASK_TIMEOUT, Transient, true,
        "The execution ran longer than the time-out of its job.",
        "Look at what it waited for. Give the job a longer time-out, or cut it into smaller ones.";
    HEARTBEAT_TIMEOUT, Transient, true,
        "The handler did not give a sign of life within the heartbeat time-out of its job.",
        "Call heartbeat or progress more often, or give the job a longer heartbeat time-out.";
    SCHEDULE_TO_START_TIMEOUT, Permanent, false,
        "The job waited for its first start longer than it may, and was cancelled.",
        "Look whether workers serve its queue and kind and have room. Run the task again if it is still wanted.";
    DEADLINE_EXCEEDED, Permanent, false,
        "The deadline of the job passed before its end.",
        "Run the task again with a later deadline if it is still wanted.";
    INTERRUPTED_TOO_OFTEN, Permanent, false,
        "The workers that ran the job died or lost their lease too often without progress, and recovery gave up: it may be what kills them.",
        "Look at how those workers ended, such as for lack of memory, before you requeue the dead letter.";
    GIVEN_UP, Permanent, false,
        "A person gave up on the job.",
        "The message is their reason. Requeue the dead letter if they were wrong.";
    EFFECT_UNKNOWN, Permanent, false,
        "A step that runs at most once was begun, and nobody knows whether its effect happened: its worker was lost, it timed out, or it gave an error that does not say.",
        "Find out what happened outside, by the step's key, and state it: windlass dlq resolve.";
    STEP_TIMEOUT, Transient, true,
        "A step took longer than its time-out.",
        "Look at what it waited for, or give it a longer time-out.";
    STEP_FAILED, Transient, true,
        "A step gave an error that says nothing more about itself, and its tries are used up.",
        "The message is that of the error. Return a Failure to name a code, and to say whether trying again may help.";
    STEP_UNFIT, Validation, false,
        "A durable operation was asked for in a way that cannot be: a name that is too long, or a child that is refused.",
        "The message says what is wrong. Mend the handler.";
    WAIT_TIMED_OUT, Permanent, false,
        "What a durable handler waited for did not come in time.",
        "The code decides what follows: it gets TimedOut. If it gives that back, the job fails so.";
    CHILD_FAILED, Permanent, false,
        "A child of a durable job failed for good, or its result cannot be kept.",
        "The message has the failure of the child. Its dead letter can be requeued; the parent has gone on without it.";
    CHILD_CANCELLED, Permanent, false,
        "A child of a durable job was cancelled.",
        "The code decides what follows: it gets this as an error.";
    LEDGER_FULL, Permanent, false,
        "The ledger of a durable job holds as much as it can, or refused what its worker wrote.",
        "The message says what there is too much of. Cut the work into children, or save a checkpoint and go on as a new job.";
    STEP_NESTED, Permanent, false,
        "The context of a durable handler was used inside one of its steps.",
        "Take it out: a step calls the outside, and the handler calls steps.";
    HTTP_UNREACHABLE, Transient, true,
        "The server that the job calls could not be reached, or broke off.",
        "Look whether its name and port are right and it is up.";
    HTTP_TIMEOUT, Transient, true,
        "The server that the job calls did not answer in time.",
        "Look what keeps it. Give the call a longer timeout_ms, up to what the config of the server allows.";
    HTTP_UNAVAILABLE, Transient, true,
        "The server that the job calls answered that it cannot now: 408, 425, 429 or 5xx; or the receiver of a webhook, with anything but 2xx and 410.",
        "The message has the status. If it came with Retry-After, the next try waits at least so long.";
    HTTP_REJECTED, Permanent, false,
        "The server that the job calls gave an answer that trying again will not change.",
        "The message has the status. Mend the call, or name the status in expect_status if it is as good as done.";
    ADDRESS_NOT_ALLOWED, SecuritySensitive, false,
        "The job calls an address that may not be called, such as one of this machine or of a private network.",
        "If it is meant to be called, whoever runs the server can name it in allow of the section executors.http.";
    COMMAND_NOT_ALLOWED, SecuritySensitive, false,
        "The job names a command that the config does not know, or gives it an argument that it may not have.",
        "Whoever runs the server says in executors.command.allow what can be run, and with which arguments.";
    COMMAND_NOT_STARTED, Transient, true,
        "The program of a command could not be started.",
        "The message says why. Look whether the program is where the config says and can be executed.";
    COMMAND_FAILED, Permanent, false,
        "The command ended with an exit code that means failure, or was ended by a signal.",
        "The message has the code and the end of what it wrote to stderr. Exit code 75, or one in retry_exit_codes, is tried again.";
    COMMAND_UNAVAILABLE, Transient, true,
        "The command ended with an exit code that means: try again later.",
        "The message has the code and the end of what it wrote to stderr.";
    WEBHOOK_UNKNOWN, Permanent, false,
        "A delivery is for a webhook that is no longer in the config.",
        "Put the webhook back and requeue the dead letter, or discard it.";
    TRANSIENT_ERROR, Transient, true,
        "A test injected this failure on purpose.",
        "Nothing, in a test. Elsewhere, take the middleware for faults from the worker.";
}

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

    /// A failure that Windlass itself reports. Its code says what sort it is, and whether trying again may help.
    ///
    /// # Panics
    /// If the code is not in the table of [`CODES`](Failure::CODES).
    pub fn own(code: &str, message: &str) -> Self {
        let info = Self::CODES.iter().find(|info| info.code == code);
        let info = info.expect("a code of ours is in the table");
        Self::new(code, message, info.class, info.retryable)
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
    fn each_code_stands_once_and_is_explained() {
        for (place, info) in Failure::CODES.iter().enumerate() {
            assert!(!Failure::CODES[..place].iter().any(|other| other.code == info.code));
            assert!(!Refusal::CODES.iter().any(|other| other.code == info.code), "{}", info.code);
            assert!(info.meaning.ends_with('.') && info.remedy.ends_with('.'), "{}", info.code);
            let failure = Failure::own(info.code, "");
            assert_eq!((failure.class, failure.retryable), (info.class, info.retryable));
        }
    }

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
