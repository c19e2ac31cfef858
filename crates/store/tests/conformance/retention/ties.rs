//! What living things lean on stays: letters that are open, parents, children and tasks that run.

use super::{DAY, HOUR, finish, is_there, older_than, prune, settle_all, step};
use windlass_kernel::{
    DlqId, JobId, State,
    ops::{ApproveDiscard, Discard, NewJob, NewTask, Requeue, Rerun},
};

use crate::common::*;

for_each_backend!(
    a_letter_that_nobody_has_decided_about_stays_with_its_job,
    what_two_people_decided_is_remembered_like_what_a_job_did,
    a_step_ends_also_if_nothing_that_it_looked_at_may_go,
    a_failed_job_stays_while_the_job_that_took_over_lives,
    a_job_stays_while_its_task_runs_again_and_the_task_outlives_both,
    a_job_that_is_run_again_stays_until_its_rerun_is_at_its_end,
    parents_and_children_stay_for_each_other,
    a_parent_of_many_goes_when_its_children_went,
);

/// A job that failed for good.
fn fail(test: &TestStore, number: u128) -> (JobId, DlqId) {
    let id = test.enqueue(number, plain());
    let granted = test.claim("w1", number, 1).remove(0).job;
    assert_eq!(granted.id, id);
    test.op(settle(id, granted.epoch, failed_for_good())).unwrap();
    (id, DlqId::of_job(id))
}

/// Forgets what it can, long after all that was done.
fn prune_later(test: &TestStore) -> u64 {
    test.pass(30 * DAY);
    prune(test, older_than(HOUR)).jobs
}

fn a_letter_that_nobody_has_decided_about_stays_with_its_job(backend: Backend) {
    let test = TestStore::new(backend);
    let (open, _) = fail(&test, 1);
    let (asked, dlq_id) = fail(&test, 2);
    let reason = "nobody needs it".to_owned();
    test.op(Discard { dlq_id, reason, by: person("ann") }).unwrap();
    assert_eq!(prune_later(&test), 0);
    assert!(is_there(&test, open) && is_there(&test, asked));
    test.op(ApproveDiscard { dlq_id, by: person("bob") }).unwrap();
    assert_eq!(prune_later(&test), 1);
    assert!(is_there(&test, open) && !is_there(&test, asked));
    assert!(test.wait(test.store.letter(&Scope::Every, dlq_id)).is_none());
    assert_eq!(test.home.count("approvals"), 0);
}

fn what_two_people_decided_is_remembered_like_what_a_job_did(backend: Backend) {
    let test = TestStore::new(backend);
    let (id, dlq_id) = fail(&test, 1);
    test.pass(30 * DAY);
    test.op(Discard { dlq_id, reason: "old".to_owned(), by: person("ann") }).unwrap();
    test.op(ApproveDiscard { dlq_id, by: person("bob") }).unwrap();
    test.enqueue(2, plain());
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 0);
    assert!(is_there(&test, id));
    assert_eq!(test.wait(test.store.approvals(&Scope::Every, dlq_id)).len(), 2);
    test.pass(HOUR);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 1);
}

fn a_step_ends_also_if_nothing_that_it_looked_at_may_go(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=12 {
        fail(&test, number);
    }
    finish(&test, 13, plain());
    test.pass(DAY);
    for round in 0..2 {
        let steps: Vec<_> = (0..3).map(|_| step(&test, older_than(HOUR), 5)).collect();
        let jobs: Vec<u64> = steps.iter().map(|it| it.jobs).collect();
        assert_eq!(jobs, if round == 0 { [1, 0, 0] } else { [0, 0, 0] });
        let log_is_left = round == 0;
        assert_eq!(steps[2].more, log_is_left);
        if log_is_left {
            step(&test, older_than(HOUR), 5);
        }
    }
}

fn a_failed_job_stays_while_the_job_that_took_over_lives(backend: Backend) {
    let test = TestStore::new(backend);
    let (failed, dlq_id) = fail(&test, 1);
    let new_job_id = JobId::from_u128(2);
    test.op(Requeue { dlq_id, new_job_id, payload: None, by: person("ann") }).unwrap();
    assert_eq!(prune_later(&test), 0);
    settle_all(&test, 2);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 1, "the first is old enough");
    assert!(!is_there(&test, failed) && is_there(&test, new_job_id));
    assert_eq!(prune_later(&test), 1);
}

fn a_job_stays_while_its_task_runs_again_and_the_task_outlives_both(backend: Backend) {
    let test = TestStore::new(backend);
    let task = |may_rerun| Some(NewTask { task_id: "invoice-1".parse().unwrap(), may_rerun });
    let id = finish(&test, 1, NewJob { task: task(false), ..plain() });
    let again = test.enqueue(2, NewJob { task: task(true), ..plain() });
    assert_eq!(prune_later(&test), 0);
    settle_all(&test, 2);
    assert_eq!(prune_later(&test), 2);
    assert!(!is_there(&test, id) && !is_there(&test, again));
    let third = test.enqueue(3, NewJob { task: task(true), ..plain() });
    assert_eq!(test.job(third).attempt, 3, "attempts are not counted anew");
}

fn a_job_that_is_run_again_stays_until_its_rerun_is_at_its_end(backend: Backend) {
    let test = TestStore::new(backend);
    let (failed, _) = fail(&test, 1);
    let rerun = || Rerun { job_id: failed, new_job_id: JobId::from_u128(2), by: person("ann") };
    test.op(rerun()).unwrap();
    assert_eq!(prune_later(&test), 0);
    assert!(test.op(rerun()).unwrap().recorded);
    settle_all(&test, 2);
    assert_eq!(prune_later(&test), 2);
}

fn parents_and_children_stay_for_each_other(backend: Backend) {
    let test = TestStore::new(backend);
    let parent = test.enqueue(1, plain());
    let child = test.enqueue(2, NewJob { parent: Some(parent), ..plain() });
    let granted = test.claim("w1", 1, 2);
    let epoch = granted[0].job.epoch;
    test.op(settle(child, epoch, succeeded())).unwrap();
    assert_eq!(prune_later(&test), 0, "the parent may still wait for it");
    let late = test.enqueue(3, NewJob { parent: Some(parent), ..plain() });
    test.op(settle(parent, epoch, succeeded())).unwrap();
    assert_eq!(prune_later(&test), 1, "its end was told");
    assert!(!is_there(&test, child) && is_there(&test, parent) && is_there(&test, late));
    settle_all(&test, 2);
    assert_eq!(test.job(late).state, State::Succeeded);
    assert_eq!(prune_later(&test), 2);
    assert_eq!(test.home.count("follow_ups"), 2, "they wait to be carried out");
}

fn a_parent_of_many_goes_when_its_children_went(backend: Backend) {
    let test = TestStore::new(backend);
    let parent = test.enqueue(1, plain());
    let child = |number| write(enqueue(number, NewJob { parent: Some(parent), ..plain() }));
    test.commit((2..=300).map(child).collect());
    settle_all(&test, 1);
    test.pass(DAY);
    assert_eq!(prune(&test, older_than(HOUR)).jobs, 300);
}
