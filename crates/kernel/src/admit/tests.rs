//! Who may claim how many, case by case and for random heads and limits.

use std::{collections::BTreeMap, time::Duration};

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
    let heads = vec![head("q", "big", "k", &[1, 2, 3, 4]), head("q", "new", "k", &[5, 6, 7, 8])];
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
