//! What a commit locks and reads first: the jobs that its writes name, and the sessions of their workers.
//!
//! # The order of locks
//!
//! Every commit of every node locks in this order, and a row that it locks twice it holds already.
//! So two commits cannot deadlock, and the server's deadlock detector has nothing to find:
//!
//! 1. schedules, by tenant and name;
//! 2. tokens, by id;
//! 3. all jobs that its writes name, by id, in one statement: also those that the node remembers, and those of the letters
//!    that its writes name;
//! 4. the ids of its claims; the version of the rules, if it changes rules;
//! 5. sessions that it writes to, by worker: those that are there in one statement, then those that are new;
//! 6. letters, by id, also those of tasks that a new job may run again; then tasks, by tenant and name;
//! 7. the inbox, and what its rows name: what others have locked is not waited for, unless the commit promotes and does
//!    nothing else;
//! 8. rules, all at once, by name (`rule_locks`);
//! 9. what it makes: groups, then jobs by their keys, then tasks and follow-ups, schedules, tokens and marks, each by name;
//! 10. the end of the feed.
//!
//! Jobs that a claim takes are locked with `SKIP LOCKED`, which waits for nobody. What is only read is not locked: jobs
//! by key or by what is unique about them, the last job of a task, and what a repeated claim has got before. A transaction that is not a commit
//! (retention, the clearing of old ids, proof of death) waits for no row that a commit may have locked.

use tokio_postgres::Row;
use windlass_kernel::{DlqId, Op, TenantId, UniqueKey, ops::Idempotency};

use super::work::{Remembered, Work};
use crate::{
    IdMap, IdSet, Write,
    commit::{Key, Needs},
    postgres::{
        PgResult,
        link::{
            pipeline::Ask,
            types::{Uuid, Xid},
        },
        row::{
            column::id_of,
            job::{JOBS_READ, row_columns},
            session::{KnownSession, SESSIONS_LOCKED, session_columns},
        },
    },
};

/// In the order of their ids.
///
/// A `SELECT … FOR UPDATE` that had to wait for its lock returns the locked row as it is then, but
/// rows joined to it as they were in its older snapshot: so what a job's row refers to is loaded by
/// a later statement.
const JOBS: &str = concat!(
    "SELECT ",
    row_columns!(),
    " FROM jobs j WHERE j.id = ANY($1) ORDER BY j.id FOR UPDATE"
);

/// The same, but it fails where it would have to wait.
const JOBS_NO_WAIT: &str = concat!(
    "SELECT ",
    row_columns!(),
    " FROM jobs j WHERE j.id = ANY($1) ORDER BY j.id FOR UPDATE NOWAIT"
);

/// Locks jobs, and those of letters, and tells only which versions they are. The job of a letter never changes.
const VERSIONS: &str = "
    SELECT j.id, j.xmin FROM jobs j
    WHERE j.id = ANY($1 || ARRAY(SELECT job_id FROM dlq_items WHERE id = ANY($2)))
    ORDER BY j.id FOR UPDATE";

/// An enqueue that meets a job changes nothing of it. Served by the index `jobs_key`.
const JOBS_BY_KEY: &str = concat!(
    "SELECT ",
    row_columns!(),
    " FROM jobs j JOIN unnest($1::text[], $2::text[], $3::text[]) AS k (tenant, scope, key)
        ON j.tenant = k.tenant AND j.idempotency_scope = k.scope AND j.idempotency_key = k.key
     WHERE j.idempotency_key IS NOT NULL"
);

/// Those that are not at their end. Served by the index `jobs_unique`.
const JOBS_BY_UNIQUE: &str = concat!(
    "SELECT ",
    row_columns!(),
    " FROM jobs j JOIN unnest($1::text[], $2::text[]) AS k (tenant, unique_key)
        ON j.tenant = k.tenant AND j.unique_key = k.unique_key
     WHERE j.unique_key IS NOT NULL AND NOT (j.state = 'succeeded' OR j.state = 'partial'
        OR j.state = 'failed' OR j.state = 'cancelled')"
);

const SESSIONS: &str =
    concat!("SELECT ", session_columns!(), " FROM sessions WHERE worker = ANY($1)");

/// How jobs are locked that a write names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Waits for the transaction that has locked them.
    Waits,
    /// Fails if another transaction has locked them (`NOWAIT`).
    NoWait,
    /// Reads them without a lock: they are not changed.
    Reads,
}

