//! Clocks that are set while a store runs, or while it does not: time goes on, and nothing is due too early.
//!
//! Each test lets a retry, a lease, a schedule and a rate come due by time alone.

use std::time::Duration;

use windlass_kernel::{
    About, AcceptClock, Actor, Jitter, JobId, Op, ScheduleName, ScheduleOp, State, Timestamp,
    ops::NewJob,
    rule::{Each, Rate},
    schedule::{Action, ScheduleSpec, When},
    timer,
};
use windlass_store::{ClaimMany, ClockStanding, Reply, Write};

use super::rules::put;
use crate::common::*;

for_each_lasting_backend!(
    time_goes_on_after_a_clock_is_set_back,
    time_goes_on_after_a_start_with_a_clock_that_is_behind,
    a_jump_ahead_makes_nothing_due,
    a_clock_that_is_accepted_is_the_time_and_somebody_said_so,
    whoever_starts_takes_the_clock_as_it_is,
    steps_of_a_time_server_are_no_matter,
);

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A retry, a lease, a schedule and a rate that come due within two seconds.
struct Waiting {
    test: TestStore,
    retry: JobId,
    leased: JobId,
    claims: u128,
}

impl Waiting {
    fn new(backend: Backend) -> Self {
        Self::at(backend.new_home())
    }

    fn at(home: std::sync::Arc<dyn Home>) -> Self {
        let test = TestStore::open_with_ticks(home);
        let rate = Rate { count: 1, per: SECOND, burst: Some(1), each: Each::Together };
        let slowly = put(
            "slowly",
            windlass_kernel::Scope::queue(queue("slow")),
            windlass_kernel::Says::Rate(rate),
        );
        test.write(slowly).unwrap();
        let anchor = Timestamp::from_micros(START).plus(SECOND);
        let elsewhere = NewJob { queue: queue("scheduled"), ..plain() };
        let spec = ScheduleSpec::new(When::Every { period: SECOND, anchor }, elsewhere);
        test.write(schedule(Action::Put(Box::new(spec)))).unwrap();
        let mut waiting = Self {
            retry: test.enqueue(1, plain()),
            leased: test.enqueue(2, plain()),
            test,
            claims: 0,
        };
        for number in 1..=20 {
            let slow = NewJob { queue: queue("slow"), ..plain() };
            waiting.test.enqueue(1_000 + number, slow);
        }
        waiting.set_out();
        waiting
    }

    /// Fails the one job and takes the other, each for a second.
    fn set_out(&mut self) {
        let first = self.claim("default", 1).remove(0);
        assert_eq!(first, self.retry);
        let epoch = self.test.job(first).epoch;
        self.test.op(settle(first, epoch, failed_for_now())).unwrap();
        assert_eq!(self.claim("default", 1), [self.leased]);
        assert_eq!(self.claim("slow", 2).len(), 1);
    }

    fn claim(&mut self, from: &str, max: usize) -> Vec<JobId> {
        self.claims += 1;
        let queues = vec![queue(from)];
        let wanted = ClaimMany { lease: SECOND, queues, ..wanted("w1", self.claims, max) };
        let reply = self.test.write(Write::Claim(wanted)).unwrap();
        granted(&reply).into_iter().map(|granted| granted.job.id).collect()
    }

    /// What time it is, by the store.
    fn now(&self) -> Timestamp {
        self.test.wait(self.test.store.due(1)).now
    }

    /// Nothing has come due yet.
    #[track_caller]
    fn nothing_is_due(&mut self) {
        let due = self.test.wait(self.test.store.due(10));
        assert!(due.jobs.is_empty() && due.schedules.is_empty(), "{due:?}");
        assert_eq!(self.claim("default", 5), []);
        assert_eq!(self.claim("slow", 5), []);
    }

    /// Fires the schedule, which is due, and says whether that made a job.
    #[track_caller]
    fn fire(&mut self) -> bool {
        let due = self.test.wait(self.test.store.due(10));
        assert_eq!(due.schedules.len(), 1, "{due:?}");
        let version = due.schedules[0].version;
        match self.test.write(schedule(Action::Fire { version })) {
            Ok(Reply::Scheduled(fired)) => !fired.made.is_empty(),
            other => panic!("the schedule does not fire: {other:?}"),
        }
    }

    /// Everything has come due, each once.
    #[track_caller]
    fn everything_comes(&mut self) {
        // Of many slots that were missed a look decides a bounded number.
        while !self.fire() {}
        let due = self.test.wait(self.test.store.due(10));
        let lapsed = due.jobs.iter().find(|it| it.job_id == self.leased);
        let lapsed = lapsed.unwrap_or_else(|| panic!("the lease lasts: {due:?}"));
        let op: Op = timer::op_for(lapsed.job_id, lapsed.version, lapsed.alarm, Jitter::NONE);
        assert_eq!(self.test.op(op).unwrap().state, State::Interrupted);
        let mut taken = self.claim("default", 5);
        taken.sort();
        assert_eq!(taken, [self.retry, self.leased], "the retry and what was interrupted");
        assert_eq!(self.claim("slow", 5).len(), 1, "the rate lets the next begin");
    }

    /// What is stored is in order.
    #[track_caller]
    fn check(self) {
        let feed =
            self.test.wait(self.test.store.feed(&windlass_store::read::Scope::Every, 0, 1_000));
        assert!(feed.events.iter().map(|event| event.at).is_sorted(), "the feed goes back in time");
        let report = self.test.close().check();
        assert!(report.is_clean(), "{report}");
    }
}

