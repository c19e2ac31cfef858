//! Rules that the database itself holds: each is broken with plain SQL, and refused.

use std::collections::BTreeSet;

use windlass_kernel::{
    Refusal,
    ops::{NewTask, Outcome},
};

use crate::common::{
    Backend, TestStore, failed_for_good, failed_for_now, plain,
    postgres::{SchemaHome, Shell},
    settle,
};

/// A store with a job in each state that the cases need: 1 is queued, 2 runs, 3 has failed, 4 waits for its
/// retry, 5 has a key and a task.
fn store() -> (TestStore, Shell) {
    let test = TestStore::new(Backend::Postgres);
    for (number, outcome) in [(2, None), (3, Some(failed_for_good())), (4, Some(failed_for_now()))]
    {
        test.enqueue(number, plain());
        let job = test.claim("w1", number, 1).remove(0).job;
        let end = |outcome: Outcome| test.op(settle(job.id, job.epoch, outcome));
        outcome.map(end).transpose().map_err(|it: Refusal| it.to_string()).unwrap();
    }
    let mut named = plain();
    named.idempotency = windlass_kernel::ops::Idempotency::Key {
        scope: "s".parse().unwrap(),
        key: "k".parse().unwrap(),
    };
    named.task = Some(NewTask { task_id: "t".parse().unwrap(), may_rerun: false });
    named.parent = Some(test.enqueue(1, plain()));
    test.enqueue(5, named);
    let shell = SchemaHome::at(&test.home.address()).sql();
    (test, shell)
}

