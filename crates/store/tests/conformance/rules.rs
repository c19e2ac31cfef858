//! Rules: what they keep back is not claimed, by whomever and after whatever.

use std::{collections::BTreeMap, time::Duration};

use windlass_kernel::{
    By, Jitter, JobId, Kind, LimitKey, Payload, Refusal, RuleName, Says, Scope, TenantId,
    Timestamp,
    admit::Because,
    ops::{Enqueue, Expire, Expiry, NewJob, Outcome, Release},
    rule::{Breaker, Budget, DropRule, Each, PutRule, Rate, RuleOp},
};
use windlass_store::{ClaimMany, Granted, Reply, Write, read};

use crate::common::*;

for_each_backend!(
    a_limit_on_a_queue_holds_for_all_workers_together,
    a_limit_on_each_tenant_counts_each_by_itself,
    a_limit_on_each_key_counts_each_by_itself,
    a_limit_counts_what_is_held_in_other_queues_too,
    what_a_batch_ends_and_takes_counts_within_it,
    a_rate_lets_so_many_begin_and_says_when_the_next_may,
    nothing_is_claimed_while_a_pause_lasts,
    nothing_is_taken_in_while_a_drain_lasts,
    a_breaker_opens_tries_a_few_and_closes,
    retries_wait_for_their_budget,
    a_rule_that_changes_is_obeyed_at_once,
    a_rule_that_says_something_else_forgets,
    what_makes_no_sense_is_refused_and_changes_nothing,
    rules_are_told_by_name,
    many_keys_with_a_limit_are_all_served,
    many_keys_that_may_have_two_come_in_their_order,
    a_job_says_what_keeps_it,
    what_rules_need_not_remember_is_swept_away,
);

for_each_lasting_backend!(
    a_crash_leaks_no_slot,
    what_a_rate_remembers_survives_a_restart,
    rules_survive_a_restart,
);

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn name(name: &str) -> RuleName {
    RuleName::new(name).unwrap()
}

pub(crate) fn put(rule: &str, scope: Scope, says: Says) -> Write {
    let (name, by) = (name(rule), person("ann"));
    Write::Rule(RuleOp::Put(PutRule { name, scope, says, within: None, by, reason: None }))
}

pub(crate) fn drop_rule(rule: &str) -> Write {
    Write::Rule(RuleOp::Drop(DropRule {
        name: name(rule),
        within: None,
        by: person("ann"),
        reason: None,
    }))
}

pub(crate) fn limit(max: u32, each: Each) -> Says {
    Says::Concurrency { max, each }
}

pub(crate) fn of(tenant: &str) -> TenantId {
    TenantId::new(tenant).unwrap()
}

pub(crate) fn default_queue() -> Scope {
    Scope::queue(queue(NewJob::DEFAULT_NAME))
}

pub(crate) fn with_key(key: &str) -> NewJob {
    NewJob { limit_key: Some(LimitKey::new(key).unwrap()), ..plain() }
}

pub(crate) fn enqueue_of(tenant: &str, number: u128, new: NewJob) -> Write {
    let op = Enqueue { tenant: of(tenant), ..enqueue(number, new) };
    Write::Op { tenant: of(tenant), op: op.into() }
}

fn set(test: &TestStore, rule: &str, scope: Scope, says: Says) {
    assert!(matches!(test.write(put(rule, scope, says)), Ok(Reply::Rule(_))));
}

fn fill(test: &TestStore, numbers: impl Iterator<Item = u128>, new: impl Fn() -> NewJob) {
    let writes = numbers.map(|number| write(enqueue(number, new()))).collect();
    assert!(test.commit(writes).iter().all(Result::is_ok));
}

fn done(test: &TestStore, it: &Granted, outcome: Outcome) {
    let op = settle(it.job.id, it.job.epoch, outcome).into();
    test.write(Write::Op { tenant: it.job.spec.tenant.clone(), op }).unwrap();
}

