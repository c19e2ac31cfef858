//! Looks for what time has brought: alarms that ring, and leases that have run out.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{
    Timestamp,
    timer::{self, Alarm},
};

use crate::{
    Error,
    due::{DueRows, Ring},
    postgres::{
        Failure, Inner, PgResult,
        link::{
            pipeline::{Ask, run, run_one},
            server_time::ServerTime,
            types::Time,
        },
        row::{
            column::{id_of, number, text_of, time_of, time_or_none},
            job::{Loaded, job_columns, job_of, job_tables},
            schedule,
        },
    },
    read::{Due, DueJob},
};

impl Inner {
    /// What time has brought. What is committed here meanwhile is told.
    pub(crate) async fn due(&self, max: usize) -> Result<Due, Error> {
        let (look, max) = (self.sooner.look(), max.max(1));
        let read = async |client: &ClientWrapper| look_at(client, max, &self.time).await;
        let due = self.with_client(read).await?.share(max);
        look.found(&due);
        Ok(due)
    }
}

/// What the server's clock shows, and when the newest commit was.
const MOMENT: &str = "
    SELECT clock_timestamp(), (SELECT at FROM feed ORDER BY first DESC LIMIT 1)";

/// What time it is.
pub(crate) async fn read_now(client: &ClientWrapper, time: &ServerTime) -> PgResult<Timestamp> {
    let rows = run_one(client, Ask::new(MOMENT)).await?;
    Ok(time.read(time_of(first(&rows)?, 0)?, time_or_none(first(&rows)?, 1)?))
}

/// Served by the index `jobs_timer`.
const NEXT_TIMER: &str = "SELECT min(timer_at) FROM jobs WHERE timer_at > $1";

/// Served by the index `jobs_retry_at`.
const NEXT_RETRY: &str = "SELECT min(next_retry_at) FROM jobs WHERE next_retry_at > $1";

/// Longest first. Served by the index `jobs_timer`.
const RUNG: &str = concat!(
    "SELECT ",
    job_columns!(),
    job_tables!(),
    "WHERE j.timer_at <= $1 ORDER BY j.timer_at LIMIT $2"
);

/// Sessions that hold jobs. It goes from one to the next in the index `jobs_leased`, so it costs nothing that
/// there are many that hold none. `OFFSET 0` keeps the server from reading all sessions at once instead.
macro_rules! holders {
    () => {
        "WITH RECURSIVE holders (id) AS (
            (SELECT lease_session FROM jobs WHERE lease_session IS NOT NULL
             ORDER BY lease_session LIMIT 1)
            UNION ALL
            SELECT (SELECT lease_session FROM jobs
                    WHERE lease_session IS NOT NULL AND lease_session > holders.id
                    ORDER BY lease_session LIMIT 1)
            FROM holders WHERE holders.id IS NOT NULL),
        session AS (
            SELECT s.* FROM holders CROSS JOIN LATERAL (
                SELECT id, worker, until FROM sessions WHERE id = holders.id OFFSET 0) AS s) "
    };
}

/// When a lease ends by itself, as its row has it.
macro_rules! own_until {
    () => {
        "timestamptz 'epoch'
            + ('x' || encode(substring(j.lease FROM 25 FOR 8), 'hex'))::bit(64)::bigint
            * interval '1 microsecond'"
    };
}

/// Served by the index `jobs_leased`, session by session.
const LAPSED: &str = concat!(
    holders!(),
    "SELECT l.tenant, l.id, l.version, session.worker, greatest(session.until, l.own_until)
     FROM session CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT j.tenant, j.id, j.version, ",
    own_until!(),
    " AS own_until FROM jobs j
            WHERE j.lease_session = session.id AND j.lease_session IS NOT NULL) AS held
        WHERE held.own_until <= $1 LIMIT $2) AS l
     WHERE session.until <= $1 LIMIT $2"
);

/// Of a session that was renewed, the first lease that does not last longer by itself ends with it.
const NEXT_LAPSE: &str = concat!(
    holders!(),
    "SELECT min(CASE
        WHEN session.until > $1 AND EXISTS (
            SELECT FROM jobs j
            WHERE j.lease_session = session.id AND j.lease_session IS NOT NULL AND ",
    own_until!(),
    " <= session.until)
        THEN session.until
        ELSE (
            SELECT min(",
    own_until!(),
    ") FROM jobs j
            WHERE j.lease_session = session.id AND j.lease_session IS NOT NULL AND ",
    own_until!(),
    " > $1)
        END)
     FROM session"
);

/// Looks for at most so many of each kind.
///
/// Each statement has a snapshot of its own. The next alarms are looked for before those that ring:
/// so an alarm that a commit in between makes ring is found by the later statement, and one that it
/// sets for later is told to the timers by the node that committed it.
async fn look_at(client: &ClientWrapper, max: usize, time: &ServerTime) -> PgResult<DueRows> {
    let now = read_now(client, time).await?;
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let asks = [
        Ask::new(NEXT_TIMER).with(Time(now)),
        Ask::new(NEXT_LAPSE).with(Time(now)),
        Ask::new(NEXT_RETRY).with(Time(now)),
        Ask::new(schedule::NEXT).with(Time(now)),
        Ask::new(RUNG).with(Time(now)).with(limit),
        Ask::new(LAPSED).with(Time(now)).with(limit),
        Ask::new(schedule::DUE).with(Time(now)).with(limit),
    ];
    let rows = run(client, &asks).await?;
    let next = |place: usize| time_or_none(first(&rows[place])?, 0);
    Ok(DueRows {
        now,
        next_timer_at: next(0)?,
        next_lapse_at: next(1)?,
        next_retry_at: next(2)?,
        next_schedule_at: next(3)?,
        timers: rows[4].iter().map(rung_of).collect::<PgResult<_>>()?,
        leases: rows[5].iter().map(lapsed_of).collect::<PgResult<_>>()?,
        schedules: rows[6].iter().map(schedule::due_of).collect::<PgResult<_>>()?,
    })
}

fn first(rows: &[Row]) -> PgResult<&Row> {
    rows.first().ok_or_else(|| Failure::damaged("there is no row"))
}

fn rung_of(row: &Row) -> PgResult<Ring> {
    let Loaded { job, .. } = job_of(row)?;
    let rings = timer::next_but_lease(&job);
    let (since, alarm) = rings.ok_or_else(|| Failure::damaged("nothing rings"))?;
    let held_by = job.lease.map(|lease| lease.worker);
    let (tenant, job_id, version) = (job.spec.tenant.clone(), job.id, job.version);
    Ok((since, DueJob { tenant, job_id, version, alarm, held_by }))
}

fn lapsed_of(row: &Row) -> PgResult<Ring> {
    let job = DueJob {
        tenant: text_of(row, 0)?,
        job_id: id_of(row, 1)?,
        version: number(row, 2)?,
        alarm: Alarm::Lease,
        held_by: Some(text_of(row, 3)?),
    };
    Ok((time_of(row, 4)?, job))
}
