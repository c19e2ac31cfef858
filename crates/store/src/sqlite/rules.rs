//! Rules as the writer knows them: what they say, what they remember, and how many jobs are held by each part.
//!
//! How many are held is counted from leases when the writer starts and when a rule changes, and goes with the leases
//! from then on. Nothing of it is stored, so nothing can leak.

use std::sync::Arc;

use rusqlite::{Connection, params};
use windlass_kernel::{
    Job, Lane, Rule, RuleName, Timestamp,
    admit::Turns,
    rule::{Part, RuleState},
};

use super::{
    SqlResult,
    load::{Place, json_of, text_of},
    names::Names,
};
use crate::{
    RuleChange,
    commit::{Changes, WorkingSet},
    job_row::json,
    rules::{HeldParts, Known, Rulebook},
};

/// The rules, and what is known of the parts that they cover.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) book: Rulebook,
    held: HeldParts,
    /// Does a rule count what is held?
    counts: bool,
    /// Has the commit that is decided ended a lease that counted?
    has_freed: bool,
    /// Whose turn it is.
    pub(super) turns: Turns,
}

const RULES: &str = "SELECT rule FROM rules ORDER BY name";
const STATES: &str = "SELECT rule, part, state FROM rule_states";

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT group_id, lane, count(*) FROM jobs WHERE lease_session IS NOT NULL
    GROUP BY group_id, lane";

impl Rules {
    pub(super) fn load(connection: &Connection, names: &Names) -> SqlResult<Self> {
        let mut rules = Self { book: load_book(connection)?, ..Self::default() };
        rules.count_anew(connection, names)?;
        Ok(rules)
    }

    /// Counts what is held, after rules have changed.
    pub(super) fn count_anew(&mut self, connection: &Connection, names: &Names) -> SqlResult<()> {
        self.held = HeldParts::default();
        self.counts = self.book.rules.iter().any(Rule::counts_held);
        if !self.counts {
            return Ok(());
        }
        let mut statement = connection.prepare_cached(HELD)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(name) = names.group_by_id(row.get(0)?) {
                let jobs = (&name.queue, &name.tenant, &name.kind, Lane::new(row.get(1)?));
                self.held.add(&self.book.rules, jobs, row.get(2)?);
            }
        }
        Ok(())
    }

    /// What is known of the parts that rules cover.
    pub(super) fn known(&self) -> Known<'_> {
        Known { states: &self.book.states, held: &self.held }
    }

    /// The ops of a commit are decided: leases that they ended are counted no more, and breakers hear of them.
    pub(super) fn after_ops(&mut self, set: &mut WorkingSet<Place>, now: Timestamp) {
        for outcome in set.take_outcomes() {
            let states = self.book.hear(&outcome, now);
            set.remember(states);
        }
        self.has_freed = false;
        if !self.counts {
            return;
        }
        for row in set.rows() {
            let Some(before) = &row.before else { continue };
            match (before.lease.is_some(), row.job.lease.is_some()) {
                (true, false) => {
                    self.count(&row.job, row.place.lane, -1);
                    self.has_freed = true;
                }
                (false, true) => self.count(&row.job, row.place.lane, 1),
                _ => {}
            }
        }
    }

    /// A claim took a job.
    pub(super) fn took(&mut self, job: &Job, lane: Lane) {
        if self.counts {
            self.count(job, lane, 1);
        }
    }

    fn count(&mut self, job: &Job, lane: Lane, change: isize) {
        let spec = &job.spec;
        let jobs = (&spec.queue, &spec.tenant, &spec.kind, lane);
        self.held.add(&self.book.rules, jobs, change);
    }

    /// What rules remember after a claim.
    pub(super) fn remember(&mut self, states: &[(RuleName, Part, RuleState)], now: Timestamp) {
        for (rule, part, state) in states {
            self.book.states.insert((rule.clone(), part.clone()), *state);
        }
        if self.book.states.len() > STATES_MAX {
            self.book.states.retain(|_, state| !state.is_forgotten(now));
        }
    }

    /// May jobs go that a rule held back before these changes?
    pub(super) fn lets_more_go(&self, changes: &Changes) -> bool {
        self.has_freed || !changes.rules.is_empty()
    }
}

/// Every rule, by name.
pub(super) fn read_rules(connection: &Connection) -> SqlResult<Vec<Rule>> {
    connection.prepare_cached(RULES)?.query_map([], |row| json_of(row, 0))?.collect()
}

/// The rules, and what they remember.
pub(super) fn load_book(connection: &Connection) -> SqlResult<Rulebook> {
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
const STATES_MAX: usize = 10_000;

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
pub(super) fn save(connection: &Connection, changes: &Changes, now: Timestamp) -> SqlResult<()> {
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

/// Forgets what is the same as knowing nothing.
pub(super) fn sweep(connection: &Connection, now: Timestamp) -> SqlResult<usize> {
    connection.prepare_cached(SWEEP)?.execute([now.as_micros()])
}
