//! Writes what a plan says, in one transaction: names, the log, rows.

use rusqlite::{Connection, params};

use super::write_plan::WritePlan;
use crate::sqlite::{
    SqlResult,
    row::{
        act, follow_up, follower, granted, job_save, ledger, letter, note, output, progress, rule,
        schedule, task, token,
    },
};

/// Writes all that a plan says.
pub(crate) fn save(connection: &Connection, plan: &WritePlan) -> SqlResult<()> {
    let WritePlan { changes, rows, .. } = plan;
    plan.names.save(connection, plan.now)?;
    append_log(connection, plan)?;
    // A job that comes to its end lets go of what is unique about it, and a new one may have it.
    job_save::update_jobs(connection, &changes.updated, rows)?;
    job_save::insert_jobs(connection, &changes.created, rows)?;
    for (seq, log_id) in &plan.older {
        connection.prepare_cached(MOVE_LOG_ID)?.execute(params![seq, log_id])?;
    }
    output::save(connection, changes, rows)?;
    progress::save(connection, changes, rows)?;
    ledger::save(connection, changes, rows)?;
    letter::save(connection, changes)?;
    task::save(connection, changes)?;
    follow_up::save(connection, changes)?;
    rule::save(connection, changes, plan.now)?;
    schedule::save(connection, changes)?;
    token::save(connection, changes)?;
    granted::save(connection, &changes.claims, plan.now)?;
    follower::save(connection, changes)
}

const APPEND: &str = "INSERT INTO log (id, tenant, at, count, events) VALUES (?1, ?2, ?3, ?4, ?5)";

fn append_log(connection: &Connection, plan: &WritePlan) -> SqlResult<()> {
    for row in &plan.log {
        connection.prepare_cached(APPEND)?.execute(params![
            row.id,
            row.tenant.as_str(),
            plan.now.as_micros(),
            row.count,
            row.events
        ])?;
        note::save(connection, row, plan.now)?;
        act::save(connection, row)?;
    }
    Ok(())
}

const MOVE_LOG_ID: &str = "INSERT INTO job_log (seq, log_id) VALUES (?1, ?2)";
