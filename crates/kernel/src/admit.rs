//! Admit: who may claim how many.
//!
//! Jobs that can be claimed come in heads, one for each queue, tenant and kind. `admit` shares a
//! worker's free slots out among them. It never breaks a limit and leaves no slot empty while a job
//! that may have it waits. The order is by [`Rank`], so that whatever waits gets its turn; with turns
//! switched on, tenants take turns by weight first.
//!
//! What holds a slot is counted from leases by the caller, so a crash cannot leak one.

use std::{collections::BTreeMap, time::Duration};

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

/// Every limit that applies to the heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// What is paused.
    pub paused: Vec<Scope>,
    /// What is limited.
    pub limits: Vec<Limit>,
    /// Turns between tenants, if they take turns.
    pub turns: Option<Turns>,
}

/// What a limit or a pause applies to: everything that agrees with all that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// This queue only.
    pub queue: Option<Queue>,
    /// This tenant only.
    pub tenant: Option<TenantId>,
    /// This kind only.
    pub kind: Option<Kind>,
}

impl Scope {
    fn covers(&self, head: &Head) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == head.queue)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == head.tenant)
            && self.kind.as_ref().is_none_or(|kind| *kind == head.kind)
    }
}

/// A limit and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it applies to.
    pub scope: Scope,
    /// How many may be held at once.
    pub concurrency: Option<Concurrency>,
    /// How many may begin in a time.
    pub rate: Option<Rate>,
}

impl Limit {
    /// How many more may be claimed now.
    fn room(&self, now: Timestamp) -> usize {
        let slots = self.concurrency.map_or(usize::MAX, |c| c.max.saturating_sub(c.held));
        slots.min(self.rate.map_or(usize::MAX, |rate| rate.room(now)))
    }

    fn take(&mut self, now: Timestamp) {
        if let Some(concurrency) = &mut self.concurrency {
            concurrency.held += 1;
        }
        if let Some(rate) = &mut self.rate {
            rate.take(now);
        }
    }
}

/// How many leases there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// The limit.
    pub max: usize,
    /// Leases that count against it now.
    pub held: usize,
}

/// How many jobs may be claimed in a time: a bucket that fills evenly and holds `count`.
///
/// Its whole state is one instant, so it can be kept in a row and shared by all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// This many …
    pub count: u32,
    /// … in this time.
    pub per: Duration,
    /// When the bucket is full again.
    pub full_at: Timestamp,
}

impl Rate {
    /// The time in which the bucket gains one, rounded up, so that the rate is never exceeded.
    fn interval(&self) -> Duration {
        let micros = self.per.as_micros().div_ceil(u128::from(self.count.max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).max(1))
    }

    fn room(&self, now: Timestamp) -> usize {
        let interval = self.interval().as_micros();
        let missing = self.full_at.since(now).as_micros().div_ceil(interval);
        usize::try_from(u128::from(self.count).saturating_sub(missing)).unwrap_or(usize::MAX)
    }

    fn take(&mut self, now: Timestamp) {
        self.full_at = self.full_at.max(now).plus(self.interval());
    }
}

/// Turns between tenants: whoever had least for its weight is next.
///
/// Each claim costs its tenant [`Turns::COST`] divided by its weight. A tenant that was away begins
/// where the others are, so it can neither save turns up nor be punished for earlier ones. Between two
/// tenants that both have work, neither gets ahead of its share by more than one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Where the turns are.
    pub at: u64,
    /// What each tenant has had, on the same scale.
    pub had: BTreeMap<TenantId, u64>,
    /// The weight of each tenant; 1, if nothing is said.
    pub weights: BTreeMap<TenantId, u32>,
}

impl Turns {
    /// What one claim costs a tenant of weight 1.
    pub const COST: u64 = 1 << 20;

    fn next(&self, tenant: &TenantId) -> u64 {
        self.had.get(tenant).copied().unwrap_or(0).max(self.at)
    }

