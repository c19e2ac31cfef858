//! Dead letters: what is left of jobs that failed, until somebody decides.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    Approval, Cause, DeadLetter, DlqId, Epoch, JobId, LetterState, Op, Payload, State, Timestamp,
    ops::{ApproveDiscard, Discard, Requeue},
};
use windlass_store::{Reply, Write, read::LetterFilter};

use super::{
    contract,
    document::{FailureDocument, JobDocument, raw},
    jobs,
    problem::Problem,
    route::{Answer, Call},
};

/// A dead letter.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LetterDocument {
    /// Its id.
    #[schemars(with = "String")]
    dlq_id: DlqId,
    /// Who it belongs to.
    tenant: String,
    /// The job that failed.
    #[schemars(with = "String")]
    job_id: JobId,
    /// What became of it: open, discard_requested, discarded or requeued.
    #[schemars(with = "String")]
    state: LetterState,
    /// Why the job failed.
    #[schemars(with = "String")]
    why: Cause,
    /// What went wrong.
    error: FailureDocument,
    /// The state in which the job was given up.
    #[schemars(with = "String")]
    began_in: State,
    /// The attempt that failed last.
    attempt: u32,
    /// The last epoch.
    #[schemars(with = "u64")]
    epoch: Epoch,
    /// When it was written.
    #[schemars(with = "String")]
    created_at: Timestamp,
    /// The job that took over.
    #[schemars(with = "Option<String>")]
    requeued_as: Option<JobId>,
    /// Who asked to discard it.
    discard_requested_by: Option<String>,
    /// Why it should be discarded.
    discard_reason: Option<String>,
    /// When it was requeued or discarded.
    #[schemars(with = "Option<String>")]
    closed_at: Option<Timestamp>,
    /// The job that failed, with its payload; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobDocument>,
    /// Who had a say; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals: Option<Vec<ApprovalDocument>>,
}

/// One person's say on a dead letter.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ApprovalDocument {
    /// Who.
    principal: String,
    /// What they did: requested or approved.
    #[schemars(with = "String")]
    step: windlass_kernel::letter::ApprovalStep,
    /// Why.
    reason: String,
    /// When.
    #[schemars(with = "String")]
    at: Timestamp,
}

impl From<&DeadLetter> for LetterDocument {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            dlq_id: letter.id,
            tenant: letter.tenant.to_string(),
            job_id: letter.job_id,
            state: letter.state,
            why: letter.why,
            error: (&letter.failure).into(),
            began_in: letter.began_in,
            attempt: letter.attempt,
            epoch: letter.epoch,
            created_at: letter.created_at,
            requeued_as: letter.requeued_as,
            discard_requested_by: letter.discard_requested_by.as_ref().map(ToString::to_string),
            discard_reason: letter.discard_reason.clone(),
            closed_at: letter.closed_at,
            job: None,
            approvals: None,
        }
    }
}

impl From<Approval> for ApprovalDocument {
    fn from(approval: Approval) -> Self {
        Self {
            principal: approval.principal.to_string(),
            step: approval.step,
            reason: approval.reason,
            at: approval.at,
        }
    }
}

fn filter(call: &Call) -> Result<LetterFilter, Problem> {
    let state = match call.query.text("state") {
        None => None,
        Some(word) => Some(LetterState::parse(word).ok_or_else(|| {
            Problem::malformed("state must be open, discard_requested, discarded or requeued")
        })?),
    };
    Ok(LetterFilter { scope: call.scope().clone(), state, jobs: jobs::filter(call)? })
}

/// `GET /api/v1/dlq`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let (filter, store) = (filter(&call)?, call.engine().store());
    let cursor = jobs::cursor(&call)?;
    let page = jobs::search(cursor, |cursor| store.letters(filter.clone(), cursor)).await?;
    let items = page.items.iter().map(LetterDocument::from).collect();
    Ok(Answer::ok(&jobs::found(&page, items)))
}

/// Dead letters that have one cause.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LetterGroup {
    /// The code of the failure.
    code: String,
    /// Its message, without what differs from one letter to the next.
    message: String,
    /// How many there are.
    count: u64,
    /// The oldest of them.
    #[schemars(with = "String")]
    first_at: Timestamp,
    /// The newest of them.
    #[schemars(with = "String")]
    last_at: Timestamp,
    /// The newest of them, as an example.
    #[schemars(with = "String")]
    example: DlqId,
}

/// Dead letters by cause.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Groups {
    /// The largest first, 1,000 at the most.
    items: Vec<LetterGroup>,
    /// How many letters there are in all groups.
    looked_at: u64,
    /// Are there more groups than these?
    more: bool,
}

