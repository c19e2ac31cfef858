//! Renewals: one op keeps all leases of a worker, and brings back what it has to know.
//!
//! While the store is away the worker's jobs run on, for as long as their leases can still be saved. After that
//! somebody else may have them: they are dropped.
//!
//! A renewal keeps whatever the store says the worker holds. That can be a job that the worker never heard of, or has
//! dropped, because an answer was lost. Such a job would be kept and never run: it is given back.

use tokio::time::{Instant, sleep_until, timeout_at};
use windlass_kernel::{JobId, Op, ops::Release};
use windlass_store::{Error, RenewSession, RenewalReply, TenantOp, read::Scope};

use super::run::Shared;

/// How many jobs are given back between two renewals.
const GIVE_BACK_MAX: usize = 100;

/// Renews until it is dropped.
pub(super) async fn renew(shared: &Shared) {
    let (lease, every) = (shared.lease, shared.renew_every);
    let mut at = Instant::now() + every;
    loop {
        sleep_until(at).await;
        let sent = Instant::now();
        at = sent + every;
        // A process that was frozen has lost what it held, and must not find out by and by.
        shared.executions.lose_lapsed(sent);
        let Some(lapse) = shared.executions.next_lapse(sent) else { continue };
        let grants = shared.executions.grants();
        let request = RenewSession { worker: shared.worker.clone(), lease };
        match timeout_at(lapse, shared.inner().submit(request)).await {
            Ok(Ok(RenewalReply { held, cancelled, .. })) => {
                let strangers = shared.executions.renewed(grants, sent + lease, &held, &cancelled);
                // The next renewal does not wait for it. What is left then comes after it.
                let _ = timeout_at(at, give_back(shared, &strangers)).await;
            }
            // The next time, and sooner.
            Ok(Err(_)) | Err(_) => {
                at = Instant::now() + every / 4;
                shared.executions.lose_lapsed(Instant::now());
            }
        }
    }
}

/// Gives back jobs that the worker holds and nobody here runs.
async fn give_back(shared: &Shared, strangers: &[JobId]) -> Result<(), Error> {
    for job_id in strangers.iter().take(GIVE_BACK_MAX) {
        let Some(job) = shared.inner().store.job(&Scope::Every, *job_id).await? else { continue };
        let is_held = job.lease.as_ref().is_some_and(|lease| lease.worker == shared.worker);
        // Asked after the epoch was read: a claim that came in between has another one.
        if is_held && shared.executions.is_stranger(job.id) {
            let release = Release { job_id: job.id, epoch: job.epoch, by: shared.by() };
            let (tenant, op) = (job.spec.tenant.clone(), Op::Release(release));
            // If it fails, the job is still held at the next renewal.
            let _ = shared.inner().submit(TenantOp { tenant, op }).await;
        }
    }
    Ok(())
}
