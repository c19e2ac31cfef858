//! What a look at the alarms found, whichever database was looked at.

use windlass_kernel::Timestamp;

use crate::read::{Due, DueJob, DueSchedule};

/// A job whose alarm rings, and since when.
pub(crate) type Ring = (Timestamp, DueJob);

/// What a look found.
pub(crate) struct DueRows {
    /// What time it is.
    pub(crate) now: Timestamp,
    /// Alarms of jobs that ring, longest first: as many as may be given back, if there are so many.
    pub(crate) timers: Vec<Ring>,
    /// The same of leases that have run out, in any order.
    pub(crate) leases: Vec<Ring>,
    /// Schedules whose time has come, longest first.
    pub(crate) schedules: Vec<DueSchedule>,
    /// When the next of each kind comes after now.
    pub(crate) next_timer_at: Option<Timestamp>,
    pub(crate) next_lapse_at: Option<Timestamp>,
    pub(crate) next_retry_at: Option<Timestamp>,
    pub(crate) next_schedule_at: Option<Timestamp>,
}

impl DueRows {
    /// Shares out what may be given back: one of each kind in turn, beginning with the one that rings longest, so
    /// that no flood of the one kind keeps the other waiting.
    pub(crate) fn share(self, max: usize) -> Due {
        let Self { now, timers, mut leases, .. } = self;
        leases.sort_by_key(|(since, _)| *since);
        let since = |rings: &[Ring]| rings.first().map(|(since, _)| *since);
        let leases_first = since(&timers).is_none_or(|at| since(&leases).is_some_and(|it| it < at));
        let (first, second) = if leases_first { (leases, timers) } else { (timers, leases) };
        let (mut first, mut second) = (first.into_iter(), second.into_iter());
        let mut jobs = Vec::new();
        while jobs.len() < max {
            let pair = [first.next(), second.next()];
            let before = jobs.len();
            jobs.extend(pair.into_iter().flatten().map(|(_, job)| job));
            if jobs.len() == before {
                break;
            }
        }
        jobs.truncate(max);
        let next = [self.next_timer_at, self.next_lapse_at, self.next_schedule_at];
        let next = next.into_iter().flatten().min();
        let may_be_more = jobs.len() == max || self.schedules.len() >= max;
        let next_at = if may_be_more { Some(now) } else { next };
        let (schedules, next_retry_at) = (self.schedules, self.next_retry_at);
        Due { jobs, schedules, now, next_at, next_retry_at }
    }
}
