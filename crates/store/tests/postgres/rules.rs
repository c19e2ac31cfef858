//! Rules that several nodes share: none of them takes what another has taken.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::timeout;
use windlass_kernel::{
    By, JobId, LimitKey, RuleName, Says, Scope, TenantId, UniqueKey,
    job::Priority,
    ops::{Enqueue, NewJob, Release},
    rule::{Each, PutRule, Rate, RuleOp},
};
use windlass_store::{ClaimMany, Reply, Store, Write, read};

use crate::common::{
    Backend, START, TestStore, answer, claim_many, clock, enqueue, granted, person, plain, queue,
    settle, succeeded, wanted, worker, write,
};

/// Another node of the same store.
fn node(test: &TestStore) -> Arc<dyn Store> {
    test.home.open(clock(&Arc::new(START.into())), &test.runtime).unwrap()
}

fn put(name: &str, says: Says) -> Write {
    let (name, by) = (RuleName::new(name).unwrap(), person("ann"));
    let scope = Scope::queue(queue(NewJob::DEFAULT_NAME));
    Write::Rule(RuleOp::Put(PutRule { name, scope, says, within: None, by, reason: None }))
}

fn with_key(number: u128) -> NewJob {
    one_of(4, number)
}

/// A job with one of so many keys.
fn one_of(keys: u128, number: u128) -> NewJob {
    let key = LimitKey::new(format!("k{}", number % keys)).unwrap();
    NewJob { limit_key: Some(key), ..plain() }
}

fn fill(test: &TestStore, jobs: u128, new: impl Fn(u128) -> NewJob) {
    let writes = (1..=jobs).map(|number| write(enqueue(number, new(number)))).collect();
    assert!(test.commit(writes).iter().all(Result::is_ok));
}

/// A worker that claims so many at a time, and settles, until there is nothing more.
async fn work(
    store: Arc<dyn Store>,
    name: String,
    first_claim: u128,
    most: usize,
    left: Arc<HashSet<JobId>>,
) {
    let (mut claim, mut idle) = (first_claim, 0);
    while idle < 200 {
        claim += 1;
        // Small claims and large ones lock in different ways.
        let size = if claim % 3 == 0 { most.div_ceil(10) } else { most };
        let replies = store.commit(vec![claim_many(&name, claim, size)].into()).await.unwrap();
        let got = granted(replies[0].as_ref().unwrap());
        if got.is_empty() {
            idle += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        }
        idle = 0;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let ends = got.iter().inspect(|it| assert!(left.contains(&it.job.id)));
        let ends = ends.map(|it| write(settle(it.job.id, it.job.epoch, succeeded())));
        let replies = store.commit(ends.collect::<Vec<_>>().into()).await.unwrap();
        assert!(replies.iter().all(Result::is_ok));
    }
}

/// Sixteen workers on two nodes, of which each claims so many at a time, work all jobs off, which have one of so many keys.
/// It gives back what was held at once at the most, of all jobs and of one key: the feed tells what happened in the order
/// of the commits.
fn held_at_once(test: &TestStore, jobs: u128, keys: u128, claim: usize) -> (usize, usize) {
    let (other, all) = (node(test), (1..=jobs).map(JobId::from_u128).collect::<HashSet<_>>());
    let all = Arc::new(all);
    let workers: Vec<_> = (0..16u128)
        .map(|number| {
            let store = if number % 2 == 0 { test.store.clone() } else { other.clone() };
            let (name, first_claim) = (format!("w{number}"), (number + 1) << 32);
            test.runtime.spawn(work(store, name, first_claim, claim, all.clone()))
        })
        .collect();
    workers.into_iter().for_each(|worker| test.runtime.block_on(worker).unwrap());
    assert!(test.wait(test.store.open_jobs()).is_empty(), "all are done");
    assert!(test.home.check().is_clean());
    let (mut held, mut most, mut by_key, mut most_by_key) = (0, 0, HashMap::new(), 0);
    for event in test.wait(test.store.feed(&read::Scope::Every, 0, 100_000)).events {
        let line: serde_json::Value = serde_json::from_str(&event.line).unwrap();
        // That the rule was set is told too.
        let Some(id) = line.get(0).and_then(|id| id.as_str()) else { continue };
        let id: JobId = format!("job_{id}").parse().unwrap();
        let key = by_key.entry(id.as_u128() % keys).or_insert(0);
        match line[2].as_str().unwrap() {
            "worker_claim" => {
                held += 1;
                *key += 1;
            }
            "completed" => {
                held -= 1;
                *key -= 1;
            }
            _ => {}
        }
        most = most.max(held);
        most_by_key = most_by_key.max(*key);
    }
    (most, most_by_key)
}

