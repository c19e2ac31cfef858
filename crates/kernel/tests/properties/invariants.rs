//! What is always true, one function for each promise, written from the design and not from the
//! code.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::{prop_assert, prop_assert_eq, test_runner::TestCaseError};
use windlass_kernel::{
    AttemptState, Cause, Epoch, Event, Fact, Job, JobId, LetterState, Op, Refusal, State,
    Timestamp, fold,
    job::Origin,
    ops::{Expiry, Promote, PromoteWhen, Wake, WakeBy},
    timer,
};
use windlass_testkit::{
    MapStore,
    random::{Step, difference},
};

type Held = Result<(), TestCaseError>;

/// Every legal change of state; from no state for a new job, to the same state for a note.
pub(crate) const LEGAL: &[(Option<State>, State)] = {
    use State::*;
    &[
        (None, Scheduled),
        (None, Queued),
        (Some(Scheduled), Queued),
        (Some(Queued), Dispatched),
        (Some(RetryScheduled), Dispatched),
        (Some(Interrupted), Dispatched),
        (Some(Dispatched), Running),
        (Some(Dispatched), Queued),
        (Some(Running), Succeeded),
        (Some(Running), Partial),
        (Some(Running), Waiting),
        (Some(Waiting), Queued),
        (Some(Running), RetryScheduled),
        (Some(Running), Interrupted),
        (Some(Running), DlqPending),
        (Some(Interrupted), DlqPending),
        (Some(Waiting), DlqPending),
        (Some(DlqPending), DlqRecorded),
        (Some(DlqRecorded), Failed),
        (Some(Scheduled), Cancelled),
        (Some(Queued), Cancelled),
        (Some(Dispatched), Cancelled),
        (Some(Running), Cancelled),
        (Some(Waiting), Cancelled),
        (Some(RetryScheduled), Cancelled),
        (Some(Interrupted), Cancelled),
        // Notes: a checkpoint or a cancel request, a cancel request, a retry made due.
        (Some(Running), Running),
        (Some(Waiting), Waiting),
        (Some(RetryScheduled), RetryScheduled),
    ]
};

/// What one step must keep, and the job that it touched.
pub(crate) fn of_step(step: &Step, after: &MapStore) -> Held {
    what_is_refused_changes_nothing(step, after)?;
    what_is_recorded_changes_nothing(step, after)?;
    an_op_touches_one_job(step, after)?;
    an_old_epoch_changes_nothing(step)?;
    an_old_timer_changes_nothing(step)?;
    nothing_happens_before_its_time(step)?;
    a_renewal_never_shortens_a_lease(step, after)?;
    the_same_again_is_recorded(step, after)?;
    if let Ok(answer) = &step.result {
        of_job(after, answer.job_id)?;
    }
    Ok(())
}

/// What the whole store must keep.
pub(crate) fn of_store(store: &MapStore) -> Held {
    for id in store.jobs.keys() {
        of_job(store, *id)?;
    }
    keys_are_unique(store)?;
    attempts_are_unique(store)?;
    a_task_has_one_active_job(store)?;
    a_named_task_knows_its_next_attempt(store)?;
    no_letter_without_a_failed_job(store)?;
    the_work_of_a_letter_is_done_again_once(store)?;
    only_the_last_job_of_a_task_has_an_open_letter(store)
}

/// What one job must keep.
pub(crate) fn of_job(store: &MapStore, id: JobId) -> Held {
    let life = Life { store, job: &store.jobs[&id], events: store.events_of(id) };
    nothing_follows_an_end(&life)?;
    failed_comes_after_its_letter(&life)?;
    next_retry_at_only_while_a_retry_is_scheduled(&life)?;
    attempt_starts_at_one_and_never_falls(&life)?;
    a_live_job_can_be_reached(&life)?;
    event_numbers_have_no_gap(&life)?;
    events_join(&life)?;
    moves_are_legal(&life)?;
    lease_only_while_held(&life)?;
    wait_only_while_waiting(&life)?;
    letter_only_when_failed(&life)?;
    epoch_grows_with_each_claim(&life)?;
    retries_stay_within_their_bound(&life)?;
    interruptions_stay_within_their_bound(&life)?;
    the_way_to_the_dead_letters_is_one_piece(&life)?;
    the_attempt_row_tells_where_it_stands(&life)?;
    time_in_a_history_never_runs_back(&life)?;
    the_history_rebuilds_the_row(&life)
}

