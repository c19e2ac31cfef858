//! Saves what a commit decided: rows, then the log.

use rusqlite::{CachedStatement, Connection, params};
use windlass_kernel::{
    DeadLetter, Event, IdempotencyScope, Job, JobId, NewPayload, State, Task, Timestamp, TraceId,
    timer::{self, Alarm},
};

use super::{
    SqlResult,
    load::{Place, TaskName},
    names::Names,
    read::read_payload,
};
use crate::{
    IdMap,
    commit::{Changes, Output},
    log,
    row::{Options, Rest},
};

/// How many log ids stand in a job's row before the older ones move to their own table.
const LOG_IDS_INLINE: usize = 16;

/// A payload up to this size stands in the job's row.
const PAYLOAD_INLINE_BYTES: usize = 256;

/// Saves everything, and gives back the number of the last event.
pub(super) fn save(
    connection: &Connection,
    changes: &Changes,
    jobs: &IdMap<Job>,
    places: &mut IdMap<Place>,
    names: &mut Names,
    last_event: u64,
    now: Timestamp,
) -> SqlResult<u64> {
    let last_event = save_log(connection, changes, places, last_event, now)?;
    insert_jobs(connection, changes, jobs, places, names)?;
    update_jobs(connection, changes, jobs, places, names)?;
    for output in &changes.outputs {
        save_output(connection, output, places[&output.job_id].seq)?;
    }
    for letter in changes.letters.values() {
        save_letter(connection, letter)?;
    }
    for approval in &changes.approvals {
        connection.prepare_cached(APPROVE)?.execute(params![
            approval.dlq_id.as_u128().to_be_bytes(),
            approval.step.as_str(),
            approval.principal.as_str(),
            approval.reason,
            approval.at.as_micros(),
        ])?;
    }
    for task in &changes.tasks {
        save_task(connection, task)?;
    }
    for (tenant, follow_up) in &changes.follow_ups {
        let row = params![tenant.as_str(), json(follow_up)];
        connection.prepare_cached(FOLLOW_UP)?.execute(row)?;
    }
    Ok(last_event)
}

const FOLLOW_UP: &str = "INSERT INTO follow_ups (tenant, what) VALUES (?1, ?2)";

const APPROVE: &str =
    "INSERT INTO approvals (dlq_id, step, principal, reason, at) VALUES (?1, ?2, ?3, ?4, ?5)";

const APPEND: &str = "INSERT INTO log (id, tenant, at, count, events) VALUES (?1, ?2, ?3, ?4, ?5)";

/// One row for each tenant, with all its events. Each job learns where its events are.
fn save_log(
    connection: &Connection,
    changes: &Changes,
    places: &mut IdMap<Place>,
    mut last_event: u64,
    now: Timestamp,
) -> SqlResult<u64> {
    for (tenant, events) in &changes.events {
        let id = last_event + 1;
        let mut text = String::with_capacity(events.len() * 160);
        for event in events {
            text.push(if text.is_empty() { '[' } else { ',' });
            let start = text.len();
            log::encode(event, &mut text);
            note_event(places, event, id, &text[start..], now);
        }
        text.push(']');
        let count = events.len();
        connection.prepare_cached(APPEND)?.execute(params![
            id,
            tenant.as_str(),
            now.as_micros(),
            count,
            text
        ])?;
        last_event += count as u64;
    }
    Ok(last_event)
}

fn note_event(places: &mut IdMap<Place>, event: &Event, log_id: u64, line: &str, now: Timestamp) {
    let place = places.entry(event.job_id).or_insert_with(Place::new);
    place.chain = log::extend(place.chain, now, line);
    let log_id = log_id.to_be_bytes();
    if !place.log_ids.ends_with(&log_id) {
        place.log_ids.extend(log_id);
    }
}

const INSERT: &str = "
    INSERT INTO jobs (
        id, tenant, queue, kind, group_id, state, ready_rank, priority, version, attempt, retry_count,
        max_retries, epoch, claim_id, interruptions, created_at, due_at, updated_at, started_at,
        attempt_started_at, execution_started_at, finished_at, next_retry_at, timer_at,
        lease_session, lease_until, lease_alone, lease_beat_at, lease_seen, lease_count, task_id,
        task_given, idempotency_scope, idempotency_key, payload_digest, trace_id, dlq_id, settle,
        options, rest, log_ids, chain, payload)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
        ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39,
        ?40, ?41, ?42, ?43)";

