//! Who may claim how many, case by case and for random heads and rules.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    Actor,
    rule::{Breaker, BreakerState, Budget, Each, Rate, RateState, Says, Scope},
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000 + seconds * 1_000_000)
}

/// A head that owns its names.
#[derive(Clone, Debug)]
struct Own {
    queue: Queue,
    tenant: TenantId,
    kind: Kind,
    lane: Lane,
    retries: bool,
    ranks: Vec<Rank>,
    isolated_since: Option<Timestamp>,
}

impl Own {
    fn lent(&self) -> Head<'_> {
        Head {
            queue: &self.queue,
            tenant: &self.tenant,
            kind: &self.kind,
            lane: self.lane,
            retries: self.retries,
            ranks: (&self.ranks[..]).into(),
            isolated_since: self.isolated_since,
        }
    }

    fn keyed(self, key: i64) -> Self {
        Self { lane: Lane::new(key), ..self }
    }
}

fn head(queue: &str, tenant: &str, kind: &str, ranks: &[i64]) -> Own {
    Own {
        queue: Queue::new(queue).unwrap(),
        tenant: TenantId::new(tenant).unwrap(),
        kind: Kind::new(kind).unwrap(),
        lane: Lane::NONE,
        retries: false,
        ranks: ranks.iter().copied().map(Rank).collect(),
        isolated_since: None,
    }
}

fn isolated(rank: i64, since: i64) -> Own {
    Own { isolated_since: Some(at(since)), ..head("q", "t", "poison", &[rank]) }
}

/// A worker that wants so many, and holds so many.
#[derive(Clone, Copy)]
struct Wants(usize, usize);

/// What is held and remembered: as it was before, and with what was admitted.
#[derive(Clone, Debug, Default)]
struct Ledger {
    held: RefCell<BTreeMap<(RuleName, Part), usize>>,
    states: BTreeMap<(RuleName, Part), RuleState>,
}

impl Books for Ledger {
    fn held(&self, rule: &Rule, part: &Part) -> usize {
        self.held.borrow().get(&(rule.name.clone(), part.clone())).copied().unwrap_or(0)
    }

    fn state(&self, rule: &Rule, part: &Part) -> Option<RuleState> {
        self.states.get(&(rule.name.clone(), part.clone())).copied()
    }
}

impl Ledger {
    fn holds(rule: &str, part: Part, held: usize) -> Self {
        let held = BTreeMap::from([((RuleName::new(rule).unwrap(), part), held)]);
        Self { held: held.into(), ..Self::default() }
    }

    fn remembers(rule: &str, state: RuleState) -> Self {
        let states = BTreeMap::from([((RuleName::new(rule).unwrap(), Part::All), state)]);
        Self { states, ..Self::default() }
    }

    /// What it is after this was taken.
    fn after(mut self, heads: &[Own], rules: &[Rule], admission: &Admission) -> Self {
        for quota in &admission.quotas {
            let head = &heads[quota.head];
            for rule in rules.iter().filter(|rule| rule.restrains()) {
                if rule.scope.covers(&head.queue, &head.tenant, &head.kind)
                    && let Some(part) = Part::of_head(rule.says.each(), &head.lent())
                {
                    *self.held.get_mut().entry((rule.name.clone(), part)).or_default() +=
                        quota.take;
                }
            }
        }
        let states = admission.states.iter().cloned();
        self.states.extend(states.map(|(rule, part, state)| ((rule, part), state)));
        self
    }
}

fn rule(name: &str, scope: Scope, says: Says) -> Rule {
    Rule {
        name: RuleName::new(name).unwrap(),
        scope,
        says,
        by: Actor::Scheduler,
        reason: None,
        since: at(0),
    }
}

fn on_queue(queue: &str) -> Scope {
    Scope::queue(Queue::new(queue).unwrap())
}

fn on_tenant(tenant: &str) -> Scope {
    Scope::tenant(TenantId::new(tenant).unwrap())
}

fn on_kind(kind: &str) -> Scope {
    Scope::kind(Kind::new(kind).unwrap())
}

