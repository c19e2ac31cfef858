//! Proof of death: a process that runs a worker holds a lock for it, on a connection of its own, while it lives.
//!
//! When the process ends, however it ends, the server gives the lock up at once, and others need not wait until
//! the leases run out. A connection can also break while both ends live; its process then takes the lock again
//! on a new one. So a lock that is free is only a suspicion, and one that stays free is a proof. A process that is
//! frozen keeps its connection: for that one, and for workers that nobody vouches for, the lease decides.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use deadpool_postgres::ClientWrapper;
use tokio::{sync::Notify, time::sleep};
use tokio_postgres::Client;
use windlass_kernel::{JobId, TenantId, WorkerId};

use super::{
    pipeline::{Ask, run_one},
    wake::Ended,
};
use crate::{
    Error,
    postgres::{
        Failure, Inner, PgResult,
        row::column::{id_of, number, text_of},
    },
};

/// The workers that this process vouches for, and the sessions that may be dead.
#[derive(Default)]
pub(crate) struct Presence {
    state: Mutex<State>,
    wanted: Notify,
    held: Notify,
}

#[derive(Default)]
struct State {
    /// Workers that this process runs.
    workers: BTreeSet<WorkerId>,
    /// Those whose locks it holds.
    held: BTreeSet<WorkerId>,
    /// Sessions whose locks were found free, and since when.
    suspects: HashMap<i32, Instant>,
}

/// How long a lock has to be free before its session counts as dead: a connection that broke is made anew in
/// less.
const PROOF: Duration = Duration::from_secs(2);

/// How soon a connection that broke is made anew.
const RECONNECT: Duration = Duration::from_millis(100);

impl Presence {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its session is made if it has none.
const ADD_SESSION: &str = "
    INSERT INTO sessions (worker, until, renewals, lapses_at, started_at)
    VALUES ($1, 'epoch', 0, 'epoch', clock_timestamp()) ON CONFLICT (worker) DO NOTHING";
const VOUCHED: &str = "UPDATE sessions SET vouched = true WHERE worker = $1 AND NOT vouched";
/// A worker that has ended listens to nothing.
const UNVOUCHED: &str = "
    UPDATE sessions SET vouched = false, listens = NULL
    WHERE worker = $1 AND (vouched OR listens IS NOT NULL)";

/// The process of a live worker holds its advisory lock. A lock that can be taken here belongs to
/// no live process; it is released at once, with the transaction.
const FREE_LOCKS: &str = "
    SELECT id, worker FROM sessions
    WHERE vouched AND pg_try_advisory_xact_lock($1, id)";

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT j.tenant, j.id, j.version FROM sessions s JOIN jobs j ON j.lease_session = s.id
    WHERE s.worker = $1 AND j.lease_session IS NOT NULL LIMIT $2";

impl Inner {
    /// Says that this process runs the worker, and holds its lock from now on.
    pub(crate) async fn vouch(&self, worker: &WorkerId) -> Result<(), Error> {
        let add = async |client: &ClientWrapper| -> PgResult<()> {
            let name = worker.as_str().to_owned();
            Ok(run_one(client, Ask::new(ADD_SESSION).with(name)).await.map(drop)?)
        };
        self.with_client(add).await?;
        self.presence.state().workers.insert(worker.clone());
        self.presence.wanted.notify_one();
        let held = async {
            loop {
                let changed = self.presence.held.notified();
                if self.presence.state().held.contains(worker) {
                    return Ok::<(), Failure>(());
                }
                changed.await;
            }
        };
        if self.within(held).await.is_err() {
            self.presence.state().workers.remove(worker);
            // If it gets the lock later, it gives it up.
            self.presence.wanted.notify_one();
            let why = format!("another process that lives runs {worker}, or the server is away");
            return Err(Error::Unavailable(why.into()));
        }
        Ok(())
    }

