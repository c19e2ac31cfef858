//! One round: the slots of one worker, while they are shared out.

use std::collections::BTreeMap;

use super::{
    Admission, Blocked, Books, ISOLATION_PATIENCE, Quota, Request, Turns, blocked::Slot,
    order::Order,
};
use crate::{
    Timestamp,
    rule::{Part, Rule},
};

pub(super) struct Round<'a> {
    request: &'a Request<'a>,
    slots: Vec<Slot<'a>>,
    /// For each head, what it takes from with each job. Empty without rules.
    covered_by: Vec<Vec<usize>>,
    taken: Vec<usize>,
    alone: Option<usize>,
    again_at: Option<Timestamp>,
    now: Timestamp,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        request: &'a Request<'a>,
        rules: &'a [Rule],
        books: &dyn Books,
        now: Timestamp,
    ) -> Self {
        let mut round = Self {
            request,
            slots: Vec::new(),
            covered_by: Vec::new(),
            taken: vec![0; request.heads.len()],
            alone: None,
            again_at: None,
            now,
        };
        if rules.iter().any(Rule::restrains) {
            round.cover(rules, books);
        }
        round
    }

    fn cover(&mut self, rules: &'a [Rule], books: &dyn Books) {
        let mut places: BTreeMap<(usize, Part), usize> = BTreeMap::new();
        for head in &self.request.heads {
            let mut covered_by = Vec::new();
            let restrains = rules.iter().enumerate().filter(|(_, rule)| rule.restrains());
            for (place, rule) in restrains {
                if !rule.scope.covers(head.queue, head.tenant, head.kind) {
                    continue;
                }
                let Some(part) = Part::of_head(rule.says.each(), head) else { continue };
                let slot = *places.entry((place, part.clone())).or_insert_with(|| {
                    self.slots.push(Slot::new(rule, part, books));
                    self.slots.len() - 1
                });
                covered_by.push(slot);
            }
            self.covered_by.push(covered_by);
        }
    }

    /// The rules that keep a head back.
    pub(super) fn blocked(&self, head: usize) -> impl Iterator<Item = Blocked> {
        let slots = self.covered_by.get(head).map_or(&[][..], Vec::as_slice);
        let (head, now) = (&self.request.heads[head], self.now);
        slots.iter().filter_map(move |slot| self.slots[*slot].blocks(head, now))
    }

    fn is_open(&self, head: usize) -> bool {
        self.taken[head] < self.request.heads[head].ranks.len()
            && self.blocked(head).next().is_none()
    }

    fn is_isolated(&self, head: usize) -> bool {
        self.request.heads[head].isolated_since.is_some()
    }

    /// The job that has waited too long to be alone.
    fn overdue(&self) -> Option<usize> {
        let is_overdue = |head: &usize| {
            let since = self.request.heads[*head].isolated_since;
            since.is_some_and(|since| self.now.since(since) >= ISOLATION_PATIENCE)
        };
        let overdue = (0..self.request.heads.len()).filter(is_overdue);
        let open = overdue.filter(|head| self.is_open(*head));
        open.min_by_key(|head| self.request.heads[*head].ranks.first().copied())
    }

    /// Gives an idle worker a job that has waited too long to be alone.
    pub(super) fn isolated_first(&mut self) -> Option<usize> {
        let head = self.overdue().filter(|_| self.request.held == 0)?;
        self.take(head);
        self.alone = Some(head);
        self.alone
    }

    /// Must the worker, which is busy, become idle first, so that a job which waits to be alone gets its
    /// turn? An idle one was given that job.
    pub(super) fn must_drain(&self) -> bool {
        self.overdue().is_some()
    }

    /// Fills the slots one by one. A job that has to be alone is taken only first, and then is the last. A head
    /// that a rule keeps back is out for this round, for rules give nothing back while it lasts.
    pub(super) fn share_out(&mut self, rules: &[Rule], turns: &mut Turns) {
        let request = self.request;
        turns.tidy();
        let mut order = Order::new(&request.heads, rules, turns, request.max);
        let mut left = request.max;
        while left > 0
            && let Some(next) = order.pop()
        {
            let head = next.head;
            if self.is_isolated(head) && (request.held > 0 || left < request.max) {
                order.drop_it(next);
                continue;
            }
            if self.blocked(head).next().is_some() {
                let until = self.blocked(head).map(|it| it.until);
                let until = until.reduce(|one, other| Some(one?.max(other?))).flatten();
                self.again_at = [self.again_at, until].into_iter().flatten().min();
                order.drop_it(next);
                continue;
            }
            self.take(head);
            left -= 1;
            order.took(next, request.heads[head].ranks.get(self.taken[head]).copied());
            if self.is_isolated(head) {
                self.alone = Some(head);
                return;
            }
        }
    }

    fn take(&mut self, head: usize) {
        self.taken[head] += 1;
        let slots = self.covered_by.get(head).map_or(&[][..], Vec::as_slice);
        for slot in slots {
            self.slots[*slot].take(&self.request.heads[head], self.now);
        }
    }

    pub(super) fn finish(self) -> Admission {
        let heads = self.taken.iter().enumerate().filter(|(_, take)| **take > 0);
        let alone = self.alone;
        let quota =
            |(head, take): (usize, &usize)| Quota { head, take: *take, alone: alone == Some(head) };
        let quotas = heads.map(quota).collect();
        let changed = self.slots.into_iter().filter(|slot| slot.is_changed);
        let states = changed
            .filter_map(|slot| Some((slot.rule.name.clone(), slot.part.clone(), slot.state()?)));
        Admission { quotas, states: states.collect(), again_at: self.again_at }
    }
}
