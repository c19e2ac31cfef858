//! Loads the rows that a commit needs.

use std::str::FromStr;

use rusqlite::{Connection, OptionalExtension as _, Row, params, types::ValueRef};
use windlass_kernel::{
    DeadLetter, DlqId, Job, JobId, Lane, State, Task, TaskId, TenantId, Timestamp, UniqueKey,
    ids::ClaimId, job::Rank,
};

use super::{SqlResult, names::Lookup, work::Work};
use crate::{
    commit::{Key, Needs},
    job_row::{JobRow, TraceName, Unpacked, Unreadable},
    packed::{History, LeaseBytes},
};

/// The columns of a job that are read back, in the order of [`job_of`].
macro_rules! job_columns {
    () => {
        "seq, id, tenant, group_id, state, rank, version, attempt, retry_count, max_retries, epoch,
         created_at, updated_at, started_at, next_retry_at, lease_session, lease, task_id,
         idempotency_scope, idempotency_key, payload_digest, trace_id, options, rest, history"
    };
}
pub(super) use job_columns;

/// A job as its row has it, with what only the store knows.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) job: Job,
    pub(super) place: Place,
}

/// Where a job stands in the database; nowhere yet, if it is about to be created.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) seq: i64,
    pub(super) history: History,
    /// Renewals of the session that are part of the job's lease count.
    pub(super) lease_seen: u64,
    /// The group of its row, and whether that is an isolated one.
    pub(super) group: Option<(i64, bool)>,
    /// The session that holds it, as its row is to say.
    pub(super) session: Option<i64>,
    /// Where it waits beside those that have its key.
    pub(super) lane: Lane,
}

impl Place {
    pub(super) fn group_id(&self) -> i64 {
        self.group.expect("a row has a group before it is saved").0
    }
}

/// Loads everything that the writes of one commit need.
pub(super) fn load(connection: &Connection, needs: &Needs, work: &mut Work<'_>) -> SqlResult<()> {
    let mut by_id = connection.prepare_cached(JOB)?;
    for id in &needs.jobs {
        if !work.may_be_stored(*id) || work.set.contains(*id) || work.take_held(*id) {
            continue;
        }
        let row = [id.as_u128().to_be_bytes()];
        if let Some(loaded) = by_id.query_row(row, |row| job_of(row, work.names())).optional()? {
            work.add(loaded);
        }
    }
    for key in &needs.keys {
        if !work.take_flying_key(key)
            && let Some(loaded) = load_by_key(connection, key, work.names())?
        {
            work.add(loaded);
        }
    }
    for unique in &needs.uniques {
        if let Some(loaded) = load_unique(connection, unique, work.names())? {
            work.add(loaded);
        }
    }
    let mut tasks_of = needs.tasks_of.clone();
    for id in &needs.letters {
        let Some(letter) = load_letter(connection, *id)? else { continue };
        if !work.set.contains(letter.job_id)
            && let Some(loaded) = load_job(connection, letter.job_id, work.names())?
        {
            work.add(loaded);
        }
        tasks_of.insert(letter.job_id);
        work.set.add_letter(letter);
    }
    let of_jobs = tasks_of.iter().filter_map(|id| work.set.job(*id));
    let of_jobs = of_jobs.map(|job| (job.spec.tenant.clone(), job.spec.task_id.clone()));
    let tasks: Vec<_> = needs.tasks.iter().cloned().chain(of_jobs).collect();
    for (tenant, task_id) in tasks {
        if let Some(task) = load_task(connection, tenant, task_id, work.names())? {
            load_failed(connection, &task, work)?;
            work.set.add_task(task);
        }
    }
    Ok(())
}

const JOB: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");

pub(super) fn load_job(
    connection: &Connection,
    id: JobId,
    names: &impl Lookup,
) -> SqlResult<Option<Loaded>> {
    let mut statement = connection.prepare_cached(JOB)?;
    statement.query_row([id.as_u128().to_be_bytes()], |row| job_of(row, names)).optional()
}

/// A job that is about to be granted, with its payload if that stands in the row.
const JOB_TO_GRANT: &str = concat!("SELECT ", job_columns!(), ", payload FROM jobs WHERE seq = ?1");

/// A job that is about to be granted, with its payload. None, if it is on its way to the disk and not there yet.
pub(super) fn load_to_grant(
    connection: &Connection,
    seq: i64,
    names: &impl Lookup,
) -> SqlResult<Option<(Loaded, String)>> {
    let mut by_seq = connection.prepare_cached(JOB_TO_GRANT)?;
    let row = by_seq.query_row([seq], |row| Ok((job_of(row, names)?, row.get(25)?))).optional()?;
    let Some((loaded, inline)) = row else { return Ok(None) };
    let payload: Option<String> = inline;
    Ok(Some((loaded, payload.map_or_else(|| load_payload(connection, seq), Ok)?)))
}