fn at_most(max: u32, each: Each) -> Says {
    Says::Concurrency { max, each }
}

fn ask(
    wants: Wants,
    heads: &[Own],
    rules: &[Rule],
    books: &Ledger,
    turns: &mut Turns,
    now: Timestamp,
) -> Admission {
    let Wants(max, held) = wants;
    let heads = heads.iter().map(Own::lent).collect();
    let request = Request { max, held, holds_isolated: false, heads };
    admit(&request, rules, books, turns, now)
}

/// What each head gets of so many slots.
fn shares(max: usize, heads: &[Own], rules: &[Rule], books: &Ledger) -> Vec<usize> {
    let admission = ask(Wants(max, 0), heads, rules, books, &mut Turns::default(), at(20));
    shares_of(&admission, heads)
}

fn shares_of(admission: &Admission, heads: &[Own]) -> Vec<usize> {
    let mut shares = vec![0; heads.len()];
    admission.quotas.iter().for_each(|quota| shares[quota.head] = quota.take);
    shares
}

#[test]
fn the_best_ranks_come_first_whatever_their_queue() {
    let heads = [head("a", "t", "k", &[1, 4, 5]), head("b", "t", "k", &[2, 3, 9])];
    let none = Ledger::default();
    assert_eq!(shares(1, &heads, &[], &none), [1, 0]);
    assert_eq!(shares(3, &heads, &[], &none), [1, 2]);
    assert_eq!(shares(9, &heads, &[], &none), [3, 3]);
    assert_eq!(shares(0, &heads, &[], &none), [0, 0]);
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
    let heads = [head("a", "t", "k", &[1]), head("b", "u", "l", &[2])];
    let none = Ledger::default();
    for scope in [on_queue("a"), on_tenant("t"), on_kind("k")] {
        assert_eq!(shares(5, &heads, &[rule("stop", scope, Says::Pause)], &none), [0, 1]);
    }
    let all = rule("stop", Scope::default(), Says::Pause);
    assert_eq!(shares(5, &heads, &[all], &none), [0, 0]);
    let other = Scope { tenant: Some(TenantId::new("u").unwrap()), ..on_queue("a") };
    assert_eq!(shares(5, &heads, &[rule("stop", other, Says::Pause)], &none), [1, 1]);
}

#[test]
fn a_drain_a_weight_and_turns_keep_nothing_back() {
    let heads = [head("a", "t", "k", &[1])];
    for says in [Says::Drain, Says::Weight { weight: 2 }, Says::TurnsByKey] {
        assert_eq!(shares(5, &heads, &[rule("r", on_queue("a"), says)], &Ledger::default()), [1]);
    }
}

#[test]
fn a_limit_counts_what_is_held() {
    let heads = [head("a", "t", "k", &[1, 2, 3]), head("b", "t", "l", &[4, 5, 6])];
    for scope in [on_queue("a"), on_kind("k")] {
        let rules = [rule("max", scope, at_most(3, Each::Together))];
        assert_eq!(shares(9, &heads, &rules, &Ledger::holds("max", Part::All, 1)), [2, 3]);
    }
    let rules = [rule("max", Scope::default(), at_most(4, Each::Together))];
    assert_eq!(shares(9, &heads, &rules, &Ledger::holds("max", Part::All, 2)), [2, 0]);
    let rules = [rule("max", on_queue("a"), at_most(3, Each::Together))];
    assert_eq!(shares(9, &heads, &rules, &Ledger::holds("max", Part::All, 7)), [0, 3]);
}

