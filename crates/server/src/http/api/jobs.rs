//! Jobs: make them, look at them, act on them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use windlass::Error;
use windlass::wire::{
    BatchBody, CancelBody, EnqueuedDocument, Found, JobDocument, List, NewJobBody, OpResult,
    Results, RetryBody, RetryOp, raw,
};
use windlass_kernel::{
    IdempotencyKey, Job, JobId, Op, Refusal, State, TenantId,
    contract::Contract,
    ops::{Cancel, Enqueue, NewJob, Promote, PromoteWhen, Rerun, RetryNow},
};
use windlass_store::{
    TenantOp,
    read::{EventsPage, JobFilter, Page, PageFrom, PlacedEvent},
};

use crate::http::core::{
    contract::{self, Json},
    problem::Problem,
    route::{Answer, Call, read_entry},
};

/// `POST /api/v1/jobs`
pub(crate) async fn enqueue(call: Call) -> Result<Answer, Problem> {
    let contract = call.query.contract()?;
    let mut body: NewJobBody = call.body()?;
    if let Some(header) = call.headers.get("idempotency-key") {
        let text = header.to_str().map_err(|_| Problem::malformed("Idempotency-Key: no text"))?;
        let key = IdempotencyKey::new(text.trim_matches('"'))?;
        if body.idempotency_key.as_ref().is_some_and(|other| *other != key) {
            let detail = "Idempotency-Key and idempotency_key differ: send one of them";
            return Err(Problem::malformed(detail));
        }
        body.idempotency_key = Some(key);
    }
    let given = body.job_id;
    let mut new = body.into_new()?;
    // Who asked finds the job by the trace of the answer.
    new.trace_id.get_or_insert_with(|| call.trace.clone());
    let payload = new.payload.clone();
    let (hit, job) =
        create(&call, given, new).await.map_err(|error| contract::problem(contract, error))?;
    let status = if hit { StatusCode::OK } else { StatusCode::CREATED };
    let payload = match hit {
        // The job that was there has the payload of its own request.
        true => call.app.payload(&call, job.id).await?,
        false => Some(payload.as_str().to_owned()),
    };
    let job = contract::job(contract, &job, payload);
    Ok(Answer::json(status, &EnqueuedDocument { idempotent_hit: hit, job }))
}

/// Creates a job, under the id that the caller gave if it gave one, and gives it back as it stands.
pub(crate) async fn create(
    call: &Call,
    given: Option<JobId>,
    new: NewJob,
) -> Result<(bool, Arc<Job>), Error> {
    let tenant = call.caller.tenant().map_err(|_| Refusal::invalid("tenant", NO_TENANT))?;
    let op = enqueue_op(call, tenant, given, new);
    let wanted = op.job_id;
    let request = TenantOp { tenant: tenant.clone(), op: op.into() };
    let (answer, job) = call.engine().submit(request).await?;
    let hit = is_hit(&answer, wanted, given.is_some());
    Ok((hit, job.ok_or(Error::NoJob(answer.job_id))?))
}

const NO_TENANT: &str = "is needed: a token for every tenant makes nothing new";

/// Was the job there already? An id that was made here is known to nobody else, so what is on record under it was sent
/// twice by us.
fn is_hit(answer: &windlass_kernel::Answer, wanted: JobId, is_given: bool) -> bool {
    answer.job_id != wanted || (is_given && answer.recorded)
}

fn enqueue_op(call: &Call, tenant: &TenantId, given: Option<JobId>, new: NewJob) -> Enqueue {
    let ids = call.engine().ids();
    Enqueue {
        job_id: given.unwrap_or_else(|| ids.job_id()),
        tenant: tenant.clone(),
        new: Box::new(new),
        random: ids.random(),
        by: call.by(),
    }
}

