//! Writes as calls: each goes to its endpoint, and those that can go together do.
//!
//! A server puts each call into transactions of its own, so a commit here is not one transaction. Writes of one job keep
//! their order; all else goes at the same time. If some calls are answered and others are not, the whole is ambiguous:
//! whoever sends it again is answered from the record.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use windlass_kernel::{
    Actor, Answer, Epoch, JobId, Op, Queue, Refusal, Rule, ScheduleOp, TenantId, WorkerId,
    ids::ClaimId,
    ops::{Outcome, PromoteWhen, Renew, Settle},
    rule::RuleOp,
    schedule::Action,
    time::{as_ms, duration_ms},
};
use windlass_store::{ClaimMany, Error, Granted, Replies, Reply, Scheduled, Write};

use super::{
    link::{Failed, Link, unfit},
    problem::Problem,
    wire::{
        Backfilled, JobDocument, Leases, LetterDocument, NewJobDocument, NewScheduleDocument,
        OpResult, Requeued, Results, ScheduleDocument, Triggered, raw,
    },
};

/// The most entries and bytes of one call. A server takes 1,000 entries and twice the bytes.
const ENTRIES_MAX: usize = 1_000;
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a write is told, or why it is not known.
type Told = Result<Reply, Refusal>;

/// Which writes go together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Road {
    Enqueue(Actor),
    Start(Actor),
    Release(Actor),
    Settle(Actor),
    Wait(Actor),
    Renew(Duration),
    /// It has a call of its own.
    Alone(usize),
}

/// Writes that go together, by their places.
struct Group {
    road: Road,
    places: Vec<usize>,
}

/// Sends a batch. `own` is the tenant that the server takes us for; none, if it is every one.
pub(super) async fn commit(
    link: &Arc<Link>,
    own: Option<&TenantId>,
    writes: &Arc<Vec<Write>>,
) -> Result<Replies, Error> {
    let mut told: Vec<Option<Told>> = writes.iter().map(|write| refused(own, write)).collect();
    for round in rounds(writes, &told) {
        if let Some(error) = send_round(link, writes, round, &mut told).await {
            return Err(whole(error, told.iter().any(Option::is_some)));
        }
    }
    let told = told.into_iter().map(|told| told.expect("each write is in a round"));
    Ok(told.collect())
}

/// What an error of one call says about the whole batch.
fn whole(error: Error, is_told: bool) -> Error {
    match error {
        error if !is_told => error,
        error @ Error::Ambiguous(_) => error,
        error => Error::Ambiguous(error.into()),
    }
}

/// Writes that no call is made for.
fn refused(own: Option<&TenantId>, write: &Write) -> Option<Told> {
    let tenant = match write {
        Write::Op { tenant, .. } => Some(tenant),
        Write::Schedule(op) => Some(&op.tenant),
        // Each claim says it.
        Write::Listens { .. } => return Some(Ok(Reply::Done)),
        Write::FollowUpDone { .. } | Write::Token(_) | Write::Mark { .. } => {
            return Some(Err(Refusal::invalid("op", "is the server's own")));
        }
        Write::Claim(_) | Write::RenewSession { .. } | Write::Rule(_) => None,
    };
    let is_foreign = tenant.zip(own).is_some_and(|(tenant, own)| tenant != own);
    is_foreign.then_some(Err(Refusal::NotFound { what: "tenant" }))
}

/// The writes, in rounds: what is in one round can go at the same time.
fn rounds(writes: &[Write], told: &[Option<Told>]) -> Vec<Vec<Group>> {
    let mut rounds: Vec<Vec<Group>> = Vec::new();
    let mut last: BTreeMap<JobId, (usize, Road)> = BTreeMap::new();
    for (place, write) in writes.iter().enumerate().filter(|(place, _)| told[*place].is_none()) {
        let road = road(place, write);
        let jobs = jobs(write);
        // Within a call the order is kept, so the same road again can go along.
        let after = |job: &JobId| match last.get(job) {
            Some((round, known)) if *known == road => *round,
            Some((round, _)) => round + 1,
            None => 0,
        };
        let round = jobs.iter().map(after).max().unwrap_or(0);
        for job in jobs {
            last.insert(job, (round, road.clone()));
        }
        rounds.resize_with(rounds.len().max(round + 1), Vec::new);
        match rounds[round].iter_mut().find(|group| group.road == road) {
            Some(group) => group.places.push(place),
            None => rounds[round].push(Group { road, places: vec![place] }),
        }
    }
    rounds
}

