//! Ledgers: steps of durable jobs, what comes for them from outside, and what people state.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    Class, Epoch, Failure, JobId, Payload, Refusal, Timestamp, WorkerId,
    ids::{Channel, CorrelationKey, MessageId, StepKey},
    ledger::{
        LedgerHead, Mail, MailContent, MailName, Mode, RecordedBy, Step, StepAnswer, StepOp,
        StepOutcome,
    },
};

use super::{ErrorBody, FailureDocument, raw::raw};

/// A signal for a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignalBody {
    /// What the handler waits for. There is one signal for each key of a job, for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub correlation_key: Option<CorrelationKey>,
    /// What it brings; null, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
    /// A no, instead of a payload: the handler gets this error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Refuse it if the job does not wait for it now.
    #[serde(default)]
    pub expect_waiting: bool,
}

/// A message for a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MessageBody {
    /// Where it comes in. Messages of a channel are taken in the order in which they came.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub channel: Channel,
    /// Tells it from all others of the channel: the same again changes nothing.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub message_id: MessageId,
    /// What it brings; null, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
}

/// What became of a signal or a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeliveredDocument {
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// Did the job wait for it? Then it goes on.
    pub delivered: bool,
    /// Is it kept until the handler asks for it?
    pub kept: bool,
    /// Had it come before?
    pub duplicate: bool,
    /// What the job waits for now.
    pub waiting_on: Vec<String>,
}

/// A payload that need not be said.
pub(crate) fn content(payload: Option<&RawValue>) -> Result<Payload, Refusal> {
    Payload::parse(payload.map_or("null", RawValue::get), LedgerHead::RESULT_BYTES_MAX)
}

impl SignalBody {
    /// What it is known by, and what it brings.
    pub fn into_mail(self) -> Result<(MailName, MailContent), Refusal> {
        let key = self.correlation_key;
        let needed = || Refusal::invalid("correlation_key", "says what the handler waits for");
        let name = MailName::Signal(key.ok_or_else(needed)?);
        let content = match (self.error, self.payload) {
            (Some(_), Some(_)) => {
                return Err(Refusal::invalid("payload", "and error exclude each other"));
            }
            (Some(error), None) => MailContent::Rejected(rejected(&error)),
            (None, payload) => MailContent::Payload(content(payload.as_deref())?),
        };
        Ok((name, content))
    }
}

/// What a person or a worker says went wrong with a step: it is final.
pub fn final_failure(error: &ErrorBody) -> Failure {
    rejected(error)
}

/// A no need not say whether it may be tried again: it is final.
fn rejected(error: &ErrorBody) -> Failure {
    let (code, message) = (error.code.clone(), error.message.clone());
    let retryable = error.retryable.unwrap_or(false);
    let class = error.class.unwrap_or(Class::BusinessRule);
    FailureDocument { code, message, class, retryable }.into()
}

impl MessageBody {
    /// What it is known by, and what it brings.
    pub fn into_mail(self) -> Result<(MailName, MailContent), Refusal> {
        let name = MailName::Message { channel: self.channel, id: self.message_id };
        Ok((name, MailContent::Payload(content(self.payload.as_deref())?)))
    }
}

/// One step of a durable job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepDocument {
    /// Its name within the job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub step_key: StepKey,
    /// What it is: step, sleep, signal, recv, child, callback, version, publish or checkpoint.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub op: StepOp,
    /// What may happen to its effect: once, idempotent or pure.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub mode: Option<Mode>,
    /// `recorded`, `failed`, `begun`, or `unknown`: a worker that is gone began it, and nobody knows what became of it.
    pub state: String,
    /// Its place in the order in which the handler saw what came of its steps.
    pub number: Option<u32>,
    /// The epoch that last began it.
    pub epoch: u64,
    /// Tries that have failed.
    pub tries: u32,
    /// The place in the code that asked for it.
    pub location: Option<String>,
    /// When it was first begun.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub begun_at: Timestamp,
    /// When it was recorded.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub recorded_at: Option<Timestamp>,
    /// How its outcome is known: executed, late_effect, reconciled or stated.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub recorded_by: Option<RecordedBy>,
    /// When its wait is over in any case.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub until: Option<Timestamp>,
    /// The key for systems downstream.
    pub idempotency_key: String,
    /// Its result, byte for byte.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub output: Option<Box<RawValue>>,
    /// How it failed, or how its last try did.
    pub error: Option<FailureDocument>,
}

