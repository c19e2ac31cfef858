//! Writes that have a call of their own: claims, the renewal and the end of a session, and what people ask for.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use windlass_kernel::{
    Actor, Answer, Op, Refusal, ScheduleOp, Scope, WorkerId,
    ops::{Expire, Expiry, PromoteWhen},
    rule::RuleOp,
    schedule::Action,
    time::as_ms,
};
use windlass_store::{ClaimMany, Error, Granted, Reply, Scheduled, Write};

use super::{
    commit::{json, unsent},
    link::{Failed, Link, unfit},
    problem::Problem,
};
use crate::wire::{
    BackfillBody, Backfilled, CancelBody, ClaimBody, DiscardBody, JobDocument, Leases,
    LetterDocument, OpResult, ReasonBody, RenewBody, RenewEntry, RequeueBody, Requeued, Results,
    RetryBody, RetryOp, RuleDocument, ScheduleBody, ScheduleDocument, TriggerBody, Triggered,
    raw_payload,
};

/// Sends a write that has a call of its own.
pub(super) async fn send_alone(link: &Link, write: &Write) -> Result<Reply, Failed> {
    match write {
        Write::Claim(wanted) => claim(link, wanted).await,
        Write::RenewSession { worker, lease } => renew_session(link, worker, *lease).await,
        Write::Listens { worker, .. } => goodbye(link, worker).await,
        Write::Rule(op) => rule(link, op).await,
        Write::Schedule(op) => schedule(link, op).await,
        Write::Op { op, .. } => act(link, op).await.map(|answer| Reply::Answer(answer, None)),
        Write::FollowUpDone { .. } | Write::Token(_) | Write::Clock(_) | Write::Mark { .. } => {
            unreachable!("no call is made for it")
        }
    }
}

async fn claim(link: &Link, wanted: &ClaimMany) -> Result<Reply, Failed> {
    let body = ClaimBody {
        worker_id: wanted.worker.clone(),
        queues: wanted.queues.clone(),
        kinds: wanted.kinds.clone(),
        max: Some(wanted.max),
        lease: Some(wanted.lease),
        wait: None,
        start: wanted.start,
        claim_id: Some(wanted.claim_id.to_string()),
        neighbours: wanted.neighbours.clone(),
    };
    let told: Leases = link.send(Method::POST, &["claims"], None, json(&body)).await?;
    let jobs = told.leases.into_iter().map(Granted::try_from);
    let jobs = jobs.collect::<Result<_, _>>().map_err(|why| lost(&why))?;
    Ok(Reply::Granted { jobs, again_at: told.again_at, repeated: told.repeated == Some(true) })
}

/// It was written, and what is told of it cannot be right.
fn lost(why: &Refusal) -> Failed {
    Failed::Store(Error::Ambiguous(unfit(why).into()))
}

async fn renew_session(link: &Link, worker: &WorkerId, lease: Duration) -> Result<Reply, Failed> {
    let (worker_id, lease, leases) = (Some(worker.clone()), Some(lease), None);
    let body = RenewBody::<RenewEntry> { worker_id, lease, leases };
    let path = ["leases", "renew"];
    let told: Results<OpResult> = link.send(Method::POST, &path, None, json(&body)).await?;
    let until = told.results.first().and_then(|result| result.leased_until);
    let cancelled = told.results.iter().filter(|it| it.cancel_requested == Some(true));
    let cancelled = cancelled.filter_map(|it| it.job_id).collect();
    let held = told.results.iter().filter_map(|it| it.job_id).collect();
    // One that holds nothing has nothing that runs out.
    let until = until.unwrap_or(windlass_kernel::Timestamp::MIN);
    Ok(Reply::Renewed { until, cancelled, held })
}

/// Whoever is not known there has nothing to take leave of; nor has a worker of a server that knows no such call.
async fn goodbye(link: &Link, worker: &WorkerId) -> Result<Reply, Failed> {
    let path = ["workers", worker.as_str()];
    let told = link.send::<serde_json::Value>(Method::DELETE, &path, None, String::new()).await;
    match told {
        Err(Failed::Problem(problem)) if matches!(problem.status, 404 | 405) => Ok(Reply::Done),
        told => told.map(|_| Reply::Done),
    }
}