/// A job and all that happened to it.
struct Life<'a> {
    store: &'a MapStore,
    job: &'a Job,
    events: Vec<&'a Event>,
}

// One job.

/// Invariant 1.
fn nothing_follows_an_end(life: &Life<'_>) -> Held {
    let end = life.events.iter().position(|event| event.to.is_end());
    prop_assert!(end.is_none_or(|place| place + 1 == life.events.len()), "an end was left");
    prop_assert_eq!(end.is_some(), life.job.state.is_end());
    prop_assert_eq!(end.is_some(), life.job.finished_at.is_some());
    prop_assert_eq!(end.is_some(), life.job.ended_by.is_some());
    Ok(())
}

/// Invariant 2.
fn failed_comes_after_its_letter(life: &Life<'_>) -> Held {
    let job = life.job;
    if job.state != State::Failed {
        return Ok(());
    }
    let letter = job.dlq_id.and_then(|id| life.store.letters.get(&id));
    prop_assert!(letter.is_some_and(|letter| letter.job_id == job.id), "its letter is missing");
    let last_two: Vec<State> = life.events.iter().rev().take(2).map(|event| event.to).collect();
    prop_assert_eq!(last_two, [State::Failed, State::DlqRecorded]);
    Ok(())
}

/// Invariant 3.
fn next_retry_at_only_while_a_retry_is_scheduled(life: &Life<'_>) -> Held {
    let scheduled = life.job.state == State::RetryScheduled;
    prop_assert_eq!(life.job.next_retry_at.is_some(), scheduled);
    Ok(())
}

/// Invariant 4, as far as one job can tell. The event into `retry_scheduled` has the attempt that
/// failed; the claim of the retry has the next.
fn attempt_starts_at_one_and_never_falls(life: &Life<'_>) -> Held {
    let mut attempt = life.events[0].attempt;
    prop_assert!(attempt >= 1);
    for event in &life.events {
        attempt += u32::from(event.cause == Cause::RetryDue);
        prop_assert_eq!(event.attempt, attempt, "in event {}", event.number);
    }
    prop_assert_eq!(life.job.attempt, attempt);
    Ok(())
}

/// Invariant 8: by its queue, its time, its lease or its wait.
fn a_live_job_can_be_reached(life: &Life<'_>) -> Held {
    let job = life.job;
    let by_queue = job.claim_at().is_some();
    let by_time = timer::next(job).is_some();
    let by_lease = job.lease.is_some();
    let by_wait = job.wait.is_some();
    let reachable = by_queue || by_time || by_lease || by_wait;
    prop_assert_eq!(reachable, !job.state.is_end(), "a job that is {}", job.state);
    Ok(())
}

/// Invariant 11.
fn event_numbers_have_no_gap(life: &Life<'_>) -> Held {
    for (event, number) in life.events.iter().zip(1..) {
        prop_assert_eq!(event.number, number);
    }
    prop_assert_eq!(Some(life.job.version), life.events.last().map(|event| event.number));
    Ok(())
}

fn events_join(life: &Life<'_>) -> Held {
    let mut state = None;
    for event in &life.events {
        prop_assert_eq!(event.from, state, "event {}", event.number);
        state = Some(event.to);
    }
    prop_assert_eq!(state, Some(life.job.state));
    Ok(())
}

fn moves_are_legal(life: &Life<'_>) -> Held {
    for event in &life.events {
        prop_assert!(LEGAL.contains(&(event.from, event.to)), "{event:?} is not legal");
    }
    Ok(())
}

fn lease_only_while_held(life: &Life<'_>) -> Held {
    let held = matches!(life.job.state, State::Dispatched | State::Running);
    prop_assert_eq!(life.job.lease.is_some(), held);
    let claims = life.events.iter().filter(|e| matches!(e.fact, Fact::Claimed { .. })).count();
    let claims = u64::try_from(claims).expect("a short history");
    prop_assert!(life.job.lease_count >= claims, "each claim is counted");
    Ok(())
}

