//! Problems: what a caller is told when a call cannot be answered, as RFC 9457 has it.
//!
//! Each code has one status. Refusals of the rules and errors of the store bring their own codes; the few that
//! belong to HTTP alone are here.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use windlass::{Error, wire::ProblemDocument};
use windlass_kernel::{Class, JobId, Refusal, refusal::CodeInfo};
use windlass_store::{self as store, read::Scope};

/// Why a call has no other answer.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) class: Class,
    pub(crate) retryable: bool,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
    pub(crate) job_id: Option<JobId>,
    /// In how many seconds it may be worth another try.
    pub(crate) retry_after: Option<u32>,
    /// What caused it, for the log alone: it may name hosts and tables.
    pub(crate) cause: Option<Box<Cause>>,
}

/// What caused a problem. It stands in a box, for most problems have none.
#[derive(Clone, Debug)]
pub(crate) struct Cause(pub(crate) String);

macro_rules! codes {
    ($($name:ident, $status:ident, $code:literal, $class:ident, $retryable:literal, $meaning:literal, $remedy:literal;)*) => {
        /// The codes that belong to HTTP alone.
        pub(crate) const CODES: &[CodeInfo] = &[$(CodeInfo {
            code: $code,
            class: Class::$class,
            retryable: $retryable,
            meaning: $meaning,
            remedy: $remedy,
        }),*];

        impl Problem {
            $(#[doc = $meaning]
            pub(crate) fn $name(detail: impl Into<String>) -> Self {
                Self {
                    status: StatusCode::$status,
                    code: $code,
                    class: Class::$class,
                    retryable: $retryable,
                    title: $meaning,
                    detail: detail.into(),
                    job_id: None,
                    retry_after: None,
                    cause: None,
                }
            })*
        }
    };
}

codes! {
    malformed, BAD_REQUEST, "MALFORMED_REQUEST", Validation, false,
        "The request cannot be read.",
        "The detail says what is wrong with it: the JSON, a parameter or a header.";
    unauthorized, UNAUTHORIZED, "UNAUTHORIZED", SecuritySensitive, false,
        "The call brings no token that is valid.",
        "Send Authorization: Bearer TOKEN. A token can be expired or revoked: ask an admin for another one.";
    forbidden, FORBIDDEN, "FORBIDDEN", SecuritySensitive, false,
        "The role of the token does not allow the call.",
        "Use a token of a role that may do it: the detail names one.";
    no_route, NOT_FOUND, "NO_ROUTE", Validation, false,
        "There is nothing at this path.",
        "/docs lists every path.";
    method_not_allowed, METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", Validation, false,
        "The path has another method.",
        "/docs lists the methods of every path.";
    too_large, PAYLOAD_TOO_LARGE, "TOO_LARGE", Validation, false,
        "The body is larger than it may be.",
        "Send less at once, or raise the bound in the config of the server.";
    head_too_large, REQUEST_HEADER_FIELDS_TOO_LARGE, "HEAD_TOO_LARGE", Validation, false,
        "The address and the headers are larger than they may be.",
        "Send fewer or shorter headers: 100 of them, and 32 KB in all, are the most. Over HTTP/2 this can be a bare 431, with no document.";
    too_slow, REQUEST_TIMEOUT, "TOO_SLOW", Transient, true,
        "The body did not come in time.",
        "Send it again over a better line.";
    not_json, UNSUPPORTED_MEDIA_TYPE, "NOT_JSON", Validation, false,
        "The body is not sent as plain JSON.",
        "Send Content-Type: application/json, and no Content-Encoding.";
    too_many, TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", Transient, true,
        "The token has made more calls than it may for now.",
        "Wait as long as Retry-After says.";
    overloaded, SERVICE_UNAVAILABLE, "OVERLOADED", Transient, true,
        "More is waiting to be written than the server can hold. Nothing of this call was written.",
        "Wait as long as Retry-After says, and send the same again.";
    stopping, SERVICE_UNAVAILABLE, "STOPPING", Transient, true,
        "The server is about to stop. Nothing of this call was written.",
        "Send the same again, to another node or in a moment.";
    internal, INTERNAL_SERVER_ERROR, "INTERNAL", Permanent, false,
        "A defect of Windlass: it could not finish the call.",
        "Report it with the trace id. The log has more.";
}

impl Problem {
    /// A problem that has the code of a refusal of the rules.
    fn of_info(status: StatusCode, info: &CodeInfo, detail: String) -> Self {
        Self {
            status,
            code: info.code,
            class: info.class,
            retryable: info.retryable,
            title: info.meaning,
            detail,
            job_id: None,
            retry_after: None,
            cause: None,
        }
    }

