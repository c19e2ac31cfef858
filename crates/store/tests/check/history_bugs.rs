//! Bugs in what is told: each is planted in a copy of a healthy store, and the checker has to name its
//! rule.

use serde_json::{Value, json};
use windlass_kernel::{Digest, JobId};
use windlass_store::check::Invariant;

use crate::plant::{Planted, Told};

// What a line holds, by place.
const NUMBER: usize = 1;
const CAUSE: usize = 2;
const FROM: usize = 3;
const TO: usize = 4;
pub(crate) const ATTEMPT: usize = 5;
const RETRIES: usize = 6;
const EPOCH: usize = 7;
const STARTED: usize = 8;
pub(crate) const FACT: usize = 11;

pub(crate) fn plant(sql: &str, rules: &[Invariant]) {
    Planted::new().plant(sql).check_names(rules);
}

/// Tells the history of the first such job otherwise.
fn retell(victim: &str, rules: &[Invariant], change: impl FnOnce(&mut Vec<Told>)) {
    let planted = Planted::new();
    let job = planted.victim(victim);
    planted.retell(job, change).check_names(rules);
}

/// One more event, in a commit of its own.
fn follow(history: &mut Vec<Told>, cause: &str, to: &str) -> usize {
    let mut told = history.last().unwrap().clone();
    told.log_id = None;
    told.line[NUMBER] = json!(history.len() + 1);
    told.line[CAUSE] = json!(cause);
    told.line[FROM] = told.line[TO].clone();
    told.line[TO] = json!(to);
    told.line[STARTED] = json!(1);
    told.line[FACT] = Value::Null;
    history.push(told);
    history.len() - 1
}

fn checkpoint(history: &mut Vec<Told>) -> &mut Told {
    let place = follow(history, "checkpoint", "running");
    history[place].line[FACT] = json!({"type": "checkpoint", "state": Digest::of("x")});
    &mut history[place]
}

pub(crate) fn add(value: &mut Value, more: i64) {
    *value = json!(value.as_i64().unwrap() + more);
}

#[test]
fn nothing_is_planted() {
    Planted::new().check_names(&[]);
    retell("state = 'running'", &[], |_| {});
}

#[test]
fn an_event_is_skipped() {
    retell("state = 'succeeded'", &[Invariant::Numbers], |history| {
        add(&mut history.last_mut().unwrap().line[NUMBER], 1);
    });
}

#[test]
fn an_event_is_written_twice() {
    retell("state = 'succeeded'", &[Invariant::Numbers], |history| {
        let twice = Told { log_id: None, ..history.last().unwrap().clone() };
        history.push(twice);
    });
}

#[test]
fn a_history_does_not_begin_with_what_was_asked_for() {
    plant("UPDATE jobs SET max_retries = max_retries + 1 WHERE seq = 1", &[Invariant::Creation]);
}

#[test]
fn a_job_leaves_a_state_that_it_is_not_in() {
    retell("state = 'succeeded'", &[Invariant::Moves], |history| {
        history.last_mut().unwrap().line[FROM] = json!("waiting");
    });
}

#[test]
fn a_job_moves_as_no_job_may() {
    retell("state = 'succeeded'", &[Invariant::Moves], |history| {
        history.last_mut().unwrap().line[CAUSE] = json!("due");
    });
}

#[test]
fn an_end_is_reopened() {
    retell("state = 'succeeded'", &[Invariant::OneEnd], |history| {
        follow(history, "worker_claim", "dispatched");
    });
}

#[test]
fn a_job_fails_in_another_commit_than_its_letter() {
    // A log row whose last line fails its job becomes two, with no other change.
    let last = |place| format!("json_extract(events, '$[#-1]{place}')");
    let row = format!("(SELECT min(id) FROM log WHERE {} = 'failed')", last("[4]"));
    let planted = Planted::new();
    let job = planted.find(&format!("SELECT {} FROM log WHERE id = {row}", last("[0]")));
    let job: JobId = format!("job_{job}").parse().unwrap();
    planted
        .plant(&format!(
            "INSERT INTO log SELECT id + count - 1, tenant, at, 1, json_array({}) FROM log
             WHERE id = {row};
             UPDATE log SET events = json_remove(events, '$[#-1]'), count = count - 1
             WHERE id = {row}",
            last("")
        ))
        .retell(job, |_| {})
        .check_names(&[Invariant::DeadLetterPath]);
}

#[test]
fn an_attempt_rises_without_a_retry() {
    retell("state = 'running'", &[Invariant::Attempts], |history| {
        add(&mut checkpoint(history).line[ATTEMPT], 1);
    });
}

#[test]
fn a_retry_is_counted_twice() {
    retell("state = 'running'", &[Invariant::Retries], |history| {
        add(&mut checkpoint(history).line[RETRIES], 1);
    });
}

