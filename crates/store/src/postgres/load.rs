//! Loads the rows that a commit needs, and locks them.

use std::collections::BTreeSet;

use tokio_postgres::Row;
use windlass_kernel::{
    DeadLetter, DlqId, Job, JobId, Lane, Refusal, Session, State, Task, TaskId, TenantId,
    Timestamp, WorkerId,
};

use super::{
    Failure, PgResult,
    first_load::Locking,
    names::Names,
    pipeline::{Ask, run},
    types::{Time, Uuid, Xid},
    work::Work,
};
use crate::{
    commit::Needs,
    job_row::{GroupName, JobRow, TraceName, Unpacked, Unreadable},
    packed::History,
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
pub(super) use row_columns;

/// The same of a job that is about to be granted, with its payload, unless that is large, and the bytes of its payload. So
/// no more than that is sent of jobs which do not fit into an answer; `load_grants` loads what is large and granted.
macro_rules! grant_columns {
    () => {
        concat!(
            $crate::postgres::load::row_columns!(),
            ", CASE WHEN octet_length(j.payload) <= 4096 THEN j.payload END AS payload,
             octet_length(j.payload) AS payload_bytes"
        )
    };
}
pub(super) use grant_columns;

/// The columns of a job, and what they refer to.
macro_rules! job_columns {
    () => {
        concat!(
            $crate::postgres::load::row_columns!(),
            ", g.queue, g.tenant, g.kind, g.isolated, s.worker, s.until, s.renewals"
        )
    };
}
pub(super) use job_columns;

/// Where [`job_columns`] come from.
macro_rules! job_tables {
    () => {
        " FROM jobs j LEFT JOIN job_groups g ON g.id = j.group_id
          LEFT JOIN sessions s ON s.id = j.lease_session "
    };
}
pub(super) use job_tables;

/// A job as its row has it, with what only the store knows.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) job: Job,
    pub(super) place: Place,
}

/// Where a job stands in the database; nowhere yet, if it is about to be created.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The transaction that wrote the row.
    pub(super) written_by: Xid,
    pub(super) history: History,
    /// Renewals of the session that are part of the job's lease count.
    pub(super) lease_seen: u64,
    /// The group of its row, and whether that is an isolated one.
    pub(super) group: Option<(i32, bool)>,
    /// The session that holds it.
    pub(super) session: Option<i32>,
    /// Where it waits beside those that have its key.
    pub(super) lane: Lane,
}

/// Jobs that are locked already, or need not be.
pub(super) const JOBS_READ: &str =
    concat!("SELECT ", row_columns!(), " FROM jobs j WHERE j.id = ANY($1)");

/// Letters by id, and those of tasks whose last job failed: of named ones, served by the index `jobs_task`, and of jobs
/// that named none. A letter has the id of its job.
macro_rules! letters {
    ($waits:literal) => {
        concat!(
            "SELECT letter FROM dlq_items WHERE id = ANY($1
                || ARRAY(
                    SELECT j.id FROM unnest($2::text[], $3::text[]) AS k (tenant, task_id), LATERAL (
                        SELECT id, state FROM jobs
                        WHERE jobs.tenant = k.tenant AND jobs.task_id = k.task_id
                            AND jobs.task_id IS NOT NULL
                        ORDER BY attempt DESC LIMIT 1) j
                    WHERE j.state = 'failed')
                || ARRAY(
                    SELECT id FROM jobs WHERE id = ANY($4) AND tenant = ANY($2) AND state = 'failed'))
             ORDER BY id FOR UPDATE",
            $waits
        )
    };
}

const LETTERS: &str = letters!("");
const LETTERS_NO_WAIT: &str = letters!(" NOWAIT");

macro_rules! task_rows {
    ($waits:literal) => {
        concat!(
            "SELECT t.tenant, t.task_id, t.next_attempt FROM tasks t
             JOIN unnest($1::text[], $2::text[]) AS k (tenant, task_id) USING (tenant, task_id)
             ORDER BY tenant, task_id FOR UPDATE OF t",
            $waits
        )
    };
}

const TASK_ROWS: &str = task_rows!("");
const TASK_ROWS_NO_WAIT: &str = task_rows!(" NOWAIT");

/// The last two attempts of each task. Served by the index `jobs_task`.
const TASK_JOBS: &str = "
    SELECT k.tenant, k.task_id, j.id, j.attempt, j.state
    FROM unnest($1::text[], $2::text[]) AS k (tenant, task_id), LATERAL (
        SELECT id, attempt, state FROM jobs
        WHERE jobs.tenant = k.tenant AND jobs.task_id = k.task_id AND jobs.task_id IS NOT NULL
        ORDER BY attempt DESC LIMIT 2) j";

