//! Ledgers: the steps of durable jobs, signals and messages for them, and what people state.

use std::time::Duration;

use axum::http::StatusCode;
use windlass::wire::{
    BeginBody, CheckpointBody, CommitBody, DecisionDocument, DecisionsDocument, DeliveredDocument,
    EffectBody, LedgerDocument, MailDocument, MessageBody, OperatorBody, ParkBody, ResolveBody,
    SignalBody, StepBegin, StepDocument, final_failure,
};
use windlass_kernel::{
    Digest, JobId, Op, Payload, Refusal,
    job::{Wait, WaitOn},
    ledger::{
        LedgerHead, MailContent, MailName, Mode, RecordedBy, Shape, Step, StepAnswer, StepOutcome,
    },
    ops::{
        Advance, Checkpoint, Entry, HandIn, Happened, Resolve, Signal, Stated, Statement, WaitFor,
    },
};
use windlass_store::TenantOp;

use crate::http::{
    api::{jobs, leases},
    core::{
        problem::Problem,
        route::{Answer, Call},
    },
};

/// `GET /api/v1/jobs/{id}/steps`
pub(crate) async fn steps(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    let job = call.app.job(&call, id).await?;
    let store = call.engine().own_store()?;
    let ledger = store.ledger(call.scope(), id, 0).await?.unwrap_or_default();
    let steps = ledger.steps.iter().map(|step| StepDocument::of(step, job.epoch)).collect();
    let mail = ledger.mails.iter().map(MailDocument::from).collect();
    Ok(Answer::ok(&LedgerDocument { job_id: id, steps, mail }))
}

/// Is the job there for the caller? Asked first, so that nobody learns of another tenant's job, whatever is sent.
async fn known(call: &Call) -> Result<(), Problem> {
    call.app.job(call, call.job_id()?).await.map(drop)
}

/// `POST /api/v1/jobs/{id}/signals`, and `POST /api/jobs/{id}/signal`
pub(crate) async fn signal(call: Call) -> Result<Answer, Problem> {
    known(&call).await?;
    let body: SignalBody = call.body()?;
    let expect_waiting = body.expect_waiting;
    if body.correlation_key.is_none() {
        return Err(Problem::malformed(
            "correlation_key is needed: it says what the handler waits for",
        ));
    }
    let (name, content) = body.into_mail()?;
    deliver(&call, name, content, expect_waiting).await
}

/// `POST /api/v1/jobs/{id}/messages`
pub(crate) async fn message(call: Call) -> Result<Answer, Problem> {
    known(&call).await?;
    let body: MessageBody = call.body()?;
    let (name, content) = body.into_mail()?;
    deliver(&call, name, content, false).await
}

/// What came is kept, or wakes the job at once. 202 says that nobody waits for it yet.
async fn deliver(
    call: &Call,
    name: MailName,
    content: MailContent,
    expect_waiting: bool,
) -> Result<Answer, Problem> {
    let job_id = call.job_id()?;
    let tenant = call.app.job(call, job_id).await?.spec.tenant.clone();
    let op = Op::from(Signal { job_id, name, content, expect_waiting, by: call.by() });
    let (answer, job) = submit(call, job_id, TenantOp { tenant, op }).await?;
    let waiting_on = job.and_then(|job| Some(job.wait.as_ref()?.on.awaited())).unwrap_or_default();
    let (delivered, duplicate) = (answer.delivered, answer.recorded);
    let kept = !delivered && !duplicate;
    let status = if kept { StatusCode::ACCEPTED } else { StatusCode::OK };
    let document = DeliveredDocument { job_id, delivered, kept, duplicate, waiting_on };
    Ok(Answer::json(status, &document))
}

type Reply = (windlass_kernel::Answer, Option<std::sync::Arc<windlass_kernel::Job>>);

async fn submit(call: &Call, job_id: JobId, request: TenantOp) -> Result<Reply, Problem> {
    let reply = call.engine().submit(request).await;
    reply.map_err(|error| Problem::from(error).of_job(job_id))
}

/// `POST /api/v1/jobs/{id}/resolve`
pub(crate) async fn resolve(call: Call) -> Result<Answer, Problem> {
    known(&call).await?;
    let body: ResolveBody = call.body()?;
    let id = call.job_id()?;
    let said = [body.output.is_some(), body.error.is_some(), body.not_done];
    let count = said.into_iter().filter(|it| *it).count();
    let statement = match body.step_key {
        None if count > 0 => {
            return Err(Refusal::invalid("step_key", "says which step it is about").into());
        }
        None => None,
        Some(_) if count != 1 => {
            let why = "needs one of output, error and not_done";
            return Err(Refusal::invalid("step_key", why).into());
        }
        Some(key) => {
            let what = match (body.output, body.error) {
                (Some(output), _) => {
                    let payload = Payload::parse(output.get(), LedgerHead::RESULT_BYTES_MAX)?;
                    Stated::Happened(StepOutcome::Done(payload))
                }
                (None, Some(error)) => Stated::Happened(StepOutcome::Failed(final_failure(&error))),
                (None, None) => Stated::NotDone,
            };
            Some(Statement { key, what })
        }
    };
    let op = Resolve { job_id: id, statement, reason: body.reason, by: call.by() };
    jobs::act(&call, id, op.into()).await
}

/// `POST /api/v1/jobs/{id}/steps/begin`
pub(crate) async fn begin(call: Call) -> Result<Answer, Problem> {
    known(&call).await?;
    let body: BeginBody = call.body()?;
    let by = leases::by(&call, body.worker_id.as_ref())?;
    let entries = vec![begun(body.begin)?];
    let job_id = call.job_id()?;
    advance(&call, Advance { job_id, epoch: body.epoch, by, entries }).await
}