#[test]
fn a_retry_waits_longer_than_the_formula_says() {
    let retried = "retry_count > 0 AND state <> 'failed'";
    retell(retried, &[Invariant::RetryDelay], |history| {
        let retry = history.iter_mut().find(|told| told.line[TO] == "retry_scheduled").unwrap();
        retry.line[FACT]["next_retry_at"] = json!("2030-01-01T00:00:00Z");
    });
}

#[test]
fn a_retry_comes_too_early() {
    let slow = "retry_count > 0 AND json_extract(options, '$.retry.base_ms') > 100
        AND json_extract(options, '$.retry.max_backoff_ms') > 100";
    retell(slow, &[Invariant::RetryDelay], |history| {
        let retry = history.iter_mut().find(|told| told.line[TO] == "retry_scheduled").unwrap();
        retry.line[FACT]["next_retry_at"] = json!("2020-01-01T00:00:00Z");
    });
}

#[test]
fn a_stale_settle_is_let_through() {
    retell("state = 'running'", &[Invariant::Fenced], |history| {
        add(&mut checkpoint(history).line[EPOCH], -1);
    });
}

#[test]
fn an_epoch_is_reset() {
    let claimed_again =
        "epoch BETWEEN 2 AND 99 AND state IN ('running', 'dispatched', 'succeeded')";
    retell(claimed_again, &[Invariant::EpochGrows], |history| {
        let is_claim = |told: &Told| told.line[FACT]["type"] == "claimed";
        let first = history.iter().find(|told| is_claim(told)).unwrap().line[EPOCH].clone();
        let last = history.iter().rposition(is_claim).unwrap();
        history[last].line[FACT]["epoch"] = first.clone();
        history[last..].iter_mut().for_each(|told| told.line[EPOCH] = first.clone());
    });
}

#[test]
fn one_byte_of_a_line_is_changed() {
    let sql = "UPDATE log SET events = replace(events, 'user:ann', 'user:anm') WHERE id = 1";
    plant(sql, &[Invariant::Chain]);
}

/// The first log row that tells of no act: that an act is told nowhere would be another bug.
const WITHOUT_ACTS: &str = "(SELECT min(id) FROM log WHERE NOT EXISTS (
    SELECT 1 FROM acts WHERE event >= log.id AND event < log.id + log.count))";

#[test]
fn a_log_row_cannot_be_read() {
    let sql = format!("UPDATE log SET events = '[' WHERE id = {WITHOUT_ACTS}");
    plant(&sql, &[Invariant::Readable, Invariant::LogPointers]);
}

#[test]
fn a_log_row_is_missing() {
    // One that tells of no act: that an act is missing would be another bug.
    let sql = "DELETE FROM log WHERE id = (SELECT id FROM log WHERE NOT EXISTS (
            SELECT 1 FROM acts WHERE event >= log.id AND event < log.id + log.count)
        ORDER BY id LIMIT 1 OFFSET 50)";
    plant(sql, &[Invariant::LogContiguous, Invariant::LogPointers]);
}

#[test]
fn a_job_does_not_know_where_its_events_are() {
    let sql =
        "UPDATE jobs SET history = CAST(substr(history, 1, 32) || substr(history, 41) AS BLOB)
        WHERE seq = (SELECT seq FROM jobs WHERE length(history) > 40 LIMIT 1)";
    plant(sql, &[Invariant::LogPointers]);
}

#[test]
fn the_clock_goes_back() {
    let planted = Planted::new();
    let job = planted.victim("state = 'running' AND length(history) > 40");
    let planted = planted.retell(job, |history| {
        checkpoint(history);
    });
    planted
        .plant("UPDATE log SET at = 1000000 WHERE id = (SELECT max(id) FROM log)")
        .retell(job, |_| {})
        .check_names(&[Invariant::Time]);
}

#[test]
fn a_log_row_stands_with_another_tenant() {
    let sql = format!("UPDATE log SET tenant = 'nobody' WHERE id = {WITHOUT_ACTS}");
    plant(&sql, &[Invariant::Tenant]);
}

#[test]
fn a_letter_stands_with_another_tenant() {
    plant("UPDATE dlq_items SET tenant = 'nobody' WHERE state = 'open'", &[Invariant::Tenant]);
}

#[test]
fn an_event_speaks_of_a_job_that_is_not_there() {
    let planted = Planted::new();
    let nobody = "0zzzzzzzzzzzzzzzzzzzzzzzzz";
    let line = json!([nobody, 1, "enqueued", null, "queued", 1, 0, 0, 0, "scheduler", null, null]);
    planted.append(JobId::from_u128(0), &line.to_string());
    planted.check_names(&[Invariant::Owner]);
}

#[test]
fn an_output_or_a_report_of_progress_belongs_to_no_job() {
    plant("INSERT INTO progress VALUES (999999, 1, 1, '1')", &[Invariant::Owner]);
    plant(
        "INSERT INTO outputs (seq, attempt, result) VALUES (999999, 1, '1')",
        &[Invariant::Owner],
    );
}
