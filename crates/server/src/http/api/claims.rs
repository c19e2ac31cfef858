//! Claims: a worker elsewhere asks for jobs, and waits until there are some.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::{sync::oneshot, time::Instant};
use windlass::Error;
use windlass::wire::{ClaimBody, LeaseDocument, Leases};
use windlass_kernel::{
    By, Queue, WorkerId,
    ids::ClaimId,
    ops::{NewJob, Release},
    own_names::check_not_own,
};
use windlass_store::{
    ClaimMany, ClaimReply, Granted, TenantOp, Write,
    read::{Listens, Standing, Word},
};

use crate::http::core::{
    body,
    problem::Problem,
    route::{Answer, Call},
};

/// The longest wait of one call. Proxies cut off what is silent for a minute.
const WAIT_MAX: Duration = Duration::from_secs(30);
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const NEIGHBOURS_MAX: usize = 1_000;
/// The most bytes of a claim. As many names as it may have take less.
const BYTES_MAX: usize = 1024 * 1024;

/// `POST /api/v1/claims`
pub(crate) async fn claim(mut call: Call) -> Result<Answer, Problem> {
    if call.body.len() > BYTES_MAX {
        let detail = format!("a claim has at most {BYTES_MAX} bytes; name fewer queues and kinds");
        return Err(Problem::too_large(detail));
    }
    let body: ClaimBody = call.body()?;
    call.forget_request();
    let until = Instant::now() + body.wait.unwrap_or_default().min(WAIT_MAX);
    let wanted = wanted(&call, body)?;
    Box::pin(listens(&call, &wanted)).await?;
    let word = async {
        loop {
            tokio::time::sleep(Standing::WORD_EVERY).await;
            // If it is not written, it is said again the next time.
            let _ = Box::pin(listens(&call, &wanted)).await;
        }
    };
    tokio::pin!(word);
    let tenant = wanted.tenant.as_ref();
    let waits = until > Instant::now();
    let (_waiting, left) = waits.then(|| call.app.listening.wait(&wanted.worker)).unzip();
    let left = async move {
        match left {
            Some(left) => left.await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(left);
    let _bell = tenant.filter(|_| waits).map(|tenant| call.app.bells.of(call.engine(), tenant));
    let room = call.app.rooms.enter(tenant, (wanted.queues.clone(), wanted.kinds.clone()));
    let mut stopping = call.app.stopping.clone();
    // A claim that gets nothing leaves no trace, so each look is under the one identity that the caller knows: if the
    // answer is lost, the same call again gets these leases.
    loop {
        // Whoever is told from here on is told of something that this claim may not have seen.
        let told = room.notified();
        body::room(&call.app, call.scope())?;
        let reply = take(&call, wanted.clone()).await;
        let ClaimReply { jobs, again_at, repeated } =
            reply.map_err(|_| Problem::stopping("the server stops"))??;
        // One that was granted jobs before gets no others, however long it waits.
        if !jobs.is_empty() || repeated {
            room.notify_one();
            let leases = jobs.into_iter().map(LeaseDocument::from).collect();
            let repeated = repeated.then_some(true);
            return Ok(Answer::ok(&Leases { leases, again_at, repeated }));
        }
        if Instant::now() >= until {
            return Ok(Answer::ok(&Leases { leases: Vec::new(), again_at, repeated: None }));
        }
        let again_at = again_at.map(|at| Instant::now() + at.since(call.engine().now()));
        let wake_at = again_at.map_or(until, |at| at.min(until));
        tokio::select! {
            () = told => {}
            () = tokio::time::sleep_until(wake_at) => {}
            () = &mut word => unreachable!("it says so for as long as it is asked"),
            // Whoever has said goodbye wants nothing more.
            () = &mut left => {
                room.notify_one();
                let (leases, again_at) = (Vec::new(), None);
                return Ok(Answer::ok(&Leases { leases, again_at, repeated: None }));
            }
            _ = stopping.wait_for(|stopping| *stopping) => {
                let (leases, again_at) = (Vec::new(), None);
                return Ok(Answer::ok(&Leases { leases, again_at, repeated: None }));
            }
        }
        if Instant::now() >= until {
            // One who was told and leaves tells the next.
            room.notify_one();
        }
    }
}

/// Claims. If the caller leaves meanwhile, what was granted is given back, if nobody else knows of it: the caller may have
/// sent the same claim again, and then that call answers with what this one got.
fn take(call: &Call, wanted: ClaimMany) -> oneshot::Receiver<Result<ClaimReply, Error>> {
    let (engine, worker) = (call.engine().clone(), wanted.worker.clone());
    let claiming = call.app.claiming.enter(wanted.claim_id, usize::MAX);
    let (answer, answered) = oneshot::channel();
    tokio::spawn(async move {
        let reply = engine.submit(wanted).await;
        let Err(Ok(ClaimReply { jobs, repeated: false, .. })) = answer.send(reply) else {
            return;
        };
        if claiming.as_ref().is_some_and(|claim| !claim.is_only()) {
            return;
        }
        let release = |granted: &Granted| {
            let (job, by) = (&granted.job, By::worker(worker.clone()));
            let op = Release { job_id: job.id, epoch: job.epoch, by };
            TenantOp { tenant: job.spec.tenant.clone(), op: op.into() }
        };
        engine.submit_all(jobs.iter().map(release)).await;
    });
    answered
}

fn wanted(call: &Call, body: ClaimBody) -> Result<ClaimMany, Problem> {
    let queues = match body.queues.is_empty() {
        true => vec![Queue::new(NewJob::DEFAULT_NAME)?],
        false => body.queues,
    };
    for queue in &queues {
        check_not_own("queues", queue.as_str())?;
    }
    if body.neighbours.len() > NEIGHBOURS_MAX {
        let why = "must be at most 1,000";
        return Err(windlass_kernel::Refusal::invalid("neighbours", why).into());
    }
    let neighbours = body.neighbours.iter().map(|worker| worker_of(call, worker));
    let neighbours = neighbours.collect::<Result<Vec<WorkerId>, Problem>>()?;
    let worker = worker_of(call, &body.worker_id)?;
    let claim_id = match &body.claim_id {
        Some(text) => claim_id(&worker, text)?,
        None => call.engine().ids().claim_id(),
    };
    let claim = ClaimMany {
        claim_id,
        worker,
        trace_id: call.given_trace().cloned(),
        tenant: call.scope().tenant().cloned(),
        except: Vec::new(),
        queues,
        kinds: body.kinds,
        max: body.max.unwrap_or(1).clamp(1, 1_000),
        lease: body.lease.unwrap_or(LEASE_DEFAULT),
        start: body.start,
        neighbours,
    };
    claim.check()?;
    Ok(claim)
}

/// The longest `claim_id`, in characters.
const CLAIM_ID_CHARS_MAX: usize = 100;

/// The claim that this text names: one of our own ids is itself, and any other text is one of this worker's.
fn claim_id(worker: &WorkerId, text: &str) -> Result<ClaimId, windlass_kernel::Refusal> {
    if let Ok(own) = text.parse() {
        return Ok(own);
    }
    if text.is_empty() || text.chars().count() > CLAIM_ID_CHARS_MAX {
        let why = "must have between 1 and 100 characters";
        return Err(windlass_kernel::Refusal::invalid("claim_id", why));
    }
    // The name of a worker has a length, so that no two pairs look alike.
    let digest = Sha256::digest(format!("{}:{worker}{text}", worker.as_str().len()));
    let first = digest[..16].try_into().expect("a digest is longer");
    Ok(ClaimId::from_u128(u128::from_be_bytes(first)))
}

/// The session of a worker that calls. Two principals may use the same name: each has its own.
pub(crate) fn worker_of(call: &Call, worker: &WorkerId) -> Result<WorkerId, Problem> {
    if worker.as_str().contains('/') {
        return Err(windlass_kernel::Refusal::invalid("worker_id", "must not contain /").into());
    }
    check_not_own("worker_id", worker.as_str())?;
    match call.caller.holder() {
        Some(holder) => Ok(holder.session(worker)?),
        None => Ok(worker.clone()),
    }
}

/// The name that the session of a worker with a token had before sessions named their principals.
pub(crate) fn former_session(call: &Call, worker: &WorkerId) -> Option<WorkerId> {
    let tenant = call.scope().tenant().filter(|_| call.caller.has_token)?;
    if tenant.as_str() == windlass::Engine::TENANT_DEFAULT {
        return Some(worker.clone());
    }
    WorkerId::new(format!("{tenant}/{worker}")).ok()
}

/// Says what the worker listens to, so that it is known why a job does not run.
async fn listens(call: &Call, wanted: &ClaimMany) -> Result<(), Problem> {
    let to = Listens {
        queues: wanted.queues.clone(),
        kinds: wanted.kinds.clone(),
        tenant: wanted.tenant.clone(),
    };
    if !call.app.listening.is_news(&wanted.worker, &to) {
        return Ok(());
    }
    let word = Word::To(to);
    let (worker, tenant) = (wanted.worker.clone(), wanted.tenant.clone());
    call.engine().submit(Write::Listens { worker, tenant, word }).await?;
    Ok(())
}

/// Notes that the worker lives, and tells the store now and then. Nobody waits for that: a renewal does not, either.
pub(crate) fn still_listens(call: &Call, worker: WorkerId) {
    if !call.app.listening.is_word_due(&worker, call.scope().tenant()) {
        return;
    }
    let (app, tenant) = (call.app.clone(), call.scope().tenant().cloned());
    tokio::spawn(async move {
        let write = Write::Listens { worker: worker.clone(), tenant, word: Word::Still };
        // If it is not written, the next renewal says it again.
        if app.engine.submit(write).await.is_ok() {
            app.listening.mark_told(&worker);
        }
    });
}

/// A worker that has taken its leave.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LeftDocument {
    /// Its name, as the call has it.
    #[schemars(with = "String")]
    worker_id: WorkerId,
}

/// `DELETE /api/v1/workers/{id}`
///
/// What the worker holds stays as it is: each job has its own end. A name that is nobody's is not found; nor is that of
/// another principal's worker, for it stands for another session.
pub(crate) async fn goodbye(call: Call) -> Result<Answer, Problem> {
    let not_found = || Problem::not_found("worker");
    let worker_id = WorkerId::new(call.param("id")).map_err(|_| not_found())?;
    let worker = worker_of(&call, &worker_id).map_err(|_| not_found())?;
    // Before, so that no claim that waits says once more that it listens; and after, so that one which came meanwhile does
    // not keep the next from saying so.
    call.app.listening.forget(&worker);
    let (tenant, word) = (call.scope().tenant().cloned(), Word::Goodbye);
    let goodbye = Write::Listens { worker: worker.clone(), tenant, word };
    call.engine().submit(goodbye).await?;
    call.app.listening.forget(&worker);
    Ok(Answer::ok(&LeftDocument { worker_id }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_named_by_any_text_and_each_worker_has_its_own() {
        let [ann, bob] = ["ann", "bob"].map(|name| WorkerId::new(name).unwrap());
        let uuid = "0b7c1f0e-6a51-4b6f-9a39-7d7b7f1f5a20";
        assert_eq!(claim_id(&ann, uuid), claim_id(&ann, uuid));
        assert_ne!(claim_id(&ann, uuid), claim_id(&bob, uuid));
        assert_ne!(claim_id(&ann, "1"), claim_id(&ann, "2"));
        let own = ClaimId::from_u128(7);
        assert_eq!(claim_id(&ann, &own.to_string()), Ok(own));
        for bad in [String::new(), "x".repeat(101)] {
            assert_eq!(claim_id(&ann, &bad).unwrap_err().code(), "INVALID_INPUT");
        }
        assert!(claim_id(&ann, &"ä".repeat(100)).is_ok());
    }
}
