//! The bells of tenants: one look at the store for all who wait for the jobs of one tenant.
//!
//! The store's bell rings for everybody. It is passed on to those who wait for one tenant if this server has just
//! written to that tenant's things. What else rang may have been another tenant, another node or a rule that lets more
//! go: then one look finds out, for all who wait, whether anything has changed for this tenant. So nobody hears what
//! another tenant does.
//!
//! Always true here: the looks of one tenant take at most a twentieth of the time of one reader, however many wait and
//! however often it rings.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout};
use windlass::Engine;
use windlass_kernel::{State, TenantId};
use windlass_store::{
    Bell, Listener,
    read::{JobFilter, OldestReady, PageFrom, Scope},
};

use crate::http::core::room::Rooms;

/// Every tenant's bell that somebody waits for.
pub(crate) struct Bells {
    tenants: Mutex<HashMap<TenantId, Weak<TenantBell>>>,
    rooms: Arc<Rooms>,
}

/// The bell of one tenant. It is looked after as long as somebody has it.
#[derive(Debug, Default)]
pub(crate) struct TenantBell {
    bell: Bell,
    streams: AtomicUsize,
}

/// After the store's bell so long for word of what was written: it comes with the same commit.
const WORD: Duration = Duration::from_millis(2);
/// How often a tenant whose jobs are ready is rung for at the least: what holds them back may have gone.
const TICK: Duration = Duration::from_secs(1);
/// Two looks are at least so far apart, and so many times as long as the first took.
const REST: Duration = Duration::from_millis(10);
const REST_TIMES: u32 = 20;
/// How many frames a second all streams of a tenant are sent together.
const FRAMES_PER_SECOND: u32 = 5_000;

impl TenantBell {
    pub(crate) fn listen(&self) -> Listener {
        self.bell.listen()
    }

    /// One more stream rings for this tenant.
    pub(crate) fn stream(&self) -> impl Drop + use<'_> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Leaves(&self.streams)
    }

    /// How far two rings of one stream lie apart at the least: the more streams, the further.
    pub(crate) fn apart(&self) -> Duration {
        let streams = u32::try_from(self.streams.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        WORD.max(Duration::from_secs(1).saturating_mul(streams) / FRAMES_PER_SECOND)
    }
}

struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Bells {
    pub(crate) fn new(rooms: Arc<Rooms>) -> Self {
        Self { tenants: Mutex::default(), rooms }
    }

    /// The bell of a tenant.
    pub(crate) fn of(&self, engine: &Engine, tenant: &TenantId) -> Arc<TenantBell> {
        let mut tenants = self.tenants.lock().expect("nobody panics with it");
        if let Some(bell) = tenants.get(tenant).and_then(Weak::upgrade) {
            return bell;
        }
        tenants.retain(|_, bell| bell.strong_count() > 0);
        let bell = Arc::new(TenantBell::default());
        tenants.insert(tenant.clone(), Arc::downgrade(&bell));
        let watch = Watch::new(engine.clone(), tenant.clone(), self.rooms.clone());
        tokio::spawn(watch.run(Arc::downgrade(&bell)));
        bell
    }
}

/// What rang.
enum Cause {
    /// This server has written to the tenant's things, and something is ready.
    Own,
    /// Something is ready, and nobody knows whose it is.
    Unknown,
    /// A retry of anybody is due.
    Retry,
    /// It is time to look.
    Time,
    /// It was not about what is ready.
    Nothing,
}

/// Looks after the bell of one tenant.
struct Watch {
    engine: Engine,
    tenant: TenantId,
    rooms: Arc<Rooms>,
    ready: Listener,
    retry_due: Listener,
    touched: Listener,
    /// What the last look found.
    found: Vec<OldestReady>,
    rung_at: Instant,
    /// No look before this.
    rest_until: Instant,
    /// A look is due then.
    look_at: Instant,
    /// A retry became due while there was no look, and the next has to look for it.
    retry_waits: bool,
}

impl Watch {
    fn new(engine: Engine, tenant: TenantId, rooms: Arc<Rooms>) -> Self {
        let (ready, retry_due) = (engine.store().ready(), engine.retry_due());
        let touched = engine.touched(&tenant);
        let now = Instant::now();
        Self {
            engine,
            tenant,
            rooms,
            ready,
            retry_due,
            touched,
            found: Vec::new(),
            rung_at: now,
            rest_until: now,
            look_at: now + TICK,
            retry_waits: false,
        }
    }

