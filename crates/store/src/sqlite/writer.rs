//! The writer: the one thread that changes the database.
//!
//! It takes a batch, puts it into one transaction, waits until that is on the disk, and answers. An error
//! of the disk, or a row that cannot be right, ends it for good: after a failed fsync nobody knows what
//! is on the disk, so nothing more is acknowledged until the file was opened again.

use std::{mem, time::Duration};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, config::DbConfig};
use tokio::sync::mpsc;
use windlass_kernel::{
    Answer, Jitter, JobId, Op, Refusal, Retention, TenantId, Timestamp, WorkerId,
    ops::{Expire, Expiry},
};

use super::{
    Clock, SqlResult, claim, classify, inbox,
    load::{self, Place},
    mark::{Mark, Point},
    named::Named,
    names::Names,
    open::{INCARNATION, SET_INCARNATION},
    retention::{self, Sweep},
    save,
    work::{Held, Work},
    writer_thread::Request,
};
use crate::{
    ClaimMany, Error, IdMap, Replies, Reply, Write,
    commit::{Granted, Needs, Row},
    read::Pruned,
};

/// What the thread owns.
pub(super) struct Writer {
    connection: Connection,
    named: Named,
    mark: Mark,
    clock: Clock,
    names: Names,
    held: Held,
    sweep: Sweep,
    /// The greatest id of a job that is forgotten while the log still speaks of it.
    last_pruned: Option<JobId>,
    /// A transaction failed: what was remembered may be what was not written.
    is_unsure: bool,
    last_event: u64,
    last_now: Timestamp,
    /// No job has a later id.
    newest: JobId,
    incarnation: u32,
    /// How many rows of the inbox the last transaction took.
    promoting: usize,
}

/// How many pages the log has, and how many of them are in the database already.
const LOG_LENGTH: &str = "PRAGMA wal_checkpoint(NOOP)";
/// Folds what no reader still needs, and waits for nobody.
const FOLD_LOG: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// How many pages the log may have before it is folded into the database.
const LOG_PAGES_MAX: i64 = 1_000;

const NEWEST: &str = "SELECT coalesce(max(id), zeroblob(16)) FROM jobs";
const LAST: &str = "SELECT id + count - 1, at FROM log ORDER BY id DESC LIMIT 1";

impl Writer {
    pub(super) fn new(
        connection: Connection,
        named: Named,
        mark: Mark,
        clock: Clock,
    ) -> Result<Self, Error> {
        let (last_event, at) = connection
            .query_row(LAST, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(classify)?
            .unwrap_or((0, 0));
        let names = Names::load(&connection).map_err(classify)?;
        let last_now = Timestamp::from_micros(at);
        let incarnation = connection.query_row(INCARNATION, [], |row| row.get(0)).optional();
        let incarnation = incarnation.map_err(classify)?.unwrap_or(0);
        let newest = connection.query_row(NEWEST, [], |row| load::u128_of(row, 0));
        let newest = JobId::from_u128(newest.map_err(classify)?);
        let last_pruned = retention::load_last_pruned(&connection).map_err(classify)?;
        let (held, sweep, is_unsure) = (Held::default(), Sweep::default(), false);
        Ok(Self {
            connection,
            named,
            mark,
            clock,
            names,
            held,
            sweep,
            last_pruned,
            is_unsure,
            last_event,
            last_now,
            newest,
            incarnation,
            promoting: 0,
        })
    }

    /// Ends the leases of earlier incarnations: they are from before the store was restored, so their
    /// workers know of a past that this store has not had. Each is an op like any other.
    pub(super) fn end_old_leases(&mut self) -> Result<(), Error> {
        let first_epoch = u64::from(self.incarnation) << 32;
        loop {
            let old = load::load_leased_before(&self.connection, first_epoch).map_err(classify)?;
            let expire = |(tenant, job_id, version)| {
                let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
                Write::Op { tenant, op: Expire { job_id, version, what, jitter }.into() }
            };
            let writes: Vec<Write> = old.into_iter().map(expire).collect();
            if writes.is_empty() {
                return Ok(());
            }
            let done = self.commit_with(&writes, 0)?;
            // Each ends a lease; if none did, nothing more can be done here, and leases still lapse.
            if !done.is_some_and(|replies| replies.iter().any(Result::is_ok)) {
                return Ok(());
            }
        }
    }

    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Request>) {
        while let Some(request) = inbox.blocking_recv() {
            let goes_on = match request {
                Request::Commit(writes, answer) => tell(self.commit(&writes), |result| {
                    let _ = answer.send(result);
                }),
                Request::Prune(retention, max, answer) => {
                    tell(self.prune(&retention, max), |result| {
                        let _ = answer.send(result);
                    })
                }
                Request::RaiseIncarnation(answer) => tell(self.raise_incarnation(), |result| {
                    let _ = answer.send(result);
                }),
            };
            if !goes_on {
                return self.abandon();
            }
            if let Err(error) = self.fold_log() {
                // Whoever asks next is told why.
                if let Some(request) = inbox.blocking_recv() {
                    request.refuse(error);
                }
                return self.abandon();
            }
        }
        self.mark.close();
    }