fn wait_only_while_waiting(life: &Life<'_>) -> Held {
    prop_assert_eq!(life.job.wait.is_some(), life.job.state == State::Waiting);
    Ok(())
}

fn letter_only_when_failed(life: &Life<'_>) -> Held {
    prop_assert_eq!(life.job.dlq_id.is_some(), life.job.state == State::Failed);
    Ok(())
}

fn epoch_grows_with_each_claim(life: &Life<'_>) -> Held {
    let mut last = Epoch::ZERO;
    for event in &life.events {
        if let Fact::Claimed { epoch, .. } = event.fact {
            prop_assert!(epoch > last, "epoch {epoch} after {last}");
            last = epoch;
        }
        prop_assert_eq!(event.epoch, last, "event {}", event.number);
    }
    prop_assert_eq!(life.job.epoch, last);
    Ok(())
}

fn retries_stay_within_their_bound(life: &Life<'_>) -> Held {
    let into_retry = |e: &&&Event| e.to == State::RetryScheduled && e.is_move();
    let retries = life.events.iter().filter(into_retry).count();
    prop_assert_eq!(usize::try_from(life.job.retry_count), Ok(retries));
    prop_assert!(life.job.retry_count <= life.job.spec.max_retries);
    Ok(())
}

/// Recovery gives up when the bound is reached, and at no other time.
fn interruptions_stay_within_their_bound(life: &Life<'_>) -> Held {
    let bound = life.job.spec.max_interruptions;
    let aborted = life.job.ended_by == Some(Cause::RecoveryAbort);
    prop_assert!(life.job.interruptions <= bound);
    let mut since_progress = 0;
    for event in &life.events {
        match event.fact {
            Fact::Checkpoint { .. } | Fact::StepCommitted { .. } => since_progress = 0,
            Fact::Interrupted { counted: true } => since_progress += 1,
            _ => {}
        }
    }
    prop_assert_eq!(life.job.interruptions, since_progress, "progress clears the count");
    prop_assert_eq!(aborted, life.job.interruptions == bound);
    Ok(())
}

/// Three events, next to each other and at the same instant, that know where the way began and why.
fn the_way_to_the_dead_letters_is_one_piece(life: &Life<'_>) -> Held {
    let Some(place) = life.events.iter().position(|event| event.to == State::DlqPending) else {
        return Ok(());
    };
    let way = &life.events[place..];
    let states: Vec<State> = way.iter().map(|event| event.to).collect();
    prop_assert_eq!(states, [State::DlqPending, State::DlqRecorded, State::Failed]);
    for event in way {
        prop_assert_eq!(event.at, way[0].at);
        prop_assert_eq!(&event.fact, &way[0].fact);
        let Fact::Buried { began_in, why, .. } = event.fact else {
            return Err(TestCaseError::fail(format!("{event:?} tells another fact")));
        };
        prop_assert_eq!((Some(began_in), why), (way[0].from, way[0].cause));
    }
    prop_assert_eq!(life.job.ended_by, Some(way[0].cause));
    Ok(())
}

/// PLANNED when claimed, RUNNING from its start on (also while it waits or is interrupted), then
/// its end. A retry that is cancelled before its claim leaves the attempt as it failed.
fn the_attempt_row_tells_where_it_stands(life: &Life<'_>) -> Held {
    let job = life.job;
    let key = (job.spec.tenant.clone(), job.spec.task_id.clone(), job.attempt);
    let row = life.store.attempts.get(&key);
    prop_assert_eq!(row.is_some(), job.epoch > Epoch::ZERO, "a claim makes the row");
    let Some(row) = row else { return Ok(()) };
    let of_attempt = life.events.iter().filter(|event| event.attempt == job.attempt);
    let started = of_attempt.clone().any(|event| event.cause == Cause::Started);
    let retried = of_attempt.clone().any(|event| event.to == State::RetryScheduled);
    let expected = match job.state {
        _ if retried => AttemptState::Failed,
        State::Succeeded => AttemptState::Succeeded,
        State::Partial => AttemptState::Partial,
        State::Failed => AttemptState::Failed,
        State::Cancelled => AttemptState::Cancelled,
        _ if started => AttemptState::Running,
        _ => AttemptState::Planned,
    };
    prop_assert_eq!((row.state, row.job_id, row.epoch), (expected, job.id, job.epoch));
    prop_assert_eq!(row.started_at.is_some(), started);
    let ended = !matches!(expected, AttemptState::Planned | AttemptState::Running);
    prop_assert_eq!(row.finished_at.is_some(), ended);
    prop_assert_eq!(row.failure.is_some(), expected == AttemptState::Failed);
    Ok(())
}