/// Served by the index `jobs_key`.
const JOB_BY_KEY: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM jobs WHERE tenant = ?1 AND idempotency_scope = ?2 AND idempotency_key = ?3"
);

fn load_by_key(
    connection: &Connection,
    (tenant, scope, key): &Key,
    names: &impl Lookup,
) -> SqlResult<Option<Loaded>> {
    let mut statement = connection.prepare_cached(JOB_BY_KEY)?;
    let key = params![tenant.as_str(), scope.as_str(), key.as_str()];
    statement.query_row(key, |row| job_of(row, names)).optional()
}

/// The job that is not at its end and has this unique key. Served by the index `jobs_unique`.
const UNIQUE: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM jobs WHERE tenant = ?1 AND unique_key = ?2 AND unique_key IS NOT NULL AND NOT (
        state = 'succeeded' OR state = 'partial' OR state = 'failed' OR state = 'cancelled')"
);

fn load_unique(
    connection: &Connection,
    (tenant, unique): &(TenantId, UniqueKey),
    names: &impl Lookup,
) -> SqlResult<Option<Loaded>> {
    let mut statement = connection.prepare_cached(UNIQUE)?;
    let key = params![tenant.as_str(), unique.as_str()];
    statement.query_row(key, |row| job_of(row, names)).optional()
}

/// What a claim or a renewal has to know of a job that is held.
pub(super) struct HeldRow {
    pub(super) id: JobId,
    pub(super) rank: Rank,
    pub(super) claim_id: Option<ClaimId>,
    pub(super) alone: bool,
    pub(super) to_be_cancelled: bool,
}

impl HeldRow {
    pub(super) fn of(job: &Job) -> Self {
        Self {
            id: job.id,
            rank: job.spec.rank(),
            claim_id: job.claim_id,
            alone: job.lease.as_ref().is_some_and(|lease| lease.alone),
            to_be_cancelled: job.cancel.is_some(),
        }
    }
}

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT id, rank, lease, rest ->> '$.cancel' IS NOT NULL FROM jobs WHERE lease_session = ?1";

/// What a session holds, without the rest of the rows: a worker may hold many.
pub(super) fn load_held(connection: &Connection, session: i64) -> SqlResult<Vec<HeldRow>> {
    let mut statement = connection.prepare_cached(HELD)?;
    let rows = statement.query_map([session], |row| {
        let lease = lease_of(row, 2)?;
        Ok(HeldRow {
            id: JobId::from_u128(u128_of(row, 0)?),
            rank: Rank(row.get(1)?),
            claim_id: lease.claim_id,
            alone: lease.held.is_some_and(|held| held.alone),
            to_be_cancelled: row.get(3)?,
        })
    })?;
    rows.collect()
}

/// Served by the index `jobs_leased`.
const LEASED_BEFORE: &str = "
    SELECT tenant, id, version FROM jobs WHERE lease_session IS NOT NULL AND epoch < ?1 LIMIT 500";

/// Some jobs that are held under an epoch before this one.
pub(super) fn load_leased_before(
    connection: &Connection,
    epoch: u64,
) -> SqlResult<Vec<(TenantId, JobId, u64)>> {
    let mut statement = connection.prepare_cached(LEASED_BEFORE)?;
    let rows = statement.query_map([epoch], |row| {
        Ok((text_of(row, 0)?, JobId::from_u128(u128_of(row, 1)?), row.get(2)?))
    })?;
    rows.collect()
}

pub(super) fn lease_of(row: &Row<'_>, column: usize) -> SqlResult<LeaseBytes> {
    let lease = LeaseBytes::parse(row.get_ref(column)?.as_blob_or_null()?);
    lease.ok_or_else(|| unreadable(column, "it is no lease".to_owned()))
}

/// Jobs that are not at an end, for tests and tools.
const OPEN_JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM jobs
        WHERE state NOT IN ('succeeded', 'partial', 'failed', 'cancelled') ORDER BY seq"
);

pub(super) fn load_open_jobs(
    connection: &Connection,
    names: &impl Lookup,
) -> SqlResult<Vec<Loaded>> {
    let mut statement = connection.prepare_cached(OPEN_JOBS)?;
    let rows = statement.query_map([], |row| job_of(row, names))?;
    rows.collect()
}

