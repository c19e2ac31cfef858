//! Schedules: jobs that are made when their time comes.
//!
//! A schedule has *slots*: the instants that its [`When`] names. Each slot is *fired* once, which makes one job, or it
//! is *skipped*, and then a note says why. Nothing here has a clock: a timer asks with the time that it has, and names
//! the version that it saw. The job of a slot has an id and a key that are made from schedule and slot, so that
//! whoever fires the same slot again, on whatever node, finds the job that is there.
//!
//! # When the clocks change
//!
//! The times of a `cron` expression are those of the wall clock of its zone.
//!
//! - *Fixed times*, such as `30 2 * * *` or `0,30 1-3 * * 1-5`: **a time that does not exist runs once**, at the first
//!   moment after the gap; **a time that exists twice runs once**, the first time. Times that fall together run once.
//! - *Intervals*: if the field of seconds, minutes or hours has a `*`, as in `*/15 * * * *` or `0 */2 * * *`, the
//!   expression **runs at every real slot**: whenever the wall clock shows a time that fits. What is skipped by the
//!   clock is not made up for, and what the clock shows twice runs twice. So something hourly runs every hour.
//! - `every` knows no wall clock: its slots lie one period apart, whatever clocks show.
//!
//! In Berlin, where 02:00 to 03:00 is missing on 29 March 2026 and shown twice on 25 October 2026:
//!
//! | expression | 29 March | 25 October |
//! |---|---|---|
//! | `30 2 * * *` | once, at 03:00 | once, at 02:30 summer time |
//! | `0,30 2 * * *` | once, at 03:00: the two times fall together | 02:00 and 02:30 summer time |
//! | `*/30 * * * *` | 01:30, 03:00, 03:30 | 02:00, 02:30, and both again an hour later |
//! | `0 3 * * *` | 03:00 | 03:00 |
//!
//! # Late, missed, overlapping
//!
//! A slot that is fired less than [`GRACE`] after its time is late, and nothing else. One that is found later than that
//! was *missed*: every node was away, or the clock jumped. [`CatchUp`] says what becomes of it. With [`CatchUp::Skip`] a
//! slot is missed as soon as the next one has come, so that short intervals bring no burst. [`Overlap`] says what a
//! slot does while the job of the last one is not at its end.

mod cron;
mod decide;
mod look;
mod preview;
mod slots;
mod spec;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::{
    decide::{Change, Decision, Firing, LastJob, decide},
    preview::{PreviewSlot, preview},
    slots::{Slots, jitter_of, next_slot},
    spec::{CatchUp, Overlap, ScheduleSpec, When},
};
use crate::{Actor, By, JobId, ScheduleName, TenantId, Timestamp};

/// By how much a slot may be late and still count as fired in time. More than a process needs to start again.
pub const GRACE: Duration = Duration::from_secs(60);

/// How many slots are counted, at the most, when slots that were due are given up by a change.
const GIVEN_UP_MAX: usize = 10_000;

/// A schedule and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Who it belongs to.
    pub tenant: TenantId,
    /// Its name, which is its own within the tenant.
    pub name: ScheduleName,
    /// What was asked for.
    pub spec: Arc<ScheduleSpec>,
    /// It grows with every change. A timer acts on the version that it saw.
    pub version: u64,
    /// When it was first put.
    pub created_at: Timestamp,
    /// When it last changed, a firing included.
    pub updated_at: Timestamp,
    /// Who paused it, if it is paused.
    pub pause: Option<Pause>,
    /// The next slot; none, if no other comes.
    pub next_at: Option<Timestamp>,
    /// When a timer has to look at it: the next slot and its jitter, or a moment to look again.
    pub fires_at: Option<Timestamp>,
    /// When a timer last found that the next slot has to wait for a job. What was due by then was not missed.
    pub seen_at: Option<Timestamp>,
    /// The last slot that was fired.
    pub last_slot: Option<Timestamp>,
    /// The last job that was made for a slot, or because somebody asked for one now.
    pub last_job: Option<JobId>,
}

/// Who paused a schedule, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Who.
    pub by: Actor,
    /// When.
    pub at: Timestamp,
    /// In their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Something that is to happen to a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleOp {
    /// Whose schedule it is.
    pub tenant: TenantId,
    /// Which one.
    pub name: ScheduleName,
    /// What is to happen.
    pub action: Action,
    /// Who asks.
    pub by: By,
}

/// What is to happen to a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is created, or is from now on what is asked for here. The same again changes nothing, and what has fired
    /// does not fire again.
    Put(Box<ScheduleSpec>),
    /// Its slots wait until it is resumed.
    Pause {
        /// In the words of whoever asks.
        reason: Option<String>,
    },
    /// It goes on. What was missed meanwhile follows its catch-up policy.
    Resume,
    /// It is no more. The jobs that it made stay.
    Delete,
    /// Its time has come: what a timer sends.
    Fire {
        /// The version that the timer saw.
        version: u64,
    },
    /// It makes a job now, whatever its slots, its pause and its overlap policy say.
    Trigger {
        /// The id of the job, made before the first try.
        job_id: JobId,
        /// Chance for the trace id.
        random: u128,
    },
    /// It makes the jobs of past slots that have none: from a time on, and before another.
    Backfill {
        /// The first slot is this one or a later one.
        from: Timestamp,
        /// The last slot lies before it.
        to: Timestamp,
    },
}

impl Action {
    /// How many slots one backfill handles. It says how far it came.
    pub const BACKFILL_MAX: usize = 1_000;
    /// The longest reason of a pause, in bytes.
    pub const REASON_MAX: usize = 1_000;
}
