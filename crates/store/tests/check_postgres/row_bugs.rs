//! Bugs in what is kept: rows, leases, keys, tasks, dead letters, and what retention left.

use serde_json::json;
use windlass_kernel::JobId;
use windlass_store::check::Invariant;

use crate::plant::{Planted, plant, uuid};

/// Damages the first such job's row.
fn spoil(victim: &str, change: &str, rules: &[Invariant]) {
    let first = format!("(SELECT id FROM jobs WHERE {victim} ORDER BY id LIMIT 1)");
    plant(&format!("UPDATE jobs SET {change} WHERE id = {first}"), rules);
}

#[test]
fn a_row_changes_without_an_event() {
    let later = "started_at = started_at + interval '1 microsecond'";
    spoil("state = 'succeeded'", later, &[Invariant::Fold]);
    spoil("state = 'queued'", "version = version + 1", &[Invariant::Version]);
    spoil("state = 'queued'", "rank = rank + 60000000", &[Invariant::Creation]);
    spoil("state = 'queued'", "trace_made = NULL, trace_id = NULL", &[Invariant::Readable]);
}

#[test]
fn a_scheduled_job_has_no_timer() {
    spoil("state = 'scheduled'", "timer_at = NULL", &[Invariant::Reachable]);
}

#[test]
fn a_retry_is_due_at_no_time() {
    spoil(
        "state = 'retry_scheduled'",
        "next_retry_at = NULL",
        &[Invariant::RetryTime, Invariant::Fold],
    );
}

#[test]
fn a_lease_is_held_by_nobody() {
    spoil("state = 'running'", "lease_session = 999999", &[Invariant::Lease]);
    spoil("state = 'queued'", "lease_session = 1", &[Invariant::Lease]);
}

#[test]
fn a_payload_is_exchanged() {
    spoil("state = 'queued'", "payload = '{\"n\":77}'", &[Invariant::Payload]);
}

#[test]
fn a_job_is_there_twice() {
    // One that has no key, no task and no parent, whose own rules would be broken too.
    let sql = "
        INSERT INTO jobs SELECT * FROM jobs
        WHERE state = 'queued' AND version = 1 AND idempotency_key IS NULL AND task_id IS NULL
            AND id NOT IN (SELECT children.id FROM children)
        ORDER BY id LIMIT 1";
    plant(sql, &[Invariant::LogPointers]);
}

#[test]
fn a_key_is_used_twice() {
    let keys = "FROM jobs WHERE idempotency_scope = 'default' AND tenant = 'acme'";
    let sql = format!(
        "UPDATE jobs SET idempotency_key =
            (SELECT idempotency_key {keys} ORDER BY id DESC LIMIT 1)
         WHERE id = (SELECT id {keys} ORDER BY id LIMIT 1)"
    );
    // What was asked for is no longer what the first event says.
    plant(&sql, &[Invariant::KeyUnique, Invariant::Creation]);
}

#[test]
fn an_attempt_is_made_twice() {
    let planted = Planted::new();
    let job = planted.victim(
        "task_id IS NOT NULL AND state IN ('queued', 'succeeded', 'cancelled', 'running')
         AND NOT EXISTS (SELECT FROM outputs WHERE outputs.id = jobs.id) AND retry_count = 0
         AND EXISTS (SELECT FROM jobs AS other WHERE other.tenant = jobs.tenant
            AND other.task_id = jobs.task_id AND other.attempt = jobs.attempt - 1)",
    );
    planted
        .plant(&format!("UPDATE jobs SET attempt = attempt - 1 WHERE id = '{}'", uuid(job)))
        .retell(job, |line| {
            line[5] = json!(line[5].as_i64().unwrap() - 1);
            if let Some(attempt) = line[11].get_mut("attempt") {
                *attempt = json!(attempt.as_i64().unwrap() - 1);
            }
        })
        .check_names(&[Invariant::AttemptUnique]);
}

#[test]
fn a_task_would_make_an_attempt_again() {
    plant("UPDATE tasks SET next_attempt = next_attempt - 1", &[Invariant::TaskNext]);
    plant("DELETE FROM tasks WHERE task_id NOT LIKE 'job\\_%'", &[Invariant::TaskNext]);
}

