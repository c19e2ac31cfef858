//! A job that is run by a call, in development: for those who try out what becomes of it.

use std::time::Duration;

use windlass::Error;
use windlass::wire::JobDocument;
use windlass_kernel::{
    By, Class, Failure, Jitter, Job, JobId, Op, OpKind, Refusal, State, TenantId, WorkerId,
    contract::jobs::{self, Replay},
    ops::{Claim, Expire, Expiry, Outcome, Promote, PromoteWhen, RetryNow, Settle, Start},
};
use windlass_store::TenantOp;

use crate::http::core::{
    contract,
    problem::Problem,
    route::{Answer, Call},
};

/// `POST /api/v1/internal/jobs/{id}/run`
pub(crate) async fn run(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    let outcome = outcome(&call)?;
    let job = call.app.job(&call, id).await?;
    let ran = run_job(&call, job.clone(), outcome).await;
    ran.map_err(|error| contract::problem(Some(&jobs::CONTRACT), error).of_job(id))?;
    let events = call.engine().store().events(call.scope(), id).await?;
    let now = call.app.job(&call, id).await?;
    let seen = usize::try_from(job.version).unwrap_or(usize::MAX);
    Ok(Answer::ok(&Replay::new(&now, &events[seen.min(events.len())..])))
}

/// `POST /api/v1/internal/jobs/{id}/interrupt`: ends the lease of a job as recovery does when a process has died.
pub(crate) async fn interrupt(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    let job = call.app.job(&call, id).await?;
    let (version, what, jitter) = (job.version, Expiry::DeadSession, Jitter::NONE);
    let op = Expire { job_id: id, version, what, jitter };
    send(&call, &job.spec.tenant, op.into()).await?;
    let now = call.app.job(&call, id).await?;
    Ok(Answer::ok(&JobDocument::from(&now)))
}

/// How it is to end.
fn outcome(call: &Call) -> Result<Outcome, Problem> {
    let failure = |code: &str, message: &str, retryable| {
        let class = if retryable { Class::Transient } else { Class::Permanent };
        let (code, message) = (code.to_owned(), message.to_owned());
        Outcome::Failed(Failure { code, message, class, retryable, retry_after: None })
    };
    match (call.query.flag("force_fail")?, call.query.flag("transient_fail")?) {
        (false, false) => Ok(Outcome::Succeeded { result: None }),
        (true, false) => Ok(failure("FORCED_FAILURE", "the call asked for a failure", false)),
        (false, true) => Ok(failure("TRANSIENT_FAILURE", "the call asked for a failure", true)),
        (true, true) => Err(Problem::malformed("force_fail or transient_fail, not both")),
    }
}

/// Claims, starts and settles the job now, due or not. One that somebody runs is settled under its current epoch.
async fn run_job(call: &Call, job: Job, outcome: Outcome) -> Result<(), Error> {
    let (id, tenant) = (job.id, job.spec.tenant.clone());
    if job.state.is_end() {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Claim }.into());
    }
    let worker = WorkerId::new("internal")?;
    // Whoever runs it is said to have ended it.
    let holder = job.lease.as_ref().map_or(&worker, |lease| &lease.worker);
    let by = By::worker(holder.clone());
    match job.state {
        State::Scheduled => {
            let when = PromoteWhen::Now { by: call.by() };
            send(call, &tenant, Promote { job_id: id, when }.into()).await?;
        }
        State::RetryScheduled => {
            send(call, &tenant, RetryNow { job_id: id, by: call.by() }.into()).await?;
        }
        State::Dispatched => {
            let start = Start { job_id: id, epoch: job.epoch, by: by.clone() };
            send(call, &tenant, start.into()).await?;
        }
        _ => {}
    }
    let epoch = match job.state {
        State::Running | State::Dispatched => job.epoch,
        _ => claim(call, &tenant, id, worker).await?,
    };
    let jitter = call.engine().jitter();
    let settle = Settle { job_id: id, epoch, by, outcome, stats: None, jitter };
    send(call, &tenant, settle.into()).await.map(drop)
}

async fn claim(
    call: &Call,
    tenant: &TenantId,
    job_id: JobId,
    worker: WorkerId,
) -> Result<windlass_kernel::Epoch, Error> {
    let claim = Claim {
        job_id,
        claim_id: call.engine().ids().claim_id(),
        worker,
        trace_id: call.given_trace().cloned(),
        lease: Duration::from_secs(30),
        start: true,
        alone: true,
    };
    Ok(send(call, tenant, claim.into()).await?.epoch)
}

async fn send(
    call: &Call,
    tenant: &TenantId,
    op: Op,
) -> Result<windlass_kernel::transition::Answer, Error> {
    let request = TenantOp { tenant: tenant.clone(), op };
    Ok(call.engine().submit(request).await?.0)
}
