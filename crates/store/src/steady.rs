//! The time that a store goes by: it never goes back, never stands still, and does not follow a jump.
//!
//! A store follows a wall clock: the machine's, or the database's. People and time servers set wall clocks. So each
//! reading is compared with what a monotonic clock (ticks) says has passed since the last one:
//!
//! - a clock that is behind the store's time is waited for: the store's time goes on by the ticks, a tenth slower, until
//!   both meet. Slower is the safe side: a lease lasts longer than its worker was promised, never shorter;
//! - a clock that is ahead by more than [`JUMP_MAX`] is not followed: the store's time goes on by the ticks until the
//!   clock is set right, or somebody says that it is right ([`Steady::accept`]);
//! - anything else is the time.
//!
//! Nothing is known of ticks before the first reading, so that one takes the clock as it is, and is never earlier than
//! what is stored.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use windlass_kernel::Timestamp;

/// A monotonic clock: how long something has been going on. It counts on while the machine sleeps.
pub type Ticks = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A clock that is ahead of the ticks by more than this is not followed.
pub const JUMP_MAX: Duration = Duration::from_secs(5 * 60);

/// A clock that is behind by less than this is not worth telling: time servers set clocks by so much.
const TOLD_FROM: Duration = Duration::from_secs(1);

/// While the clock is behind, the store's time is slower by one part of so many.
const SLOWER_BY: i128 = 10;

/// How the clock that a store follows stands to the store's own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockStanding {
    /// They agree.
    #[default]
    Agrees,
    /// The clock is behind: it was set back, or it was ahead when something was written. Time goes on, a tenth
    /// slower, until they meet.
    WentBack {
        /// By how much.
        by: Duration,
    },
    /// The clock jumped ahead and is not followed.
    JumpedAhead {
        /// By how much.
        by: Duration,
    },
}

impl ClockStanding {
    /// How long it takes until they meet by themselves, if they do.
    pub fn meets_in(&self) -> Option<Duration> {
        match self {
            Self::Agrees => Some(Duration::ZERO),
            Self::WentBack { by } => Some(by.saturating_mul(10)),
            Self::JumpedAhead { .. } => None,
        }
    }
}

/// How long this machine has been up, the time that it slept included.
pub fn uptime() -> Ticks {
    #[cfg(target_os = "linux")]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    Arc::new(|| rustix::time::clock_gettime(CLOCK).try_into().unwrap_or_default())
}

/// The time of a store. All who share it are told the same.
#[derive(Debug, Default)]
pub(crate) struct Steady {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was told last, in nanoseconds, so that a tenth of a short time is not lost.
    last: i128,
    /// The ticks at which it was told.
    at: Option<Duration>,
    /// By how much the clock was ahead then.
    ahead: i128,
    /// The next reading takes the clock as it is.
    accepts: bool,
}

impl Steady {
    /// What time it is: the clock shows `clock` at `ticks`, and it is no earlier than `floor`. Without ticks the clock
    /// is all there is: then time does not go back, and that is all.
    pub(crate) fn read(
        &self,
        clock: Timestamp,
        floor: Timestamp,
        ticks: Option<Duration>,
    ) -> Timestamp {
        let (clock, mut state) = (nanos(clock), self.state());
        let floor = nanos(floor).max(state.last);
        let now = match (ticks, state.at) {
            (Some(ticks), Some(at)) if !state.accepts => {
                let passed = nanos_of(ticks.saturating_sub(at));
                // What others have written meanwhile is as good as a clock.
                let steady = floor.max(state.last + passed);
                if clock > steady + nanos_of(JUMP_MAX) {
                    steady
                } else {
                    clock.max(floor).max(state.last + passed - passed / SLOWER_BY)
                }
            }
            _ => clock.max(floor),
        };
        *state = State { last: now, at: ticks, ahead: clock - now, accepts: false };
        timestamp(now)
    }

    /// Time is no earlier than this, which was told without a reading.
    pub(crate) fn at_least(&self, at: Timestamp) {
        let mut state = self.state();
        state.last = state.last.max(nanos(at));
    }

    /// Somebody says that the clock is right: the next reading takes it as it is. Time does not go back for that.
    pub(crate) fn accept(&self) {
        self.state().accepts = true;
    }

    /// How the clock stood at the last reading.
    pub(crate) fn standing(&self) -> ClockStanding {
        let ahead = self.state().ahead;
        let by = duration(ahead.abs());
        if ahead > nanos_of(JUMP_MAX) {
            ClockStanding::JumpedAhead { by }
        } else if ahead < -nanos_of(TOLD_FROM) {
            ClockStanding::WentBack { by }
        } else {
            ClockStanding::Agrees
        }
    }

    /// What time it is without a look at the clock, if the clock is off and is not the time.
    pub(crate) fn without_clock(&self, ticks: Option<Duration>) -> Option<Timestamp> {
        const LITTLE: Duration = Duration::from_millis(20);
        let state = self.state();
        let (ticks, at) = (ticks?, state.at?);
        let passed = nanos_of(ticks.saturating_sub(at));
        let slower = if state.ahead < 0 { passed / SLOWER_BY } else { 0 };
        (state.ahead.abs() > nanos_of(LITTLE)).then(|| timestamp(state.last + passed - slower))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(at: Timestamp) -> i128 {
    i128::from(at.as_micros()) * 1_000
}

fn nanos_of(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

fn timestamp(nanos: i128) -> Timestamp {
    Timestamp::from_micros(i64::try_from(nanos / 1_000).unwrap_or(i64::MAX))
}

fn duration(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[path = "steady/tests.rs"]
mod tests;
