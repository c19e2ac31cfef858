//! The second lock on the door: each rule that SQL can say is broken with plain SQL, and refused.
//!
//! Each row of the tables has a statement that breaks one rule and a twin that differs only in keeping
//! it. The broken one must be refused by the database itself, at the statement or at the commit; its twin
//! must go through, so that the refusal is known to come from the rule.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{fs, path::Path};

use common::*;
use rusqlite::Connection;
use tempfile::TempDir;
use windlass_kernel::{
    DlqId, IdempotencyKey, IdempotencyScope, Jitter, JobId, TaskId,
    ops::{Discard, Expire, Expiry, Idempotency, NewJob, NewTask},
};

/// A rule, a statement that breaks it, and one that keeps it.
type Rule = (&'static str, &'static str, &'static str);

/// A file with one job in most states; only the queued one has a key and a task that were given.
fn population() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let test = FileStore::open(&path).unwrap();
    for number in 1..=5 {
        test.enqueue(number, plain());
    }
    let granted = test.claim("w1", 1, 5);
    let epoch = granted[0].job.epoch;
    let id = JobId::from_u128;
    test.op(settle(id(2), epoch, succeeded())).unwrap();
    test.op(settle(id(3), epoch, failed_for_now())).unwrap();
    test.op(settle(id(4), epoch, failed_for_good())).unwrap();
    let (dlq_id, reason) = (DlqId::of_job(id(4)), "nobody needs it".to_owned());
    test.op(Discard { dlq_id, reason, by: person("ann") }).unwrap();
    let (job_id, version) = (id(5), test.job(id(5)).version);
    let what = Expiry::DeadSession;
    test.op(Expire { job_id, version, what, jitter: Jitter::NONE }).unwrap();
    let queued = NewJob {
        idempotency: Idempotency::Key {
            scope: IdempotencyScope::new("orders").unwrap(),
            key: IdempotencyKey::new("order-1").unwrap(),
        },
        task: Some(NewTask { task_id: TaskId::new("invoice-1").unwrap(), may_rerun: true }),
        ..plain()
    };
    test.enqueue(6, queued);
    (folder, path)
}

fn check(rules: &[Rule]) {
    let (folder, path) = population();
    for (rule, broken, kept) in rules {
        let copy = folder.path().join("copy.db");
        fs::copy(&path, &copy).unwrap();
        if let Err(error) = try_sql(&copy, kept) {
            panic!("{rule}: what keeps the rule was refused: {error}\n{kept}");
        }
        fs::copy(&path, &copy).unwrap();
        let refused = try_sql(&copy, broken).expect_err(rule);
        let code = refused.sqlite_error_code();
        let by_rule = code == Some(rusqlite::ErrorCode::ConstraintViolation);
        assert!(by_rule, "{rule}: refused for another reason: {refused}\n{broken}");
    }
}

/// Runs statements in one transaction. They must change something.
fn try_sql(path: &Path, sql: &str) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "foreign_keys", true).unwrap();
    connection.pragma_update(None, "synchronous", "off").unwrap();
    let transaction = connection.transaction().unwrap();
    transaction.execute_batch(sql)?;
    assert!(transaction.changes() > 0, "nothing was changed by {sql}");
    transaction.commit()
}

/// Adds a copy of the queued job that differs in this.
macro_rules! twin {
    ($sets:literal) => {
        concat!(
            "CREATE TEMP TABLE twin AS SELECT * FROM jobs WHERE state = 'queued';
             UPDATE twin SET seq = NULL, id = x'000000000000000000000000000000ff', ",
            $sets,
            "; INSERT INTO jobs SELECT * FROM twin;"
        )
    };
}

