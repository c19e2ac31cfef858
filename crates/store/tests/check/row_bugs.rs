//! Bugs in what is kept: rows, leases, keys, tasks and dead letters.

use serde_json::json;
use windlass_kernel::JobId;
use windlass_store::check::Invariant;

use crate::{
    history_bugs::{ATTEMPT, FACT, add, plant},
    plant::Planted,
};

/// Damages the first such job's row.
fn spoil(victim: &str, change: &str, rules: &[Invariant]) {
    let sql = format!(
        "UPDATE jobs SET {change} WHERE seq = (SELECT seq FROM jobs WHERE {victim} LIMIT 1)"
    );
    plant(&sql, rules);
}

#[test]
fn a_row_changes_without_an_event() {
    spoil("state = 'succeeded'", "started_at = started_at + 1", &[Invariant::Fold]);
    spoil(
        "state = 'cancelled' AND lease IS NOT NULL",
        "lease = CAST(zeroblob(16) || substr(lease, 17) AS BLOB)",
        &[Invariant::Fold],
    );
}

#[test]
fn a_version_is_one_too_many() {
    spoil("state = 'queued'", "version = version + 1", &[Invariant::Version]);
}

#[test]
fn a_queued_job_has_the_wrong_place_in_its_queue() {
    spoil("state = 'queued'", "rank = rank + 60000000", &[Invariant::Creation]);
    spoil("state = 'queued'", "rank = rank + 1", &[Invariant::Readable]);
}

#[test]
fn a_queued_job_is_in_another_group() {
    spoil("state = 'queued'", "group_id = 1 + group_id % 2", &[Invariant::Readable]);
    let alone = "group_id = (SELECT id FROM job_groups AS other WHERE isolated = 1 AND
        (queue, tenant, kind) = (SELECT queue, tenant, kind FROM job_groups WHERE id = group_id))";
    let could_be = "state = 'queued' AND group_id IN (SELECT job_groups.id FROM job_groups
        JOIN job_groups AS other USING (queue, tenant, kind)
        WHERE other.isolated = 1 AND job_groups.isolated = 0)";
    spoil(could_be, alone, &[Invariant::Reachable]);
}

#[test]
fn a_scheduled_job_has_no_timer() {
    spoil("state = 'scheduled'", "timer_at = NULL", &[Invariant::Reachable]);
}

#[test]
fn an_ended_job_still_has_a_timer() {
    spoil("state = 'succeeded'", "timer_at = 1", &[Invariant::Reachable]);
}

#[test]
fn a_retry_is_due_at_no_time() {
    let rules = [Invariant::RetryTime, Invariant::Fold];
    spoil("state = 'retry_scheduled'", "next_retry_at = NULL", &rules);
    spoil("state = 'queued'", "next_retry_at = 1", &rules);
}

#[test]
fn a_job_waits_in_the_queue() {
    let with =
        "rest = json_set(coalesce(rest, '{}'), '$.wait', json('{\"on\":{\"signal\":\"x\"}}'))";
    spoil("state = 'queued'", with, &[Invariant::Wait, Invariant::Fold]);
}

#[test]
fn a_lease_has_no_session() {
    spoil("state = 'running'", "lease_session = 999999", &[Invariant::Lease]);
}

#[test]
fn a_running_job_has_no_lease() {
    let none = "lease_session = NULL, lease = substr(lease, 1, 24)";
    spoil("state = 'running' AND timer_at IS NULL", none, &[Invariant::Lease]);
}

#[test]
fn a_queued_job_is_leased() {
    spoil("state = 'queued'", "lease_session = 1", &[Invariant::Lease]);
}

#[test]
fn a_payload_is_exchanged() {
    spoil("payload IS NOT NULL", "payload = '{\"n\":77}'", &[Invariant::Payload]);
}

#[test]
fn a_result_is_lost() {
    plant("UPDATE outputs SET result = NULL WHERE result IS NOT NULL", &[Invariant::Payload]);
}

#[test]
fn a_key_is_used_twice() {
    let key = "idempotency_scope = 'default'";
    let planted = Planted::new();
    let job = planted.victim(&format!("{key} AND tenant = 'acme'"));
    let same = format!(
        "UPDATE jobs SET idempotency_key = (SELECT idempotency_key FROM jobs
            WHERE {key} AND tenant = 'acme' ORDER BY seq DESC LIMIT 1)
         WHERE seq = (SELECT seq FROM jobs WHERE {key} AND tenant = 'acme' ORDER BY seq LIMIT 1)"
    );
    let planted = planted.plant(&same);
    let created = planted.spec_digest(job);
    planted
        .retell(job, |history| history[0].line[FACT]["created"] = json!(created))
        .check_names(&[Invariant::KeyUnique]);
}

