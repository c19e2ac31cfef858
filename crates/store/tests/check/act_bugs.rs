//! Bugs in where acts are found.

use windlass_store::check::Invariant;

use crate::{history_bugs::plant, plant::Planted};

/// Somebody drops a rule: a note at the end of the log, where it is found, and that it is an act.
const ACT: &str = r#"
    INSERT INTO log (id, tenant, at, count, events)
    SELECT id + count, 'acme', at, 1,
        '[{"about":"rule","name":"stop","what":"dropped","actor":"user:ann"}]'
    FROM log ORDER BY id DESC LIMIT 1;
    INSERT INTO notes (event, tenant, about, name, at)
    SELECT id, tenant, 'rule', 'stop', at FROM log ORDER BY id DESC LIMIT 1;
    INSERT INTO acts (event, tenant) SELECT id, tenant FROM log ORDER BY id DESC LIMIT 1;"#;

#[test]
fn an_act_is_no_bug() {
    Planted::new().plant(ACT).check_names(&[]);
}

#[test]
fn an_act_is_not_found() {
    let last = "(SELECT max(id) FROM log)";
    plant(&format!("{ACT} DELETE FROM acts WHERE event = {last}"), &[Invariant::Acted]);
    plant(
        &format!("{ACT} UPDATE acts SET tenant = 'other' WHERE event = {last}"),
        &[Invariant::Acted],
    );
}

#[test]
fn what_was_done_before_acts_were_written_need_not_be_found() {
    let sql = "DELETE FROM acts; UPDATE meta SET value = 1000000 WHERE name = 'acts_from'";
    Planted::new().plant(&format!("{ACT} {sql}")).check_names(&[]);
}

#[test]
fn an_act_is_found_where_no_person_did_anything() {
    let not_by_a_person = "
        INSERT INTO acts (event, tenant)
        SELECT number, tenant FROM events WHERE actor NOT LIKE 'user:%' ORDER BY number LIMIT 1";
    plant(not_by_a_person, &[Invariant::Acted]);
    plant("INSERT INTO acts (event, tenant) VALUES (1000000, 'acme')", &[Invariant::Acted]);
}