#[test]
fn two_nodes_never_exceed_a_limit_together() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 150, |_| plain());
    test.write(put("three", Says::Concurrency { max: 3, each: Each::Together })).unwrap();
    assert_eq!(held_at_once(&test, 150, 1, 2).0, 3, "all slots were used, and no more");
}

#[test]
fn two_nodes_never_exceed_a_limit_of_each_key() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 150, with_key);
    test.write(put("one", Says::Concurrency { max: 1, each: Each::Key })).unwrap();
    let (most, of_a_key) = held_at_once(&test, 150, 4, 2);
    assert_eq!(of_a_key, 1);
    assert!(most > 1, "other keys do not wait for it");
}

/// So many keys that large claims lock one half of them.
#[test]
fn two_nodes_never_exceed_a_limit_of_each_of_many_keys() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 3_000, |number| one_of(600, number));
    test.write(put("one", Says::Concurrency { max: 1, each: Each::Key })).unwrap();
    let (most, of_a_key) = held_at_once(&test, 3_000, 600, 200);
    assert_eq!(of_a_key, 1);
    assert!(most > 200, "one claim does not wait for the other to be settled");
}

/// A claim that has one half of the keys says that there is more, and the next one has the other half.
#[test]
fn both_halves_of_many_keys_are_served() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 1_200, |number| one_of(600, number));
    test.write(put("one", Says::Concurrency { max: 1, each: Each::Key })).unwrap();
    let claim = |number| {
        let reply = test.write(claim_many("w1", number, 1_000)).unwrap();
        let Reply::Granted { again_at, .. } = &reply else { panic!("{reply:?}") };
        (granted(&reply), *again_at)
    };
    let (first, again_at) = claim(1);
    assert!((200..400).contains(&first.len()), "{} of 600", first.len());
    assert!(again_at.is_some(), "the other half may go");
    let (second, again_at) = claim(2);
    assert_eq!(first.len() + second.len(), 600);
    assert_eq!(again_at, None, "no key has room");
    let keys = first.iter().chain(&second).map(|it| it.job.spec.limit_key.clone());
    assert_eq!(keys.collect::<HashSet<_>>().len(), 600);
    for number in 3..6 {
        assert!(claim(number).0.is_empty());
    }
    // Whichever half its key is in, a job that may go is found.
    for (number, it) in first.iter().take(3).chain(second.iter().take(3)).enumerate() {
        test.write(write(settle(it.job.id, it.job.epoch, succeeded()))).unwrap();
        let number = 10 + 2 * u128::try_from(number).unwrap();
        let (got, again_at) = claim(number);
        let next = if got.is_empty() {
            assert!(again_at.is_some(), "it may go");
            claim(number + 1).0
        } else {
            got
        };
        assert_eq!(next.len(), 1);
        assert_eq!(next[0].job.spec.limit_key, it.job.spec.limit_key);
    }
    // While nothing may go, nobody is told to come again.
    test.write(put("stop", Says::Pause)).unwrap();
    for it in [&first[10], &second[10]] {
        test.write(write(settle(it.job.id, it.job.epoch, succeeded()))).unwrap();
    }
    for number in 100..103 {
        let (got, again_at) = claim(number);
        assert!(got.is_empty());
        assert_eq!(again_at, None);
    }
}

/// Claims by halves overlap all the time. Whoever wants the whole rule gets its turn all the same.
#[test]
fn a_rule_is_changed_while_large_claims_never_cease() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 1_200, |number| one_of(600, number));
    test.write(put("one", Says::Concurrency { max: 1, each: Each::Key })).unwrap();
    let (other, is_over) = (node(&test), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = (0..8u128)
        .map(|number| {
            let store = if number % 2 == 0 { test.store.clone() } else { other.clone() };
            let is_over = is_over.clone();
            test.runtime.spawn(async move {
                let (name, mut claim, mut got_some) = (format!("w{number}"), (number + 1) << 32, 0);
                while !is_over.load(SeqCst) {
                    claim += 1;
                    let claims = vec![claim_many(&name, claim, 200)];
                    let replies = store.commit(claims.into()).await.unwrap();
                    let got = granted(replies[0].as_ref().unwrap());
                    got_some += usize::from(!got.is_empty());
                    let by = By::worker(worker(&name));
                    let back = got.iter().map(|it| {
                        let (job_id, epoch, by) = (it.job.id, it.job.epoch, by.clone());
                        write(Release { job_id, epoch, by })
                    });
                    store.commit(back.collect::<Vec<_>>().into()).await.unwrap();
                }
                got_some
            })
        })
        .collect();
    for max in 2..7 {
        std::thread::sleep(Duration::from_millis(100));
        let change = put("one", Says::Concurrency { max, each: Each::Key });
        let changed = test.store.commit(vec![change].into());
        let changed = async { timeout(Duration::from_secs(5), changed).await };
        let changed = test.runtime.block_on(changed);
        is_over.store(max == 6 || changed.is_err(), SeqCst);
        changed.expect("claims go on, and it gets its turn").unwrap()[0].as_ref().unwrap();
    }
    let got: usize = workers.into_iter().map(|it| test.runtime.block_on(it).unwrap()).sum();
    assert!(got > 20, "{got} claims got something meanwhile");
}