/// A job that named no task has no task row, and its own id may still be named as one.
const OWN_TASKS: &str = "SELECT tenant, id, attempt, state FROM jobs WHERE id = ANY($1)";

/// The columns of a session, and the jobs that it holds alone, served by the index `jobs_leased`.
macro_rules! session_columns {
    () => {
        "id, worker, until, renewals, lapses_at, ARRAY(
            SELECT jobs.id FROM jobs
            WHERE lease_session = sessions.id AND lease_session IS NOT NULL AND get_byte(lease, 48) = 1)"
    };
}
pub(super) use session_columns;

const SESSIONS_BY_ID: &str =
    concat!("SELECT ", session_columns!(), " FROM sessions WHERE id = ANY($1)");

/// Sessions that are written to.
pub(super) const SESSIONS_LOCKED: &str = concat!(
    "SELECT ",
    session_columns!(),
    " FROM sessions WHERE worker = ANY($1) ORDER BY worker FOR UPDATE"
);

/// Adds jobs by their locked rows, which have `row_columns`, with the groups and sessions they refer to.
pub(super) async fn add_jobs(work: &mut Work<'_>, names: &Names, rows: &[Row]) -> PgResult<()> {
    let mut sessions: Vec<i32> = Vec::new();
    let mut knows_groups = true;
    for row in rows {
        let session: Option<i32> = row.try_get(15)?;
        sessions.extend(session.filter(|id| work.session_by_id(*id).is_none()));
        knows_groups &= names.named_by(row.try_get(3)?).is_some();
    }
    if !sessions.is_empty() {
        for row in run(work.client, &[Ask::new(SESSIONS_BY_ID).with(sessions)]).await?.remove(0) {
            work.add_session(KnownSession::of(&row)?);
        }
    }
    if !knows_groups {
        names.learn(work.client).await?;
    }
    for row in rows {
        let id = row.try_get(3)?;
        let group = names.named_by(id);
        let group = group.ok_or_else(|| super::Failure::damaged(format!("no group {id}")))?;
        let (mut unpacked, mut place) = unpack(row, &group)?;
        if let Some(id) = place.session {
            let known = work.session_by_id(id);
            let known = known.ok_or_else(|| super::Failure::damaged(format!("no session {id}")))?;
            place.lease_seen = unpacked.held(&known.session).map_err(damaged)?;
        }
        place.history = unpacked.history;
        work.add(Loaded { job: unpacked.job, place });
    }
    Ok(())
}

/// What can only be asked for when other rows are there: letters with their jobs, and tasks.
pub(super) async fn load_rest(
    work: &mut Work<'_>,
    names: &Names,
    needs: &Needs,
    locking: Locking,
) -> PgResult<()> {
    let mut tasks_of = needs.tasks_of.clone();
    if !needs.letters.is_empty() || !needs.reruns.is_empty() {
        let letters = run(work.client, &[ask_letters(needs, locking)]).await?.remove(0);
        let letters: Vec<DeadLetter> =
            letters.iter().map(|row| json_of(row, 0)).collect::<PgResult<_>>()?;
        let jobs = letters.iter().map(|letter| letter.job_id);
        let missing: Vec<Uuid> =
            jobs.filter(|id| !work.set.contains(*id)).map(|id| Uuid(id.as_u128())).collect();
        // They were locked together with all others that the commit names, or they are at their end and stay as they are.
        let rows = run(work.client, &[Ask::new(JOBS_READ).with(missing)]).await?.remove(0);
        add_jobs(work, names, &rows).await?;
        for letter in letters {
            tasks_of.insert(letter.job_id);
            work.set.add_letter(letter);
        }
    }
    let of_jobs = tasks_of.iter().filter_map(|id| work.set.job(*id));
    let of_jobs = of_jobs.map(|job| (job.spec.tenant.clone(), job.spec.task_id.clone()));
    let tasks: BTreeSet<_> = needs.tasks.iter().cloned().chain(of_jobs).collect();
    if tasks.is_empty() {
        return Ok(());
    }
    for task in load_tasks(work.client, tasks.into_iter().collect(), locking).await? {
        let letter = task.failed.map(DlqId::of_job);
        let may_rerun = needs.reruns.contains(&(task.tenant.clone(), task.task_id.clone()));
        if may_rerun && letter.is_some_and(|letter| !work.set.has_letter(letter)) {
            // Its job failed since letters were asked for, which are locked before tasks.
            return Err(Failure::Overtaken);
        }
        work.set.add_task(task);
    }
    Ok(())
}

