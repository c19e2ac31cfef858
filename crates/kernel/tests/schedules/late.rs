//! Slots that are late, missed or in the way of each other, and the note that says why one was skipped.

use windlass_kernel::schedule::{Action, CatchUp, LastJob, Overlap, ScheduleSpec, When};

use crate::common::*;

fn hourly(catch_up: CatchUp) -> ScheduleSpec {
    ScheduleSpec { catch_up, ..spec(cron("@hourly", "UTC")) }
}

/// Hourly from half past midnight on, and nobody looks until just after five.
fn away(catch_up: CatchUp) -> World {
    let mut world = World::with("2026-01-01T00:30:00Z", hourly(catch_up));
    world.sleep_until("2026-01-01T05:00:10Z");
    world
}

#[test]
fn a_slot_that_is_a_little_late_is_not_missed() {
    let mut world = World::with("2026-01-01T00:30:00Z", hourly(CatchUp::Skip));
    world.sleep_until("2026-01-01T01:01:00Z");
    assert_eq!(world.fired(), ["2026-01-01T01:00:00Z"]);
    world.sleep_until("2026-01-01T02:01:00.000001Z");
    assert_eq!(world.fired.len(), 1);
    assert_eq!(world.skipped(), [("missed".to_owned(), 1)]);
}

#[test]
fn skip_fires_one_late_slot_at_the_most_however_short_the_interval() {
    let away = |period, catch_up| {
        let asked = ScheduleSpec { catch_up, ..spec(every(period)) };
        let mut world = World::with("2026-01-01T00:00:00.5Z", asked);
        world.sleep_until("2026-01-01T00:30:00.6Z");
        let skipped: u64 = world.skipped().iter().map(|(_, count)| count).sum();
        (world.fired.len() as u64, skipped)
    };
    for period in [1, 7, 45] {
        let (fired, skipped) = away(period, CatchUp::Skip);
        assert_eq!(fired, 1, "every {period} s");
        // Those who want something of what was missed have the whole minute for what is only late.
        let (more, fewer) = away(period, CatchUp::One);
        assert_eq!(more + fewer, fired + skipped);
        assert!((60 / period + 1..=60 / period + 2).contains(&more), "{more} every {period} s");
    }
}

#[test]
fn a_busy_moment_skips_nothing_while_the_next_slot_has_not_come() {
    let asked = ScheduleSpec { catch_up: CatchUp::Skip, ..spec(every(1)) };
    let mut world = World::with("2026-01-01T00:00:00.5Z", asked);
    world.sleep_until("2026-01-01T00:00:01.999999Z");
    assert_eq!(world.fired(), ["2026-01-01T00:00:01Z"]);
    world.sleep_until("2026-01-01T00:00:02.9Z");
    assert_eq!((world.fired.len(), world.skipped()), (2, Vec::new()));
    world.sleep_until("2026-01-01T00:00:04Z");
    assert_eq!((world.fired.len(), world.skipped()), (3, vec![("missed".to_owned(), 1)]));
}

#[test]
fn missed_slots_are_skipped_and_that_is_said_once() {
    let world = away(CatchUp::Skip);
    assert_eq!(world.fired(), ["2026-01-01T05:00:00Z"]);
    assert_eq!(world.skipped(), [("missed".to_owned(), 4)]);
    let note = world.notes.iter().find(|note| note.what == "skipped").unwrap();
    assert_eq!(note.detail["first"], "2026-01-01T01:00:00Z");
    assert_eq!(note.detail["last"], "2026-01-01T04:00:00Z");
}

#[test]
fn the_last_missed_slot_is_made_up_for() {
    let world = away(CatchUp::One);
    assert_eq!(world.fired(), ["2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"]);
    assert_eq!(world.skipped(), [("missed".to_owned(), 3)]);
}

#[test]
fn all_missed_slots_are_made_up_for_up_to_a_bound() {
    let world = away(CatchUp::All { max: 10 });
    assert_eq!((world.fired.len(), world.skipped()), (5, Vec::new()));
    assert!(world.fired.is_sorted());
    let world = away(CatchUp::All { max: 2 });
    assert_eq!(
        world.fired(),
        ["2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"]
    );
    assert_eq!(world.skipped(), [("bound_reached".to_owned(), 2)]);
}

#[test]
fn a_clock_that_jumps_by_a_year_is_caught_up_with_in_bounded_looks() {
    for (catch_up, fired, reason) in [
        (CatchUp::Skip, 0, "missed"),
        (CatchUp::One, 1, "missed"),
        (CatchUp::All { max: 1_000 }, 1_000, "bound_reached"),
    ] {
        let asked = ScheduleSpec { catch_up, ..spec(every(600)) };
        let mut world = World::with("2026-01-01T00:05:00Z", asked);
        world.sleep_until("2027-01-01T00:05:00Z");
        let skipped = world.skipped();
        assert!(skipped.iter().all(|(why, _)| why == reason));
        assert!(skipped.len() > 1, "it takes more than one look");
        let missed: u64 = skipped.iter().map(|(_, count)| count).sum();
        assert_eq!((world.fired.len() as u64, missed + world.fired.len() as u64), (fired, 52_560));
        assert_eq!(world.it().next_at, Some(at("2027-01-01T00:10:00Z")));
    }
}

