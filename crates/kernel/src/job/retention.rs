//! Retention: when a job that is at its end may be forgotten.
//!
//! A store asks about one job at a time and deletes nothing that is not let go here. A job that is not at
//! its end is never forgotten, nor one that somebody still has to decide about, nor one that a living job
//! leans on: its parent, its child, or a later run of its task.

use std::time::Duration;

use crate::{DeadLetter, Job, Timestamp};

/// How long finished jobs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// For how long after its end a job is kept.
    pub finished_for: Duration,
    /// How many finished jobs of one tenant are kept at the most; the oldest go first.
    pub keep_at_most: Option<u64>,
    /// For how long after the end of its job a key that the caller gave is known.
    pub key_ttl: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            finished_for: Self::FINISHED_FOR_DEFAULT,
            keep_at_most: None,
            key_ttl: Self::KEY_TTL_DEFAULT,
        }
    }
}

/// Living things that lean on a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ties<'a> {
    /// The job's own dead letter.
    pub letter: Option<&'a DeadLetter>,
    /// The job that may still wait for it.
    pub parent: Option<&'a Job>,
    /// Has it a child that is not at its end?
    pub has_live_child: bool,
    /// Is a run of its task not at its end? Whoever took over from it, or runs it again, is such a run.
    pub task_is_active: bool,
}

/// Why a job stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// It is not at its end.
    NotEnded,
    /// It ended too short a time ago.
    TooYoung,
    /// Nobody has decided about its dead letter.
    LetterOpen,
    /// Its parent is not at its end, and may still wait for it.
    ParentLives,
    /// A child of it is not at its end.
    ChildLives,
    /// Its task runs.
    TaskActive,
}

/// Decides whether `job` may be forgotten. `is_over` says that the tenant has more finished jobs than are
/// kept, without this one. The answer is how long it had to be at its end, or why it stays.
pub fn may_go(
    job: &Job,
    ties: &Ties<'_>,
    is_over: bool,
    retention: &Retention,
    now: Timestamp,
) -> Result<Duration, Stays> {
    let Some(finished_at) = job.finished_at.filter(|_| job.state.is_end()) else {
        return Err(Stays::NotEnded);
    };
    let least = retention.least(has_given_key(job), is_over);
    // What people decided about a letter is remembered for as long as what a job did.
    let closed_at = ties.letter.and_then(|letter| letter.closed_at);
    if finished_at.max(closed_at.unwrap_or(finished_at)).plus(least) > now {
        return Err(Stays::TooYoung);
    }
    // A letter that should be there and is not is for the checker to find: its job stays for that.
    if job.dlq_id.is_some() && !ties.letter.is_some_and(|letter| letter.state.is_closed()) {
        return Err(Stays::LetterOpen);
    }
    if ties.parent.is_some_and(|parent| !parent.state.is_end()) {
        return Err(Stays::ParentLives);
    }
    if ties.has_live_child {
        return Err(Stays::ChildLives);
    }
    if ties.task_is_active {
        return Err(Stays::TaskActive);
    }
    Ok(least)
}

impl Retention {
    /// For how long finished jobs are kept, unless something else is said.
    pub const FINISHED_FOR_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
    /// For how long a key is known, unless something else is said.
    pub const KEY_TTL_DEFAULT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    /// Every job is kept this long, whatever the rest says: a caller that lost an answer asks again, and
    /// what it asks about has to be there.
    pub const RETRY_WINDOW: Duration = Duration::from_secs(10 * 60);

    /// The first thing to ask, from a time alone: what ended later than this may not go.
    pub fn newest_end(&self, is_over: bool, now: Timestamp) -> Timestamp {
        now.minus(self.least(false, is_over))
    }

    /// What the inbox told later than this stays: a result that made no job is kept for as long as a job
    /// with a key would be, because it answers for one.
    pub fn newest_result(&self, now: Timestamp) -> Timestamp {
        now.minus(self.least(true, false))
    }

    /// How long a job has to be at its end.
    fn least(&self, has_given_key: bool, is_over: bool) -> Duration {
        let by_age = if is_over { Duration::ZERO } else { self.finished_for };
        let by_key = if has_given_key { self.key_ttl } else { Self::RETRY_WINDOW };
        by_age.max(by_key).max(Self::RETRY_WINDOW)
    }
}

/// Does the caller know the job by a key of its own?
fn has_given_key(job: &Job) -> bool {
    !job.spec.idempotency_scope.is_own_id()
}
