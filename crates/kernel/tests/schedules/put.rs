//! A schedule is put, changed and deleted, and what nobody can mean is refused.

use std::time::Duration;

use windlass_kernel::{
    Refusal, Timestamp,
    ops::{Idempotency, NewTask},
    schedule::{Action, CatchUp, Overlap, ScheduleSpec, When},
};

use crate::common::*;

#[test]
fn the_same_again_changes_nothing() {
    let asked = spec(cron("0 3 * * *", "Europe/Berlin"));
    let mut world = World::with("2026-01-01T00:00:00Z", asked.clone());
    let before = world.it().clone();
    world.now = at("2026-01-01T01:00:00Z");
    world.put(asked).unwrap();
    assert_eq!(*world.it(), before);
    assert_eq!(world.words(), ["created"]);
    // Also when its only time has passed.
    let once = spec(When::At(at("2026-01-01T02:00:00Z")));
    let mut world = World::with("2026-01-01T01:00:00Z", once.clone());
    world.pass_until("2026-01-05T00:00:00Z");
    world.put(once).unwrap();
    assert_eq!(world.fired.len(), 1);
}

#[test]
fn a_change_keeps_what_has_fired_and_brings_back_nothing_from_the_past() {
    let mut world = World::with("2026-01-01T00:00:00Z", spec(cron("0 3 * * *", "UTC")));
    world.pass_until("2026-01-01T06:00:00Z");
    // At five it was not there yet.
    world.put(spec(cron("0 3,5,9 * * *", "UTC"))).unwrap();
    assert_eq!(world.it().next_at, Some(at("2026-01-01T09:00:00Z")));
    assert_eq!(world.it().last_slot, Some(at("2026-01-01T03:00:00Z")));
    let note = world.notes.last().unwrap();
    assert_eq!((note.what, &note.detail["fields"]), ("changed", &serde_json::json!(["when"])));
    // Its slots are the same, so they stay as they are.
    let spec = ScheduleSpec { overlap: Overlap::Skip, ..spec(cron("0 3,5,9 * * *", "UTC")) };
    world.put(spec).unwrap();
    assert_eq!(world.it().next_at, Some(at("2026-01-01T09:00:00Z")));
    world.pass_until("2026-01-01T12:00:00Z");
    assert_eq!(world.fired(), ["2026-01-01T03:00:00Z", "2026-01-01T09:00:00Z"]);
}

#[test]
fn slots_that_were_due_when_they_were_changed_are_told() {
    let mut world = World::with("2026-01-01T00:30:00Z", spec(cron("@hourly", "UTC")));
    world.now = at("2026-01-01T03:30:00Z");
    world.put(spec(cron("@daily", "UTC"))).unwrap();
    assert_eq!(world.skipped(), [("changed".to_owned(), 3)]);
    world.look();
    assert!(world.fired.is_empty());
}

#[test]
fn a_change_of_a_paused_schedule_leaves_it_paused() {
    let mut world = World::with("2026-01-01T00:30:00Z", spec(cron("@hourly", "UTC")));
    world.act(Action::Pause { reason: None }).unwrap();
    world.put(spec(cron("@daily", "UTC"))).unwrap();
    assert!(world.it().pause.is_some() && world.it().fires_at.is_none());
}

#[test]
fn what_is_deleted_is_not_found() {
    let mut world = World::with("2026-01-01T00:30:00Z", spec(every(60)));
    world.act(Action::Delete).unwrap();
    assert_eq!(world.words(), ["created", "deleted"]);
    for action in [
        Action::Delete,
        Action::Resume,
        Action::Pause { reason: None },
        Action::Fire { version: 1 },
        Action::Trigger { job_id: windlass_kernel::JobId::from_u128(1), random: 1 },
        Action::Backfill { from: Timestamp::MIN, to: Timestamp::MAX },
    ] {
        assert_eq!(world.act(action), Err(Refusal::NotFound { what: "schedule" }));
    }
}

#[test]
fn what_nobody_can_mean_is_refused_by_its_field() {
    let hourly = || spec(cron("@hourly", "UTC"));
    let period = |period| spec(When::Every { period, anchor: Timestamp::MIN });
    let start = Some(at("2026-02-01T00:00:00Z"));
    let odd_job = |change: fn(&mut windlass_kernel::ops::NewJob)| {
        let mut spec = hourly();
        change(&mut spec.job);
        spec
    };
    for (field, asked) in [
        ("every", period(Duration::ZERO)),
        ("every", period(Duration::from_millis(999))),
        ("every", period(Duration::from_micros(1_000_001))),
        ("every", period(Duration::MAX)),
        ("zone", spec(cron("@hourly", "Mars/Olympus"))),
        ("cron", spec(cron("* * * * * * *", "UTC"))),
        ("cron", spec(cron("0 0 31 2 *", "UTC"))),
        ("at", spec(When::At(at("2025-12-31T23:58:59Z")))),
        ("jitter_ms", ScheduleSpec { jitter: Duration::from_secs(3_601), ..hourly() }),
        ("catch_up", ScheduleSpec { catch_up: CatchUp::All { max: 0 }, ..hourly() }),
        ("catch_up", ScheduleSpec { catch_up: CatchUp::All { max: 1_001 }, ..hourly() }),
        ("end_at", ScheduleSpec { start_at: start, end_at: start, ..hourly() }),
        ("end_at", ScheduleSpec { end_at: Some(at("2025-02-01T00:00:00Z")), ..hourly() }),
        (
            "task_id",
            odd_job(|job| {
                let task_id = "t".parse().unwrap();
                job.task = Some(NewTask { task_id, may_rerun: true });
            }),
        ),
        (
            "idempotency_key",
            odd_job(|job| job.idempotency = Idempotency::Run { key: "k".parse().unwrap() }),
        ),
        ("scheduled_at", odd_job(|job| job.scheduled_at = Some(Timestamp::MAX))),
        ("deadline_at", odd_job(|job| job.deadline_at = Some(Timestamp::MAX))),
        ("max_retries", odd_job(|job| job.max_retries = 10_001)),
    ] {
        let mut world = World::new("2026-01-01T00:00:00Z");
        match world.put(asked) {
            Err(Refusal::Invalid { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
        assert!(world.schedule.is_none() && world.notes.is_empty());
    }
    assert!("".parse::<windlass_kernel::ScheduleName>().is_err());
    assert!("x".repeat(161).parse::<windlass_kernel::ScheduleName>().is_err());
    let mut world = World::with("2026-01-01T00:00:00Z", hourly());
    let reason = Some("x".repeat(1_001));
    assert!(matches!(
        world.act(Action::Pause { reason }),
        Err(Refusal::Invalid { field: "reason", .. })
    ));
}

#[test]
fn the_longest_name_still_has_a_key_for_each_slot() {
    let name = "x".repeat(windlass_kernel::ScheduleName::MAX_BYTES);
    let key =
        format!("{name}@{}", Timestamp::MAX.plus(Duration::ZERO).minus(Duration::from_micros(1)));
    assert!(windlass_kernel::IdempotencyKey::new(key).is_ok());
}