fn time_in_a_history_never_runs_back(life: &Life<'_>) -> Held {
    prop_assert!(life.events.is_sorted_by_key(|event| event.at));
    prop_assert_eq!(Some(life.job.updated_at), life.events.last().map(|event| event.at));
    Ok(())
}

/// The row is the fold of its events; a lease is no history.
fn the_history_rebuilds_the_row(life: &Life<'_>) -> Held {
    let row = Job { lease: None, lease_count: 0, ..life.job.clone() };
    prop_assert_eq!(fold(life.events.iter().copied()), Some(row));
    Ok(())
}

// The whole store.

/// Invariant 5.
fn keys_are_unique(store: &MapStore) -> Held {
    let mut keys = BTreeSet::new();
    for job in store.jobs.values() {
        let spec = &job.spec;
        let key = (&spec.tenant, &spec.idempotency_scope, &spec.idempotency_key);
        prop_assert!(keys.insert(key), "{key:?} made two jobs");
    }
    Ok(())
}

/// Invariant 4: no two jobs made the same attempt of a task, and each attempt row is its job's.
fn attempts_are_unique(store: &MapStore) -> Held {
    let mut makers = BTreeMap::new();
    for job in store.jobs.values() {
        let first = store.events_of(job.id)[0].attempt;
        for attempt in first..=job.attempt {
            let key = (job.spec.tenant.clone(), job.spec.task_id.clone(), attempt);
            prop_assert_eq!(makers.insert(key.clone(), job.id), None, "{:?} was made twice", key);
            let row = store.attempts.get(&key);
            prop_assert!(row.is_none_or(|row| row.job_id == job.id), "{key:?} is another job's");
        }
    }
    for key in store.attempts.keys() {
        prop_assert!(makers.contains_key(key), "nobody made {key:?}");
    }
    Ok(())
}

fn a_task_has_one_active_job(store: &MapStore) -> Held {
    let mut active = BTreeSet::new();
    for job in store.jobs.values().filter(|job| !job.state.is_end()) {
        let task = (&job.spec.tenant, &job.spec.task_id);
        prop_assert!(active.insert(task), "two jobs of {task:?} are active");
    }
    Ok(())
}

/// The row of a task that was named outlives its jobs, so it has to know the number by itself.
fn a_named_task_knows_its_next_attempt(store: &MapStore) -> Held {
    for job in store.jobs.values().filter(|job| job.spec.task_given) {
        let row = store.tasks.get(&(job.spec.tenant.clone(), job.spec.task_id.clone()));
        prop_assert!(row.is_some_and(|next| *next > job.attempt), "{row:?} for {}", job.attempt);
    }
    Ok(())
}

/// Invariant 2, the other way round.
fn no_letter_without_a_failed_job(store: &MapStore) -> Held {
    for letter in store.letters.values() {
        let job = store.jobs.get(&letter.job_id);
        prop_assert_eq!(job.map(|job| job.state), Some(State::Failed));
        prop_assert_eq!(job.and_then(|job| job.dlq_id), Some(letter.id));
    }
    Ok(())
}

