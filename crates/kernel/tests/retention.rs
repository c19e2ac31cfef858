//! Which jobs may be forgotten: only what is at its end, long enough, and leaned on by nobody.

use std::time::Duration;

use windlass_kernel::{
    IdempotencyScope, Job, LetterState, Retention, Timestamp,
    retention::{Stays, Ties, may_go},
};
use windlass_testkit::{MapStore, random::World};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const POLICY: Retention = Retention {
    finished_for: DAY,
    keep_at_most: Some(3),
    key_ttl: Duration::from_secs(7 * 86_400),
};

/// Many jobs of every state, with a rich past.
fn store() -> MapStore {
    let mut world = World::default();
    for number in 1..4_000_u64 {
        world.step(number.wrapping_mul(6_364_136_223_846_793_005) ^ (number << 7));
    }
    world.store
}

/// Jobs that are at an end and have no letter.
fn ended_well(store: &MapStore) -> impl Iterator<Item = &Job> {
    store.jobs.values().filter(|job| job.state.is_end() && job.dlq_id.is_none())
}

/// When a job may go at the earliest, if nothing leans on it.
fn first_at(job: &Job, is_over: bool) -> Timestamp {
    let mut at = Timestamp::MIN;
    let ended = job.finished_at.expect("it is at its end");
    let is_free = |at: Timestamp| may_go(job, &Ties::default(), is_over, &POLICY, at).is_ok();
    for least in [Retention::RETRY_WINDOW, POLICY.finished_for, POLICY.key_ttl] {
        at = ended.plus(least);
        if is_free(at) {
            assert!(!is_free(Timestamp::from_micros(at.as_micros() - 1)), "a moment too early");
            break;
        }
    }
    at
}

#[test]
fn a_result_of_the_inbox_stays_as_long_as_a_job_and_a_key() {
    let now = Timestamp::from_micros(1_772_000_000_000_000);
    for (days, key_days, expected) in [(1, 7, 7), (30, 7, 30)] {
        let (finished_for, key_ttl) = (days * DAY, key_days * DAY);
        let policy = Retention { finished_for, key_ttl, keep_at_most: Some(0) };
        assert_eq!(policy.newest_result(now).plus(expected * DAY), now);
    }
    let nothing = Duration::ZERO;
    let policy = Retention { finished_for: nothing, key_ttl: nothing, keep_at_most: Some(0) };
    assert_eq!(policy.newest_result(now).plus(Retention::RETRY_WINDOW), now);
}

#[test]
fn a_job_that_is_not_at_its_end_stays_for_ever() {
    let store = store();
    let mut seen = 0;
    for job in store.jobs.values().filter(|job| !job.state.is_end()) {
        let answer = may_go(job, &Ties::default(), true, &POLICY, Timestamp::MAX);
        assert_eq!(answer, Err(Stays::NotEnded), "{job:?}");
        seen += 1;
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn age_count_and_key_say_how_long_a_job_stays() {
    let store = store();
    for job in ended_well(&store) {
        let ended = job.finished_at.expect("it is at its end");
        let has_key = job.spec.idempotency_scope != IdempotencyScope::own_id();
        let by_key = if has_key { POLICY.key_ttl } else { Retention::RETRY_WINDOW };
        assert_eq!(first_at(job, false), ended.plus(by_key.max(POLICY.finished_for)));
        assert_eq!(first_at(job, true), ended.plus(by_key));
        // The quick question never says no where the whole one says yes.
        for is_over in [false, true] {
            let now = first_at(job, is_over);
            assert!(ended <= POLICY.newest_end(is_over, now), "{job:?}");
        }
    }
}

#[test]
fn whatever_leans_on_a_job_keeps_it() {
    let store = store();
    let stays =
        |job: &Job, ties: Ties<'_>| may_go(job, &ties, false, &POLICY, Timestamp::MAX).err();
    let ended = ended_well(&store).next().expect("there is one");
    let alive = store.jobs.values().find(|job| !job.state.is_end()).expect("there is one");
    let none = Ties::default();
    assert_eq!(stays(ended, none), None);
    assert_eq!(stays(ended, Ties { parent: Some(ended), ..none }), None);
    assert_eq!(stays(ended, Ties { parent: Some(alive), ..none }), Some(Stays::ParentLives));
    assert_eq!(stays(ended, Ties { has_live_child: true, ..none }), Some(Stays::ChildLives));
    assert_eq!(stays(ended, Ties { task_is_active: true, ..none }), Some(Stays::TaskActive));
    for letter in store.letters.values() {
        let expected = match letter.state {
            LetterState::Open | LetterState::DiscardRequested => Some(Stays::LetterOpen),
            LetterState::Discarded | LetterState::Requeued => None,
        };
        let ties = Ties { letter: Some(letter), ..none };
        assert_eq!(stays(&store.jobs[&letter.job_id], ties), expected);
        assert_eq!(stays(&store.jobs[&letter.job_id], none), Some(Stays::LetterOpen));
    }
}
