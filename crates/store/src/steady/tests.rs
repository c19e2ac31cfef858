//! The store's time under clocks that are set while it runs.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const START: i64 = 1_772_000_000_000_000;

/// A clock that can be set, and ticks that cannot.
struct Hands {
    steady: Steady,
    clock: i64,
    ticks: Duration,
}

impl Hands {
    fn new() -> Self {
        Self { steady: Steady::default(), clock: START, ticks: 7 * DAY }
    }

    fn now(&self) -> Duration {
        let now = self.steady.read(self.shows(), Timestamp::MIN, Some(self.ticks));
        Duration::from_micros(u64::try_from(now.as_micros() - START).unwrap())
    }

    fn shows(&self) -> Timestamp {
        Timestamp::from_micros(self.clock)
    }

    /// Time passes, on both.
    fn pass(&mut self, time: Duration) {
        self.ticks += time;
        self.set_by(i64::try_from(time.as_micros()).unwrap());
    }

    fn set_by(&mut self, micros: i64) {
        self.clock += micros;
    }

    /// Passes time and reads so often.
    fn read_on(&mut self, step: Duration, times: u32) -> Duration {
        let mut last = self.now();
        for _ in 0..times {
            self.pass(step);
            let now = self.now();
            assert!(now >= last, "time went back from {last:?} to {now:?}");
            last = now;
        }
        last
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap()
}

#[test]
fn a_clock_that_is_right_is_the_time() {
    let mut hands = Hands::new();
    assert_eq!(hands.now(), Duration::ZERO);
    assert_eq!(hands.read_on(SECOND, 60), 60 * SECOND);
    // Nobody looked for days.
    assert_eq!(hands.read_on(3 * DAY, 1), 3 * DAY + 60 * SECOND);
    assert_eq!(hands.steady.standing(), ClockStanding::Agrees);
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut hands = Hands::new();
    hands.now();
    hands.set_by(-micros(DAY));
    assert_eq!(hands.read_on(SECOND, 100), 90 * SECOND, "a tenth slower");
    let by = DAY + 90 * SECOND - 100 * SECOND;
    assert_eq!(hands.steady.standing(), ClockStanding::WentBack { by });
    assert_eq!(hands.steady.standing().meets_in(), Some(10 * by));
    // They meet, and from then on the clock is the time.
    assert_eq!(hands.read_on(DAY, 10), 10 * DAY + 100 * SECOND - DAY);
    assert_eq!(hands.steady.standing(), ClockStanding::Agrees);
    assert_eq!(hands.read_on(SECOND, 1), 9 * DAY + 101 * SECOND);
}

#[test]
fn time_goes_on_however_often_it_is_read() {
    let mut hands = Hands::new();
    hands.now();
    hands.set_by(-micros(DAY));
    // Each step is less than a microsecond, of which a tenth would be nothing.
    let mut ticks = hands.ticks;
    let read = |ticks| hands.steady.read(hands.shows(), Timestamp::MIN, Some(ticks));
    for _ in 0..1_000_000 {
        ticks += Duration::from_nanos(100);
        read(ticks);
    }
    assert_eq!(read(ticks), Timestamp::from_micros(START + 90_000));
}

#[test]
fn a_jump_ahead_is_held_back_until_the_clock_is_right_again() {
    let mut hands = Hands::new();
    hands.now();
    hands.set_by(micros(DAY));
    assert_eq!(hands.read_on(SECOND, 100), 100 * SECOND, "no slower and no faster");
    assert_eq!(hands.steady.standing(), ClockStanding::JumpedAhead { by: DAY });
    assert_eq!(hands.steady.standing().meets_in(), None);
    hands.set_by(-micros(DAY));
    assert_eq!(hands.read_on(SECOND, 1), 101 * SECOND);
    assert_eq!(hands.steady.standing(), ClockStanding::Agrees);
}

#[test]
fn a_jump_ahead_is_followed_when_somebody_says_so() {
    let mut hands = Hands::new();
    hands.now();
    hands.set_by(micros(DAY));
    hands.now();
    hands.steady.accept();
    assert_eq!(hands.now(), DAY);
    assert_eq!(hands.steady.standing(), ClockStanding::Agrees);
    // The next one is held back again, and accepting never takes time back.
    hands.set_by(micros(DAY));
    assert_eq!(hands.read_on(SECOND, 1), DAY + SECOND);
    hands.set_by(-3 * micros(DAY));
    hands.steady.accept();
    assert_eq!(hands.now(), DAY + SECOND);
    assert!(matches!(hands.steady.standing(), ClockStanding::WentBack { .. }));
}

#[test]
fn steps_of_a_time_server_are_followed_and_not_told() {
    let mut hands = Hands::new();
    hands.now();
    hands.set_by(500_000);
    assert_eq!(hands.now(), Duration::from_millis(500));
    hands.set_by(-500_000);
    assert_eq!(hands.steady.standing(), ClockStanding::Agrees);
    assert_eq!(hands.read_on(SECOND, 4), Duration::from_millis(4_100));
    assert_eq!(hands.steady.standing(), ClockStanding::Agrees);
    assert_eq!(hands.read_on(SECOND, 2), 6 * SECOND, "they met");
}

#[test]
fn a_machine_that_slept_lived_through_it() {
    let mut hands = Hands::new();
    hands.now();
    // Ticks count on while it sleeps.
    hands.pass(8 * 60 * 60 * SECOND);
    assert_eq!(hands.now(), 8 * 60 * 60 * SECOND);
}

#[test]
fn what_others_wrote_is_followed_at_once() {
    let mut hands = Hands::new();
    hands.now();
    hands.set_by(micros(DAY));
    hands.now();
    // Another node has taken the clock as it is.
    let floor = Timestamp::from_micros(START + micros(DAY));
    let now = hands.steady.read(hands.shows(), floor, Some(hands.ticks));
    assert_eq!(now, floor);
    assert_eq!(hands.steady.standing(), ClockStanding::Agrees);
}

#[test]
fn after_a_start_time_goes_on_from_what_is_stored() {
    let mut hands = Hands::new();
    let stored = Timestamp::from_micros(START + micros(DAY));
    hands.steady.at_least(stored);
    assert_eq!(hands.now(), DAY);
    assert_eq!(hands.read_on(SECOND, 10), DAY + 9 * SECOND);
    // Whoever starts after a long rest takes the clock as it is.
    let mut hands = Hands::new();
    hands.steady.at_least(Timestamp::from_micros(START - micros(30 * DAY)));
    assert_eq!(hands.now(), Duration::ZERO);
    assert_eq!(hands.read_on(SECOND, 1), SECOND);
}

#[test]
fn without_ticks_the_clock_is_all_there_is() {
    let steady = Steady::default();
    let read =
        |micros| steady.read(Timestamp::from_micros(micros), Timestamp::MIN, None).as_micros();
    assert_eq!(read(500), 500);
    assert_eq!(read(100), 500);
    assert_eq!(read(500 + micros(DAY)), 500 + micros(DAY));
    assert_eq!(steady.without_clock(None), None);
}

#[test]
fn a_clock_that_is_off_is_done_without() {
    let mut hands = Hands::new();
    hands.now();
    assert_eq!(hands.steady.without_clock(Some(hands.ticks)), None);
    for off in [-micros(DAY), micros(DAY)] {
        let mut hands = Hands::new();
        hands.now();
        hands.set_by(off);
        hands.now();
        hands.pass(SECOND);
        let guess = hands.steady.without_clock(Some(hands.ticks));
        assert_eq!(
            guess,
            Some(hands.steady.read(hands.shows(), Timestamp::MIN, Some(hands.ticks)))
        );
    }
    // Behind by a little, it is still the better guess.
    hands.set_by(-500_000);
    hands.now();
    assert!(hands.steady.without_clock(Some(hands.ticks)).is_some());
}

#[test]
fn the_machine_has_ticks() {
    let ticks = uptime();
    let first = ticks();
    assert!(first > Duration::ZERO);
    assert!(ticks() >= first);
}
