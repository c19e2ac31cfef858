//! A slot is fired once, by whoever looks first.

use windlass_kernel::{
    Actor, IdempotencyKey, IdempotencyScope, JobId, Refusal,
    job::ScheduleType,
    schedule::{
        Action, GRACE, LastJob, Overlap, PreviewSlot, ScheduleSpec, decide, jitter_of, preview,
    },
};

use crate::common::*;

#[test]
fn each_slot_is_fired_at_its_time() {
    let mut world = World::with("2026-03-27T12:00:00Z", spec(cron("30 2 * * *", "Europe/Berlin")));
    world.pass_until("2026-03-30T12:00:00Z");
    // The second lies in the hour that is missing.
    let expected = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(world.fired(), expected);
    assert_eq!(world.words(), ["created", "fired", "fired", "fired"]);
    assert_eq!(world.it().last_slot, Some(at(expected[2])));
    assert_eq!(world.it().next_at, Some(at("2026-03-31T00:30:00Z")));
}

#[test]
fn a_timer_acts_on_the_version_that_it_saw() {
    let mut world = World::with("2026-01-01T00:00:30Z", spec(every(60)));
    let version = world.it().version;
    let early = world.act(Action::Fire { version });
    assert_eq!(early, Err(Refusal::NotDue { at: at("2026-01-01T00:01:00Z") }));
    world.now = at("2026-01-01T00:01:00Z");
    world.act(Action::Fire { version }).expect("its time has come");
    assert_eq!(world.act(Action::Fire { version }), Err(Refusal::Outdated));
    // The clock of another node is behind: what has fired does not fire again.
    world.now = at("2026-01-01T00:00:59Z");
    let version = world.it().version;
    assert!(matches!(world.act(Action::Fire { version }), Err(Refusal::NotDue { .. })));
    assert_eq!(world.fired(), ["2026-01-01T00:01:00Z"]);
}

#[test]
fn the_job_of_a_slot_is_the_same_whoever_makes_it() {
    let mut world = World::with("2026-01-01T00:00:30Z", spec(cron("* * * * *", "UTC")));
    world.now = at("2026-01-01T00:01:00Z");
    let mut op = windlass_kernel::ScheduleOp {
        tenant: "acme".parse().expect("a name"),
        name: "nightly".parse().expect("a name"),
        action: Action::Fire { version: 1 },
        by: Actor::Scheduler.into(),
    };
    let fire = |op: &_| decide(world.schedule.as_ref(), LastJob::Ended, op, world.now).unwrap();
    let (first, second) = (fire(&op), fire(&op));
    assert_eq!(first.firings, second.firings);
    let enqueue = &first.firings[0].enqueue;
    assert_eq!(enqueue.scope(), IdempotencyScope::slots());
    assert!(enqueue.scope().is_reserved());
    let key = IdempotencyKey::new("nightly@2026-01-01T00:01:00Z").unwrap();
    assert_eq!(enqueue.key(), key);
    assert_eq!(enqueue.by.actor, Actor::Scheduler);
    assert_eq!(enqueue.new.schedule_type, ScheduleType::Cron);
    assert_eq!(enqueue.new.scheduled_at, Some(world.now));
    // It begins with its time, like every other id.
    let millis = u128::try_from(world.now.as_micros() / 1000).unwrap();
    assert_eq!(enqueue.job_id.as_u128() >> 80, millis);
    // A backfill means the same job.
    op.action = Action::Backfill { from: at("2026-01-01T00:00:30Z"), to: world.now };
    assert!(fire(&op).firings.is_empty(), "the end does not belong to it");
    world.now = at("2026-01-01T00:01:01Z");
    op.action = Action::Backfill { from: at("2026-01-01T00:00:30Z"), to: world.now };
    let filled = decide(world.schedule.as_ref(), LastJob::Ended, &op, world.now).unwrap();
    assert_eq!(filled.firings[0].enqueue.job_id, first.firings[0].enqueue.job_id);
}