/// What is broken, by which statement. A deferred constraint is asked for at once.
const CASES: &[(&str, &str)] = &[
    ("jobs_pkey", "INSERT INTO jobs SELECT * FROM jobs WHERE id = {1}"),
    ("jobs_version_check", "UPDATE jobs SET version = 0 WHERE id = {1}"),
    ("jobs_epoch_check", "UPDATE jobs SET epoch = -1 WHERE id = {1}"),
    ("jobs_attempt_check", "UPDATE jobs SET attempt = 0 WHERE id = {1}"),
    ("jobs_state_check", "UPDATE jobs SET state = 'done' WHERE id = {1}"),
    ("jobs_payload_digest_check", "UPDATE jobs SET payload_digest = 'x' WHERE id = {1}"),
    ("jobs_history_check", "UPDATE jobs SET history = 'x' WHERE id = {1}"),
    ("jobs_retries", "UPDATE jobs SET retry_count = max_retries + 1 WHERE id = {1}"),
    ("jobs_started", "UPDATE jobs SET started_at = NULL WHERE id = {2}"),
    ("jobs_next_retry", "UPDATE jobs SET next_retry_at = NULL WHERE id = {4}"),
    ("jobs_next_retry", "UPDATE jobs SET next_retry_at = now() WHERE id = {1}"),
    (
        "jobs_session",
        "UPDATE jobs SET lease_session = NULL, lease = substr(lease, 1, 24) WHERE id = {2}",
    ),
    ("jobs_lease", "UPDATE jobs SET lease = substr(lease, 1, 24) WHERE id = {2}"),
    ("jobs_held", "UPDATE jobs SET lease = NULL WHERE id = {2}"),
    ("jobs_key_whole", "UPDATE jobs SET idempotency_scope = NULL WHERE id = {5}"),
    ("jobs_trace", "UPDATE jobs SET trace_id = 'x' WHERE id = {1}"),
    ("jobs_letter", "UPDATE jobs SET dlq_id = NULL WHERE id = {3}"),
    ("jobs_key", "UPDATE jobs SET idempotency_scope = 's', idempotency_key = 'k' WHERE id = {1}"),
    ("jobs_task", "UPDATE jobs SET task_id = 't' WHERE id = {1}"),
    (
        "jobs_unique",
        "UPDATE jobs SET tenant = 't', unique_key = 'u', state = 'queued', lease_session = NULL, lease = NULL, next_retry_at = NULL, dlq_id = NULL",
    ),
    (
        "schedules_version_check",
        "INSERT INTO schedules (tenant, name, version, created_at, updated_at, spec, payload) VALUES ('t', 'n', 0, now(), now(), '{}', '1')",
    ),
    (
        "schedules_waits",
        "INSERT INTO schedules (tenant, name, version, created_at, updated_at, spec, payload, fires_at) VALUES ('t', 'n', 1, now(), now(), '{}', '1', now())",
    ),
    (
        "tokens_digest_check",
        "INSERT INTO tokens (id, digest, tenant, principal, role, created_at, created_by) VALUES ({1}, 'x', 't', 'p', 'admin', now(), 'user:a')",
    ),
    (
        "tokens_role_check",
        "INSERT INTO tokens (id, digest, tenant, principal, role, created_at, created_by) VALUES ({1}, sha256('x'), 't', 'p', 'king', now(), 'user:a')",
    ),
    (
        "tokens_expires",
        "INSERT INTO tokens (id, digest, tenant, principal, role, created_at, created_by, expires_at) VALUES ({1}, sha256('x'), 't', 'p', 'admin', now(), 'user:a', now())",
    ),
    (
        "tokens_revoked",
        "INSERT INTO tokens VALUES ({1}, sha256('x'), 't', 'p', 'admin', NULL, now(), 'user:a', NULL, 'epoch', 'user:a')",
    ),
    (
        "tokens_revoked_by",
        "INSERT INTO tokens VALUES ({1}, sha256('x'), 't', 'p', 'admin', NULL, now(), 'user:a', NULL, now(), NULL)",
    ),
    ("marks_number_check", "INSERT INTO marks VALUES ('m', -1)"),
    ("rule_states_rule_fkey", "INSERT INTO rule_states VALUES ('none', '', '{}', NULL)"),
    ("jobs_has_letter", "DELETE FROM dlq_items WHERE job_id = {3}"),
    (
        "job_groups_queue_tenant_kind_isolated_key",
        "INSERT INTO job_groups (queue, tenant, kind, isolated) SELECT queue, tenant, kind, isolated FROM job_groups",
    ),
    (
        "sessions_worker_key",
        "INSERT INTO sessions (worker, until, renewals, lapses_at, started_at) SELECT worker, until, renewals, lapses_at, started_at FROM sessions",
    ),
    ("children_pkey", "INSERT INTO children SELECT * FROM children"),
    ("job_tags_pkey", "INSERT INTO job_tags VALUES ('acme', 'vip', {1}), ('acme', 'vip', {1})"),
    ("job_keys_pkey", "INSERT INTO job_keys VALUES (7, {1}), (7, {1})"),
    ("job_astray_pkey", "INSERT INTO job_astray VALUES (now(), {1}), (now(), {1})"),
    ("progress_pkey", "INSERT INTO progress VALUES ({2}, 1, now(), '1'), ({2}, 1, now(), '2')"),
    ("progress_epoch_check", "INSERT INTO progress VALUES ({2}, 0, now(), '1')"),
    ("log_count_check", "UPDATE log SET count = 0"),
    ("feed_pkey", "INSERT INTO feed SELECT first, -seq, count, at FROM feed"),
    ("feed_seq", "INSERT INTO feed SELECT -first, seq, count, at FROM feed"),
    ("feed_count_check", "UPDATE feed SET count = 0"),
    ("pruned_least_ms_check", "INSERT INTO pruned VALUES ({1}, now(), -1, 1, 1)"),
    ("pruned_version_check", "INSERT INTO pruned VALUES ({1}, now(), 0, 0, 1)"),
    ("pruned_rows_check", "INSERT INTO pruned VALUES ({1}, now(), 0, 1, 0)"),
    ("tasks_next_attempt_check", "UPDATE tasks SET next_attempt = 1"),
    ("tasks_pkey", "INSERT INTO tasks SELECT * FROM tasks"),
    ("dlq_items_state_check", "UPDATE dlq_items SET state = 'gone'"),
    (
        "dlq_items_job_id_key",
        "INSERT INTO dlq_items SELECT {1}, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter FROM dlq_items",
    ),
    ("dlq_requeued", "UPDATE dlq_items SET requeued_as = {1}"),
    ("dlq_closed", "UPDATE dlq_items SET closed_at = now()"),
    (
        "approvals_step_check",
        "INSERT INTO approvals SELECT id, 'said', 'ann', 'why', now() FROM dlq_items",
    ),
    (
        "approvals_reason_check",
        "INSERT INTO approvals SELECT id, 'requested', 'ann', ' ', now() FROM dlq_items",
    ),
    (
        "approvals_dlq_id_fkey",
        "INSERT INTO approvals VALUES ({1}, 'requested', 'ann', 'why', now())",
    ),
    (
        "approvals_pkey",
        "INSERT INTO approvals SELECT id, 'requested', who, 'why', now() FROM dlq_items, (VALUES ('ann'), ('bob')) AS v (who)",
    ),
    (
        "approvals_dlq_id_principal_key",
        "INSERT INTO approvals SELECT id, step, 'ann', 'why', now() FROM dlq_items, (VALUES ('requested'), ('approved')) AS v (step)",
    ),
    (
        "inbox_results_outcome_check",
        "INSERT INTO inbox_results VALUES (1, 0, {1}, 't', now(), now(), 'odd', {1}, 'c', 'w', 'o', 'p')",
    ),
    (
        "inbox_existing",
        "INSERT INTO inbox_results VALUES (1, 0, {1}, 't', now(), now(), 'hit', NULL, NULL, NULL, NULL, NULL)",
    ),
    (
        "inbox_hit",
        "INSERT INTO inbox_results VALUES (1, 0, {1}, 't', now(), now(), 'refused', NULL, NULL, 'w', 'o', 'p')",
    ),
    ("commits_pkey", "INSERT INTO commits (id) VALUES ({1}), ({1})"),
    ("claims_pkey", "INSERT INTO claims SELECT * FROM claims"),
    (
        "steps_pkey",
        "INSERT INTO steps VALUES ({2}, 'a#1', NULL, '{}', NULL), ({2}, 'a#1', 1, '{}', '1')",
    ),
    ("steps_number_check", "INSERT INTO steps VALUES ({2}, 'a#1', 0, '{}', '1')"),
    ("steps_check", "INSERT INTO steps VALUES ({2}, 'a#1', 1, '{}', NULL)"),
    ("steps_check", "INSERT INTO steps VALUES ({2}, 'a#1', NULL, '{}', '1')"),
    (
        "signals_pkey",
        "INSERT INTO signals SELECT {2}, 'spaid', number, now(), 'user:ann', 'payload', '1', false FROM (VALUES (1), (2)) AS v (number)",
    ),
    (
        "signals_number_check",
        "INSERT INTO signals VALUES ({2}, 'spaid', 0, now(), 'user:ann', 'payload', '1', false)",
    ),
    (
        "signals_sort_check",
        "INSERT INTO signals VALUES ({2}, 'spaid', 1, now(), 'user:ann', 'parcel', '1', false)",
    ),
    (
        "effects_pkey",
        "INSERT INTO effects SELECT {2}, 'a#1', epoch, now(), false, '1' FROM (VALUES (1), (2)) AS v (epoch)",
    ),
    ("effects_epoch_check", "INSERT INTO effects VALUES ({2}, 'a#1', 0, now(), false, '1')"),
];

