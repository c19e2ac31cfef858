//! What a look at a schedule finds: which slots are fired now, which are skipped and why, and when to look again.

use std::time::Duration;

use super::{CatchUp, GRACE, Overlap, Schedule, Slots, jitter_of};
use crate::{Refusal, Timestamp};

/// How many slots one look goes through. Where there are more, the next look follows at once.
const SLOTS_MAX: usize = 10_000;

/// How many jobs one look makes.
const JOBS_MAX: usize = 1_000;

/// How long a slot that waits for a job is left alone: a tenth of the time that it has waited, between these.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What a look finds.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Slots that are fired now, in order.
    pub(super) fired: Vec<Timestamp>,
    /// Slots that are skipped, in order: those of one reason that follow each other are together.
    pub(super) skipped: Vec<Skipped>,
    /// The slot that comes next; none, if no other does.
    pub(super) next_at: Option<Timestamp>,
    /// When to look again.
    pub(super) fires_at: Option<Timestamp>,
    /// Set while a slot that is due has to wait.
    pub(super) seen_at: Option<Timestamp>,
}

/// Slots that are skipped for one reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Skipped {
    pub(super) reason: &'static str,
    pub(super) count: u64,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// What becomes of a slot.
enum Verdict {
    Fire,
    Skip(&'static str),
}

/// Looks at a schedule that is not paused. `is_busy` says that its last job is not at its end, and `missed` is the
/// word for why a slot that was missed was.
pub(super) fn look(
    schedule: &Schedule,
    is_busy: bool,
    missed: &'static str,
    now: Timestamp,
) -> Result<Look, Refusal> {
    let slots = Slots::of_spec(&schedule.spec)?;
    let due_at = |slot: Timestamp| due_at(schedule, slot);
    let all = std::iter::successors(schedule.next_at, |slot| slots.after(*slot));
    let due: Vec<Timestamp> = all.take_while(|slot| due_at(*slot) <= now).take(SLOTS_MAX).collect();
    let are_missed: Vec<bool> =
        due.iter().map(|slot| is_missed(schedule, &slots, *slot, now)).collect();
    let verdicts = verdicts(schedule, &due, &are_missed, missed);
    let mut walk = Walk { overlap: schedule.spec.overlap, is_busy, look: Look::default() };
    let handled = verdicts.iter().take_while(|(slot, verdict)| walk.take(*slot, verdict)).count();
    let mut look = walk.look;
    look.next_at = match due.get(handled) {
        Some(slot) => Some(*slot),
        None => match due.last().copied() {
            Some(last) => slots.after(last),
            None => schedule.next_at,
        },
    };
    look.fires_at = look.next_at.map(due_at);
    if let Some(next) = due.get(handled) {
        let waited = now.since(due_at(*next));
        let is_cut_off = handled == verdicts.len() || look.fired.len() == JOBS_MAX;
        let waits = match is_cut_off {
            true => Duration::ZERO,
            // It waits for a job that has only just been made.
            false if !look.fired.is_empty() => WAIT_MIN,
            false => (waited / 10).clamp(WAIT_MIN, WAIT_MAX),
        };
        look.fires_at = Some(now.plus(waits));
        // What was missed has to stay so. If something behind the slot that waits was, all is judged again.
        let was_missed = are_missed[handled..].contains(&true);
        look.seen_at = if was_missed { schedule.seen_at } else { Some(now) };
    }
    Ok(look)
}

/// Is it too late to say that the slot is only late? One that a timer saw in time has waited since. Others may have
/// more jitter and come before it, so all of it counts.
fn is_missed(schedule: &Schedule, slots: &Slots, slot: Timestamp, now: Timestamp) -> bool {
    let latest = slot.plus(schedule.spec.jitter);
    let is_too_late = match schedule.spec.catch_up {
        // Whoever wants none of what was missed does not want a minute of it either: as soon as the next slot has come,
        // this one was missed. So one slot at the most is fired late, however short the interval.
        CatchUp::Skip if latest.plus(GRACE) >= now => {
            slots.after(slot).is_some_and(|next| next.plus(schedule.spec.jitter) <= now)
        }
        CatchUp::Skip | CatchUp::One | CatchUp::All { .. } => latest.plus(GRACE) < now,
    };
    is_too_late && schedule.seen_at.is_none_or(|seen| due_at(schedule, slot) > seen)
}

/// When a slot is to be fired.
fn due_at(schedule: &Schedule, slot: Timestamp) -> Timestamp {
    slot.plus(jitter_of(&schedule.tenant, &schedule.name, slot, schedule.spec.jitter))
}

/// What becomes of each slot that is due, in order, but for what the last job says. There may be fewer than are due:
/// of a list that is cut off, the last ones that are caught up with cannot be known.
fn verdicts(
    schedule: &Schedule,
    due: &[Timestamp],
    are_missed: &[bool],
    missed: &'static str,
) -> Vec<(Timestamp, Verdict)> {
    let count = are_missed.iter().filter(|missed| **missed).count();
    let fired_max = schedule.spec.catch_up.fired_max();
    let is_cut_off = due.len() == SLOTS_MAX && are_missed.last() == Some(&true);
    let judged = if is_cut_off { due.len() - fired_max } else { due.len() };
    let reason = match schedule.spec.catch_up {
        CatchUp::All { .. } => "bound_reached",
        CatchUp::Skip | CatchUp::One => missed,
    };
    let mut skips_left = count.saturating_sub(fired_max);
    let judge = |(slot, is_missed): (&Timestamp, &bool)| {
        if *is_missed && skips_left > 0 {
            skips_left -= 1;
            (*slot, Verdict::Skip(reason))
        } else {
            (*slot, Verdict::Fire)
        }
    };
    due.iter().zip(are_missed).take(judged).map(judge).collect()
}

/// Goes through the slots, and knows whether a job runs.
struct Walk {
    overlap: Overlap,
    is_busy: bool,
    look: Look,
}

impl Walk {
    /// Handles a slot, unless it has to wait.
    fn take(&mut self, slot: Timestamp, verdict: &Verdict) -> bool {
        match (verdict, self.overlap) {
            (Verdict::Skip(reason), _) => self.skip(slot, reason),
            (Verdict::Fire, _) if self.look.fired.len() == JOBS_MAX => return false,
            (Verdict::Fire, Overlap::Skip) if self.is_busy => self.skip(slot, "overlap"),
            (Verdict::Fire, Overlap::Queue) if self.is_busy => return false,
            (Verdict::Fire, _) => {
                self.is_busy = true;
                self.look.fired.push(slot);
            }
        }
        true
    }

    fn skip(&mut self, slot: Timestamp, reason: &'static str) {
        match self.look.skipped.last_mut() {
            Some(group) if group.reason == reason => {
                group.count += 1;
                group.last = slot;
            }
            _ => self.look.skipped.push(Skipped { reason, count: 1, first: slot, last: slot }),
        }
    }
}
