//! What a commit means to those who wait: workers for jobs, timers for the next thing to look after.
//!
//! Nobody is told before the commit is durable. No alarm is missed: whatever is committed before a look begins
//! is seen by the look, and whatever is committed while it lasts is compared with what it found.

use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_kernel::{Job, Timestamp};

use crate::{
    Bell, Listener,
    commit::{Changes, after},
    job_row::timer_at,
    read::Due,
};

/// What a commit brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct News {
    /// Can a job be claimed that it made or changed?
    pub(crate) is_ready: bool,
    /// The first alarm, retry or end of a lease of the jobs that it made or changed, or slot of a schedule;
    /// [`NEVER`] if there is none.
    soonest: i64,
    /// Does something follow for another job?
    follows: bool,
}

/// Later than everything, in microseconds.
const NEVER: i64 = i64::MAX;

impl News {
    /// What these changes bring, but for their jobs.
    pub(crate) fn of(changes: &Changes) -> Self {
        let follows = !changes.follow_ups.is_empty();
        let schedules = after(&changes.schedules);
        let fires_at = schedules.filter_map(|schedule| schedule.fires_at).min();
        let soonest = fires_at.map_or(NEVER, Timestamp::as_micros);
        Self { is_ready: false, soonest, follows }
    }

    /// Adds a job that the commit made or changed. Its session may keep its lease for longer.
    pub(crate) fn add(&mut self, job: &Job, session_until: Timestamp, now: Timestamp) {
        self.is_ready |= job.claim_at().is_some_and(|at| at <= now);
        let lease = job.lease.as_ref().map(|lease| lease.until.max(session_until));
        for at in [timer_at(job), job.next_retry_at, lease].into_iter().flatten() {
            self.soonest = self.soonest.min(at.as_micros());
        }
    }
}

/// Tells those who look after alarms that they have to look earlier than they know.
pub(crate) struct Sooner {
    state: Mutex<State>,
    told: Bell,
}

/// Times are in microseconds.
struct State {
    /// When those who wait look again: what the last look found, or what they were told since.
    known: i64,
    /// The soonest that was committed since the looks began that still last.
    meanwhile: i64,
    /// How many looks last.
    looks: usize,
}

impl Default for Sooner {
    /// Nobody has looked, so everything is sooner.
    fn default() -> Self {
        let state = State { known: NEVER, meanwhile: NEVER, looks: 0 };
        Self { state: Mutex::new(state), told: Bell::default() }
    }
}

impl Sooner {
    pub(crate) fn listen(&self) -> Listener {
        self.told.listen()
    }

    /// A commit is durable that brings this.
    pub(crate) fn tell(&self, news: &News) {
        if news.soonest == NEVER && !news.follows {
            return;
        }
        let mut state = self.state();
        let is_sooner = news.soonest < state.known;
        state.known = state.known.min(news.soonest);
        state.meanwhile = state.meanwhile.min(news.soonest);
        drop(state);
        if is_sooner || news.follows {
            self.told.ring();
        }
    }

    /// Something was committed, and nobody knows what.
    #[cfg(feature = "postgres")]
    pub(crate) fn tell_anyway(&self) {
        self.told.ring();
    }

    /// A look begins. To be called before anything is read.
    pub(crate) fn look(&self) -> Look<'_> {
        let mut state = self.state();
        if state.looks == 0 {
            state.meanwhile = NEVER;
        }
        state.looks += 1;
        Look { sooner: self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look that lasts. If it is given up, what was known before still is.
pub(crate) struct Look<'a> {
    sooner: &'a Sooner,
}

impl Look<'_> {
    /// What it found is from now on known to those who wait, unless something sooner was committed meanwhile: then
    /// they are told, for the look may not have seen it.
    pub(crate) fn found(self, due: &Due) {
        let next = [due.next_at, due.next_retry_at].into_iter().flatten().min();
        let next = next.map_or(NEVER, Timestamp::as_micros);
        let mut state = self.sooner.state();
        let is_sooner = state.meanwhile < next;
        state.known = state.meanwhile.min(next);
        drop(state);
        if is_sooner {
            self.sooner.told.ring();
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.sooner.state().looks -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(soonest: i64) -> News {
        News { is_ready: false, soonest, follows: false }
    }

    fn due(next_at: Option<i64>, next_retry_at: Option<i64>) -> Due {
        let [next_at, next_retry_at] =
            [next_at, next_retry_at].map(|at| at.map(Timestamp::from_micros));
        let (jobs, schedules) = (Vec::new(), Vec::new());
        Due { jobs, schedules, now: Timestamp::MIN, next_at, next_retry_at }
    }

    /// How often it was told.
    fn told(sooner: &Sooner) -> u64 {
        sooner.told.rings()
    }

    #[test]
    fn what_is_no_sooner_than_what_is_known_is_not_told() {
        let sooner = Sooner::default();
        sooner.look().found(&due(Some(50), Some(40)));
        sooner.tell(&news(NEVER));
        sooner.tell(&news(40));
        assert_eq!(told(&sooner), 0);
        sooner.tell(&news(39));
        sooner.tell(&news(39));
        assert_eq!(told(&sooner), 1);
        sooner.tell(&News { follows: true, ..news(NEVER) });
        assert_eq!(told(&sooner), 2);
        sooner.look().found(&due(Some(50), None));
        sooner.tell(&news(49));
        assert_eq!(told(&sooner), 3);
    }

    #[test]
    fn what_is_committed_during_a_look_is_told_unless_the_look_has_seen_it() {
        let sooner = Sooner::default();
        sooner.look().found(&due(Some(10), None));
        // When this is committed, those who wait still look at 10; the look that lasts has not seen it.
        let look = sooner.look();
        sooner.tell(&news(30));
        assert_eq!(told(&sooner), 0);
        look.found(&due(None, None));
        assert_eq!(told(&sooner), 1);
        sooner.tell(&news(30));
        assert_eq!(told(&sooner), 1, "it is known by now");
        let look = sooner.look();
        sooner.tell(&news(20));
        look.found(&due(Some(20), None));
        assert_eq!(told(&sooner), 2, "told by the commit, and seen by the look");
    }

    #[test]
    fn looks_that_overlap_keep_what_each_may_have_missed() {
        let sooner = Sooner::default();
        let first = sooner.look();
        sooner.tell(&news(30));
        let second = sooner.look();
        second.found(&due(Some(30), None));
        // It began before the commit, and ends last.
        first.found(&due(Some(90), None));
        sooner.tell(&news(40));
        let told_before = told(&sooner);
        sooner.tell(&news(30));
        assert_eq!(told(&sooner), told_before, "30 is what is known");
    }

    #[test]
    fn a_look_that_is_given_up_changes_nothing() {
        let sooner = Sooner::default();
        sooner.look().found(&due(Some(50), None));
        drop(sooner.look());
        sooner.tell(&news(60));
        assert_eq!(told(&sooner), 0);
        sooner.look().found(&due(Some(70), None));
        assert_eq!(told(&sooner), 0, "what came before a look is seen by it");
    }
}