const INSERT_PAYLOAD: &str = "INSERT INTO payloads (seq, payload) VALUES (?1, ?2)";

fn insert_jobs(
    connection: &Connection,
    changes: &Changes,
    jobs: &IdMap<Job>,
    places: &mut IdMap<Place>,
    names: &mut Names,
) -> SqlResult<()> {
    let mut insert = connection.prepare_cached(INSERT)?;
    for (id, payload) in &changes.created {
        let place = places.get_mut(id).expect("a new job has an event");
        let copied: String;
        let payload = match payload {
            NewPayload::Given(payload) => payload.as_str(),
            NewPayload::Of(other) => {
                copied = read_payload(connection, *other)?.expect("its job was just loaded");
                &copied
            }
        };
        let group = names.group(connection, &jobs[id], place)?;
        let inline = Some(payload).filter(|payload| payload.len() <= PAYLOAD_INLINE_BYTES);
        insert_job(&mut insert, &jobs[id], place, group, session_of(&jobs[id], names), inline)?;
        place.seq = connection.last_insert_rowid();
        if inline.is_none() {
            connection.prepare_cached(INSERT_PAYLOAD)?.execute(params![place.seq, payload])?;
        }
    }
    Ok(())
}

/// The session that holds the job.
fn session_of(job: &Job, names: &Names) -> Option<i64> {
    let lease = job.lease.as_ref()?;
    Some(names.session_of(&lease.worker).expect("a session is saved before its leases").0)
}

fn insert_job(
    insert: &mut CachedStatement<'_>,
    job: &Job,
    place: &Place,
    group: i64,
    session: Option<i64>,
    payload: Option<&str>,
) -> SqlResult<()> {
    let spec = &job.spec;
    let (rest, settle) = Rest::of(job);
    let lease = job.lease.as_ref();
    insert.execute(params![
        job.id.as_u128().to_be_bytes(),
        spec.tenant.as_str(),
        spec.queue.as_str(),
        spec.kind.as_str(),
        group,
        job.state.as_str(),
        ready_rank(job),
        spec.priority.0,
        job.version,
        job.attempt,
        job.retry_count,
        spec.max_retries,
        job.epoch.get(),
        job.claim_id.map(|id| id.as_u128().to_be_bytes()),
        job.interruptions,
        spec.created_at.as_micros(),
        spec.due_at.as_micros(),
        job.updated_at.as_micros(),
        job.started_at.map(Timestamp::as_micros),
        job.attempt_started_at.map(Timestamp::as_micros),
        job.execution_started_at.map(Timestamp::as_micros),
        job.finished_at.map(Timestamp::as_micros),
        job.next_retry_at.map(Timestamp::as_micros),
        timer_at(job).map(Timestamp::as_micros),
        session,
        lease.map(|lease| lease.until.as_micros()),
        lease.map(|lease| lease.alone),
        lease.map(|lease| lease.beat_at.as_micros()),
        lease.map(|_| place.lease_seen),
        job.lease_count,
        TaskName::of(&spec.task_id),
        spec.task_given,
        spec.idempotency_scope.as_str(),
        KeyName::of(job),
        spec.payload_digest.as_bytes(),
        TraceName::of(job),
        job.dlq_id.map(|id| id.as_u128().to_be_bytes()),
        settle.map(|settle| *settle.as_bytes()),
        Options::of(spec).map(|options| json(&options)),
        rest.map(|rest| json(&rest)),
        place.log_ids,
        place.chain,
        payload,
    ])?;
    Ok(())
}

const UPDATE: &str = "
    UPDATE jobs SET state = ?2, ready_rank = ?3, version = ?4, attempt = ?5, retry_count = ?6,
        epoch = ?7, interruptions = ?8, updated_at = ?9, started_at = ?10, attempt_started_at = ?11,
        execution_started_at = ?12, finished_at = ?13, next_retry_at = ?14, timer_at = ?15,
        lease_session = ?16, claim_id = ?17, lease_until = ?18, lease_alone = ?19,
        lease_beat_at = ?20, lease_seen = ?21, lease_count = ?22, settle = ?23, rest = ?24,
        log_ids = ?25, chain = ?26, group_id = ?27
    WHERE seq = ?1";

/// The usual end of a job: it succeeds, and nothing but this changes.
const COMPLETE: &str = "
    UPDATE jobs SET state = 'succeeded', version = ?2, updated_at = ?3, finished_at = ?3,
        execution_started_at = NULL, timer_at = NULL, lease_session = NULL, lease_until = NULL,
        lease_alone = NULL, lease_beat_at = NULL, lease_seen = NULL, lease_count = ?4, settle = ?5,
        log_ids = ?6, chain = ?7
    WHERE seq = ?1";