/// `POST /api/v1/jobs/{id}/steps/commit`
pub(crate) async fn commit(call: Call) -> Result<Answer, Problem> {
    known(&call).await?;
    let body: CommitBody = call.body()?;
    let by = leases::by(&call, body.worker_id.as_ref())?;
    let job_id = call.job_id()?;
    let (key, shape) = (body.step_key, shape(body.mode, body.input.as_deref())?);
    let what = match (body.error, body.not_done) {
        (Some(error), true) => {
            Happened::TryFailed { failure: final_failure(&error), next_try_at: None }
        }
        (None, true) => return Err(Refusal::invalid("not_done", "comes with an error").into()),
        (Some(error), false) => {
            recorded(StepOutcome::Failed(final_failure(&error)), body.reconciled)
        }
        (None, false) => {
            let text = body.output.as_ref().map_or("null", |output| output.get());
            let payload = Payload::parse(text, LedgerHead::RESULT_BYTES_MAX)?;
            recorded(StepOutcome::Done(payload), body.reconciled)
        }
    };
    let mut entries = vec![Entry { key, shape, location: None, what }];
    entries.extend(body.begin.map(begun).transpose()?);
    advance(&call, Advance { job_id, epoch: body.epoch, by, entries }).await
}

fn recorded(outcome: StepOutcome, reconciled: bool) -> Happened {
    let by = if reconciled { RecordedBy::Reconciled } else { RecordedBy::Executed };
    Happened::Recorded { outcome, by, mail: None }
}

fn begun(begin: StepBegin) -> Result<Entry, Problem> {
    let shape = shape(begin.mode, begin.input.as_deref())?;
    let what = Happened::Begun { call_id: begin.call_id, until: None };
    Ok(Entry { key: begin.step_key, shape, location: None, what })
}

fn shape(mode: Mode, input: Option<&serde_json::value::RawValue>) -> Result<Shape, Problem> {
    let input = input.map(|input| Payload::parse(input.get(), LedgerHead::RESULT_BYTES_MAX));
    let input: Option<Digest> = input.transpose()?.map(|input| input.digest());
    Ok(Shape::step(mode, input))
}

async fn advance(call: &Call, op: Advance) -> Result<Answer, Problem> {
    let job_id = op.job_id;
    let keys: Vec<_> =
        op.entries.iter().map(|entry| (entry.key.clone(), entry.shape.input)).collect();
    let tenant = call.app.job(call, job_id).await?.spec.tenant.clone();
    let (answer, _) = submit(call, job_id, TenantOp { tenant, op: op.into() }).await?;
    let decided = |((key, input), answer): ((_, _), &StepAnswer)| {
        let idempotency_key = Step::downstream_key(job_id, &key, input);
        DecisionDocument::of(key, idempotency_key, answer)
    };
    let steps = keys.into_iter().zip(&answer.steps).map(decided).collect();
    Ok(Answer::ok(&DecisionsDocument { steps }))
}

/// `POST /api/v1/jobs/{id}/effects`
pub(crate) async fn effect(call: Call) -> Result<Answer, Problem> {
    known(&call).await?;
    let body: EffectBody = call.body()?;
    let by = leases::by(&call, body.worker_id.as_ref())?;
    let job_id = call.job_id()?;
    let text = body.output.as_ref().map_or("null", |output| output.get());
    let outcome = StepOutcome::Done(Payload::parse(text, LedgerHead::RESULT_BYTES_MAX)?);
    let op = HandIn { job_id, key: body.step_key, epoch: body.epoch, outcome, by };
    jobs::act(&call, job_id, op.into()).await
}

/// `POST /api/v1/jobs/{id}/waits`
pub(crate) async fn wait(call: Call) -> Result<Answer, Problem> {
    known(&call).await?;
    let body: ParkBody = call.body()?;
    let by = leases::by(&call, body.worker_id.as_ref())?;
    let job_id = call.job_id()?;
    let within = body.timeout_ms.map(Duration::from_millis);
    let until = body.until.or_else(|| within.map(|within| call.engine().now().plus(within)));
    let on = match (body.operator, body.correlation_key) {
        (Some(_), Some(_)) => {
            let why = "and correlation_key exclude each other";
            return Err(Refusal::invalid("operator", why).into());
        }
        (Some(OperatorBody { code, message, step_key }), None) => {
            WaitOn::Operator { code, step: step_key, message }
        }
        (None, Some(key)) => WaitOn::Signal(key),
        (None, None) => WaitOn::Time,
    };
    let wait = Wait { on, until };
    let op = WaitFor { job_id, epoch: body.epoch, by, wait, mails_seen: None };
    jobs::act(&call, job_id, op.into()).await
}

/// `POST /api/v1/jobs/{id}/checkpoint`
pub(crate) async fn checkpoint(call: Call) -> Result<Answer, Problem> {
    known(&call).await?;
    let body: CheckpointBody = call.body()?;
    let by = leases::by(&call, body.worker_id.as_ref())?;
    let job_id = call.job_id()?;
    let state = Payload::parse(body.state.get(), LedgerHead::RESULT_BYTES_MAX)?;
    let kept = format!("{{\"counters\":{{}},\"state\":{}}}", state.as_str());
    let kept = Some(Payload::parse(&kept, LedgerHead::RESULT_BYTES_MAX)?);
    let op = Checkpoint { job_id, epoch: body.epoch, by, state: state.digest(), kept };
    jobs::act(&call, job_id, op.into()).await
}