/// The jobs that a write names. A letter has the id of its job.
fn jobs(write: &Write) -> Vec<JobId> {
    let Write::Op { op, .. } = write else { return Vec::new() };
    let of_letter = op.dlq_id().map(|id| JobId::from_u128(id.as_u128()));
    [op.job_id(), of_letter, op.new_job_id()].into_iter().flatten().collect()
}

fn road(place: usize, write: &Write) -> Road {
    let Write::Op { op, .. } = write else { return Road::Alone(place) };
    match op {
        Op::Enqueue(op) => Road::Enqueue(op.by.actor.clone()),
        Op::Start(op) => Road::Start(op.by.actor.clone()),
        Op::Release(op) => Road::Release(op.by.actor.clone()),
        Op::Settle(op) => Road::Settle(op.by.actor.clone()),
        Op::Wait(op) => Road::Wait(op.by.actor.clone()),
        Op::Renew(op) => Road::Renew(op.lease),
        _ => Road::Alone(place),
    }
}

/// Sends the groups of a round at the same time. What is told stays told if one of them fails.
async fn send_round(
    link: &Arc<Link>,
    writes: &Arc<Vec<Write>>,
    mut round: Vec<Group>,
    told: &mut [Option<Told>],
) -> Option<Error> {
    let mut failed = None;
    let mut take = |(answers, error): (Vec<(usize, Told)>, Option<Error>)| {
        for (place, answer) in answers {
            told[place] = Some(answer);
        }
        // If one may have been written, that is what counts.
        match (&failed, error) {
            (Some(Error::Ambiguous(_)), _) | (_, None) => {}
            (_, Some(error)) => failed = Some(error),
        }
    };
    // The last one needs no task of its own, and mostly it is the only one.
    let last = round.pop();
    let mut tasks = JoinSet::new();
    for group in round {
        let (link, writes) = (link.clone(), writes.clone());
        tasks.spawn(async move { send_group(&link, &writes, group).await });
    }
    if let Some(group) = last {
        take(send_group(link, writes, group).await);
    }
    while let Some(ended) = tasks.join_next().await {
        take(ended.unwrap_or_else(|why| (Vec::new(), Some(Error::Ambiguous(why.into())))));
    }
    failed
}

/// Sends a group, in as few calls as it takes, one after the other.
async fn send_group(
    link: &Link,
    writes: &[Write],
    group: Group,
) -> (Vec<(usize, Told)>, Option<Error>) {
    let mut told = Vec::new();
    if let Road::Alone(place) = group.road {
        let error = match send_alone(link, &writes[place]).await {
            Ok(reply) => {
                told.push((place, Ok(reply)));
                None
            }
            Err(failed) => refuse_all(failed, [place], &mut told),
        };
        return (told, error);
    }
    let mut entries = Vec::new();
    for place in group.places {
        let Write::Op { op, .. } = &writes[place] else { continue };
        match entry(op) {
            Ok(text) => entries.push((place, op, text)),
            Err(refusal) => told.push((place, Err(refusal))),
        }
    }
    let mut rest = entries.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(ENTRIES_MAX).take_while(|(_, _, text)| {
            bytes += text.len() + 1;
            bytes <= BYTES_MAX
        });
        let (chunk, later) = rest.split_at(fits.count().max(1));
        rest = later;
        if let Some(error) = send_chunk(link, &group.road, chunk, &mut told).await {
            return (told, Some(error));
        }
    }
    (told, None)
}

/// Sends entries in one call.
async fn send_chunk(
    link: &Link,
    road: &Road,
    chunk: &[(usize, &Op, String)],
    told: &mut Vec<(usize, Told)>,
) -> Option<Error> {
    let entries: Vec<&str> = chunk.iter().map(|(_, _, text)| text.as_str()).collect();
    let (path, name, actor, head) = match road {
        Road::Enqueue(actor) => (["jobs", "batch"], "jobs", Some(actor), String::new()),
        Road::Start(actor) => (["leases", "start"], "leases", Some(actor), worker(actor)),
        Road::Release(actor) => (["leases", "release"], "leases", Some(actor), worker(actor)),
        Road::Settle(actor) => (["leases", "settle"], "leases", Some(actor), worker(actor)),
        Road::Wait(actor) => (["leases", "wait"], "leases", Some(actor), worker(actor)),
        Road::Renew(lease) => {
            (["leases", "renew"], "leases", None, format!("\"lease_ms\":{},", as_ms(*lease)))
        }
        Road::Alone(_) => unreachable!("it has a call of its own"),
    };
    let body = format!("{{{head}\"{name}\":[{}]}}", entries.join(","));
    let results = match link.send::<Results>(Method::POST, &path, actor, body).await {
        Ok(Results { results }) if results.len() == chunk.len() => results,
        Ok(_) => return Some(Error::Ambiguous("the server did not answer each entry".into())),
        Err(failed) => return refuse_all(failed, chunk.iter().map(|(place, ..)| *place), told),
    };
    let mut error = None;
    for ((place, op, _), result) in chunk.iter().zip(results) {
        match answer(op, result) {
            Ok(answer) => told.push((*place, answer)),
            Err(failed) => error = error.or(Some(failed)),
        }
    }
    error
}

