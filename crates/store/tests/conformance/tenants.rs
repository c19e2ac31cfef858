//! Tenants: what is another's is not there, whatever is asked for and however it is named.

use windlass_kernel::{
    By, DlqId, Epoch, IdempotencyKey, IdempotencyScope, JobId, TaskId, TenantId,
    ops::{Discard, Enqueue, Idempotency, NewJob, NewTask, Outcome, Renew},
};
use windlass_store::{
    Write,
    read::{JobFilter, LetterFilter, PageFrom},
};

use crate::common::*;

for_each_backend!(
    no_read_finds_what_is_anothers,
    every_list_is_of_one_tenant_or_of_all,
    the_feed_of_a_quiet_tenant_gets_on,
    the_newest_job_of_a_task_is_found,
    why_a_job_waits_names_nothing_of_others,
);

fn of(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn scope(name: &str) -> Scope {
    of(name).into()
}

const ALL: PageFrom = PageFrom { from: None, limit: 100 };

fn op_of(name: &str, op: impl Into<windlass_kernel::Op>) -> Write {
    Write::Op { tenant: of(name), op: op.into() }
}

fn enqueue_for(name: &str, number: u128, new: NewJob) -> Write {
    op_of(name, Enqueue { tenant: of(name), ..enqueue(number, new) })
}

/// The same for two tenants: a job that has failed, with a report, a result and a letter that somebody wants to
/// discard, one that runs, one that waits, and an enqueue of a user's own transaction that was a hit. Numbers of `b`
/// begin at 100.
fn both(backend: Backend) -> TestStore {
    let test = TestStore::new(backend);
    for (name, first) in [("a", 1), ("b", 101)] {
        test.write(enqueue_for(name, first, with_payload("[1]"))).unwrap();
        let epoch = claim(&test, first);
        let id = JobId::from_u128(first);
        let progress = Some(payload("7"));
        let renew = Renew {
            job_id: id,
            epoch,
            by: By::worker(worker("w1")),
            lease: LEASE,
            heartbeat: true,
            progress,
        };
        test.write(op_of(name, renew)).unwrap();
        let stats = Some(payload("{\"rows\":1}"));
        let end = settle(id, epoch, failed_for_good());
        test.write(op_of(name, windlass_kernel::ops::Settle { stats, ..end })).unwrap();
        let dlq_id = DlqId::of_job(id);
        let discard = Discard { dlq_id, reason: "old".to_owned(), by: person("ann") };
        test.write(op_of(name, discard)).unwrap();
        let ended = id_of(&test, name, first + 1);
        let result = Outcome::Succeeded { result: Some(payload("\"done\"")) };
        let epoch = claim(&test, first + 1);
        test.write(op_of(name, settle(ended, epoch, result))).unwrap();
        test.write(enqueue_for(name, first + 2, keyed())).unwrap();
        let mut user = test.home.user();
        user.begin();
        let again = Enqueue { tenant: of(name), ..enqueue(first + 3, keyed()) };
        user.put(&again, test.now()).unwrap();
        user.sql("COMMIT");
        test.commit(Vec::new());
    }
    test
}

fn id_of(test: &TestStore, name: &str, number: u128) -> JobId {
    test.write(enqueue_for(name, number, plain())).unwrap();
    JobId::from_u128(number)
}

fn keyed() -> NewJob {
    let (scope, key) = (IdempotencyScope::new("s").unwrap(), IdempotencyKey::new("k").unwrap());
    let queue = queue("later");
    NewJob { idempotency: Idempotency::Key { scope, key }, queue, ..plain() }
}

fn claim(test: &TestStore, number: u128) -> Epoch {
    let granted = test.claim("w1", number, 1);
    assert_eq!(granted[0].job.id, JobId::from_u128(number));
    granted[0].job.epoch
}

/// What each read finds of the things of one tenant, whose numbers begin here: how many it is, read by read.
fn seen(test: &TestStore, scope: &Scope, first: u128) -> Vec<(&'static str, usize)> {
    let store = &test.store;
    let [failed, ended, waiting, hit] = [0, 1, 2, 3].map(|it| JobId::from_u128(first + it));
    let letter = DlqId::of_job(failed);
    vec![
        ("job", test.wait(store.job(scope, failed)).iter().count()),
        ("payload", test.wait(store.payload(scope, failed)).iter().count()),
        ("output", test.wait(store.last_output(scope, ended)).iter().count()),
        ("progress", test.wait(store.progress(scope, failed)).iter().count()),
        ("events", test.wait(store.events(scope, failed)).len().min(1)),
        ("attempts", test.wait(store.attempts(scope, failed, 0, 10)).items.len()),
        ("letter", test.wait(store.letter(scope, letter)).iter().count()),
        ("approvals", test.wait(store.approvals(scope, letter)).len()),
        ("inbox_result", test.wait(store.inbox_result(scope, hit)).iter().count()),
        ("standing", test.wait(store.standing(scope, waiting)).iter().count()),
        ("task", test.wait(store.newest_of_task(scope, &TaskId::of_job(ended))).iter().count()),
    ]
}

fn no_read_finds_what_is_anothers(backend: Backend) {
    let test = both(backend);
    let owners = [("a", 1), ("b", 101)];
    for (owner, first) in owners {
        for (name, found) in seen(&test, &scope(owner), first) {
            assert_eq!(found, 1, "{owner} has its own {name}");
        }
        for (name, found) in seen(&test, &Scope::Every, first) {
            assert_eq!(found, 1, "whoever serves all sees the {name} of {owner}");
        }
        for other in ["a", "b", "c"].into_iter().filter(|other| *other != owner) {
            for (name, found) in seen(&test, &scope(other), first) {
                assert_eq!(found, 0, "{other} finds the {name} of {owner}");
            }
        }
    }
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn every_list_is_of_one_tenant_or_of_all(backend: Backend) {
    let test = both(backend);
    let jobs = |scope: Scope| {
        let page = test.wait(test.store.jobs(JobFilter::of(scope), ALL));
        page.items.iter().map(|job| job.id.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!(jobs(scope("a")), [3, 2, 1]);
    assert_eq!(jobs(scope("b")), [103, 102, 101]);
    assert_eq!(jobs(Scope::Every), [103, 102, 101, 3, 2, 1]);
    assert!(jobs(scope("c")).is_empty());
    let letters = |scope: Scope, limit| {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let filter = LetterFilter::of(scope.clone());
            let page = test.wait(test.store.letters(filter, PageFrom { from, limit }));
            found.extend(page.items.iter().map(|letter| letter.job_id.as_u128()));
            from = page.next;
            if from.is_none() {
                found.sort_unstable();
                return found;
            }
        }
    };
    for limit in [1, 2, 100] {
        assert_eq!(letters(scope("a"), limit), [1]);
        assert_eq!(letters(scope("b"), limit), [101]);
        assert_eq!(letters(Scope::Every, limit), [1, 101]);
        assert!(letters(scope("c"), limit).is_empty());
    }
    let counted = |scope: Scope| {
        test.wait(test.store.counts(&scope)).iter().map(|(_, _, jobs)| jobs).sum::<u64>()
    };
    let [of_a, of_b, of_c] = ["a", "b", "c"].map(|name| counted(scope(name)));
    assert_eq!((of_a, of_b, of_c, counted(Scope::Every)), (3, 3, 0, 6));
    let oldest = |scope: Scope| test.wait(test.store.oldest_ready(&scope)).len();
    let [of_a, of_c] = ["a", "c"].map(|name| oldest(scope(name)));
    assert_eq!((of_a, of_c, oldest(Scope::Every)), (1, 0, 2), "each tenant's own");
}

fn the_feed_of_a_quiet_tenant_gets_on(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=20 {
        let name = if number == 13 { "quiet" } else { "loud" };
        test.write(enqueue_for(name, number, plain())).unwrap();
    }
    let (mut after, mut heard, mut looks) = (0, Vec::new(), 0);
    loop {
        let part = test.wait(test.store.feed(&scope("quiet"), after, 3));
        assert!(part.upto <= after + 3, "it looked at more than three rows");
        heard.extend(part.events);
        if part.upto == after {
            break;
        }
        (after, looks) = (part.upto, looks + 1);
    }
    assert_eq!((after, looks), (20, 7), "it has come to the end, a bounded part at a time");
    assert_eq!(heard.iter().map(|it| it.number).collect::<Vec<_>>(), [13]);
    let event = heard[0].event().unwrap();
    assert_eq!((event.job_id, event.number, event.at), (JobId::from_u128(13), 1, heard[0].at));
    let all = test.wait(test.store.feed(&Scope::Every, 0, 100));
    assert_eq!((all.events.len(), all.upto), (20, 20));
    assert_eq!(test.wait(test.store.feed(&scope("nobody"), 0, 100)).upto, 20);
}

fn the_newest_job_of_a_task_is_found(backend: Backend) {
    let test = TestStore::new(backend);
    let task = TaskId::new("bill-7").unwrap();
    let of_task =
        || NewJob { task: Some(NewTask { task_id: task.clone(), may_rerun: true }), ..plain() };
    let newest = |scope: &Scope, task: &TaskId| {
        let job = test.wait(test.store.newest_of_task(scope, task));
        job.map(|job| (job.id.as_u128(), job.attempt))
    };
    assert_eq!(newest(&scope("a"), &task), None);
    for (number, attempt) in [(1, 1), (2, 2)] {
        test.write(enqueue_for("a", number, of_task())).unwrap();
        assert_eq!(newest(&scope("a"), &task), Some((number, attempt)));
        let epoch = claim(&test, number);
        let end = settle(JobId::from_u128(number), epoch, succeeded());
        test.write(op_of("a", end)).unwrap();
    }
    assert_eq!(newest(&scope("b"), &task), None, "another may have a task of the same name");
    assert_eq!(newest(&Scope::Every, &task), Some((2, 2)));
    test.write(enqueue_for("b", 11, of_task())).unwrap();
    assert_eq!(newest(&scope("b"), &task), Some((11, 1)));
    assert_eq!(newest(&scope("a"), &task), Some((2, 2)));
    assert_eq!(newest(&Scope::Every, &task), Some((2, 2)));
    // A job that was given no task is one of its own.
    let own = id_of(&test, "a", 21);
    assert_eq!(newest(&scope("a"), &TaskId::of_job(own)), Some((21, 1)));
    assert_eq!(newest(&scope("a"), &TaskId::of_job(JobId::from_u128(1))), None);
}

fn why_a_job_waits_names_nothing_of_others(backend: Backend) {
    use windlass_kernel::{RuleName, Says, rule};
    let test = TestStore::new(backend);
    let put = rule::PutRule {
        name: RuleName::new("one").unwrap(),
        scope: rule::Scope::default(),
        says: Says::Concurrency { max: 1, each: rule::Each::Together },
        within: None,
        by: person("ann"),
        reason: None,
    };
    test.write(Write::Rule(rule::RuleOp::Put(put))).unwrap();
    id_of(&test, "a", 1);
    claim(&test, 1);
    let waits = id_of(&test, "b", 2);
    let standing = |scope: Scope| test.wait(test.store.standing(&scope, waits)).unwrap();
    let (to_b, to_all) = (standing(scope("b")), standing(Scope::Every));
    assert_eq!((to_b.blocked.len(), to_all.blocked.len()), (1, 1), "the rule holds for both");
    assert_eq!((to_b.holders.len(), to_all.holders.len()), (0, 1));
    assert_eq!((to_b.running.is_some(), to_all.running.is_some()), (false, true));
}