const TASK_ROW: &str = "SELECT next_attempt FROM tasks WHERE tenant = ?1 AND task_id = ?2";

/// Served by the index `jobs_task`.
const TASK_JOBS: &str = "
    SELECT id, attempt, state FROM jobs
    WHERE tenant = ?1 AND task_id = ?2
    ORDER BY attempt DESC LIMIT 2";

pub(super) fn load_task(
    connection: &Connection,
    tenant: TenantId,
    task_id: TaskId,
    names: &impl Lookup,
) -> SqlResult<Option<Task>> {
    let name = TaskName::of(&task_id);
    let mut by_row = connection.prepare_cached(TASK_ROW)?;
    let mut next: Option<u32> =
        by_row.query_row(params![tenant.as_str(), name], |row| row.get(0)).optional()?;
    let (mut active, mut failed) = (None, None);
    let mut note = |id: JobId, attempt: u32, state: State| {
        next = next.max(Some(attempt + 1));
        if !state.is_end() {
            active = Some(id);
        }
        if state == State::Failed {
            failed = failed.max(Some((attempt, id)));
        }
    };
    let mut by_jobs = connection.prepare_cached(TASK_JOBS)?;
    let mut rows = by_jobs.query(params![tenant.as_str(), name])?;
    while let Some(row) = rows.next()? {
        note(JobId::from_u128(u128_of(row, 0)?), row.get(1)?, state_of(row, 2)?);
    }
    // A job that named no task has no task row, and its own id may still be named as a task.
    if let TaskName::Own(id) = name {
        let mut by_id = connection.prepare_cached(JOB)?;
        let own = by_id
            .query_row([id.as_u128().to_be_bytes()], |row| unleased_job_of(row, names))
            .optional()?;
        if let Some(own) = own.filter(|own| own.job.spec.tenant == tenant) {
            note(id, own.job.attempt, own.job.state);
        }
    }
    let task = |next_attempt| {
        let failed = failed.filter(|(attempt, _)| attempt + 1 == next_attempt).map(|(_, id)| id);
        Task { tenant, task_id, next_attempt, active, failed }
    };
    Ok(next.map(task))
}

/// The last job of a task, if it failed, and its dead letter.
fn load_failed(connection: &Connection, task: &Task, work: &mut Work<'_>) -> SqlResult<()> {
    let Some(id) = task.failed else { return Ok(()) };
    if !work.set.contains(id)
        && let Some(loaded) = load_job(connection, id, work.names())?
    {
        work.add(loaded);
    }
    if let Some(letter) = load_letter(connection, DlqId::of_job(id))? {
        work.set.add_letter(letter);
    }
    Ok(())
}

const LETTER: &str = "SELECT letter FROM dlq_items WHERE id = ?1";

pub(super) fn load_letter(connection: &Connection, id: DlqId) -> SqlResult<Option<DeadLetter>> {
    let mut statement = connection.prepare_cached(LETTER)?;
    let id = id.as_u128().to_be_bytes();
    statement.query_row([id], |row| json_of(row, 0)).optional()
}

const PAYLOAD: &str = "
    SELECT coalesce(payload, (SELECT payload FROM payloads WHERE payloads.seq = jobs.seq))
    FROM jobs WHERE seq = ?1";

pub(super) fn load_payload(connection: &Connection, seq: i64) -> SqlResult<String> {
    connection.prepare_cached(PAYLOAD)?.query_row([seq], |row| row.get(0))
}

/// A task's name in a row: our own ids as bytes, everything else as text.
pub(super) enum TaskName<'a> {
    Own(JobId),
    Given(&'a str),
}

impl TaskName<'_> {
    pub(super) fn of(task_id: &TaskId) -> TaskName<'_> {
        match task_id.as_str().parse() {
            Ok(id) => TaskName::Own(id),
            Err(_) => TaskName::Given(task_id.as_str()),
        }
    }
}

impl rusqlite::ToSql for TaskName<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            TaskName::Own(id) => id.as_u128().to_be_bytes().to_vec().into(),
            TaskName::Given(name) => (*name).into(),
        })
    }
}

/// The job of a row that has `job_columns`.
pub(super) fn job_of(row: &Row<'_>, names: &impl Lookup) -> SqlResult<Loaded> {
    let (mut unpacked, mut place) = unpack(row, names)?;
    if let Some(id) = row.get::<_, Option<i64>>(15)? {
        let session = names.session(id)?;
        let session = session.ok_or_else(|| unreadable(15, format!("there is no session {id}")))?;
        place.lease_seen = unpacked.held(&session).map_err(of_row)?;
    }
    place.history = unpacked.history;
    Ok(Loaded { job: unpacked.job, place })
}

