//! Filters at depth: whatever fits is found, however much newer there is that does not, and little is looked at.

use std::{collections::HashSet, time::Duration};

use windlass_kernel::{
    Failure, JobId, Kind, LetterState, LimitKey, State, Tag, TenantId, Timestamp,
    ops::{Cancel, Enqueue, NewJob, Outcome},
};
use windlass_store::{
    Granted, Write,
    read::{JobFilter, LetterFilter, Page, PageFrom, Scope},
};

use crate::common::{
    Backend, START, TestStore, enqueue, granted, person, plain, queue, settle, succeeded, tenant,
    wanted, write,
};

for_each_backend!(
    one_rare_job_is_found_behind_thirty_thousand_others,
    pages_of_every_filter_cover_what_fits_once,
    letters_of_a_rare_job_are_found_and_groups_are_counted_to_the_last,
);

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// An id that was made now.
fn id(test: &TestStore, number: u128) -> u128 {
    u128::try_from(test.now().as_micros() / 1_000).unwrap() << 80 | number
}

fn failed(code: &str, message: &str) -> Outcome {
    Outcome::Failed(Failure::permanent(code, message))
}

fn page(test: &TestStore, filter: JobFilter, limit: usize) -> Page<windlass_kernel::Job> {
    test.wait(test.store.jobs(filter, PageFrom { from: None, limit }))
}

fn all() -> JobFilter {
    JobFilter::of(tenant())
}

fn rare_tag() -> Tag {
    Tag::new("rare").unwrap()
}

fn rare_key() -> LimitKey {
    LimitKey::new("customer 17").unwrap()
}

/// Writes in parts, as callers do.
fn commit(test: &TestStore, writes: Vec<Write>) {
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        let part: Vec<Write> = writes.by_ref().take(1_000).collect();
        assert!(test.commit(part).iter().all(Result::is_ok));
    }
}

/// Claims so many of a queue, and ends them so.
fn end(test: &TestStore, from: &str, claim: u128, count: usize, outcome: &Outcome) {
    let mut left = count;
    for claim in claim.. {
        let mut wants = wanted("w1", claim, left.min(500));
        wants.queues = vec![queue(from)];
        let jobs = granted(&test.write(Write::Claim(wants)).unwrap());
        assert!(!jobs.is_empty(), "{left} more are wanted");
        let settles = |it: &Granted| write(settle(it.job.id, it.job.epoch, outcome.clone()));
        commit(test, jobs.iter().map(settles).collect());
        left -= jobs.len();
        if left == 0 {
            break;
        }
    }
}

/// One job of each rare sort, and a day later 30,000 that are as usual: most of them wait, and many are cancelled.
fn with_rare_jobs(backend: Backend) -> TestStore {
    let test = TestStore::new(backend);
    let sms = Kind::new("sms").unwrap();
    let later = Some(test.now().plus(DAY * 30));
    test.enqueue(id(&test, 1), NewJob { queue: queue("bad"), ..plain() });
    end(&test, "bad", 1_000_000, 1, &failed("RARE", "no such 'width'"));
    test.enqueue(id(&test, 2), NewJob { tags: vec![rare_tag(), rare_tag()], ..plain() });
    test.enqueue(id(&test, 3), NewJob { limit_key: Some(rare_key()), ..plain() });
    test.enqueue(id(&test, 4), NewJob { queue: queue("slow"), ..plain() });
    test.enqueue(id(&test, 5), NewJob { kind: sms, ..plain() });
    test.enqueue(id(&test, 6), NewJob { scheduled_at: later, ..plain() });
    let others = TenantId::new("others").unwrap();
    let op = Enqueue { tenant: others.clone(), ..enqueue(id(&test, 7), plain()) };
    test.write(Write::Op { tenant: others, op: op.into() }).unwrap();
    test.enqueue(id(&test, 8), NewJob { queue: queue("done"), ..plain() });
    end(&test, "done", 1_000_001, 1, &succeeded());
    test.enqueue(id(&test, 9), NewJob { queue: queue("held"), ..plain() });
    let mut held = wanted("w2", 1_000_002, 1);
    (held.queues, held.lease) = (vec![queue("held")], DAY / 2);
    test.write(Write::Claim(held)).unwrap();
    // Its id was made at another time than the job.
    test.enqueue(10, NewJob { queue: queue("astray"), ..plain() });
    test.pass(DAY);
    let common = NewJob { tags: vec![Tag::new("common").unwrap()], ..plain() };
    let number = |number: u128| id(&test, 100 + number);
    commit(&test, (0..30_000).map(|it| write(enqueue(number(it), common.clone()))).collect());
    let cancel = |it| {
        let (job_id, grace) = (JobId::from_u128(number(it)), Cancel::GRACE_DEFAULT);
        write(Cancel { job_id, force: false, grace, reason: None, by: person("ann") })
    };
    commit(&test, (20_000..28_000).map(cancel).collect());
    test
}

