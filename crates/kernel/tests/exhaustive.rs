//! Every op in every situation has one result, and it is the one that was written down by hand.
//!
//! `exhaustive/expected.txt` is the table, made from the design and never from the code. The kernel
//! is asked cell by cell. A cell that differs is named with both results; a cell that is missing on
//! either side is an error too.

use std::collections::{BTreeMap, BTreeSet};

use windlass_kernel::{OpKind, State};
use windlass_testkit::grid;

const EXPECTED: &str = include_str!("exhaustive/expected.txt");

#[test]
fn every_op_in_every_situation_does_what_is_written() {
    let expected = table(EXPECTED);
    let cells = grid::cells();
    let keys: BTreeSet<_> = expected.keys().chain(cells.keys()).collect();
    let differing: Vec<String> = keys
        .into_iter()
        .filter(|key| expected.get(key).copied() != cells.get(key).map(String::as_str))
        .map(|key| {
            let expected = expected.get(key).copied().unwrap_or("nothing");
            let got = cells.get(key).map_or("nothing", String::as_str);
            format!("{} | {}: expected {expected}, got {got}", key.0, key.1)
        })
        .collect();
    assert!(differing.is_empty(), "{} cells differ:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn every_state_and_every_op_is_in_the_table() {
    let (ops, situations): (BTreeSet<&str>, BTreeSet<&str>) = table(EXPECTED).into_keys().unzip();
    let named = |name: &str, word: &str| name.split([' ', ',']).next() == Some(word);
    for op in OpKind::ALL {
        assert!(ops.iter().any(|name| named(name, op.as_str())), "{op} has no row");
    }
    for state in State::ALL {
        assert!(situations.iter().any(|name| named(name, state.as_str())), "{state} has no column");
    }
}

#[test]
fn the_page_has_every_cell() {
    let page = grid::markdown();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| op |"));
    assert_eq!(rows.count(), grid::GROUPS.len() * grid::ops().count());
    assert!(page.contains("| settle succeeded | – | `STALE_ATTEMPT` | – | **succeeded** |"));
    let ended = "| settle succeeded | `STALE_ATTEMPT` | `STALE_ATTEMPT` | `STALE_ATTEMPT` |\n";
    assert!(page.contains(ended));
}

/// Reads the table: a line of situations, then for each op a line of results.
fn table(text: &'static str) -> BTreeMap<(&'static str, &'static str), &'static str> {
    let mut table = BTreeMap::new();
    let mut situations = Vec::new();
    for line in text.lines().filter(|line| line.contains('|') && !line.starts_with('#')) {
        let mut cells = line.split('|').map(str::trim);
        let op = cells.next().expect("a line has a first cell");
        if op == "op" {
            situations = cells.collect();
            continue;
        }
        let results: Vec<&str> = cells.collect();
        assert_eq!(results.len(), situations.len(), "{op}: one result for each situation");
        for (situation, result) in situations.iter().zip(results) {
            let twice = table.insert((op, *situation), in_full(result));
            assert_eq!(twice, None, "{op} | {situation} stands twice");
        }
    }
    table
}

/// The short words of the table are the most frequent refusals.
fn in_full(result: &str) -> &str {
    match result {
        "." => "INVALID_TRANSITION",
        "stale" => "STALE_ATTEMPT",
        "conflict" => "IDEMPOTENCY_CONFLICT",
        other => other,
    }
}