/// Whoever takes over from a job that failed, by a requeue or by a re-run, is the one that its closed letter names.
fn the_work_of_a_letter_is_done_again_once(store: &MapStore) -> Held {
    for letter in store.letters.values() {
        let is_heir = |job: &&Job| match job.spec.origin {
            Origin::Requeued(id) => id == letter.id,
            Origin::Rerun(id) => id == letter.job_id,
            Origin::Enqueued => false,
        };
        let heirs: Vec<JobId> = store.jobs.values().filter(is_heir).map(|job| job.id).collect();
        let named: Vec<JobId> = letter.requeued_as.into_iter().collect();
        prop_assert_eq!(heirs, named);
        prop_assert_eq!(letter.requeued_as.is_some(), letter.state == LetterState::Requeued);
    }
    Ok(())
}

/// Whoever runs a task again takes over from the letter of its last job, on whichever road.
fn only_the_last_job_of_a_task_has_an_open_letter(store: &MapStore) -> Held {
    for letter in store.letters.values().filter(|letter| !letter.state.is_closed()) {
        let failed = &store.jobs[&letter.job_id];
        let is_later = |job: &&Job| {
            (&job.spec.tenant, &job.spec.task_id) == (&failed.spec.tenant, &failed.spec.task_id)
                && job.attempt > failed.attempt
        };
        prop_assert_eq!(store.jobs.values().find(is_later), None);
    }
    Ok(())
}

// One step.

fn what_is_refused_changes_nothing(step: &Step, after: &MapStore) -> Held {
    if step.result.is_err() {
        prop_assert_eq!(difference(&step.before, after), None, "after {:?}", step.op);
    }
    Ok(())
}

fn what_is_recorded_changes_nothing(step: &Step, after: &MapStore) -> Held {
    if step.result.as_ref().is_ok_and(|answer| answer.recorded) {
        prop_assert_eq!(difference(&step.before, after), None, "after {:?}", step.op);
    }
    Ok(())
}

fn an_op_touches_one_job(step: &Step, after: &MapStore) -> Held {
    let touched = step.result.as_ref().ok().map(|answer| answer.job_id);
    let others = |id: &JobId| Some(*id) != touched;
    for (id, job) in after.jobs.iter().filter(|(id, _)| others(id)) {
        prop_assert_eq!(step.before.jobs.get(id), Some(job), "{:?} touched it", step.op);
    }
    prop_assert!(step.events.iter().all(|event| Some(event.job_id) == touched));
    Ok(())
}

/// Invariant 6. The one thing an old epoch can get is the answer to a settle it sent before.
fn an_old_epoch_changes_nothing(step: &Step) -> Held {
    let Some(epoch) = epoch_of(&step.op) else { return Ok(()) };
    let Some(job) = step.op.job_id().and_then(|id| step.before.jobs.get(&id)) else {
        return Ok(());
    };
    let live = job.lease.is_some() && job.epoch == epoch;
    let stale = step.result == Err(Refusal::StaleAttempt);
    let settled_before = matches!(&step.op, Op::Settle(op) if {
        let digest = op.outcome.digest();
        job.settles.iter().any(|settled| settled.epoch == epoch && settled.digest == digest)
    });
    // The epoch that ended the job by its settle lost nothing: what it writes now is an illegal move.
    let ended_by_it = job.state.is_end()
        && job.settles.last().is_some_and(|last| last.epoch == epoch && last.state.is_end());
    match (live, settled_before) {
        (false, false) if ended_by_it && !matches!(step.op, Op::Renew(_)) => {
            let illegal = matches!(step.result, Err(Refusal::InvalidTransition { .. }));
            prop_assert!(illegal, "{:?} got {:?}", step.op, step.result);
        }
        (false, false) => prop_assert!(stale, "{:?} got {:?}", step.op, step.result),
        (_, true) => prop_assert!(step.result.as_ref().is_ok_and(|answer| answer.recorded)),
        (true, false) => prop_assert!(!stale, "{:?} holds the lease", step.op),
    }
    Ok(())
}

/// The epoch under which a worker writes.
fn epoch_of(op: &Op) -> Option<Epoch> {
    match op {
        Op::Start(op) => Some(op.epoch),
        Op::Renew(op) => Some(op.epoch),
        Op::Release(op) => Some(op.epoch),
        Op::Settle(op) => Some(op.epoch),
        Op::Advance(op) => Some(op.epoch),
        Op::Checkpoint(op) => Some(op.epoch),
        Op::Wait(op) => Some(op.epoch),
        _ => None,
    }
}

