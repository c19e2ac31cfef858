//! Refusals held against the history: whoever was told that a lease is over, or that a job has not come to its end, was
//! told the truth.
//!
//! A refusal writes nothing. So nothing in a store tells of a wrong one, and whoever checks the store alone never finds it:
//! a node that decides by a row from before refuses live leases, and every history is in order. A test notes what callers
//! were told, and asks afterwards which of it the events do not bear out.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use serde::{Deserialize, Serialize};
use windlass_kernel::{Epoch, Event, JobId, Op, Refusal, State};

/// A refusal that somebody was told, and what it can be judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalNote {
    /// `STALE_ATTEMPT`: the lease of this epoch is over.
    Stale {
        /// The job.
        job_id: JobId,
        /// The epoch that was refused.
        epoch: Epoch,
        /// What ended the lease came before this event, or is this event.
        feed_end: u64,
    },
    /// `TASK_ACTIVE`: this job has not come to its end.
    Active {
        /// The job.
        job_id: JobId,
        /// It was not at its end when this event was the newest.
        feed_begin: u64,
    },
}

impl RefusalNote {
    /// What the refusal of an op says about a job, if the history can judge it.
    ///
    /// `feed` is from the newest event before the op was sent to the newest one after its answer. Whoever does not know begins
    /// at 0 and ends at the highest number: what is then judged is less, and never wrong.
    pub fn of(op: &Op, refusal: &Refusal, feed: RangeInclusive<u64>) -> Option<Self> {
        match refusal {
            Refusal::StaleAttempt => {
                let (job_id, epoch, feed_end) = (op.job_id()?, epoch_of(op)?, *feed.end());
                Some(RefusalNote::Stale { job_id, epoch, feed_end })
            }
            Refusal::TaskActive { job_id, .. } => {
                Some(RefusalNote::Active { job_id: *job_id, feed_begin: *feed.start() })
            }
            _ => None,
        }
    }

    fn job_id(&self) -> JobId {
        match self {
            RefusalNote::Stale { job_id, .. } | RefusalNote::Active { job_id, .. } => *job_id,
        }
    }

    /// Does the history of its job say why?
    fn is_founded(&self, history: &[Step]) -> bool {
        match *self {
            // An end of its lease, or a later one: there is no later one before the end.
            RefusalNote::Stale { epoch, feed_end, .. } => {
                let is_over = |it: &Step| it.epoch == epoch && !has_lease(it.to);
                let mut before = history.iter().filter(|it| it.number <= feed_end);
                before.any(|it| is_over(it) || it.epoch > epoch)
            }
            RefusalNote::Active { feed_begin, .. } => {
                !history.iter().any(|it| it.to.is_end() && it.number <= feed_begin)
            }
        }
    }
}

/// Can this op be refused because a job has not come to its end? Then it is worth asking for the newest event beforehand.
pub fn asks_for_an_end(op: &Op) -> bool {
    match op {
        Op::Rerun(_) | Op::Requeue(_) => true,
        Op::Enqueue(op) => op.new.task.is_some(),
        _ => false,
    }
}

/// The epoch under which an op writes.
fn epoch_of(op: &Op) -> Option<Epoch> {
    match op {
        Op::Start(op) => Some(op.epoch),
        Op::Renew(op) => Some(op.epoch),
        Op::Release(op) => Some(op.epoch),
        Op::Settle(op) => Some(op.epoch),
        Op::Advance(op) => Some(op.epoch),
        Op::Checkpoint(op) => Some(op.epoch),
        Op::Wait(op) => Some(op.epoch),
        _ => None,
    }
}

fn has_lease(state: State) -> bool {
    matches!(state, State::Dispatched | State::Running)
}

/// One event of a job's history, as far as refusals are judged by it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its number in the feed.
    pub number: u64,
    /// The job it speaks of.
    pub job_id: JobId,
    /// The last epoch granted.
    pub epoch: Epoch,
    /// The state after.
    pub to: State,
}

impl Step {
    /// What this event of the feed says.
    pub fn of(number: u64, event: &Event) -> Self {
        Self { number, job_id: event.job_id, epoch: event.epoch, to: event.to }
    }
}

/// The refusals for which the history has no reason: live leases that were refused, and jobs that were at their ends when
/// somebody was told that they are not.
pub fn unfounded(
    refused: &[RefusalNote],
    history: impl IntoIterator<Item = Step>,
) -> Vec<RefusalNote> {
    let named: BTreeSet<JobId> = refused.iter().map(RefusalNote::job_id).collect();
    let mut histories: BTreeMap<JobId, Vec<Step>> = BTreeMap::new();
    for step in history.into_iter().filter(|step| named.contains(&step.job_id)) {
        histories.entry(step.job_id).or_default().push(step);
    }
    let history = |it: &RefusalNote| histories.get(&it.job_id()).map_or(&[][..], Vec::as_slice);
    refused.iter().filter(|it| !it.is_founded(history(it))).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::from_u128(7);

    /// Granted, lost and granted again, then at its end.
    const HISTORY: [(u64, u64, State); 7] = [
        (10, 0, State::Queued),
        (20, 1, State::Dispatched),
        (21, 1, State::Running),
        (30, 1, State::Interrupted),
        (40, 2, State::Dispatched),
        (41, 2, State::Running),
        (50, 2, State::Succeeded),
    ];

    fn judge(refused: RefusalNote) -> bool {
        let step = |(number, epoch, to)| Step { number, job_id: JOB, epoch: Epoch::new(epoch), to };
        let other = Step { number: 1, job_id: JobId::from_u128(8), ..step(HISTORY[6]) };
        unfounded(&[refused], HISTORY.into_iter().map(step).chain([other])).is_empty()
    }

    #[test]
    fn a_lease_that_was_refused_had_ended() {
        let stale = |epoch, feed_end| {
            judge(RefusalNote::Stale { job_id: JOB, epoch: Epoch::new(epoch), feed_end })
        };
        assert!(stale(1, 30) && stale(1, 45), "it had lapsed");
        assert!(!stale(1, 29), "it was alive, and lapsed later");
        assert!(!stale(2, 49), "it was alive");
        assert!(stale(2, 50), "it was settled");
        assert!(!stale(3, 100), "it was never granted, so nothing ended");
    }

    #[test]
    fn a_job_that_is_active_had_not_ended_before_somebody_asked() {
        let active = |feed_begin| judge(RefusalNote::Active { job_id: JOB, feed_begin });
        assert!(active(0) && active(49));
        assert!(!active(50) && !active(99), "it was at its end when it was asked for");
    }
}