#[test]
fn a_limit_of_each_counts_each_by_itself() {
    let heads = [
        head("a", "t", "k", &[1, 2, 3]).keyed(7),
        head("a", "t", "l", &[4, 5, 6]).keyed(8),
        head("a", "u", "k", &[7, 8, 9]),
    ];
    let none = Ledger::default();
    let max = |each| [rule("max", Scope::default(), at_most(2, each))];
    assert_eq!(shares(9, &heads, &max(Each::Together), &none).iter().sum::<usize>(), 2);
    assert_eq!(shares(9, &heads, &max(Each::Tenant), &none), [2, 0, 2]);
    assert_eq!(shares(9, &heads, &max(Each::Kind), &none), [1, 2, 1]);
    assert_eq!(shares(9, &heads, &max(Each::Key), &none), [2, 2, 3], "without a key, no limit");
    let held = Ledger::holds("max", Part::Key(Lane::new(7)), 1);
    assert_eq!(shares(9, &heads, &max(Each::Key), &held), [1, 2, 3]);
}

#[test]
fn a_rate_lets_as_many_go_as_its_bucket_holds_and_says_when_more() {
    let rate =
        Rate { count: 10, per: Duration::from_secs(1), burst: Some(2), each: Each::Together };
    let rules = [rule("rate", on_queue("a"), Says::Rate(rate))];
    let heads = [head("a", "t", "k", &[1, 2, 3])];
    let none = Ledger::default();
    let first = ask(Wants(9, 0), &heads, &rules, &none, &mut Turns::default(), at(20));
    assert_eq!(shares_of(&first, &heads), [2]);
    assert_eq!(first.again_at, Some(at(20).plus(Duration::from_millis(100))));
    let then = none.after(&heads, &rules, &first);
    assert_eq!(shares(9, &heads, &rules, &then), [0]);
}

#[test]
fn a_breaker_that_is_open_lets_none_go_and_then_a_few() {
    let breaker = Breaker { probes: 2, ..Breaker::default() };
    let rules = [rule("stripe", on_kind("k"), Says::Breaker(breaker))];
    let heads = [head("a", "t", "k", &[1, 2, 3]), head("a", "t", "l", &[4])];
    let opened = |until| {
        let opened_at = Some(at(0));
        let state = BreakerState {
            failures: 5,
            opened_at,
            open_until: Some(at(until)),
            times: 1,
            allowed: 0,
        };
        Ledger::remembers("stripe", RuleState::Breaker(state))
    };
    let open = ask(Wants(9, 0), &heads, &rules, &opened(30), &mut Turns::default(), at(20));
    assert_eq!((shares_of(&open, &heads), open.again_at), (vec![0, 1], Some(at(30))));
    assert_eq!(shares(9, &heads, &rules, &opened(20)), [2, 1], "two are tried");
}

#[test]
fn a_retry_budget_bounds_retries_and_nothing_else() {
    let budget = Budget { percent: 50, per_minute: 60 };
    let rules = [rule("again", Scope::default(), Says::RetryBudget(budget))];
    let retries = Own { retries: true, ..head("a", "t", "k", &[1, 2, 3, 4]) };
    let heads = [retries, head("a", "t", "k", &[5, 6, 7, 8])];
    let none = Ledger::default();
    let first = ask(Wants(9, 0), &heads, &rules, &none, &mut Turns::default(), at(20));
    assert_eq!(shares_of(&first, &heads), [1, 4], "one in a second is always allowed");
    let then = none.after(&heads, &rules, &first);
    assert_eq!(shares(9, &heads[..1], &rules, &then), [2], "four first tries pay for two");
}

#[test]
fn every_rule_that_keeps_a_job_is_named() {
    let own = head("a", "t", "k", &[1]);
    let rate = Rate { count: 0, per: Duration::from_secs(1), burst: None, each: Each::Together };
    let rules = [
        rule("night", on_tenant("t"), Says::Pause),
        rule("none", on_kind("k"), Says::Rate(rate)),
        rule("other", on_kind("l"), Says::Pause),
        rule("two", on_queue("a"), at_most(2, Each::Together)),
    ];
    let found = blocked(&own.lent(), &rules, &Ledger::holds("two", Part::All, 2), at(20));
    let found: Vec<_> = found.iter().map(|it| (it.rule.as_str(), it.because)).collect();
    let expected = [
        ("night", Because::Paused),
        ("none", Because::RateReached),
        ("two", Because::NoSlot { max: 2, held: 2 }),
    ];
    assert_eq!(found, expected);
}

