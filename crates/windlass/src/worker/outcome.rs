//! What a handler gives back, and what that means for its job.

use std::time::Duration;

use serde::Serialize;
use windlass_kernel::{
    Failure, Payload,
    failure::{HANDLER_FAILED, HANDLER_PANICKED, RESULT_UNFIT},
    job::Wait,
    ops::Entry,
};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a handler returns: `?` works on any error, and a [`Failure`] says more about itself.
pub type HandlerResult<T = ()> = Result<T, BoxError>;

/// How an execution ended, for handlers that have more to say than a value or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an outcome means nothing until the handler returns it"]
pub struct Outcome(pub(crate) Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Done {
        result: Option<Payload>,
    },
    Partial {
        result: Option<Payload>,
        remaining: Payload,
    },
    Snooze {
        wait: Duration,
    },
    Cancelled {
        reason: Option<String>,
    },
    /// What the handler gave back cannot be kept.
    Unfit(Failure),
    /// A durable handler can only wait.
    Park(Box<Park>),
}

/// What a durable handler waits for, and what has to be recorded before it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Park {
    pub(crate) entries: Vec<Entry>,
    pub(crate) wait: Wait,
    pub(crate) mails_seen: Option<u32>,
}

impl Outcome {
    /// Done, with this result.
    pub fn done(result: &impl Serialize) -> Self {
        match payload("the result", result) {
            Ok(result) => Self(Kind::Done { result }),
            Err(failure) => Self(Kind::Unfit(failure)),
        }
    }

    /// Done in part: this came out, and this is left to do.
    pub fn partial(result: &impl Serialize, remaining: &impl Serialize) -> Self {
        let remaining = payload("what is left", remaining);
        let null = || Payload::parse("null", 4).expect("it is JSON");
        match (payload("the result", result), remaining) {
            (Ok(result), Ok(remaining)) => {
                Self(Kind::Partial { result, remaining: remaining.unwrap_or_else(null) })
            }
            (Err(failure), _) | (_, Err(failure)) => Self(Kind::Unfit(failure)),
        }
    }

    pub(crate) fn park(park: Park) -> Self {
        Self(Kind::Park(Box::new(park)))
    }

    /// Not now: the same attempt goes on after this time. It uses up no retry.
    pub fn snooze(wait: Duration) -> Self {
        Self(Kind::Snooze { wait })
    }

    /// It was asked to stop, and has cleaned up.
    pub fn cancelled(reason: impl Into<Option<String>>) -> Self {
        Self(Kind::Cancelled { reason: reason.into() })
    }
}

/// What a handler can return when it does not fail.
///
/// It is an [`Outcome`], or any value that can be written as JSON: that is the result.
pub trait IntoOutcome {
    /// What it means for the job.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<T: Serialize> IntoOutcome for T {
    fn into_outcome(self) -> Outcome {
        Outcome::done(&self)
    }
}

/// The failure that an error of a handler is. A [`Failure`] anywhere in its chain speaks for itself.
pub(crate) fn failure_of(error: BoxError) -> Failure {
    let error = match error.downcast::<Failure>() {
        Ok(failure) => return proper(*failure),
        Err(error) => error,
    };
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(failure) = inner.downcast_ref::<Failure>() {
            return proper(failure.clone());
        }
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    Failure::own(HANDLER_FAILED, &message)
}

/// A failure whose code cannot be kept must not be lost for it.
fn proper(failure: Failure) -> Failure {
    let code = &failure.code;
    let is_fit = !code.is_empty()
        && code.len() <= Failure::CODE_MAX_BYTES
        && !code.chars().any(char::is_control);
    if is_fit {
        return failure;
    }
    let message = format!("{} (its code {code:?} cannot be kept)", failure.message);
    Failure { code: HANDLER_FAILED.to_owned(), message, ..failure }
}

/// The failure that a panic is.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::own(HANDLER_PANICKED, text.unwrap_or("the handler panicked"))
}

fn payload(what: &str, value: &impl Serialize) -> Result<Option<Payload>, Failure> {
    let unfit = |why: String| {
        let message = format!("{what} cannot be kept: {why}");
        Failure::own(RESULT_UNFIT, &message)
    };
    let text = serde_json::to_string(value).map_err(|error| unfit(error.to_string()))?;
    if text == "null" {
        return Ok(None);
    }
    let payload = Payload::parse(&text, Payload::MAX_BYTES_DEFAULT);
    payload.map(Some).map_err(|refusal| unfit(refusal.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the mail was not sent")]
    struct Outer(#[source] BoxError);

    #[test]
    fn an_error_is_a_failure_that_may_pass_and_names_its_causes() {
        let failure = failure_of(Outer(Box::new(std::fmt::Error)).into());
        assert_eq!(failure.code, HANDLER_FAILED);
        assert!(failure.retryable);
        let cause = std::fmt::Error.to_string();
        assert_eq!(failure.message, format!("the mail was not sent: {cause}"));
        assert_eq!(failure_of("no such host".into()).message, "no such host");
    }

    #[test]
    fn a_failure_speaks_for_itself_wherever_it_stands_in_the_chain() {
        let gone = Failure::permanent("GONE", "there is no such customer");
        assert_eq!(failure_of(gone.clone().into()), gone);
        assert_eq!(failure_of(Outer(gone.clone().into()).into()), gone);
    }

    #[test]
    fn a_code_that_cannot_be_kept_does_not_lose_the_failure() {
        for code in ["", "a\nb", &"x".repeat(129)] {
            let kept = failure_of(Failure::permanent(code, "broken").into());
            assert_eq!((kept.code.as_str(), kept.retryable), (HANDLER_FAILED, false));
            assert!(kept.message.starts_with("broken"), "{}", kept.message);
        }
    }

    #[test]
    fn a_result_that_is_too_large_is_a_failure_that_is_not_tried_again() {
        let large = "x".repeat(Payload::MAX_BYTES_DEFAULT + 1);
        let Outcome(Kind::Unfit(failure)) = large.into_outcome() else { panic!("it was taken") };
        assert_eq!((failure.code.as_str(), failure.retryable), (RESULT_UNFIT, false));
    }

    #[test]
    fn nothing_is_no_result() {
        assert_eq!(().into_outcome(), Outcome(Kind::Done { result: None }));
        assert_eq!(None::<u32>.into_outcome(), Outcome(Kind::Done { result: None }));
        let Outcome(Kind::Done { result: Some(result) }) = 7.into_outcome() else {
            panic!("there is a result")
        };
        assert_eq!(result.as_str(), "7");
    }
}
