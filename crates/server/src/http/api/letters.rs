//! Dead letters: what is left of jobs that failed, until somebody decides.

use axum::http::StatusCode;
use windlass::wire::{
    ApprovalDocument, DiscardBody, Groups, JobDocument, LetterDocument, RequeueBody, Requeued, raw,
};
use windlass_kernel::{
    DeadLetter, DlqId, JobId, LetterState, Op, Payload,
    ops::{ApproveDiscard, Discard, Requeue},
};
use windlass_store::{TenantOp, read::LetterFilter};

use crate::http::{
    api::jobs,
    core::{
        contract,
        problem::Problem,
        route::{Answer, Call},
    },
};

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

/// `GET /api/v1/dlq/groups`
pub(crate) async fn groups(call: Call) -> Result<Answer, Problem> {
    let state = filter(&call)?.state.unwrap_or(LetterState::Open);
    let found = call.engine().store().letter_groups(call.scope(), state).await?;
    Ok(Answer::ok(&Groups::from(found)))
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
    let reply = call.engine().submit(TenantOp { tenant, op }).await;
    let reply = reply.map_err(|error| contract::problem(contract, error))?;
    Ok(reply.0.job_id)
}