#[test]
fn tenants_take_turns_by_weight() {
    let many: Vec<i64> = (0..100).collect();
    let late: Vec<i64> = (1_000..1_100).collect();
    let heads = [head("q", "big", "k", &many), head("q", "small", "k", &late)];
    let none = Ledger::default();
    assert_eq!(shares(10, &heads, &[], &none), [5, 5]);
    let weight = rule("gold", on_tenant("small"), Says::Weight { weight: 4 });
    assert_eq!(shares(10, &heads, &[weight], &none), [2, 8]);
}

#[test]
fn in_a_large_claim_a_turn_is_a_few_jobs() {
    let many: Vec<i64> = (0..1_000).collect();
    let names: Vec<String> = (0..100).map(|place| format!("t{place}")).collect();
    let heads: Vec<Own> = names.iter().map(|name| head("q", name, "k", &many)).collect();
    let (mut turns, mut had) = (Turns::default(), vec![0; 100]);
    for _ in 0..9 {
        let claim = ask(Wants(500, 0), &heads, &[], &Ledger::default(), &mut turns, at(0));
        let shares = shares_of(&claim, &heads);
        assert_eq!(shares.iter().sum::<usize>(), 500);
        assert!(shares.iter().filter(|share| **share > 0).count() <= 72, "{shares:?}");
        shares.iter().zip(&mut had).for_each(|(share, had)| *had += share);
    }
    let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
    assert!(most - least <= 500 / Turns::PER_CLAIM, "{least} to {most}");
    let late = [head("q", "a", "k", &many), head("q", "b", "k", &[5_000])];
    assert_eq!(shares(500, &late, &[], &Ledger::default()), [499, 1]);
}

#[test]
fn turns_are_remembered_from_claim_to_claim() {
    let heads = [head("q", "big", "k", &[1, 2]), head("q", "small", "k", &[100, 101])];
    let (mut turns, mut had) = (Turns::default(), [0, 0]);
    for _ in 0..10 {
        let one = ask(Wants(1, 0), &heads, &[], &Ledger::default(), &mut turns, at(0));
        had[one.quotas[0].head] += 1;
    }
    assert_eq!(had, [5, 5]);
}

#[test]
fn a_tenant_that_was_away_saves_no_turns_up() {
    let mut turns = Turns::default();
    let busy = [head("q", "big", "k", &(0..50).collect::<Vec<_>>())];
    ask(Wants(50, 0), &busy, &[], &Ledger::default(), &mut turns, at(0));
    let heads = [head("q", "big", "k", &[1, 2, 3, 4]), head("q", "new", "k", &[5, 6, 7, 8])];
    let next = ask(Wants(4, 0), &heads, &[], &Ledger::default(), &mut turns, at(0));
    assert_eq!(shares_of(&next, &heads), [2, 2]);
}

#[test]
fn keys_take_turns_where_a_rule_says_so() {
    let heads =
        [head("q", "t", "k", &[1, 2, 3, 4]).keyed(1), head("q", "t", "k", &[5, 6, 7, 8]).keyed(2)];
    let none = Ledger::default();
    assert_eq!(shares(4, &heads, &[], &none), [4, 0]);
    let turns = [rule("fair", on_queue("q"), Says::TurnsByKey)];
    assert_eq!(shares(4, &heads, &turns, &none), [2, 2]);
    let elsewhere = [rule("fair", on_queue("p"), Says::TurnsByKey)];
    assert_eq!(shares(4, &heads, &elsewhere, &none), [4, 0]);
}

#[test]
fn a_job_that_must_be_alone_is_taken_alone_and_only_by_an_idle_worker() {
    let heads = [isolated(1, 0), head("q", "t", "k", &[2, 3])];
    let ask_as = |wants| ask(wants, &heads, &[], &Ledger::default(), &mut Turns::default(), at(1));
    assert_eq!(ask_as(Wants(5, 0)).quotas, [Quota { head: 0, take: 1, alone: true }]);
    assert_eq!(ask_as(Wants(5, 1)).quotas, [Quota { head: 1, take: 2, alone: false }]);
    let lent = heads.iter().map(Own::lent).collect();
    let holder = Request { max: 5, held: 1, holds_isolated: true, heads: lent };
    assert_eq!(admit(&holder, &[], &NoBooks, &mut Turns::default(), at(1)).quotas, []);
}

