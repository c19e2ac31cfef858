//! Rules as the writer knows them: what they say, what they remember, and how many jobs are held by each part.
//!
//! How many are held is counted from leases when the writer starts and when a rule changes, and goes with the leases
//! from then on. Nothing of it is stored, so nothing can leak.

use rusqlite::Connection;
use windlass_kernel::{
    Job, Lane, Rule, RuleName, Timestamp,
    admit::Turns,
    rule::{Part, RuleState},
};

use super::names::Names;
use crate::{
    commit::{Changes, WorkingSet},
    rules::{HeldParts, Rulebook, RulesView},
    sqlite::{
        SqlResult,
        row::{
            job::Place,
            rule::{STATES_MAX, load_book},
        },
    },
};

/// The rules, and what is known of the parts that they cover.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) book: Rulebook,
    held: HeldParts,
    /// Does a rule count what is held?
    counts: bool,
    /// Has the commit that is being decided ended a lease that a rule counts? Then jobs that were
    /// held back may go.
    has_freed: bool,
    /// Whose turn it is.
    pub(crate) turns: Turns,
}

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT group_id, lane, count(*) FROM jobs WHERE lease_session IS NOT NULL
    GROUP BY group_id, lane";

impl Rules {
    pub(crate) fn load(connection: &Connection, names: &Names) -> SqlResult<Self> {
        let mut rules = Self { book: load_book(connection)?, ..Self::default() };
        rules.count_anew(connection, names)?;
        Ok(rules)
    }

    /// Counts what is held, after rules have changed.
    pub(crate) fn count_anew(&mut self, connection: &Connection, names: &Names) -> SqlResult<()> {
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
    pub(crate) fn known(&self) -> RulesView<'_> {
        RulesView { states: &self.book.states, held: &self.held }
    }

    /// The ops of a commit are decided: leases that they ended are counted no more, and breakers hear of them.
    pub(crate) fn after_ops(&mut self, set: &mut WorkingSet<Place>, now: Timestamp) {
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
    pub(crate) fn took(&mut self, job: &Job, lane: Lane) {
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
    pub(crate) fn remember(&mut self, states: &[(RuleName, Part, RuleState)], now: Timestamp) {
        for (rule, part, state) in states {
            self.book.states.insert((rule.clone(), part.clone()), *state);
        }
        if self.book.states.len() > STATES_MAX {
            self.book.states.retain(|_, state| !state.is_forgotten(now));
        }
    }

    /// May jobs go that a rule held back before these changes?
    pub(crate) fn lets_more_go(&self, changes: &Changes) -> bool {
        self.has_freed || !changes.rules.is_empty()
    }
}
