//! Numbers and times that no healthy store has: below zero, or as large as their column takes.
//!
//! The checker names what is wrong with them. It never gives up over one: whoever asks it wants to know what else is broken.

use std::collections::BTreeSet;

use windlass_store::check::Invariant;

use crate::plant::{Planted, plant};

/// A note at the end of the log, its place in the feed, and where it is found.
const NOTE: &str = r#"
    INSERT INTO log (seq, tenant, at, count, events)
    SELECT max(seq) + 1, 'acme', max(at), 1,
        '[{"about":"schedule","name":"nightly","what":"skipped","actor":"scheduler"}]' FROM log;
    INSERT INTO feed (first, seq, count, at)
    SELECT (SELECT max(first + count) FROM feed), seq, 1, at FROM log ORDER BY seq DESC LIMIT 1;
    INSERT INTO notes (seq, place, tenant, about, name, at)
    SELECT seq, 0, tenant, 'schedule', 'nightly', at FROM log ORDER BY seq DESC LIMIT 1;"#;

/// A job that was forgotten while the log still speaks of it, and a row of the inbox that was set aside.
const FORGOTTEN: &str = "
    WITH gone AS (DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE state = 'succeeded' LIMIT 1)
        RETURNING id, version)
    INSERT INTO pruned (id, at, least_ms, version, rows) SELECT id, now(), 1, version, 1 FROM gone;
    INSERT INTO inbox_set_aside (found_at, why) VALUES (now(), 'it is no JSON')";

/// Every column of our tables that has a number or a time. A partition is part of its table.
const COLUMNS: &str = "
    SELECT relname::text, attname::text, format_type(atttypid, NULL) FROM pg_attribute
    JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = 'windlass'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        AND attnum > 0 AND NOT attisdropped AND attidentity = ''
        AND format_type(atttypid, NULL)
            IN ('integer', 'bigint', 'smallint', 'timestamp with time zone')
    ORDER BY relname, attnum";

/// The most that a column of this type takes, and less than anything has.
fn extremes(kind: &str) -> [&'static str; 2] {
    match kind {
        "smallint" => ["32767", "-1"],
        "integer" => ["2147483647", "-1"],
        "bigint" => ["9223372036854775807", "-1"],
        _ => ["'infinity'", "'-infinity'"],
    }
}

#[test]
fn no_number_makes_the_checker_give_up() {
    let planted = Planted::small().plant(NOTE).plant(FORGOTTEN);
    let (mut named, mut failed, mut count) = (BTreeSet::new(), Vec::new(), 0);
    for row in planted.query(COLUMNS) {
        let (table, column, kind): (String, String, &str) = (row.get(0), row.get(1), row.get(2));
        for value in extremes(kind) {
            count += 1;
            match planted.try_value(&table, &column, value) {
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

/// Numbers that stand in text.
#[test]
fn the_beginning_of_the_feed_is_no_number() {
    for value in ["-1", "nine", "-9223372036854775808", "9223372036854775807000"] {
        let sql = format!("UPDATE meta SET value = '{value}' WHERE name = 'feed_from'");
        Planted::small().plant(&sql).check().unwrap();
    }
    let negative = "UPDATE meta SET value = '-1' WHERE name = 'feed_from'";
    plant(negative, &[Invariant::Readable]);
}

/// What is told of a place is counted from the first event of its row, which is too much for any number.
#[test]
fn a_place_in_the_feed_is_beyond_all_numbers() {
    let last = "seq = (SELECT max(seq) FROM log)";
    let sql = format!(
        "{NOTE} UPDATE feed SET first = 9223372036854775807 WHERE {last};
         UPDATE notes SET place = 7 WHERE {last}; UPDATE inbox_results SET {last}"
    );
    let report = Planted::small().plant(&sql).check().unwrap();
    assert!(!report.is_clean());
}

#[test]
fn a_note_has_no_place_in_the_feed() {
    let last = "seq = (SELECT max(seq) FROM log)";
    let sql = format!("{NOTE} DELETE FROM feed WHERE {last}");
    plant(&sql, &[Invariant::LogContiguous, Invariant::Noted]);
}