#[test]
fn a_job_that_must_be_alone_comes_in_its_turn() {
    let heads = [isolated(9, 20), head("q", "t", "k", &[2, 3])];
    assert_eq!(shares(5, &heads, &[], &Ledger::default()), [0, 2]);
}

#[test]
fn a_busy_worker_drains_for_a_job_that_waited_too_long_to_be_alone() {
    let heads = [isolated(9, 0), head("q", "t", "k", &[2, 3])];
    let ask_at = |wants, rules: &[Rule], now| {
        shares_of(
            &ask(wants, &heads, rules, &Ledger::default(), &mut Turns::default(), now),
            &heads,
        )
    };
    assert_eq!(ask_at(Wants(5, 1), &[], at(9)), [0, 2]);
    assert_eq!(ask_at(Wants(5, 1), &[], at(10)), [0, 0]);
    assert_eq!(ask_at(Wants(5, 0), &[], at(9)), [0, 2]);
    assert_eq!(ask_at(Wants(5, 0), &[], at(10)), [1, 0]);
    assert_eq!(ask_at(Wants(0, 0), &[], at(10)), [0, 0]);
    let paused = [rule("stop", on_kind("poison"), Says::Pause)];
    assert_eq!(ask_at(Wants(5, 1), &paused, at(10)), [0, 2], "nobody drains for what is paused");
}

fn any_head() -> impl Strategy<Value = Own> {
    let ranks = prop::collection::vec(0i64..50, 0..6);
    let place = (0..3usize, 0..3usize, 0..3usize, 0..3i64);
    (place, ranks, prop::option::weighted(0.2, 0i64..30), any::<bool>()).prop_map(
        |((queue, tenant, kind, key), mut ranks, since, retries)| {
            ranks.sort_unstable();
            let (queue, tenant) = (["a", "b", "c"][queue], ["t", "u", "v"][tenant]);
            let head = head(queue, tenant, ["k", "l", "m"][kind], &ranks).keyed(key);
            Own { isolated_since: since.map(at), retries, ..head }
        },
    )
}

fn any_scope() -> impl Strategy<Value = Scope> {
    (0..4usize, 0..3usize).prop_map(|(what, which)| match what {
        0 => on_queue(["a", "b", "c"][which]),
        1 => on_tenant(["t", "u", "v"][which]),
        2 => on_kind(["k", "l", "m"][which]),
        _ => Scope::default(),
    })
}

fn any_says() -> impl Strategy<Value = Says> {
    let each = prop::sample::select(Each::ALL);
    let rate = (0..6u32, prop::sample::select(Each::ALL)).prop_map(|(count, each)| {
        let burst = Some(count).filter(|count| *count > 0);
        Says::Rate(Rate { count, per: Duration::from_secs(10), burst, each })
    });
    prop_oneof![
        4 => (0..6u32, each).prop_map(|(max, each)| at_most(max, each)),
        3 => rate,
        1 => Just(Says::Pause),
        1 => (0..200u32, 1..60u32).prop_map(|(percent, per_minute)| {
            Says::RetryBudget(Budget { percent, per_minute })
        }),
        1 => (1..9u32).prop_map(|weight| Says::Weight { weight }),
        1 => Just(Says::TurnsByKey),
    ]
}

fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
    let rules = prop::collection::vec((any_scope(), any_says()), 0..5);
    rules.prop_map(|rules| {
        let named = rules.into_iter().enumerate();
        named.map(|(place, (scope, says))| rule(&format!("r{place}"), scope, says)).collect()
    })
}

