//! Races: many at once, and what each of them is told agrees with the history.

use std::{collections::HashSet, sync::Arc, time::Duration};

use windlass_kernel::{
    Answer, Cause, DlqId, Event, IdempotencyKey, IdempotencyScope, JobId, LetterState, OpKind,
    Refusal, State, TaskId,
    ops::{Cancel, Claim, Idempotency, NewJob, NewTask, Requeue, Rerun},
};
use windlass_store::{Reply, Write};

use crate::common::*;

for_each_backend!(
    of_many_workers_one_gets_the_job,
    of_many_claims_by_name_one_gets_the_job,
    of_two_settles_one_counts,
    the_same_settle_from_many_sides_counts_once,
    a_cancel_against_a_settle_is_told_as_it_happened,
    one_key_from_many_sides_is_one_job,
    one_letter_that_many_requeue_is_one_new_job,
    one_task_that_many_run_again_runs_once,
    one_cancelled_job_that_many_run_again_runs_once,
    of_requeues_and_new_jobs_of_one_task_one_takes_over_from_the_letter,
    requeues_against_reruns_make_one_new_job,
    everyone_gets_their_own_answers_in_order,
    a_refused_write_does_not_fail_its_neighbours,
);

const MANY: usize = 64;

/// Commits each write by itself, all at once, and gives back what each was told, in their order.
pub(crate) fn at_once(test: &TestStore, writes: Vec<Write>) -> Vec<Result<Reply, Refusal>> {
    let start = Arc::new(tokio::sync::Semaphore::new(0));
    let tasks: Vec<_> = writes
        .into_iter()
        .map(|write| {
            let (store, start) = (test.store.clone(), start.clone());
            test.runtime.spawn(async move {
                let _go = start.acquire().await.unwrap();
                store.commit(vec![write].into()).await.unwrap().remove(0)
            })
        })
        .collect();
    start.add_permits(tasks.len());
    tasks.into_iter().map(|task| test.runtime.block_on(task).unwrap()).collect()
}

pub(crate) fn answers(replies: Vec<Result<Reply, Refusal>>) -> Vec<Result<Answer, Refusal>> {
    replies.into_iter().map(|reply| reply.map(|reply| answer(&reply))).collect()
}

fn codes(refusals: &[Refusal]) -> HashSet<&'static str> {
    refusals.iter().map(Refusal::code).collect()
}

fn events(test: &TestStore, id: JobId) -> Vec<Event> {
    test.wait(test.store.events(&Scope::Every, id))
}

fn causes(test: &TestStore, id: JobId) -> Vec<Cause> {
    events(test, id).iter().map(|event| event.cause).collect()
}

fn of_many_workers_one_gets_the_job(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let claims = (0..MANY).map(|it| claim_many(&format!("w{it}"), it as u128, 3)).collect();
    let got = at_once(&test, claims);
    let got: Vec<_> = got.iter().map(|reply| granted(reply.as_ref().unwrap())).collect();
    let winners: Vec<_> = got.iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(test.job(id), *winners[0].job);
    assert_eq!(causes(&test, id), [Cause::Enqueued, Cause::WorkerClaim, Cause::Started]);
}

fn of_many_claims_by_name_one_gets_the_job(backend: Backend) {
    let test = TestStore::new(backend);
    let job_id = test.enqueue(1, plain());
    let claim = |number: usize| {
        let claim_id = windlass_kernel::ids::ClaimId::from_u128(number as u128 + 1);
        let worker = worker(&format!("w{number}"));
        let (lease, trace_id) = (LEASE, None);
        write(Claim { job_id, claim_id, worker, trace_id, lease, start: true, alone: false })
    };
    let (won, lost): (Vec<_>, Vec<_>) = answers(at_once(&test, (0..MANY).map(claim).collect()))
        .into_iter()
        .partition(Result::is_ok);
    let lost: Vec<Refusal> = lost.into_iter().map(Result::unwrap_err).collect();
    assert_eq!((won.len(), codes(&lost)), (1, HashSet::from(["INVALID_TRANSITION"])));
    assert_eq!(test.job(job_id).lease_count, 1);
}

fn of_two_settles_one_counts(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=20 {
        let id = test.enqueue(number, plain());
        let epoch = test.claim("w1", number, 1)[0].job.epoch;
        let outcomes = [succeeded(), failed_for_good()];
        let states = [State::Succeeded, State::Failed];
        let told = outcomes.map(|outcome| write(settle(id, epoch, outcome))).to_vec();
        let told = answers(at_once(&test, told));
        let winner = told.iter().position(Result::is_ok).expect("one of them counts");
        let (from, op) = (states[winner], OpKind::Settle);
        assert_eq!(told[1 - winner], Err(Refusal::InvalidTransition { from, op }));
        assert_eq!(test.job(id).state, states[winner]);
        let ends = events(&test, id).into_iter().filter(|event| event.to.is_end());
        assert_eq!(ends.map(|event| event.to).collect::<Vec<_>>(), [states[winner]]);
    }
}

