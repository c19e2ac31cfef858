//! What is asked for of a schedule, and what of it is refused.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{cron::Cron, slots::zone};
use crate::{
    Refusal, Timestamp,
    machine::words,
    ops::{Idempotency, NewJob},
    time::{duration_ms, is_whole_ms},
};

/// What is asked for: all that a caller can say about a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSpec {
    /// Its slots.
    pub when: When,
    /// By how much a slot is fired later than its time at the most. It is another for each slot, and the same on
    /// every node.
    pub jitter: Duration,
    /// What becomes of slots that were missed.
    pub catch_up: CatchUp,
    /// What a slot does while the job of the last one is not at its end.
    pub overlap: Overlap,
    /// It has no slot before this.
    pub start_at: Option<Timestamp>,
    /// It has no slot at this time or later.
    pub end_at: Option<Timestamp>,
    /// The job that is made for each slot. Its key, its time and its schedule type are those of the slot.
    pub job: NewJob,
}

/// The slots of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// One slot.
    At(Timestamp),
    /// Slots that lie one period apart, for ever: they are counted from the anchor, so they do not drift.
    Every {
        /// How far apart.
        #[serde(rename = "period_ms", with = "duration_ms")]
        period: Duration,
        /// The first slot.
        anchor: Timestamp,
    },
    /// The times of a wall clock.
    Cron {
        /// Five fields (minute, hour, day of the month, month, day of the week), six with seconds first, or one of
        /// `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually`.
        expression: String,
        /// Where the clock hangs: a name of the time zone database, such as `Europe/Berlin`.
        zone: String,
    },
}

/// What becomes of slots that were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are skipped. A slot counts as missed as soon as the next one has come, and at the latest after
    /// [`GRACE`](super::GRACE), so one slot at the most is fired late.
    Skip,
    /// The last of them is fired, and the others are skipped.
    #[default]
    One,
    /// They are fired, oldest first; of more than so many the oldest are skipped.
    All {
        /// How many at the most.
        max: u32,
    },
}

impl CatchUp {
    /// The most slots that are caught up with.
    pub const MAX: u32 = 1_000;

    /// How many of the missed slots are fired at the most.
    pub(super) fn fired_max(self) -> usize {
        match self {
            CatchUp::Skip => 0,
            CatchUp::One => 1,
            CatchUp::All { max } => max as usize,
        }
    }
}

words!(
    /// What a slot does while the last job that the schedule made is not at its end.
    Overlap {
        /// It is fired all the same.
        Allow = "allow",
        /// It is skipped.
        Skip = "skip",
        /// It waits for that job, and later slots wait behind it: none is skipped.
        Queue = "queue",
    }
);

impl ScheduleSpec {
    /// The shortest period.
    pub const PERIOD_MIN: Duration = Duration::from_secs(1);
    /// The longest period: four years, in which everything in a calendar happens at least once.
    pub const PERIOD_MAX: Duration = Duration::from_secs(4 * 366 * 24 * 60 * 60);
    /// The longest jitter.
    pub const JITTER_MAX: Duration = Duration::from_secs(60 * 60);

    /// A schedule with these slots and this job, and everything else as usual: what was missed is made up for once,
    /// and jobs may overlap.
    pub fn new(when: When, job: NewJob) -> Self {
        Self {
            when,
            jitter: Duration::ZERO,
            catch_up: CatchUp::default(),
            overlap: Overlap::Allow,
            start_at: None,
            end_at: None,
            job,
        }
    }

    /// Refuses what nobody can mean, whatever is stored.
    pub(super) fn check(&self, now: Timestamp) -> Result<(), Refusal> {
        self.when.check()?;
        if self.jitter > Self::JITTER_MAX || !is_whole_ms(self.jitter) {
            return Err(Refusal::invalid(
                "jitter_ms",
                "must be a whole number of milliseconds, and at most an hour",
            ));
        }
        if matches!(self.catch_up, CatchUp::All { max } if max == 0 || max > CatchUp::MAX) {
            return Err(Refusal::invalid("catch_up", "must catch up with 1 to 1000 slots"));
        }
        if self.start_at.zip(self.end_at).is_some_and(|(start, end)| start >= end) {
            return Err(Refusal::invalid("end_at", "must lie after start_at"));
        }
        self.check_job(now)
    }

    /// The same for the job. What belongs to one job alone cannot be said of all.
    fn check_job(&self, now: Timestamp) -> Result<(), Refusal> {
        let job = &self.job;
        let odd = [
            ("idempotency_key", job.idempotency != Idempotency::OwnId),
            ("task_id", job.task.is_some()),
            ("scheduled_at", job.scheduled_at.is_some()),
            ("deadline_at", job.deadline_at.is_some()),
            ("parent", job.parent.is_some()),
            ("trace_id", job.trace_id.is_some()),
        ];
        if let Some((field, _)) = odd.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Refusal::invalid(
                field,
                "cannot be given: each job of a schedule has its own",
            ));
        }
        job.check(now)
    }

    /// Has the other the same slots?
    pub(super) fn has_slots_of(&self, other: &ScheduleSpec) -> bool {
        (&self.when, self.start_at, self.end_at) == (&other.when, other.start_at, other.end_at)
    }

    /// The names of what differs, as callers know them.
    pub(super) fn differs_from(&self, other: &ScheduleSpec) -> Vec<&'static str> {
        let fields = [
            ("when", self.when != other.when),
            ("jitter_ms", self.jitter != other.jitter),
            ("catch_up", self.catch_up != other.catch_up),
            ("overlap", self.overlap != other.overlap),
            ("start_at", self.start_at != other.start_at),
            ("end_at", self.end_at != other.end_at),
            ("job", self.job != other.job),
        ];
        fields.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

impl When {
    fn check(&self) -> Result<(), Refusal> {
        match self {
            When::At(_) => Ok(()),
            When::Every { period, .. } => check_period(*period),
            When::Cron { expression, zone: name } => {
                zone(name)?;
                Cron::parse(expression)?.check()
            }
        }
    }
}

fn check_period(period: Duration) -> Result<(), Refusal> {
    let is_whole = is_whole_ms(period);
    if period < ScheduleSpec::PERIOD_MIN || period > ScheduleSpec::PERIOD_MAX || !is_whole {
        return Err(Refusal::invalid(
            "every",
            "must be a whole number of milliseconds, between one second and four years",
        ));
    }
    Ok(())
}
