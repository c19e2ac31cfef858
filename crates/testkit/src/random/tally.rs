//! What happened in a run of random histories, so that a run that tried nothing cannot pass.

use std::collections::{BTreeMap, BTreeSet};

use windlass_kernel::{Answer, Op, OpKind, Refusal, State};

use super::Step;

/// Counts of what ops did.
#[derive(Debug, Default)]
pub struct Tally {
    /// All steps.
    pub steps: u64,
    /// Ops that did something, by name.
    pub applied: BTreeMap<&'static str, u64>,
    /// Ops that were answered from the record, by name.
    pub recorded: BTreeMap<&'static str, u64>,
    /// Ops that were refused, by code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Moves that jobs made; notes are moves to the same state.
    pub moves: BTreeSet<(Option<State>, State)>,
}

impl Tally {
    /// Counts one step.
    pub fn count(&mut self, step: &Step) {
        self.count_result(&step.op, &step.result);
        self.moves.extend(step.events.iter().map(|event| (event.from, event.to)));
    }

    /// Counts what one op was told.
    pub fn count_result(&mut self, op: &Op, result: &Result<Answer, Refusal>) {
        self.steps += 1;
        let kind = op.kind().as_str();
        match result {
            Ok(answer) if answer.recorded => *self.recorded.entry(kind).or_default() += 1,
            Ok(_) => *self.applied.entry(kind).or_default() += 1,
            Err(refusal) => *self.refused.entry(refusal.code()).or_default() += 1,
        }
    }

    /// Takes over what another has counted.
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        for (mine, theirs) in [
            (&mut self.applied, other.applied),
            (&mut self.recorded, other.recorded),
            (&mut self.refused, other.refused),
        ] {
            theirs.into_iter().for_each(|(name, count)| *mine.entry(name).or_default() += count);
        }
        self.moves.extend(other.moves);
    }

    /// Ops that did something fewer times than this.
    pub fn rarer_than(&self, least: u64) -> Vec<&'static str> {
        let applied = |op: &&str| self.applied.get(op).copied().unwrap_or_default();
        let ops = OpKind::ALL.iter().map(|op| op.as_str());
        ops.filter(|op| applied(op) < least).collect()
    }

    /// How many steps of a hundred did something.
    pub fn percent_applied(&self) -> u64 {
        100 * self.applied.values().sum::<u64>() / self.steps.max(1)
    }

    /// Ops that never did anything, and codes that never occurred.
    pub fn never_seen(&self) -> Vec<&'static str> {
        let ops = OpKind::ALL.iter().map(|op| op.as_str());
        let idle = ops.filter(|op| !self.applied.contains_key(op));
        // A drain is said by a rule and the last admin is a token: neither is an op on a job.
        // A full ledger takes ten thousand steps, and the last two are seldom met by chance: stories tell of them.
        let is_met = |code: &&str| {
            !["DRAINING", "LAST_ADMIN", "HISTORY_LIMIT", "BARRIER", "SIGNAL_CONFLICT"]
                .contains(code)
        };
        let codes = Refusal::CODES.iter().map(|info| info.code).filter(is_met);
        idle.chain(codes.filter(|code| !self.refused.contains_key(code))).collect()
    }

    /// Shows the counts to whoever runs the test.
    pub fn print(&self) {
        println!("{} steps, {} % of them did something", self.steps, self.percent_applied());
        for (title, counts) in
            [("applied", &self.applied), ("recorded", &self.recorded), ("refused", &self.refused)]
        {
            let counts: Vec<String> = counts.iter().map(|(k, v)| format!("{k} {v}")).collect();
            println!("{title}: {}", counts.join(", "));
        }
        if !self.moves.is_empty() {
            println!("different moves: {}", self.moves.len());
        }
    }
}
