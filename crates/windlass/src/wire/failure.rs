//! What went wrong in an execution: as a worker reports it, and as the API shows it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_kernel::{Class, Failure, Refusal, time::duration_ms_option};

/// What went wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailureDocument {
    /// A short name for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// What sort of failure it is.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub class: Class,
    /// May trying again help?
    pub retryable: bool,
}

impl From<&Failure> for FailureDocument {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.clone(),
            message: failure.message.clone(),
            class: failure.class,
            retryable: failure.retryable,
        }
    }
}

impl From<FailureDocument> for Failure {
    fn from(told: FailureDocument) -> Self {
        let FailureDocument { code, message, class, retryable } = told;
        Self { code, message, class, retryable, retry_after: None }
    }
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// A short name for programs, such as `SMTP_TIMEOUT`.
    pub code: String,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
    /// What sort of failure it is: validation, business_rule, transient, permanent or security_sensitive.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub class: Option<Class>,
    /// May trying again help? Needed, unless `class` is there: then only what is `transient` is tried again.
    pub retryable: Option<bool>,
    /// Wait at least this long before the next try.
    #[serde(rename = "retry_after_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub retry_after: Option<Duration>,
}

/// What has to be sent with a failure that says neither.
const RETRYABLE_NEEDED: &str = "must say whether trying again may help: send \"retryable\": true or false, or a \
    \"class\" (transient is tried again; validation, business_rule, permanent and security_sensitive are not)";

impl TryFrom<ErrorBody> for Failure {
    type Error = Refusal;

    /// Nobody guesses whether a failure may be tried again: its worker says so.
    fn try_from(error: ErrorBody) -> Result<Self, Refusal> {
        let by_class = error.class.map(|class| class == Class::Transient);
        let needed = || Refusal::invalid("error", RETRYABLE_NEEDED);
        let retryable = error.retryable.or(by_class).ok_or_else(needed)?;
        let usual = if retryable { Class::Transient } else { Class::Permanent };
        Ok(Self {
            code: error.code,
            message: error.message,
            class: error.class.unwrap_or(usual),
            retryable,
            retry_after: error.retry_after,
        })
    }
}

impl From<&Failure> for ErrorBody {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.clone(),
            message: failure.message.clone(),
            class: Some(failure.class),
            retryable: Some(failure.retryable),
            retry_after: failure.retry_after,
        }
    }
}