fn schedule(action: Action) -> Write {
    let name = ScheduleName::new("each-second").unwrap();
    Write::Schedule(ScheduleOp { tenant: tenant(), name, action, by: Actor::Scheduler.into() })
}

fn time_goes_on_after_a_clock_is_set_back(backend: Backend) {
    let mut waiting = Waiting::new(backend);
    waiting.test.go_back(DAY);
    waiting.nothing_is_due();
    waiting.test.pass(2 * SECOND);
    waiting.everything_comes();
    let by = match waiting.test.store.clock() {
        ClockStanding::WentBack { by } => by,
        other => panic!("{other:?}"),
    };
    assert!(by > DAY - SECOND && by < DAY, "it is being made up for: {by:?}");
    // And back again: that is no jump, for nobody followed it back.
    waiting.test.go_ahead(DAY);
    waiting.now();
    assert_eq!(waiting.test.store.clock(), ClockStanding::Agrees);
    waiting.check();
}

fn time_goes_on_after_a_start_with_a_clock_that_is_behind(backend: Backend) {
    let mut waiting = Waiting::new(backend);
    let last = waiting.now();
    waiting.test.go_back(DAY);
    waiting.test = waiting.test.reopen();
    assert!(waiting.now() >= last.minus(SECOND), "it goes on from the last commit");
    assert!(matches!(waiting.test.store.clock(), ClockStanding::WentBack { .. }));
    waiting.test.pass(2 * SECOND);
    waiting.everything_comes();
    // Once more, and with a clock that is right by now.
    waiting.test.go_ahead(DAY);
    waiting.test = waiting.test.reopen();
    waiting.now();
    assert_eq!(waiting.test.store.clock(), ClockStanding::Agrees);
    waiting.check();
}

fn a_jump_ahead_makes_nothing_due(backend: Backend) {
    let mut waiting = Waiting::new(backend);
    waiting.test.go_ahead(DAY);
    waiting.nothing_is_due();
    assert_eq!(waiting.test.store.clock(), ClockStanding::JumpedAhead { by: DAY });
    waiting.test.pass(2 * SECOND);
    waiting.everything_comes();
    // Who started after the jump would have taken it; who ran does not, and is right when the clock is.
    waiting.test.go_back(DAY);
    waiting.now();
    assert_eq!(waiting.test.store.clock(), ClockStanding::Agrees);
    waiting.check();
}

fn a_clock_that_is_accepted_is_the_time_and_somebody_said_so(backend: Backend) {
    let waiting = Waiting::new(backend);
    waiting.test.go_ahead(DAY);
    let before = waiting.now();
    let reason = Some("it was a day late".to_owned());
    let op = AcceptClock { tenant: tenant(), ahead: DAY, reason, by: person("ann") };
    waiting.test.write(Write::Clock(op)).unwrap();
    assert_eq!(waiting.now(), waiting.test.now());
    assert!(waiting.now() >= before.plus(DAY));
    assert_eq!(waiting.test.store.clock(), ClockStanding::Agrees);
    let notes = waiting.test.store.notes(&tenant(), &About::Clock, u64::MAX, 10);
    let told = waiting.test.wait(notes);
    assert_eq!(told.len(), 1);
    assert!(told[0].line.contains("it was a day late"), "{}", told[0].line);
    assert_eq!(told[0].at, waiting.now());
    waiting.check();
}

fn whoever_starts_takes_the_clock_as_it_is(backend: Backend) {
    let mut waiting = Waiting::new(backend);
    waiting.test.go_ahead(DAY);
    waiting.now();
    waiting.test = waiting.test.reopen();
    assert_eq!(waiting.now(), waiting.test.now());
    assert_eq!(waiting.test.store.clock(), ClockStanding::Agrees);
    waiting.everything_comes();
    waiting.check();
}

fn steps_of_a_time_server_are_no_matter(backend: Backend) {
    let half = Duration::from_millis(500);
    for is_ahead in [true, false] {
        let mut waiting = Waiting::new(backend);
        match is_ahead {
            true => waiting.test.go_ahead(half),
            false => waiting.test.go_back(half),
        }
        waiting.now();
        assert_eq!(waiting.test.store.clock(), ClockStanding::Agrees, "not worth telling");
        waiting.test.pass(2 * SECOND);
        waiting.everything_comes();
        waiting.test.pass(10 * SECOND);
        assert_eq!(waiting.now(), waiting.test.now(), "they have met");
        waiting.check();
    }
}

/// Two nodes follow one clock, and each has ticks of its own.
#[test]
fn nodes_agree_while_the_clock_is_off() {
    let mut waiting = Waiting::new(Backend::Postgres);
    let other = waiting.test.another_node();
    let looks = |test: &TestStore| test.wait(test.store.due(1)).now;
    waiting.test.go_ahead(DAY);
    // One accepts; the other follows what was written.
    assert!(looks(&other) < other.now().minus(DAY / 2));
    let op = AcceptClock { tenant: tenant(), ahead: DAY, reason: None, by: person("ann") };
    waiting.test.write(Write::Clock(op)).unwrap();
    assert_eq!(looks(&other), other.now());
    // Set back again, neither goes back, and both go on.
    waiting.test.go_back(DAY);
    let before = looks(&other).max(waiting.now());
    waiting.test.pass(2 * SECOND);
    waiting.everything_comes();
    assert!(looks(&other) > before.plus(SECOND));
    let third = waiting.test.another_node();
    assert!(looks(&third) > before.plus(SECOND), "whoever joins is not behind the last commit");
    drop((other, third));
    waiting.check();
}
