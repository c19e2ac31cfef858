//! Schedules: their rows, locked for the commit that decides about them, and which of them are due.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{Schedule, ScheduleName, State, TenantId};

use super::column::{id_of, number, text_of, time_of, time_or_none};
use crate::{
    commit::{Changes, Needs, Put, ScheduleKey},
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::{Time, Uuid, signed},
        },
        write::work::Work,
    },
    read::DueSchedule,
    schedule_row::{ScheduleRow, Texts},
};

/// The columns of a schedule, in the order of [`schedule_of`].
macro_rules! schedule_columns {
    () => {
        "s.tenant, s.name, s.version, s.created_at, s.updated_at, s.spec, s.payload, s.pause,
         s.next_at, s.fires_at, s.seen_at, s.last_slot, s.last_job"
    };
}

fn schedule_of(row: &Row) -> PgResult<Schedule> {
    let read = ScheduleRow {
        tenant: row.try_get(0)?,
        name: row.try_get(1)?,
        version: number(row, 2)?,
        created_at: time_of(row, 3)?,
        updated_at: time_of(row, 4)?,
        spec: row.try_get(5)?,
        payload: row.try_get(6)?,
        pause: row.try_get(7)?,
        next_at: time_or_none(row, 8)?,
        fires_at: time_or_none(row, 9)?,
        seen_at: time_or_none(row, 10)?,
        last_slot: time_or_none(row, 11)?,
        last_job: row.try_get::<_, Option<Uuid>>(12)?.map(|id| id.0),
    };
    read.read().map_err(|why| Failure::damaged(format!("a schedule: {why}")))
}

const SCHEDULE: &str =
    concat!("SELECT ", schedule_columns!(), " FROM schedules s WHERE tenant = $1 AND name = $2");

/// A schedule as it stands.
pub(crate) async fn read_schedule(
    client: &ClientWrapper,
    tenant: &TenantId,
    name: &ScheduleName,
) -> PgResult<Option<Schedule>> {
    let ask = Ask::new(SCHEDULE).with(tenant.as_str().to_owned()).with(name.as_str().to_owned());
    run_one(client, ask).await?.first().map(schedule_of).transpose()
}

/// By name, from the one after this on. Names are compared byte by byte, as everywhere else.
const SCHEDULES: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules s WHERE tenant = $1 AND name COLLATE \"C\" > $2
     ORDER BY name COLLATE \"C\" LIMIT $3"
);

/// The schedules of a tenant, by name.
pub(crate) async fn read_schedules(
    client: &ClientWrapper,
    tenant: &TenantId,
    after: Option<&ScheduleName>,
    limit: usize,
) -> PgResult<Vec<Schedule>> {
    let ask = Ask::new(SCHEDULES)
        .with(tenant.as_str().to_owned())
        .with(after.map_or("", ScheduleName::as_str).to_owned())
        .with(i64::try_from(limit).unwrap_or(i64::MAX));
    run_one(client, ask).await?.iter().map(schedule_of).collect()
}

/// In the order of their names, so that two commits cannot deadlock.
const LOCKED: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules s JOIN unnest($1::text[], $2::text[]) AS k (tenant, name)
        ON s.tenant = k.tenant AND s.name = k.name
     ORDER BY s.tenant COLLATE \"C\", s.name COLLATE \"C\" FOR UPDATE OF s"
);

/// Locks the schedules that these writes name, if they name some. It comes before jobs are locked.
pub(crate) fn ask_for(needs: &Needs, asks: &mut Vec<Ask>) {
    if needs.schedules.is_empty() {
        return;
    }
    let part = |part: fn(&ScheduleKey) -> &str| -> Vec<String> {
        needs.schedules.iter().map(|key| part(key).to_owned()).collect()
    };
    let (tenants, names) = (part(|key| key.0.as_str()), part(|key| key.1.as_str()));
    asks.push(Ask::new(LOCKED).with(tenants).with(names));
}

