//! Enqueues of users' own transactions: how they get into the inbox, and what the writer does with them.
//!
//! A user's transaction only adds a row: it waits for no look-up and meets no unique key. The writer takes
//! rows in the order of their commits and decides them like any other write, in the transaction that
//! takes them out. One that makes no job leaves a result and an event; one that cannot be read is set
//! aside as it was. So a row leaves the inbox exactly once, and always for somewhere.

use std::collections::BTreeMap;

use rusqlite::{
    Connection, OptionalExtension as _, Row, TransactionBehavior, params, types::ValueRef,
};
use windlass_kernel::{JobId, Op, Refusal, TenantId, Timestamp, ops::Enqueue};

use super::column::{id_or_none, text_of, time_of, u128_of};
use crate::{
    Error, Reply, Write,
    inbox::{BYTES_MAX, Request, Without, read_op},
    migrate,
    read::{InboxOutcome, InboxResult, Scope},
    sqlite::{SqlResult, classify},
};

pub(crate) use crate::inbox::ROWS_MAX;

/// An enqueue was not put into the inbox. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueInError {
    /// The rules say no. The transaction can go on without the job.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection is in no transaction. Begin one, or submit the enqueue to the Committer.
    #[error("the connection is in no transaction, and a job is enqueued in one")]
    NoTransaction,
    /// The connection's main database is none that this version of Windlass has set up. Open the file that
    /// the store was opened with.
    #[error("this is no database of this version of Windlass: {0}")]
    WrongDatabase(String),
    /// The database could not write. Roll back; its error says whether to try the transaction again.
    #[error("the job was not put into the inbox")]
    Store(#[source] Error),
}

/// Which schema the database has, and whether it is a store at all.
const SCHEMA: &str = "
    SELECT user_version, EXISTS (SELECT 1 FROM main.meta WHERE name = 'store_id')
    FROM pragma_user_version";
const PUT: &str =
    "INSERT INTO main.inbox (job_id, tenant, at, op, payload) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Puts an enqueue into the inbox, in the transaction that this connection is in.
///
/// What can be refused without a look at what is stored is refused before anything is written, by the
/// rules of the op itself. The rest is decided when the writer promotes the row.
pub fn enqueue_in(
    connection: &Connection,
    op: &Enqueue,
    now: Timestamp,
) -> Result<(), EnqueueInError> {
    op.check(now)?;
    if connection.is_autocommit() {
        return Err(EnqueueInError::NoTransaction);
    }
    check_schema(connection)?;
    let request = serde_json::to_string(&Request::of(op)).expect("a request is plain data");
    let put = || {
        connection.prepare_cached(PUT)?.execute(params![
            op.job_id.as_u128().to_be_bytes(),
            op.tenant.as_str(),
            now.as_micros(),
            request,
            op.new.payload.as_str(),
        ])
    };
    put().map(|_| ()).map_err(|error| EnqueueInError::Store(classify(error)))
}

fn check_schema(connection: &Connection) -> Result<(), EnqueueInError> {
    let wrong = |why: String| Err(EnqueueInError::WrongDatabase(why));
    let mut statement = match connection.prepare_cached(SCHEMA) {
        Ok(statement) => statement,
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => {
            return wrong(error.to_string());
        }
        Err(error) => return Err(EnqueueInError::Store(classify(error))),
    };
    let known = migrate::SQLITE.last().map_or(0, |migration| migration.number);
    match statement.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?))) {
        Ok((found, true)) if found == i64::from(known) => Ok(()),
        Ok((found, true)) => wrong(format!("it has migration {found}, and we need {known}")),
        Ok((_, false)) => wrong("it was never opened as a store".to_owned()),
        Err(error) => Err(EnqueueInError::Store(classify(error))),
    }
}

/// Rows of the inbox that one commit promotes, in order.
#[derive(Default)]
pub(crate) struct InboxRows {
    requests: Vec<InboxRequest>,
    unreadable: Vec<(i64, String)>,
    last_seq: Option<i64>,
    is_full: bool,
}

/// A row that was read.
struct InboxRequest {
    seq: i64,
    op: Enqueue,
}

/// It has no LIMIT: the caller stops where it likes, by rows or by bytes.
const WAITING: &str = "SELECT seq, job_id, tenant, op, payload FROM inbox ORDER BY seq";