/// What a claim got, and when it is to ask again.
fn claim(test: &TestStore, wanted: ClaimMany) -> (Vec<Granted>, Option<Timestamp>) {
    match test.write(Write::Claim(wanted)).unwrap() {
        Reply::Granted { jobs, again_at, .. } => (jobs, again_at),
        other => panic!("a claim was answered with {other:?}"),
    }
}

fn count<K: Ord>(
    granted: &[Granted],
    by: impl Fn(&windlass_kernel::Job) -> K,
) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    granted.iter().for_each(|it| *counts.entry(by(&it.job)).or_default() += 1);
    counts
}

fn a_limit_on_a_queue_holds_for_all_workers_together(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=10, plain);
    set(&test, "three", default_queue(), limit(3, Each::Together));
    let first = test.claim("w1", 1, 2);
    let second = test.claim("w2", 2, 10);
    assert_eq!((first.len(), second.len()), (2, 1));
    let (none, again_at) = claim(&test, wanted("w1", 3, 10));
    assert!(none.is_empty());
    assert_eq!(again_at, None, "no time brings a slot back, an end does");
    done(&test, &first[0], succeeded());
    done(&test, &first[1], failed_for_now());
    let Granted { job, .. } = &second[0];
    test.op(Release { job_id: job.id, epoch: job.epoch, by: By::worker(worker("w2")) }).unwrap();
    assert_eq!(test.claim("w1", 4, 10).len(), 3);
    // What no rule covers is not kept back.
    test.enqueue(20, NewJob { queue: queue("other"), ..plain() });
    let other = ClaimMany { queues: vec![queue("other")], ..wanted("w1", 5, 10) };
    assert_eq!(claim(&test, other).0.len(), 1);
    assert!(test.home.check().is_clean());
}

fn a_limit_on_each_tenant_counts_each_by_itself(backend: Backend) {
    let test = TestStore::new(backend);
    let tenants = ["acme", "bolt", "core"];
    for (place, tenant) in tenants.iter().enumerate() {
        for number in 1..=5 {
            test.write(enqueue_of(tenant, place as u128 * 10 + number, plain())).unwrap();
        }
    }
    set(&test, "two", Scope::default(), limit(2, Each::Tenant));
    let got = test.claim("w1", 1, 20);
    assert_eq!(count(&got, |job| job.spec.tenant.to_string()).into_values().max(), Some(2));
    assert_eq!(got.len(), 6);
    let bolt = got.iter().find(|it| it.job.spec.tenant == of("bolt")).unwrap();
    done(&test, bolt, succeeded());
    let more = test.claim("w1", 2, 20);
    assert_eq!(more.len(), 1);
    assert_eq!(more[0].job.spec.tenant, of("bolt"));
}

fn a_limit_on_each_key_counts_each_by_itself(backend: Backend) {
    let test = TestStore::new(backend);
    let keys = ["red", "blue"];
    for (place, key) in keys.iter().enumerate() {
        fill(&test, (1..=4).map(|it| place as u128 * 10 + it), || with_key(key));
    }
    fill(&test, 30..=35, plain);
    set(&test, "one", default_queue(), limit(1, Each::Key));
    let got = test.claim("w1", 1, 20);
    let by_key = count(&got, |job| job.spec.limit_key.as_ref().map(ToString::to_string));
    let expected = [(None, 6), (Some("blue".to_owned()), 1), (Some("red".to_owned()), 1)];
    assert_eq!(by_key, BTreeMap::from(expected), "what has no key is not covered");
    assert!(test.claim("w2", 2, 20).is_empty());
    let red = got.iter().find(|it| it.job.spec.limit_key == with_key("red").limit_key).unwrap();
    done(&test, red, failed_for_now());
    let more = test.claim("w2", 3, 20);
    assert_eq!(count(&more, |job| job.spec.limit_key.clone().unwrap().to_string()).len(), 1);
    // The same key of another tenant is another key.
    test.write(enqueue_of("bolt", 50, with_key("red"))).unwrap();
    assert_eq!(test.claim("w2", 4, 20).len(), 1);
}

