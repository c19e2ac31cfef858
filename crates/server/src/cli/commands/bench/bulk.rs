//! `enqueue-bulk`: jobs in batches, as an import brings them. Other workloads are prepared with it too.

use std::{sync::Arc, time::Instant};

use tokio::task::JoinSet;

use super::{
    error::Error,
    load::{Load, gather},
    noop::Noop,
    times::Times,
};

/// The most jobs of one call.
const BATCH: u64 = 1000;

/// The times are of calls: of whole batches.
pub(super) async fn run(load: &Arc<Load>, callers: u64) -> Result<Times, Error> {
    let tasks: JoinSet<_> = (0..callers).map(|_| call(load.clone())).collect();
    gather(tasks).await
}

async fn call(load: Arc<Load>) -> Result<Times, Error> {
    let mut times = Times::default();
    loop {
        let count = load.take(BATCH);
        if count == 0 {
            return Ok(times);
        }
        let start = Instant::now();
        let writes = (0..count).map(|_| Noop::write(load.noop.enqueue())).collect();
        load.submit_all(writes).await?;
        times.record(start.elapsed(), 1);
        load.progress.add(count)?;
    }
}