fn the_same_settle_from_many_sides_counts_once(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let told = answers(at_once(&test, vec![write(settle(id, epoch, succeeded())); MANY]));
    let told: Vec<Answer> = told.into_iter().map(Result::unwrap).collect();
    assert!(told.iter().all(|answer| answer.state == State::Succeeded));
    assert_eq!(told.iter().filter(|answer| !answer.recorded).count(), 1);
    assert_eq!(events(&test, id).len(), 4);
}

fn a_cancel_against_a_settle_is_told_as_it_happened(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=20 {
        let id = test.enqueue(number, plain());
        let epoch = test.claim("w1", number, 1)[0].job.epoch;
        let (force, grace) = (true, Duration::ZERO);
        let cancel = Cancel { job_id: id, force, grace, reason: None, by: person("ann") };
        let mut writes = vec![write(cancel), write(settle(id, epoch, succeeded()))];
        let mut ends = [State::Cancelled, State::Succeeded];
        if number % 2 == 0 {
            writes.reverse();
            ends.reverse();
        }
        let told = answers(at_once(&test, writes));
        let winner = told.iter().position(Result::is_ok).expect("one of them counts");
        let loser = match ends[1 - winner] {
            State::Succeeded => Refusal::StaleAttempt.code(),
            _ => "INVALID_TRANSITION",
        };
        assert_eq!(told[1 - winner].as_ref().unwrap_err().code(), loser);
        assert_eq!(test.job(id).state, ends[winner]);
        assert_eq!(events(&test, id).last().unwrap().to, ends[winner]);
    }
}

fn one_key_from_many_sides_is_one_job(backend: Backend) {
    let test = TestStore::new(backend);
    let key = Idempotency::Key {
        scope: IdempotencyScope::new("orders").unwrap(),
        key: IdempotencyKey::new("order-1").unwrap(),
    };
    let new = || NewJob { idempotency: key.clone(), ..plain() };
    let writes = (1..=MANY).map(|it| write(enqueue(it as u128, new()))).collect();
    let told: Vec<Answer> =
        answers(at_once(&test, writes)).into_iter().map(Result::unwrap).collect();
    let ids: HashSet<JobId> = told.iter().map(|answer| answer.job_id).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(told.iter().filter(|answer| answer.recorded).count(), MANY - 1);
    assert_eq!(test.wait(test.store.open_jobs()).len(), 1);
}

fn one_letter_that_many_requeue_is_one_new_job(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let failed = test.op(settle(id, epoch, failed_for_good())).unwrap();
    let dlq_id = failed.dlq_id.unwrap();
    let requeue = |number: usize| {
        let new_job_id = JobId::from_u128(100 + number as u128);
        write(Requeue { dlq_id, new_job_id, payload: None, by: person("ann") })
    };
    let (won, lost): (Vec<_>, Vec<_>) = answers(at_once(&test, (0..MANY).map(requeue).collect()))
        .into_iter()
        .partition(Result::is_ok);
    let lost: Vec<Refusal> = lost.into_iter().map(Result::unwrap_err).collect();
    assert_eq!((won.len(), codes(&lost)), (1, HashSet::from(["DLQ_REQUEUE_CONFLICT"])));
    let open = test.wait(test.store.open_jobs());
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].id, won[0].as_ref().unwrap().job_id);
}

fn one_task_that_many_run_again_runs_once(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    test.op(settle(id, epoch, failed_for_good())).unwrap();
    let rerun = |number: usize| {
        let new_job_id = JobId::from_u128(100 + number as u128);
        write(Rerun { job_id: id, new_job_id, by: person("ann") })
    };
    let (won, lost): (Vec<_>, Vec<_>) = answers(at_once(&test, (0..MANY).map(rerun).collect()))
        .into_iter()
        .partition(Result::is_ok);
    let lost: Vec<Refusal> = lost.into_iter().map(Result::unwrap_err).collect();
    assert_eq!((won.len(), codes(&lost)), (1, HashSet::from(["TASK_ACTIVE"])));
    assert_eq!(test.wait(test.store.open_jobs()).len(), 1);
}

fn one_cancelled_job_that_many_run_again_runs_once(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let (force, grace) = (true, Duration::ZERO);
    test.op(Cancel { job_id: id, force, grace, reason: None, by: person("ann") }).unwrap();
    let rerun = |number: usize| {
        let new_job_id = JobId::from_u128(100 + number as u128);
        write(Rerun { job_id: id, new_job_id, by: person("ann") })
    };
    let (won, lost): (Vec<_>, Vec<_>) = answers(at_once(&test, (0..MANY).map(rerun).collect()))
        .into_iter()
        .partition(Result::is_ok);
    let lost: Vec<Refusal> = lost.into_iter().map(Result::unwrap_err).collect();
    assert_eq!((won.len(), codes(&lost)), (1, HashSet::from(["TASK_ACTIVE"])));
    // When that one is done, it is done.
    let job = test.claim("w1", 1, 1).remove(0).job;
    test.op(settle(job.id, job.epoch, succeeded())).unwrap();
    let late = answers(at_once(&test, (MANY..2 * MANY).map(rerun).collect()));
    let late: Vec<Refusal> = late.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(codes(&late), HashSet::from(["TASK_DUPLICATE"]));
    assert!(test.wait(test.store.open_jobs()).is_empty());
}