fn a_limit_counts_what_is_held_in_other_queues_too(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=3 {
        test.enqueue(number, NewJob { queue: queue("left"), ..plain() });
        test.enqueue(10 + number, NewJob { queue: queue("right"), ..plain() });
    }
    set(&test, "acme", Scope::tenant(tenant()), limit(4, Each::Together));
    let left = |claim| ClaimMany { queues: vec![queue("left")], ..wanted("w1", claim, 10) };
    let right = |claim| ClaimMany { queues: vec![queue("right")], ..wanted("w2", claim, 10) };
    let got = claim(&test, left(1)).0;
    assert_eq!(got.len(), 3);
    assert_eq!(claim(&test, right(2)).0.len(), 1);
    done(&test, &got[0], succeeded());
    assert_eq!(claim(&test, right(3)).0.len(), 1);
    assert!(claim(&test, right(4)).0.is_empty());
}

fn what_a_batch_ends_and_takes_counts_within_it(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=12, plain);
    set(&test, "three", default_queue(), limit(3, Each::Together));
    let got = test.claim("w1", 1, 10);
    assert_eq!(got.len(), 3);
    let ends = got[..2].iter().map(|it| write(settle(it.job.id, it.job.epoch, succeeded())));
    let claims = [claim_many("w1", 2, 1), claim_many("w2", 3, 10), claim_many("w3", 4, 10)];
    let replies = test.commit(ends.chain(claims).collect());
    let counts: Vec<usize> =
        replies[2..].iter().map(|it| granted(it.as_ref().unwrap()).len()).collect();
    assert_eq!(counts, [1, 1, 0]);
    assert!(test.claim("w4", 5, 10).is_empty());
}

fn a_rate_lets_so_many_begin_and_says_when_the_next_may(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=20, plain);
    let rate = Rate { count: 10, per: SECOND, burst: Some(4), each: Each::Together };
    set(&test, "slowly", default_queue(), Says::Rate(rate));
    let replies = test.commit(vec![claim_many("w1", 1, 3), claim_many("w2", 2, 3)]);
    let counts: Vec<usize> = replies.iter().map(|it| granted(it.as_ref().unwrap()).len()).collect();
    assert_eq!(counts, [3, 1], "claims of one batch share it too");
    let (none, again_at) = claim(&test, wanted("w1", 3, 10));
    assert!(none.is_empty());
    assert_eq!(again_at, Some(test.now().plus(SECOND / 10)));
    test.pass(SECOND / 10);
    assert_eq!(test.claim("w1", 4, 10).len(), 1);
    test.pass(SECOND * 10);
    assert_eq!(test.claim("w1", 5, 10).len(), 4, "it saves no more than its burst");
}

fn nothing_is_claimed_while_a_pause_lasts(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=3, plain);
    let running = test.claim("w1", 1, 1);
    set(&test, "stop", Scope::kind(Kind::new("mail").unwrap()), Says::Pause);
    assert!(test.claim("w1", 2, 10).is_empty());
    done(&test, &running[0], succeeded());
    test.enqueue(4, plain());
    let other = NewJob { kind: Kind::new("call").unwrap(), ..plain() };
    test.enqueue(5, other);
    assert_eq!(test.claim("w1", 3, 10).len(), 1, "another kind is not paused");
    assert!(matches!(test.write(drop_rule("stop")), Ok(Reply::Rule(_))));
    assert_eq!(test.claim("w1", 4, 10).len(), 3);
}

fn nothing_is_taken_in_while_a_drain_lasts(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    set(&test, "close", default_queue(), Says::Drain);
    let refused = |number| test.op(enqueue(number, plain())).unwrap_err();
    assert_eq!(refused(2), Refusal::Draining { rule: name("close") });
    assert_eq!(refused(3), Refusal::Draining { rule: name("close") });
    let again = test.op(enqueue(1, plain())).unwrap();
    assert!(again.recorded && again.job_id == id, "it was taken in before");
    let batch = vec![write(enqueue(4, plain())), claim_many("w1", 1, 10)];
    let replies = test.commit(batch);
    assert!(replies[0].is_err());
    assert_eq!(granted(replies[1].as_ref().unwrap()).len(), 1, "what is there runs");
    test.write(drop_rule("close")).unwrap();
    test.enqueue(2, plain());
    assert!(test.home.check().is_clean());
}