impl StepDocument {
    /// The step of a job that is at this epoch.
    pub fn of(step: &Step, job_epoch: Epoch) -> Self {
        let record = step.record.as_ref();
        let state = match record.map(|record| &record.outcome) {
            Some(StepOutcome::Done(_)) => "recorded",
            Some(StepOutcome::Failed(_)) => "failed",
            None if step.is_behind_barrier(job_epoch) => "unknown",
            None => "begun",
        };
        let (output, error) = match record.map(|record| &record.outcome) {
            Some(StepOutcome::Done(payload)) => (raw(payload.as_str().to_owned()), None),
            Some(StepOutcome::Failed(failure)) => (None, Some(failure)),
            None => (None, step.failure.as_ref()),
        };
        Self {
            step_key: step.key.clone(),
            op: step.shape.op,
            mode: step.shape.mode,
            state: state.to_owned(),
            number: record.map(|record| record.number),
            epoch: step.epoch.get(),
            tries: step.tries,
            location: step.location.clone(),
            begun_at: step.begun_at,
            recorded_at: record.map(|record| record.at),
            recorded_by: record.map(|record| record.by),
            until: step.until,
            idempotency_key: Step::downstream_key(step.job_id, &step.key, step.shape.input),
            output,
            error: error.map(FailureDocument::from),
        }
    }
}

/// Something that came for a durable job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MailDocument {
    /// `signal`, `message` or `child`.
    pub sort: String,
    /// The correlation key, the channel, or the id of the child.
    pub name: String,
    /// The id of a message.
    pub message_id: Option<String>,
    /// Its place in the order in which mail came.
    pub number: u32,
    /// When it came.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at: Timestamp,
    /// Who sent it.
    pub by: String,
    /// Has the handler taken it?
    pub taken: bool,
    /// What it brought.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
    /// The no that came instead.
    pub error: Option<FailureDocument>,
}

impl From<&Mail> for MailDocument {
    fn from(mail: &Mail) -> Self {
        let (sort, name, message_id) = match &mail.name {
            MailName::Signal(key) => ("signal", key.to_string(), None),
            MailName::Message { channel, id } => {
                ("message", channel.to_string(), Some(id.to_string()))
            }
            MailName::Child(child) => ("child", child.to_string(), None),
        };
        let (payload, error) = match &mail.content {
            MailContent::Payload(payload) => (raw(payload.as_str().to_owned()), None),
            MailContent::Rejected(failure) => (None, Some(FailureDocument::from(failure))),
            MailContent::Ended(state) => (raw(format!("\"{state}\"")), None),
        };
        Self {
            sort: sort.to_owned(),
            name,
            message_id,
            number: mail.number,
            at: mail.at,
            by: mail.by.to_string(),
            taken: mail.taken,
            payload,
            error,
        }
    }
}

/// The ledger of a durable job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerDocument {
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// Its steps: those on record in their order, then those that are not.
    pub steps: Vec<StepDocument>,
    /// What came for it from outside, in the order in which it came.
    pub mail: Vec<MailDocument>,
}

/// What a person states of a step, or only that the job may go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResolveBody {
    /// The step that the job asks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub step_key: Option<StepKey>,
    /// It happened, and this is its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub output: Option<Box<RawValue>>,
    /// It failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Nothing happened: it may run again.
    #[serde(default)]
    pub not_done: bool,
    /// Why, in the caller's words.
    pub reason: String,
}

/// The begin of a step by a worker elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StepBegin {
    /// Its name, and its place among those of the same name: `charge`, `charge#2`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub step_key: StepKey,
    /// What may happen to its effect.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub mode: Mode,
    /// Tells this call from another one that begins the same step.
    pub call_id: u64,
    /// What goes into it. It is part of its key, and a replay compares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub input: Option<Box<RawValue>>,
}