#[test]
fn jitter_is_between_nothing_and_what_was_asked_for_and_the_same_for_all() {
    let jitter = std::time::Duration::from_secs(600);
    let asked = ScheduleSpec { jitter, ..spec(cron("0 * * * *", "UTC")) };
    let mut world = World::with("2026-01-01T00:30:00Z", asked.clone());
    let (tenant, name) = ("acme".parse().unwrap(), "nightly".parse().unwrap());
    let mut delays = Vec::new();
    for _ in 0..50 {
        let (slot, fires_at) = (world.it().next_at.unwrap(), world.it().fires_at.unwrap());
        assert_eq!(fires_at, slot.plus(jitter_of(&tenant, &name, slot, jitter)));
        assert!(fires_at.since(slot) < jitter);
        delays.push(fires_at.since(slot));
        world.now = fires_at;
        world.look();
    }
    assert!(world.skipped().is_empty());
    delays.sort_unstable();
    delays.dedup();
    assert!(delays.len() > 45, "they are spread");
    assert!(delays[delays.len() - 1] - delays[0] > jitter / 2);
    let next = preview(&tenant, &name, &asked, at("2026-01-01T00:30:00Z"), 3).unwrap();
    assert_eq!(next[0].fires_at.since(next[0].at), jitter_of(&tenant, &name, next[0].at, jitter));
}

#[test]
fn a_preview_shows_both_zones() {
    let asked = spec(cron("30 2 * * *", "Europe/Berlin"));
    let (tenant, name) = ("acme".parse().unwrap(), "nightly".parse().unwrap());
    let next = preview(&tenant, &name, &asked, at("2026-03-28T00:00:00Z"), 3).unwrap();
    let shown: Vec<(String, &str)> =
        next.iter().map(|slot| (slot.at.to_string(), slot.local.as_str())).collect();
    assert_eq!(
        shown,
        [
            ("2026-03-28T01:30:00Z".to_owned(), "2026-03-28T02:30:00+01:00[Europe/Berlin]"),
            ("2026-03-29T01:00:00Z".to_owned(), "2026-03-29T03:00:00+02:00[Europe/Berlin]"),
            ("2026-03-30T00:30:00Z".to_owned(), "2026-03-30T02:30:00+02:00[Europe/Berlin]"),
        ]
    );
    let many = preview(&tenant, &name, &spec(every(1)), at("2026-01-01T00:00:00Z"), usize::MAX);
    assert_eq!(many.unwrap().len(), PreviewSlot::MAX);
}

#[test]
fn between_its_beginning_and_its_end_and_not_outside() {
    let asked = ScheduleSpec {
        start_at: Some(at("2026-01-01T02:00:00Z")),
        end_at: Some(at("2026-01-01T04:00:00Z")),
        ..spec(cron("@hourly", "UTC"))
    };
    let mut world = World::with("2026-01-01T00:30:00Z", asked);
    world.pass_until("2026-01-02T00:00:00Z");
    assert_eq!(world.fired(), ["2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"]);
    assert_eq!(world.words(), ["created", "fired", "ended", "fired"]);
    assert_eq!((world.it().next_at, world.it().fires_at), (None, None));
}

#[test]
fn what_is_asked_for_now_is_made_now_and_counts_as_the_last_job() {
    let asked = ScheduleSpec { overlap: Overlap::Skip, ..spec(every(3600)) };
    let mut world = World::with("2026-01-01T00:30:00Z", asked);
    let job_id = JobId::from_u128(7);
    world.act(Action::Pause { reason: None }).unwrap();
    world.act(Action::Trigger { job_id, random: 1 }).expect("also while it is paused");
    assert_eq!(world.it().last_job, Some(job_id));
    world.act(Action::Resume).unwrap();
    world.last_job = LastJob::Active;
    world.pass_until("2026-01-01T01:00:00Z");
    assert_eq!(world.skipped(), [("overlap".to_owned(), 1)]);
    assert_eq!(world.words(), ["created", "paused", "fired", "resumed", "skipped"]);
}

#[test]
fn a_backfill_goes_through_a_range_in_bounded_steps() {
    let mut world = World::with("2026-01-02T00:00:30Z", spec(cron("* * * * *", "UTC")));
    let (from, to) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
    let goes_on = world.act(Action::Backfill { from, to }).unwrap();
    assert_eq!(goes_on, Some(at("2026-01-01T16:40:00Z")));
    assert_eq!(world.fired.len(), Action::BACKFILL_MAX);
    let done = world.act(Action::Backfill { from: goes_on.unwrap(), to }).unwrap();
    assert_eq!((done, world.fired.len()), (None, 1_440));
    // The same again finds all of them.
    world.act(Action::Backfill { from, to: from.plus(GRACE * 3) }).unwrap();
    assert_eq!(world.fired.len(), 1_440);
    assert_eq!(world.skipped(), vec![("fired_before".to_owned(), 1); 3]);
    assert_eq!(world.it().version, 1, "the slots to come are as they were");
    for (from, to) in [(to, from), (to, at("2026-01-03T00:00:00Z"))] {
        let refused = world.act(Action::Backfill { from, to });
        assert!(matches!(refused, Err(Refusal::Invalid { field: "to", .. })));
    }
}
