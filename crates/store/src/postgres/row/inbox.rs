//! Enqueues of users' own transactions: how they get into the inbox, and how they are promoted.
//!
//! A user's transaction only adds a row: it waits for no look-up and meets no unique key. A node takes rows
//! and decides them like any other write, in the transaction that
//! takes them out. One that makes no job leaves a result and an event; one that cannot be read is set
//! aside as it was. So a row leaves the inbox exactly once, and always for somewhere.

use std::collections::BTreeMap;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::{GenericClient, Row};
use windlass_kernel::{JobId, Op, Refusal, TenantId, Timestamp, ops::Enqueue};

use super::column::{id_of, number, text_of, time_of};
use crate::{
    Error, Reply, Write,
    inbox::{Request, Without, read_op},
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run, run_one},
            types::{Time, Uuid},
        },
        read::job::whose,
        write::log_rows::{Block, LogRows},
    },
    read::{InboxOutcome, InboxResult, Scope},
};

pub(crate) use crate::inbox::ROWS_MAX;

/// An enqueue was not put into the inbox. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueInError {
    /// The rules say no. The transaction can go on without the job.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The name cannot be that of a schema.
    #[error("{0:?} is no name for a schema of Windlass")]
    BadSchema(String),
    /// The database could not write. Roll back; its error says whether to try the transaction again.
    #[error("the job was not put into the inbox")]
    Store(#[source] Error),
}

/// Puts an enqueue into the inbox, in the transaction of this client, and into the store of this schema.
///
/// What can be refused without a look at what is stored is refused before anything is written, by the
/// rules of the op itself. The rest is decided when a node promotes the row.
pub async fn enqueue_in(
    transaction: &impl GenericClient,
    schema: &str,
    op: &Enqueue,
    now: Timestamp,
) -> Result<(), EnqueueInError> {
    op.check(now)?;
    let schema = crate::postgres::link::open::quoted(schema)
        .ok_or_else(|| EnqueueInError::BadSchema(schema.to_owned()))?;
    let request = serde_json::to_string(&Request::of(op)).expect("a request is plain data");
    let put = format!(
        "INSERT INTO {schema}.inbox (job_id, tenant, at, op, payload) VALUES ($1, $2, $3, $4, $5)"
    );
    let row: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [
        &Uuid(op.job_id.as_u128()),
        &op.tenant.as_str(),
        &Time(now),
        &request,
        &op.new.payload.as_str(),
    ];
    let put = transaction.execute(put.as_str(), &row).await;
    put.map(|_| ()).map_err(|error| EnqueueInError::Store(Failure::from(error).into_error()))
}

/// The same as a number of the database.
const BYTES_MAX: i64 = crate::inbox::BYTES_MAX as i64;

/// One node promotes at a time, so that rows keep their order and each is taken once. A statement of its own:
/// what is read after it is read with the lock, and not before.
const PROMOTES: &str = "
    SELECT set_config('windlass.promotes', pg_try_advisory_xact_lock($1, $2)::text, true)";

/// Returns no rows to a node that did not get the lock. Sizes are known without what is stored:
/// rows that are too much for one batch are counted, not read.
const WAITING: &str = "
    SELECT seq, job_id, tenant, op, payload, bytes FROM (
        SELECT *, sum(octet_length(op) + octet_length(payload)) OVER (ORDER BY seq) AS bytes
        FROM inbox WHERE current_setting('windlass.promotes') = 'true'
        ORDER BY seq LIMIT $1) AS waiting
    WHERE bytes - octet_length(op) - octet_length(payload) < $2
    ORDER BY seq";

/// Waits until no other node promotes.
const LOCK: &str = "SELECT pg_advisory_xact_lock($1, $2)";

/// How a commit takes rows of the inbox.
#[derive(Clone, Copy)]
pub(crate) struct Take {
    /// How many at the most.
    pub(crate) rows_max: usize,
    /// Does it wait for another node that promotes? Otherwise it takes none then.
    pub(crate) waits: bool,
}

impl Take {
    pub(crate) const NONE: Self = Self { rows_max: 0, waits: false };
}

/// What a commit took out of the inbox, known also if it failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promoting {
    pub(crate) rows: usize,
    /// The number of a row; if there is only one, of that.
    pub(crate) first: Option<i64>,
}