    /// The worker has ended well: its session is like that of any other.
    pub(crate) async fn stop_vouching(&self, worker: &WorkerId) -> Result<(), Error> {
        let note = async |client: &ClientWrapper| -> PgResult<()> {
            let name = worker.as_str().to_owned();
            Ok(run_one(client, Ask::new(UNVOUCHED).with(name)).await.map(drop)?)
        };
        self.with_client(note).await?;
        self.presence.state().workers.remove(worker);
        self.presence.wanted.notify_one();
        Ok(())
    }

    /// Workers whose processes are proven dead, as of two looks that lie far enough apart.
    pub(crate) async fn dead_workers(&self) -> Result<Vec<WorkerId>, Error> {
        let class = self.presence_class();
        let look = async |client: &ClientWrapper| -> PgResult<Vec<(i32, WorkerId)>> {
            let rows = run_one(client, Ask::new(FREE_LOCKS).with(class)).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, text_of(row, 1)?))).collect()
        };
        let free = self.with_client(look).await?;
        let mut state = self.presence.state();
        #[expect(
            clippy::disallowed_methods,
            reason = "two looks of this process, however the server's clock is set in between"
        )]
        let now = Instant::now();
        let since = std::mem::take(&mut state.suspects);
        let mut dead = Vec::new();
        for (id, worker) in free {
            let since = since.get(&id).copied().unwrap_or(now);
            state.suspects.insert(id, since);
            if now - since >= PROOF {
                dead.push(worker);
            }
        }
        Ok(dead)
    }

    /// What a worker holds, as an op that ends its leases names it.
    pub(crate) async fn held_by(
        &self,
        worker: &WorkerId,
        max: usize,
    ) -> Result<Vec<(TenantId, JobId, u64)>, Error> {
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        let read = async |client: &ClientWrapper| -> PgResult<Vec<_>> {
            let ask = Ask::new(HELD).with(worker.as_str().to_owned()).with(limit);
            let rows = run_one(client, ask).await?;
            let lease = |row: &_| Ok((text_of(row, 0)?, id_of(row, 1)?, number(row, 2)?));
            rows.iter().map(lease).collect()
        };
        self.with_client(read).await
    }

    pub(crate) fn presence_class(&self) -> i32 {
        self.feed_lock.0.wrapping_add(self.feed_lock.1).wrapping_add(5)
    }
}

/// Holds the locks of the workers that this process vouches for, on a connection of its own.
pub(crate) async fn attend(inner: &Inner) {
    loop {
        while inner.presence.state().workers.is_empty() {
            inner.presence.wanted.notified().await;
        }
        let wake = &inner.wake;
        if let Ok((client, task)) = wake.connector().alone(wake.config(), || {}).await {
            let mut ended = Ended(task);
            tokio::select! {
                () = &mut ended => {}
                _ = hold(inner, &client) => {}
            }
        }
        inner.presence.state().held.clear();
        sleep(RECONNECT).await;
    }
}

const LOCK: &str = "SELECT pg_advisory_lock($1, id) FROM sessions WHERE worker = $2";
const UNLOCK: &str = "SELECT pg_advisory_unlock($1, id) FROM sessions WHERE worker = $2";

/// Takes and gives up locks as workers come and go. It ends with the connection.
async fn hold(inner: &Inner, client: &Client) -> Result<(), tokio_postgres::Error> {
    let class = inner.presence_class();
    loop {
        let (come, gone) = {
            let state = inner.presence.state();
            let come: Vec<WorkerId> = state.workers.difference(&state.held).cloned().collect();
            let gone: Vec<WorkerId> = state.held.difference(&state.workers).cloned().collect();
            (come, gone)
        };
        for worker in gone {
            client.execute(UNLOCK, &[&class, &worker.as_str()]).await?;
            inner.presence.state().held.remove(&worker);
        }
        for worker in come {
            client.execute(LOCK, &[&class, &worker.as_str()]).await?;
            // While the lock was free this process may have been taken for dead, and its session forgotten.
            if inner.presence.state().workers.contains(&worker) {
                client.execute(VOUCHED, &[&worker.as_str()]).await?;
            }
            inner.presence.state().held.insert(worker);
            inner.presence.held.notify_waiters();
        }
        inner.presence.wanted.notified().await;
    }
}
