//! Bugs in what is kept and told of the inbox.

use windlass_kernel::JobId;
use windlass_store::check::Invariant;

use crate::{history_bugs::plant, plant::Planted};

/// The first result with this outcome.
fn first(outcome: &str) -> String {
    format!("(SELECT min(event) FROM inbox_results WHERE outcome = '{outcome}')")
}

#[test]
fn a_result_is_dropped() {
    plant("DELETE FROM inbox_results WHERE outcome = 'conflict'", &[Invariant::InboxTold]);
}

#[test]
fn a_result_is_not_told() {
    // A line about a job takes the place of the event, so that the log itself is in order.
    let planted = Planted::new();
    let sql = format!(
        "DELETE FROM inbox_results WHERE event = {0};
         INSERT INTO inbox_results SELECT 1, job_id, tenant, asked_at, at, outcome, existing, code, why,
            op, payload FROM inbox_results WHERE event = {1}",
        first("hit"),
        first("refused")
    );
    planted.plant(&sql).check_names(&[Invariant::InboxTold]);
}

#[test]
fn a_result_and_its_event_differ() {
    for change in [
        "outcome = 'refused', code = 'X', why = 'x', op = '{}', payload = '{}'",
        "existing = zeroblob(16)",
        "job_id = zeroblob(16)",
        "at = at + 1",
    ] {
        let sql = format!("UPDATE inbox_results SET {change} WHERE event = {}", first("hit"));
        plant(&sql, &[Invariant::InboxTold]);
    }
    let sql = format!("UPDATE inbox_results SET tenant = 'other' WHERE event = {}", first("hit"));
    plant(&sql, &[Invariant::Tenant]);
}

#[test]
fn a_refused_request_is_lost() {
    let sql = format!("UPDATE inbox_results SET payload = NULL WHERE event = {}", first("refused"));
    plant(&sql, &[Invariant::InboxTold]);
}

#[test]
fn an_event_of_the_inbox_cannot_be_read() {
    let sql = format!(
        "UPDATE log SET events = json_set(events, '$[0].job_id', 7) WHERE id = (
            SELECT max(id) FROM log WHERE id <= {})",
        first("hit")
    );
    plant(&sql, &[Invariant::Readable]);
}

#[test]
fn a_row_is_promoted_and_stays() {
    let row = "SELECT NULL, id, tenant, 5, '{}', '{}' FROM jobs WHERE seq = 1";
    plant(&format!("INSERT INTO inbox {row}"), &[Invariant::InboxOnce]);
    let row = "SELECT NULL, job_id, tenant, 5, '{}', '{}' FROM inbox_results LIMIT 1";
    plant(&format!("INSERT INTO inbox {row}"), &[Invariant::InboxOnce]);
}

#[test]
fn a_row_that_waits_is_no_bug() {
    let id = JobId::from_u128(1 << 101).as_u128();
    let row = format!("VALUES (NULL, x'{id:032x}', 'acme', 5, '{{}}', '{{}}')");
    plant(&format!("INSERT INTO inbox {row}"), &[]);
}

#[test]
fn a_row_was_set_aside() {
    let row = "(found_at, why, op) VALUES (5, 'it is no JSON', x'00')";
    plant(&format!("INSERT INTO inbox_set_aside {row}"), &[Invariant::InboxSetAside]);
}
