//! The appetite of a worker: when it claims how many jobs, and what it waits for otherwise.
//!
//! A plain value: no IO, no clock, no lock. What happens comes in as an [`Event`], what the worker
//! has in hand as a [`Load`], the time as an argument. The loop in `claim.rs` carries out what it says.
//!
//! Always true here: after a shutdown nothing is claimed and nothing is started. No claim is sent
//! before the back-off of the last one is over. Each wait has an end.

use std::time::Duration;

use tokio::time::Instant;

use super::executions::{Load, Slots};

/// When a worker claims, and how many jobs.
#[derive(Clone, Debug)]
pub(super) struct Appetite {
    slots: Slots,
    /// How often to look for jobs without a bell.
    poll: Duration,
    hunger: Hunger,
    /// Is a little more room worth waiting for? Once before each claim.
    is_patient: bool,
    /// The back-off after the next failure.
    back_off: Duration,
    back_off_until: Option<Instant>,
    is_over: bool,
}

/// What happened to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The store or a timer says that jobs are ready.
    Bell,
    /// An execution has returned its slot, or has ended.
    Change {
        /// Is nothing in hand any more?
        is_idle: bool,
    },
    /// Time to look for jobs without a bell.
    Poll,
    /// Time to decide again: a back-off or a short wait for room is over, or a job is overdue.
    Time,
    /// A claim was answered.
    Answer(Answer),
    /// A claim failed, and a later one may succeed.
    Failure {
        /// When.
        at: Instant,
    },
    /// The worker shuts down.
    Shutdown,
}

/// What the answer to a claim says about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// How many jobs it asked for.
    pub(super) max: usize,
    /// How many it got.
    pub(super) granted: usize,
    /// Has one of them to be alone on its worker?
    pub(super) has_alone: bool,
    /// Did it leave out tenants whose slots are all taken?
    pub(super) has_exceptions: bool,
    /// Is it an earlier answer, which was lost? Then it says nothing about what is ready now.
    pub(super) repeated: bool,
    /// When a rule lets the next job go, if time alone does that.
    pub(super) again_at: Option<Instant>,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Starts jobs of the local queue in the free slots.
    Start,
    /// Gives back the jobs that have waited too long in the local queue.
    GiveBack,
    /// Claims jobs.
    Claim {
        /// How many at the most.
        max: usize,
        /// For free slots, and so started by the claim; or for the local queue?
        start: bool,
    },
    /// Waits for an event.
    Wait {
        /// How long at the most.
        until: Instant,
        /// The event, if there is no other until then.
        or: Event,
    },
    /// Claims nothing more.
    End,
}

/// May there be jobs that the last claim did not see?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hunger {
    Now,
    /// Not before a bell or a poll, or one of these.
    Later {
        /// When a slot is free: a tenant that has all its slots may have more jobs.
        on_change: bool,
        /// When nothing is in hand. A job that has to be alone waits for an idle worker, or lets
        /// others wait until it has ended, and no bell rings for that.
        on_idle: bool,
        /// When a rule lets the next job go.
        at: Option<Instant>,
    },
}

/// What there is room for.
enum Room {
    /// So many jobs; started at once, or for the local queue.
    Jobs {
        max: usize,
        start: bool,
    },
    /// For more jobs in a moment.
    Soon,
    Full,
}

/// The most jobs of one claim.
const CLAIM_MAX: usize = 1_000;
/// The back-off after a claim that failed, at first and at the most.
const BACK_OFF: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// How long to wait for a little more room.
const ROOM_SOON: Duration = Duration::from_millis(2);

impl Appetite {
    /// The appetite of a worker that has not asked for anything yet.
    pub(super) fn new(slots: Slots, poll: Duration) -> Self {
        Self {
            slots,
            poll,
            hunger: Hunger::Now,
            is_patient: true,
            back_off: BACK_OFF,
            back_off_until: None,
            is_over: false,
        }
    }