fn one_rare_job_is_found_behind_thirty_thousand_others(backend: Backend) {
    let test = with_rare_jobs(backend);
    let start = Timestamp::from_micros(START);
    let others = TenantId::new("others").unwrap();
    let (bad, sms) = (queue("bad"), Kind::new("sms").unwrap());
    let check = |filter: JobFilter, expected: u128| {
        let found = page(&test, filter.clone(), 20);
        let ids: Vec<u128> = found.items.iter().map(|job| job.id.as_u128() & 0xffff).collect();
        assert_eq!(ids, [expected], "{filter:?}");
        assert!(found.next.is_none() && !found.stopped, "{filter:?} has no end");
        let visited = found.visited;
        assert!(visited < 4_000, "{filter:?} looked at {visited} rows");
    };
    check(JobFilter { states: vec![State::Failed], ..all() }, 1);
    check(JobFilter { states: vec![State::Scheduled], ..all() }, 6);
    check(JobFilter { states: vec![State::Succeeded], ..all() }, 8);
    check(JobFilter { states: vec![State::Running], ..all() }, 9);
    check(
        JobFilter { states: vec![State::Running, State::Waiting], ..JobFilter::of(Scope::Every) },
        9,
    );
    check(JobFilter { queue: Some(bad), ..all() }, 1);
    check(JobFilter { queue: Some(queue("slow")), ..all() }, 4);
    check(JobFilter { queue: Some(queue("held")), ..all() }, 9);
    check(JobFilter { kind: Some(sms), ..all() }, 5);
    check(JobFilter { tag: Some(rare_tag()), ..all() }, 2);
    check(JobFilter { tag: Some(rare_tag()), ..JobFilter::of(Scope::Every) }, 2);
    check(JobFilter { tag: Some(rare_tag()), states: vec![State::Queued], ..all() }, 2);
    check(JobFilter { code: Some("RARE".to_owned()), ..all() }, 1);
    check(JobFilter { limit_key: Some(rare_key()), ..all() }, 3);
    check(JobFilter { limit_key: Some(rare_key()), ..JobFilter::of(Scope::Every) }, 3);
    check(JobFilter { failed_from: Some(start), ..all() }, 1);
    check(JobFilter { failed_before: Some(start.plus(HOUR)), ..JobFilter::of(Scope::Every) }, 1);
    check(JobFilter::of(others), 7);
    let old = JobFilter { created_before: Some(start.plus(HOUR)), ..all() };
    check(JobFilter { queue: Some(queue("slow")), ..old.clone() }, 4);
    let found = page(&test, old, 20);
    let ids: Vec<u128> = found.items.iter().map(|job| job.id.as_u128() & 0xffff).collect();
    let expected: HashSet<u128> = [1, 2, 3, 4, 5, 6, 8, 9, 10].into();
    assert_eq!(ids.len(), expected.len());
    assert_eq!(ids.into_iter().collect::<HashSet<_>>(), expected);
    assert!(found.visited < 1_000, "{} rows were looked at", found.visited);
    let late = JobFilter { created_from: Some(start.plus(DAY)), tag: Some(rare_tag()), ..all() };
    assert!(page(&test, late, 20).items.is_empty());
    let none = JobFilter { queue: Some(queue("nobody's")), ..all() };
    assert!(page(&test, none, 20).items.is_empty());
}

