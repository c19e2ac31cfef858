//! Saves jobs: new rows, and what changes in those that are there.

use std::{borrow::Cow, sync::LazyLock};

use rusqlite::{CachedStatement, Connection, params};
use windlass_kernel::{Job, JobId, NewPayload, Timestamp, UniqueKey};

use super::{job::Place, task::TaskName};
use crate::{
    IdMap,
    commit::Row,
    job_row::{TraceName, json, timer_at},
    packed::LeaseColumn,
    read::Scope,
    row::{Options, Rest},
    sqlite::{SqlResult, read::job::read_payload},
};

/// A payload up to this size stands in the job's row.
const PAYLOAD_INLINE_BYTES: usize = 256;

/// How many jobs one statement inserts: starting a statement costs as much as a third of a row.
const INSERT_ROWS: usize = 8;

const INSERT: &str = "
    INSERT INTO jobs (seq, id, tenant, group_id, state, rank, version, attempt, retry_count, max_retries,
        epoch, created_at, updated_at, started_at, next_retry_at, timer_at, lease_session, lease,
        task_id, idempotency_scope, idempotency_key, payload_digest, trace_id, dlq_id, options, rest,
        history, payload, lane, unique_key)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
        ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30)";

const INSERT_COLUMNS: usize = 30;

/// [`INSERT`], for as many jobs as go together.
static INSERT_MANY: LazyLock<String> = LazyLock::new(|| {
    let (head, _) = INSERT.split_once("VALUES").expect("it has values");
    let row = format!("(?{})", ", ?".repeat(INSERT_COLUMNS - 1));
    format!("{head}VALUES {row}{}", format!(", {row}").repeat(INSERT_ROWS - 1))
});

const INSERT_CHILD: &str = "INSERT INTO children (parent, seq) VALUES (?1, ?2)";

/// A job can have a tag twice.
const INSERT_TAG: &str = "INSERT OR IGNORE INTO job_tags (tenant, tag, seq) VALUES (?1, ?2, ?3)";

const INSERT_PAYLOAD: &str = "INSERT INTO payloads (seq, payload) VALUES (?1, ?2)";

pub(crate) fn insert_jobs(
    connection: &Connection,
    created: &[(JobId, NewPayload)],
    rows: &IdMap<Row<Place>>,
) -> SqlResult<()> {
    let (mut many, mut one) =
        (connection.prepare_cached(&INSERT_MANY)?, connection.prepare_cached(INSERT)?);
    for created in created.chunks(INSERT_ROWS) {
        // A payload that is copied from a job of this commit has to be stored before.
        let is_given = |(_, payload): &_| matches!(payload, NewPayload::Given(_));
        if created.len() == INSERT_ROWS && created.iter().all(is_given) {
            insert_together(connection, &mut many, created, rows)?;
        } else {
            for alone in created.chunks(1) {
                insert_together(connection, &mut one, alone, rows)?;
            }
        }
    }
    Ok(())
}

/// Inserts as many jobs as the statement takes.
fn insert_together(
    connection: &Connection,
    insert: &mut CachedStatement<'_>,
    created: &[(JobId, NewPayload)],
    rows: &IdMap<Row<Place>>,
) -> SqlResult<()> {
    let mut large = Vec::new();
    let mut binding = Binding { statement: insert, next: 0 };
    for (id, payload) in created {
        let Row { job, place, .. } = &rows[id];
        let payload = match payload {
            NewPayload::Given(payload) => Cow::Borrowed(payload.as_str()),
            NewPayload::Of(other) => read_payload(connection, &Scope::Every, *other)?
                .expect("its job was just loaded")
                .into(),
        };
        let inline = Some(&*payload).filter(|payload| payload.len() <= PAYLOAD_INLINE_BYTES);
        bind_job(&mut binding, job, place, inline)?;
        if inline.is_none() {
            large.push((place.seq, payload));
        }
    }
    insert.raw_execute()?;
    for Row { job, place, .. } in created.iter().map(|(id, _)| &rows[id]) {
        if let Some(parent) = job.spec.parent {
            let row = params![parent.as_u128().to_be_bytes(), place.seq];
            connection.prepare_cached(INSERT_CHILD)?.execute(row)?;
        }
        for tag in &job.spec.tags {
            let row = params![job.spec.tenant.as_str(), tag.as_str(), place.seq];
            connection.prepare_cached(INSERT_TAG)?.execute(row)?;
        }
    }
    for (seq, payload) in large {
        connection.prepare_cached(INSERT_PAYLOAD)?.execute(params![seq, payload])?;
    }
    Ok(())
}

/// Binds values one after the other.
struct Binding<'a, 'c> {
    statement: &'a mut CachedStatement<'c>,
    next: usize,
}

impl Binding<'_, '_> {
    fn add(&mut self, value: impl rusqlite::ToSql) -> SqlResult<()> {
        self.next += 1;
        self.statement.raw_bind_parameter(self.next, value)
    }
}