/// `GET /api/v1/dlq/groups`
pub(crate) async fn groups(call: Call) -> Result<Answer, Problem> {
    let state = filter(&call)?.state.unwrap_or(LetterState::Open);
    let found = call.engine().store().letter_groups(call.scope(), state).await?;
    let items = found.groups.into_iter().map(|group| LetterGroup {
        code: group.code,
        message: group.cause,
        count: group.count,
        first_at: group.first_at,
        last_at: group.last_at,
        example: group.newest,
    });
    let items = items.collect();
    Ok(Answer::ok(&Groups { items, looked_at: found.letters, more: found.more }))
}

/// `GET /api/v1/dlq/{id}`
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    let id = letter_id(&call)?;
    document(&call, id).await
}

async fn document(call: &Call, id: DlqId) -> Result<Answer, Problem> {
    let store = call.engine().store();
    let letter = letter(call, id).await?;
    let approvals = store.approvals(call.scope(), id).await?;
    let job = store.job(call.scope(), letter.job_id).await?;
    let payload = store.payload(call.scope(), letter.job_id).await?.and_then(raw);
    let document = LetterDocument {
        job: job.map(|job| JobDocument { payload, ..JobDocument::from(&job) }),
        approvals: Some(approvals.into_iter().map(ApprovalDocument::from).collect()),
        ..LetterDocument::from(&letter)
    };
    Ok(Answer::ok(&document))
}

fn letter_id(call: &Call) -> Result<DlqId, Problem> {
    call.param("id").parse().map_err(|_| Problem::not_found("dead letter"))
}

async fn letter(call: &Call, id: DlqId) -> Result<DeadLetter, Problem> {
    let letter = call.engine().store().letter(call.scope(), id).await?;
    letter.ok_or_else(|| Problem::not_found("dead letter"))
}

/// How a dead letter is requeued.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequeueBody {
    /// Another payload than the one that failed.
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
    /// The id of the new job, for a caller that makes it before its first try: sent again, it gives the same job.
    #[schemars(with = "Option<String>")]
    new_job_id: Option<JobId>,
}

/// The job that took over.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Requeued {
    /// The letter.
    #[schemars(with = "String")]
    dlq_id: DlqId,
    /// The new job.
    #[schemars(with = "JobDocument")]
    job: contract::Json,
}

/// `POST /api/v1/dlq/{id}/requeue`
pub(crate) async fn requeue(call: Call) -> Result<Answer, Problem> {
    let contract = call.query.contract()?;
    let body: RequeueBody = call.body()?;
    let id = letter_id(&call)?;
    let payload = body.payload.map(|text| Payload::parse(text.get(), Payload::MAX_BYTES_DEFAULT));
    let new_job_id = body.new_job_id.unwrap_or_else(|| call.engine().ids().job_id());
    let op = Requeue { dlq_id: id, new_job_id, payload: payload.transpose()?, by: call.by() };
    let job_id = act(&call, id, op.into()).await?;
    let job = call.app.job(&call, job_id).await?;
    let payload = call.app.payload(&call, job_id).await?;
    let job = contract::job(contract, &job, payload);
    Ok(Answer::json(StatusCode::CREATED, &Requeued { dlq_id: id, job }))
}

/// Why a dead letter is thrown away.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscardBody {
    /// Why. It must be said.
    reason: String,
}

/// `POST /api/v1/dlq/{id}/discard`: the first person asks.
pub(crate) async fn discard(call: Call) -> Result<Answer, Problem> {
    let body: DiscardBody = call.body()?;
    let id = letter_id(&call)?;
    act(&call, id, Discard { dlq_id: id, reason: body.reason, by: call.by() }.into()).await?;
    document(&call, id).await
}

/// `POST /api/v1/dlq/{id}/discard/approve`: the second person agrees.
pub(crate) async fn approve(call: Call) -> Result<Answer, Problem> {
    let id = letter_id(&call)?;
    act(&call, id, ApproveDiscard { dlq_id: id, by: call.by() }.into()).await?;
    document(&call, id).await
}

/// Carries out an op on a letter. It gives back the job that it is about.
async fn act(call: &Call, id: DlqId, op: Op) -> Result<JobId, Problem> {
    let contract = call.query.contract()?;
    let tenant = letter(call, id).await?.tenant;
    let reply = call.engine().submit(Write::Op { tenant, op }).await;
    match reply.map_err(|error| contract::problem(contract, error))? {
        Reply::Answer(answer) => Ok(answer.job_id),
        _ => unreachable!("an op is answered by an answer"),
    }
}