fn pages_of_every_filter_cover_what_fits_once(backend: Backend) {
    let test = TestStore::new(backend);
    let tags = |number: u128| {
        let tag = |it| Tag::new(format!("every {it}")).unwrap();
        [2, 3, 7].into_iter().filter(|it| number.is_multiple_of(*it)).map(tag).collect()
    };
    let key = |number: u128| LimitKey::new(format!("key {}", number % 5)).unwrap();
    let enqueues = (1..=1_500_u128).map(|number| {
        let queue = queue(if number.is_multiple_of(4) { "fourth" } else { "default" });
        let limit_key = (number % 5 < 3).then(|| key(number));
        write(enqueue(
            id(&test, number),
            NewJob { queue, tags: tags(number), limit_key, ..plain() },
        ))
    });
    commit(&test, enqueues.collect());
    end(&test, "default", 1, 300, &succeeded());
    test.pass(DAY);
    end(&test, "default", 10_001, 200, &failed("A", "a"));
    test.pass(DAY);
    end(&test, "fourth", 20_001, 100, &failed("B", "b"));
    test.claim("w9", 30_001, 40);
    let everything = page(&test, all(), 1_000);
    let rest = PageFrom { from: everything.next, limit: 1_000 };
    let rest = test.wait(test.store.jobs(all(), rest));
    let jobs: Vec<_> = everything.items.into_iter().chain(rest.items).collect();
    assert_eq!(jobs.len(), 1_500);
    let second = Timestamp::from_micros(START).plus(DAY);
    let tag = |it: u128| Some(Tag::new(format!("every {it}")).unwrap());
    let filters = [
        JobFilter { states: vec![State::Queued], ..all() },
        JobFilter { states: vec![State::Running, State::Succeeded], ..all() },
        JobFilter { tag: tag(7), ..all() },
        JobFilter { tag: tag(2), queue: Some(queue("fourth")), ..all() },
        JobFilter { tag: tag(3), states: vec![State::Failed], ..all() },
        JobFilter { code: Some("A".to_owned()), ..all() },
        JobFilter { code: Some("B".to_owned()), tag: tag(3), limit_key: Some(key(1)), ..all() },
        JobFilter { limit_key: Some(key(2)), ..all() },
        JobFilter { failed_from: Some(second), failed_before: Some(second.plus(DAY)), ..all() },
        JobFilter { queue: Some(queue("fourth")), ..JobFilter::of(Scope::Every) },
    ];
    for filter in filters {
        let expected: Vec<_> =
            jobs.iter().filter(|job| filter.matches(job)).map(|job| job.id).collect();
        assert!(!expected.is_empty(), "{filter:?} tests nothing");
        for limit in [7, 1_000] {
            let (mut found, mut from) = (Vec::new(), None);
            loop {
                let page = test.wait(test.store.jobs(filter.clone(), PageFrom { from, limit }));
                let is_full = page.items.len() == limit;
                found.extend(page.items.iter().map(|job| job.id));
                from = page.next;
                assert!(is_full || from.is_none(), "a short page is the last");
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{filter:?} in pages of {limit}");
        }
    }
}

fn letters_of_a_rare_job_are_found_and_groups_are_counted_to_the_last(backend: Backend) {
    let test = TestStore::new(backend);
    let start = test.now();
    let rare = NewJob { queue: queue("slow"), tags: vec![rare_tag()], ..plain() };
    test.enqueue(id(&test, 1), NewJob { limit_key: Some(rare_key()), ..rare });
    end(&test, "slow", 1_000_000, 1, &failed("RARE", "KeyError: 'width'"));
    test.pass(DAY);
    let count = 10_500;
    let number = |number: u128| id(&test, 100 + number);
    commit(&test, (0..count).map(|it| write(enqueue(number(it), plain()))).collect());
    end(&test, "default", 1, 10_499, &failed("OLD", "no user 17"));
    end(&test, "default", 900_000, 1, &failed("OLD", "no user 18"));
    let check = |jobs: JobFilter| {
        let filter = LetterFilter { scope: tenant().into(), state: Some(LetterState::Open), jobs };
        let found =
            test.wait(test.store.letters(filter.clone(), PageFrom { from: None, limit: 20 }));
        let ids: Vec<u128> =
            found.items.iter().map(|letter| letter.job_id.as_u128() & 0xffff).collect();
        assert_eq!(ids, [1], "{filter:?}");
        assert!(found.next.is_none() && found.visited < 2_000, "{filter:?}: {}", found.visited);
    };
    check(JobFilter { queue: Some(queue("slow")), ..all() });
    check(JobFilter { tag: Some(rare_tag()), ..all() });
    check(JobFilter { code: Some("RARE".to_owned()), ..all() });
    check(JobFilter { limit_key: Some(rare_key()), ..all() });
    check(JobFilter { created_before: Some(start.plus(HOUR)), ..all() });
    check(JobFilter { failed_before: Some(start.plus(HOUR)), ..all() });
    // More jobs than are gathered fit, so letters are walked.
    let jobs = JobFilter { kind: Some(Kind::new("mail").unwrap()), ..all() };
    let filter = LetterFilter { scope: Scope::Every, state: None, jobs };
    let (mut found, mut from) = (HashSet::new(), None);
    loop {
        let cursor = PageFrom { from, limit: 1_000 };
        let page = test.wait(test.store.letters(filter.clone(), cursor));
        found.extend(page.items.iter().map(|letter| letter.id));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(found.len(), 10_501);
    for scope in [tenant().into(), Scope::Every] {
        let groups = test.wait(test.store.letter_groups(&scope, LetterState::Open));
        assert_eq!((groups.letters, groups.more), (10_501, false));
        let told: Vec<_> =
            groups.groups.iter().map(|it| (&*it.code, &*it.cause, it.count)).collect();
        assert_eq!(told, [("OLD", "no user …", 10_500), ("RARE", "KeyError: 'width'", 1)]);
        assert_eq!(groups.groups[1].first_at, start);
        assert_eq!(groups.groups[1].newest.as_u128() & 0xffff, 1);
    }
    let none = test.wait(test.store.letter_groups(&tenant().into(), LetterState::Requeued));
    assert!(none.groups.is_empty());
}