/// A worker elsewhere begins a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BeginBody {
    /// The worker that holds the lease. It need not be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub worker_id: Option<WorkerId>,
    /// The epoch of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// The step.
    pub begin: StepBegin,
}

/// A worker elsewhere records what came of a step, and may begin the next one with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CommitBody {
    /// The worker that holds the lease. It need not be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub worker_id: Option<WorkerId>,
    /// The epoch of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// The step.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub step_key: StepKey,
    /// Its mode.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub mode: Mode,
    /// What went into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub input: Option<Box<RawValue>>,
    /// Its result; null, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub output: Option<Box<RawValue>>,
    /// It failed for good, or, with `not_done`, this try did and nothing happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// With an error: it is certain that nothing happened, so it may be tried again.
    #[serde(default)]
    pub not_done: bool,
    /// The other side was asked what had happened.
    #[serde(default)]
    pub reconciled: bool,
    /// The next step, begun in the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<StepBegin>,
}

/// A worker elsewhere hands in what came of a step, also after its lease is lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EffectBody {
    /// The worker that began it. It need not be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub worker_id: Option<WorkerId>,
    /// The epoch that began it.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// The step.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub step_key: StepKey,
    /// Its result; null, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub output: Option<Box<RawValue>>,
}

/// What a worker elsewhere is told of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionDocument {
    /// The step.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub step_key: StepKey,
    /// `execute`, `recorded`, `wait`, `barrier` or `done`; `noted` for a try that failed.
    pub decision: String,
    /// The key for systems downstream.
    pub idempotency_key: String,
    /// Its place among the records.
    pub number: Option<u32>,
    /// Tries that have failed before.
    pub tries: Option<u32>,
    /// The recorded result.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub output: Option<Box<RawValue>>,
    /// The recorded failure.
    pub error: Option<FailureDocument>,
}

impl DecisionDocument {
    /// What was decided of a step of this job.
    pub fn of(step_key: StepKey, idempotency_key: String, answer: &StepAnswer) -> Self {
        let mut document = Self {
            step_key,
            decision: String::new(),
            idempotency_key,
            number: None,
            tries: None,
            output: None,
            error: None,
        };
        let decision = match answer {
            StepAnswer::Execute { tries, .. } => {
                document.tries = Some(*tries);
                "execute"
            }
            StepAnswer::Recorded(record) => {
                document.number = Some(record.number);
                match &record.outcome {
                    StepOutcome::Done(payload) => {
                        document.output = raw(payload.as_str().to_owned());
                    }
                    StepOutcome::Failed(failure) => document.error = Some(failure.into()),
                }
                "recorded"
            }
            StepAnswer::Wait => "wait",
            StepAnswer::Barrier { .. } => "barrier",
            StepAnswer::Done { number } => {
                document.number = Some(*number);
                "done"
            }
            StepAnswer::Noted => "noted",
        };
        document.decision = decision.to_owned();
        document
    }
}

/// What was decided of the steps of a call, in the order of the call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionsDocument {
    /// One for each.
    pub steps: Vec<DecisionDocument>,
}

/// A worker elsewhere saves the state of its handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckpointBody {
    /// The worker that holds the lease. It need not be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub worker_id: Option<WorkerId>,
    /// The epoch of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// The state.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub state: Box<RawValue>,
}

/// A worker elsewhere parks its job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ParkBody {
    /// The worker that holds the lease. It need not be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub worker_id: Option<WorkerId>,
    /// The epoch of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// The signal that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub correlation_key: Option<CorrelationKey>,
    /// When it goes on in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub until: Option<Timestamp>,
    /// The same, as a length of time from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// A person has to decide, instead of a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<OperatorBody>,
}

/// What a person has to decide.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OperatorBody {
    /// Why, as a code, such as `EFFECT_UNKNOWN`.
    pub code: String,
    /// The same for people.
    pub message: String,
    /// The step whose outcome is to be stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub step_key: Option<StepKey>,
}