fn a_breaker_opens_tries_a_few_and_closes(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=40, || NewJob { max_retries: 0, ..plain() });
    let breaker = Breaker { failures: 3, open_for: SECOND * 10, probes: 1, ..Breaker::default() };
    set(&test, "stripe", default_queue(), Says::Breaker(breaker));
    let got = test.claim("w1", 1, 4);
    assert_eq!(got.len(), 4);
    got[..3].iter().for_each(|it| done(&test, it, failed_for_good()));
    let opened_at = test.now();
    let (none, again_at) = claim(&test, wanted("w1", 2, 10));
    assert!(none.is_empty());
    assert_eq!(again_at, Some(opened_at.plus(SECOND * 10)));
    // What began before it opened says nothing, but holds its slot.
    done(&test, &got[3], succeeded());
    test.pass(SECOND * 10);
    let probe = test.claim("w1", 3, 10);
    assert_eq!(probe.len(), 1, "one tries");
    assert!(test.claim("w2", 4, 10).is_empty());
    done(&test, &probe[0], failed_for_good());
    assert!(test.claim("w2", 5, 10).is_empty());
    test.pass(SECOND * 19);
    assert!(test.claim("w2", 6, 10).is_empty(), "it opens for twice as long");
    test.pass(SECOND);
    let mut probes = Vec::new();
    for step in 0..3 {
        let got = test.claim("w2", 10 + step, 10);
        got.iter().for_each(|it| done(&test, it, succeeded()));
        probes.push(got.len());
    }
    assert_eq!(probes, [1, 2, 8], "each that ends well doubles what may be held");
}

fn retries_wait_for_their_budget(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=6, plain);
    let budget = Budget { percent: 0, per_minute: 60 };
    let got = test.claim("w1", 1, 10);
    got.iter().for_each(|it| done(&test, it, failed_for_now()));
    set(&test, "gently", default_queue(), Says::RetryBudget(budget));
    test.pass(SECOND * 60);
    test.enqueue(10, plain());
    let (got, again_at) = claim(&test, wanted("w1", 2, 10));
    let retries = got.iter().filter(|it| it.job.retry_count > 0).count();
    assert_eq!((got.len(), retries), (2, 1), "first tries are not kept back");
    assert_eq!(again_at, Some(test.now().plus(SECOND)));
    test.pass(SECOND);
    assert_eq!(test.claim("w1", 3, 10).len(), 1);
}

fn a_rule_that_changes_is_obeyed_at_once(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=20, plain);
    assert_eq!(test.claim("w1", 1, 1).len(), 1);
    set(&test, "some", default_queue(), limit(3, Each::Together));
    assert_eq!(test.claim("w1", 2, 10).len(), 2);
    set(&test, "some", default_queue(), limit(5, Each::Together));
    assert_eq!(test.claim("w1", 3, 10).len(), 2);
    set(&test, "some", default_queue(), limit(1, Each::Together));
    assert!(test.claim("w1", 4, 10).is_empty());
    // In the batch that changes it, too.
    let writes = vec![put("some", default_queue(), limit(7, Each::Together))];
    let replies = test.commit(writes.into_iter().chain([claim_many("w1", 5, 10)]).collect());
    assert_eq!(granted(replies[1].as_ref().unwrap()).len(), 2);
    let replies = test.commit(vec![drop_rule("some"), claim_many("w1", 6, 4)]);
    assert_eq!(granted(replies[1].as_ref().unwrap()).len(), 4);
}

fn a_rule_that_says_something_else_forgets(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=20, plain);
    let rate = |each| Says::Rate(Rate { count: 2, per: SECOND * 60, burst: Some(2), each });
    set(&test, "slowly", default_queue(), rate(Each::Together));
    assert_eq!(test.claim("w1", 1, 10).len(), 2);
    set(&test, "slowly", Scope::default(), rate(Each::Together));
    assert!(test.claim("w1", 2, 10).is_empty(), "it counts the same as before");
    let replies = test
        .commit(vec![put("slowly", Scope::default(), rate(Each::Tenant)), claim_many("w1", 3, 10)]);
    assert_eq!(granted(replies[1].as_ref().unwrap()).len(), 2, "it counts something else");
    assert!(test.claim("w1", 4, 10).is_empty());
}