/// `POST /api/v1/jobs/batch`
pub(crate) async fn enqueue_batch(call: Call) -> Result<Answer, Problem> {
    let body: BatchBody<Json> = call.body()?;
    check_batch(body.jobs.len())?;
    let tenant = call.caller.tenant()?.clone();
    let (mut results, mut places, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for (place, job) in body.jobs.iter().enumerate() {
        let parsed = read_entry::<NewJobBody>("jobs", job).map_err(Problem::from);
        let new = parsed.and_then(|body| Ok((body.job_id, body.into_new()?)));
        match new {
            Ok((given, mut new)) => {
                new.trace_id.get_or_insert_with(|| call.trace.clone());
                let op = enqueue_op(&call, &tenant, given, new);
                places.push((place, op.job_id, given.is_some()));
                requests.push(TenantOp { tenant: tenant.clone(), op: op.into() });
                results.push(OpResult::default());
            }
            Err(problem) => results.push(failed(None, &problem)),
        }
    }
    let replies = call.engine().submit_all(requests).await;
    for ((place, wanted, is_given), reply) in places.into_iter().zip(replies) {
        results[place] = match reply {
            Ok((answer, _)) => OpResult {
                job_id: Some(answer.job_id),
                ok: true,
                idempotent_hit: Some(is_hit(&answer, wanted, is_given)),
                state: Some(answer.state.as_str().to_owned()),
                ..OpResult::default()
            },
            Err(error) => {
                let problem = call.app.hide(Problem::from(error), call.scope()).await;
                failed(None, &problem)
            }
        };
    }
    Ok(Answer::ok(&Results { results }))
}

/// What became of an op that did not go well.
pub(crate) fn failed(job_id: Option<JobId>, problem: &Problem) -> OpResult {
    OpResult {
        job_id: job_id.or(problem.job_id),
        code: Some(problem.code.to_owned()),
        detail: Some(problem.detail.clone()),
        retryable: Some(problem.retryable),
        ..OpResult::default()
    }
}

/// The most ops of one batch.
pub(crate) const BATCH_MAX: usize = 1_000;

pub(crate) fn check_batch(len: usize) -> Result<(), Problem> {
    if len > BATCH_MAX {
        return Err(Problem::too_large(format!("a batch has at most {BATCH_MAX} entries")));
    }
    Ok(())
}

/// `GET /api/v1/jobs`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let contract = call.query.contract()?;
    let states = states(&call)?;
    let filter = JobFilter { states, ..filter(&call)? };
    // A word of a contract can mean a state of jobs that have started, or only of those that have not.
    let words: Vec<&str> = words(&call).collect();
    let is_meant = |job: &Job| {
        contract.is_none_or(|contract| words.is_empty() || words.contains(&contract.status(job)))
    };
    let store = call.engine().store();
    let read = async |cursor: PageFrom| {
        let mut page = store.jobs(filter.clone(), cursor).await?;
        page.items.retain(is_meant);
        page.stopped |= page.items.is_empty() && page.next.is_some();
        Ok(page)
    };
    let page = search(cursor(&call)?, read).await?;
    let items = page.items.iter().map(|job| contract::job(contract, job, None)).collect();
    Ok(Answer::ok(&found(&page, items)))
}

/// The words of the parameter `state`.
fn words(call: &Call) -> impl Iterator<Item = &str> {
    call.query.text("state").unwrap_or("").split(',').filter(|word| !word.is_empty())
}

/// The longest that a search goes on which has found nothing.
const SEARCH_MAX: Duration = Duration::from_secs(5);

/// Reads a part of a list. While a search has found nothing and is not at its end, it goes on.
pub(crate) async fn search<T, F>(
    cursor: PageFrom,
    read: impl Fn(PageFrom) -> F,
) -> Result<Page<T>, windlass_store::Error>
where
    F: Future<Output = Result<Page<T>, windlass_store::Error>>,
{
    search_for(SEARCH_MAX, cursor, read).await
}

async fn search_for<T, F>(
    most: Duration,
    mut cursor: PageFrom,
    read: impl Fn(PageFrom) -> F,
) -> Result<Page<T>, windlass_store::Error>
where
    F: Future<Output = Result<Page<T>, windlass_store::Error>>,
{
    let begun = Instant::now();
    loop {
        let page = read(cursor).await?;
        if !(page.stopped && page.items.is_empty()) || begun.elapsed() >= most {
            return Ok(page);
        }
        cursor.from = page.next;
    }
}

