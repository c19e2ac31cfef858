//! Turns: whoever shares a queue with others gets a share of what is claimed, however much the others have.

use std::collections::BTreeMap;

use windlass_kernel::{Says, Scope, TenantId};
use windlass_store::Granted;

use super::rules::{default_queue, enqueue_of, of, put, with_key};
use crate::common::*;

for_each_backend!(
    tenants_take_turns,
    a_tenant_has_turns_by_its_weight,
    keys_take_turns_where_a_rule_says_so,
    without_such_a_rule_keys_wait_in_line,
    a_small_tenant_among_many_is_served_soon,
    jobs_with_keys_and_without_are_all_found,
);

fn fill(test: &TestStore, tenant: &str, from: u128, count: u128) {
    let writes = (from..from + count).map(|number| enqueue_of(tenant, number, plain())).collect();
    assert!(test.commit(writes).iter().all(Result::is_ok));
}

fn by_tenant(granted: &[Granted]) -> BTreeMap<TenantId, usize> {
    let mut counts = BTreeMap::new();
    granted.iter().for_each(|it| *counts.entry(it.job.spec.tenant.clone()).or_default() += 1);
    counts
}

fn tenants_take_turns(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, "acme", 1_000, 200);
    fill(&test, "bolt", 1, 10);
    fill(&test, "core", 2_000, 200);
    let got = test.claim("w1", 1, 12);
    let each = BTreeMap::from(["acme", "bolt", "core"].map(|name| (of(name), 4)));
    assert_eq!(by_tenant(&got), each);
    let mut got: Vec<Granted> = Vec::new();
    for claim in 0..12 {
        got.extend(test.claim("w1", 10 + claim, 1));
    }
    assert_eq!(by_tenant(&got), each, "one by one, too");
    let rest = by_tenant(&test.claim("w1", 100, 10));
    assert_eq!(rest[&of("bolt")], 2);
    assert_eq!(rest.values().sum::<usize>(), 10, "no slot stays empty");
}

fn a_tenant_has_turns_by_its_weight(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, "acme", 1, 100);
    fill(&test, "bolt", 1_000, 100);
    test.write(put("heavy", Scope::tenant(of("bolt")), Says::Weight { weight: 3 })).unwrap();
    let got = by_tenant(&test.claim("w1", 1, 40));
    assert_eq!((got[&of("acme")], got[&of("bolt")]), (10, 30));
}

fn by_key(granted: &[Granted]) -> Vec<usize> {
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    granted.iter().for_each(|it| *counts.entry(it.job.spec.limit_key.clone()).or_default() += 1);
    counts.into_values().collect()
}

fn keys_take_turns_where_a_rule_says_so(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=40 {
        let key = if number <= 30 { "busy" } else { "quiet" };
        test.enqueue(number, with_key(key));
    }
    test.write(put("fair", default_queue(), Says::TurnsByKey)).unwrap();
    assert_eq!(by_key(&test.claim("w1", 1, 10)), [5, 5]);
}

fn without_such_a_rule_keys_wait_in_line(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=20 {
        test.pass(std::time::Duration::from_millis(1));
        test.enqueue(number, with_key(if number <= 15 { "busy" } else { "quiet" }));
    }
    let got: Vec<u128> = test.claim("w1", 1, 16).iter().map(|it| it.job.id.as_u128()).collect();
    let mut sorted = got.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=16).collect::<Vec<u128>>());
}

fn a_small_tenant_among_many_is_served_soon(backend: Backend) {
    const TENANTS: u128 = 200;
    let test = TestStore::new(backend);
    let writes =
        (0..TENANTS * 5).map(|it| enqueue_of(&format!("t{}", it % TENANTS), it + 1, plain()));
    assert!(test.commit(writes.collect()).iter().all(Result::is_ok));
    for claim in 1..=3 {
        assert_eq!(test.claim("w1", claim, 10).len(), 10);
    }
    test.pass(std::time::Duration::from_secs(1));
    fill(&test, "small", 10_000, 1);
    let waited = (0..).find(|claim| {
        let got = test.claim("w1", 100 + claim, 10);
        assert_eq!(got.len(), 10);
        got.iter().any(|it| it.job.spec.tenant == of("small"))
    });
    // Each tenant has its turn, and this one is new: it begins where the others are.
    assert!(waited.is_some_and(|claims| claims <= TENANTS / 10), "it waited for {waited:?} claims");
}

fn jobs_with_keys_and_without_are_all_found(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=10 {
        test.enqueue(number, plain());
    }
    assert_eq!(test.claim("w1", 1, 3).len(), 3);
    for number in 11..=15 {
        test.enqueue(number, with_key("red"));
    }
    let got = test.claim("w1", 2, 20);
    assert_eq!(by_key(&got), [7, 5]);
    for it in &got {
        let it = &it.job;
        test.op(settle(it.id, it.epoch, failed_for_now())).unwrap();
    }
    test.pass(std::time::Duration::from_secs(60));
    assert_eq!(by_key(&test.claim("w1", 3, 20)), [7, 5], "so are their retries");
    test.enqueue(30, with_key("blue"));
    assert_eq!(test.claim("w1", 4, 20).len(), 1);
    test.enqueue(31, plain());
    assert_eq!(test.claim("w1", 5, 20).len(), 1);
}