    fn take(&mut self, tenant: &TenantId) {
        let weight = u64::from(self.weights.get(tenant).copied().unwrap_or(1).max(1));
        let turn = self.next(tenant);
        self.at = turn;
        self.had.insert(tenant.clone(), turn + (Self::COST / weight).max(1));
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn head(queue: &str, tenant: &str, kind: &str, ranks: &[i64]) -> Head {
        Head {
            queue: Queue::new(queue).unwrap(),
            tenant: TenantId::new(tenant).unwrap(),
            kind: Kind::new(kind).unwrap(),
            ranks: ranks.iter().copied().map(Rank).collect(),
            isolated_since: None,
        }
    }

    fn isolated(rank: i64, since: i64) -> Head {
        Head { isolated_since: Some(at(since)), ..head("q", "t", "poison", &[rank]) }
    }

    fn request(max: usize, heads: Vec<Head>) -> Request {
        Request { max, held: 0, holds_isolated: false, heads }
    }

    fn on_queue(queue: &str) -> Scope {
        Scope { queue: Some(Queue::new(queue).unwrap()), ..Scope::default() }
    }

    fn on_tenant(tenant: &str) -> Scope {
        Scope { tenant: Some(TenantId::new(tenant).unwrap()), ..Scope::default() }
    }

    fn on_kind(kind: &str) -> Scope {
        Scope { kind: Some(Kind::new(kind).unwrap()), ..Scope::default() }
    }

    fn concurrency(scope: Scope, max: usize, held: usize) -> Limits {
        let limit = Limit { scope, concurrency: Some(Concurrency { max, held }), rate: None };
        Limits { limits: vec![limit], ..Limits::default() }
    }

    /// What each head gets.
    fn shares(request: &Request, limits: &Limits, now: Timestamp) -> Vec<usize> {
        let mut shares = vec![0; request.heads.len()];
        for quota in admit(request, limits, now).quotas {
            shares[quota.head] = quota.take;
        }
        shares
    }

    #[test]
    fn the_best_ranks_come_first_whatever_their_queue() {
        let heads = vec![head("a", "t", "k", &[1, 4, 5]), head("b", "t", "k", &[2, 3, 9])];
        let none = Limits::default();
        assert_eq!(shares(&request(1, heads.clone()), &none, at(0)), [1, 0]);
        assert_eq!(shares(&request(3, heads.clone()), &none, at(0)), [1, 2]);
        assert_eq!(shares(&request(9, heads.clone()), &none, at(0)), [3, 3]);
        assert_eq!(shares(&request(0, heads), &none, at(0)), [0, 0]);
    }

    #[test]
    fn an_urgent_job_goes_first_until_others_have_aged() {
        let rank = |due, priority| Rank::new(at(due), crate::job::Priority(priority));
        assert!(rank(100, -1) < rank(100, 0));
        assert!(rank(100, 0) < rank(99, 1));
        assert!(rank(30, 1) < rank(100, 0), "a minute of waiting is worth one step");
    }

    #[test]
    fn a_pause_holds_what_it_covers() {
        let heads = vec![head("a", "t", "k", &[1]), head("b", "u", "l", &[2])];
        for scope in [on_queue("a"), on_tenant("t"), on_kind("k")] {
            let limits = Limits { paused: vec![scope], ..Limits::default() };
            assert_eq!(shares(&request(5, heads.clone()), &limits, at(0)), [0, 1]);
        }
        let all = Limits { paused: vec![Scope::default()], ..Limits::default() };
        assert_eq!(shares(&request(5, heads.clone()), &all, at(0)), [0, 0]);
        let other = Scope { tenant: Some(TenantId::new("u").unwrap()), ..on_queue("a") };
        let neither = Limits { paused: vec![other], ..Limits::default() };
        assert_eq!(shares(&request(5, heads), &neither, at(0)), [1, 1]);
    }

    #[test]
    fn a_concurrency_limit_counts_what_is_held() {
        let heads = vec![head("a", "t", "k", &[1, 2, 3]), head("b", "u", "l", &[4, 5, 6])];
        for scope in [on_queue("a"), on_tenant("t"), on_kind("k")] {
            let limits = concurrency(scope, 3, 1);
            assert_eq!(shares(&request(9, heads.clone()), &limits, at(0)), [2, 3]);
        }
        assert_eq!(
            shares(&request(9, heads.clone()), &concurrency(Scope::default(), 4, 2), at(0)),
            [2, 0]
        );
        assert_eq!(shares(&request(9, heads), &concurrency(on_queue("a"), 3, 7), at(0)), [0, 3]);
    }

    fn rate(count: u32, full_at: Timestamp) -> Limits {
        let rate = Rate { count, per: Duration::from_secs(10), full_at };
        let limit = Limit { scope: on_queue("a"), concurrency: None, rate: Some(rate) };
        Limits { limits: vec![limit], ..Limits::default() }
    }

    #[test]
    fn a_rate_limit_fills_up_again_evenly() {
        let request = request(9, vec![head("a", "t", "k", &[1, 2, 3, 4, 5, 6, 7, 8, 9])]);
        let first = admit(&request, &rate(5, Timestamp::MIN), at(100));
        assert_eq!(first.quotas[0].take, 5, "a full bucket holds its count");
        let after = first.limits;
        assert_eq!(after.limits[0].rate.unwrap().full_at, at(110));
        assert_eq!(shares(&request, &after, at(100)), [0]);
        assert_eq!(shares(&request, &after, at(101)), [0]);
        assert_eq!(shares(&request, &after, at(102)), [1]);
        assert_eq!(shares(&request, &after, at(107)), [3]);
        assert_eq!(shares(&request, &after, at(500)), [5], "it never holds more");
        assert_eq!(shares(&request, &rate(0, Timestamp::MIN), at(100)), [0], "none means none");
    }

    #[test]
    fn an_uneven_rate_is_rounded_down() {
        let third = Rate { count: 3, per: Duration::from_micros(10), full_at: Timestamp::MIN };
        assert_eq!(third.interval(), Duration::from_micros(4));
        let fast = Rate { count: u32::MAX, per: Duration::from_micros(1), full_at: Timestamp::MIN };
        assert_eq!(fast.interval(), Duration::from_micros(1));
    }

    #[test]
    fn tenants_take_turns_by_weight() {
        let many: Vec<i64> = (0..100).collect();
        let late: Vec<i64> = (1_000..1_100).collect();
        let heads = vec![head("q", "big", "k", &many), head("q", "small", "k", &late)];
        let mut limits = Limits { turns: Some(Turns::default()), ..Limits::default() };
        assert_eq!(shares(&request(10, heads.clone()), &limits, at(0)), [5, 5]);
        let weights = BTreeMap::from([(TenantId::new("small").unwrap(), 4)]);
        limits.turns = Some(Turns { weights, ..Turns::default() });
        assert_eq!(shares(&request(10, heads.clone()), &limits, at(0)), [2, 8]);
        assert_eq!(shares(&request(10, heads), &Limits::default(), at(0)), [10, 0]);
    }

    #[test]
    fn turns_are_remembered_from_claim_to_claim() {
        let heads = vec![head("q", "big", "k", &[1, 2]), head("q", "small", "k", &[100, 101])];
        let mut limits = Limits { turns: Some(Turns::default()), ..Limits::default() };
        let mut had = [0, 0];
        for _ in 0..10 {
            let admission = admit(&request(1, heads.clone()), &limits, at(0));
            had[admission.quotas[0].head] += 1;
            limits = admission.limits;
        }
        assert_eq!(had, [5, 5]);
    }

    #[test]
    fn a_tenant_that_was_away_saves_no_turns_up() {
        let busy = TenantId::new("big").unwrap();
        let had = BTreeMap::from([(busy, 50 * Turns::COST)]);
        let turns = Turns { at: 49 * Turns::COST, had, ..Turns::default() };
        let limits = Limits { turns: Some(turns), ..Limits::default() };
        let heads =
            vec![head("q", "big", "k", &[1, 2, 3, 4]), head("q", "new", "k", &[5, 6, 7, 8])];
        assert_eq!(shares(&request(4, heads), &limits, at(0)), [2, 2]);
    }

    #[test]
    fn a_job_that_must_be_alone_is_taken_alone_and_only_by_an_idle_worker() {
        let heads = vec![isolated(1, 0), head("q", "t", "k", &[2, 3])];
        let none = Limits::default();
        let first = admit(&request(5, heads.clone()), &none, at(1));
        assert_eq!(first.quotas, [Quota { head: 0, take: 1, alone: true }]);
        let busy = Request { held: 1, ..request(5, heads.clone()) };
        let beside = admit(&busy, &none, at(1));
        assert_eq!(beside.quotas, [Quota { head: 1, take: 2, alone: false }]);
        let holder = Request { holds_isolated: true, held: 1, ..request(5, heads) };
        assert_eq!(admit(&holder, &none, at(1)).quotas, []);
    }

    #[test]
    fn a_job_that_must_be_alone_comes_in_its_turn() {
        let heads = vec![isolated(9, 0), head("q", "t", "k", &[2, 3])];
        assert_eq!(shares(&request(5, heads), &Limits::default(), at(1)), [0, 2]);
    }

    #[test]
    fn a_busy_worker_drains_for_a_job_that_waited_too_long_to_be_alone() {
        let heads = vec![isolated(9, 0), head("q", "t", "k", &[2, 3])];
        let busy = Request { held: 1, ..request(5, heads.clone()) };
        let none = Limits::default();
        assert_eq!(shares(&busy, &none, at(9)), [0, 2]);
        assert_eq!(shares(&busy, &none, at(10)), [0, 0]);
        assert_eq!(shares(&request(5, heads.clone()), &none, at(9)), [0, 2]);
        assert_eq!(shares(&request(5, heads.clone()), &none, at(10)), [1, 0]);
        assert_eq!(shares(&request(0, heads.clone()), &none, at(10)), [0, 0]);
        let paused = Limits { paused: vec![on_kind("poison")], ..Limits::default() };
        assert_eq!(shares(&busy, &paused, at(10)), [0, 2], "nobody drains for what is paused");
    }

    fn any_head() -> impl Strategy<Value = Head> {
        let ranks = prop::collection::vec(0i64..50, 0..6);
        (0..3usize, 0..3usize, 0..3usize, ranks, prop::option::weighted(0.2, 0i64..30)).prop_map(
            |(queue, tenant, kind, mut ranks, since)| {
                ranks.sort_unstable();
                let head = head(
                    ["a", "b", "c"][queue],
                    ["t", "u", "v"][tenant],
                    ["k", "l", "m"][kind],
                    &ranks,
                );
                Head { isolated_since: since.map(at), ..head }
            },
        )
    }

    fn any_limit() -> impl Strategy<Value = Limit> {
        let scope = (0..4usize, 0..3usize).prop_map(|(what, which)| match what {
            0 => on_queue(["a", "b", "c"][which]),
            1 => on_tenant(["t", "u", "v"][which]),
            2 => on_kind(["k", "l", "m"][which]),
            _ => Scope::default(),
        });
        let concurrency = prop::option::of((0..6usize, 0..4usize));
        let rate = prop::option::of((0..6u32, 0..40i64));
        (scope, concurrency, rate).prop_map(|(scope, concurrency, rate)| Limit {
            scope,
            concurrency: concurrency.map(|(max, held)| Concurrency { max, held }),
            rate: rate.map(|(count, full)| Rate {
                count,
                per: Duration::from_secs(10),
                full_at: at(full),
            }),
        })
    }

    proptest! {
        #[test]
        fn no_limit_is_broken_and_no_slot_stays_empty_without_reason(
            heads in prop::collection::vec(any_head(), 0..6),
            limits in prop::collection::vec(any_limit(), 0..4),
            turns in any::<bool>(),
            max in 0..12usize,
            held in 0..2usize,
        ) {
            let now = at(20);
            let turns = turns.then(Turns::default);
            let limits = Limits { limits, turns, ..Limits::default() };
            let request = Request { max, held, holds_isolated: false, heads };
            let admission = admit(&request, &limits, now);
            let total: usize = admission.quotas.iter().map(|quota| quota.take).sum();
            prop_assert!(total <= max);
            for limit in &limits.limits {
                let covered = admission.quotas.iter().filter(|q| limit.scope.covers(&request.heads[q.head]));
                prop_assert!(covered.map(|q| q.take).sum::<usize>() <= limit.room(now));
            }
            let taken_alone = admission.quotas.iter().any(|quota| quota.alone);
            prop_assert!(!taken_alone || (total == 1 && held == 0));
            for quota in &admission.quotas {
                let head = &request.heads[quota.head];
                prop_assert!(quota.take <= head.ranks.len());
                prop_assert_eq!(quota.alone, head.isolated_since.is_some());
            }
            let may_have_more = |place: usize| {
                let head = &request.heads[place];
                let quota = admission.quotas.iter().find(|quota| quota.head == place);
                quota.map_or(0, |quota| quota.take) < head.ranks.len()
                    && admission.limits.limits.iter().all(|l| !l.scope.covers(head) || l.room(now) > 0)
            };
            let places = 0..request.heads.len();
            let is_isolated = |place: &usize| request.heads[*place].isolated_since.is_some();
            let drains = held > 0 && places.clone().any(|place| is_isolated(&place) && may_have_more(place));
            if total < max && !taken_alone && !drains {
                for place in places.filter(|place| !is_isolated(place) || total == 0 && held == 0) {
                    prop_assert!(!may_have_more(place), "head {} waits and a slot is free", place);
                }
            }
        }
    }
}
