//! Admit: who may claim how many.
//!
//! Jobs that can be claimed come in heads, one for each queue, tenant and kind. `admit` shares a
//! worker's free slots out among them. It never breaks a limit and leaves no slot empty while a job
//! that may have it waits. The order is by [`Rank`], so that whatever waits gets its turn; with turns
//! switched on, tenants take turns by weight first.
//!
//! What holds a slot is counted from leases by the caller, so a crash cannot leak one.

mod limits;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::limits::{Concurrency, Limit, Limits, Rate, Scope, Turns};
use crate::{Kind, Queue, TenantId, Timestamp, job::Rank};

/// What a worker asks for, and what there is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many jobs the worker wants at the most.
    pub max: usize,
    /// How many leases it holds already.
    pub held: usize,
    /// Is one of them a job that has to be alone?
    pub holds_isolated: bool,
    /// What can be claimed.
    pub heads: Vec<Head>,
}

/// Jobs that can be claimed, of one queue, tenant and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Their queue.
    pub queue: Queue,
    /// Their tenant.
    pub tenant: TenantId,
    /// Their kind.
    pub kind: Kind,
    /// The ranks of the first of them, best first; more than the worker wants are of no use.
    pub ranks: Vec<Rank>,
    /// Since when the first one waits, if these are jobs that have to be claimed alone.
    pub isolated_since: Option<Timestamp>,
}

/// Who may take how many, and the limits as they are afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// How many of which head, in the order of the heads. A head that gets none is left out.
    pub quotas: Vec<Quota>,
    /// The limits afterwards: rates and turns are to be saved.
    pub limits: Limits,
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
pub fn admit(request: &Request, limits: &Limits, now: Timestamp) -> Admission {
    let mut round =
        Round { request, limits: limits.clone(), taken: vec![0; request.heads.len()], now };
    let mut alone = None;
    if request.max > 0 && !request.holds_isolated {
        alone = round.isolated_first();
        if alone.is_none() && !round.must_drain() {
            round.share_out(&mut alone);
        }
    }
    let heads = round.taken.iter().enumerate().filter(|(_, take)| **take > 0);
    let quotas = heads.map(|(head, take)| Quota { head, take: *take, alone: alone == Some(head) });
    Admission { quotas: quotas.collect(), limits: round.limits }
}

/// The slots of one worker, while they are shared out.
struct Round<'a> {
    request: &'a Request,
    limits: Limits,
    taken: Vec<usize>,
    now: Timestamp,
}

impl Round<'_> {
    /// Gives an idle worker a job that has waited too long to be alone.
    fn isolated_first(&mut self) -> Option<usize> {
        if self.request.held > 0 {
            return None;
        }
        let head = self.best(Self::is_overdue)?;
        self.take(head);
        Some(head)
    }

    /// Must the worker, which is busy, become idle first, so that a job which waits to be alone gets its
    /// turn? An idle one was given that job.
    fn must_drain(&self) -> bool {
        self.best(Self::is_overdue).is_some()
    }

    /// Fills the slots one by one. A job that has to be alone is taken only first, and then is the last.
    fn share_out(&mut self, alone: &mut Option<usize>) {
        let idle = self.request.held == 0;
        for slot in 0..self.request.max {
            let may_isolate = idle && slot == 0;
            let head = self.best(|round, head| may_isolate || !round.is_isolated(head));
            let Some(head) = head else { return };
            self.take(head);
            if self.is_isolated(head) {
                *alone = Some(head);
                return;
            }
        }
    }

    /// The head that is next, of those that have a job left, may be claimed and are `wanted`.
    fn best(&self, wanted: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let heads = 0..self.request.heads.len();
        let open = heads.filter(|head| wanted(self, *head) && self.is_open(*head));
        open.min_by_key(|head| {
            let turns = self.limits.turns.as_ref();
            let turn = turns.map_or(0, |turns| turns.next(&self.request.heads[*head].tenant));
            (turn, self.next_rank(*head))
        })
    }

    fn next_rank(&self, head: usize) -> Option<Rank> {
        self.request.heads[head].ranks.get(self.taken[head]).copied()
    }

    fn is_open(&self, head: usize) -> bool {
        let (place, head) = (head, &self.request.heads[head]);
        self.next_rank(place).is_some()
            && !self.limits.paused.iter().any(|scope| scope.covers(head))
            && self.limits.limits.iter().all(|l| !l.scope.covers(head) || l.room(self.now) > 0)
    }

    fn is_isolated(&self, head: usize) -> bool {
        self.request.heads[head].isolated_since.is_some()
    }

    fn is_overdue(&self, head: usize) -> bool {
        let since = self.request.heads[head].isolated_since;
        since.is_some_and(|since| self.now.since(since) >= ISOLATION_PATIENCE)
    }

    fn take(&mut self, head: usize) {
        self.taken[head] += 1;
        let (head, now) = (&self.request.heads[head], self.now);
        let covering = self.limits.limits.iter_mut().filter(|limit| limit.scope.covers(head));
        covering.for_each(|limit| limit.take(now));
        if let Some(turns) = &mut self.limits.turns {
            turns.take(&head.tenant);
        }
    }
}