/// The beginning of a body that names the worker.
fn worker(actor: &Actor) -> String {
    match actor {
        Actor::Worker(id) => format!("\"worker_id\":{},", json(id)),
        Actor::User(_) | Actor::Recovery | Actor::Scheduler => String::new(),
    }
}

/// A call failed: all that it was about hear it, unless nobody knows.
fn refuse_all(
    failed: Failed,
    places: impl IntoIterator<Item = usize>,
    told: &mut Vec<(usize, Told)>,
) -> Option<Error> {
    let refusal = match failed {
        Failed::Problem(problem) => problem.into_refusal(),
        Failed::Store(error) => Err(error),
    };
    match refusal {
        Ok(refusal) => {
            told.extend(places.into_iter().map(|place| (place, Err(refusal.clone()))));
            None
        }
        Err(error) => Some(error),
    }
}

/// What an entry of a batch is told.
fn answer(op: &Op, result: OpResult) -> Result<Told, Error> {
    if !result.ok {
        let (code, detail) = (result.code.unwrap_or_default(), result.detail.unwrap_or_default());
        let problem = Problem { status: 409, code, detail, job_id: result.job_id };
        return problem.into_refusal().map(Err);
    }
    let missing = || unfit(&"an entry went well and names no job");
    let epoch = match op {
        Op::Start(op) => op.epoch,
        Op::Release(op) => op.epoch,
        Op::Settle(op) => op.epoch,
        Op::Wait(op) => op.epoch,
        Op::Renew(op) => op.epoch,
        _ => Epoch::ZERO,
    };
    Ok(Ok(Reply::Answer(Answer {
        job_id: result.job_id.ok_or_else(missing)?,
        state: result.state.ok_or_else(missing)?,
        recorded: result.idempotent_hit.unwrap_or(false),
        epoch,
        leased_until: result.leased_until,
        next_retry_at: result.next_retry_at,
        dlq_id: result.dlq_id,
        cancel_requested: result.cancel_requested.unwrap_or(false),
    })))
}

#[derive(Serialize)]
struct LeaseEntry {
    job_id: JobId,
    epoch: Epoch,
}

#[derive(Serialize)]
struct RenewEntry<'a> {
    job_id: JobId,
    epoch: Epoch,
    heartbeat: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct SettleEntry<'a> {
    job_id: JobId,
    epoch: Epoch,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a windlass_kernel::Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<&'a RawValue>,
}

/// An op as an entry of a batch.
fn entry(op: &Op) -> Result<String, Refusal> {
    let lease = |job_id, epoch| Ok(json(&LeaseEntry { job_id, epoch }));
    match op {
        Op::Enqueue(op) => Ok(json(&NewJobDocument::of(op)?)),
        Op::Start(op) => lease(op.job_id, op.epoch),
        Op::Release(op) => lease(op.job_id, op.epoch),
        Op::Settle(op) => settle_entry(op),
        Op::Renew(Renew { job_id, epoch, heartbeat, progress, .. }) => {
            let progress = progress.as_ref().map(raw).transpose()?;
            Ok(json(&RenewEntry {
                job_id: *job_id,
                epoch: *epoch,
                heartbeat: *heartbeat,
                progress,
            }))
        }
        Op::Wait(op) => match (&op.wait.on, op.wait.until) {
            (windlass_kernel::job::WaitOn::Time, Some(until)) => {
                let (job_id, epoch) = (op.job_id, op.epoch);
                Ok(json(&serde_json::json!({ "job_id": job_id, "epoch": epoch, "until": until })))
            }
            _ => Err(Refusal::invalid("wait", "for anything but a time is not for a server yet")),
        },
        other => Err(unsent(other)),
    }
}