/// Everything that a rule covers, by part, and how much of it is taken.
fn taken(rule: &Rule, heads: &[Own], admission: &Admission) -> BTreeMap<Part, Vec<(usize, bool)>> {
    let mut taken: BTreeMap<Part, Vec<(usize, bool)>> = BTreeMap::new();
    for quota in &admission.quotas {
        let head = &heads[quota.head];
        if rule.scope.covers(&head.queue, &head.tenant, &head.kind)
            && let Some(part) = Part::of_head(rule.says.each(), &head.lent())
        {
            taken.entry(part).or_default().push((quota.take, head.retries));
        }
    }
    taken
}

fn total(taken: &[(usize, bool)]) -> usize {
    taken.iter().map(|(take, _)| take).sum()
}

proptest! {
    #[test]
    fn no_rule_is_broken_and_no_slot_stays_empty_without_reason(
        heads in prop::collection::vec(any_head(), 0..8),
        rules in any_rules(),
        held in 0..3usize,
        full_in in 0..12i64,
        max in 0..12usize,
        busy in 0..2usize,
    ) {
        let now = at(20);
        let mut books = Ledger::default();
        for rule in &rules {
            for head in &heads {
                let Some(part) = Part::of_head(rule.says.each(), &head.lent()) else { continue };
                let key = (rule.name.clone(), part);
                books.held.get_mut().insert(key.clone(), held);
                if matches!(rule.says, Says::Rate(_)) {
                    books.states.insert(key, RuleState::Rate(RateState { full_at: at(20 + full_in) }));
                }
            }
        }
        let wants = Wants(max, busy);
        let admission = ask(wants, &heads, &rules, &books, &mut Turns::default(), now);
        let granted: usize = admission.quotas.iter().map(|quota| quota.take).sum();
        prop_assert!(granted <= max);
        for rule in &rules {
            for (part, taken) in taken(rule, &heads, &admission) {
                let limit = match &rule.says {
                    Says::Pause => 0,
                    Says::Concurrency { max, .. } => (*max as usize).saturating_sub(held),
                    Says::Rate(rate) => rate.room(RateState { full_at: at(20 + full_in) }, now),
                    _ => usize::MAX,
                };
                prop_assert!(total(&taken) <= limit, "{:?} of {}", part, rule.name);
                if let Says::RetryBudget(budget) = &rule.says {
                    let retries: usize = taken.iter().filter(|it| it.1).map(|it| it.0).sum();
                    let first = total(&taken) - retries;
                    let always = budget.room(Default::default(), now);
                    prop_assert!(retries <= always + first * budget.percent as usize / 100);
                }
            }
        }
        let taken_alone = admission.quotas.iter().any(|quota| quota.alone);
        prop_assert!(!taken_alone || (granted == 1 && busy == 0));
        for quota in &admission.quotas {
            let head = &heads[quota.head];
            prop_assert!(quota.take <= head.ranks.len());
            prop_assert_eq!(quota.alone, head.isolated_since.is_some());
        }
        // Work-conserving: whoever gets less than it has is kept back by a rule, as the rules stand afterwards.
        let shares = shares_of(&admission, &heads);
        let after = books.after(&heads, &rules, &admission);
        let may_have_more = |place: usize| {
            shares[place] < heads[place].ranks.len()
                && blocked(&heads[place].lent(), &rules, &after, now).is_empty()
        };
        let is_isolated = |place: &usize| heads[*place].isolated_since.is_some();
        let places = 0..heads.len();
        let drains = busy > 0 && places.clone().any(|place| is_isolated(&place) && may_have_more(place));
        if granted < max && !taken_alone && !drains {
            for place in places.filter(|place| !is_isolated(place) || granted == 0 && busy == 0) {
                // First tries that came later may have paid for it.
                let paid = heads[place].retries && rules.iter().any(|rule| matches!(rule.says, Says::RetryBudget(_)));
                prop_assert!(paid || !may_have_more(place), "head {} waits and a slot is free", place);
            }
        }
    }

    #[test]
    fn with_more_room_no_fewer_go(
        heads in prop::collection::vec(any_head(), 0..8),
        rules in prop::collection::vec((any_scope(), 0..6u32), 0..4),
        more in 1..4u32,
        max in 0..12usize,
    ) {
        // One limit over each set of jobs: then a wider limit never makes room for a job that takes two others' slots.
        let heads: Vec<Own> = heads.into_iter().map(|head| Own { isolated_since: None, ..head }).collect();
        let limits = |by: u32| -> Vec<Rule> {
            let first = rules.iter().take(1).enumerate();
            first.map(|(place, (scope, max))| {
                rule(&format!("r{place}"), scope.clone(), at_most(max + by, Each::Together))
            }).collect()
        };
        let sum = |rules: &[Rule]| shares(max, &heads, rules, &Ledger::default()).iter().sum::<usize>();
        prop_assert!(sum(&limits(0)) <= sum(&limits(more)));
        prop_assert!(sum(&limits(more)) <= sum(&[]));
    }

    #[test]
    fn tenants_that_have_work_are_served_by_their_weights(
        weights in prop::collection::vec(1..6u32, 2..5),
        claims in prop::collection::vec(1..7usize, 1..30),
    ) {
        let names: Vec<String> = (0..weights.len()).map(|place| format!("t{place}")).collect();
        let ranks: Vec<i64> = (0..300).collect();
        let heads: Vec<Own> = names.iter().map(|name| head("q", name, "k", &ranks)).collect();
        let rules: Vec<Rule> = names.iter().zip(&weights).map(|(name, weight)| {
            rule(name, on_tenant(name), Says::Weight { weight: *weight })
        }).collect();
        let (mut turns, mut had) = (Turns::default(), vec![0usize; names.len()]);
        for max in claims {
            let admission = ask(Wants(max, 0), &heads, &rules, &Ledger::default(), &mut turns, at(0));
            shares_of(&admission, &heads).iter().zip(&mut had).for_each(|(take, had)| *had += take);
        }
        // The stated bound: nobody is ahead of another's share by more than one job of its own.
        for (one, other) in (0..had.len()).flat_map(|one| (0..had.len()).map(move |other| (one, other))) {
            let share = |place: usize| had[place] as f64 / f64::from(weights[place]);
            let step = 1.0 / f64::from(weights[one]);
            prop_assert!(share(one) <= share(other) + step + 1e-9, "{:?} of {:?}", had, weights);
        }
    }
}