/// What is asked first, with the beginning of the transaction.
pub(crate) struct FirstLoad {
    locking: Locking,
    /// Jobs to be read.
    jobs: Vec<Uuid>,
    /// Jobs that are remembered.
    remembered: Vec<Uuid>,
    letters: Vec<Uuid>,
    keys: Vec<Key>,
    uniques: Vec<(TenantId, UniqueKey)>,
    workers: Vec<String>,
    /// Workers whose sessions are locked.
    locked: Vec<String>,
}

/// What was found of jobs.
pub(crate) struct FoundJobs {
    /// Rows of those that were not remembered.
    pub(crate) rows: Vec<Row>,
    /// Jobs that were remembered, and whose rows are others by now or gone. They are locked.
    pub(crate) stale: Vec<Uuid>,
}

impl FirstLoad {
    /// What these writes need, less what is in the working set. If new ids are trusted to be new,
    /// their jobs are not looked up: the unique index tells at the insert, and then the commit is
    /// tried again without that trust.
    pub(crate) fn of(
        writes: &[Write],
        needs: &Needs,
        work: &Work<'_>,
        remembered: &[Remembered],
        trust_new: bool,
    ) -> Self {
        let fresh = if trust_new { fresh_ids(writes) } else { IdSet::default() };
        let mut seen: IdSet = remembered.iter().map(|(job, _)| job.id).collect();
        let jobs = needs.jobs.iter().filter(|id| !fresh.contains(id) && !work.set.contains(**id));
        let jobs = jobs.filter(|id| seen.insert(**id)).map(|id| Uuid(id.as_u128())).collect();
        let holders = remembered.iter().filter_map(|(job, _)| job.lease.as_ref());
        let holders = holders.map(|lease| lease.worker.as_str().to_owned());
        let (workers, locked) = workers_of(writes, holders.collect());
        Self {
            locking: Locking::Waits,
            jobs,
            remembered: remembered.iter().map(|(job, _)| Uuid(job.id.as_u128())).collect(),
            letters: needs.letters.iter().map(|id: &DlqId| Uuid(id.as_u128())).collect(),
            keys: needs.keys.iter().cloned().collect(),
            uniques: needs.uniques.iter().cloned().collect(),
            workers,
            locked,
        }
    }

    /// The same, with jobs locked in this way.
    pub(crate) fn locking(self, locking: Locking) -> Self {
        Self { locking, ..self }
    }

    /// Are these jobs locked by a statement of its own, which tells their versions?
    fn asks_versions(&self) -> bool {
        !(self.remembered.is_empty() && self.letters.is_empty())
    }

    /// The statements about jobs, which [`FirstLoad::take_jobs`] expects the rows of.
    pub(crate) fn ask_jobs(&self, asks: &mut Vec<Ask>) {
        if self.asks_versions() {
            let ids = [&self.remembered[..], &self.jobs[..]].concat();
            asks.push(Ask::new(VERSIONS).with(ids).with(self.letters.clone()));
        }
        if !self.jobs.is_empty() {
            let jobs = match self.locking {
                Locking::Waits if !self.asks_versions() => JOBS,
                Locking::NoWait => JOBS_NO_WAIT,
                Locking::Waits | Locking::Reads => JOBS_READ,
            };
            asks.push(Ask::new(jobs).with(self.jobs.clone()));
        }
        if !self.keys.is_empty() {
            let part = |part: fn(&Key) -> &str| -> Vec<String> {
                self.keys.iter().map(|key| part(key).to_owned()).collect()
            };
            asks.push(
                Ask::new(JOBS_BY_KEY)
                    .with(part(|key| key.0.as_str()))
                    .with(part(|key| key.1.as_str()))
                    .with(part(|key| key.2.as_str())),
            );
        }
        if !self.uniques.is_empty() {
            let tenants = self.uniques.iter().map(|(tenant, _)| tenant.as_str().to_owned());
            let keys = self.uniques.iter().map(|(_, unique)| unique.as_str().to_owned());
            let ask = Ask::new(JOBS_BY_UNIQUE).with(tenants.collect::<Vec<_>>());
            asks.push(ask.with(keys.collect::<Vec<_>>()));
        }
    }

    /// The statements about sessions, which [`FirstLoad::take_sessions`] expects the rows of.
    pub(crate) fn ask_sessions(&self, asks: &mut Vec<Ask>) {
        if !self.locked.is_empty() {
            asks.push(Ask::new(SESSIONS_LOCKED).with(self.locked.clone()));
        }
        if !self.workers.is_empty() {
            asks.push(Ask::new(SESSIONS).with(self.workers.clone()));
        }
    }

