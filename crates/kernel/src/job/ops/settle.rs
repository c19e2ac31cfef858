//! Settle: a worker reports how its execution ended.
//!
//! Only the epoch that holds the lease may settle. An older epoch belongs to a worker that lost its
//! lease: it is refused, and nothing changes. The same settle again gets the answer it got before; another one of the
//! epoch that ended the job is an illegal move.

use std::sync::LazyLock;

use crate::footprint::{Footprint, size};
use crate::{
    Answer, By, Cause, Digest, Epoch, Fact, Failure, Jitter, Job, JobId, OpKind, Payload, Refusal,
    State, Timestamp, Transition,
    job::Settled,
    ops::{bury, cancel, check_reason, fence},
    transition::Draft,
};

/// A worker reports how its execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
    /// How it ended.
    pub outcome: Outcome,
    /// Figures for the attempt.
    pub stats: Option<Payload>,
    /// The jitter of the retry, if one follows.
    pub jitter: Jitter,
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Succeeded {
        /// What came out.
        result: Option<Payload>,
    },
    /// Done in part.
    Partial {
        /// What came out.
        result: Option<Payload>,
        /// What is left to do.
        remaining: Payload,
    },
    /// Not done.
    Failed(Failure),
    /// The handler stopped because it was asked to, or by itself.
    Cancelled {
        /// In its words.
        reason: Option<String>,
    },
}

impl Outcome {
    /// What identifies a settle, together with its job and epoch.
    pub fn digest(&self) -> Digest {
        /// Most handlers give nothing back.
        static PLAIN: LazyLock<Digest> = LazyLock::new(|| Digest::of("succeeded -"));
        let of = |payload: &Option<Payload>| {
            payload.as_ref().map_or_else(|| "-".to_owned(), |payload| payload.digest().to_string())
        };
        Digest::of(&match self {
            Outcome::Succeeded { result: None } => return *PLAIN,
            Outcome::Succeeded { result } => format!("succeeded {}", of(result)),
            Outcome::Partial { result, remaining } => {
                format!("partial {} {}", of(result), remaining.digest())
            }
            Outcome::Failed(failure) => {
                let failure = serde_json::to_string(failure).expect("a failure is plain data");
                format!("failed {failure}")
            }
            Outcome::Cancelled { reason: None } => "cancelled".to_owned(),
            Outcome::Cancelled { reason: Some(reason) } => format!("cancelled {reason}"),
        })
    }
}

impl Settle {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let outcome = match &self.outcome {
            Outcome::Succeeded { result } => size(result.as_ref()),
            Outcome::Partial { result, remaining } => size(result.as_ref()) + size(Some(remaining)),
            Outcome::Failed(failure) => failure.message.len(),
            Outcome::Cancelled { reason } => reason.as_ref().map_or(0, String::len),
        };
        Footprint::of_lease(self.job_id).carrying(outcome + size(self.stats.as_ref()))
    }
}

pub(crate) fn decide(job: &Job, op: &Settle, now: Timestamp) -> Result<Transition, Refusal> {
    let settle = op.outcome.digest();
    if let Some(settled) = job.recorded_settle(op.epoch, settle) {
        return Ok(Transition { answer: answer_again(job, settled), ..Transition::unchanged(job) });
    }
    let by = fence(job, op.epoch, &op.by, OpKind::Settle)?;
    if job.state != State::Running {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Settle });
    }
    let mut draft = Draft::of(job, OpKind::Settle, &by, now);
    match &op.outcome {
        Outcome::Succeeded { result } => {
            let digest = result.as_ref().map(Payload::digest);
            draft.record(
                Cause::Completed,
                Fact::Finished { settle, result: digest, remaining: None },
            )?;
            draft.transition().result = result.clone();
        }
        Outcome::Partial { result, remaining } => {
            let fact = Fact::Finished {
                settle,
                result: result.as_ref().map(Payload::digest),
                remaining: Some(remaining.digest()),
            };
            draft.record(Cause::CompletedInPart, fact)?;
            draft.transition().result = result.clone();
            draft.transition().remaining = Some(remaining.clone());
        }
        Outcome::Failed(failure) => {
            let failure = failure.bounded()?;
            fail(&mut draft, Cause::RetryableError, failure, op.jitter, Some(settle), now)?;
        }
        Outcome::Cancelled { reason } => {
            check_reason(reason.as_deref())?;
            // A handler that says nothing stopped for the reason that it was given.
            let asked = || job.cancel.as_ref().and_then(|request| request.reason.clone());
            let reason = reason.clone().or_else(asked);
            let fact = Fact::Cancelled { reason, failure: None, settle: Some(settle) };
            draft.record(Cause::CancelCommand, fact)?;
        }
    }
    Ok(draft.finish(op.stats.clone()))
}

/// What the settle was told, whatever became of the job since.
fn answer_again(job: &Job, settled: &Settled) -> Answer {
    Answer {
        job_id: job.id,
        state: settled.state,
        recorded: true,
        epoch: settled.epoch,
        leased_until: None,
        next_retry_at: settled.next_retry_at,
        dlq_id: job.dlq_id.filter(|_| settled.state == State::Failed),
        cancel_requested: false,
        steps: Vec::new(),
        delivered: false,
    }
}

/// An execution failed: retry, bury, or cancel what was to be cancelled anyway.
pub(crate) fn fail(
    draft: &mut Draft<'_>,
    cause: Cause,
    failure: Failure,
    jitter: Jitter,
    settle: Option<Digest>,
    now: Timestamp,
) -> Result<(), Refusal> {
    let job = draft.job();
    let (spec, retry_count) = (job.spec.clone(), job.retry_count + 1);
    if !failure.retryable {
        bury::record(draft, Cause::NonRetryableError, failure, settle, now)
    } else if retry_count > spec.max_retries {
        bury::record(draft, Cause::RetriesExhausted, failure, settle, now)
    } else if job.cancel.is_some() {
        cancel::record(draft, settle)
    } else {
        let next_retry_at = spec.retry.next_at(retry_count, jitter, failure.retry_after, now);
        draft.record(cause, Fact::Retry { failure, next_retry_at, settle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settles_that_say_something_else_have_another_identity() {
        let json = |text| Payload::parse(text, 100).unwrap();
        let failure = Failure::transient("SMTP_BUSY", "try later");
        let other = Failure { message: "never".to_owned(), ..failure.clone() };
        let reason = |text: &str| Some(text.to_owned());
        let outcomes = [
            Outcome::Succeeded { result: None },
            Outcome::Succeeded { result: Some(json("1")) },
            Outcome::Succeeded { result: Some(json("2")) },
            Outcome::Partial { result: None, remaining: json("1") },
            Outcome::Partial { result: None, remaining: json("2") },
            Outcome::Partial { result: Some(json("1")), remaining: json("1") },
            Outcome::Failed(failure),
            Outcome::Failed(other),
            Outcome::Cancelled { reason: None },
            Outcome::Cancelled { reason: reason("enough") },
            Outcome::Cancelled { reason: reason("") },
        ];
        for (place, outcome) in outcomes.iter().enumerate() {
            let same = outcomes[..place].iter().find(|other| other.digest() == outcome.digest());
            assert_eq!(same, None, "{outcome:?}");
        }
        let twin = Outcome::Succeeded { result: Some(json(" 1 ")) };
        assert_eq!(twin.digest(), outcomes[1].digest(), "white space does not matter");
        assert_eq!(outcomes[0].digest(), Digest::of("succeeded -"), "rows have it so");
    }
}