/// The document of a part.
pub(crate) fn found<T, D>(page: &Page<T>, items: Vec<D>) -> Found<D> {
    Found {
        items,
        next: page.next.map(|next| next.to_string()),
        incomplete: page.stopped.then_some(true),
    }
}

/// The states that the parameters name.
fn states(call: &Call) -> Result<Vec<State>, Problem> {
    let query = &call.query;
    let mut states = Vec::new();
    let contract = query.contract()?;
    for word in words(call) {
        let meant = states_of(contract, word);
        if meant.is_empty() {
            let ours = || State::ALL.iter().map(|state| state.as_str()).collect();
            let all: Vec<&str> = contract.map_or_else(ours, |it| it.states.to_vec());
            let detail = format!("there is no state {word:?}; there is: {}", all.join(", "));
            return Err(Problem::malformed(detail));
        }
        states.extend(meant);
    }
    Ok(states)
}

/// The filter that the parameters say, but for states.
pub(crate) fn filter(call: &Call) -> Result<JobFilter, Problem> {
    let query = &call.query;
    Ok(JobFilter {
        queue: query.get("queue")?,
        kind: query.get("kind")?,
        tag: query.get("tag")?,
        code: query.text("code").map(str::to_owned),
        limit_key: query.get("limit_key")?,
        created_from: query.time("created_from")?,
        created_before: query.time("created_before")?,
        failed_from: query.time("failed_from")?,
        failed_before: query.time("failed_before")?,
        ..JobFilter::of(call.scope().clone())
    })
}

/// The states that a word means: one of ours, or all that a contract has this word for.
fn states_of(contract: Option<&Contract>, word: &str) -> Vec<State> {
    let Some(contract) = contract else { return State::parse(word).into_iter().collect() };
    let means =
        |state: &State| [false, true].iter().any(|it| contract.image(*state, *it) == Some(word));
    State::ALL.iter().copied().filter(means).collect()
}

/// Where a list is read on.
pub(crate) fn cursor(call: &Call) -> Result<PageFrom, Problem> {
    let limit = call.query.number("limit", PageFrom::LIMIT_MAX as u64)?.unwrap_or(100);
    let limit = usize::try_from(limit).expect("it is bounded");
    Ok(PageFrom { from: call.query.get("cursor")?, limit })
}

/// `GET /api/v1/jobs/{id}`
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    let contract = call.query.contract()?;
    let id = call.job_id()?;
    let job = call.app.job(&call, id).await?;
    let payload = call.app.payload(&call, id).await?;
    if contract.is_some() {
        return Ok(Answer::ok(&contract::job(contract, &job, payload)));
    }
    let store = call.engine().store();
    let output = store.last_output(call.scope(), id).await?;
    let progress = store.progress(call.scope(), id).await?;
    let document = JobDocument {
        payload: payload.and_then(raw),
        result: output.as_ref().and_then(|output| raw(output.result.clone()?)),
        remaining: output.as_ref().and_then(|output| raw(output.remaining.clone()?)),
        progress_epoch: progress.as_ref().map(|progress| progress.epoch),
        progress_at: progress.as_ref().map(|progress| progress.at),
        progress: progress.and_then(|progress| raw(progress.value)),
        ..JobDocument::from(&job)
    };
    Ok(Answer::ok(&document))
}

/// `GET /api/v1/jobs/{id}/events`
pub(crate) async fn events(call: Call) -> Result<Answer, Problem> {
    let contract = call.query.contract()?;
    let id = call.job_id()?;
    let job = call.app.job(&call, id).await?;
    let after = call.query.number("after", u64::MAX)?.unwrap_or(0);
    let limit = call.query.number("limit", 1_000)?.unwrap_or(1_000);
    let limit = usize::try_from(limit).expect("it is bounded");
    let store = call.engine().own_store()?;
    let page = store.events_after(call.scope(), id, after, limit.max(1)).await?;
    let EventsPage { items, more } = page.ok_or_else(|| Problem::not_found("job").of_job(id))?;
    let next = items.last().filter(|_| more).map(|last| last.event.number.to_string());
    // An event of a contract has one name, here and in the feed.
    let told = |PlacedEvent { event, feed_number }: PlacedEvent| {
        contract::event(contract, event, &job.spec, feed_number)
    };
    let items: Vec<Json> = items.into_iter().filter_map(told).collect();
    Ok(Answer::ok(&List { items, next }))
}