/// Loads the rows that are next, so many at the most.
pub(crate) fn load_batch(connection: &Connection, rows_max: usize) -> SqlResult<InboxRows> {
    let mut batch = InboxRows::default();
    if rows_max == 0 {
        return Ok(batch);
    }
    let mut bytes = 0;
    let mut statement = connection.prepare_cached(WAITING)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let seq = row.get(0)?;
        batch.last_seq = Some(seq);
        bytes += size_of_row(row)?;
        match op_of(row) {
            Ok(op) => batch.requests.push(InboxRequest { seq, op }),
            Err(why) => batch.unreadable.push((seq, why)),
        }
        if batch.rows() == rows_max || bytes >= BYTES_MAX {
            batch.is_full = true;
            break;
        }
    }
    Ok(batch)
}

/// The bytes of the two columns that may be large, `op` and `payload`, of whatever type they are.
fn size_of_row(row: &Row<'_>) -> SqlResult<usize> {
    let size = |column: usize| -> SqlResult<usize> {
        Ok(match row.get_ref(column)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
        })
    };
    Ok(size(3)? + size(4)?)
}

/// The op of a row, or what is wrong with it. The row may hold anything: any program that can open
/// the file can write to it.
fn op_of(row: &Row<'_>) -> Result<Enqueue, String> {
    let text = |column: usize| {
        let value = row.get_ref(column).map_err(|error| error.to_string())?;
        value.as_str().map_err(|error| error.to_string())
    };
    let job_id = u128_of(row, 1).map_err(|error| format!("job_id: {error}"))?;
    read_op(JobId::from_u128(job_id), text(2), text(3), text(4))
}

/// Rows of the inbox that a plan takes, and what they were told.
#[derive(Default)]
pub(crate) struct Promotion {
    pub(crate) batch: InboxRows,
    pub(crate) replies: Vec<Result<Reply, Refusal>>,
}

impl Promotion {
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.last_seq.is_none()
    }

    /// Saves what became of them and takes them out of the inbox. It gives back the number of the last
    /// event.
    pub(crate) fn save(
        &self,
        connection: &Connection,
        last_event: u64,
        now: Timestamp,
    ) -> SqlResult<u64> {
        self.batch.save(connection, &self.replies, last_event, now)
    }
}

const FORGET: &str = "DELETE FROM inbox WHERE seq <= ?1";
const TELL: &str = "INSERT INTO log (id, tenant, at, count, events) VALUES (?1, ?2, ?3, ?4, ?5)";

impl InboxRows {
    /// How many writes it has.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// How many rows it takes.
    pub(crate) fn rows(&self) -> usize {
        self.requests.len() + self.unreadable.len()
    }

    /// Does more wait behind it, as far as it knows?
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Its writes, and then these.
    pub(crate) fn before(&self, writes: &[Write]) -> Vec<Write> {
        let mine = self.requests.iter().map(|InboxRequest { op, .. }| Write::Op {
            tenant: op.tenant.clone(),
            op: Op::Enqueue(op.clone()),
        });
        mine.chain(writes.iter().cloned()).collect()
    }

    fn save(
        &self,
        connection: &Connection,
        replies: &[Result<Reply, Refusal>],
        mut last_event: u64,
        now: Timestamp,
    ) -> SqlResult<u64> {
        let Some(last_seq) = self.last_seq else { return Ok(last_event) };
        let mut untold: BTreeMap<&TenantId, Vec<(&InboxRequest, Without)>> = BTreeMap::new();
        for (taken, reply) in self.requests.iter().zip(replies) {
            if let Some(without) = Without::of(reply) {
                untold.entry(&taken.op.tenant).or_default().push((taken, without));
            }
        }
        for (tenant, results) in untold {
            let id = last_event + 1;
            let mut lines = Vec::with_capacity(results.len());
            for (number, (taken, without)) in (id..).zip(&results) {
                save_result(connection, without, number, taken.seq, now)?;
                lines.push(without.line(&taken.op));
            }
            let (count, lines) = (lines.len() as u64, format!("[{}]", lines.join(",")));
            let row = params![id, tenant.as_str(), now.as_micros(), count, lines];
            connection.prepare_cached(TELL)?.execute(row)?;
            last_event += count;
        }
        for (seq, why) in &self.unreadable {
            set_aside(connection, *seq, why, now)?;
        }
        connection.prepare_cached(FORGET)?.execute([last_seq])?;
        Ok(last_event)
    }
}

