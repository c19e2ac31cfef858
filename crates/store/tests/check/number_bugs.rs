//! Numbers that no healthy store has: below zero, or as large as a column takes.
//!
//! The checker names what is wrong with them. It never gives up over one: whoever asks it wants to know what else is broken.

use std::collections::BTreeSet;

use windlass_store::check::Invariant;

use crate::{history_bugs::plant, note_bugs::NOTE, plant::Planted};

/// A job that was forgotten while the log still speaks of it, and a row of the inbox that was set aside.
const FORGOTTEN: &str = "
    INSERT INTO pruned (id, at, least_ms, version, rows)
    SELECT id, updated_at, 1, version, 1 FROM jobs WHERE state = 'succeeded' LIMIT 1;
    DELETE FROM jobs WHERE id IN (SELECT id FROM pruned);
    INSERT INTO inbox_set_aside (found_at, why) VALUES (1, 'it is no JSON')";

#[test]
fn no_number_makes_the_checker_give_up() {
    let planted = || Planted::small().plant(NOTE).plant(FORGOTTEN);
    let (mut named, mut failed, mut count) = (BTreeSet::new(), Vec::new(), 0);
    for (table, column) in planted().numbers() {
        for value in [-1, i64::MAX] {
            count += 1;
            match planted().try_value(&table, &column, value) {
                Some(Ok(report)) => named.extend(report.violations.iter().map(|it| it.invariant)),
                Some(Err(error)) => failed.push(format!("{table}.{column} = {value}: {error}")),
                None => {}
            }
        }
    }
    println!("{count} values, and these rules were named: {named:?}");
    assert!(failed.is_empty(), "it gave up:\n{}", failed.join("\n"));
    assert!(count > 100, "there are more columns");
    for rule in
        [Invariant::LogContiguous, Invariant::Readable, Invariant::InboxTold, Invariant::Noted]
    {
        assert!(named.contains(&rule), "{rule} was never named");
    }
}

#[test]
fn a_log_row_has_a_number_below_zero() {
    plant(
        "UPDATE log SET id = -7 WHERE id = (SELECT max(id) FROM log)",
        &[Invariant::Readable, Invariant::InboxTold],
    );
}

#[test]
fn the_beginning_of_the_feed_is_below_zero() {
    plant(
        "INSERT OR REPLACE INTO meta (name, value) VALUES ('feed_from', -1)",
        &[Invariant::Readable],
    );
}

#[test]
fn a_task_counts_its_attempts_from_below_zero() {
    plant("UPDATE tasks SET next_attempt = -1", &[Invariant::TaskNext]);
}
