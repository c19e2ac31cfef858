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

/// A worker that got nothing so many times in a row although jobs are left will get nothing more.
const IN_VAIN_MAX: u32 = 1_000;

/// The times are of jobs, each from the call of its claim to the durable answer to its settle. The jobs of
/// one batch have the same.
pub(super) async fn run(load: &Arc<Load>, workers: u64) -> Result<Times, Error> {
    let tasks: JoinSet<_> = (1..=workers).map(|number| work(load.clone(), number)).collect();
    gather(tasks).await
}

async fn work(load: Arc<Load>, number: u64) -> Result<Times, Error> {
    let worker = worker(number);
    let mut times = Times::default();
    let mut in_vain = 0;
    loop {
        let count = load.take(BATCH);
        if count == 0 {
            return Ok(times);
        }
        let start = Instant::now();
        let max = usize::try_from(count).expect("a batch is small");
        let granted = load.claim_up_to(&worker, max).await?;
        let got = granted.len() as u64;
        // On a server another claim may have jobs locked that it will not take.
        load.give_back(count - got);
        in_vain = if got == 0 { in_vain + 1 } else { 0 };
        if in_vain == IN_VAIN_MAX {
            return Err(Error::Short { wanted: max, got: 0 });
        }
        if got > 0 {
            load.settle(&worker, &granted).await?;
            times.record(start.elapsed(), got);
            load.progress.add(got)?;
        }
    }
}