fn settle_entry(op: &Settle) -> Result<String, Refusal> {
    let mut entry = SettleEntry {
        job_id: op.job_id,
        epoch: op.epoch,
        outcome: "succeeded",
        result: None,
        remaining: None,
        error: None,
        reason: None,
        stats: op.stats.as_ref().map(raw).transpose()?,
    };
    match &op.outcome {
        Outcome::Succeeded { result } => entry.result = result.as_ref().map(raw).transpose()?,
        Outcome::Partial { result, remaining } => {
            entry.outcome = "partial";
            entry.result = result.as_ref().map(raw).transpose()?;
            entry.remaining = Some(raw(remaining)?);
        }
        Outcome::Failed(failure) => {
            entry.outcome = "failed";
            entry.error = Some(failure);
        }
        Outcome::Cancelled { reason } => {
            entry.outcome = "cancelled";
            entry.reason = reason.as_deref();
        }
    }
    Ok(json(&entry))
}

fn unsent(op: &Op) -> Refusal {
    Refusal::invalid("op", format!("{} cannot be sent to a server", op.kind()))
}

fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("a document is plain data")
}

/// Sends a write that has a call of its own.
async fn send_alone(link: &Link, write: &Write) -> Result<Reply, Failed> {
    match write {
        Write::Claim(wanted) => claim(link, wanted).await,
        Write::RenewSession { worker, lease } => renew_session(link, worker, *lease).await,
        Write::Rule(op) => rule(link, op).await,
        Write::Schedule(op) => schedule(link, op).await,
        Write::Op { op, .. } => act(link, op).await.map(Reply::Answer),
        Write::Listens { .. }
        | Write::FollowUpDone { .. }
        | Write::Token(_)
        | Write::Mark { .. } => {
            unreachable!("no call is made for it")
        }
    }
}

#[derive(Serialize)]
struct ClaimBody<'a> {
    worker_id: &'a WorkerId,
    queues: &'a [Queue],
    kinds: &'a [windlass_kernel::Kind],
    max: usize,
    #[serde(rename = "lease_ms", with = "duration_ms")]
    lease: Duration,
    wait_ms: u64,
    start: bool,
    claim_id: ClaimId,
    neighbours: &'a [WorkerId],
}

async fn claim(link: &Link, wanted: &ClaimMany) -> Result<Reply, Failed> {
    let body = ClaimBody {
        worker_id: &wanted.worker,
        queues: &wanted.queues,
        kinds: &wanted.kinds,
        max: wanted.max,
        lease: wanted.lease,
        wait_ms: 0,
        start: wanted.start,
        claim_id: wanted.claim_id,
        neighbours: &wanted.neighbours,
    };
    let told: Leases = link.send(Method::POST, &["claims"], None, json(&body)).await?;
    let jobs = told.leases.into_iter().map(|lease| {
        let payload = lease.job.payload();
        Ok(Granted { job: Arc::new(lease.job.into_job()?), payload })
    });
    let jobs = jobs.collect::<Result<Vec<Granted>, Refusal>>().map_err(|why| lost(&why))?;
    Ok(Reply::Granted { jobs, again_at: told.again_at })
}

/// It was written, and what is told of it cannot be right.
fn lost(why: &Refusal) -> Failed {
    Failed::Store(Error::Ambiguous(unfit(why).into()))
}

async fn renew_session(link: &Link, worker: &WorkerId, lease: Duration) -> Result<Reply, Failed> {
    let body = serde_json::json!({ "worker_id": worker, "lease_ms": as_ms(lease) });
    let path = ["leases", "renew"];
    let told: Results = link.send(Method::POST, &path, None, body.to_string()).await?;
    let until = told.results.first().and_then(|result| result.leased_until);
    let cancelled = told.results.iter().filter(|it| it.cancel_requested == Some(true));
    let cancelled = cancelled.filter_map(|it| it.job_id).collect();
    let held = told.results.iter().filter_map(|it| it.job_id).collect();
    // One that holds nothing has nothing that runs out.
    let until = until.unwrap_or(windlass_kernel::Timestamp::MIN);
    Ok(Reply::Renewed { until, cancelled, held })
}

