//! `drain`: workers empty a queue. They claim and start a batch, and settle it, again and again.

use std::{sync::Arc, time::Instant};

use tokio::task::JoinSet;

use super::{
    error::Error,
    load::{Load, gather},
    noop::worker,
    times::Times,
};

/// The most jobs of one claim.
const BATCH: u64 = 500;

/// The times are of jobs, each from the call of its claim to the durable answer to its settle. The jobs of
/// one batch have the same.
pub(super) async fn run(load: &Arc<Load>, workers: u64) -> Result<Times, Error> {
    let tasks: JoinSet<_> = (1..=workers).map(|number| work(load.clone(), number)).collect();
    gather(tasks).await
}

async fn work(load: Arc<Load>, number: u64) -> Result<Times, Error> {
    let worker = worker(number);
    let mut times = Times::default();
    loop {
        let count = load.take(BATCH);
        if count == 0 {
            return Ok(times);
        }
        let start = Instant::now();
        let max = usize::try_from(count).expect("a batch is small");
        let granted = load.claim(&worker, max).await?;
        load.settle(&worker, &granted).await?;
        times.record(start.elapsed(), count);
        load.progress.add(count)?;
    }
}
