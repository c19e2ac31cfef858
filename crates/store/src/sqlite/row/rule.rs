//! Operators' rules and what they remember: their rows.

use std::sync::Arc;

use rusqlite::{Connection, params};
use windlass_kernel::{Rule, RuleName, Timestamp, rule::Part};

use super::column::{json_of, text_of};
use crate::{RuleChange, commit::Changes, job_row::json, rules::Rulebook, sqlite::SqlResult};

const RULES: &str = "SELECT rule FROM rules ORDER BY name";

const STATES: &str = "SELECT rule, part, state FROM rule_states";

/// Every rule, by name.
pub(crate) fn read_rules(connection: &Connection) -> SqlResult<Vec<Rule>> {
    connection.prepare_cached(RULES)?.query_map([], |row| json_of(row, 0))?.collect()
}

/// The rules, and what they remember.
pub(crate) fn load_book(connection: &Connection) -> SqlResult<Rulebook> {
    let rules = Arc::new(read_rules(connection)?);
    let mut book = Rulebook { rules, ..Rulebook::default() };
    let mut statement = connection.prepare_cached(STATES)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name: RuleName = text_of(row, 0)?;
        let rule = book.rules.iter().find(|rule| rule.name == name);
        let part = row.get_ref(1)?.as_str()?;
        if let Some(part) = rule.and_then(|rule| Part::parse(rule.says.each(), part)) {
            book.states.insert((name, part), json_of(row, 2)?);
        }
    }
    Ok(book)
}

/// With more states than this, those that say nothing any more are looked for.
pub(crate) const STATES_MAX: usize = 10_000;

const PUT: &str = "
    INSERT INTO rules (name, rule) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET rule = excluded.rule";

const DROP: &str = "DELETE FROM rules WHERE name = ?1";

const FORGET: &str = "DELETE FROM rule_states WHERE rule = ?1";

const REMEMBER: &str = "
    INSERT INTO rule_states (rule, part, state, forget_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (rule, part) DO UPDATE SET state = excluded.state, forget_at = excluded.forget_at";

const FORGET_PART: &str = "DELETE FROM rule_states WHERE rule = ?1 AND part = ?2";

/// Writes what became of rules, and what they remember.
pub(crate) fn save(connection: &Connection, changes: &Changes, now: Timestamp) -> SqlResult<()> {
    for change in &changes.rules {
        match change {
            RuleChange::Put { rule, forgets } => {
                let row = params![rule.name.as_str(), json(rule)];
                connection.prepare_cached(PUT)?.execute(row)?;
                if *forgets {
                    connection.prepare_cached(FORGET)?.execute([rule.name.as_str()])?;
                }
            }
            RuleChange::Drop(name) => {
                connection.prepare_cached(DROP)?.execute([name.as_str()])?;
            }
        }
    }
    for ((rule, part), state) in &changes.rule_states {
        if state.is_forgotten(now) {
            let row = params![rule.as_str(), part.as_text()];
            connection.prepare_cached(FORGET_PART)?.execute(row)?;
        } else {
            let forget_at = state.forget_at().map(Timestamp::as_micros);
            let row = params![rule.as_str(), part.as_text(), json(state), forget_at];
            connection.prepare_cached(REMEMBER)?.execute(row)?;
        }
    }
    Ok(())
}

const SWEEP: &str = "DELETE FROM rule_states WHERE forget_at <= ?1";

/// Deletes states that have become equal to having no state, such as a rate whose bucket is full
/// again.
pub(crate) fn sweep(connection: &Connection, now: Timestamp) -> SqlResult<usize> {
    connection.prepare_cached(SWEEP)?.execute([now.as_micros()])
}