/// `POST /api/v1/jobs/{id}/cancel`
pub(crate) async fn cancel(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    cancel_job(call, id).await
}

/// Cancels the job, in the words of the contract that is asked for.
pub(crate) async fn cancel_job(call: Call, id: JobId) -> Result<Answer, Problem> {
    let body: CancelBody = call.body()?;
    let grace = body.grace_ms.map_or(Cancel::GRACE_DEFAULT, Duration::from_millis);
    let op = Cancel { job_id: id, force: body.force, grace, reason: body.reason, by: call.by() };
    act(&call, id, op.into()).await
}

/// `POST /api/v1/jobs/{id}/retry`
pub(crate) async fn retry(call: Call) -> Result<Answer, Problem> {
    let body: RetryBody = call.body()?;
    let id = call.job_id()?;
    let job = call.app.job(&call, id).await?;
    let by = call.by();
    let fits = match job.state {
        State::Failed | State::Cancelled => RetryOp::Rerun,
        State::Scheduled => RetryOp::Promote,
        _ => RetryOp::RetryNow,
    };
    let op: Op = match body.op.unwrap_or(fits) {
        RetryOp::Rerun => {
            let new_job_id = body.new_job_id.unwrap_or_else(|| call.engine().ids().job_id());
            Rerun { job_id: id, new_job_id, by }.into()
        }
        RetryOp::Promote => Promote { job_id: id, when: PromoteWhen::Now { by } }.into(),
        RetryOp::RetryNow => RetryNow { job_id: id, by }.into(),
    };
    act(&call, id, op).await
}

/// Carries out an op of a person on a job, and answers with the job that it is about then.
pub(crate) async fn act(call: &Call, id: JobId, op: Op) -> Result<Answer, Problem> {
    let contract = call.query.contract()?;
    // A read, so that whoever names a job that is not theirs makes nobody wait.
    let tenant = call.app.job(call, id).await?.spec.tenant.clone();
    let reply = call.engine().submit(TenantOp { tenant, op }).await;
    let (answer, job) = reply.map_err(|error| contract::problem(contract, error).of_job(id))?;
    let job = job.ok_or(Error::NoJob(answer.job_id))?;
    let payload = call.app.payload(call, answer.job_id).await?;
    Ok(Answer::ok(&contract::job(contract, &job, payload)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn page(items: Vec<u32>, next: Option<&str>, stopped: bool) -> Page<u32> {
        let next = next.map(|next| next.parse().expect("a position"));
        Page { items, next, stopped, visited: 0 }
    }

    #[tokio::test]
    async fn a_search_goes_on_while_it_has_found_nothing_and_says_when_it_gives_up() {
        let cursor = PageFrom { from: None, limit: 10 };
        let calls = Cell::new(0);
        let read = |cursor: PageFrom| {
            calls.set(calls.get() + 1);
            let is_there = cursor.from.is_some_and(|from| from.to_string() == "3-0");
            let next = format!("{:x}-0", calls.get());
            std::future::ready(Ok(match is_there {
                true => page(vec![7], None, false),
                false => page(Vec::new(), Some(&next), true),
            }))
        };
        let found = search_for(Duration::MAX, cursor, read).await.expect("it answers");
        assert_eq!((found.items, found.stopped, calls.get()), (vec![7], false, 4));
        let read = |_| std::future::ready(Ok(page(Vec::new(), Some("9-0"), true)));
        let given_up = search_for(Duration::ZERO, cursor, read).await.expect("it answers");
        let document = found_document(&given_up);
        assert_eq!(document, r#"{"items":[],"next":"9-0","incomplete":true}"#);
    }

    fn found_document(page: &Page<u32>) -> String {
        serde_json::to_string(&found(page, page.items.clone())).expect("it is plain data")
    }
}