async fn rule(link: &Link, op: &RuleOp) -> Result<Reply, Failed> {
    let (method, name, actor, body) = match op {
        RuleOp::Put(op) => {
            let body =
                serde_json::json!({ "scope": op.scope, "says": op.says, "reason": op.reason });
            (Method::PUT, &op.name, &op.by.actor, body)
        }
        RuleOp::Drop(op) => {
            (Method::DELETE, &op.name, &op.by.actor, serde_json::json!({ "reason": op.reason }))
        }
    };
    let path = ["rules", name.as_str()];
    let rule: Rule = link.send(method, &path, Some(actor), body.to_string()).await?;
    Ok(Reply::Rule(rule))
}

async fn schedule(link: &Link, op: &ScheduleOp) -> Result<Reply, Failed> {
    let (name, actor) = (op.name.as_str(), Some(&op.by.actor));
    let mut told =
        Scheduled { schedule: None, made: Vec::new(), known: Vec::new(), goes_on_from: None };
    let post = Method::POST;
    let mut asked = None;
    let document: Option<ScheduleDocument> = match &op.action {
        Action::Put(spec) => {
            let body = NewScheduleDocument::of(&op.name, spec).map_err(|refusal| no(&refusal))?;
            asked = Some(&**spec);
            Some(link.send(post, &["schedules"], actor, json(&body)).await?)
        }
        Action::Pause { reason } => {
            let body = serde_json::json!({ "reason": reason }).to_string();
            Some(link.send(post, &["schedules", name, "pause"], actor, body).await?)
        }
        Action::Resume => {
            Some(link.send(post, &["schedules", name, "resume"], actor, String::new()).await?)
        }
        Action::Delete => {
            let path = ["schedules", name];
            let _: ScheduleDocument =
                link.send(Method::DELETE, &path, actor, String::new()).await?;
            None
        }
        Action::Trigger { job_id, .. } => {
            let body = serde_json::json!({ "new_job_id": job_id }).to_string();
            let made: Triggered =
                link.send(post, &["schedules", name, "trigger"], actor, body).await?;
            told.made = vec![made.job_id];
            None
        }
        Action::Backfill { from, to } => {
            let body = serde_json::json!({ "from": from, "to": to }).to_string();
            let done: Backfilled =
                link.send(post, &["schedules", name, "backfill"], actor, body).await?;
            (told.made, told.known, told.goes_on_from) = (done.made, done.known, done.goes_on_from);
            None
        }
        Action::Fire { .. } => return Err(no(&Refusal::invalid("op", "is the server's own"))),
    };
    let schedule = document.map(|document| document.into_schedule(asked)).transpose();
    told.schedule = schedule.map_err(|why| lost(&why))?.map(Arc::new);
    Ok(Reply::Scheduled(Box::new(told)))
}

/// The rules say no before anything is sent.
fn no(refusal: &Refusal) -> Failed {
    let (code, detail) = (refusal.code().to_owned(), refusal.to_string());
    Failed::Problem(Problem { status: 422, code, detail, job_id: None })
}

/// An op of a person on a job or a letter.
async fn act(link: &Link, op: &Op) -> Result<Answer, Failed> {
    let post = Method::POST;
    let id = op.dlq_id().map(|id| id.to_string());
    let id = id.or_else(|| op.job_id().map(|id| id.to_string())).unwrap_or_default();
    let on_job = async |word: &str, actor: &Actor, body: serde_json::Value| {
        let path = ["jobs", id.as_str(), word];
        let job: JobDocument =
            link.send(post.clone(), &path, Some(actor), body.to_string()).await?;
        Ok::<Answer, Failed>(job.answer())
    };
    match op {
        Op::Cancel(op) => {
            let body = serde_json::json!({
                "reason": op.reason, "force": op.force, "grace_ms": as_ms(op.grace),
            });
            on_job("cancel", &op.by.actor, body).await
        }
        Op::RetryNow(op) => {
            on_job("retry", &op.by.actor, serde_json::json!({ "op": "retry_now" })).await
        }
        Op::Rerun(op) => {
            let body = serde_json::json!({ "op": "rerun", "new_job_id": op.new_job_id });
            on_job("retry", &op.by.actor, body).await
        }
        Op::Promote(op) => match &op.when {
            PromoteWhen::Now { by } => {
                on_job("retry", &by.actor, serde_json::json!({ "op": "promote" })).await
            }
            _ => Err(no(&Refusal::invalid("op", "is the server's own"))),
        },
        Op::Requeue(op) => {
            let payload = op.payload.as_ref().map(|it| format!("\"payload\":{},", it.as_str()));
            let body = format!(
                "{{{}\"new_job_id\":{}}}",
                payload.unwrap_or_default(),
                json(&op.new_job_id)
            );
            let path = ["dlq", id.as_str(), "requeue"];
            let told: Requeued = link.send(post, &path, Some(&op.by.actor), body).await?;
            Ok(told.job.answer())
        }
        Op::Discard(op) => {
            let body = serde_json::json!({ "reason": op.reason }).to_string();
            letter(link, &["dlq", id.as_str(), "discard"], &op.by.actor, body).await
        }
        Op::ApproveDiscard(op) => {
            let path = ["dlq", id.as_str(), "discard", "approve"];
            letter(link, &path, &op.by.actor, String::new()).await
        }
        other => Err(no(&unsent(other))),
    }
}