fn ask_letters(needs: &Needs, locking: Locking) -> Ask {
    let letters = if locking == Locking::NoWait { LETTERS_NO_WAIT } else { LETTERS };
    let ids: Vec<Uuid> = needs.letters.iter().map(|id| Uuid(id.as_u128())).collect();
    let tenants = needs.reruns.iter().map(|(tenant, _)| tenant.as_str().to_owned());
    let tasks = needs.reruns.iter().map(|(_, task)| task.as_str().to_owned());
    let own = needs.reruns.iter().filter_map(|(_, task)| own_task(task));
    Ask::new(letters)
        .with(ids)
        .with(tenants.collect::<Vec<_>>())
        .with(tasks.collect::<Vec<_>>())
        .with(own.collect::<Vec<_>>())
}

/// The job that this task is named after, if it is one of our ids.
fn own_task(task: &TaskId) -> Option<Uuid> {
    task.as_str().parse::<JobId>().ok().map(|id| Uuid(id.as_u128()))
}

/// Tasks as they stand; those that nobody has named are left out.
async fn load_tasks(
    client: &deadpool_postgres::ClientWrapper,
    names: Vec<(TenantId, TaskId)>,
    locking: Locking,
) -> PgResult<Vec<Task>> {
    let locked = if locking == Locking::NoWait { TASK_ROWS_NO_WAIT } else { TASK_ROWS };
    let tenants: Vec<String> = names.iter().map(|(tenant, _)| tenant.as_str().to_owned()).collect();
    let ids: Vec<String> = names.iter().map(|(_, task)| task.as_str().to_owned()).collect();
    let own: Vec<Uuid> = names.iter().filter_map(|(_, task)| own_task(task)).collect();
    let found = run(
        client,
        &[
            Ask::new(locked).with(tenants.clone()).with(ids.clone()),
            Ask::new(TASK_JOBS).with(tenants).with(ids),
            Ask::new(OWN_TASKS).with(own),
        ],
    )
    .await?;
    let mut tasks = Vec::new();
    for (tenant, task_id) in names {
        let is_it = |row: &&Row| {
            row.get::<_, &str>(0) == tenant.as_str() && row.get::<_, &str>(1) == task_id.as_str()
        };
        let mut next = found[0].iter().find(is_it).map(|row| number_32(row, 2)).transpose()?;
        let (mut active, mut failed) = (None, None);
        let of_task = found[1].iter().filter(is_it).map(|row| (row, 2));
        let own = found[2].iter().filter(|row| {
            let id = JobId::from_u128(row.get::<_, Uuid>(1).0);
            row.get::<_, &str>(0) == tenant.as_str() && TaskId::of_job(id) == task_id
        });
        for (row, first) in of_task.chain(own.map(|row| (row, 1))) {
            let id = JobId::from_u128(row.try_get::<_, Uuid>(first)?.0);
            let (attempt, state) = (number_32(row, first + 1)?, state_of(row, first + 2)?);
            next = next.max(Some(attempt + 1));
            if !state.is_end() {
                active = Some(id);
            }
            if state == State::Failed {
                failed = failed.max(Some((attempt, id)));
            }
        }
        tasks.extend(next.map(|next_attempt| {
            let is_last = |(attempt, _): &(u32, JobId)| attempt + 1 == next_attempt;
            let failed = failed.filter(is_last).map(|(_, id)| id);
            Task { tenant, task_id, next_attempt, active, failed }
        }));
    }
    Ok(tasks)
}

const LETTER: &str = "SELECT letter FROM dlq_items WHERE id = $1";

pub(super) async fn load_letter(
    client: &deadpool_postgres::ClientWrapper,
    id: DlqId,
) -> PgResult<Option<DeadLetter>> {
    let rows = run(client, &[Ask::new(LETTER).with(Uuid(id.as_u128()))]).await?.remove(0);
    rows.first().map(|row| json_of(row, 0)).transpose()
}

/// A session as its row has it.
#[derive(Clone, Debug)]
pub(super) struct KnownSession {
    pub(super) id: i32,
    pub(super) session: Session,
    /// The last of its leases does not run out later.
    pub(super) lapses_at: Timestamp,
    /// Jobs that it holds and that have to be alone.
    pub(super) alone: Vec<JobId>,
}