fn what_makes_no_sense_is_refused_and_changes_nothing(backend: Backend) {
    let test = TestStore::new(backend);
    let nobody = put("heavy", Scope::default(), Says::Weight { weight: 3 });
    assert_eq!(test.write(nobody).unwrap_err().code(), "INVALID_INPUT");
    assert_eq!(test.write(drop_rule("heavy")).unwrap_err().code(), "NOT_FOUND");
    assert!(test.wait(test.store.rules()).is_empty());
}

fn rules_are_told_by_name(backend: Backend) {
    let test = TestStore::new(backend);
    for rule in ["b", "c", "a", "B"] {
        set(&test, rule, default_queue(), Says::Pause);
    }
    set(&test, "c", default_queue(), limit(4, Each::Kind));
    test.write(drop_rule("b")).unwrap();
    let rules = test.wait(test.store.rules());
    let told: Vec<(&str, &str)> =
        rules.iter().map(|rule| (rule.name.as_str(), rule.says.word())).collect();
    assert_eq!(told, [("B", "pause"), ("a", "pause"), ("c", "concurrency")]);
    assert_eq!(rules[0].since, test.now());
}

/// More lines than one claim asks for, and most of them are full.
fn many_keys_with_a_limit_are_all_served(backend: Backend) {
    const KEYS: u128 = 300;
    let test = TestStore::new(backend);
    for key in 0..KEYS {
        fill(&test, [key * 2 + 1, key * 2 + 2].into_iter(), || with_key(&format!("k{key}")));
    }
    set(&test, "one", default_queue(), limit(1, Each::Key));
    let mut claims = 0;
    let mut got: Vec<Granted> = Vec::new();
    while got.len() < usize::try_from(KEYS).unwrap() {
        claims += 1;
        let more = test.claim("w1", claims, 10);
        assert!(!more.is_empty(), "{} of {KEYS} after {claims} claims", got.len());
        got.extend(more);
    }
    assert_eq!(claims, KEYS / 10, "none gets less than it may have");
    assert_eq!(count(&got, |job| job.spec.limit_key.clone()).into_values().max(), Some(1));
    assert!(test.claim("w1", 1_000, 10).is_empty());
    done(&test, &got[150], succeeded());
    let next = test.claim("w1", 1_001, 10);
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].job.spec.limit_key, got[150].job.spec.limit_key);
}

/// More lines than one claim asks for, of which each may have a few at once.
fn many_keys_that_may_have_two_come_in_their_order(backend: Backend) {
    const KEYS: u128 = 100;
    let test = TestStore::new(backend);
    // The first of each key, then the second of each, and so on.
    for number in 0..4 {
        // Jobs of one rank have no order.
        test.pass(SECOND);
        for key in 0..KEYS {
            let id = number * KEYS + key + 1;
            fill(&test, [id].into_iter(), || NewJob {
                payload: Payload::parse(&format!("{{\"n\":{id}}}"), 100).unwrap(),
                ..with_key(&format!("k{key}"))
            });
        }
    }
    set(&test, "two", default_queue(), limit(2, Each::Key));
    for round in 0..2 {
        let got = test.claim("w1", 1 + round, 500);
        let told: BTreeMap<JobId, String> =
            got.iter().map(|it| (it.job.id, it.payload.clone())).collect();
        let first = round * 2 * KEYS + 1;
        let numbers = first..first + 2 * KEYS;
        let expected: BTreeMap<JobId, String> = numbers
            .map(|number| (JobId::from_u128(number), format!("{{\"n\":{number}}}")))
            .collect();
        assert_eq!(told, expected, "round {round}");
        assert!(test.claim("w1", 100 + round, 500).is_empty());
        got.iter().for_each(|it| done(&test, it, succeeded()));
    }
    assert!(test.claim("w1", 1_000, 500).is_empty());
}