/// Rows of the inbox that one commit promotes, in order.
#[derive(Default)]
pub(crate) struct InboxRows {
    requests: Vec<InboxRequest>,
    unreadable: Vec<(i64, String)>,
    is_full: bool,
}

/// A row that was read.
struct InboxRequest {
    seq: i64,
    op: Enqueue,
}

impl InboxRows {
    /// Loads the rows that are next, if nobody else promotes.
    pub(crate) async fn load(
        client: &ClientWrapper,
        take: Take,
        lock: (i32, i32),
    ) -> PgResult<Self> {
        let mut batch = InboxRows::default();
        if take.rows_max == 0 {
            return Ok(batch);
        }
        let mut asks = Vec::new();
        if take.waits {
            asks.push(Ask::new(LOCK).with(lock.0).with(lock.1));
        }
        asks.push(Ask::new(PROMOTES).with(lock.0).with(lock.1));
        let limit = i64::try_from(take.rows_max).unwrap_or(i64::MAX);
        asks.push(Ask::new(WAITING).with(limit).with(BYTES_MAX));
        let mut bytes: i64 = 0;
        for row in run(client, &asks).await?.pop().unwrap_or_default() {
            let seq = row.try_get(0)?;
            bytes = row.try_get(5)?;
            match op_of(&row) {
                Ok(op) => batch.requests.push(InboxRequest { seq, op }),
                Err(why) => batch.unreadable.push((seq, why)),
            }
        }
        batch.is_full = batch.rows() == take.rows_max || bytes >= BYTES_MAX;
        Ok(batch)
    }

    /// How many writes it has.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// How many rows it takes.
    pub(crate) fn rows(&self) -> usize {
        self.requests.len() + self.unreadable.len()
    }