impl KnownSession {
    pub(super) fn of(row: &Row) -> PgResult<Self> {
        let (worker, until) = (text_of(row, 1)?, time_of(row, 2)?);
        let session = Session { worker, until, renewals: number(row, 3)? };
        let alone: Vec<Uuid> = row.try_get(5)?;
        let alone = alone.into_iter().map(|id| JobId::from_u128(id.0)).collect();
        Ok(Self { id: row.try_get(0)?, session, lapses_at: time_of(row, 4)?, alone })
    }
}

/// The job of a row that has `job_columns`.
pub(super) fn job_of(row: &Row) -> PgResult<Loaded> {
    let (mut unpacked, mut place) = unpack(row, &group_of(row)?)?;
    if place.session.is_some() {
        let session = session_of(row)?;
        place.lease_seen = unpacked.held(&session).map_err(damaged)?;
    }
    place.history = unpacked.history;
    Ok(Loaded { job: unpacked.job, place })
}

/// A job that a claim may have.
pub(super) struct Candidate {
    pub(super) loaded: Loaded,
    /// None, if it is large.
    pub(super) payload: Option<String>,
    pub(super) payload_bytes: usize,
}

/// Where the columns end that a [`Candidate`] is made of.
pub(super) const GRANT_COLUMNS: usize = 28;

/// The job of a row that nobody holds, of a group that is known: the row has `grant_columns`.
pub(super) fn candidate_of(row: &Row, group: &GroupName) -> PgResult<Candidate> {
    let payload_bytes = usize::try_from(row.try_get::<_, i32>(GRANT_COLUMNS - 1)?);
    Ok(Candidate {
        loaded: free_job_of(row, group)?,
        payload: row.try_get(GRANT_COLUMNS - 2)?,
        payload_bytes: payload_bytes.unwrap_or(0),
    })
}

/// The job of a row that nobody holds, of a group that is known: the row has `row_columns`.
pub(super) fn free_job_of(row: &Row, group: &GroupName) -> PgResult<Loaded> {
    let (unpacked, mut place) = unpack(row, group)?;
    place.history = unpacked.history;
    Ok(Loaded { job: unpacked.job, place })
}

fn unpack(row: &Row, group: &GroupName) -> PgResult<(Unpacked, Place)> {
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
        return Err(super::Failure::damaged(format!("there is no group {id}")));
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
    let worker = worker.ok_or_else(|| super::Failure::damaged("a lease without its session"))?;
    Ok(Session {
        worker: parse::<WorkerId>(worker)?,
        until: time_of(row, 31)?,
        renewals: number(row, 32)?,
    })
}

fn digest_of(row: &Row, column: usize) -> PgResult<[u8; 32]> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes.try_into().map_err(|_| super::Failure::damaged("a digest is not 32 bytes"))
}

pub(super) fn state_of(row: &Row, column: usize) -> PgResult<State> {
    let word: &str = row.try_get(column)?;
    State::parse(word).ok_or_else(|| super::Failure::damaged(format!("{word} is no state")))
}

pub(super) fn id_of(row: &Row, column: usize) -> PgResult<JobId> {
    Ok(JobId::from_u128(row.try_get::<_, Uuid>(column)?.0))
}

pub(super) fn time_of(row: &Row, column: usize) -> PgResult<Timestamp> {
    Ok(row.try_get::<_, Time>(column)?.0)
}

pub(super) fn time_or_none(row: &Row, column: usize) -> PgResult<Option<Timestamp>> {
    Ok(row.try_get::<_, Option<Time>>(column)?.map(|time| time.0))
}

pub(super) fn number(row: &Row, column: usize) -> PgResult<u64> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| super::Failure::damaged(format!("{number} is negative")))
}

pub(super) fn number_32(row: &Row, column: usize) -> PgResult<u32> {
    let number: i32 = row.try_get(column)?;
    u32::try_from(number).map_err(|_| super::Failure::damaged(format!("{number} is negative")))
}

pub(super) fn text_of<T: std::str::FromStr<Err = Refusal>>(
    row: &Row,
    column: usize,
) -> PgResult<T> {
    parse(row.try_get(column)?)
}

fn parse<T: std::str::FromStr<Err = Refusal>>(text: &str) -> PgResult<T> {
    text.parse().map_err(|why: Refusal| super::Failure::damaged(format!("{text:?}: {why}")))
}

pub(super) fn json_of<T: serde::de::DeserializeOwned>(row: &Row, column: usize) -> PgResult<T> {
    let text: &str = row.try_get(column)?;
    serde_json::from_str(text).map_err(|error| super::Failure::damaged(error.to_string()))
}

fn damaged(Unreadable { column, why }: Unreadable) -> super::Failure {
    super::Failure::damaged(format!("{column}: {why}"))
}