/// Takes the rows that were asked for.
pub(crate) fn take(
    needs: &Needs,
    rows: &mut impl Iterator<Item = Vec<Row>>,
    work: &mut Work<'_>,
) -> PgResult<()> {
    if !needs.schedules.is_empty() {
        for row in rows.next().unwrap_or_default() {
            work.set.add_schedule(schedule_of(&row)?);
        }
    }
    Ok(())
}

/// Without a lock: a job that comes to its end at this moment may still count as one that runs.
const STATES: &str = "SELECT id, state FROM jobs WHERE id = ANY($1)";

/// Loads whether the last jobs of schedules are at their end, where that matters.
pub(crate) async fn load_last_jobs(work: &mut Work<'_>) -> PgResult<()> {
    let ids = work.set.last_jobs();
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = ids.into_iter().map(|id| Uuid(id.as_u128())).collect();
    for row in run_one(work.client, Ask::new(STATES).with(ids)).await? {
        let word: &str = row.try_get(1)?;
        let state = State::parse(word);
        let state = state.ok_or_else(|| Failure::damaged(format!("{word} is no state")))?;
        work.set.add_last_job(id_of(&row, 0)?, state.is_end());
    }
    Ok(())
}

const INSERT: &str = "
    INSERT INTO schedules (tenant, name, version, created_at, updated_at, spec, payload, pause,
        next_at, fires_at, seen_at, last_slot, last_job)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

/// The row is locked, and it is still the one that was decided upon: nothing rests on the lock alone.
const UPDATE: &str = "
    WITH done AS (
        UPDATE schedules SET version = $3, created_at = $4, updated_at = $5, spec = $6, payload = $7,
            pause = $8, next_at = $9, fires_at = $10, seen_at = $11, last_slot = $12, last_job = $13
        WHERE tenant = $1 AND name = $2 AND version = $14 RETURNING 1)
    SELECT expect((SELECT count(*) FROM done), 1)";

const DELETE: &str = "
    WITH done AS (
        DELETE FROM schedules WHERE tenant = $1 AND name = $2 AND version = $3 RETURNING 1)
    SELECT expect((SELECT count(*) FROM done), 1)";

/// The statements that save what became of schedules.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    for ((tenant, name), Put { before, after }) in &changes.schedules {
        let named = |sql: &'static str| {
            Ask::new(sql).with(tenant.as_str().to_owned()).with(name.as_str().to_owned())
        };
        let before = before.as_ref().map(|schedule| signed(schedule.version));
        match (after, before) {
            (Some(schedule), None) => asks.push(with_row(named(INSERT), schedule)),
            (Some(schedule), Some(before)) => {
                asks.push(with_row(named(UPDATE), schedule).with(before));
            }
            (None, Some(before)) => asks.push(named(DELETE).with(before)),
            // It was made and deleted by the same commit.
            (None, None) => {}
        }
    }
}

fn with_row(ask: Ask, schedule: &Schedule) -> Ask {
    let Texts { spec, payload, pause } = Texts::of(schedule);
    ask.with(signed(schedule.version))
        .with(Time(schedule.created_at))
        .with(Time(schedule.updated_at))
        .with(spec)
        .with(payload)
        .with(pause)
        .with(schedule.next_at.map(Time))
        .with(schedule.fires_at.map(Time))
        .with(schedule.seen_at.map(Time))
        .with(schedule.last_slot.map(Time))
        .with(schedule.last_job.map(|id| Uuid(id.as_u128())))
}

/// Served by the index `schedules_due`.
pub(crate) const NEXT: &str = "SELECT min(fires_at) FROM schedules WHERE fires_at > $1";

/// Longest first. Served by the index `schedules_due`.
pub(crate) const DUE: &str = "
    SELECT tenant, name, version FROM schedules WHERE fires_at <= $1 ORDER BY fires_at LIMIT $2";

pub(crate) fn due_of(row: &Row) -> PgResult<DueSchedule> {
    Ok(DueSchedule { tenant: text_of(row, 0)?, name: text_of(row, 1)?, version: number(row, 2)? })
}
