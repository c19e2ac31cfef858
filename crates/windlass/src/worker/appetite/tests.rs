//! An appetite is asked everything: tables of what it says, and all short histories for what it never says.

use std::sync::LazyLock;

use super::*;

const SLOTS: Slots =
    Slots { concurrency: 4, ahead_max: 10, tenant_max: usize::MAX, reports_max: 8 };
const POLL: Duration = Duration::from_secs(1);

/// Takes four jobs at once, and got none.
const NOTHING: Answer = Answer {
    max: 4,
    granted: 0,
    has_alone: false,
    has_exceptions: false,
    repeated: false,
    again_at: None,
};
const SOME: Answer = Answer { granted: 2, ..NOTHING };
const ALL: Answer = Answer { granted: 4, ..NOTHING };
const BUSY: Event = Event::Change { is_idle: false };
const IDLE: Event = Event::Change { is_idle: true };

/// An instant of these tests.
fn at(ms: u64) -> Instant {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    *BEGIN + Duration::from_millis(ms)
}

fn load(running: usize, queued: usize) -> Load {
    Load { running, queued, reporting: 0, pace: 0, overdue_at: None }
}

fn with_pace(running: usize, queued: usize, pace: usize) -> Load {
    Load { pace, ..load(running, queued) }
}

fn overdue(running: usize, queued: usize, ms: u64) -> Load {
    Load { overdue_at: Some(at(ms)), ..load(running, queued) }
}

fn after(slots: Slots, events: &[Event]) -> Appetite {
    let mut appetite = Appetite::new(slots, POLL);
    events.iter().for_each(|event| appetite.on(*event));
    appetite
}

/// What is next at this time, in words.
fn in_words(next: Next, now: Instant) -> String {
    match next {
        Next::Start => "start".to_owned(),
        Next::GiveBack => "give back".to_owned(),
        Next::Claim { max, start: true } => format!("claim {max}"),
        Next::Claim { max, start: false } => format!("claim {max} ahead"),
        Next::Wait { until, or } => format!("{or:?} in {} ms", (until - now).as_millis()),
        Next::End => "end".to_owned(),
    }
}

#[track_caller]
fn check(events: &[Event], load: Load, expected: &str) {
    check_with(SLOTS, events, load, expected);
}

#[track_caller]
fn check_with(slots: Slots, events: &[Event], load: Load, expected: &str) {
    let next = after(slots, events).next(&load, at(0));
    assert_eq!(in_words(next, at(0)), expected, "after {events:?}, with {load:?}");
}

#[test]
fn a_worker_that_may_find_jobs_claims_as_many_as_it_has_free_slots() {
    check(&[], load(0, 0), "claim 4");
    check(&[], load(3, 0), "claim 1");
    check(&[], load(4, 0), "Poll in 1000 ms");
    check(&[], load(6, 0), "Poll in 1000 ms");
    check(&[], Load { reporting: 7, ..load(0, 0) }, "claim 4");
    check(&[], Load { reporting: 8, ..load(0, 0) }, "Poll in 1000 ms");
    check_with(Slots { concurrency: 5_000, ..SLOTS }, &[], load(0, 0), "claim 1000");
}

#[test]
fn an_answer_says_when_to_claim_again() {
    let wait = "Poll in 1000 ms";
    for (answer, bell, time, busy, idle) in [
        // There may be more.
        (ALL, "claim 2", "claim 2", "claim 2", "claim 2"),
        (Answer { repeated: true, ..NOTHING }, "claim 2", "claim 2", "claim 2", "claim 2"),
        // There are no more until a bell rings.
        (SOME, "claim 2", wait, wait, wait),
        // Someone may have to be alone.
        (NOTHING, "claim 2", wait, wait, "claim 2"),
        (Answer { has_alone: true, ..SOME }, "claim 2", wait, wait, "claim 2"),
        // A tenant that has all its slots may have more.
        (Answer { has_exceptions: true, ..SOME }, "claim 2", wait, "claim 2", "claim 2"),
    ] {
        let answer = Event::Answer(answer);
        check(&[answer, Event::Bell], load(2, 0), bell);
        check(&[answer, Event::Poll], load(2, 0), bell);
        check(&[answer, Event::Time], load(2, 0), time);
        check(&[answer, BUSY], load(2, 0), busy);
        check(&[answer, IDLE], load(2, 0), idle);
        // What is no reason at first is none later, and what was a reason stays one until the next answer.
        check(&[answer, Event::Bell, Event::Time, BUSY], load(2, 0), "claim 2");
        check(&[answer, Event::Bell, Event::Answer(SOME)], load(2, 0), wait);
    }
}

