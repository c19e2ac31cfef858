//! Retention: finished jobs are forgotten whole, in small steps, and nothing else is.

mod inbox;
mod log;
mod notes;
mod ties;

use std::{collections::BTreeMap, time::Duration};

use windlass_kernel::{
    DlqId, IdempotencyKey, IdempotencyScope, JobId, Op, Retention, Tag, TenantId, Timestamp,
    ops::{Enqueue, Idempotency, NewJob},
};
use windlass_store::{Write, read::Pruned};

use crate::common::*;

for_each_backend!(
    a_job_goes_whole_when_it_was_at_its_end_for_long_enough,
    whatever_is_asked_for_a_job_outlives_the_time_in_which_answers_are_asked_for_again,
    of_each_tenant_so_many_finished_jobs_stay_and_the_oldest_go,
    a_key_is_known_for_as_long_as_was_promised,
    a_step_is_small_and_others_write_in_between,
    after_a_random_past_whatever_is_left_is_what_it_was,
);

for_each_lasting_backend!(
    the_id_of_a_forgotten_job_is_not_given_out_while_the_log_speaks_of_it,
    killed_between_its_steps_it_goes_on_and_loses_nothing_else,
    child_prunes_until_it_is_killed,
);

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// By age alone.
fn older_than(finished_for: Duration) -> Retention {
    Retention { finished_for, ..Retention::default() }
}

/// By count alone.
fn at_most(keep: u64) -> Retention {
    Retention { keep_at_most: Some(keep), ..older_than(1000 * DAY) }
}

/// One step, after which the store breaks no rule.
fn step(test: &TestStore, retention: Retention, max: usize) -> Pruned {
    let pruned = test.wait(test.store.prune(retention, max));
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
    pruned
}

/// A whole pass.
fn prune(test: &TestStore, retention: Retention) -> Pruned {
    let mut all = Pruned::default();
    loop {
        let pruned = step(test, retention, 100);
        all.jobs += pruned.jobs;
        all.log_rows += pruned.log_rows;
        if !pruned.more {
            return all;
        }
    }
}

/// Makes a job and brings it to a good end.
fn finish(test: &TestStore, number: u128, new: NewJob) -> JobId {
    let id = test.enqueue(number, new);
    settle_all(test, number);
    id
}

/// Claims what can be claimed, and settles it.
fn settle_all(test: &TestStore, claim: u128) {
    for granted in test.claim("w1", claim, 1000) {
        let op = settle(granted.job.id, granted.job.epoch, succeeded());
        let write = Write::Op { tenant: granted.job.spec.tenant.clone(), op: op.into() };
        test.write(write).unwrap();
    }
}

fn is_there(test: &TestStore, id: JobId) -> bool {
    test.wait(test.store.job(&Scope::Every, id)).is_some()
}

fn a_job_goes_whole_when_it_was_at_its_end_for_long_enough(backend: Backend) {
    let test = TestStore::new(backend);
    let big = with_payload(&format!("\"{}\"", "x".repeat(1000)));
    let tags = vec![Tag::new("vip").unwrap(), Tag::new("blue").unwrap()];
    let limit_key = super::rules::with_key("ann").limit_key;
    let id = finish(&test, 1, NewJob { tags, limit_key, ..big });
    test.enqueue(2, plain());
    let epoch = test.job(id).epoch;
    test.pass(HOUR - Duration::from_micros(1));
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 0);
    test.pass(Duration::from_micros(1));
    let pruned = prune(&test, older_than(HOUR));
    assert_eq!((pruned.jobs, pruned.log_rows), (1, 3));

    assert!(!is_there(&test, id));
    assert!(test.wait(test.store.events(&Scope::Every, id)).is_empty());
    assert_eq!(test.wait(test.store.payload(&Scope::Every, id)), None);
    let old_worker = test.op(settle(id, epoch, succeeded())).unwrap_err();
    assert_eq!(old_worker.code(), "NOT_FOUND");
    for table in test.home.side_tables() {
        assert_eq!(test.home.count(table), 0, "{table}");
    }
    if matches!(backend, Backend::Postgres) {
        // The ids of both are of another time than they are.
        assert_eq!(test.home.count("job_astray"), 1, "that of the one that stays");
    }
    assert!(is_there(&test, JobId::from_u128(2)));
}

fn whatever_is_asked_for_a_job_outlives_the_time_in_which_answers_are_asked_for_again(
    backend: Backend,
) {
    let test = TestStore::new(backend);
    let id = finish(&test, 1, plain());
    test.pass(Retention::RETRY_WINDOW - Duration::from_micros(1));
    let nothing = Retention { keep_at_most: Some(0), ..older_than(Duration::ZERO) };
    assert_eq!(prune(&test, nothing).jobs, 0);
    assert!(test.op(enqueue(1, plain())).unwrap().recorded);
    test.pass(Duration::from_micros(1));
    assert_eq!(prune(&test, nothing).jobs, 1);
    assert!(!is_there(&test, id));
}

fn of_each_tenant_so_many_finished_jobs_stay_and_the_oldest_go(backend: Backend) {
    let test = TestStore::new(backend);
    // It waits for ever, and counts for nothing.
    test.enqueue(99, NewJob { scheduled_at: Some(Timestamp::MAX), ..plain() });
    for number in 1..=10 {
        let tenant = TenantId::new(if number <= 7 { "acme" } else { "zeta" }).unwrap();
        let op = Op::from(Enqueue { tenant: tenant.clone(), ..enqueue(number, plain()) });
        test.write(Write::Op { tenant, op }).unwrap();
        settle_all(&test, number);
    }
    test.pass(HOUR);
    assert_eq!(prune(&test, at_most(4)).jobs, 3);
    let left = [4, 5, 6, 7, 8, 9, 10, 99].map(JobId::from_u128);
    let gone = [1, 2, 3].map(JobId::from_u128);
    assert!(left.iter().all(|id| is_there(&test, *id)));
    assert!(!gone.iter().any(|id| is_there(&test, *id)));
    assert_eq!(prune(&test, at_most(4)).jobs, 0);
}