const SAVE_RESULT: &str = "
    INSERT INTO inbox_results
        (event, job_id, tenant, asked_at, at, outcome, existing, code, why, op, payload)
    SELECT ?1, job_id, tenant, at, ?2, ?3, ?4, ?5, ?6, iif(?3 = 'hit', NULL, op),
        iif(?3 = 'hit', NULL, payload)
    FROM inbox WHERE seq = ?7";

fn save_result(
    connection: &Connection,
    without: &Without,
    event: u64,
    seq: i64,
    now: Timestamp,
) -> SqlResult<()> {
    connection.prepare_cached(SAVE_RESULT)?.execute(params![
        event,
        now.as_micros(),
        without.outcome.as_str(),
        without.existing.map(|id| id.as_u128().to_be_bytes()),
        without.refusal.as_ref().map(|(code, _)| *code),
        without.refusal.as_ref().map(|(_, why)| why),
        seq,
    ])?;
    Ok(())
}

/// Copies the row unchanged, also columns that cannot be read: a person has to be able to see what
/// it held.
const SET_ASIDE: &str = "
    INSERT INTO inbox_set_aside (found_at, why, job_id, tenant, at, op, payload)
    SELECT ?2, ?3, job_id, tenant, at, op, payload FROM inbox WHERE seq = ?1";

fn set_aside(connection: &Connection, seq: i64, why: &str, now: Timestamp) -> SqlResult<()> {
    connection.prepare_cached(SET_ASIDE)?.execute(params![seq, now.as_micros(), why])?;
    Ok(())
}

const FIRST: &str = "SELECT min(seq) FROM inbox";

/// Sets the first row aside: the database refuses what it would do.
pub(crate) fn set_first_aside(
    connection: &mut Connection,
    why: &str,
    now: Timestamp,
) -> SqlResult<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(seq) = transaction.query_row(FIRST, [], |row| row.get::<_, Option<i64>>(0))? {
        set_aside(&transaction, seq, why, now)?;
        transaction.prepare_cached(FORGET)?.execute([seq])?;
    }
    transaction.commit()
}

/// It runs with every commit, and takes 0.3 µs on an empty table.
const IS_EMPTY: &str = "SELECT NOT EXISTS (SELECT 1 FROM inbox)";

/// Does nothing wait?
pub(crate) fn is_empty(connection: &Connection) -> SqlResult<bool> {
    connection.prepare_cached(IS_EMPTY)?.query_row([], |row| row.get(0))
}

const COUNT: &str = "SELECT count(*) FROM inbox";

/// How many rows wait.
pub(crate) fn count(connection: &Connection) -> SqlResult<usize> {
    connection.prepare_cached(COUNT)?.query_row([], |row| row.get(0))
}

const IS_WAITING: &str = "SELECT EXISTS (SELECT 1 FROM inbox WHERE job_id = ?1)";

/// Does an enqueue with this id wait? The inbox is short, so it needs no index.
pub(crate) fn is_waiting(connection: &Connection, id: JobId) -> SqlResult<bool> {
    let id = id.as_u128().to_be_bytes();
    connection.prepare_cached(IS_WAITING)?.query_row([id], |row| row.get(0))
}

/// The first, if one id was given twice. Served by the index `inbox_results_job`.
const RESULT: &str = "
    SELECT event, tenant, asked_at, at, outcome, existing, code, why, op, payload
    FROM inbox_results WHERE job_id = ?1 AND (?2 IS NULL OR tenant = ?2) ORDER BY event LIMIT 1";

/// What became of an enqueue that made no job, by the id that was given.
pub(crate) fn read_result(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Option<InboxResult>> {
    let mut statement = connection.prepare_cached(RESULT)?;
    let row = |row: &Row<'_>| {
        let outcome = InboxOutcome::parse(row.get_ref(4)?.as_str()?);
        Ok(InboxResult {
            event: row.get(0)?,
            job_id: id,
            tenant: text_of(row, 1)?,
            asked_at: time_of(row, 2)?,
            at: time_of(row, 3)?,
            outcome: outcome.ok_or(rusqlite::Error::InvalidQuery)?,
            existing: id_or_none(row, 5)?.map(JobId::from_u128),
            code: row.get(6)?,
            why: row.get(7)?,
            request: row.get(8)?,
            payload: row.get(9)?,
        })
    };
    statement.query_row(params![id.as_u128().to_be_bytes(), scope.word()], row).optional()
}