#[test]
fn a_clock_that_jumps_back_fires_nothing_twice() {
    let mut world = World::with("2026-01-01T00:30:00Z", hourly(CatchUp::All { max: 10 }));
    world.pass_until("2026-01-01T03:00:00Z");
    world.now = at("2026-01-01T00:30:00Z");
    world.pass_until("2026-01-01T04:00:00Z");
    assert_eq!(world.fired.len(), 4);
    assert_eq!(world.words(), ["created", "fired", "fired", "fired", "fired"]);
}

#[test]
fn while_a_job_runs_the_next_slot_may_be_skipped() {
    let asked = ScheduleSpec { overlap: Overlap::Skip, ..hourly(CatchUp::One) };
    let mut world = World::with("2026-01-01T00:30:00Z", asked);
    world.pass_until("2026-01-01T01:00:00Z");
    world.last_job = LastJob::Active;
    world.pass_until("2026-01-01T02:30:00Z");
    world.last_job = LastJob::Ended;
    world.pass_until("2026-01-01T03:30:00Z");
    assert_eq!(world.fired(), ["2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z"]);
    assert_eq!(world.skipped(), [("overlap".to_owned(), 1)]);
}

#[test]
fn while_a_job_runs_slots_may_wait_in_their_order_and_none_is_skipped() {
    let asked = ScheduleSpec { overlap: Overlap::Queue, ..hourly(CatchUp::Skip) };
    let mut world = World::with("2026-01-01T00:30:00Z", asked);
    world.pass_until("2026-01-01T01:00:00Z");
    world.last_job = LastJob::Active;
    // Two slots come meanwhile, and both wait for much longer than a slot may be late.
    world.pass_until("2026-01-01T03:30:00Z");
    assert_eq!(world.fired.len(), 1);
    world.last_job = LastJob::Ended;
    world.pass_until("2026-01-01T03:30:06Z");
    assert_eq!(
        world.fired(),
        ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"]
    );
    assert_eq!(world.skipped(), []);
}

#[test]
fn a_slot_that_waits_is_looked_at_after_a_second_and_then_ever_more_rarely() {
    let asked = ScheduleSpec { overlap: Overlap::Queue, ..hourly(CatchUp::Skip) };
    let mut world = World::with("2026-01-01T00:30:00Z", asked);
    world.last_job = LastJob::Active;
    world.pass_until("2026-01-01T01:00:00Z");
    assert_eq!(world.it().fires_at, Some(at("2026-01-01T01:00:01Z")));
    let version = world.it().version;
    world.pass_until("2026-01-01T02:00:00Z");
    assert!(world.it().version - version < 760, "{}", world.it().version);
}

#[test]
fn what_is_missed_behind_a_slot_that_waits_follows_the_policy() {
    let asked = ScheduleSpec { overlap: Overlap::Queue, ..hourly(CatchUp::Skip) };
    let mut world = World::with("2026-01-01T00:30:00Z", asked);
    world.last_job = LastJob::Active;
    world.pass_until("2026-01-01T01:30:00Z");
    // Everybody is away while it waits, and comes back to a job that still runs.
    world.sleep_until("2026-01-01T04:30:00Z");
    world.last_job = LastJob::Ended;
    world.pass_until("2026-01-01T05:00:30Z");
    assert_eq!(world.fired(), ["2026-01-01T01:00:00Z", "2026-01-01T05:00:00Z"]);
    assert_eq!(world.skipped(), [("missed".to_owned(), 3)]);
}

#[test]
fn a_pause_holds_slots_and_the_policy_says_what_becomes_of_them() {
    for (catch_up, fired, skipped) in [
        (CatchUp::Skip, 0, vec![("paused".to_owned(), 3)]),
        (CatchUp::One, 1, vec![("paused".to_owned(), 2)]),
        (CatchUp::All { max: 5 }, 3, Vec::new()),
    ] {
        let mut world = World::with("2026-01-01T00:30:00Z", hourly(catch_up));
        world.act(Action::Pause { reason: Some("moving house".to_owned()) }).unwrap();
        let pause = world.it().pause.clone().unwrap();
        assert_eq!((pause.by.to_string(), pause.at), ("user:ann".to_owned(), world.now));
        world.pass_until("2026-01-01T03:30:00Z");
        assert!(world.fired.is_empty());
        world.act(Action::Pause { reason: None }).expect("it is paused already");
        world.act(Action::Resume).unwrap();
        world.act(Action::Resume).expect("it runs already");
        assert_eq!((world.fired.len(), world.skipped()), (fired, skipped));
        assert_eq!(world.it().next_at, Some(at("2026-01-01T04:00:00Z")));
        let [paused, resumed] = ["paused", "resumed"]
            .map(|word| world.notes.iter().filter(|note| note.what == word).collect::<Vec<_>>());
        assert_eq!((paused.len(), resumed.len()), (1, 1));
        assert_eq!(paused[0].detail["reason"], "moving house");
    }
}

#[test]
fn a_single_time_is_fired_once_and_is_over() {
    let mut world = World::with("2026-01-01T00:30:00Z", spec(When::At(at("2026-01-01T01:00:00Z"))));
    world.pass_until("2026-01-01T03:30:00Z");
    assert_eq!(world.fired(), ["2026-01-01T01:00:00Z"]);
    assert_eq!(world.words(), ["created", "ended", "fired"]);
}
