//! Bugs in notes, and in where they are found.

use windlass_store::check::Invariant;

use crate::{history_bugs::plant, plant::Planted};

/// A note at the end of the log, and where it is found.
pub(crate) const NOTE: &str = r#"
    INSERT INTO log (id, tenant, at, count, events)
    SELECT id + count, 'acme', at, 1,
        '[{"about":"schedule","name":"nightly","what":"skipped","actor":"scheduler"}]'
    FROM log ORDER BY id DESC LIMIT 1;
    INSERT INTO notes (event, tenant, about, name, at)
    SELECT id, tenant, 'schedule', 'nightly', at FROM log ORDER BY id DESC LIMIT 1;"#;

#[test]
fn a_note_is_no_bug_and_is_seen_as_an_event() {
    let planted = Planted::new().plant(NOTE);
    let seen = planted.find(
        "SELECT cause || ' ' || actor || ' ' || (fact ->> 'name') FROM events
         ORDER BY number DESC LIMIT 1",
    );
    assert_eq!(seen, "schedule_skipped scheduler nightly");
    planted.check_names(&[]);
}

#[test]
fn a_note_is_not_found_by_what_it_is_about() {
    plant(&format!("{NOTE} DELETE FROM notes"), &[Invariant::Noted]);
    plant(&format!("{NOTE} UPDATE notes SET name = 'daily'"), &[Invariant::Noted]);
    plant(&format!("{NOTE} UPDATE notes SET tenant = 'other'"), &[Invariant::Noted]);
}

#[test]
fn a_note_is_found_and_nobody_told_it() {
    plant("INSERT INTO notes VALUES (1, 'acme', 'schedule', 'nightly', 5)", &[Invariant::Noted]);
}

#[test]
fn a_note_cannot_be_read() {
    let damage = "UPDATE log SET events = replace(events, '\"actor\":\"scheduler\"', '\"actor\":7')
        WHERE id = (SELECT max(id) FROM log);
        DELETE FROM notes WHERE event = (SELECT max(id) FROM log)";
    plant(&format!("{NOTE} {damage}"), &[Invariant::Readable]);
}