async fn letter(link: &Link, path: &[&str], actor: &Actor, body: String) -> Result<Answer, Failed> {
    let letter: LetterDocument = link.send(Method::POST, path, Some(actor), body).await?;
    let missing = || Failed::Store(Error::Ambiguous(unfit(&"the letter's job is gone").into()));
    Ok(letter.job.as_ref().ok_or_else(missing)?.answer())
}

#[cfg(test)]
mod tests {
    use windlass_kernel::{
        By, Kind, Payload,
        ops::{Cancel, Enqueue, NewJob, Release, Start},
    };

    use super::*;

    fn tenant() -> TenantId {
        TenantId::new("default").unwrap()
    }

    fn write(op: impl Into<Op>) -> Write {
        Write::Op { tenant: tenant(), op: op.into() }
    }

    fn by() -> By {
        By::worker(WorkerId::new("w1").unwrap())
    }

    fn start(job: u128) -> Write {
        let (job_id, epoch) = (JobId::from_u128(job), Epoch::new(1));
        write(Start { job_id, epoch, by: by() })
    }

    fn release(job: u128) -> Write {
        let (job_id, epoch) = (JobId::from_u128(job), Epoch::new(1));
        write(Release { job_id, epoch, by: by() })
    }

    fn cancel(job: u128) -> Write {
        let (grace, reason) = (Duration::ZERO, None);
        write(Cancel { job_id: JobId::from_u128(job), force: true, grace, reason, by: by() })
    }

    /// The places of each group, round by round.
    fn places(writes: &[Write]) -> Vec<Vec<Vec<usize>>> {
        let told: Vec<Option<Told>> = writes.iter().map(|_| None).collect();
        let rounds = rounds(writes, &told).into_iter();
        rounds.map(|round| round.into_iter().map(|group| group.places).collect()).collect()
    }

    #[test]
    fn writes_of_one_job_keep_their_order_and_all_else_goes_together() {
        let writes = [start(1), start(2), release(1), cancel(3), start(3), release(2), start(1)];
        let expected: &[&[&[usize]]] = &[&[&[0, 1], &[3]], &[&[2, 5], &[4]], &[&[6]]];
        assert_eq!(places(&writes), expected);
        assert_eq!(places(&[start(1), start(1)]), [[[0, 1]]], "a call keeps the order too");
    }

    #[test]
    fn another_tenants_writes_are_not_sent() {
        let own = TenantId::new("acme").unwrap();
        let foreign = Some(Err(Refusal::NotFound { what: "tenant" }));
        let refusal =
            |own: Option<TenantId>| refused(own.as_ref(), &start(1)).map(|told| told.map(drop));
        assert_eq!(refusal(Some(own)), foreign);
        assert_eq!(refusal(Some(tenant())), None);
        assert_eq!(refusal(None), None, "a fleet works for all of them");
    }

    #[test]
    fn a_payload_is_sent_byte_for_byte_and_under_the_jobs_own_id() {
        let payload = Payload::parse(r#"{"n":1.50, "e":1e400}"#, 100).unwrap();
        let new = Box::new(NewJob::new(Kind::new("mail").unwrap(), payload));
        let (job_id, random) = (JobId::from_u128(7), 1);
        let op = Op::Enqueue(Enqueue { job_id, tenant: tenant(), new, random, by: by() });
        let text = entry(&op).unwrap();
        assert!(text.contains(r#""payload":{"n":1.50, "e":1e400},"#), "{text}");
        assert!(text.contains(r#""job_id":"job_00000000000000000000000007""#), "{text}");
        assert!(text.contains("trace-run-job_"), "{text}");
    }
}
