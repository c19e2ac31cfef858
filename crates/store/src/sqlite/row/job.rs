//! The row of a job: its columns, and the job that they say.

use rusqlite::{Connection, OptionalExtension as _, Row, params, types::ValueRef};
use windlass_kernel::{Job, JobId, Lane, TaskId, TenantId, UniqueKey};

use super::column::{of_row, text_of, time_of, time_or_none, u128_of, unreadable};
use crate::{
    commit::Key,
    job_row::{JobRow, TraceName, Unpacked},
    packed::{History, LeaseBytes},
    sqlite::{SqlResult, claim::names::Lookup},
};

/// The columns of a job that are read back, in the order of [`job_of`].
macro_rules! job_columns {
    () => {
        "seq, id, tenant, group_id, state, rank, version, attempt, retry_count, max_retries, epoch,
         created_at, updated_at, started_at, next_retry_at, lease_session, lease, task_id,
         idempotency_scope, idempotency_key, payload_digest, trace_id, options, rest, history"
    };
}

pub(crate) use job_columns;

/// A job as its row has it, with what only the store knows.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) job: Job,
    pub(crate) place: Place,
}

/// Where a job stands in the database; nowhere yet, if it is about to be created.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) seq: i64,
    pub(crate) history: History,
    /// Renewals of the session that are part of the job's lease count.
    pub(crate) lease_seen: u64,
    /// The group of its row, and whether that is an isolated one.
    pub(crate) group: Option<(i64, bool)>,
    /// The session that holds it, as its row is to say.
    pub(crate) session: Option<i64>,
    /// Where it waits beside those that have its key.
    pub(crate) lane: Lane,
}

impl Place {
    pub(crate) fn group_id(&self) -> i64 {
        self.group.expect("a row has a group before it is saved").0
    }
}

pub(crate) const JOB: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");

pub(crate) fn load_job(
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
pub(crate) fn load_to_grant(
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

pub(crate) fn load_by_key(
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

pub(crate) fn load_unique(
    connection: &Connection,
    (tenant, unique): &(TenantId, UniqueKey),
    names: &impl Lookup,
) -> SqlResult<Option<Loaded>> {
    let mut statement = connection.prepare_cached(UNIQUE)?;
    let key = params![tenant.as_str(), unique.as_str()];
    statement.query_row(key, |row| job_of(row, names)).optional()
}

const PAYLOAD: &str = "
    SELECT coalesce(payload, (SELECT payload FROM payloads WHERE payloads.seq = jobs.seq))
    FROM jobs WHERE seq = ?1";

pub(crate) fn load_payload(connection: &Connection, seq: i64) -> SqlResult<String> {
    connection.prepare_cached(PAYLOAD)?.query_row([seq], |row| row.get(0))
}

/// The job of a row that has `job_columns`.
pub(crate) fn job_of(row: &Row<'_>, names: &impl Lookup) -> SqlResult<Loaded> {
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
pub(crate) fn unleased_job_of(row: &Row<'_>, names: &impl Lookup) -> SqlResult<Loaded> {
    job_and_lease_of(row, names).map(|(loaded, _)| loaded)
}

/// The job of a row that has `job_columns`, as if nobody held it, and what the row says of its lease.
pub(crate) fn job_and_lease_of(
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