#[test]
fn a_rule_that_lets_a_job_go_at_some_time_is_asked_again_then() {
    let answer = |ms| Event::Answer(Answer { again_at: Some(at(ms)), ..SOME });
    check(&[answer(300)], load(2, 0), "Poll in 300 ms");
    check(&[answer(300), Event::Time], load(2, 0), "Poll in 300 ms");
    check(&[answer(300), BUSY], load(2, 0), "Poll in 300 ms");
    check(&[answer(300), Event::Poll], load(2, 0), "claim 2");
    check(&[answer(300), Event::Answer(SOME)], load(2, 0), "Poll in 1000 ms");
    check(&[answer(5_000)], load(2, 0), "Poll in 1000 ms");
}

#[test]
fn where_jobs_end_fast_a_claim_waits_once_for_a_little_more_room() {
    let fast = |running| with_pace(running, 0, 40);
    check(&[], fast(3), "Time in 2 ms");
    check(&[], fast(2), "claim 2");
    check(&[], with_pace(3, 0, 39), "claim 1");
    check(&[], with_pace(2, 0, 1_000_000), "claim 2");
    check(&[BUSY, Event::Bell], fast(3), "Time in 2 ms");
    check(&[Event::Time], fast(3), "claim 1");
    check(&[Event::Poll], fast(3), "claim 1");
    check(&[Event::Time, Event::Answer(ALL)], fast(3), "Time in 2 ms");
}

#[test]
fn jobs_are_claimed_ahead_by_pace_and_half_a_queue_at_a_time() {
    let wait = "Poll in 1000 ms";
    for (queued, pace, expected) in [
        (0, 0, wait),
        (0, 1, "claim 1 ahead"),
        (0, 6, "claim 6 ahead"),
        (0, 100, "claim 10 ahead"),
        (5, 100, "claim 5 ahead"),
        (6, 100, wait),
        (12, 100, wait),
        (3, 6, "claim 3 ahead"),
        (4, 6, wait),
    ] {
        check(&[], with_pace(4, queued, pace), expected);
        check(&[Event::Answer(SOME)], with_pace(4, queued, pace), wait);
        let none_ahead = Slots { ahead_max: 0, ..SLOTS };
        check_with(none_ahead, &[], with_pace(4, queued, pace), wait);
    }
    check(&[], Load { reporting: 8, ..with_pace(4, 0, 100) }, wait);
}

#[test]
fn the_local_queue_comes_before_a_claim() {
    for events in [&[][..], &[Event::Answer(SOME)], &[Event::Failure { at: at(0) }]] {
        check(events, load(3, 1), "start");
        check(events, overdue(3, 1, 0), "start");
        check(events, overdue(4, 1, 0), "give back");
        check(events, overdue(4, 1, 20), "Time in 20 ms");
    }
    check(&[], overdue(4, 1, 1_500), "Poll in 1000 ms");
    check(&[], overdue(4, 1, 1_000), "Poll in 1000 ms");
}