    async fn run(mut self, bell: Weak<TenantBell>) {
        loop {
            let cause = self.cause().await;
            // Nobody waits any more.
            let Some(bell) = bell.upgrade() else { return };
            let rings = match cause {
                Cause::Own => true,
                Cause::Nothing => false,
                Cause::Retry => self.has_retries().await,
                Cause::Unknown | Cause::Time => self.look().await,
            };
            if rings {
                self.rung_at = Instant::now();
                bell.bell.ring();
                self.rooms.tell(&self.tenant);
            }
        }
    }

    async fn cause(&mut self) -> Cause {
        tokio::select! {
            biased;
            () = self.touched.rung() => {
                // The store's bell rings before it is known what was written.
                let is_ready = self.ready.is_rung();
                self.ready.mark_heard();
                if is_ready { Cause::Own } else { Cause::Nothing }
            }
            () = self.ready.rung() => {
                match timeout(WORD, self.touched.rung()).await {
                    Ok(()) => Cause::Own,
                    Err(_) => self.look_or_rest(Cause::Unknown),
                }
            }
            () = self.retry_due.rung() => self.look_or_rest(Cause::Retry),
            () = sleep_until(self.look_at) => match std::mem::take(&mut self.retry_waits) {
                true => Cause::Retry,
                false => Cause::Time,
            },
        }
    }

    /// If the last look was too short a time ago, the next is made when it may be.
    fn look_or_rest(&mut self, cause: Cause) -> Cause {
        if Instant::now() >= self.rest_until {
            return cause;
        }
        self.retry_waits |= matches!(cause, Cause::Retry);
        self.look_at = self.look_at.min(self.rest_until);
        Cause::Nothing
    }

    /// Has anything changed, or is it time to ring for what is there?
    async fn look(&mut self) -> bool {
        let began = Instant::now();
        let scope = Scope::Of(self.tenant.clone());
        let found = self.engine.store().oldest_ready(&scope).await;
        self.rest(began);
        // A store that does not answer is no reason to leave somebody asleep.
        let Ok(found) = found else { return true };
        let is_due = self.rung_at.elapsed() >= TICK;
        let rings = !found.is_empty() && (is_due || found != self.found);
        self.found = found;
        rings
    }

    async fn has_retries(&mut self) -> bool {
        let began = Instant::now();
        let scope = Scope::Of(self.tenant.clone());
        let states = vec![State::RetryScheduled, State::Queued, State::Interrupted];
        let filter = JobFilter { states, ..JobFilter::of(scope) };
        let page = self.engine.store().jobs(filter, PageFrom { from: None, limit: 1 }).await;
        self.rest(began);
        // A page that ends early has not seen everything.
        page.map_or(true, |page| !page.items.is_empty() || page.next.is_some())
    }

    fn rest(&mut self, began: Instant) {
        let now = Instant::now();
        self.rest_until = now + REST.max(now.duration_since(began) * REST_TIMES);
        self.look_at = self.rest_until.max(now + TICK);
    }
}

#[cfg(test)]
mod tests {
    use windlass::JobRequest;

    use super::*;

    #[tokio::test]
    async fn a_retry_that_is_due_in_a_rest_is_heard_of_after_it() {
        async fn fails(_: ()) -> windlass::HandlerResult {
            Err("once more".into())
        }
        let engine = Engine::open("sqlite::memory:").await.unwrap();
        let tenant = TenantId::new("default").unwrap();
        let mut watch = Watch::new(engine.clone(), tenant, Arc::new(Rooms::default()));
        let worker = engine.worker().handle_kind("fails", fails).start().await.unwrap();
        let soon = Duration::from_millis(200);
        let made = engine.enqueue(JobRequest::of("fails", &()).backoff(soon, soon)).await.unwrap();
        loop {
            if engine.job(made.id).await.unwrap().state == State::RetryScheduled {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        worker.shutdown().await.unwrap();
        // It has just looked, and that took long.
        watch.rest_until = Instant::now() + Duration::from_secs(1);
        watch.look_at = watch.rest_until + TICK;
        let heard = async { while !matches!(watch.cause().await, Cause::Retry) {} };
        timeout(Duration::from_secs(30), heard).await.expect("it is heard of");
        assert!(watch.has_retries().await);
    }
}