#[test]
fn keys_and_attempts_are_unique() {
    check(&[
        (
            "invariant 5: one key, one job",
            twin!("task_id = 'other'"),
            twin!("task_id = 'other', idempotency_key = 'order-2'"),
        ),
        (
            "invariant 5: a key is unique within its tenant",
            twin!("task_id = 'other', tenant = 'acme'"),
            twin!("task_id = 'other', tenant = 'other'"),
        ),
        (
            "invariant 5: a key is unique within its scope",
            twin!("task_id = 'other', idempotency_scope = 'orders'"),
            twin!("task_id = 'other', idempotency_scope = 'bills'"),
        ),
        (
            "invariant 4: one attempt of a task, one job",
            twin!("idempotency_key = 'order-2'"),
            twin!("idempotency_key = 'order-2', attempt = 2"),
        ),
        (
            "one id, one job",
            twin!(
                "idempotency_key = 'order-2', task_id = 'other',
                 id = (SELECT id FROM jobs WHERE state = 'queued')"
            ),
            twin!("idempotency_key = 'order-2', task_id = 'other'"),
        ),
        (
            "unique while active: one job that is not at its end",
            concat!(
                "UPDATE jobs SET unique_key = 'daily' WHERE state = 'queued';",
                twin!("task_id = 'other', idempotency_key = 'order-2', unique_key = 'daily'")
            ),
            concat!(
                "UPDATE jobs SET unique_key = 'daily' WHERE state = 'queued' OR state = 'cancelled';",
                twin!("task_id = 'other', idempotency_key = 'order-2', unique_key = 'weekly'")
            ),
        ),
        (
            "what a rule remembers is of a rule that is there",
            "INSERT INTO rule_states (rule, part, state) VALUES ('none', '', '{}')",
            "INSERT INTO rules (name, rule) VALUES ('none', '{}');
             INSERT INTO rule_states (rule, part, state) VALUES ('none', '', '{}')",
        ),
        (
            "an id has sixteen bytes",
            "UPDATE jobs SET id = x'0102' WHERE state = 'queued'",
            "UPDATE jobs SET id = x'00000000000000000000000000000102' WHERE state = 'queued'",
        ),
        (
            "one worker, one session",
            "INSERT INTO sessions SELECT NULL, worker, until, renewals, lapses_at, started_at, vouched,
                listens, listened_at
             FROM sessions",
            "INSERT INTO sessions SELECT NULL, 'w9', until, renewals, lapses_at, started_at, vouched,
                listens, listened_at
             FROM sessions",
        ),
        (
            "one name, one group",
            "INSERT INTO job_groups SELECT NULL, queue, tenant, kind, isolated FROM job_groups LIMIT 1",
            "INSERT INTO job_groups SELECT NULL, queue, tenant, 'other', isolated FROM job_groups
             LIMIT 1",
        ),
        (
            "one number, one event",
            "INSERT INTO log SELECT id, tenant, at, count, events FROM log LIMIT 1",
            "INSERT INTO log SELECT id + 1000, tenant, at, count, events FROM log LIMIT 1",
        ),
        (
            "a task has one row",
            "INSERT INTO tasks (tenant, task_id, next_attempt) VALUES ('acme', 'invoice-1', 2)",
            "INSERT INTO tasks (tenant, task_id, next_attempt) VALUES ('acme', 'invoice-2', 2)",
        ),
    ]);
}

#[test]
fn a_job_has_one_report_of_progress() {
    check(&[(
        "the last one counts",
        "INSERT INTO progress (seq, epoch, at, value) VALUES (1, 1, 0, '1'), (1, 1, 0, '2')",
        "INSERT INTO progress (seq, epoch, at, value) VALUES (1, 1, 0, '1'), (2, 1, 0, '2')",
    )]);
}

/// Adds a step of the first job: its key, number and output.
macro_rules! step {
    ($row:literal) => {
        concat!("INSERT INTO steps (seq, step, key, number, output) VALUES (1, '{}', ", $row, ")")
    };
}