/// Two sorts of large claims that come by turns, as two workers of a node send them: each gets both halves.
#[test]
fn claims_by_turns_do_not_always_get_the_same_half() {
    let test = TestStore::new(Backend::Postgres);
    let of_queue = |name: &str, number| {
        let new = NewJob { queue: queue(name), ..one_of(600, number) };
        write(enqueue(number, new))
    };
    let writes = (1..=1_200).map(|n| of_queue(if n <= 600 { "red" } else { "blue" }, n));
    assert!(test.commit(writes.collect()).iter().all(Result::is_ok));
    let (name, by) = (RuleName::new("one").unwrap(), person("ann"));
    let says = Says::Concurrency { max: 2, each: Each::Key };
    let scope = Scope::default();
    test.write(Write::Rule(RuleOp::Put(PutRule {
        name,
        scope,
        says,
        within: None,
        by,
        reason: None,
    })))
    .unwrap();
    let mut got = HashMap::new();
    for number in 1..=4 {
        let from = if number % 2 == 0 { "red" } else { "blue" };
        let claim = ClaimMany { queues: vec![queue(from)], ..wanted("w1", number, 1_000) };
        let reply = test.write(Write::Claim(claim)).unwrap();
        *got.entry(from).or_insert(0) += granted(&reply).len();
    }
    assert_eq!(got, HashMap::from([("red", 600), ("blue", 600)]));
}

/// A key that may have many has urgent jobs, beside many keys that have none.
#[test]
fn a_small_claim_of_many_keys_gets_the_best_jobs() {
    let test = TestStore::new(Backend::Postgres);
    let urgent = |number: u128| match number {
        ..=3 => NewJob { priority: Priority(-50), ..one_of(1, number) },
        _ => one_of(400, number),
    };
    fill(&test, 400, urgent);
    test.write(put("five", Says::Concurrency { max: 5, each: Each::Key })).unwrap();
    let got: HashSet<u128> = test.claim("w1", 1, 3).iter().map(|it| it.job.id.as_u128()).collect();
    assert_eq!(got, HashSet::from([1, 2, 3]));
}

/// A tenant with one long line beside one that has many lines.
#[test]
fn a_tenant_with_many_keys_leaves_the_other_its_share() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 700, |number| one_of(70, number));
    let other = TenantId::new("other").unwrap();
    let writes = (1_000..1_500).map(|number| {
        let op = Enqueue { tenant: other.clone(), ..enqueue(number, plain()) };
        Write::Op { tenant: other.clone(), op: op.into() }
    });
    assert!(test.commit(writes.collect()).iter().all(Result::is_ok));
    for claim in 1..=2 {
        let got = test.claim("w1", claim, 100);
        assert_eq!(got.len(), 100);
        let of_other = got.iter().filter(|it| it.job.spec.tenant == other).count();
        assert!((40..=60).contains(&of_other), "{of_other} of 100");
    }
}

/// A claim that is sent twice in one commit and finds nothing does not have another one answered twice.
#[test]
fn a_repeated_claim_does_not_serve_a_later_one_again() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 2, |number| one_of(2, number));
    test.write(put("stop", Says::Pause)).unwrap();
    let claims = vec![claim_many("w1", 1, 1), claim_many("w2", 2, 1), claim_many("w1", 1, 1)];
    for reply in test.commit(claims) {
        assert!(granted(&reply.unwrap()).is_empty());
    }
    assert_eq!(test.wait(test.store.sessions()).iter().map(|it| it.held).sum::<u64>(), 0);
}

/// Claims of one commit that want the same share what there is, and each gets no more than it wants.
#[test]
fn claims_of_one_commit_share_what_they_find() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 400, |number| one_of(100, number));
    test.write(put("one", Says::Concurrency { max: 1, each: Each::Key })).unwrap();
    let claims = vec![claim_many("w1", 1, 30), claim_many("w2", 2, 50), claim_many("w1", 1, 30)];
    let replies = test.commit(claims);
    let got: Vec<_> = replies.iter().map(|reply| granted(reply.as_ref().unwrap())).collect();
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [30, 50, 30]);
    let ids = |place: usize| got[place].iter().map(|it| it.job.id).collect::<HashSet<_>>();
    assert_eq!(ids(0), ids(2), "the same claim again gets the same");
    for (place, worker) in [(0, "w1"), (1, "w2")] {
        for it in &got[place] {
            assert_eq!(it.job.lease.as_ref().unwrap().worker.as_str(), worker);
            assert!(!it.payload.is_empty());
        }
    }
    let keys: Vec<_> = got[..2].iter().flatten().map(|it| it.job.spec.limit_key.clone()).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 80, "one of each key");
    assert_eq!(test.claim("w3", 3, 50).len(), 20);
    assert!(test.home.check().is_clean());
}