    /// Folds a log that has grown long into the database, after those who waited were answered.
    ///
    /// SQLite would do it by itself, and would not say when it fails: a disk that can no longer be synced
    /// would go unnoticed while the log grows. A disk that is full is no reason to end: the log stays as it
    /// is, and the next commit tries again.
    fn fold_log(&self) -> Result<(), Error> {
        let count = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        let ask = |sql| self.connection.prepare_cached(sql)?.query_row([], count);
        let fold = || -> SqlResult<()> {
            let (pages, folded): (i64, i64) = ask(LOG_LENGTH)?;
            if pages >= LOG_PAGES_MAX && folded < pages {
                ask(FOLD_LOG)?;
            }
            Ok(())
        };
        match fold().map_err(classify) {
            Err(error @ (Error::Stopped(_) | Error::Damaged(_))) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Leaves the files as they are: what comes after a failure of the disk is for the next start.
    fn abandon(self) {
        let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }

    fn raise_incarnation(&mut self) -> Result<(), Error> {
        let next = self.incarnation + 1;
        self.connection.execute(SET_INCARNATION, [next]).map_err(classify)?;
        self.incarnation = next;
        self.note();
        Ok(())
    }

    /// One step of retention, one transaction. It writes no event. After an error the pass begins anew.
    fn prune(&mut self, retention: &Retention, max: usize) -> Result<Pruned, Error> {
        let now = (self.clock)().max(self.last_now);
        let sweep = mem::take(&mut self.sweep);
        let step = || -> SqlResult<_> {
            let transaction =
                self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (pruned, sweep) = retention::prune(&transaction, sweep, retention, max, now)?;
            let last_pruned = retention::load_last_pruned(&transaction)?;
            transaction.commit()?;
            Ok((pruned, sweep, last_pruned))
        };
        let (pruned, sweep, last_pruned) = step().map_err(classify)?;
        (self.sweep, self.last_pruned, self.last_now) = (sweep, last_pruned, now);
        Ok(pruned)
    }

    /// Marks how far the history went, before anyone is told.
    fn note(&mut self) {
        self.mark.note(Point { incarnation: self.incarnation, event: self.last_event });
    }

    /// A batch, and before it what waits in the inbox, in one transaction.
    ///
    /// The inbox gets transactions of its own in two cases: it is long and may hold a job that the batch
    /// names, or the database refuses what some row would do, which must not fail the batch.
    fn commit(&mut self, writes: &[Write]) -> Result<Replies, Error> {
        match self.commit_with(writes, inbox::ROWS_MAX) {
            Ok(Some(replies)) => return Ok(replies),
            Err(Error::Contradiction(_)) if self.promoting > 0 => {}
            Ok(None) => {}
            Err(error) => return Err(error),
        }
        self.promote_all()?;
        let replies = self.commit_with(writes, 0)?;
        Ok(replies.expect("without the inbox nothing is missing from it"))
    }

    /// Promotes all that waits now. Rows that the database refuses are halved until the one that is to
    /// blame stands alone; it is set aside.
    fn promote_all(&mut self) -> Result<(), Error> {
        let mut left = inbox::count(&self.connection).map_err(classify)?;
        let mut rows_max = inbox::ROWS_MAX;
        while left > 0 {
            match self.commit_with(&[], rows_max) {
                Ok(_) => rows_max = (rows_max * 2).min(inbox::ROWS_MAX),
                Err(Error::Contradiction(_)) if self.promoting > 1 => {
                    rows_max = self.promoting / 2;
                    continue;
                }
                Err(Error::Contradiction(why)) if self.promoting == 1 => {
                    let why = format!("the database refuses it: {why}");
                    inbox::set_first_aside(&mut self.connection, &why, self.last_now)
                        .map_err(classify)?;
                }
                Err(error) => return Err(error),
            }
            left = left.saturating_sub(self.promoting.max(1));
        }
        Ok(())
    }

    /// A batch and so many rows of the inbox, in one transaction. None, if something was refused and what
    /// it lacks may be among the rows that still wait: then nothing was written.
    fn commit_with(
        &mut self,
        writes: &[Write],
        inbox_max: usize,
    ) -> Result<Option<Replies>, Error> {
        if self.is_unsure {
            self.names = Names::load(&self.connection).map_err(classify)?;
            self.held = Held::default();
            self.is_unsure = false;
        }
        // The clock never goes back, whatever the machine's does.
        let now = (self.clock)().max(self.last_now);
        let done = self.transact(writes, inbox_max, now).map_err(|error| {
            self.is_unsure = true;
            classify(error)
        })?;
        let Some(done) = done else {
            self.is_unsure = true;
            return Ok(None);
        };
        self.last_now = now;
        self.last_event = done.last_event;
        self.newest = done.newest.unwrap_or(self.newest).max(self.newest);
        self.held.put_back(done.rows);
        self.named.check()?;
        self.note();
        Ok(Some(done.replies))
    }

    fn transact(
        &mut self,
        writes: &[Write],
        inbox_max: usize,
        now: Timestamp,
    ) -> SqlResult<Option<Done>> {
        self.promoting = 0;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let inbox = inbox::load_batch(&transaction, inbox_max)?;
        self.promoting = inbox.rows();
        let joined;
        let writes = if inbox.len() == 0 {
            writes
        } else {
            joined = inbox.before(writes);
            &joined
        };
        let mut work =
            Work::new(self.incarnation, room(writes), &mut self.names, &mut self.held, self.newest);
        load::load(&transaction, &Needs::of(writes), &mut work)?;
        let mut replies: Vec<Option<Result<Reply, Refusal>>> = vec![None; writes.len()];
        for (write, reply) in writes.iter().zip(&mut replies) {
            match (write.check(), write) {
                (Err(refusal), _) => *reply = Some(Err(refusal)),
                (Ok(()), Write::Op { op, .. })
                    if is_forgotten(&transaction, op, self.last_pruned)? =>
                {
                    let job_id = op.new_job_id().expect("only a new id can be taken");
                    *reply = Some(Err(Refusal::JobExists { job_id }));
                }
                (Ok(()), Write::Op { tenant, op }) => {
                    *reply = Some(apply(&transaction, tenant, op, &mut work, now)?);
                }
                (Ok(()), Write::Claim(_) | Write::RenewSession { .. }) => {}
            }
        }
        if inbox.is_full() && replies[inbox.len()..].iter().any(is_refused) {
            return Ok(None);
        }
        let mut granted = Vec::new();
        for (place, write) in writes.iter().enumerate() {
            if replies[place].is_some() {
                continue;
            }
            match write {
                Write::Op { .. } => {}
                Write::Claim(wanted) => {
                    granted.push((place, claim_many(&transaction, wanted, &mut work, now)?));
                }
                Write::RenewSession { worker, lease } => {
                    replies[place] = Some(renew(&transaction, worker, *lease, &mut work, now)?);
                }
            }
        }
        let Work { set, names, .. } = work;
        let (changes, mut rows) = set.finish();
        let last_event =
            save::save(&transaction, &changes, &mut rows, names, self.last_event, now)?;
        let last_event = inbox.save(&transaction, &replies, last_event, now)?;
        for (place, ids) in granted {
            let load = |(id, payload): claim::Grant| {
                let load = || load::load_payload(&transaction, rows[&id].place.seq);
                let payload = payload.map_or_else(load, Ok)?;
                Ok(Granted { job: rows[&id].job.clone(), payload })
            };
            let leases: SqlResult<Vec<Granted>> = ids.into_iter().map(load).collect();
            replies[place] = Some(Ok(Reply::Granted(leases?)));
        }
        transaction.commit()?;
        let mine = replies.into_iter().skip(inbox.len());
        let replies = mine.map(|reply| reply.expect("each write was answered")).collect();
        let newest = changes.created.iter().map(|(id, _)| *id).max();
        Ok(Some(Done { replies, newest, rows, last_event }))
    }
}

/// How many jobs these writes may touch.
fn room(writes: &[Write]) -> usize {
    let jobs = |write: &Write| match write {
        Write::Op { .. } => 1,
        // Few ask for more than there is; if one does, the map grows.
        Write::Claim(wanted) => wanted.max.min(1_000),
        Write::RenewSession { .. } => 0,
    };
    writes.iter().map(jobs).sum()
}

fn is_refused(reply: &Option<Result<Reply, Refusal>>) -> bool {
    matches!(reply, Some(Err(_)))
}

/// Gives an answer, and says whether the writer may go on after it.
fn tell<T>(result: Result<T, Error>, answer: impl FnOnce(Result<T, Error>)) -> bool {
    let stops = matches!(result, Err(Error::Stopped(_) | Error::Damaged(_)));
    answer(result);
    !stops
}

/// Would the op give out the id of a job that was forgotten, while the log still speaks of that job?
fn is_forgotten(connection: &Connection, op: &Op, last: Option<JobId>) -> SqlResult<bool> {
    match op.new_job_id() {
        Some(id) if Some(id) <= last => retention::is_pruned(connection, id),
        _ => Ok(false),
    }
}

/// An op on one job. A claim by name begins a session like any other.
fn apply(
    connection: &Connection,
    tenant: &TenantId,
    op: &Op,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Result<Reply, Refusal>> {
    let applied = work.set.apply(tenant, op, now);
    if let (Op::Claim(claim), Ok(Answer { recorded: false, .. })) = (op, &applied) {
        let until = now.plus(claim.lease);
        work.names.lease_session(connection, &claim.worker, until, now)?;
        let renewals = work.names().session_of(&claim.worker).map_or(0, |(_, it)| it.renewals);
        work.set.place_mut(claim.job_id).expect("its claim was granted").lease_seen = renewals;
    }
    Ok(applied.map(Reply::Answer))
}

/// Grants a claim, and keeps its session alive for as long as the leases last.
fn claim_many(
    connection: &Connection,
    wanted: &ClaimMany,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Vec<claim::Grant>> {
    let granted = claim::claim(connection, wanted, work, now)?;
    if !granted.is_empty() {
        let until = now.plus(wanted.lease);
        work.names.lease_session(connection, &wanted.worker, until, now)?;
    }
    Ok(granted)
}

fn renew(
    connection: &Connection,
    worker: &WorkerId,
    lease: Duration,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Result<Reply, Refusal>> {
    let Some((_, session)) = work.names().session_of(worker) else {
        return Ok(Err(Refusal::NotFound { what: "session" }));
    };
    let session = session.renewed(lease, now);
    let until = session.until;
    work.names.renew_session(connection, session, now)?;
    let rows = work.held_by(connection, worker)?;
    let held = rows.iter().map(|row| row.id).collect();
    let unwanted = rows.iter().filter(|row| row.to_be_cancelled);
    let cancelled = unwanted.map(|row| row.id).collect();
    Ok(Ok(Reply::Renewed { until, cancelled, held }))
}

/// What a transaction did.
struct Done {
    replies: Replies,
    newest: Option<JobId>,
    rows: IdMap<Row<Place>>,
    last_event: u64,
}
