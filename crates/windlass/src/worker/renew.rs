//! Renewals: one op keeps all leases of a worker, and brings back what it has to know.
//!
//! While the store is away the worker's jobs run on, for as long as their leases can still be saved. After that
//! somebody else may have them: they are dropped.

use tokio::time::{Instant, sleep_until, timeout_at};
use windlass_store::{Reply, Write};

use super::run::Shared;

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
        let Some(lapse) = shared.executions.next_lapse() else { continue };
        let grants = shared.executions.grants();
        let write = Write::RenewSession { worker: shared.worker.clone(), lease };
        match timeout_at(lapse, shared.inner().submit(write)).await {
            Ok(Ok(Reply::Renewed { held, cancelled, .. })) => {
                shared.executions.renewed(grants, sent + lease, &held, &cancelled);
            }
            Ok(Ok(_)) => unreachable!("a renewal is answered by a renewal"),
            // The next time, and sooner.
            Ok(Err(_)) | Err(_) => {
                at = Instant::now() + every / 4;
                shared.executions.lose_lapsed(Instant::now());
            }
        }
    }
}
