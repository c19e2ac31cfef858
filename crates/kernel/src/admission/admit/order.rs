//! The order in which heads get slots: tenants by turn, and what a tenant has by rank or by key.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::{Head, turns::Turns};
use crate::{
    Queue, TenantId,
    job::Rank,
    rule::{Rule, Says},
};

/// Heads in the order of their turns. Whoever takes the first says whether it may stay.
pub(super) struct Order<'a> {
    heads: &'a [Head<'a>],
    turns: &'a mut Turns,
    rules: &'a [Rule],
    tenants: Vec<Tenant<'a>>,
    next: BinaryHeap<Reverse<(u64, Rank, usize)>>,
    /// How many jobs a tenant takes in one turn.
    quantum: usize,
    /// Whose turn it is, and how many it has taken in it.
    turn: Option<(usize, usize)>,
}

struct Tenant<'a> {
    id: &'a TenantId,
    weight: u32,
    streams: Vec<Stream>,
    next: BinaryHeap<Reverse<(Rank, usize)>>,
}

/// What a tenant has, in one order.
enum Stream {
    One(usize),
    /// Keys take turns.
    ByKey(BinaryHeap<Reverse<(u64, Rank, usize)>>),
}

/// The head that is next, and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Next {
    pub(super) head: usize,
    tenant: usize,
    stream: usize,
}