/// A job that fails gets its dead letter first. Apart from the rest, because a statement that sets a
/// foreign key keeps a journal of its own, which the usual update need not pay for.
const SET_LETTER: &str = "
    UPDATE jobs SET dlq_id = ?2, state = 'failed', ready_rank = NULL, finished_at = ?3,
        next_retry_at = NULL, lease_session = NULL
    WHERE seq = ?1";

fn update_jobs(
    connection: &Connection,
    changes: &Changes,
    jobs: &IdMap<Job>,
    places: &mut IdMap<Place>,
    names: &mut Names,
) -> SqlResult<()> {
    let mut update = connection.prepare_cached(UPDATE)?;
    let mut complete = connection.prepare_cached(COMPLETE)?;
    for id in &changes.updated {
        let (job, place) = (&jobs[id], places.get_mut(id).expect("it was loaded"));
        move_older_log_ids(connection, place)?;
        if changes.completed.contains(id) && complete_job(&mut complete, job, place)? {
            continue;
        }
        if let Some(dlq_id) = job.dlq_id {
            let finished_at = job.finished_at.map(Timestamp::as_micros);
            let row = params![place.seq, dlq_id.as_u128().to_be_bytes(), finished_at];
            connection.prepare_cached(SET_LETTER)?.execute(row)?;
        }
        let group = names.group(connection, job, place)?;
        update_job(&mut update, job, place, group, session_of(job, names))?;
    }
    Ok(())
}

/// Saves a job that did nothing in this commit but succeed, if its row has nothing unusual.
fn complete_job(complete: &mut CachedStatement<'_>, job: &Job, place: &Place) -> SqlResult<bool> {
    let (rest, settle) = Rest::of(job);
    if rest.is_some() {
        return Ok(false);
    }
    complete.execute(params![
        place.seq,
        job.version,
        job.updated_at.as_micros(),
        job.lease_count,
        settle.map(|settle| *settle.as_bytes()),
        place.log_ids,
        place.chain,
    ])?;
    Ok(true)
}

fn update_job(
    update: &mut CachedStatement<'_>,
    job: &Job,
    place: &Place,
    group: i64,
    session: Option<i64>,
) -> SqlResult<()> {
    let (rest, settle) = Rest::of(job);
    let lease = job.lease.as_ref();
    update.execute(params![
        place.seq,
        job.state.as_str(),
        ready_rank(job),
        job.version,
        job.attempt,
        job.retry_count,
        job.epoch.get(),
        job.interruptions,
        job.updated_at.as_micros(),
        job.started_at.map(Timestamp::as_micros),
        job.attempt_started_at.map(Timestamp::as_micros),
        job.execution_started_at.map(Timestamp::as_micros),
        job.finished_at.map(Timestamp::as_micros),
        job.next_retry_at.map(Timestamp::as_micros),
        timer_at(job).map(Timestamp::as_micros),
        session,
        job.claim_id.map(|id| id.as_u128().to_be_bytes()),
        lease.map(|lease| lease.until.as_micros()),
        lease.map(|lease| lease.alone),
        lease.map(|lease| lease.beat_at.as_micros()),
        lease.map(|_| place.lease_seen),
        job.lease_count,
        settle.map(|settle| *settle.as_bytes()),
        rest.map(|rest| json(&rest)),
        place.log_ids,
        place.chain,
        group,
    ])?;
    Ok(())
}

const MOVE_LOG_ID: &str = "INSERT INTO job_log (seq, log_id) VALUES (?1, ?2)";

/// When too many log ids stand in the row, all but the newest move out.
fn move_older_log_ids(connection: &Connection, place: &mut Place) -> SqlResult<()> {
    if place.log_ids.len() <= LOG_IDS_INLINE * 8 {
        return Ok(());
    }
    let newest = place.log_ids.split_off(place.log_ids.len() - 8);
    let older = std::mem::replace(&mut place.log_ids, newest);
    let mut insert = connection.prepare_cached(MOVE_LOG_ID)?;
    for id in older.chunks_exact(8) {
        let id = i64::from_be_bytes(id.try_into().expect("eight bytes"));
        insert.execute(params![place.seq, id])?;
    }
    Ok(())
}

const SAVE_OUTPUT: &str = "
    INSERT INTO outputs (seq, attempt, result, remaining, stats) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET result = excluded.result, remaining = excluded.remaining,
        stats = excluded.stats";