/// Binds the columns of a new job, in the order of [`INSERT`].
fn bind_job(
    row: &mut Binding<'_, '_>,
    job: &Job,
    place: &Place,
    payload: Option<&str>,
) -> SqlResult<()> {
    let spec = &job.spec;
    let given = !spec.idempotency_scope.is_own_id();
    row.add(place.seq)?;
    row.add(job.id.as_u128().to_be_bytes())?;
    row.add(spec.tenant.as_str())?;
    row.add(place.group_id())?;
    row.add(job.state.as_str())?;
    row.add(spec.rank().0)?;
    row.add(job.version)?;
    row.add(job.attempt)?;
    row.add(job.retry_count)?;
    row.add(spec.max_retries)?;
    row.add(job.epoch.get())?;
    row.add(spec.created_at.as_micros())?;
    row.add(job.updated_at.as_micros())?;
    row.add(job.started_at.map(Timestamp::as_micros))?;
    row.add(job.next_retry_at.map(Timestamp::as_micros))?;
    row.add(timer_at(job).map(Timestamp::as_micros))?;
    row.add(place.session)?;
    row.add(LeaseColumn::of(job, place.lease_seen).bytes())?;
    row.add(spec.task_given.then(|| TaskName::of(&spec.task_id)))?;
    row.add(given.then(|| spec.idempotency_scope.as_str()))?;
    row.add(given.then(|| spec.idempotency_key.as_str()))?;
    row.add(spec.payload_digest.as_bytes())?;
    row.add(TraceName::of(job))?;
    row.add(job.dlq_id.map(|id| id.as_u128().to_be_bytes()))?;
    row.add(Options::of(spec).map(|options| json(&options)))?;
    row.add(Rest::of(job).map(|rest| json(&rest)))?;
    row.add(place.history.bytes())?;
    row.add(payload)?;
    row.add(place.lane.get())?;
    row.add(spec.unique_key.as_ref().map(UniqueKey::as_str))
}

const UPDATE: &str = "
    UPDATE jobs SET state = ?2, version = ?3, attempt = ?4, retry_count = ?5, epoch = ?6,
        updated_at = ?7, started_at = ?8, next_retry_at = ?9, timer_at = ?10, lease_session = ?11,
        lease = ?12, rest = ?13, history = ?14, group_id = ?15
    WHERE seq = ?1";

/// The usual way of a job: it is claimed, it starts, it succeeds. What it sets stands in few indexes.
const MOVE: &str = "
    UPDATE jobs SET state = ?2, version = ?3, epoch = ?4, updated_at = ?5, started_at = ?6,
        lease_session = ?7, lease = ?8, rest = ?9, history = ?10
    WHERE seq = ?1";

/// A job that fails gets its dead letter first. Apart from the rest, because a statement that sets a
/// foreign key keeps a journal of its own, which the usual update need not pay for.
const SET_LETTER: &str = "
    UPDATE jobs SET dlq_id = ?2, state = 'failed', next_retry_at = NULL, lease_session = NULL,
        lease = substr(lease, 1, 24)
    WHERE seq = ?1";

pub(crate) fn update_jobs(
    connection: &Connection,
    updated: &[JobId],
    rows: &IdMap<Row<Place>>,
) -> SqlResult<()> {
    let mut update = connection.prepare_cached(UPDATE)?;
    let mut narrow = connection.prepare_cached(MOVE)?;
    for id in updated {
        let Row { job, place, before, .. } = &rows[id];
        if before.as_ref().is_some_and(|before| only_moves(before, job)) {
            move_job(&mut narrow, job, place)?;
            continue;
        }
        if let Some(dlq_id) = job.dlq_id {
            let row = params![place.seq, dlq_id.as_u128().to_be_bytes()];
            connection.prepare_cached(SET_LETTER)?.execute(row)?;
        }
        update_job(&mut update, job, place)?;
    }
    Ok(())
}

/// Is all that changed in what [`MOVE`] sets?
fn only_moves(before: &Job, job: &Job) -> bool {
    let rest = |job: &Job| {
        (job.attempt, job.retry_count, job.next_retry_at, job.dlq_id, job.is_isolated())
    };
    rest(before) == rest(job) && timer_at(before) == timer_at(job)
}

fn move_job(narrow: &mut CachedStatement<'_>, job: &Job, place: &Place) -> SqlResult<()> {
    narrow.execute(params![
        place.seq,
        job.state.as_str(),
        job.version,
        job.epoch.get(),
        job.updated_at.as_micros(),
        job.started_at.map(Timestamp::as_micros),
        place.session,
        LeaseColumn::of(job, place.lease_seen).bytes(),
        Rest::of(job).map(|rest| json(&rest)),
        place.history.bytes(),
    ])?;
    Ok(())
}

fn update_job(update: &mut CachedStatement<'_>, job: &Job, place: &Place) -> SqlResult<()> {
    update.execute(params![
        place.seq,
        job.state.as_str(),
        job.version,
        job.attempt,
        job.retry_count,
        job.epoch.get(),
        job.updated_at.as_micros(),
        job.started_at.map(Timestamp::as_micros),
        job.next_retry_at.map(Timestamp::as_micros),
        timer_at(job).map(Timestamp::as_micros),
        place.session,
        LeaseColumn::of(job, place.lease_seen).bytes(),
        Rest::of(job).map(|rest| json(&rest)),
        place.history.bytes(),
        place.group_id(),
    ])?;
    Ok(())
}

impl rusqlite::ToSql for TraceName<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            TraceName::Made(random) => random.to_be_bytes().to_vec().into(),
            TraceName::Given(trace) => (*trace).into(),
        })
    }
}