fn a_job_says_what_keeps_it(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=4 {
        test.pass(SECOND);
        test.enqueue(number, with_key("red"));
    }
    set(&test, "one", default_queue(), limit(1, Each::Key));
    set(&test, "stop", Scope::kind(Kind::new("call").unwrap()), Says::Pause);
    let got = test.claim("w1", 1, 10);
    test.pass(SECOND);
    let standing =
        test.wait(test.store.standing(&read::Scope::Every, JobId::from_u128(3))).unwrap();
    assert_eq!(standing.now, test.now());
    assert_eq!(standing.blocked.len(), 1);
    assert_eq!(standing.blocked[0].because, Because::NoSlot { max: 1, held: 1 });
    assert_eq!(standing.holders.len(), 1);
    assert_eq!(
        (standing.holders[0].job_id, &standing.holders[0].worker),
        (got[0].job.id, &worker("w1"))
    );
    assert_eq!(standing.running, Some((1, SECOND)));
    assert_eq!(standing.before, 1, "the second comes first");
    set(&test, "now", default_queue(), Says::Pause);
    let standing =
        test.wait(test.store.standing(&read::Scope::Every, JobId::from_u128(3))).unwrap();
    let because: Vec<Because> = standing.blocked.iter().map(|it| it.because).collect();
    assert_eq!(because, [Because::Paused, Because::NoSlot { max: 1, held: 1 }]);
    assert!(test.wait(test.store.standing(&read::Scope::Every, JobId::from_u128(9))).is_none());
}

fn what_rules_need_not_remember_is_swept_away(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=5, plain);
    let rate = Rate { count: 5, per: SECOND, burst: Some(5), each: Each::Tenant };
    set(&test, "slowly", default_queue(), Says::Rate(rate));
    assert_eq!(test.claim("w1", 1, 10).len(), 5);
    assert_eq!(test.home.count("rule_states"), 1);
    test.wait(test.store.prune(windlass_kernel::Retention::default(), 100));
    assert_eq!(test.home.count("rule_states"), 1);
    test.pass(SECOND * 2);
    test.wait(test.store.prune(windlass_kernel::Retention::default(), 100));
    assert_eq!(test.home.count("rule_states"), 0);
}

fn a_crash_leaks_no_slot(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=10, || with_key("red"));
    set(&test, "two", default_queue(), limit(2, Each::Key));
    set(&test, "three", default_queue(), limit(3, Each::Together));
    let lost = test.claim("w1", 1, 10);
    assert_eq!(lost.len(), 2);
    let test = test.reopen();
    assert!(test.claim("w2", 2, 10).is_empty(), "they are held until someone ends them");
    for it in &lost {
        let (job_id, version) = (it.job.id, test.job(it.job.id).version);
        let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
        test.op(Expire { job_id, version, what, jitter }).unwrap();
    }
    assert_eq!(test.claim("w2", 3, 10).len(), 2);
    assert!(test.claim("w2", 4, 10).is_empty());
}

fn what_a_rate_remembers_survives_a_restart(backend: Backend) {
    let test = TestStore::new(backend);
    fill(&test, 1..=10, plain);
    let rate = Rate { count: 3, per: SECOND * 60, burst: Some(3), each: Each::Together };
    set(&test, "slowly", default_queue(), Says::Rate(rate));
    assert_eq!(test.claim("w1", 1, 10).len(), 3);
    let test = test.reopen();
    let (none, again_at) = claim(&test, wanted("w1", 2, 10));
    assert!(none.is_empty(), "a restart brings no burst");
    assert_eq!(again_at, Some(test.now().plus(SECOND * 20)));
    test.pass(SECOND * 20);
    assert_eq!(test.claim("w1", 3, 10).len(), 1);
}

fn rules_survive_a_restart(backend: Backend) {
    let test = TestStore::new(backend);
    set(&test, "close", default_queue(), Says::Drain);
    let rules = test.wait(test.store.rules());
    let test = test.reopen();
    assert_eq!(test.wait(test.store.rules()), rules);
    assert!(test.op(enqueue(1, plain())).is_err());
}