    /// There is no such job, or it is another tenant's: the two look the same.
    pub(crate) fn not_found(what: &'static str) -> Self {
        Refusal::NotFound { what }.into()
    }

    /// The same, about this job.
    pub(crate) fn of_job(self, id: JobId) -> Self {
        Self { job_id: Some(id), ..self }
    }

    /// The same without what names of rules begin with inside: the caller gave them without it.
    pub(crate) fn seen_by(mut self, scope: &Scope) -> Self {
        if let Some(tenant) = scope.tenant().filter(|_| self.code == "DRAINING") {
            self.detail = self.detail.replace(&format!("rule {tenant}/"), "rule ");
        }
        self
    }

    /// The document.
    pub(crate) fn document(&self, trace_id: &str) -> ProblemDocument {
        ProblemDocument {
            kind: format!("/docs/errors#{}", self.code),
            title: self.title.to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code.to_owned(),
            class: self.class,
            retryable: self.retryable,
            trace_id: trace_id.to_owned(),
            job_id: self.job_id,
        }
    }

    /// The answer that tells it.
    pub(crate) fn response(&self, trace_id: &str) -> Response<Body> {
        let document = serde_json::to_string(&self.document(trace_id)).expect("it is plain data");
        let mut response = Response::new(Body::from(document));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match &refusal {
            Refusal::NotFound { .. } => StatusCode::NOT_FOUND,
            Refusal::Invalid { .. } | Refusal::HistoryLimit { .. } => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            _ => StatusCode::CONFLICT,
        };
        let mut problem = Self::of_info(status, refusal.info(), refusal.to_string());
        problem.job_id = match refusal {
            Refusal::IdempotencyConflict { job_id, .. }
            | Refusal::JobExists { job_id }
            | Refusal::TaskActive { job_id, .. } => Some(job_id),
            _ => None,
        };
        problem
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Self {
        (&error).into()
    }
}

impl From<&store::Error> for Problem {
    fn from(error: &store::Error) -> Self {
        let status = match error {
            store::Error::FeedGone { .. } => StatusCode::GONE,
            store::Error::Contradiction(_) | store::Error::Damaged(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut problem = Self::of_info(status, error.info(), error.to_string());
        problem.retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        problem.cause = causes(error).map(|causes| Box::new(Cause(causes)));
        problem
    }
}

/// The causes of an error, one after the other, without the error itself.
fn causes(error: &dyn std::error::Error) -> Option<String> {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.map(ToString::to_string).reduce(|all, next| format!("{all}: {next}"))
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::Store(error) => (&*error).into(),
            Error::Busy => {
                Self { retry_after: Some(1), ..Self::overloaded("too many writes are waiting") }
            }
            Error::Closed => Self { retry_after: Some(1), ..Self::stopping("the server stops") },
            Error::NoJob(id) => Self::not_found("job").of_job(id),
            other => Self::internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_testkit::docs::{compare_page, errors_page};

    use super::*;

    #[test]
    fn the_page_on_errors_is_up_to_date() {
        let page = errors_page(store::Error::CODES, CODES);
        compare_page("errors.md", &page);
    }

    #[test]
    fn the_log_is_told_the_cause_and_the_caller_is_not() {
        let why = std::io::Error::other("55P03 canceling statement due to lock timeout");
        let problem = Problem::from(store::Error::Unavailable(why.into()));
        let cause = problem.cause.clone().unwrap();
        assert_eq!(cause.0, "55P03 canceling statement due to lock timeout");
        let document = serde_json::to_string(&problem.document("t-1")).unwrap();
        assert!(!document.contains("55P03"), "{document}");
    }

    #[test]
    fn every_code_has_its_status_in_the_document() {
        let problem = Problem::from(Refusal::StaleAttempt).of_job(JobId::from_u128(7));
        let document = serde_json::to_value(problem.document("t-1")).unwrap();
        let expected = serde_json::json!({
            "type": "/docs/errors#STALE_ATTEMPT",
            "title": Refusal::StaleAttempt.info().meaning,
            "status": 409,
            "detail": "this epoch holds no lease of the job",
            "code": "STALE_ATTEMPT",
            "class": "business_rule",
            "retryable": false,
            "trace_id": "t-1",
            "job_id": "job_00000000000000000000000007",
        });
        assert_eq!(document, expected);
    }
}