#[test]
fn an_attempt_is_made_twice() {
    let planted = Planted::new();
    let job = planted.victim(
        "task_id IS NOT NULL AND state IN ('queued', 'succeeded', 'cancelled', 'running')
         AND NOT EXISTS (SELECT 1 FROM outputs WHERE outputs.seq = jobs.seq) AND retry_count = 0
         AND EXISTS (SELECT 1 FROM jobs AS other WHERE other.tenant = jobs.tenant
            AND other.task_id = jobs.task_id AND other.attempt = jobs.attempt - 1)",
    );
    let id = job.as_u128();
    planted
        .plant(&format!("UPDATE jobs SET attempt = attempt - 1 WHERE id = x'{id:032x}'"))
        .retell(job, |history| {
            add(&mut history[0].line[FACT]["attempt"], -1);
            history.iter_mut().for_each(|told| add(&mut told.line[ATTEMPT], -1));
        })
        .check_names(&[Invariant::AttemptUnique]);
}

#[test]
fn a_task_has_two_jobs_at_once() {
    let planted = Planted::new();
    let free = "state = 'queued' AND task_id IS NULL";
    let two = format!(
        "SELECT tenant FROM jobs WHERE {free} GROUP BY tenant HAVING count(*) > 1 ORDER BY tenant"
    );
    let tenant = planted.find(&two);
    let mine = format!("{free} AND tenant = '{tenant}'");
    let first = planted.victim(&mine);
    let other = planted.victim(&format!("{mine} AND id <> x'{:032x}'", first.as_u128()));
    let planted = planted.plant(&format!(
        "UPDATE jobs SET task_id = x'{0:032x}', attempt = attempt + 50
         WHERE id = x'{1:032x}';
         INSERT INTO tasks (tenant, task_id, next_attempt) VALUES ('{tenant}', x'{0:032x}', 99)",
        first.as_u128(),
        other.as_u128()
    ));
    let created = planted.spec_digest(other);
    planted
        .retell(other, |history| {
            history[0].line[FACT]["created"] = json!(created);
            add(&mut history[0].line[FACT]["attempt"], 50);
            history.iter_mut().for_each(|told| add(&mut told.line[ATTEMPT], 50));
        })
        .check_names(&[Invariant::TaskActive]);
}

#[test]
fn a_task_would_make_an_attempt_again() {
    plant("UPDATE tasks SET next_attempt = next_attempt - 1", &[Invariant::TaskNext]);
}

#[test]
fn a_task_has_no_row() {
    plant("DELETE FROM tasks WHERE typeof(task_id) = 'text'", &[Invariant::TaskNext]);
}

#[test]
fn a_failed_job_has_no_letter() {
    plant("DELETE FROM dlq_items WHERE state = 'open'", &[Invariant::OneLetter]);
}

#[test]
fn a_letter_has_no_job() {
    let job = JobId::from_u128(1 << 100);
    let (id, dlq) = (job.as_u128(), job.to_string().replace("job_", "dlq_"));
    let sql = format!(
        "INSERT INTO dlq_items SELECT x'{id:032x}', tenant, x'{id:032x}', state, code, created_at,
            requeued_as, closed_at, json_set(letter, '$.id', '{dlq}', '$.job_id', '{job}'), cause
         FROM dlq_items WHERE state = 'open' LIMIT 1"
    );
    plant(&sql, &[Invariant::OneLetter]);
}

#[test]
fn a_letter_says_something_else_than_its_job() {
    plant(
        "UPDATE dlq_items SET letter = json_set(letter, '$.attempt', 77)",
        &[Invariant::LetterTrue],
    );
    plant("UPDATE dlq_items SET code = 'OTHER' WHERE state = 'open'", &[Invariant::LetterTrue]);
}

#[test]
fn one_person_discards_a_letter() {
    plant("DELETE FROM approvals WHERE step = 'approved'", &[Invariant::TwoPeople]);
    let same = "
        CREATE TABLE careless AS SELECT * FROM approvals; DROP TABLE approvals;
        ALTER TABLE careless RENAME TO approvals;
        UPDATE approvals SET principal = (SELECT principal FROM approvals AS first
            WHERE first.dlq_id = approvals.dlq_id AND first.step = 'requested')";
    plant(same, &[Invariant::TwoPeople]);
}

#[test]
fn a_letter_is_discarded_without_a_reason() {
    plant("UPDATE approvals SET reason = ' ' WHERE step = 'approved'", &[Invariant::TwoPeople]);
}

#[test]
fn a_requeued_letter_names_a_job_that_came_from_elsewhere() {
    let other = "(SELECT id FROM jobs WHERE seq = 1)";
    let sql = format!(
        "UPDATE dlq_items SET requeued_as = {other}, letter = json_set(letter, '$.requeued_as',
            (SELECT json_extract(letter, '$.requeued_as') FROM dlq_items AS first
             WHERE first.requeued_as IS NOT NULL LIMIT 1))
         WHERE id = (SELECT id FROM dlq_items WHERE requeued_as IS NOT NULL ORDER BY id DESC LIMIT 1)"
    );
    plant(&sql, &[Invariant::Requeued, Invariant::LetterTrue]);
}

#[test]
fn an_index_does_not_fit_its_table() {
    let sql = "PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = replace(sql, 'created_at)', 'closed_at)')
        WHERE name = 'dlq_items_list'";
    plant(sql, &[Invariant::Integrity]);
}
