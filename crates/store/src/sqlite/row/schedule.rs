//! Schedules: their rows, and what is due of them.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use windlass_kernel::{JobId, Schedule, ScheduleName, State, TenantId, Timestamp};

use super::column::{id_or_none, text_of, time_of, time_or_none, unreadable};
use crate::{
    commit::{Changes, Needs, Put, ScheduleKey},
    read::DueSchedule,
    schedule_row::{ScheduleRow, Texts},
    sqlite::{SqlResult, write::work::Work},
};

/// The columns of a schedule, in the order of [`schedule_of`].
macro_rules! schedule_columns {
    () => {
        "tenant, name, version, created_at, updated_at, spec, payload, pause, next_at, fires_at,
         seen_at, last_slot, last_job"
    };
}

fn schedule_of(row: &Row<'_>) -> SqlResult<Schedule> {
    let text = |column: usize| -> SqlResult<&str> { Ok(row.get_ref(column)?.as_str()?) };
    let read = ScheduleRow {
        tenant: text(0)?,
        name: text(1)?,
        version: row.get(2)?,
        created_at: time_of(row, 3)?,
        updated_at: time_of(row, 4)?,
        spec: text(5)?,
        payload: text(6)?,
        pause: row.get_ref(7)?.as_str_or_null()?,
        next_at: time_or_none(row, 8)?,
        fires_at: time_or_none(row, 9)?,
        seen_at: time_or_none(row, 10)?,
        last_slot: time_or_none(row, 11)?,
        last_job: id_or_none(row, 12)?,
    };
    read.read().map_err(|why| unreadable(5, why))
}

const SCHEDULE: &str =
    concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE tenant = ?1 AND name = ?2");

/// A schedule as it stands.
pub(crate) fn read_schedule(
    connection: &Connection,
    tenant: &TenantId,
    name: &ScheduleName,
) -> SqlResult<Option<Schedule>> {
    let mut statement = connection.prepare_cached(SCHEDULE)?;
    statement.query_row([tenant.as_str(), name.as_str()], schedule_of).optional()
}

/// By name, from the one after this on.
const SCHEDULES: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules WHERE tenant = ?1 AND name > ?2 ORDER BY name LIMIT ?3"
);

/// The schedules of a tenant, by name.
pub(crate) fn read_schedules(
    connection: &Connection,
    tenant: &TenantId,
    after: Option<&ScheduleName>,
    limit: usize,
) -> SqlResult<Vec<Schedule>> {
    let mut statement = connection.prepare_cached(SCHEDULES)?;
    let after = after.map_or("", ScheduleName::as_str);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![tenant.as_str(), after, limit], schedule_of)?;
    rows.collect()
}

const STATE: &str = "SELECT state FROM jobs WHERE id = ?1";

/// Loads the schedules that a batch names, and whether their last jobs are at their end.
pub(crate) fn load(connection: &Connection, needs: &Needs, work: &mut Work<'_>) -> SqlResult<()> {
    for (tenant, name) in &needs.schedules {
        let key = (tenant.clone(), name.clone());
        let load = || read_schedule(connection, tenant, name);
        if let Some(schedule) = work.row(|changes| &changes.schedules, &key, load)? {
            work.set.add_schedule(schedule);
        }
    }
    for job_id in work.set.last_jobs() {
        let state = match work.flying_job(job_id) {
            Some(row) => Some(row.job.state),
            None => {
                let mut state = connection.prepare_cached(STATE)?;
                state.query_row([job_id.as_u128().to_be_bytes()], state_of).optional()?
            }
        };
        work.set.add_last_job(job_id, state.is_none_or(State::is_end));
    }
    Ok(())
}

fn state_of(row: &Row<'_>) -> SqlResult<State> {
    let word = row.get_ref(0)?.as_str()?;
    State::parse(word).ok_or_else(|| unreadable(0, format!("{word} is no state")))
}

const DELETE: &str = "DELETE FROM schedules WHERE tenant = ?1 AND name = ?2";
const SAVE: &str = concat!(
    "INSERT INTO schedules (",
    schedule_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
     ON CONFLICT DO UPDATE SET version = excluded.version, updated_at = excluded.updated_at,
        spec = excluded.spec, payload = excluded.payload, pause = excluded.pause,
        next_at = excluded.next_at, fires_at = excluded.fires_at, seen_at = excluded.seen_at,
        last_slot = excluded.last_slot, last_job = excluded.last_job"
);

/// Saves what became of schedules.
pub(crate) fn save(connection: &Connection, changes: &Changes) -> SqlResult<()> {
    for ((tenant, name), Put { after, .. }) in &changes.schedules {
        let Some(schedule) = after else {
            connection.prepare_cached(DELETE)?.execute([tenant.as_str(), name.as_str()])?;
            continue;
        };
        let Texts { spec, payload, pause } = Texts::of(schedule);
        let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
        connection.prepare_cached(SAVE)?.execute(params![
            tenant.as_str(),
            name.as_str(),
            schedule.version,
            schedule.created_at.as_micros(),
            schedule.updated_at.as_micros(),
            spec,
            payload,
            pause,
            micros(schedule.next_at),
            micros(schedule.fires_at),
            micros(schedule.seen_at),
            micros(schedule.last_slot),
            schedule.last_job.map(|id: JobId| id.as_u128().to_be_bytes()),
        ])?;
    }
    Ok(())
}

/// Longest first. Served by the index `schedules_due`.
pub(crate) const DUE: &str = "
    SELECT tenant, name, version FROM schedules WHERE fires_at <= ?1 ORDER BY fires_at LIMIT ?2";

/// Served by the index `schedules_due`.
pub(crate) const NEXT: &str = "SELECT min(fires_at) FROM schedules WHERE fires_at > ?1";

/// Schedules whose time has come, and when that of the next comes.
pub(crate) fn look(
    connection: &Connection,
    max: usize,
    now: Timestamp,
) -> SqlResult<(Vec<DueSchedule>, Option<Timestamp>)> {
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let mut due = connection.prepare_cached(DUE)?;
    let due = due.query_map(params![now.as_micros(), limit], |row| {
        let (tenant, name): ScheduleKey = (text_of(row, 0)?, text_of(row, 1)?);
        Ok(DueSchedule { tenant, name, version: row.get(2)? })
    })?;
    let due = due.collect::<SqlResult<_>>()?;
    let mut next = connection.prepare_cached(NEXT)?;
    Ok((due, next.query_row([now.as_micros()], |row| time_or_none(row, 0))?))
}