/// Keys by which nothing but their own table is found, and the letter's key that the foreign key refers to.
const NOT_BROKEN: &[&str] = &[
    "meta_pkey",
    "job_groups_pkey",
    "sessions_pkey",
    "outputs_pkey",
    "log_pkey",
    "job_log_pkey",
    "pruned_pkey",
    "dlq_items_pkey",
    "dlq_items_job_id_id_key",
    "follow_ups_pkey",
    "inbox_pkey",
    "inbox_results_pkey",
    "inbox_set_aside_pkey",
    "rules_pkey",
    "schedules_pkey",
    "notes_pkey",
    "rule_states_pkey",
    "tokens_pkey",
    "acts_pkey",
    "marks_pkey",
];

#[test]
fn each_rule_is_broken_and_refused() {
    let (_test, shell) = store();
    for (constraint, sql) in CASES {
        let sql = (1..=5).fold((*sql).to_owned(), |sql, number| {
            sql.replace(&format!("{{{number}}}"), &format!("'{:032x}'::uuid", number))
        });
        shell.run("BEGIN; SET CONSTRAINTS ALL IMMEDIATE");
        let broken = shell.runtime.block_on(shell.client.batch_execute(&sql));
        let error = broken.err().unwrap_or_else(|| panic!("{constraint} let it through: {sql}"));
        let refused = error.as_db_error().unwrap();
        assert_eq!(refused.constraint(), Some(*constraint), "{refused}: {sql}");
        shell.run("ROLLBACK");
    }
}

#[test]
fn no_rule_is_left_out() {
    let (_test, shell) = store();
    // From PostgreSQL 18 on, columns that may not be null are listed too: those are broken nowhere here.
    let sql = "
        SELECT conname::text FROM pg_constraint
        WHERE connamespace = current_schema()::regnamespace AND contype NOT IN ('t', 'n')
            AND conrelid::regclass::text !~ '^log_[0-9]'
        UNION
        SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE indisunique AND relnamespace = current_schema()::regnamespace AND relname !~ '^log_[0-9]'";
    let rules: BTreeSet<String> = shell.query(sql, &[]).iter().map(|row| row.get(0)).collect();
    let known = CASES.iter().map(|(name, _)| *name).chain(NOT_BROKEN.iter().copied());
    let known: BTreeSet<String> = known.map(str::to_owned).collect();
    assert_eq!(rules, known);
}