#[test]
fn each_failure_doubles_the_back_off_up_to_two_seconds_and_an_answer_ends_it() {
    let mut appetite = after(SLOTS, &[]);
    let (mut now, idle) = (0, load(0, 0));
    for expected in [50, 100, 200, 400, 800, 1_600, 2_000, 2_000] {
        appetite.on(Event::Failure { at: at(now) });
        // Nothing shortens it.
        for event in [Event::Bell, Event::Poll, Event::Time, IDLE] {
            appetite.on(event);
        }
        let next = in_words(appetite.next(&idle, at(now)), at(now));
        assert_eq!(next, format!("Time in {expected} ms"));
        now += expected;
        assert_eq!(appetite.next(&idle, at(now)), Next::Claim { max: 4, start: true });
    }
    appetite.on(Event::Answer(ALL));
    assert_eq!(appetite.next(&idle, at(now)), Next::Claim { max: 4, start: true });
    appetite.on(Event::Failure { at: at(now) });
    assert_eq!(in_words(appetite.next(&idle, at(now)), at(now)), "Time in 50 ms");
}

#[test]
fn a_worker_is_woken_by_ends_only_while_it_has_a_use_for_room() {
    for (events, expected) in [
        (&[][..], true),
        (&[Event::Answer(SOME)], false),
        (&[Event::Answer(SOME), Event::Bell], true),
        (&[Event::Answer(ALL)], true),
        (&[Event::Answer(NOTHING)], true),
        (&[Event::Answer(Answer { has_alone: true, ..SOME })], true),
        (&[Event::Answer(Answer { has_exceptions: true, ..SOME })], true),
        (&[Event::Failure { at: at(0) }], true),
    ] {
        assert_eq!(after(SLOTS, events).needs_room(), expected, "after {events:?}");
    }
}

/// All histories of up to four events, each with many loads.
#[test]
fn whatever_happens_no_slot_is_given_twice_and_no_wait_is_for_ever() {
    let events = [
        Event::Bell,
        BUSY,
        IDLE,
        Event::Poll,
        Event::Time,
        Event::Answer(NOTHING),
        Event::Answer(SOME),
        Event::Answer(Answer { again_at: Some(at(300)), has_exceptions: true, ..SOME }),
        Event::Answer(ALL),
        Event::Failure { at: at(0) },
        Event::Shutdown,
    ];
    let mut histories = vec![Vec::new()];
    for _ in 0..4 {
        let longer = |history: &Vec<Event>| events.map(|event| [&history[..], &[event]].concat());
        let longer: Vec<_> = histories.iter().flat_map(longer).collect();
        histories.extend(longer);
    }
    for history in &histories {
        let appetite = after(SLOTS, history);
        for load in loads() {
            check_always(history, &appetite, &load);
        }
    }
}

fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for (running, queued) in [(0, 0), (3, 0), (4, 0), (3, 2), (4, 2), (4, 10)] {
        for (reporting, pace) in [(0, 0), (0, 50), (8, 50)] {
            for overdue_at in [None, Some(at(0)), Some(at(500))] {
                let overdue_at = overdue_at.filter(|_| queued > 0);
                loads.push(Load { running, queued, reporting, pace, overdue_at });
            }
        }
    }
    loads
}

fn check_always(history: &[Event], appetite: &Appetite, load: &Load) {
    let now = at(0);
    let next = appetite.next(load, now);
    let is_right = match next {
        Next::Start => load.queued > 0 && load.running < SLOTS.concurrency,
        Next::GiveBack => load.overdue_at == Some(now),
        Next::Claim { max, start } => {
            let most = if start { SLOTS.concurrency - load.running } else { SLOTS.ahead_max };
            let backs_off = matches!(history.last(), Some(Event::Failure { .. }));
            let reports = load.reporting < SLOTS.reports_max;
            max > 0 && load.queued + max <= most && reports && !backs_off
        }
        Next::Wait { until, or } => {
            let is_end = matches!(or, Event::Poll | Event::Time);
            let is_overdue = load.overdue_at.is_some_and(|at| at < until);
            now < until && until <= now + POLL && is_end && !is_overdue
        }
        Next::End => true,
    };
    let is_over = history.contains(&Event::Shutdown);
    assert!(is_right, "{next:?} after {history:?}, with {load:?}");
    assert_eq!(next == Next::End, is_over, "after {history:?}, with {load:?}");
}
