//! Slots when clocks change: a time that does not exist runs once, one that exists twice runs once, and intervals run
//! at every real slot. What is expected comes from a clock that is read minute by minute.

use std::time::Duration;

use proptest::prelude::*;
use windlass_kernel::{
    Refusal, Timestamp,
    schedule::{Slots, When, next_slot},
};
use windlass_testkit::wall_clock::WallClock;

use crate::common::*;

fn slots(when: &When, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let slots = Slots::of(when).expect("it can be understood");
    let all = std::iter::successors(slots.from(from), |slot| slots.after(*slot));
    all.take_while(|slot| *slot < to).collect()
}

fn local(when: &When, from: &str, to: &str) -> Vec<String> {
    let known = Slots::of(when).expect("it can be understood");
    let tidy = |text: String| format!("{} {}", &text[11..16], &text[19..22]);
    slots(when, at(from), at(to)).into_iter().map(|slot| tidy(known.local(slot))).collect()
}

/// The slots of one local day, given by its instants.
#[track_caller]
fn check_day(expression: &str, zone: &str, day: (&str, &str), expected: &[&str]) {
    assert_eq!(local(&cron(expression, zone), day.0, day.1), expected, "{expression} in {zone}");
}

const BERLIN_SPRING: (&str, &str) = ("2026-03-28T23:00:00Z", "2026-03-29T02:30:00Z");
const BERLIN_AUTUMN: (&str, &str) = ("2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z");

#[test]
fn a_time_that_does_not_exist_runs_once() {
    let berlin = |expression, expected: &[&str]| {
        check_day(expression, "Europe/Berlin", BERLIN_SPRING, expected);
    };
    berlin("30 2 * * *", &["03:00 +02"]);
    berlin("0,30 2 * * *", &["03:00 +02"]);
    berlin("30 1,2,3 * * *", &["01:30 +01", "03:00 +02", "03:30 +02"]);
    berlin("0 2,3 * * *", &["03:00 +02"]);
    berlin("0 3 * * *", &["03:00 +02"]);
    let spring = ("2026-03-08T05:00:00Z", "2026-03-08T09:00:00Z");
    check_day("30 2 * * *", "America/New_York", spring, &["03:00 -04"]);
    // Half an hour is missing.
    let spring = ("2026-10-03T14:00:00Z", "2026-10-03T17:00:00Z");
    check_day("15 2 * * *", "Australia/Lord_Howe", spring, &["02:30 +11"]);
    check_day("45 2 * * *", "Australia/Lord_Howe", spring, &["02:45 +11"]);
    // The day begins at one in the morning.
    let spring = ("2026-04-23T20:00:00Z", "2026-04-24T20:00:00Z");
    check_day("0 0 * * *", "Africa/Cairo", spring, &["01:00 +03"]);
    check_day("@daily", "Africa/Cairo", spring, &["01:00 +03"]);
}

#[test]
fn a_time_that_exists_twice_runs_once() {
    let berlin = |expression, expected: &[&str]| {
        check_day(expression, "Europe/Berlin", BERLIN_AUTUMN, expected);
    };
    berlin("30 2 * * *", &["02:30 +02"]);
    berlin("0,30 2 * * *", &["02:00 +02", "02:30 +02"]);
    berlin("30 2-3 * * *", &["02:30 +02", "03:30 +01"]);
    let autumn = ("2026-11-01T04:00:00Z", "2026-11-01T08:00:00Z");
    check_day("30 1 * * *", "America/New_York", autumn, &["01:30 -04"]);
    check_day("30 1,13 * * *", "America/New_York", autumn, &["01:30 -04"]);
    let autumn = ("2026-04-04T14:00:00Z", "2026-04-04T17:00:00Z");
    check_day("45 1 * * *", "Australia/Lord_Howe", autumn, &["01:45 +11"]);
}

#[test]
fn intervals_run_at_every_real_slot() {
    let berlin = |expression, day, expected: &[&str]| {
        check_day(expression, "Europe/Berlin", day, expected);
    };
    let spring = ("2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z");
    berlin("*/30 * * * *", spring, &["01:00 +01", "01:30 +01", "03:00 +02", "03:30 +02"]);
    berlin("@hourly", spring, &["01:00 +01", "03:00 +02"]);
    // Nothing makes up for what the clock skipped.
    berlin("*/30 2 * * *", spring, &[]);
    let autumn = ("2026-10-24T23:30:00Z", "2026-10-25T02:30:00Z");
    let hours = ["02:00 +02", "02:00 +01", "03:00 +01"];
    berlin("0 * * * *", autumn, &hours);
    berlin("*/30 2 * * *", autumn, &["02:00 +02", "02:30 +02", "02:00 +01", "02:30 +01"]);
}

#[test]
fn a_period_knows_no_clock_and_never_drifts() {
    let six_hours = slots(&every(6 * 3600), at("2026-10-24T00:00:00Z"), at("2026-10-27T00:00:00Z"));
    assert_eq!(six_hours.len(), 12);
    let odd =
        When::Every { period: Duration::from_millis(1_001), anchor: at("2026-01-01T00:00:00.5Z") };
    assert_eq!(next_slot(&odd, Timestamp::MIN).unwrap(), Some(at("2026-01-01T00:00:00.5Z")));
    let later = next_slot(&odd, at("2026-02-01T00:00:00Z")).unwrap().unwrap();
    assert_eq!((later.as_micros() - at("2026-01-01T00:00:00.5Z").as_micros()) % 1_001_000, 0);
    assert_eq!(next_slot(&odd, Timestamp::MAX).unwrap(), None);
    let once = When::At(at("2026-01-01T00:00:00Z"));
    assert_eq!(
        next_slot(&once, at("2025-01-01T00:00:00Z")).unwrap(),
        Some(at("2026-01-01T00:00:00Z"))
    );
    assert_eq!(next_slot(&once, at("2026-01-01T00:00:00Z")).unwrap(), None);
}

