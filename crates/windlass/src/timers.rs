//! Timers and recovery: what time brings, and what has to be put right.
//!
//! Each engine looks for itself, and there is no leader: whatever is found is sent as an op that names the version
//! it saw, so of two who find the same only one changes anything. An engine is woken when something is set that
//! rings earlier than it knows of, and looks once a second in any case.
//!
//! After a mass failure, recovery goes in small steps with pauses in between, so that new work is served beside it.

mod follow_ups;
mod recovery;
mod retention;
mod schedules;

use std::{
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until};
use windlass_kernel::{Op, Retention, timer};
use windlass_store::{Error, Listener, Store, Write, read::Due};

use self::follow_ups::Cancelling;
use crate::engine::Inner;

/// How timers and recovery go about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How often to look although nothing is known to ring.
    pub look_every: Duration,
    /// How many jobs one look takes on.
    pub batch_max: usize,
    /// The pause between two looks when there is more to do.
    pub pause: Duration,
    /// How often to look for what retention may take.
    pub prune_every: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            look_every: Duration::from_secs(1),
            batch_max: 200,
            pause: Duration::from_millis(20),
            prune_every: Duration::from_secs(60),
        }
    }
}

/// Two looks are at least so far apart: on a quiet store each claim is told, for its lease is the first to end.
const AT_LEAST: Duration = Duration::from_millis(2);

/// So many looks that fail in a row are told, whatever the reason.
const FAILURES_TOLD: u32 = 3;

/// Looks after timers and recovery. It does nothing until [`run`](Timers::run) is polled.
pub(crate) struct Timers {
    engine: Weak<Inner>,
    config: Config,
    retention: Option<Retention>,
}

impl Timers {
    pub(crate) fn new(engine: &Arc<Inner>, config: Config, retention: Option<Retention>) -> Self {
        Self { engine: Arc::downgrade(engine), config, retention }
    }

    /// The engine and its store, while somebody has them.
    fn engine(&self) -> Option<(Arc<Inner>, Arc<dyn Store>)> {
        let engine = self.engine.upgrade()?;
        let store = engine.own.clone()?;
        Some((engine, store))
    }

    /// Looks until `shutdown` is ready, or nobody has the engine any more.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = shutdown => {}
            () = self.look_on() => {}
            () = self.prune_on() => {}
        }
    }

    /// Forgets what may go. Nothing that is due waits for it.
    async fn prune_on(&self) {
        let Some(retention) = self.retention else { return std::future::pending().await };
        loop {
            sleep(self.config.prune_every).await;
            let Some((_engine, store)) = self.engine() else { return };
            retention::prune(&*store, retention).await;
        }
    }

    async fn look_on(&self) {
        let Some(mut sooner) = self.engine().map(|(_, store)| store.sooner()) else { return };
        let mut recover_at = Instant::now();
        let mut was_told = false;
        let mut cancelling = Cancelling::default();
        // How many looks have failed, one after the other.
        let mut failures = 0u32;
        loop {
            // What is set from here on is heard of again.
            sooner.mark_heard();
            let Some((engine, store)) = self.engine() else { return };
            let now = Instant::now();
            let mut recovering = Ok(false);
            if now >= recover_at {
                recovering = recovery::recover(&engine, &*store, self.config.batch_max).await;
                recover_at = match recovering {
                    Ok(true) => now,
                    Ok(false) | Err(_) => now + self.config.look_every,
                };
            }
            let looked = match recovering {
                Ok(more) => {
                    look(&engine, &*store, &mut cancelling, self.config.batch_max, more).await
                }
                Err(error) => Err(error),
            };
            // What was told of may have become due before the look, and is then not part of what comes next.
            if std::mem::take(&mut was_told) {
                engine.local.retry_due.ring();
            }
            let looked = looked.map_err(Arc::new);
            failures = if looked.is_ok() { 0 } else { failures.saturating_add(1) };
            match &looked {
                Ok(_) => engine.condition.looked(),
                // What passes is not worth telling before it has lasted a little.
                Err(error) if error.info().retryable && failures < FAILURES_TOLD => {}
                Err(error) if matches!(**error, Error::Stopped(_)) => {
                    engine.condition.stop(error.clone());
                }
                Err(error) => engine.condition.not_looked(error.clone()),
            }
            drop((engine, store));
            let Looked { more, next, next_retry } = match looked {
                Ok(looked) => looked,
                // It never comes back; whoever asks how the engine is hears it.
                Err(error) if matches!(*error, Error::Stopped(_)) => return,
                // The store is away, or something of it: it is looked for like anything else.
                Err(_) => Looked::default(),
            };
            if more {
                sleep(self.config.pause).await;
                continue;
            }
            let look_at = now + next.unwrap_or(Duration::MAX).min(self.config.look_every);
            was_told = self.wait(look_at, now, next_retry, &mut sooner).await;
        }
    }

    /// Waits until it is time to look again, and says whether somebody told it so. Meanwhile a retry may become
    /// due, which workers have to know.
    async fn wait(
        &self,
        look_at: Instant,
        now: Instant,
        next_retry: Option<Duration>,
        sooner: &mut Listener,
    ) -> bool {
        let retry_at = next_retry.map(|wait| now + wait).filter(|at| *at <= look_at);
        tokio::select! {
            biased;
            () = sooner.rung() => {
                sleep(AT_LEAST).await;
                true
            }
            () = sleep_until(retry_at.unwrap_or(look_at)) => {
                if retry_at.is_some()
                    && let Some(engine) = self.engine.upgrade()
                {
                    engine.local.retry_due.ring();
                }
                false
            }
        }
    }
}

/// What a look has found out.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    /// Is there more to do?
    more: bool,
    /// How long until the next alarm.
    next: Option<Duration>,
    /// How long until the next retry is due.
    next_retry: Option<Duration>,
}

/// Looks once, and does what has to be done. There may be more for another reason.
async fn look(
    engine: &Inner,
    store: &dyn Store,
    cancelling: &mut Cancelling,
    max: usize,
    recovering: bool,
) -> Result<Looked, Error> {
    let following = follow_ups::carry_out(engine, store, cancelling, max).await?;
    let asked_at = engine.ids.now();
    let Due { jobs, schedules, now, next_at, next_retry_at } = store.due(max).await?;
    engine.store_clock.hear(asked_at, now, engine.ids.now());
    let more = recovering || following || jobs.len() >= max || schedules.len() >= max;
    let ring = |job: windlass_store::read::DueJob| {
        let op: Op = timer::op_for(job.job_id, job.version, job.alarm, engine.jitter());
        Write::Op { tenant: job.tenant, op }
    };
    // A refusal means that the job has changed since, and that is as good.
    let _ = engine.submit_many(jobs.into_iter().map(ring).collect()).await;
    schedules::fire(engine, schedules).await;
    let from_now = |at: windlass_kernel::Timestamp| at.since(now);
    Ok(Looked { more, next: next_at.map(from_now), next_retry: next_retry_at.map(from_now) })
}
