//! User transactions: a job is enqueued in a user's own transaction, and is there if and only if that
//! commits.

mod processes;

use std::{
    thread,
    time::{Duration, Instant},
};

use windlass_kernel::{
    IdempotencyKey, IdempotencyScope, Job, JobId, Kind, Queue, Refusal, State, TaskId, TenantId,
    Timestamp,
    job::Priority,
    ops::{Cancel, Idempotency, NewJob, NewTask},
};
use windlass_store::read::{InboxOutcome, InboxResult};

use crate::common::*;

for_each_backend!(
    a_job_commits_with_the_users_rows,
    a_rollback_leaves_nothing,
    many_in_one_transaction_keep_their_order,
    an_op_finds_a_job_at_the_end_of_a_long_inbox,
    a_hit_a_conflict_and_a_refusal_are_told_and_stop_nobody,
    a_deadline_that_passes_in_the_inbox_is_refused_and_kept,
    what_can_be_refused_at_once_is_refused_before_anything_is_written,
    a_payload_is_kept_byte_for_byte,
    a_job_is_noticed_without_other_traffic,
    jobs_of_several_tenants_are_told_each_to_its_own,
    every_id_that_was_given_leads_to_a_job_or_to_a_result,
);

/// A store beside which a user has a table of orders in the same database.
fn shop(backend: Backend) -> TestStore {
    let test = TestStore::new(backend);
    test.home.user().sql("CREATE TABLE orders (id INTEGER)");
    test
}

/// Enqueues in one transaction of a user, with an order for each job.
fn user_commits(test: &TestStore, jobs: impl IntoIterator<Item = (u128, NewJob)>) {
    let mut user = test.home.user();
    user.begin();
    for (number, new) in jobs {
        user.sql("INSERT INTO orders VALUES (1)");
        put(&mut *user, number, new).unwrap();
    }
    user.sql("COMMIT");
}

fn put(user: &mut dyn User, number: u128, new: NewJob) -> Result<(), Refusal> {
    user.put(&enqueue(number, new), Timestamp::from_micros(START))
}

fn result(test: &TestStore, number: u128) -> Option<InboxResult> {
    test.wait(test.store.inbox_result(&Scope::Every, JobId::from_u128(number)))
}

fn find(test: &TestStore, number: u128) -> Option<Job> {
    test.wait(test.store.job(&Scope::Every, JobId::from_u128(number)))
}

fn with_key(key: &str, new: NewJob) -> NewJob {
    let scope = IdempotencyScope::new("orders").unwrap();
    let key = IdempotencyKey::new(key).unwrap();
    NewJob { idempotency: Idempotency::Key { scope, key }, ..new }
}

fn check(test: &TestStore) {
    let report = test.home.check();
    assert!(report.violations.is_empty(), "{report}");
}

/// Waits until the store has so many jobs, and writes nothing meanwhile.
fn wait_for_jobs(test: &TestStore, jobs: u64) {
    let since = Instant::now();
    while test.wait(test.store.counts(&Scope::Every)).iter().map(|it| it.2).sum::<u64>() < jobs {
        assert!(since.elapsed() < Duration::from_secs(10), "nobody has noticed");
        thread::sleep(Duration::from_millis(5));
    }
}

fn a_job_commits_with_the_users_rows(backend: Backend) {
    let test = shop(backend);
    user_commits(&test, [(1, plain())]);
    let job = test.job(JobId::from_u128(1));
    assert_eq!((job.state, job.version), (State::Queued, 1));
    let events = test.wait(test.store.events(&Scope::Every, job.id));
    assert_eq!(events[0].actor.to_string(), "user:ann");
    assert_eq!((test.home.count("inbox"), test.home.count("orders")), (0, 1));
    assert_eq!(result(&test, 1), None);
    assert_eq!(test.claim("w1", 1, 10).len(), 1);
    check(&test);
}

fn a_rollback_leaves_nothing(backend: Backend) {
    let test = shop(backend);
    let mut user = test.home.user();
    user.begin();
    put(&mut *user, 1, plain()).unwrap();
    user.sql("ROLLBACK");
    user.begin();
    user.sql("SAVEPOINT order_2");
    put(&mut *user, 2, plain()).unwrap();
    user.sql("ROLLBACK TO SAVEPOINT order_2");
    user.sql("SAVEPOINT order_3");
    put(&mut *user, 3, plain()).unwrap();
    user.sql("RELEASE SAVEPOINT order_3");
    user.sql("COMMIT");
    test.commit(Vec::new());
    assert_eq!((find(&test, 1), find(&test, 2)), (None, None));
    assert!(find(&test, 3).is_some());
    assert_eq!(test.home.count("jobs"), 1);
}

