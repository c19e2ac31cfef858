//! Bugs in what is told, and in the order in which it is told.

use serde_json::json;
use windlass_store::check::Invariant;

use crate::plant::{Planted, plant};

/// Somewhere in the middle of the feed, where no act is told: that an act is missing would be another bug.
const MIDDLE: &str = "
    (SELECT seq FROM feed WHERE NOT EXISTS (
        SELECT FROM acts WHERE event >= feed.first AND event < feed.first + feed.count)
    ORDER BY first LIMIT 1 OFFSET 50)";
const LAST: &str = "(SELECT max(seq) FROM feed)";

#[test]
fn nothing_is_planted() {
    Planted::new().check_names(&[]);
    let planted = Planted::new();
    let job = planted.victim("state = 'running'");
    planted.retell(job, |_| {}).check_names(&[]);
}

#[test]
fn a_log_row_is_missing() {
    plant(
        &format!("DELETE FROM log WHERE seq = {MIDDLE}"),
        &[Invariant::LogContiguous, Invariant::LogPointers],
    );
}

#[test]
fn a_log_row_has_no_place_in_the_feed() {
    plant(
        &format!("DELETE FROM feed WHERE seq = {MIDDLE}"),
        &[Invariant::LogContiguous, Invariant::LogPointers],
    );
}

#[test]
fn a_log_row_and_its_place_are_missing() {
    let sql = format!(
        "DELETE FROM log WHERE seq = {MIDDLE};
         DELETE FROM feed WHERE NOT EXISTS (SELECT FROM log WHERE log.seq = feed.seq)"
    );
    plant(&sql, &[Invariant::LogContiguous, Invariant::LogPointers]);
}

#[test]
fn a_number_is_given_twice() {
    let sql = format!("UPDATE feed SET first = first - 1 WHERE seq = {MIDDLE}");
    plant(&sql, &[Invariant::LogContiguous]);
}

#[test]
fn a_log_row_has_two_places() {
    let sql = format!(
        "INSERT INTO feed (first, seq, count, at)
         SELECT (SELECT max(first + count) FROM feed), seq, count, at FROM feed WHERE seq = {MIDDLE}"
    );
    plant(&sql, &[Invariant::LogPointers]);
}

#[test]
fn the_feed_and_the_log_count_otherwise() {
    let sql = format!("UPDATE feed SET count = count + 1 WHERE seq = {LAST}");
    plant(&sql, &[Invariant::LogContiguous]);
}

#[test]
fn the_feed_and_the_log_are_of_another_time() {
    let sql = format!("UPDATE feed SET at = at + interval '1 second' WHERE seq = {LAST}");
    plant(&sql, &[Invariant::Time]);
}

#[test]
fn numbers_would_come_again() {
    let sql = "
        UPDATE meta SET value = (SELECT max(first + count) + 1 FROM feed) WHERE name = 'feed_from'";
    plant(sql, &[Invariant::LogContiguous]);
}

#[test]
fn a_job_points_to_a_log_row_that_is_not_there() {
    let sql = "
        UPDATE jobs SET history = history || '\\x00000fffffffffff'::bytea
        WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1)";
    plant(sql, &[Invariant::LogPointers]);
    let sql = "INSERT INTO job_log (id, seq) SELECT id, 1 FROM jobs ORDER BY id LIMIT 1";
    plant(sql, &[Invariant::LogPointers]);
}

#[test]
fn one_byte_of_a_line_is_changed() {
    let sql = "
        UPDATE log SET events = replace(events, 'user:ann', 'user:anm')
        WHERE seq = (SELECT min(seq) FROM log)";
    plant(sql, &[Invariant::Chain]);
}

/// The first log row that tells of no act: that an act is told nowhere would be another bug.
const WITHOUT_ACTS: &str = "(SELECT min(seq) FROM feed WHERE NOT EXISTS (
    SELECT 1 FROM acts WHERE event >= first AND event < first + count))";

#[test]
fn a_log_row_cannot_be_read() {
    let sql = format!("UPDATE log SET events = '[' WHERE seq = {WITHOUT_ACTS}");
    plant(&sql, &[Invariant::Readable, Invariant::LogPointers]);
}

#[test]
fn a_log_row_stands_with_another_tenant() {
    let sql = format!("UPDATE log SET tenant = 'nobody' WHERE seq = {WITHOUT_ACTS}");
    plant(&sql, &[Invariant::Tenant]);
}

#[test]
fn an_event_is_skipped() {
    let planted = Planted::new();
    let job = planted.victim("state = 'succeeded'");
    planted
        .retell(job, |line| {
            let number = line[1].as_u64().unwrap();
            line[1] = json!(if number == 1 { 1 } else { number + 1 });
        })
        .check_names(&[Invariant::Numbers]);
}

#[test]
fn time_goes_back_within_one_job() {
    let planted = Planted::new();
    let job = planted.victim(
        "state NOT IN ('succeeded', 'partial', 'failed', 'cancelled') AND version > 1
            AND EXISTS (SELECT FROM log WHERE seq = ('x' || encode(substr(history, length(history) - 7), 'hex'))::bit(64)::bigint
                AND count = 1)",
    );
    let row = format!(
        "(SELECT ('x' || encode(substr(history, length(history) - 7), 'hex'))::bit(64)::bigint
          FROM jobs WHERE id = '{}')",
        crate::plant::uuid(job)
    );
    planted
        .plant(&format!(
            "UPDATE log SET at = 'epoch' WHERE seq = {row};
             UPDATE feed SET at = 'epoch' WHERE seq = {row}"
        ))
        .retell(job, |_| {})
        .check_names(&[Invariant::Time]);
}

#[test]
fn a_result_of_the_inbox_is_not_told() {
    plant("DELETE FROM inbox_results WHERE outcome = 'conflict'", &[Invariant::InboxTold]);
    plant("UPDATE inbox_results SET seq = 1 WHERE outcome = 'hit'", &[Invariant::InboxTold]);
    plant("UPDATE inbox_results SET place = place + 1000", &[Invariant::InboxTold]);
}

#[test]
fn a_row_of_the_inbox_is_promoted_and_stays_or_is_set_aside() {
    let sql = "
        INSERT INTO inbox (job_id, tenant, at, op, payload)
        SELECT id, tenant, now(), '{}', '{}' FROM jobs ORDER BY id LIMIT 1";
    plant(sql, &[Invariant::InboxOnce]);
    let sql = "INSERT INTO inbox_set_aside (found_at, why) VALUES (now(), 'it is no JSON')";
    plant(sql, &[Invariant::InboxSetAside]);
}