/// One names the letter, the other the task; some while the job is about to fail.
fn of_requeues_and_new_jobs_of_one_task_one_takes_over_from_the_letter(backend: Backend) {
    let test = TestStore::new(backend);
    for round in 1..=10 {
        let id = test.enqueue(round * 1000, plain());
        let epoch = test.claim("w1", round, 1)[0].job.epoch;
        let (dlq_id, task_id) = (DlqId::of_job(id), TaskId::of_job(id));
        let either = |number: u128| {
            let new_job_id = JobId::from_u128(round * 1000 + number);
            let task = NewTask { task_id: task_id.clone(), may_rerun: true };
            match number % 2 {
                0 => write(Requeue { dlq_id, new_job_id, payload: None, by: person("ann") }),
                _ => write(enqueue(round * 1000 + number, NewJob { task: Some(task), ..plain() })),
            }
        };
        let fails = write(settle(id, epoch, failed_for_good()));
        let writes = [fails].into_iter().chain((1..32).map(either)).collect();
        at_once(&test, writes);
        // At the latest the next one is the one.
        let _ = test.write(either(33));
        let letter = test.wait(test.store.letter(&Scope::Every, dlq_id)).unwrap();
        let heir = letter.requeued_as.expect("somebody took over");
        let open = test.wait(test.store.open_jobs());
        assert_eq!(open.iter().map(|job| job.id).collect::<Vec<_>>(), [heir]);
        let job = test.claim("w1", 100 + round, 1).remove(0).job;
        test.op(settle(job.id, job.epoch, succeeded())).unwrap();
        let again = test.write(either(34)).unwrap_err();
        assert_eq!(again.code(), "DLQ_REQUEUE_CONFLICT");
    }
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn requeues_against_reruns_make_one_new_job(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let failed = test.op(settle(id, epoch, failed_for_good())).unwrap();
    let dlq_id = failed.dlq_id.unwrap();
    let either = |number: usize| {
        let (new_job_id, by) = (JobId::from_u128(100 + number as u128), person("ann"));
        match number % 2 {
            0 => write(Requeue { dlq_id, new_job_id, payload: None, by }),
            _ => write(Rerun { job_id: id, new_job_id, by }),
        }
    };
    let (won, lost): (Vec<_>, Vec<_>) = answers(at_once(&test, (0..MANY).map(either).collect()))
        .into_iter()
        .partition(Result::is_ok);
    let lost: Vec<Refusal> = lost.into_iter().map(Result::unwrap_err).collect();
    let expected = HashSet::from(["DLQ_REQUEUE_CONFLICT", "TASK_ACTIVE"]);
    assert_eq!((won.len(), codes(&lost)), (1, expected));
    let heir = won[0].as_ref().unwrap().job_id;
    let letter = test.wait(test.store.letter(&Scope::Every, dlq_id)).unwrap();
    assert_eq!((letter.state, letter.requeued_as), (LetterState::Requeued, Some(heir)));
    assert_eq!(test.wait(test.store.open_jobs()).len(), 1);
}

fn everyone_gets_their_own_answers_in_order(backend: Backend) {
    let test = TestStore::new(backend);
    let batch = |task: u128| -> Vec<Write> {
        (0..5).map(|it| write(enqueue(task * 100 + it, plain()))).collect()
    };
    let tasks: Vec<_> = (1..=MANY as u128)
        .map(|task| {
            let (store, writes) = (test.store.clone(), batch(task));
            test.runtime.spawn(async move { store.commit(writes.into()).await.unwrap() })
        })
        .collect();
    for (task, handle) in (1..).zip(tasks) {
        let told = answers(test.runtime.block_on(handle).unwrap());
        let ids: Vec<u128> = told.into_iter().map(|it| it.unwrap().job_id.as_u128()).collect();
        assert_eq!(ids, (0..5).map(|it| task * 100 + it).collect::<Vec<_>>());
    }
}

fn a_refused_write_does_not_fail_its_neighbours(backend: Backend) {
    let test = TestStore::new(backend);
    let wrong = settle(JobId::from_u128(9), windlass_kernel::Epoch::new(1), succeeded());
    let writes = vec![write(enqueue(1, plain())), write(wrong), write(enqueue(2, plain()))];
    let told = answers(test.commit(writes));
    assert_eq!(told[1].as_ref().unwrap_err().code(), "NOT_FOUND");
    assert!(told[0].is_ok() && told[2].is_ok());
    assert_eq!(test.wait(test.store.open_jobs()).len(), 2);
}