#[test]
fn an_unknown_zone_is_refused_and_the_nearest_is_named() {
    let why = |zone: &str| match next_slot(&cron("* * * * *", zone), Timestamp::MIN) {
        Err(Refusal::Invalid { field: "zone", why }) => why,
        other => panic!("{zone} was taken: {other:?}"),
    };
    assert!(why("Europe/Berln").ends_with("did you mean Europe/Berlin?"));
    assert!(why("Berlin").ends_with("did you mean Europe/Berlin?"));
    assert!(why("").contains("is no name of a time zone"));
    assert!(why("../../etc/passwd").contains("is no name of a time zone"));
}

const ZONES: &[&str] = &[
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Santiago",
    "Pacific/Chatham",
    "America/St_Johns",
    "Asia/Kolkata",
    "UTC",
];

#[test]
fn a_whole_year_is_as_the_clock_shows_it() {
    let (from, to) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    for zone in ZONES {
        let clock = WallClock::by_minutes(zone, from, to);
        for expression in [
            "30 2 * * *",
            "0 0 * * *",
            "15,45 1-3 * * 0",
            "0 */6 * * *",
            "*/20 0-3 * * 0,6",
            "0 12 29 2 *",
            "5 4 1-7 * 1",
            "0 0 31 * *",
        ] {
            let found = slots(&cron(expression, zone), from, to);
            assert_eq!(found, clock.slots(expression), "{expression} in {zone}");
        }
    }
}

/// A field: all, a step, a number, a range or a list.
fn field(low: u8, high: u8) -> impl Strategy<Value = String> {
    let number = move || low..=high;
    prop_oneof![
        3 => Just("*".to_owned()),
        2 => (2..=high.max(3)).prop_map(|step| format!("*/{step}")),
        4 => number().prop_map(|it| it.to_string()),
        2 => (number(), number()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        2 => (number(), number()).prop_map(|(a, b)| format!("{a},{b}")),
    ]
}

/// Moments around which clocks change somewhere in 2026.
const CHANGES: &[&str] = &[
    "2026-03-29T01:00:00Z",
    "2026-10-25T01:00:00Z",
    "2026-03-08T07:00:00Z",
    "2026-11-01T06:00:00Z",
    "2026-04-04T15:00:00Z",
    "2026-10-03T15:30:00Z",
    "2026-04-23T22:00:00Z",
    "2026-10-29T21:00:00Z",
    "2026-04-05T03:00:00Z",
    "2026-09-06T04:00:00Z",
    "2026-04-04T14:00:00Z",
    "2026-09-26T14:00:00Z",
];

proptest! {
    #[test]
    fn slots_around_a_change_are_as_the_clock_shows_them(
        minute in field(0, 59),
        hour in field(0, 3),
        day in prop_oneof![4 => Just("*".to_owned()), 1 => field(1, 31)],
        weekday in prop_oneof![4 => Just("*".to_owned()), 1 => field(0, 6)],
        zone in prop::sample::select(ZONES),
        change in prop::sample::select(CHANGES),
        hours in 1..40u64,
    ) {
        let around = Duration::from_secs(hours * 3600);
        let (from, to) = (at(change).minus(around), at(change).plus(around));
        let expression = format!("{minute} {hour} {day} * {weekday}");
        // What never fires is refused, and never shown.
        if let Ok(known) = Slots::of(&cron(&expression, zone)) {
            let all = std::iter::successors(known.from(from), |slot| known.after(*slot));
            let found: Vec<Timestamp> = all.take_while(|slot| *slot < to).collect();
            prop_assert_eq!(found, WallClock::by_minutes(zone, from, to).slots(&expression));
        }
    }

    #[test]
    fn seconds_around_a_change_are_as_the_clock_shows_them(
        second in field(0, 59),
        minute in field(0, 59),
        hour in field(0, 3),
        zone in prop::sample::select(ZONES),
        change in prop::sample::select(CHANGES),
    ) {
        let around = Duration::from_secs(2 * 3600);
        let (from, to) = (at(change).minus(around), at(change).plus(around));
        let expression = format!("{second} {minute} {hour} * * *");
        let found = slots(&cron(&expression, zone), from, to);
        prop_assert_eq!(found, WallClock::by_seconds(zone, from, to).slots(&expression));
    }

    #[test]
    fn the_next_slot_is_later_and_none_lies_in_between(
        minute in field(0, 59),
        hour in field(0, 23),
        zone in prop::sample::select(ZONES),
        micros in 1_767_225_600_000_000..1_798_761_600_000_000i64,
        between in 0.0..1.0f64,
    ) {
        let when = cron(&format!("{minute} {hour} * * *"), zone);
        let after = Timestamp::from_micros(micros);
        let next = next_slot(&when, after).expect("it is understood").expect("it has slots");
        prop_assert!(next > after);
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "any will do")]
        let middle = micros + ((next.as_micros() - micros - 1) as f64 * between) as i64;
        let same = next_slot(&when, Timestamp::from_micros(middle)).expect("it is understood");
        prop_assert_eq!(same, Some(next));
    }
}