impl<'a> Order<'a> {
    /// The order in which so many slots are filled.
    pub(super) fn new(
        heads: &'a [Head<'a>],
        rules: &'a [Rule],
        turns: &'a mut Turns,
        slots: usize,
    ) -> Self {
        let (tenants, next) = (Vec::new(), BinaryHeap::new());
        let quantum = (slots / Turns::PER_CLAIM).max(1);
        let mut order = Self { heads, turns, rules, tenants, next, quantum, turn: None };
        let mut places: BTreeMap<&TenantId, usize> = BTreeMap::new();
        let mut by_key: BTreeMap<(usize, &Queue), usize> = BTreeMap::new();
        let mut last: Option<(&TenantId, usize)> = None;
        for (place, head) in heads.iter().enumerate() {
            let Some(rank) = head.ranks.first() else { continue };
            let tenant = match last.filter(|(id, _)| *id == head.tenant) {
                Some((_, tenant)) => tenant,
                None => *places.entry(head.tenant).or_insert_with(|| order.add_tenant(head.tenant)),
            };
            last = Some((head.tenant, tenant));
            if keys_take_turns(rules, head.queue) {
                let stream = *by_key.entry((tenant, head.queue)).or_insert_with(|| {
                    order.tenants[tenant].streams.push(Stream::ByKey(BinaryHeap::new()));
                    order.tenants[tenant].streams.len() - 1
                });
                let turn = order.key_turn(head);
                if let Stream::ByKey(keys) = &mut order.tenants[tenant].streams[stream] {
                    keys.push(Reverse((turn, *rank, place)));
                }
            } else {
                let tenant = &mut order.tenants[tenant];
                tenant.streams.push(Stream::One(place));
                tenant.next.push(Reverse((*rank, tenant.streams.len() - 1)));
            }
        }
        for ((tenant, _), stream) in by_key {
            let tenant = &mut order.tenants[tenant];
            if let Stream::ByKey(keys) = &tenant.streams[stream]
                && let Some(Reverse((_, rank, _))) = keys.peek()
            {
                tenant.next.push(Reverse((*rank, stream)));
            }
        }
        (0..order.tenants.len()).for_each(|tenant| order.put_back(tenant));
        order
    }

    fn add_tenant(&mut self, id: &'a TenantId) -> usize {
        let (streams, next) = (Vec::new(), BinaryHeap::new());
        self.tenants.push(Tenant { id, weight: weight_of(self.rules, id), streams, next });
        self.tenants.len() - 1
    }

    fn key_turn(&self, head: &Head<'_>) -> u64 {
        let list = self.turns.keys.get(&(head.tenant.clone(), head.queue.clone()));
        list.map_or(0, |list| list.next(&head.lane))
    }

    fn put_back(&mut self, tenant: usize) {
        let Tenant { id, next, .. } = &self.tenants[tenant];
        let is_its_turn =
            self.turn.is_some_and(|(whose, taken)| whose == tenant && taken < self.quantum);
        if let Some(Reverse((rank, _))) = next.peek() {
            // Whose turn it is comes before all others.
            let turn = if is_its_turn { 0 } else { self.turns.tenants.next(id) + 1 };
            self.next.push(Reverse((turn, *rank, tenant)));
        }
    }

    /// The head that is next. It has to be told what becomes of it.
    pub(super) fn pop(&mut self) -> Option<Next> {
        let Reverse((_, _, place)) = self.next.pop()?;
        let tenant = &mut self.tenants[place];
        let Reverse((_, stream)) =
            tenant.next.pop().expect("it has something, or it were not here");
        let head = match &mut tenant.streams[stream] {
            Stream::One(head) => *head,
            Stream::ByKey(keys) => {
                let Reverse((_, _, head)) =
                    keys.pop().expect("it has something, or it were not here");
                head
            }
        };
        Some(Next { head, tenant: place, stream })
    }

    /// The head gets nothing in this round.
    pub(super) fn drop_it(&mut self, next: Next) {
        self.go_on(next, None);
    }

    /// A job of the head was taken; this is the rank of its next one.
    pub(super) fn took(&mut self, next: Next, then: Option<Rank>) {
        let head = &self.heads[next.head];
        let taken = self.turn.filter(|(whose, _)| *whose == next.tenant);
        let taken = taken.map_or(0, |(_, taken)| taken % self.quantum);
        self.turn = Some((next.tenant, taken + 1));
        let Tenant { id, weight, streams, .. } = &self.tenants[next.tenant];
        self.turns.tenants.take(id, *weight, taken == 0);
        if matches!(streams[next.stream], Stream::ByKey(_)) {
            let place = (head.tenant.clone(), head.queue.clone());
            self.turns.keys.entry(place).or_default().take(&head.lane, 1, true);
        }
        self.go_on(next, then);
    }

    fn go_on(&mut self, next: Next, then: Option<Rank>) {
        let turn = self.key_turn_if_any(next);
        let tenant = &mut self.tenants[next.tenant];
        let rank = match &mut tenant.streams[next.stream] {
            Stream::One(_) => then,
            Stream::ByKey(keys) => {
                keys.extend(then.map(|rank| Reverse((turn, rank, next.head))));
                keys.peek().map(|Reverse((_, rank, _))| *rank)
            }
        };
        tenant.next.extend(rank.map(|rank| Reverse((rank, next.stream))));
        self.put_back(next.tenant);
    }

    fn key_turn_if_any(&self, next: Next) -> u64 {
        match self.tenants[next.tenant].streams[next.stream] {
            Stream::One(_) => 0,
            Stream::ByKey(_) => self.key_turn(&self.heads[next.head]),
        }
    }
}

/// Gives back the turns that were taken for so many jobs of a head, if they are not granted after all.
pub(super) fn give_back(head: &Head<'_>, count: usize, rules: &[Rule], turns: &mut Turns) {
    turns.tenants.give_back(head.tenant, weight_of(rules, head.tenant), count);
    if keys_take_turns(rules, head.queue)
        && let Some(keys) = turns.keys.get_mut(&(head.tenant.clone(), head.queue.clone()))
    {
        keys.give_back(&head.lane, 1, count);
    }
}

fn weight_of(rules: &[Rule], tenant: &TenantId) -> u32 {
    let weight = rules.iter().find_map(|rule| match rule.says {
        Says::Weight { weight } if rule.scope.tenant.as_ref() == Some(tenant) => Some(weight),
        _ => None,
    });
    weight.unwrap_or(1)
}

fn keys_take_turns(rules: &[Rule], queue: &Queue) -> bool {
    let says = |rule: &Rule| rule.says == Says::TurnsByKey;
    rules.iter().any(|rule| says(rule) && rule.scope.queue.as_ref() == Some(queue))
}
