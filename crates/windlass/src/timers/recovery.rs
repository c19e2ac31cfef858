//! Recovery of what a dead process held.
//!
//! A worker whose process is proven dead loses its jobs at once. Any other keeps them until its lease runs out,
//! which is an alarm like others.

use windlass_kernel::{
    Op,
    ops::{Expire, Expiry},
};
use windlass_store::{Error, Watch, Write};

use crate::engine::Inner;

/// Takes at most so many jobs from workers that are proven dead. Is there more to do?
pub(super) async fn recover(engine: &Inner, store: &dyn Watch, max: usize) -> Result<bool, Error> {
    let mut left = max;
    for worker in store.dead_workers().await? {
        let held = store.held_by(&worker, left).await?;
        if held.is_empty() {
            store.stop_vouching(&worker).await?;
            continue;
        }
        left -= held.len();
        let expire = |(tenant, job_id, version)| {
            let (what, jitter) = (Expiry::DeadSession, engine.jitter());
            Write::Op { tenant, op: Op::Expire(Expire { job_id, version, what, jitter }) }
        };
        let _ = engine.submit_many(held.into_iter().map(expire).collect()).await;
        if left == 0 {
            return Ok(true);
        }
    }
    // What was taken has to be looked at once more: then nothing is held, and the worker is forgotten.
    Ok(left < max)
}
