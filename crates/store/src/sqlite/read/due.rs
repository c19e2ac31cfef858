//! Looks for what time has brought: alarms that ring, and leases that have run out.

use rusqlite::{Connection, params};
use windlass_kernel::{
    JobId, Timestamp, WorkerId,
    timer::{self, Alarm},
};

use crate::{
    due::{DueRows, Ring},
    read::DueJob,
    sqlite::{
        SqlResult,
        claim::names::Stored,
        row::{
            column::{self, text_of, time_of, time_or_none, u128_of},
            job::{self, Loaded, job_columns},
            lease::lease_of,
            schedule,
        },
    },
};

/// Looks for at most so many of each kind.
pub(crate) fn look(connection: &Connection, max: usize, now: Timestamp) -> SqlResult<DueRows> {
    let lapses = lapses(connection, max, now)?;
    let next = |sql| {
        connection.prepare_cached(sql)?.query_row([now.as_micros()], |row| time_or_none(row, 0))
    };
    let (schedules, next_schedule_at) = schedule::look(connection, max, now)?;
    Ok(DueRows {
        now,
        timers: rung(connection, max, now)?,
        leases: lapses.found,
        next_timer_at: next(NEXT_TIMER)?,
        next_lapse_at: lapses.next_at,
        next_retry_at: next(NEXT_RETRY)?,
        schedules,
        next_schedule_at,
    })
}

/// Served by the index `jobs_timer`.
const NEXT_TIMER: &str = "SELECT min(timer_at) FROM jobs WHERE timer_at > ?1";

/// Served by the index `jobs_retry_at`.
const NEXT_RETRY: &str = "SELECT min(next_retry_at) FROM jobs WHERE next_retry_at > ?1";

/// Longest first. Served by the index `jobs_timer`.
const RUNG: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM jobs WHERE timer_at <= ?1 ORDER BY timer_at LIMIT ?2"
);

fn rung(connection: &Connection, max: usize, now: Timestamp) -> SqlResult<Vec<Ring>> {
    let names = Stored(connection);
    let mut statement = connection.prepare_cached(RUNG)?;
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![now.as_micros(), limit], |row| {
        let Loaded { job, .. } = job::job_of(row, &names)?;
        let (since, alarm) = timer::next_but_lease(&job)
            .ok_or_else(|| column::unreadable(0, "nothing rings".to_owned()))?;
        let held_by = job.lease.map(|lease| lease.worker);
        let (tenant, job_id, version) = (job.spec.tenant.clone(), job.id, job.version);
        Ok((since, DueJob { tenant, job_id, version, alarm, held_by }))
    })?;
    rows.collect()
}

/// Sessions that hold jobs. It goes from one to the next in the index `jobs_leased`, so it costs nothing that
/// there are many that hold none.
const HOLDERS: &str = "
    WITH RECURSIVE holders (id) AS (
        SELECT min(lease_session) FROM jobs WHERE lease_session IS NOT NULL
        UNION ALL
        SELECT (SELECT min(lease_session) FROM jobs WHERE lease_session > holders.id)
        FROM holders WHERE holders.id IS NOT NULL)
    SELECT sessions.id, sessions.worker, sessions.until
    FROM holders JOIN sessions ON sessions.id = holders.id";

/// Leases that have run out, at most so many, and when the next one does.
fn lapses(connection: &Connection, max: usize, now: Timestamp) -> SqlResult<Lapses> {
    let mut lapses = Lapses { now, max, found: Vec::new(), next_at: None };
    let mut statement = connection.prepare_cached(HOLDERS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !lapses.add(connection, row.get(0)?, &text_of(row, 1)?, time_of(row, 2)?)? {
            break;
        }
    }
    Ok(lapses)
}

struct Lapses {
    now: Timestamp,
    max: usize,
    found: Vec<Ring>,
    next_at: Option<Timestamp>,
}

/// Served by the index `jobs_leased`.
const LEASES: &str = "SELECT tenant, id, version, lease FROM jobs WHERE lease_session = ?1";

impl Lapses {
    /// Adds what a session holds. It says whether there may be room for more.
    fn add(
        &mut self,
        connection: &Connection,
        session: i64,
        worker: &WorkerId,
        until: Timestamp,
    ) -> SqlResult<bool> {
        let mut statement = connection.prepare_cached(LEASES)?;
        let mut rows = statement.query([session])?;
        while let Some(row) = rows.next()? {
            let own = lease_of(row, 3)?.held.map_or(until, |held| held.until);
            let lapses_at = own.max(until);
            if lapses_at > self.now {
                let next = self.next_at.get_or_insert(lapses_at);
                *next = (*next).min(lapses_at);
                // No other lease of this session can run out earlier.
                if own <= until {
                    return Ok(true);
                }
                continue;
            }
            let job = DueJob {
                tenant: text_of(row, 0)?,
                job_id: JobId::from_u128(u128_of(row, 1)?),
                version: row.get(2)?,
                alarm: Alarm::Lease,
                held_by: Some(worker.clone()),
            };
            self.found.push((lapses_at, job));
            if self.found.len() == self.max {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::SQLITE;

    #[test]
    fn every_look_is_served_by_an_index() {
        let connection = Connection::open_in_memory().expect("a database");
        let schema: String = SQLITE.iter().map(|it| it.sql).collect();
        connection.execute_batch(&schema).expect("the schema");
        let served_by = [
            (NEXT_TIMER, "jobs_timer"),
            (NEXT_RETRY, "jobs_retry_at"),
            (RUNG, "jobs_timer"),
            (HOLDERS, "jobs_leased"),
            (LEASES, "jobs_leased"),
            (schedule::DUE, "schedules_due"),
            (schedule::NEXT, "schedules_due"),
        ];
        for (sql, index) in served_by {
            let explain = format!("EXPLAIN QUERY PLAN {sql}");
            let mut statement = connection.prepare(&explain).expect("a statement");
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().expect("a plan") {
                let step: String = row.get(3).expect("a step");
                let reads_jobs = step.contains(" jobs") || step.contains(" schedules");
                assert!(!reads_jobs || step.contains(index), "{sql}: {step}");
                assert!(!step.contains("TEMP B-TREE"), "{sql}: {step}");
                assert!(!step.contains("SCAN sessions"), "{sql}: {step}");
            }
        }
    }
}
