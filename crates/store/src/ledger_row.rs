//! Steps, mail and late effects as rows say them, in whichever database they stand.

use serde::{Deserialize, Serialize};
use windlass_kernel::{
    Actor, Epoch, Failure, JobId, Payload, State, Timestamp,
    ids::StepKey,
    ledger::{
        Effect, LedgerHead, Mail, MailContent, MailName, Record, RecordedBy, Shape, Step,
        StepOutcome,
    },
};

use crate::job_row::json;

/// All that a row says of a step, but for its key, its number and its output.
#[derive(Debug, Serialize, Deserialize)]
struct StepDocument {
    #[serde(flatten)]
    shape: Shape,
    epoch: Epoch,
    #[serde(default, skip_serializing_if = "is_zero")]
    call_id: u64,
    begun_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(default, skip_serializing_if = "is_none")]
    tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_try_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    not_done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<RecordDocument>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordDocument {
    attempt: u32,
    at: Timestamp,
    by: RecordedBy,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

/// The columns of a step.
pub(crate) struct StepColumns {
    pub(crate) number: Option<u32>,
    pub(crate) step: String,
    pub(crate) output: Option<String>,
}

impl StepColumns {
    pub(crate) fn of(step: &Step) -> Self {
        let record = step.record.as_ref();
        let document = StepDocument {
            shape: step.shape.clone(),
            epoch: step.epoch,
            call_id: step.call_id,
            begun_at: step.begun_at,
            until: step.until,
            location: step.location.clone(),
            tries: step.tries,
            failure: step.failure.clone(),
            next_try_at: step.next_try_at,
            not_done: step.not_done,
            record: record.map(|record| RecordDocument {
                attempt: record.attempt,
                at: record.at,
                by: record.by,
                failed: record.outcome.is_failed(),
            }),
        };
        Self {
            number: record.map(|record| record.number),
            step: json(&document),
            output: record.map(|record| outcome_text(&record.outcome)),
        }
    }

    /// The step that the columns tell; the error says what is wrong with them.
    pub(crate) fn step(self, job_id: JobId, key: StepKey) -> Result<Step, String> {
        let document: StepDocument =
            serde_json::from_str(&self.step).map_err(|error| error.to_string())?;
        let record = match (document.record, self.number, self.output) {
            (None, None, None) => None,
            (Some(record), Some(number), Some(output)) => Some(Record {
                number,
                attempt: record.attempt,
                at: record.at,
                outcome: outcome_of(record.failed, &output)?,
                by: record.by,
            }),
            _ => return Err("a record has a number and an output".to_owned()),
        };
        Ok(Step {
            job_id,
            key,
            shape: document.shape,
            epoch: document.epoch,
            call_id: document.call_id,
            begun_at: document.begun_at,
            until: document.until,
            location: document.location,
            tries: document.tries,
            failure: document.failure,
            next_try_at: document.next_try_at,
            not_done: document.not_done,
            record,
        })
    }
}

/// What came of a step, as a column has it.
pub(crate) fn outcome_text(outcome: &StepOutcome) -> String {
    match outcome {
        StepOutcome::Done(payload) => payload.as_str().to_owned(),
        StepOutcome::Failed(failure) => json(failure),
    }
}

pub(crate) fn outcome_of(failed: bool, text: &str) -> Result<StepOutcome, String> {
    match failed {
        true => serde_json::from_str(text).map(StepOutcome::Failed).map_err(|e| e.to_string()),
        false => payload(text).map(StepOutcome::Done),
    }
}

fn payload(text: &str) -> Result<Payload, String> {
    Payload::parse(text, LedgerHead::RESULT_BYTES_MAX).map_err(|refusal| refusal.to_string())
}

/// The columns of mail.
pub(crate) struct MailColumns {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) at: Timestamp,
    pub(crate) sender: String,
    /// `payload`, `rejected` or `ended`.
    pub(crate) sort: String,
    pub(crate) content: String,
    pub(crate) taken: bool,
}

impl MailColumns {
    pub(crate) fn of(mail: &Mail) -> Self {
        let (sort, content) = match &mail.content {
            MailContent::Payload(payload) => ("payload", payload.as_str().to_owned()),
            MailContent::Rejected(failure) => ("rejected", json(failure)),
            MailContent::Ended(state) => ("ended", state.as_str().to_owned()),
        };
        Self {
            name: mail.name.text(),
            number: mail.number,
            at: mail.at,
            sender: mail.by.to_string(),
            sort: sort.to_owned(),
            content,
            taken: mail.taken,
        }
    }

    /// The mail that the columns tell; the error says what is wrong with them.
    pub(crate) fn mail(self, job_id: JobId) -> Result<Mail, String> {
        let content = match self.sort.as_str() {
            "payload" => MailContent::Payload(payload(&self.content)?),
            "rejected" => MailContent::Rejected(
                serde_json::from_str(&self.content).map_err(|error| error.to_string())?,
            ),
            "ended" => MailContent::Ended(
                State::parse(&self.content)
                    .ok_or_else(|| format!("{} is no state", self.content))?,
            ),
            other => return Err(format!("{other} is no sort of mail")),
        };
        Ok(Mail {
            job_id,
            name: MailName::parse(&self.name).map_err(|refusal| refusal.to_string())?,
            number: self.number,
            content,
            at: self.at,
            by: Actor::try_from(self.sender).map_err(|refusal| refusal.to_string())?,
            taken: self.taken,
        })
    }
}

/// The late effect that columns tell.
pub(crate) fn effect_of(
    job_id: JobId,
    key: StepKey,
    epoch: u64,
    at: Timestamp,
    failed: bool,
    outcome: &str,
) -> Result<Effect, String> {
    let outcome = outcome_of(failed, outcome)?;
    Ok(Effect { job_id, key, epoch: Epoch::new(epoch), at, outcome })
}