    /// Something happened.
    pub(super) fn on(&mut self, event: Event) {
        match event {
            Event::Bell => self.hunger = Hunger::Now,
            Event::Change { is_idle } => {
                if let Hunger::Later { on_change, on_idle, .. } = self.hunger
                    && (on_change || (on_idle && is_idle))
                {
                    self.hunger = Hunger::Now;
                }
            }
            Event::Poll => (self.hunger, self.is_patient) = (Hunger::Now, false),
            Event::Time => self.is_patient = false,
            Event::Answer(answer) => {
                self.hunger = answer.hunger();
                self.is_patient = true;
                (self.back_off, self.back_off_until) = (BACK_OFF, None);
            }
            Event::Failure { at } => {
                self.is_patient = true;
                self.back_off_until = Some(at + self.back_off);
                self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
            }
            Event::Shutdown => self.is_over = true,
        }
    }

    /// What to do next.
    pub(super) fn next(&self, load: &Load, now: Instant) -> Next {
        if self.is_over {
            return Next::End;
        }
        if load.queued > 0 && load.running < self.slots.concurrency {
            return Next::Start;
        }
        if load.overdue_at.is_some_and(|at| at <= now) {
            return Next::GiveBack;
        }
        let next = match self.hunger {
            Hunger::Now => self.claim(load, now),
            Hunger::Later { at, .. } => self.wait_for_poll(at, now),
        };
        match (next, load.overdue_at) {
            (Next::Wait { until, .. }, Some(at)) if at < until => {
                Next::Wait { until: at, or: Event::Time }
            }
            _ => next,
        }
    }

    /// Has this worker a use for a slot that becomes free? If not, executions that end need not wake it.
    pub(super) fn needs_room(&self) -> bool {
        match self.hunger {
            Hunger::Now => true,
            Hunger::Later { on_change, on_idle, .. } => on_change || on_idle,
        }
    }

    fn claim(&self, load: &Load, now: Instant) -> Next {
        if let Some(until) = self.back_off_until.filter(|until| *until > now) {
            return Next::Wait { until, or: Event::Time };
        }
        match self.room(load) {
            Room::Jobs { max, start } => Next::Claim { max: max.min(CLAIM_MAX), start },
            Room::Soon => Next::Wait { until: now + ROOM_SOON, or: Event::Time },
            Room::Full => self.wait_for_poll(None, now),
        }
    }

    fn wait_for_poll(&self, at: Option<Instant>, now: Instant) -> Next {
        let poll_at = now + self.poll;
        Next::Wait { until: at.map_or(poll_at, |at| at.min(poll_at)), or: Event::Poll }
    }

    fn room(&self, load: &Load) -> Room {
        let Slots { concurrency, ahead_max, reports_max, .. } = self.slots;
        if load.reporting >= reports_max {
            return Room::Full;
        }
        // The local queue is empty if a slot is free: its jobs are started before any claim.
        let free = concurrency.saturating_sub(load.running);
        if free > 0 {
            // Where many end at about the same time, few at a time would be many claims.
            let many = (load.pace / 20).clamp(1, concurrency.div_ceil(2));
            let is_enough = free >= many || !self.is_patient;
            return if is_enough { Room::Jobs { max: free, start: true } } else { Room::Soon };
        }
        let ahead = load.pace.min(ahead_max);
        let max = ahead.saturating_sub(load.queued);
        // Half of it at a time: a claim for each job that starts would be many claims.
        if max > 0 && max >= ahead / 2 { Room::Jobs { max, start: false } } else { Room::Full }
    }
}

impl Answer {
    fn hunger(&self) -> Hunger {
        if self.repeated || self.granted >= self.max {
            return Hunger::Now;
        }
        let on_idle = self.granted == 0 || self.has_alone;
        Hunger::Later { on_change: self.has_exceptions, on_idle, at: self.again_at }
    }
}

#[cfg(test)]
mod tests;