async fn rule(link: &Link, op: &RuleOp) -> Result<Reply, Failed> {
    let (method, name, actor, body) = match op {
        RuleOp::Put(op) => {
            let mut body = serde_json::json!({ "says": op.says, "reason": op.reason });
            // A server takes an empty scope for a slip: a rule about everything leaves it out.
            if op.scope != Scope::default() {
                body["scope"] = serde_json::json!(op.scope);
            }
            (Method::PUT, &op.name, &op.by.actor, body)
        }
        RuleOp::Drop(op) => (
            Method::DELETE,
            &op.name,
            &op.by.actor,
            serde_json::json!(ReasonBody { reason: op.reason.clone() }),
        ),
    };
    let path = ["rules", name.as_str()];
    let rule: RuleDocument = link.send(method, &path, Some(actor), body.to_string()).await?;
    Ok(Reply::Rule(rule.try_into().map_err(|why| lost(&why))?))
}

async fn schedule(link: &Link, op: &ScheduleOp) -> Result<Reply, Failed> {
    let (name, actor) = (op.name.as_str(), Some(&op.by.actor));
    let mut told =
        Scheduled { schedule: None, made: Vec::new(), known: Vec::new(), goes_on_from: None };
    let post = Method::POST;
    let mut asked = None;
    let document: Option<ScheduleDocument> = match &op.action {
        Action::Put(spec) => {
            let body = ScheduleBody::new(&op.name, spec).map_err(|refusal| no(&refusal))?;
            asked = Some(&**spec);
            Some(link.send(post, &["schedules"], actor, json(&body)).await?)
        }
        Action::Pause { reason } => {
            let body = json(&ReasonBody { reason: reason.clone() });
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
            let body = json(&TriggerBody { new_job_id: Some(*job_id) });
            let made: Triggered =
                link.send(post, &["schedules", name, "trigger"], actor, body).await?;
            told.made = vec![made.job_id];
            None
        }
        Action::Backfill { from, to } => {
            let body = json(&BackfillBody { from: *from, to: *to });
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

/// A server that is not for development has no such call.
fn only_in_development(failed: Failed) -> Failed {
    match failed {
        Failed::Problem(problem) if problem.code == "NO_ROUTE" => {
            let why = "needs a server for development: windlass dev, or windlass serve --dev";
            no(&Refusal::invalid("fault", why))
        }
        failed => failed,
    }
}

/// An op of a person on a job or a letter.
async fn act(link: &Link, op: &Op) -> Result<Answer, Failed> {
    let post = Method::POST;
    let id = op.job_id().map(|id| id.to_string());
    let id = id.or_else(|| op.dlq_id().map(|id| id.to_string())).unwrap_or_default();
    let on_job = async |word: &str, actor: &Actor, body: String| {
        let path = ["jobs", id.as_str(), word];
        let job: JobDocument = link.send(post.clone(), &path, Some(actor), body).await?;
        Ok::<Answer, Failed>(job.answer())
    };
    let again = |op, new_job_id| json(&RetryBody { op: Some(op), new_job_id });
    match op {
        Op::Cancel(op) => {
            let (reason, grace_ms) = (op.reason.clone(), Some(as_ms(op.grace)));
            let body = CancelBody { reason, force: op.force, grace_ms };
            on_job("cancel", &op.by.actor, json(&body)).await
        }
        Op::RetryNow(op) => on_job("retry", &op.by.actor, again(RetryOp::RetryNow, None)).await,
        Op::Rerun(op) => {
            on_job("retry", &op.by.actor, again(RetryOp::Rerun, Some(op.new_job_id))).await
        }
        // A fault that somebody injects. Servers for development take it, and no others.
        Op::Expire(Expire { job_id, what: Expiry::DeadSession, .. }) => {
            let path = ["internal", "jobs", &job_id.to_string(), "interrupt"];
            let sent = link.send::<JobDocument>(post, &path, None, String::new()).await;
            Ok(sent.map_err(only_in_development)?.answer())
        }
        Op::Promote(op) => match &op.when {
            PromoteWhen::Now { by } => {
                on_job("retry", &by.actor, again(RetryOp::Promote, None)).await
            }
            _ => Err(no(&Refusal::invalid("op", "is the server's own"))),
        },
        Op::Requeue(op) => {
            let payload = op.payload.as_ref().map(raw_payload).transpose();
            let payload = payload.map_err(|refusal| no(&refusal))?;
            let body = json(&RequeueBody { payload, new_job_id: Some(op.new_job_id) });
            let path = ["dlq", id.as_str(), "requeue"];
            let told: Requeued = link.send(post, &path, Some(&op.by.actor), body).await?;
            Ok(told.job.answer())
        }
        Op::Discard(op) => {
            let body = json(&DiscardBody { reason: op.reason.clone() });
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