#[test]
fn turns_that_are_given_back_were_never_taken() {
    let ranks = |from: i64| (from..from + 20).collect::<Vec<i64>>();
    let mut heads: Vec<Own> =
        (0..10).map(|tenant| head("q", &format!("t{tenant}"), "k", &ranks(100 * tenant))).collect();
    heads.push(head("by_key", "t3", "k", &ranks(7)).keyed(1));
    heads.push(head("by_key", "t3", "k", &ranks(8)).keyed(2));
    let scope = Scope { queue: Some(Queue::new("by_key").unwrap()), ..Scope::default() };
    let rules = [rule("keys", scope, Says::TurnsByKey)];
    let lent: Vec<Head<'_>> = heads.iter().map(Own::lent).collect();
    let mut turns = Turns::default();
    let share = |max: usize, turns: &mut Turns| {
        let request = Request { max, held: 0, holds_isolated: false, heads: lent.clone() };
        admit(&request, &rules, &NoBooks, turns, at(0)).quotas
    };
    let mut had = [0; 12];
    for _ in 0..30 {
        let before = turns.clone();
        let quotas = share(25, &mut turns);
        give_back(&lent, &rules, &quotas, &mut turns);
        assert_eq!(share(25, &mut turns.clone()), share(25, &mut before.clone()));
        for quota in share(3, &mut turns) {
            had[quota.head] += quota.take;
        }
    }
    // Turns that were given back count for no tenant.
    assert!(had[..10].iter().enumerate().all(|(place, had)| *had == 9 || place == 3), "{had:?}");
    assert_eq!(had[3] + had[10] + had[11], 9, "{had:?}");
}