fn a_key_is_known_for_as_long_as_was_promised(backend: Backend) {
    let test = TestStore::new(backend);
    let keyed = || NewJob {
        idempotency: Idempotency::Key {
            scope: IdempotencyScope::new("orders").unwrap(),
            key: IdempotencyKey::new("order-1").unwrap(),
        },
        ..plain()
    };
    let id = finish(&test, 1, keyed());
    finish(&test, 2, plain());
    test.pass(7 * DAY - Duration::from_micros(1));
    assert_eq!(prune(&test, older_than(DAY)).jobs, 1);
    assert_eq!(prune(&test, at_most(0)).jobs, 0);
    let again = test.op(enqueue(3, keyed())).unwrap();
    assert_eq!((again.job_id, again.recorded), (id, true));
    test.pass(Duration::from_micros(1));
    assert_eq!(prune(&test, older_than(DAY)).jobs, 1);
    assert!(!test.op(enqueue(4, keyed())).unwrap().recorded);
}

fn the_id_of_a_forgotten_job_is_not_given_out_while_the_log_speaks_of_it(backend: Backend) {
    let test = TestStore::new(backend);
    let id = finish(&test, 1, plain());
    test.pass(HOUR);
    assert_eq!(step(&test, older_than(HOUR), 100).jobs, 1);
    for _ in 0..2 {
        let refused = test.op(enqueue(1, plain())).unwrap_err();
        assert_eq!(refused.code(), "JOB_EXISTS");
    }
    assert!(!is_there(&test, id));
    // No job that is stored has so late an id, and still it is asked for.
    let again = test.reopen();
    let refused = again.op(enqueue(1, plain())).unwrap_err();
    assert_eq!(refused.code(), "JOB_EXISTS");
    assert!(!again.op(enqueue(2, plain())).unwrap().recorded);
}

fn a_step_is_small_and_others_write_in_between(backend: Backend) {
    let test = TestStore::new(backend);
    test.commit((1..=50).map(|number| write(enqueue(number, plain()))).collect());
    settle_all(&test, 1);
    test.pass(DAY);
    let (mut steps, mut jobs) = (0, 0);
    loop {
        let pruned = step(&test, older_than(HOUR), 7);
        assert!(pruned.jobs <= 7);
        steps += 1;
        jobs += pruned.jobs;
        test.enqueue(1000 + steps, plain());
        if !pruned.more {
            break;
        }
    }
    assert_eq!(jobs, 50);
    assert!(steps >= 8, "{steps}");
    assert_eq!(test.wait(test.store.open_jobs()).len() as u128, steps);
}

fn after_a_random_past_whatever_is_left_is_what_it_was(backend: Backend) {
    for seed in 1..=3 {
        let mut rich = rich::Rich::new(backend);
        rich.live(seed, 1_500, 8);
        let ended: BTreeMap<JobId, bool> =
            rich.world.store.jobs.values().map(|job| (job.id, job.state.is_end())).collect();
        let retention = Retention { finished_for: HOUR, keep_at_most: Some(20), key_ttl: 2 * HOUR };
        let now = rich.world.now.plus(HOUR);
        rich.commit(Vec::new(), now);
        let mut gone = 0;
        loop {
            let pruned = rich.wait(rich.store.prune(retention, 10));
            gone += pruned.jobs;
            let report = rich.home.check();
            assert!(report.is_clean(), "{report}");
            if !pruned.more {
                break;
            }
        }
        assert!(gone > 20, "only {gone} jobs were forgotten");
        for (id, is_end) in ended {
            if rich.wait(rich.store.job(&Scope::Every, id)).is_some() {
                continue;
            }
            assert!(is_end, "{id} was not at its end");
            let twin = &mut rich.world.store;
            twin.jobs.remove(&id);
            let letter = twin.letters.remove(&DlqId::of_job(id));
            assert!(letter.is_none_or(|it| it.state.is_closed()), "{id} had an open letter");
        }
        rich.compare();
    }
}

fn killed_between_its_steps_it_goes_on_and_loses_nothing_else(backend: Backend) {
    let test = TestStore::new(backend);
    test.commit((1..=600).map(|number| write(enqueue(number, plain()))).collect());
    settle_all(&test, 1);
    test.commit((601..=700).map(|number| write(enqueue(number, plain()))).collect());
    let home = test.close();
    for round in 0..6 {
        let child = child_of(backend, "retention::child_prunes_until_it_is_killed", &*home);
        let child = Killed::start(child);
        std::thread::sleep(Duration::from_millis(round * 3));
        drop(child);
        let report = home.check();
        assert!(report.is_clean(), "after round {round}: {report}");
        let test = TestStore::open(home.clone()).unwrap();
        assert_eq!(test.wait(test.store.open_jobs()).len(), 100);
    }
    let test = TestStore::open(home).unwrap();
    test.pass(DAY);
    prune(&test, older_than(HOUR));
    assert_eq!(test.home.count("jobs"), 100);
    assert_eq!(test.home.count("pruned"), 0);
}

fn child_prunes_until_it_is_killed(backend: Backend) {
    let Some(home) = child_home(backend) else { return };
    let test = TestStore::open(home).unwrap();
    test.pass(DAY);
    test.wait(test.store.prune(older_than(HOUR), 5));
    println!("ready");
    for _ in 0..20 {
        test.wait(test.store.prune(older_than(HOUR), 5));
    }
    wait_to_be_killed();
}