#[test]
fn a_failed_job_has_no_letter() {
    plant("DELETE FROM dlq_items WHERE state = 'open'", &[Invariant::OneLetter]);
}

#[test]
fn a_letter_has_no_job() {
    let job = JobId::from_u128(1 << 100);
    let (id, dlq) = (uuid(job), job.to_string().replace("job_", "dlq_"));
    let sql = format!(
        "INSERT INTO dlq_items SELECT '{id}', tenant, '{id}', state, code, created_at, requeued_as,
            closed_at, (letter::jsonb || '{{\"id\": \"{dlq}\", \"job_id\": \"{job}\"}}')::text
         FROM dlq_items WHERE state = 'open' LIMIT 1"
    );
    plant(&sql, &[Invariant::OneLetter]);
}

#[test]
fn a_letter_says_something_else_than_its_job() {
    plant("UPDATE dlq_items SET code = 'OTHER' WHERE state = 'open'", &[Invariant::LetterTrue]);
    plant("UPDATE dlq_items SET tenant = 'nobody' WHERE state = 'open'", &[Invariant::Tenant]);
}

#[test]
fn one_person_discards_a_letter() {
    plant("DELETE FROM approvals WHERE step = 'approved'", &[Invariant::TwoPeople]);
    plant("UPDATE approvals SET principal = 'ann'", &[Invariant::TwoPeople]);
}

#[test]
fn something_belongs_to_nothing() {
    plant("INSERT INTO outputs VALUES (gen_random_uuid(), 1, '1')", &[Invariant::Owner]);
    plant("INSERT INTO progress VALUES (gen_random_uuid(), 1, now(), '1')", &[Invariant::Owner]);
    plant("INSERT INTO job_log VALUES (gen_random_uuid(), 1)", &[Invariant::Owner]);
    plant("DELETE FROM children", &[Invariant::Owner]);
    plant(
        "INSERT INTO children VALUES (gen_random_uuid(), gen_random_uuid())",
        &[Invariant::Owner],
    );
}

/// Forgets the first such job by hand, and notes it with these values, if any.
fn forget(victim: &str, note: Option<&str>, rules: &[Invariant]) {
    let planted = Planted::new();
    let id = uuid(planted.victim(victim));
    let note = note.map_or(String::new(), |note| {
        format!(
            "INSERT INTO pruned (id, at, least_ms, version, rows)
             SELECT id, {note}, version, length(history) / 8 - 4
                 + (SELECT count(*) FROM job_log WHERE job_log.id = jobs.id)
             FROM jobs WHERE id = '{id}';"
        )
    });
    let parts = ["jobs", "outputs", "progress", "job_log"];
    let parts = parts.map(|table| format!("DELETE FROM {table} WHERE id = '{id}'")).join(";");
    let ledger = ["steps", "signals", "effects"];
    let ledger = ledger.map(|table| format!("DELETE FROM {table} WHERE job_id = '{id}'")).join(";");
    planted.plant(&format!("{note}{parts};{ledger}")).check_names(rules);
}

/// A job that nothing else is about.
const ALONE: &str = "state = 'succeeded' AND task_id IS NULL";

#[test]
fn a_job_is_forgotten_early_or_alive_or_not_at_all() {
    forget(ALONE, Some("updated_at + interval '1 hour', 600000"), &[]);
    forget(ALONE, Some("updated_at + interval '599 s', 600000"), &[Invariant::Retention]);
    forget(ALONE, None, &[Invariant::Owner]);
    let queued = "state = 'queued' AND task_id IS NULL";
    forget(queued, Some("updated_at + interval '1 hour', 600000"), &[Invariant::Retention]);
}

#[test]
fn a_forgotten_job_is_there() {
    let sql = "
        INSERT INTO pruned (id, at, least_ms, version, rows)
        SELECT id, updated_at, 0, version, 1 FROM jobs WHERE state = 'succeeded' LIMIT 1";
    plant(sql, &[Invariant::Retention]);
}