/// Adds what came for the first job: its name, number, sort and whether it was taken.
macro_rules! mail {
    ($row:literal) => {
        concat!(
            "INSERT INTO signals (seq, at, sender, content, name, number, sort, taken)
             VALUES (1, 0, 'user:ann', '1', ",
            $row,
            ")"
        )
    };
}

/// Adds what was handed in late for the first job: its key, epoch and whether it failed.
macro_rules! effect {
    ($row:literal) => {
        concat!(
            "INSERT INTO effects (seq, at, outcome, key, epoch, failed) VALUES (1, 0, '1', ",
            $row,
            ")"
        )
    };
}

#[test]
fn a_ledger_has_each_step_and_each_name_once() {
    check(&[
        (
            "one key, one step",
            concat!(step!("'a#1', NULL, NULL"), ";", step!("'a#1', 1, '1'")),
            concat!(step!("'a#1', NULL, NULL"), ";", step!("'a#2', 1, '1'")),
        ),
        ("records are numbered from 1", step!("'a#1', 0, '1'"), step!("'a#1', 1, '1'")),
        ("what has a number has an output", step!("'a#1', 1, NULL"), step!("'a#1', 1, '1'")),
        ("what has an output has a number", step!("'a#1', NULL, '1'"), step!("'a#1', NULL, NULL")),
        (
            "a name comes once",
            concat!(mail!("'spaid', 1, 'payload', 0"), ";", mail!("'spaid', 2, 'payload', 0")),
            concat!(mail!("'spaid', 1, 'payload', 0"), ";", mail!("'ssent', 2, 'payload', 0")),
        ),
        (
            "mail is numbered from 1",
            mail!("'spaid', 0, 'payload', 0"),
            mail!("'spaid', 1, 'payload', 0"),
        ),
        (
            "the sort of mail is a word that is known",
            mail!("'spaid', 1, 'parcel', 0"),
            mail!("'spaid', 1, 'ended', 0"),
        ),
        (
            "mail is taken or not",
            mail!("'spaid', 1, 'rejected', 2"),
            mail!("'spaid', 1, 'rejected', 1"),
        ),
        (
            "what is handed in first counts",
            concat!(effect!("'a#1', 1, 0"), ";", effect!("'a#1', 2, 0")),
            concat!(effect!("'a#1', 1, 0"), ";", effect!("'a#2', 2, 0")),
        ),
        ("who hands in had a lease", effect!("'a#1', 0, 0"), effect!("'a#1', 1, 0")),
        ("what is handed in failed or not", effect!("'a#1', 1, 2"), effect!("'a#1', 1, 1")),
    ]);
}

#[test]
fn numbers_have_bounds() {
    check(&[
        (
            "invariant 4: attempts begin with 1",
            "UPDATE jobs SET attempt = 0 WHERE state = 'running'",
            "UPDATE jobs SET attempt = 1 WHERE state = 'running'",
        ),
        (
            "a version is the number of an event",
            "UPDATE jobs SET version = 0 WHERE state = 'running'",
            "UPDATE jobs SET version = 1 WHERE state = 'running'",
        ),
        (
            "no more retries than allowed",
            "UPDATE jobs SET retry_count = max_retries + 1 WHERE state = 'running'",
            "UPDATE jobs SET retry_count = max_retries WHERE state = 'running'",
        ),
        (
            "no retries below none",
            "UPDATE jobs SET retry_count = -1 WHERE state = 'running'",
            "UPDATE jobs SET retry_count = 0 WHERE state = 'running'",
        ),
        (
            "epochs begin with 0",
            "UPDATE jobs SET epoch = -1 WHERE state = 'queued'",
            "UPDATE jobs SET epoch = 0 WHERE state = 'queued'",
        ),
        (
            "who reports progress has a lease",
            "INSERT INTO progress (seq, epoch, at, value) VALUES (1, 0, 0, '1')",
            "INSERT INTO progress (seq, epoch, at, value) VALUES (1, 1, 0, '1')",
        ),
        (
            "a log row has an event",
            "INSERT INTO log (id, tenant, at, count, events) VALUES (999, 'acme', 0, 0, '[]')",
            "INSERT INTO log (id, tenant, at, count, events) VALUES (999, 'acme', 0, 1, '[]')",
        ),
        (
            "a known task has had its first attempt",
            "INSERT INTO tasks (tenant, task_id, next_attempt) VALUES ('acme', 't', 1)",
            "INSERT INTO tasks (tenant, task_id, next_attempt) VALUES ('acme', 't', 2)",
        ),
        (
            "isolated is yes or no",
            "UPDATE job_groups SET isolated = 2",
            "UPDATE job_groups SET isolated = 1 WHERE isolated = 1 OR id = 1",
        ),
        (
            "a worker is vouched for or not",
            "UPDATE sessions SET vouched = 2",
            "UPDATE sessions SET vouched = 1",
        ),
        (
            "a history is a hash and at least one place",
            "UPDATE jobs SET history = zeroblob(32) WHERE state = 'queued'",
            "UPDATE jobs SET history = zeroblob(40) WHERE state = 'queued'",
        ),
        (
            "a digest is a hash",
            "UPDATE jobs SET payload_digest = zeroblob(31) WHERE state = 'queued'",
            "UPDATE jobs SET payload_digest = zeroblob(32) WHERE state = 'queued'",
        ),
    ]);
}

#[test]
fn what_a_state_has_goes_with_the_state() {
    check(&[
        (
            "invariant 3: a retry has its time",
            "UPDATE jobs SET next_retry_at = NULL WHERE state = 'retry_scheduled'",
            "UPDATE jobs SET next_retry_at = 5 WHERE state = 'retry_scheduled'",
        ),
        (
            "invariant 3: nothing else has the time of a retry",
            "UPDATE jobs SET next_retry_at = 5 WHERE state = 'queued'",
            "UPDATE jobs SET next_retry_at = NULL WHERE state = 'queued'",
        ),
        (
            "a job has a rank",
            "UPDATE jobs SET rank = NULL WHERE state = 'queued'",
            "UPDATE jobs SET rank = 5 WHERE state = 'queued'",
        ),
        (
            "what runs has started",
            "UPDATE jobs SET started_at = NULL WHERE state = 'running'",
            "UPDATE jobs SET started_at = 5 WHERE state = 'running'",
        ),
        (
            "what succeeded had started",
            "UPDATE jobs SET started_at = NULL WHERE state = 'succeeded'",
            "UPDATE jobs SET started_at = 5 WHERE state = 'succeeded'",
        ),
        (
            "what runs is leased",
            "UPDATE jobs SET lease_session = NULL, lease = NULL WHERE state = 'running'",
            "UPDATE jobs SET lease_session = 1 WHERE state = 'running'",
        ),
        (
            "a lease that is held has its end",
            "UPDATE jobs SET lease = zeroblob(24) WHERE state = 'running'",
            "UPDATE jobs SET lease = zeroblob(49) WHERE state = 'running'",
        ),
        (
            "a lease that is over has none",
            "UPDATE jobs SET lease = zeroblob(49) WHERE state = 'succeeded'",
            "UPDATE jobs SET lease = zeroblob(24) WHERE state = 'succeeded'",
        ),
        (
            "what was dispatched is leased",
            "UPDATE jobs SET state = 'dispatched', lease_session = NULL, lease = NULL WHERE state = 'running'",
            "UPDATE jobs SET state = 'dispatched' WHERE state = 'running'",
        ),
        (
            "what is queued is not leased",
            "UPDATE jobs SET lease_session = 1 WHERE state = 'queued'",
            "UPDATE jobs SET lease_session = NULL WHERE state = 'queued'",
        ),
        (
            "a state alone cannot move",
            "UPDATE jobs SET state = 'succeeded' WHERE state = 'queued'",
            "UPDATE jobs SET state = 'succeeded', started_at = 5 WHERE state = 'queued'",
        ),
        (
            "a state is a word that is known",
            "UPDATE jobs SET state = 'sleeping' WHERE state = 'queued'",
            "UPDATE jobs SET state = 'waiting' WHERE state = 'queued'",
        ),
        (
            "no job rests on the way to its dead letter",
            "UPDATE jobs SET state = 'dlq_recorded' WHERE state = 'queued'",
            "UPDATE jobs SET state = 'scheduled' WHERE state = 'queued'",
        ),
    ]);
}

macro_rules! name_letter {
    () => {
        "UPDATE jobs SET dlq_id = zeroblob(16) WHERE state = 'failed'"
    };
}

#[test]
fn a_failed_job_has_its_letter() {
    check(&[
        (
            "invariant 2: a failed job names its letter",
            "UPDATE jobs SET dlq_id = NULL WHERE state = 'failed'",
            "UPDATE jobs SET dlq_id = (SELECT id FROM dlq_items) WHERE state = 'failed'",
        ),
        (
            "only a failed job names a letter",
            "UPDATE jobs SET dlq_id = (SELECT id FROM dlq_items) WHERE state = 'succeeded'",
            "UPDATE jobs SET dlq_id = NULL WHERE state = 'succeeded'",
        ),
        (
            "invariant 2: the letter of a failed job is there",
            "UPDATE jobs SET dlq_id = zeroblob(16) WHERE state = 'failed'",
            concat!("DELETE FROM approvals; UPDATE dlq_items SET id = zeroblob(16);", name_letter!()),
        ),
        (
            "the letter of a failed job is its own",
            concat!(
                "INSERT INTO dlq_items SELECT zeroblob(16), tenant, zeroblob(16), state, code,
                     created_at, requeued_as, closed_at, letter, cause FROM dlq_items;",
                name_letter!()
            ),
            concat!("DELETE FROM approvals; UPDATE dlq_items SET id = zeroblob(16);", name_letter!()),
        ),
        (
            "invariant 2: the letter of a failed job stays",
            "DELETE FROM dlq_items",
            "DELETE FROM jobs WHERE state = 'failed'; DELETE FROM dlq_items",
        ),
        (
            "one job, one letter",
            "INSERT INTO dlq_items SELECT zeroblob(16), tenant, job_id, state, code, created_at,
                 requeued_as, closed_at, letter, cause FROM dlq_items",
            "INSERT INTO dlq_items SELECT zeroblob(16), tenant, zeroblob(16), state, code, created_at,
                 requeued_as, closed_at, letter, cause FROM dlq_items",
        ),
        (
            "the state of a letter is a word that is known",
            "UPDATE dlq_items SET state = 'lost'",
            "UPDATE dlq_items SET state = 'open'",
        ),
        (
            "a letter that was requeued names the new job",
            "UPDATE dlq_items SET state = 'requeued', closed_at = 5",
            "UPDATE dlq_items SET state = 'requeued', closed_at = 5, requeued_as = zeroblob(16)",
        ),
        (
            "only a letter that was requeued names a new job",
            "UPDATE dlq_items SET requeued_as = zeroblob(16)",
            "UPDATE dlq_items SET requeued_as = NULL",
        ),
        (
            "a closed letter has its time",
            "UPDATE dlq_items SET state = 'discarded'",
            "UPDATE dlq_items SET state = 'discarded', closed_at = 5",
        ),
        (
            "an open letter has no end's time",
            "UPDATE dlq_items SET closed_at = 5",
            "UPDATE dlq_items SET closed_at = NULL",
        ),
    ]);
}

/// Adds an approval of the letter.
macro_rules! approve {
    ($step:literal, $principal:literal, $reason:literal) => {
        concat!(
            "INSERT INTO approvals SELECT id, '",
            concat!($step, "', '", $principal, "', '", $reason, "', 5 FROM dlq_items")
        )
    };
}

#[test]
fn a_letter_is_discarded_by_two_people() {
    check(&[
        (
            "two different people",
            approve!("approved", "ann", "yes"),
            approve!("approved", "bob", "yes"),
        ),
        ("one request", approve!("requested", "bob", "yes"), approve!("approved", "bob", "yes")),
        (
            "a step is a word that is known",
            approve!("guessed", "bob", "yes"),
            approve!("approved", "bob", "yes"),
        ),
        ("a reason is given", approve!("approved", "bob", " "), approve!("approved", "bob", "yes")),
        (
            "an approval is of a letter that is there",
            "INSERT INTO approvals VALUES (zeroblob(16), 'approved', 'bob', 'yes', 5)",
            approve!("approved", "bob", "yes"),
        ),
    ]);
}

#[test]
fn types_are_kept_and_what_is_needed_is_there() {
    check(&[
        (
            "a number is a number",
            "UPDATE jobs SET attempt = 'one' WHERE state = 'queued'",
            "UPDATE jobs SET attempt = '2' WHERE state = 'queued'",
        ),
        (
            "a number is whole",
            "UPDATE jobs SET updated_at = 1.5",
            "UPDATE jobs SET updated_at = 1.0",
        ),
        ("a text is text", "UPDATE jobs SET tenant = x'00'", "UPDATE jobs SET tenant = 'x'"),
        (
            "an id is bytes",
            "UPDATE jobs SET id = 'sixteen letters!' WHERE state = 'queued'",
            "UPDATE jobs SET id = CAST('sixteen letters!' AS BLOB) WHERE state = 'queued'",
        ),
        ("a job has a tenant", "UPDATE jobs SET tenant = NULL", "UPDATE jobs SET tenant = 'other'"),
        ("a job has a group", "UPDATE jobs SET group_id = NULL", "UPDATE jobs SET group_id = 1"),
        (
            "a group has a queue",
            "UPDATE job_groups SET queue = NULL",
            "UPDATE job_groups SET queue = 'x' WHERE id = 1",
        ),
        (
            "a scope has a key",
            "UPDATE jobs SET idempotency_key = NULL WHERE state = 'queued'",
            "UPDATE jobs SET idempotency_key = 'order-2' WHERE state = 'queued'",
        ),
        (
            "a key has a scope",
            "UPDATE jobs SET idempotency_scope = NULL WHERE state = 'queued'",
            "UPDATE jobs SET idempotency_scope = 'bills' WHERE state = 'queued'",
        ),
        (
            "a job has the digest of its payload",
            "UPDATE jobs SET payload_digest = NULL",
            "UPDATE jobs SET payload_digest = zeroblob(32)",
        ),
        ("a log row has events", "UPDATE log SET events = NULL", "UPDATE log SET events = '[]'"),
        (
            "a payload is text",
            "INSERT INTO payloads VALUES (1, x'00')",
            "INSERT INTO payloads VALUES (1, '{}')",
        ),
        (
            "what is known of the store has a value",
            "INSERT INTO meta VALUES ('x', NULL)",
            "INSERT INTO meta VALUES ('x', 1)",
        ),
    ]);
}

/// A row of the tokens: id, digest, role, and what follows the day it was issued, which is the fifth.
macro_rules! token {
    ($id:literal, $digest:literal, $role:literal, $rest:literal) => {
        concat!(
            "INSERT INTO tokens VALUES (",
            $id,
            ", ",
            $digest,
            ", 'acme', 'bob', '",
            $role,
            "', NULL, 5, 'user:ann', ",
            $rest,
            ")"
        )
    };
}

#[test]
fn a_token_has_a_digest_a_role_and_one_end() {
    let kept = token!("zeroblob(16)", "zeroblob(32)", "admin", "6, 5, 'user:ann'");
    check(&[
        (
            "its id has sixteen bytes",
            token!("x'01'", "zeroblob(32)", "admin", "NULL, NULL, NULL"),
            kept,
        ),
        (
            "a digest is a hash",
            token!("zeroblob(16)", "zeroblob(31)", "admin", "NULL, NULL, NULL"),
            kept,
        ),
        (
            "a role is a word that is known",
            token!("zeroblob(16)", "zeroblob(32)", "king", "NULL, NULL, NULL"),
            kept,
        ),
        (
            "it was good for a while",
            token!("zeroblob(16)", "zeroblob(32)", "admin", "5, NULL, NULL"),
            kept,
        ),
        (
            "it was issued before it was revoked",
            token!("zeroblob(16)", "zeroblob(32)", "admin", "6, 4, 'user:ann'"),
            kept,
        ),
        (
            "whoever revoked it has a name",
            token!("zeroblob(16)", "zeroblob(32)", "admin", "6, 5, NULL"),
            kept,
        ),
        (
            "a mark is of an event or of none",
            "INSERT INTO marks VALUES ('m', -1)",
            "INSERT INTO marks VALUES ('m', 0)",
        ),
    ]);
}

/// A row of the inbox's results: outcome, existing, code, why, op, payload.
macro_rules! result {
    ($id:literal, $outcome:literal, $rest:literal) => {
        concat!(
            "INSERT INTO inbox_results VALUES (1, ",
            $id,
            ", 'acme', 5, 5, '",
            $outcome,
            "', ",
            $rest,
            ")"
        )
    };
}

#[test]
fn what_made_no_job_is_kept_with_its_reason() {
    let refused = result!("zeroblob(16)", "refused", "NULL, 'CODE', 'why', '{}', '{}'");
    let hit = result!("zeroblob(16)", "hit", "zeroblob(16), NULL, NULL, NULL, NULL");
    let conflict = result!("zeroblob(16)", "conflict", "zeroblob(16), 'CODE', 'why', '{}', '{}'");
    check(&[
        (
            "an id in the inbox has sixteen bytes",
            "INSERT INTO inbox VALUES (1, x'01', 'acme', 5, '{}', '{}')",
            "INSERT INTO inbox VALUES (1, zeroblob(16), 'acme', 5, '{}', '{}')",
        ),
        (
            "an enqueue in the inbox has a payload",
            "INSERT INTO inbox VALUES (1, zeroblob(16), 'acme', 5, '{}', NULL)",
            "INSERT INTO inbox VALUES (1, zeroblob(16), 'acme', 5, '{}', 'x')",
        ),
        (
            "a place in the inbox is taken once, an id may come again",
            "INSERT INTO inbox VALUES (1, zeroblob(16), 'acme', 5, '{}', '{}');
             INSERT INTO inbox VALUES (1, zeroblob(16), 'acme', 5, '{}', '{}')",
            "INSERT INTO inbox VALUES (1, zeroblob(16), 'acme', 5, '{}', '{}');
             INSERT INTO inbox VALUES (2, zeroblob(16), 'acme', 5, '{}', '{}')",
        ),
        (
            "an id that was given has sixteen bytes",
            result!("x'01'", "refused", "NULL, 'CODE', 'why', '{}', '{}'"),
            refused,
        ),
        (
            "an outcome is one that we know",
            result!("zeroblob(16)", "lost", "NULL, 'CODE', 'why', '{}', '{}'"),
            refused,
        ),
        ("a hit has a job", result!("zeroblob(16)", "hit", "NULL, NULL, NULL, NULL, NULL"), hit),
        (
            "a conflict has a job",
            result!("zeroblob(16)", "conflict", "NULL, 'CODE', 'why', '{}', '{}'"),
            conflict,
        ),
        (
            "the id of that job has sixteen bytes",
            result!("zeroblob(16)", "hit", "x'01', NULL, NULL, NULL, NULL"),
            hit,
        ),
        (
            "a hit has no code",
            result!("zeroblob(16)", "hit", "zeroblob(16), 'CODE', NULL, NULL, NULL"),
            hit,
        ),
        (
            "a refusal has a code",
            result!("zeroblob(16)", "refused", "NULL, NULL, 'why', '{}', '{}'"),
            refused,
        ),
        (
            "a refusal says why",
            result!("zeroblob(16)", "refused", "NULL, 'CODE', NULL, '{}', '{}'"),
            refused,
        ),
        (
            "a refused request is kept",
            result!("zeroblob(16)", "refused", "NULL, 'CODE', 'why', NULL, '{}'"),
            refused,
        ),
        (
            "the payload of a conflict is kept",
            result!("zeroblob(16)", "conflict", "zeroblob(16), 'CODE', 'why', '{}', NULL"),
            conflict,
        ),
        (
            "one event, one result",
            concat!(
                result!("zeroblob(16)", "refused", "NULL, 'CODE', 'why', '{}', '{}'"),
                ";",
                result!("zeroblob(16)", "refused", "NULL, 'CODE', 'why', '{}', '{}'")
            ),
            refused,
        ),
        (
            "what is set aside says why",
            "INSERT INTO inbox_set_aside (found_at, why, op) VALUES (5, NULL, x'00')",
            "INSERT INTO inbox_set_aside (found_at, why, op) VALUES (5, 'no JSON', x'00')",
        ),
    ]);
}