#[test]
fn two_nodes_share_a_rate() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 100, |_| plain());
    let per = Duration::from_secs(60);
    let rate = Rate { count: 7, per, burst: Some(7), each: Each::Tenant };
    test.write(put("slowly", Says::Rate(rate))).unwrap();
    let other = node(&test);
    let claims: Vec<_> = (0..16u128)
        .map(|number| {
            let store = if number % 2 == 0 { test.store.clone() } else { other.clone() };
            let claim = claim_many(&format!("w{number}"), number + 1, 2);
            test.runtime.spawn(async move {
                let replies = store.commit(vec![claim].into()).await.unwrap();
                granted(replies[0].as_ref().unwrap()).len()
            })
        })
        .collect();
    let begun: usize = claims.into_iter().map(|claim| test.runtime.block_on(claim).unwrap()).sum();
    assert_eq!(begun, 7);
}

#[test]
fn what_one_node_is_told_another_obeys_at_once() {
    let test = TestStore::new(Backend::Postgres);
    let other = node(&test);
    let ask = |write: Write| test.wait(other.commit(vec![write].into())).remove(0);
    assert!(ask(write(enqueue(1, plain()))).is_ok());
    assert_eq!(granted(&ask(claim_many("w1", 1, 1)).unwrap()).len(), 1);
    test.write(put("close", Says::Drain)).unwrap();
    // It makes jobs without a look at what is stored, but not past a rule that it does not know.
    assert_eq!(ask(write(enqueue(2, plain()))).unwrap_err().code(), "DRAINING");
    test.write(put("close", Says::Pause)).unwrap();
    assert!(ask(write(enqueue(2, plain()))).is_ok());
    assert!(granted(&ask(claim_many("w1", 2, 1)).unwrap()).is_empty());
    test.write(put("close", Says::Concurrency { max: 2, each: Each::Together })).unwrap();
    assert_eq!(granted(&ask(claim_many("w1", 3, 1)).unwrap()).len(), 1);
}

#[test]
fn one_unique_key_from_two_nodes_is_one_job() {
    let test = TestStore::new(Backend::Postgres);
    let other = node(&test);
    for round in 0..5u128 {
        let key = UniqueKey::new(format!("sync-{round}")).unwrap();
        let asked: Vec<_> = (1..=64u128)
            .map(|number| {
                let store = if number % 2 == 0 { test.store.clone() } else { other.clone() };
                let new = NewJob { unique_key: Some(key.clone()), ..plain() };
                let write = write(enqueue(round * 100 + number, new));
                test.runtime.spawn(async move { store.commit(vec![write].into()).await })
            })
            .collect();
        let told = asked.into_iter().map(|asked| {
            let replies = test.runtime.block_on(asked).unwrap().unwrap();
            answer(replies[0].as_ref().unwrap()).job_id
        });
        assert_eq!(told.collect::<HashSet<JobId>>().len(), 1);
    }
    assert_eq!(test.wait(test.store.open_jobs()).len(), 5);
    assert!(test.home.check().is_clean());
}

/// This node finds all that it wants among jobs without a key, and knows of no others.
#[test]
fn a_job_with_a_key_that_another_node_made_is_found_beside_many_without() {
    let test = TestStore::new(Backend::Postgres);
    fill(&test, 500, |_| plain());
    assert_eq!(test.claim("w1", 1, 10).len(), 10);
    let first = NewJob { priority: Priority(-100), ..with_key(1) };
    let made = test.wait(node(&test).commit(vec![write(enqueue(1_000, first))].into()));
    assert!(matches!(made[0], Ok(Reply::Answer(..))));
    let got = test.claim("w1", 2, 10);
    assert_eq!(got.len(), 10);
    assert!(got.iter().any(|it| it.job.id == JobId::from_u128(1_000)));
}

#[test]
fn more_keys_than_are_looked_up_at_once_are_all_served() {
    const JOBS: u128 = 5_000;
    let test = TestStore::new(Backend::Postgres);
    let key = |number: u128| LimitKey::new(format!("k{number}")).unwrap();
    fill(&test, JOBS, |number| NewJob { limit_key: Some(key(number)), ..plain() });
    test.write(put("one", Says::Concurrency { max: 1, each: Each::Key })).unwrap();
    let (mut claims, mut got) = (0, HashSet::new());
    while got.len() < usize::try_from(JOBS).unwrap() {
        claims += 1;
        assert!(claims < 40, "{} jobs after {claims} claims", got.len());
        got.extend(test.claim("w1", claims, 500).iter().map(|it| it.job.id));
    }
}