fn save_output(connection: &Connection, output: &Output, seq: i64) -> SqlResult<()> {
    let text = |payload: &Option<windlass_kernel::Payload>| {
        payload.as_ref().map(|payload| payload.as_str().to_owned())
    };
    connection.prepare_cached(SAVE_OUTPUT)?.execute(params![
        seq,
        output.attempt,
        text(&output.result),
        text(&output.remaining),
        text(&output.stats),
    ])?;
    Ok(())
}

const SAVE_LETTER: &str = "
    INSERT INTO dlq_items (id, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT DO UPDATE SET state = excluded.state, requeued_as = excluded.requeued_as,
        closed_at = excluded.closed_at, letter = excluded.letter";

fn save_letter(connection: &Connection, letter: &DeadLetter) -> SqlResult<()> {
    connection.prepare_cached(SAVE_LETTER)?.execute(params![
        letter.id.as_u128().to_be_bytes(),
        letter.tenant.as_str(),
        letter.job_id.as_u128().to_be_bytes(),
        letter.state.as_str(),
        letter.failure.code,
        letter.created_at.as_micros(),
        letter.requeued_as.map(|id| id.as_u128().to_be_bytes()),
        letter.closed_at.map(Timestamp::as_micros),
        json(letter),
    ])?;
    Ok(())
}

const SAVE_TASK: &str = "
    INSERT INTO tasks (tenant, task_id, next_attempt) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET next_attempt = excluded.next_attempt";

fn save_task(connection: &Connection, task: &Task) -> SqlResult<()> {
    let row = params![task.tenant.as_str(), TaskName::of(&task.task_id), task.next_attempt];
    connection.prepare_cached(SAVE_TASK)?.execute(row)?;
    Ok(())
}

/// Its place among the jobs that can be claimed now.
fn ready_rank(job: &Job) -> Option<i64> {
    matches!(job.state, State::Queued | State::Interrupted).then(|| job.spec.rank().0)
}

/// The next alarm of the job itself. Its lease rings with the session that holds it.
fn timer_at(job: &Job) -> Option<Timestamp> {
    let alarms = Alarm::ALL.iter().filter(|alarm| **alarm != Alarm::Lease);
    alarms.filter_map(|alarm| timer::rings_at(job, *alarm)).min()
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("rows are plain data")
}

/// An idempotency key in a row: the job's own id as bytes, a caller's key as text.
enum KeyName<'a> {
    Own(JobId),
    Given(&'a str),
}

impl KeyName<'_> {
    fn of(job: &Job) -> KeyName<'_> {
        if job.spec.idempotency_scope == IdempotencyScope::own_id() {
            KeyName::Own(job.id)
        } else {
            KeyName::Given(job.spec.idempotency_key.as_str())
        }
    }
}

impl rusqlite::ToSql for KeyName<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            KeyName::Own(id) => id.as_u128().to_be_bytes().to_vec().into(),
            KeyName::Given(key) => (*key).into(),
        })
    }
}

/// A trace in a row: the chance that ours was made from, or a caller's trace as text.
enum TraceName<'a> {
    Made(u128),
    Given(&'a str),
}

impl TraceName<'_> {
    fn of(job: &Job) -> TraceName<'_> {
        let trace = &job.spec.trace_id;
        match made_from(trace, job.id) {
            Some(random) => TraceName::Made(random),
            None => TraceName::Given(trace.as_str()),
        }
    }
}

/// The chance that the trace of `job_id` was made from, if we made it: `trace-run-<job>-<uuid>`.
fn made_from(trace: &TraceId, job_id: JobId) -> Option<u128> {
    let (head, uuid) = trace.as_str().split_at_checked(41)?;
    let id = head.strip_prefix("trace-run-")?.strip_suffix('-')?.parse::<JobId>().ok()?;
    let dashed = uuid.len() == 36 && [8, 13, 18, 23].iter().all(|at| uuid.as_bytes()[*at] == b'-');
    let lower = !uuid.bytes().any(|byte| byte.is_ascii_uppercase());
    (id == job_id && dashed && lower)
        .then(|| u128::from_str_radix(&uuid.replace('-', ""), 16).ok())
        .flatten()
}

impl rusqlite::ToSql for TraceName<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            TraceName::Made(random) => random.to_be_bytes().to_vec().into(),
            TraceName::Given(trace) => (*trace).into(),
        })
    }
}