    /// How many rows it has, and which.
    pub(crate) fn promoting(&self) -> Promoting {
        let unreadable = self.unreadable.first().map(|(seq, _)| *seq);
        let first = self.requests.first().map(|taken| taken.seq).or(unreadable);
        Promoting { rows: self.rows(), first }
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

    /// Saves what became of it and takes it out of the inbox. Its replies are the first of these.
    pub(crate) fn save(
        &self,
        replies: &[Result<Reply, Refusal>],
        log: &mut LogRows,
        block: &mut Block,
        now: Timestamp,
        asks: &mut Vec<Ask>,
    ) {
        if self.rows() == 0 {
            return;
        }
        let mut untold: BTreeMap<&TenantId, Vec<(&InboxRequest, Without)>> = BTreeMap::new();
        for (taken, reply) in self.requests.iter().zip(replies) {
            if let Some(without) = Without::of(reply) {
                untold.entry(&taken.op.tenant).or_default().push((taken, without));
            }
        }
        for (tenant, results) in untold {
            let seq = log.begin(block);
            let mut lines = Vec::with_capacity(results.len());
            for (place, (taken, without)) in (0..).zip(&results) {
                asks.push(save_result(without, seq, place, taken.seq, now));
                lines.push(without.line(&taken.op));
            }
            log.end(tenant.as_str(), lines.len(), format!("[{}]", lines.join(",")));
        }
        for (seq, why) in &self.unreadable {
            asks.push(set_aside(*seq, why, now));
        }
        let taken = self.requests.iter().map(|taken| taken.seq);
        let seqs: Vec<i64> = taken.chain(self.unreadable.iter().map(|row| row.0)).collect();
        asks.push(Ask::new(FORGET).with(seqs));
    }
}

fn op_of(row: &Row) -> Result<Enqueue, String> {
    let text = |column: usize| row.try_get(column).map_err(|error| error.to_string());
    let job_id = id_of(row, 1).map_err(|_| "job_id: it is no id".to_owned())?;
    read_op(job_id, text(2), text(3), text(4))
}

const FORGET: &str = "DELETE FROM inbox WHERE seq = ANY($1)";

const SAVE_RESULT: &str = "
    INSERT INTO inbox_results
        (seq, place, job_id, tenant, asked_at, at, outcome, existing, code, why, op, payload)
    SELECT $1, $2, job_id, tenant, at, $3, $4, $5, $6, $7,
        CASE WHEN $4 <> 'hit' THEN op END, CASE WHEN $4 <> 'hit' THEN payload END
    FROM inbox WHERE seq = $8";

fn save_result(without: &Without, seq: i64, place: i32, waited: i64, now: Timestamp) -> Ask {
    Ask::new(SAVE_RESULT)
        .with(seq)
        .with(place)
        .with(Time(now))
        .with(without.outcome.as_str())
        .with(without.existing.map(|id| Uuid(id.as_u128())))
        .with(without.refusal.as_ref().map(|(code, _)| *code))
        .with(without.refusal.as_ref().map(|(_, why)| why.clone()))
        .with(waited)
}

/// Copies the row unchanged, also columns that cannot be read: a person has to be able to see what
/// it held.
const SET_ASIDE: &str = "
    INSERT INTO inbox_set_aside (found_at, why, job_id, tenant, at, op, payload)
    SELECT $2, $3, job_id, tenant, at, op, payload FROM inbox WHERE seq = $1";

fn set_aside(seq: i64, why: &str, now: Timestamp) -> Ask {
    Ask::new(SET_ASIDE).with(seq).with(Time(now)).with(why.to_owned())
}

const SET_ONE_ASIDE: &str = "
    WITH one AS (DELETE FROM inbox WHERE seq = $2 RETURNING *)
    INSERT INTO inbox_set_aside (found_at, why, job_id, tenant, at, op, payload)
    SELECT clock_timestamp(), $1, job_id, tenant, at, op, payload FROM one";

/// Sets a row aside: the database refuses what it would do. If another node has done so meanwhile, there is nothing to do.
pub(crate) async fn set_one_aside(client: &ClientWrapper, seq: i64, why: &str) -> PgResult<()> {
    run_one(client, Ask::new(SET_ONE_ASIDE).with(why.to_owned()).with(seq)).await?;
    Ok(())
}

const COUNT: &str = "SELECT count(*) FROM inbox";

/// How many rows wait.
pub(crate) async fn count(client: &ClientWrapper) -> PgResult<usize> {
    let rows = run_one(client, Ask::new(COUNT)).await?;
    Ok(usize::try_from(number(&rows[0], 0)?).unwrap_or(usize::MAX))
}

const LOOK: &str = "SELECT EXISTS (SELECT 1 FROM inbox), clock_timestamp()";

/// Does anything wait, and what time is it?
pub(crate) async fn look(client: &ClientWrapper) -> PgResult<(bool, Timestamp)> {
    let rows = run_one(client, Ask::new(LOOK)).await?;
    Ok((rows[0].try_get(0)?, time_of(&rows[0], 1)?))
}

const IS_WAITING: &str = "SELECT EXISTS (SELECT 1 FROM inbox WHERE job_id = $1)";

/// Does an enqueue with this id wait? The inbox is short, so it needs no index.
pub(crate) async fn is_waiting(client: &ClientWrapper, id: JobId) -> PgResult<bool> {
    let rows = run_one(client, Ask::new(IS_WAITING).with(Uuid(id.as_u128()))).await?;
    Ok(rows[0].try_get(0)?)
}

/// The first, if one id was given twice. Served by the index `inbox_results_job`.
const RESULT: &str = "
    SELECT feed.first + r.place, r.tenant, r.asked_at, r.at, r.outcome, r.existing, r.code, r.why, r.op,
        r.payload
    FROM inbox_results r JOIN feed ON feed.seq = r.seq
    WHERE r.job_id = $1 AND ($2::text IS NULL OR r.tenant = $2) ORDER BY 1 LIMIT 1";

/// What became of an enqueue that made no job, by the id that was given.
pub(crate) async fn read_result(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<InboxResult>> {
    let ask = Ask::new(RESULT).with(Uuid(id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let outcome = InboxOutcome::parse(row.try_get(4)?);
    Ok(Some(InboxResult {
        event: number(row, 0)?,
        job_id: id,
        tenant: text_of(row, 1)?,
        asked_at: time_of(row, 2)?,
        at: time_of(row, 3)?,
        outcome: outcome.ok_or_else(|| Failure::damaged("it is no outcome"))?,
        existing: row.try_get::<_, Option<Uuid>>(5)?.map(|id| JobId::from_u128(id.0)),
        code: row.try_get(6)?,
        why: row.try_get(7)?,
        request: row.try_get(8)?,
        payload: row.try_get(9)?,
    }))
}