fn many_in_one_transaction_keep_their_order(backend: Backend) {
    let test = shop(backend);
    user_commits(&test, (1..=1_200).rev().map(|number| (number, plain())));
    // The one that was asked for last is found, though a commit takes fewer than there are.
    assert!(find(&test, 1).is_some());
    let feed = test.wait(test.store.feed(&Scope::Every, 0, 1_200));
    let made: Vec<String> = feed.events.iter().map(|event| event.line[2..28].to_owned()).collect();
    let asked =
        (1..=1_200).rev().map(|number| JobId::from_u128(number).to_string()[4..].to_owned());
    assert!(made.iter().cloned().eq(asked), "{} jobs out of order", made.len());
    check(&test);
}

fn an_op_finds_a_job_at_the_end_of_a_long_inbox(backend: Backend) {
    let test = shop(backend);
    user_commits(&test, (1..=1_300).map(|number| (number, plain())));
    let job_id = JobId::from_u128(1_300);
    let cancel = Cancel { job_id, by: person("ann"), reason: None, force: false, grace: LEASE };
    assert_eq!(test.op(cancel).unwrap().state, State::Cancelled);
    assert_eq!((test.home.count("jobs"), test.home.count("inbox")), (1_300, 0));
    let missing = Cancel {
        job_id: JobId::from_u128(9_999),
        by: person("ann"),
        reason: None,
        force: false,
        grace: LEASE,
    };
    assert_eq!(test.op(missing), Err(Refusal::NotFound { what: "job" }));
    check(&test);
}

fn a_hit_a_conflict_and_a_refusal_are_told_and_stop_nobody(backend: Backend) {
    let test = shop(backend);
    let task = |new| {
        let task_id = TaskId::new("invoice-1").unwrap();
        NewJob { task: Some(NewTask { task_id, may_rerun: false }), ..new }
    };
    test.enqueue(1, with_key("a", plain()));
    let before = test.wait(test.store.feed(&Scope::Every, 0, 100)).events.len() as u64;
    user_commits(
        &test,
        [
            (2, with_key("a", plain())),
            (3, with_key("a", with_payload("{ \"other\":1.0 }"))),
            (4, task(plain())),
            (5, task(with_payload("[ 5 ]"))),
            (6, with_key("b", plain())),
            (7, with_key("b", plain())),
        ],
    );
    test.pass(Duration::from_secs(5));
    let first = JobId::from_u128(1);
    let hit = result(&test, 2).unwrap();
    assert_eq!((hit.outcome, hit.existing), (InboxOutcome::Hit, Some(first)));
    assert_eq!((hit.code, hit.request, hit.payload), (None, None, None));
    let conflict = result(&test, 3).unwrap();
    assert_eq!((conflict.outcome, conflict.existing), (InboxOutcome::Conflict, Some(first)));
    assert_eq!(conflict.code.as_deref(), Some("IDEMPOTENCY_CONFLICT"));
    assert_eq!(conflict.payload.as_deref(), Some("{ \"other\":1.0 }"));
    assert!(conflict.why.unwrap().contains("payload"), "it names the field");
    let refused = result(&test, 5).unwrap();
    assert_eq!((refused.outcome, refused.existing), (InboxOutcome::Refused, None));
    assert_eq!(refused.code.as_deref(), Some("TASK_DUPLICATE"));
    assert_eq!(refused.payload.as_deref(), Some("[ 5 ]"));
    assert_eq!(result(&test, 7).unwrap().existing, Some(JobId::from_u128(6)));
    for (number, made) in [(2, false), (3, false), (4, true), (5, false), (6, true), (7, false)] {
        assert_eq!(find(&test, number).is_some(), made, "job {number}");
    }
    let told: Vec<(u64, String)> = test
        .wait(test.store.feed(&Scope::Every, before, 100))
        .events
        .into_iter()
        .filter(|event| event.line.starts_with('{'))
        .map(|event| (event.number, event.line))
        .collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].1.starts_with("{\"inbox\":\"hit\",\"job_id\":\"job_"), "{told:?}");
    assert!(told[0].1.contains("user:ann"), "{told:?}");
    let events: Vec<u64> = [2, 3, 5, 7].map(|it| result(&test, it).unwrap().event).to_vec();
    assert_eq!(told.iter().map(|it| it.0).collect::<Vec<_>>(), events);
    check(&test);
}

fn a_deadline_that_passes_in_the_inbox_is_refused_and_kept(backend: Backend) {
    let test = shop(backend);
    let deadline_at = Some(test.now().plus(Duration::from_secs(1)));
    let mut user = test.home.user();
    user.begin();
    put(&mut *user, 1, NewJob { deadline_at, ..with_payload("[1]") }).unwrap();
    test.pass(Duration::from_secs(2));
    user.sql("COMMIT");
    let refused = result(&test, 1).unwrap();
    assert_eq!(refused.code.as_deref(), Some("INVALID_INPUT"));
    assert_eq!(refused.payload.as_deref(), Some("[1]"));
    assert_eq!(refused.at.since(refused.asked_at), Duration::from_secs(2));
    check(&test);
}