/// The job of a row that has `job_columns`, as if nobody held it.
pub(super) fn unleased_job_of(row: &Row<'_>, names: &impl Lookup) -> SqlResult<Loaded> {
    job_and_lease_of(row, names).map(|(loaded, _)| loaded)
}

/// The job of a row that has `job_columns`, as if nobody held it, and what the row says of its lease.
pub(super) fn job_and_lease_of(
    row: &Row<'_>,
    names: &impl Lookup,
) -> SqlResult<(Loaded, LeaseBytes)> {
    let (Unpacked { job, lease, history }, mut place) = unpack(row, names)?;
    place.history = history;
    Ok((Loaded { job, place }, lease))
}

/// What a row that has `job_columns` says, and where it stands.
fn unpack(row: &Row<'_>, names: &impl Lookup) -> SqlResult<(Unpacked, Place)> {
    let group_id = row.get(3)?;
    let group = names.group(group_id)?;
    let group = group.ok_or_else(|| unreadable(3, format!("there is no group {group_id}")))?;
    let task_id = match row.get_ref(17)? {
        ValueRef::Null => None,
        ValueRef::Blob(_) => Some(TaskId::of_job(JobId::from_u128(u128_of(row, 17)?))),
        _ => Some(text_of(row, 17)?),
    };
    let key = match row.get_ref(19)? {
        ValueRef::Null => None,
        key => Some((row.get_ref(18)?.as_str()?, key.as_str()?)),
    };
    let job_row = JobRow {
        id: JobId::from_u128(u128_of(row, 1)?),
        tenant: row.get_ref(2)?.as_str()?,
        state: row.get_ref(4)?.as_str()?,
        rank: row.get(5)?,
        version: row.get(6)?,
        attempt: row.get(7)?,
        retry_count: row.get(8)?,
        max_retries: row.get(9)?,
        epoch: row.get(10)?,
        created_at: time_of(row, 11)?,
        updated_at: time_of(row, 12)?,
        started_at: time_or_none(row, 13)?,
        next_retry_at: time_or_none(row, 14)?,
        lease: row.get_ref(16)?.as_blob_or_null()?,
        task_id,
        key,
        payload_digest: row.get(20)?,
        trace: match row.get_ref(21)? {
            ValueRef::Blob(_) => TraceName::Made(u128_of(row, 21)?),
            text => TraceName::Given(text.as_str()?),
        },
        options: row.get_ref(22)?.as_str_or_null()?,
        rest: row.get_ref(23)?.as_str_or_null()?,
        history: row.get_ref(24)?.as_blob()?,
    };
    let unpacked = job_row.unpack(&group).map_err(of_row)?;
    let group = Some((group_id, unpacked.job.is_isolated()));
    let lane = unpacked.job.spec.lane();
    Ok((unpacked, Place { seq: row.get(0)?, group, lane, ..Place::default() }))
}

/// A column that cannot be what it should be: the database is damaged.
fn of_row(Unreadable { column, why }: Unreadable) -> rusqlite::Error {
    unreadable(0, format!("{column}: {why}"))
}

pub(super) fn u128_of(row: &Row<'_>, column: usize) -> SqlResult<u128> {
    row.get::<_, [u8; 16]>(column).map(u128::from_be_bytes)
}

pub(super) fn id_or_none(row: &Row<'_>, column: usize) -> SqlResult<Option<u128>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(u128::from_be_bytes))
}

pub(super) fn time_of(row: &Row<'_>, column: usize) -> SqlResult<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}

pub(super) fn time_or_none(row: &Row<'_>, column: usize) -> SqlResult<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_micros))
}

fn state_of(row: &Row<'_>, column: usize) -> SqlResult<State> {
    let word = row.get_ref(column)?.as_str()?;
    State::parse(word).ok_or_else(|| unreadable(column, format!("{word} is no state")))
}

pub(super) fn text_of<T>(row: &Row<'_>, column: usize) -> SqlResult<T>
where
    T: FromStr<Err = windlass_kernel::Refusal>,
{
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|why: windlass_kernel::Refusal| unreadable(column, why.to_string()))
}

pub(super) fn json_of<T: serde::de::DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
) -> SqlResult<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| unreadable(column, error.to_string()))
}

/// A value that cannot be what it should be: the database is damaged.
pub(super) fn unreadable(column: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, why.into())
}
