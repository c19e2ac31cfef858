//! Admit: who may claim how many.
//!
//! Jobs that can be claimed come in heads, one for each queue, tenant, kind and key. `admit` shares a worker's free
//! slots out among them. It never breaks a rule, and leaves no slot empty while a job that may have it waits.
//! Tenants take turns by weight; within a tenant the order is by [`Rank`], so that whatever waits gets its turn.
//! Where a rule says so, the keys of a tenant take turns too.
//!
//! What holds a slot is counted from leases by the caller, so a crash cannot leak one.

mod blocked;
mod order;
mod round;
#[cfg(test)]
mod tests;
mod turns;

use std::{borrow::Cow, time::Duration};

use self::round::Round;
pub use self::{
    blocked::{Because, Blocked},
    turns::Turns,
};
use crate::{
    Kind, Lane, Queue, TenantId, Timestamp,
    ids::RuleName,
    job::Rank,
    rule::{Part, Rule, RuleState},
};

/// What a worker asks for, and what there is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// How many jobs the worker wants at the most.
    pub max: usize,
    /// How many leases its process holds already.
    pub held: usize,
    /// Is one of them a job that has to be alone?
    pub holds_isolated: bool,
    /// What can be claimed.
    pub heads: Vec<Head<'a>>,
}

/// Jobs that can be claimed, of one queue, tenant, kind and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Their queue.
    pub queue: &'a Queue,
    /// Their tenant.
    pub tenant: &'a TenantId,
    /// Their kind.
    pub kind: &'a Kind,
    /// Their key.
    pub lane: Lane,
    /// Are they retries that are due?
    pub retries: bool,
    /// The ranks of the first of them, best first; more than the worker wants are of no use.
    pub ranks: Cow<'a, [Rank]>,
    /// Since when the first one waits, if these are jobs that have to be claimed alone.
    pub isolated_since: Option<Timestamp>,
}

/// What is known of the parts that rules cover.
pub trait Books {
    /// How many jobs of this part are held.
    fn held(&self, rule: &Rule, part: &Part) -> usize;
    /// What the rule remembers of it.
    fn state(&self, rule: &Rule, part: &Part) -> Option<RuleState>;
}

/// Nothing is held, and nothing is remembered: what there is without rules.
pub struct NoBooks;

impl Books for NoBooks {
    fn held(&self, _: &Rule, _: &Part) -> usize {
        0
    }

    fn state(&self, _: &Rule, _: &Part) -> Option<RuleState> {
        None
    }
}

/// Who may take how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// How many of which head, in the order of the heads. A head that gets none is left out.
    pub quotas: Vec<Quota>,
    /// What rules remember from now on, if all of it is taken.
    pub states: Vec<(RuleName, Part, RuleState)>,
    /// When a job may go that a rule holds back now, if time alone lets it.
    pub again_at: Option<Timestamp>,
}

/// How many of one head a worker may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The place of the head in the request.
    pub head: usize,
    /// How many.
    pub take: usize,
    /// Is it a job that has to be alone?
    pub alone: bool,
}

/// How long a job that has to be alone waits for an idle worker before workers let it go first.
pub const ISOLATION_PATIENCE: Duration = Duration::from_secs(10);

/// Shares the worker's free slots out among the heads.
pub fn admit(
    request: &Request<'_>,
    rules: &[Rule],
    books: &dyn Books,
    turns: &mut Turns,
    now: Timestamp,
) -> Admission {
    if request.max == 0 || request.holds_isolated {
        return Admission::default();
    }
    let mut round = Round::new(request, rules, books, now);
    let alone = round.isolated_first();
    if alone.is_none() && !round.must_drain() {
        round.share_out(rules, turns);
    }
    round.finish()
}

/// Gives back the turns of an admission that is not carried out. The next admission is as if it had not been.
pub fn give_back(heads: &[Head<'_>], rules: &[Rule], quotas: &[Quota], turns: &mut Turns) {
    // Jobs that have to be alone may have gone first without a turn; they are one job, and that is always granted.
    for quota in quotas.iter().filter(|quota| !quota.alone) {
        order::give_back(&heads[quota.head], quota.take, rules, turns);
    }
}

/// Every rule that keeps the jobs of a head from being claimed now: the same look as [`admit`] has.
pub fn blocked(head: &Head<'_>, rules: &[Rule], books: &dyn Books, now: Timestamp) -> Vec<Blocked> {
    let request = Request { max: 1, held: 0, holds_isolated: false, heads: vec![head.clone()] };
    Round::new(&request, rules, books, now).blocked(0).collect()
}