fn what_can_be_refused_at_once_is_refused_before_anything_is_written(backend: Backend) {
    let test = shop(backend);
    let odd = Some(Duration::from_micros(1_500));
    let early = Some(Timestamp::from_micros(START - 1));
    let reserved = Idempotency::Key {
        scope: IdempotencyScope::new("_job").unwrap(),
        key: IdempotencyKey::new("a").unwrap(),
    };
    let wrong = [
        NewJob { priority: Priority(2_000), ..plain() },
        NewJob { max_interruptions: 0, ..plain() },
        NewJob { timeout: odd, ..plain() },
        NewJob { deadline_at: early, ..plain() },
        NewJob { idempotency: reserved, ..plain() },
        NewJob { kind: Kind::new("windlass.webhook").unwrap(), ..plain() },
        NewJob { queue: Queue::new("windlass.webhooks").unwrap(), ..plain() },
    ];
    let refused = wrong.clone().map(|new| test.op(enqueue(1, new)).unwrap_err());
    let mut user = test.home.user();
    user.begin();
    for (new, op) in wrong.into_iter().zip(refused) {
        // The same words as those of the op.
        assert_eq!(put(&mut *user, 1, new), Err(op));
    }
    // The transaction is as it was: nothing was written, and it goes on.
    assert_eq!(user.changes(), 0);
    put(&mut *user, 2, plain()).unwrap();
    user.sql("COMMIT");
    assert!(find(&test, 2).is_some());
}

fn a_payload_is_kept_byte_for_byte(backend: Backend) {
    let test = shop(backend);
    let long = format!("\"{}\"", "ü".repeat(200_000));
    let texts =
        ["{ \"n\" : 3544790567247868102,\n\t\"f\":1.10e+2 }", "\"\\u0000\\ud83d\\ude00 €\"", &long];
    user_commits(&test, (1..).zip(texts.map(with_payload)));
    for (number, text) in (1..).zip(texts) {
        let payload = test.wait(test.store.payload(&Scope::Every, JobId::from_u128(number)));
        assert_eq!(payload.as_deref(), Some(text));
    }
    check(&test);
}

fn a_job_is_noticed_without_other_traffic(backend: Backend) {
    let test = shop(backend);
    for round in 1..=3 {
        let first = round * 2_000;
        user_commits(&test, (first..first + 600).map(|number| (number, plain())));
        wait_for_jobs(&test, u64::try_from(round * 600).unwrap());
    }
}

fn jobs_of_several_tenants_are_told_each_to_its_own(backend: Backend) {
    let test = shop(backend);
    let mut user = test.home.user();
    user.begin();
    let now = Timestamp::from_micros(START);
    for number in 1..=6 {
        let tenant = TenantId::new(if number % 2 == 0 { "zeta" } else { "acme" }).unwrap();
        let mut op = enqueue(number, with_key("a", plain()));
        op.tenant = tenant;
        user.put(&op, now).unwrap();
    }
    user.sql("COMMIT");
    test.commit(Vec::new());
    // Whoever looks after the inbox by itself may have been there first, and may not be done.
    wait_for_jobs(&test, 2);
    let feed = test.wait(test.store.feed(&Scope::Every, 0, 100));
    let told: Vec<(u64, &str, bool)> = feed
        .events
        .iter()
        .map(|it| (it.number, it.tenant.as_str(), it.line.starts_with('{')))
        .collect();
    let expected = [
        (1, "acme", false),
        (2, "zeta", false),
        (3, "acme", true),
        (4, "acme", true),
        (5, "zeta", true),
        (6, "zeta", true),
    ];
    assert_eq!(told, expected);
    assert_eq!(result(&test, 3).unwrap().existing, Some(JobId::from_u128(1)));
    assert_eq!(result(&test, 4).unwrap().existing, Some(JobId::from_u128(2)));
    assert_eq!(test.home.count("jobs"), 2);
    check(&test);
    test.enqueue(9, plain());
    check(&test);
}

fn every_id_that_was_given_leads_to_a_job_or_to_a_result(backend: Backend) {
    let test = shop(backend);
    let users: u128 = 4;
    let each: u128 = 60;
    thread::scope(|scope| {
        for user in 1..=users {
            let test = &test;
            scope.spawn(move || {
                for number in 1..=each {
                    let text = format!("{}", (user + number) % 3);
                    let new = with_key(&format!("k{}", number % 40), with_payload(&text));
                    user_commits(test, [(user << 32 | number, new)]);
                    test.enqueue(user << 40 | number, plain());
                }
            });
        }
    });
    let mut made = 0;
    for user in 1..=users {
        for number in (1..=each).map(|number| user << 32 | number) {
            let (job, result) = (find(&test, number), result(&test, number));
            assert!(job.is_some() != result.is_some(), "{number} leads to {job:?} and {result:?}");
            made += u32::from(job.is_some());
        }
    }
    assert_eq!(made, 40, "one job for each key");
    assert_eq!(test.home.count("inbox_set_aside"), 0);
    check(&test);
}