    /// Takes the rows, which come in the order of the statements. Of what was remembered, it adds to the working set what
    /// is still so. On another server than before nothing is: there the same number may be that of another transaction.
    pub(crate) fn take_jobs(
        &self,
        rows: &mut impl Iterator<Item = Vec<Row>>,
        remembered: Vec<Remembered>,
        is_known_server: bool,
        work: &mut Work<'_>,
    ) -> PgResult<FoundJobs> {
        let mut found = FoundJobs { rows: Vec::new(), stale: Vec::new() };
        if self.asks_versions() {
            let mut versions: IdMap<Xid> = IdMap::default();
            for row in rows.next().unwrap_or_default() {
                versions.insert(id_of(&row, 0)?, row.try_get(1)?);
            }
            for (job, place) in remembered {
                if is_known_server && versions.get(&job.id) == Some(&place.written_by) {
                    work.set.add_job(job, place);
                } else {
                    found.stale.push(Uuid(job.id.as_u128()));
                }
            }
        }
        for is_empty in [self.jobs.is_empty(), self.keys.is_empty(), self.uniques.is_empty()] {
            if !is_empty {
                found.rows.extend(rows.next().unwrap_or_default());
            }
        }
        Ok(found)
    }

    /// Takes the rows, which come in the order of the statements.
    pub(crate) fn take_sessions(
        &self,
        rows: &mut impl Iterator<Item = Vec<Row>>,
        work: &mut Work<'_>,
    ) -> PgResult<()> {
        for is_empty in [self.locked.is_empty(), self.workers.is_empty()] {
            if !is_empty {
                for row in rows.next().unwrap_or_default() {
                    work.add_session(KnownSession::of(&row)?);
                }
            }
        }
        Ok(())
    }

    /// Is the session of this worker locked?
    pub(crate) fn has_locked(&self, worker: &str) -> bool {
        self.locked.binary_search_by(|locked| locked.as_str().cmp(worker)).is_ok()
    }
}

/// The workers whose sessions are read, beside those that hold jobs, and those whose sessions are locked.
///
/// A renewal writes to its session. A claim writes to its own now and then: it is locked when that is known. But sessions
/// are locked in one statement: so if there is a renewal, those of claims are locked with it.
fn workers_of(writes: &[Write], holders: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut workers, mut locked, mut claimers) = (holders, Vec::new(), Vec::new());
    for write in writes {
        match write {
            Write::Op { op: Op::Claim(claim), .. } => {
                claimers.push(claim.worker.as_str().to_owned());
            }
            Write::Claim(wanted) => {
                workers.extend(wanted.neighbours.iter().map(|it| it.as_str().to_owned()));
                claimers.push(wanted.worker.as_str().to_owned());
            }
            Write::RenewSession { worker, .. } | Write::Listens { worker, .. } => {
                locked.push(worker.as_str().to_owned());
            }
            Write::Op { .. } | Write::FollowUpDone { .. } | Write::Schedule(_) => {}
            Write::Rule(_) | Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => {}
        }
    }
    if locked.is_empty() {
        workers.extend(claimers);
    } else {
        locked.extend(claimers);
    }
    locked.sort_unstable();
    locked.dedup();
    workers.sort_unstable();
    workers.dedup();
    workers.retain(|worker| locked.binary_search(worker).is_err());
    (workers, locked)
}

/// Ids that are only the names of jobs to be made, which have no other key. Where a unique key is asked for, another job
/// may be the answer, and then no insert tells that the id is taken.
pub(crate) fn fresh_ids(writes: &[Write]) -> IdSet {
    let (mut fresh, mut named) = (IdSet::default(), Vec::new());
    for write in writes {
        let Write::Op { op, .. } = write else { continue };
        if let Op::Enqueue(enqueue) = op
            && enqueue.new.idempotency == Idempotency::OwnId
            && enqueue.new.unique_key.is_none()
        {
            // The same id twice: the second is a repetition of the first, which the set knows.
            fresh.insert(enqueue.job_id);
            named.extend(op.footprint().relative);
        } else {
            named.extend(op.job_id());
            named.extend(op.footprint().relative);
        }
    }
    for id in named {
        fresh.remove(&id);
    }
    fresh
}
