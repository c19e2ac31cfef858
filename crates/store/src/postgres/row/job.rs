//! The row of a job: its columns, and the job that they say.

use tokio_postgres::Row;
use windlass_kernel::{Job, JobId, Lane, Session, WorkerId};

use super::column::{damaged, digest_of, number, number_32, parse, text_of, time_of, time_or_none};
use crate::{
    job_row::{GroupName, JobRow, TraceName, Unpacked},
    packed::History,
    postgres::{
        Failure, PgResult,
        link::types::{Uuid, Xid},
    },
};

/// The columns of a job that are read back, in the order of [`job_of`].
macro_rules! row_columns {
    () => {
        "j.xmin, j.id, j.tenant, j.group_id, j.state, j.rank, j.version, j.attempt, j.retry_count,
         j.max_retries, j.epoch, j.created_at, j.updated_at, j.started_at, j.next_retry_at,
         j.lease_session, j.lease, j.task_id, j.idempotency_scope, j.idempotency_key,
         j.payload_digest, j.trace_made, j.trace_id, j.options, j.rest, j.history"
    };
}

pub(crate) use row_columns;

/// The same of a job that is about to be granted, with its payload, unless that is large, and the bytes of its payload. So
/// no more than that is sent of jobs which do not fit into an answer; `load_grants` loads what is large and granted.
macro_rules! grant_columns {
    () => {
        concat!(
            $crate::postgres::row::job::row_columns!(),
            ", CASE WHEN octet_length(j.payload) <= 4096 THEN j.payload END AS payload,
             octet_length(j.payload) AS payload_bytes"
        )
    };
}

pub(crate) use grant_columns;

/// The columns of a job, and what they refer to.
macro_rules! job_columns {
    () => {
        concat!(
            $crate::postgres::row::job::row_columns!(),
            ", g.queue, g.tenant, g.kind, g.isolated, s.worker, s.until, s.renewals"
        )
    };
}

pub(crate) use job_columns;

/// Where [`job_columns`] come from.
macro_rules! job_tables {
    () => {
        " FROM jobs j LEFT JOIN job_groups g ON g.id = j.group_id
          LEFT JOIN sessions s ON s.id = j.lease_session "
    };
}

pub(crate) use job_tables;

/// A job as its row has it, with what only the store knows.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) job: Job,
    pub(crate) place: Place,
}

/// Where a job stands in the database; nowhere yet, if it is about to be created.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The transaction that wrote the row.
    pub(crate) written_by: Xid,
    pub(crate) history: History,
    /// Renewals of the session that are part of the job's lease count.
    pub(crate) lease_seen: u64,
    /// The group of its row, and whether that is an isolated one.
    pub(crate) group: Option<(i32, bool)>,
    /// The session that holds it.
    pub(crate) session: Option<i32>,
    /// Where it waits beside those that have its key.
    pub(crate) lane: Lane,
}

/// Jobs that are locked already, or need not be.
pub(crate) const JOBS_READ: &str =
    concat!("SELECT ", row_columns!(), " FROM jobs j WHERE j.id = ANY($1)");

/// The job of a row that has `job_columns`.
pub(crate) fn job_of(row: &Row) -> PgResult<Loaded> {
    let (mut unpacked, mut place) = unpack(row, &group_of(row)?)?;
    if place.session.is_some() {
        let session = session_of(row)?;
        place.lease_seen = unpacked.held(&session).map_err(damaged)?;
    }
    place.history = unpacked.history;
    Ok(Loaded { job: unpacked.job, place })
}

/// A job that a claim may have.
pub(crate) struct Candidate {
    pub(crate) loaded: Loaded,
    /// None, if it is large.
    pub(crate) payload: Option<String>,
    pub(crate) payload_bytes: usize,
}

/// Where the columns end that a [`Candidate`] is made of.
pub(crate) const GRANT_COLUMNS: usize = 28;

/// The job of a row that nobody holds, of a group that is known: the row has `grant_columns`.
pub(crate) fn candidate_of(row: &Row, group: &GroupName) -> PgResult<Candidate> {
    let payload_bytes = usize::try_from(row.try_get::<_, i32>(GRANT_COLUMNS - 1)?);
    Ok(Candidate {
        loaded: free_job_of(row, group)?,
        payload: row.try_get(GRANT_COLUMNS - 2)?,
        payload_bytes: payload_bytes.unwrap_or(0),
    })
}

/// The job of a row that nobody holds, of a group that is known: the row has `row_columns`.
pub(crate) fn free_job_of(row: &Row, group: &GroupName) -> PgResult<Loaded> {
    let (unpacked, mut place) = unpack(row, group)?;
    place.history = unpacked.history;
    Ok(Loaded { job: unpacked.job, place })
}

pub(crate) fn unpack(row: &Row, group: &GroupName) -> PgResult<(Unpacked, Place)> {
    let trace = match row.try_get::<_, Option<Uuid>>(21)? {
        Some(made) => TraceName::Made(made.0),
        None => TraceName::Given(row.try_get(22)?),
    };
    let key: (Option<&str>, Option<&str>) = (row.try_get(18)?, row.try_get(19)?);
    let job_row = JobRow {
        id: JobId::from_u128(row.try_get::<_, Uuid>(1)?.0),
        tenant: row.try_get(2)?,
        state: row.try_get(4)?,
        rank: row.try_get(5)?,
        version: number(row, 6)?,
        attempt: number_32(row, 7)?,
        retry_count: number_32(row, 8)?,
        max_retries: number_32(row, 9)?,
        epoch: number(row, 10)?,
        created_at: time_of(row, 11)?,
        updated_at: time_of(row, 12)?,
        started_at: time_or_none(row, 13)?,
        next_retry_at: time_or_none(row, 14)?,
        lease: row.try_get(16)?,
        task_id: row.try_get::<_, Option<&str>>(17)?.map(parse).transpose()?,
        key: key.0.zip(key.1),
        payload_digest: digest_of(row, 20)?,
        trace,
        options: row.try_get(23)?,
        rest: row.try_get(24)?,
        history: row.try_get(25)?,
    };
    let unpacked = job_row.unpack(group).map_err(damaged)?;
    let group = Some((row.try_get(3)?, unpacked.job.is_isolated()));
    let (written_by, session) = (row.try_get(0)?, row.try_get(15)?);
    let lane = unpacked.job.spec.lane();
    let place = Place { written_by, group, session, lane, ..Place::default() };
    Ok((unpacked, place))
}

fn group_of(row: &Row) -> PgResult<GroupName> {
    if row.try_get::<_, Option<bool>>(29)?.is_none() {
        let id = row.try_get::<_, i32>(3)?;
        return Err(Failure::damaged(format!("there is no group {id}")));
    }
    Ok(GroupName {
        queue: text_of(row, 26)?,
        tenant: text_of(row, 27)?,
        kind: text_of(row, 28)?,
        isolated: row.try_get(29)?,
    })
}

fn session_of(row: &Row) -> PgResult<Session> {
    let worker: Option<&str> = row.try_get(30)?;
    let worker = worker.ok_or_else(|| Failure::damaged("a lease without its session"))?;
    Ok(Session {
        worker: parse::<WorkerId>(worker)?,
        until: time_of(row, 31)?,
        renewals: number(row, 32)?,
    })
}
