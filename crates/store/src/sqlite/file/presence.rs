//! Proof of death: the file's lock. The process that has the file open is its only owner, so a
//! worker for which an earlier owner vouched, and this one does not, is dead.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, params};
use windlass_kernel::{JobId, TenantId, WorkerId};

use crate::{
    Error,
    read::ListeningWorker,
    sqlite::{
        SqlResult, Sqlite,
        row::column::{text_of, u128_of},
    },
};

/// The workers that this process vouches for.
#[derive(Default)]
pub(crate) struct Presence {
    workers: Mutex<BTreeSet<WorkerId>>,
}

impl Presence {
    fn workers(&self) -> MutexGuard<'_, BTreeSet<WorkerId>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sqlite {
    /// Says that this process runs the worker.
    pub(crate) async fn vouch_for(&self, worker: WorkerId) -> Result<(), Error> {
        // It is known before it is written: at no time does it look like the worker of another process.
        let is_new = self.presence.workers().insert(worker.clone());
        let vouched = self.writer.vouch(worker.clone(), true).await;
        if vouched.is_err() && is_new {
            self.presence.workers().remove(&worker);
        }
        vouched
    }

    /// The worker has ended: its session is like that of any other.
    pub(crate) async fn vouch_no_more(&self, worker: WorkerId) -> Result<(), Error> {
        self.writer.vouch(worker.clone(), false).await?;
        self.presence.workers().remove(&worker);
        Ok(())
    }

    /// Workers that an earlier process vouched for.
    pub(crate) async fn dead(&self) -> Result<Vec<WorkerId>, Error> {
        let mut vouched = self.readers.read(|snapshot| Ok(Ok(read_vouched(snapshot)?))).await?;
        let mine = self.presence.workers();
        vouched.retain(|worker| !mine.contains(worker));
        Ok(vouched)
    }
}

impl Sqlite {
    /// Leaves out the workers that somebody vouched for and this process does not: they are dead.
    pub(crate) fn keep_those_there(&self, listening: &mut Vec<ListeningWorker>) {
        let mine = self.presence.workers();
        listening.retain(|it| it.last_seen_at.is_some() || mine.contains(&it.worker));
    }
}

/// Served by the index `sessions_vouched`.
const VOUCHED: &str = "SELECT worker FROM sessions WHERE vouched = 1 ORDER BY worker";

fn read_vouched(connection: &Connection) -> SqlResult<Vec<WorkerId>> {
    let mut statement = connection.prepare_cached(VOUCHED)?;
    let workers = statement.query_map([], |row| text_of(row, 0))?;
    workers.collect()
}

/// Served by the index `jobs_leased`.
const HELD_BY: &str = "
    SELECT tenant, id, version FROM jobs
    WHERE lease_session = (SELECT id FROM sessions WHERE worker = ?1) LIMIT ?2";

/// What a worker holds, as an op that ends its leases names it.
pub(crate) fn read_held_by(
    connection: &Connection,
    worker: &WorkerId,
    max: usize,
) -> SqlResult<Vec<(TenantId, JobId, u64)>> {
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(HELD_BY)?;
    let rows = statement.query_map(params![worker.as_str(), limit], |row| {
        Ok((text_of(row, 0)?, JobId::from_u128(u128_of(row, 1)?), row.get(2)?))
    })?;
    rows.collect()
}
