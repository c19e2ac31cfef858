//! One run: prepare, measure, close, and look at what it left on the disk.

use std::time::Duration;

use windlass::{Each, rule};

use super::{
    bulk, drain, enqueue,
    error::Error,
    latency,
    load::Load,
    measure::{self, Meter},
    noop::Noop,
    options::{Plan, Workload},
    place::Database,
    progress::Progress,
    rig::Rig,
    times::Times,
};

/// How many callers or workers prepare. One makes a batch while another's is written.
const PREPARING: u64 = 2;

/// What a run came to.
pub(super) struct Measured {
    pub(super) took: Duration,
    pub(super) cpu: Duration,
    pub(super) commits: u64,
    pub(super) times: Times,
    /// By how much the database grew, from before the measured jobs were put in to after the store was
    /// closed.
    pub(super) grown_bytes: u64,
    pub(super) peak_rss_bytes: Option<u64>,
}

pub(super) async fn run(
    plan: &Plan,
    database: &Database,
    progress: &Progress,
) -> Result<Measured, Error> {
    measure::forget_peak();
    let rig = Rig::open(database).await?;
    let prepared = prepare(plan, &rig, progress).await;
    close(rig, prepared).await?;
    // Both sizes are those of a store that was closed, so neither has a log beside it.
    let before = database.size_bytes().await?;
    let rig = Rig::open(database).await?;
    let measured = measure(plan, &rig, progress).await;
    let measured = close(rig, measured).await?;
    let grown_bytes = database.size_bytes().await?.saturating_sub(before);
    Ok(Measured { grown_bytes, ..measured })
}

/// Closes the store, whatever came before. What came before is what is told.
async fn close<T>(rig: Rig, result: Result<T, Error>) -> Result<T, Error> {
    rig.close().await;
    result
}

/// Finished jobs, and those that stay behind.
async fn prepare(plan: &Plan, rig: &Rig, progress: &Progress) -> Result<(), Error> {
    let load = |jobs| Load::new(rig.handle(), progress.clone(), noop(plan), jobs);
    progress.begin("putting in the history", plan.history);
    bulk::run(&load(plan.history), PREPARING).await?;
    progress.begin("finishing the history", plan.history);
    drain::run(rig.engine(), progress, plan.history, PREPARING, || ()).await?;
    progress.begin("putting in the backlog", plan.backlog);
    let backlog = match plan.workload {
        Workload::Latency => Noop::of_another_tenant(),
        _ => noop(plan),
    };
    let backlog = Load::new(rig.handle(), progress.clone(), backlog, plan.backlog);
    bulk::run(&backlog, PREPARING).await?;
    if let Some(limit) = plan.limit {
        rig.engine().put_rule(rule("bench at once").at_most(limit)).await?;
    }
    if plan.keys > 0 {
        rig.engine().put_rule(rule("bench by key").each(Each::Key).at_most(1)).await?;
    }
    Ok(())
}

fn noop(plan: &Plan) -> Noop {
    Noop::spread(plan.tenants, plan.keys)
}

async fn measure(plan: &Plan, rig: &Rig, progress: &Progress) -> Result<Measured, Error> {
    let load = || Load::new(rig.handle(), progress.clone(), noop(plan), plan.jobs);
    if plan.workload == Workload::Drain {
        // Whatever is oldest is drained, and as many stay behind as the backlog has: all are alike.
        progress.begin("putting in the jobs", plan.jobs);
        bulk::run(&load(), PREPARING).await?;
    }
    progress.begin("measuring", plan.jobs);
    let (load, before, meter) = (load(), rig.commits(), Meter::start());
    let read = || (meter.read(), rig.commits() - before);
    let mut done = None;
    let times = match plan.workload {
        Workload::Enqueue => enqueue::run(&load, plan.concurrency).await?,
        Workload::EnqueueBulk => bulk::run(&load, plan.concurrency).await?,
        Workload::Drain => {
            let (jobs, workers) = (plan.jobs, plan.concurrency);
            drain::run(rig.engine(), progress, jobs, workers, || done = Some(read())).await?
        }
        Workload::Latency => latency::run(rig.engine(), &load, plan.jobs, plan.concurrency).await?,
        Workload::Http => unreachable!("it has its own way"),
    };
    let ((took, cpu), commits) = done.unwrap_or_else(read);
    let peak_rss_bytes = measure::peak_rss_bytes();
    Ok(Measured { took, cpu, commits, times, grown_bytes: 0, peak_rss_bytes })
}