fn an_old_timer_changes_nothing(step: &Step) -> Held {
    let version = match &step.op {
        Op::Promote(op) => match op.when {
            PromoteWhen::Due { version } => version,
            PromoteWhen::Now { .. } => return Ok(()),
        },
        Op::Expire(op) => op.version,
        Op::Wake(op) => match op.by {
            WakeBy::Time { version } => version,
            WakeBy::Child { .. } => return Ok(()),
        },
        _ => return Ok(()),
    };
    let job = step.op.job_id().and_then(|id| step.before.jobs.get(&id));
    if job.is_some_and(|job| job.version != version) {
        prop_assert_eq!(&step.result, &Err(Refusal::Outdated));
    }
    Ok(())
}

/// Only the proof that a session is dead takes a job before its lease runs out.
fn nothing_happens_before_its_time(step: &Step) -> Held {
    let Some(job) = step.op.job_id().and_then(|id| step.before.jobs.get(&id)) else {
        return Ok(());
    };
    let spec = &job.spec;
    let until = job.lease.as_ref().map(|lease| lease.until);
    let at = match &step.op {
        Op::Promote(Promote { when: PromoteWhen::Due { .. }, .. }) => Some(spec.due_at),
        Op::Claim(_) => job.next_retry_at,
        Op::Wake(Wake { by: WakeBy::Time { .. }, .. }) => {
            job.wait.as_ref().and_then(|wait| wait.until)
        }
        Op::Expire(op) => match op.what {
            Expiry::DeadSession => None,
            Expiry::Lease => until,
            Expiry::StartToClose => job.execution_started_at.zip(spec.timeout).map(later),
            Expiry::Heartbeat => {
                let beat_at = job.lease.as_ref().map(|lease| lease.beat_at);
                beat_at.zip(spec.heartbeat_timeout).map(later)
            }
            Expiry::ScheduleToStart => Some(spec.due_at).zip(spec.schedule_to_start).map(later),
            Expiry::Deadline => spec.deadline_at,
            Expiry::CancelGrace => job.cancel.as_ref().map(|request| request.grace_until),
        },
        _ => None,
    };
    if step.result.as_ref().is_ok_and(|answer| !answer.recorded) {
        prop_assert!(at.is_none_or(|at| at <= step.now), "{:?} before {at:?}", step.op);
    }
    Ok(())
}

fn later((at, duration): (Timestamp, Duration)) -> Timestamp {
    at.plus(duration)
}

fn a_renewal_never_shortens_a_lease(step: &Step, after: &MapStore) -> Held {
    let (Op::Renew(op), Ok(_)) = (&step.op, &step.result) else { return Ok(()) };
    let [before, after] = [&step.before, after].map(|store| &store.jobs[&op.job_id]);
    let until = |job: &Job| job.lease.as_ref().map(|lease| lease.until);
    prop_assert!(until(after) >= until(before));
    prop_assert!(until(after) >= Some(step.now.plus(op.lease)));
    prop_assert_eq!(after.lease_count, before.lease_count + 1);
    Ok(())
}

/// Whatever has an identity gets the same answer when it is sent again at once.
fn the_same_again_is_recorded(step: &Step, after: &MapStore) -> Held {
    let has_identity = matches!(
        step.op,
        Op::Enqueue(_)
            | Op::Claim(_)
            | Op::Start(_)
            | Op::Settle(_)
            | Op::Requeue(_)
            | Op::Rerun(_)
    );
    let Ok(first) = &step.result else { return Ok(()) };
    if !has_identity {
        return Ok(());
    }
    let mut store = after.clone();
    let mut second = store.commit(&step.op, step.now).expect("it was accepted before");
    prop_assert!(second.recorded, "{:?} was done twice", step.op);
    prop_assert_eq!(difference(after, &store), None);
    second.recorded = first.recorded;
    prop_assert_eq!(&second, first);
    Ok(())
}
