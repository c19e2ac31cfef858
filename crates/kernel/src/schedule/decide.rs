//! Decides what an op does to a schedule: the next row, the jobs that are made, and what is noted of it.
//!
//! The jobs are ordinary enqueues. Whoever carries them out tells [`Firing::note`] what became of each.

use std::sync::Arc;

use super::{
    Action, Pause, Schedule, ScheduleOp, ScheduleSpec, Slots, When, jitter_of,
    look::{Look, look},
    slots::job_id,
};
use crate::{
    About, Actor, Answer, By, IdempotencyKey, JobId, Note, Refusal, Timestamp,
    job::ScheduleType,
    ops::{Enqueue, Idempotency, NewJob},
    own_names::check_not_own,
    plain::check_plain,
};

/// What is known of the last job that a schedule made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastJob {
    /// There is none, it is at its end, or it has been forgotten since.
    Ended,
    /// It is not at its end.
    Active,
}

/// What an op does.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What becomes of the row.
    pub change: Change,
    /// Jobs that are to be made, in order.
    pub firings: Vec<Firing>,
    /// What is noted, but for the firings.
    pub notes: Vec<Note>,
    /// For a backfill that did not come to its end: the slot that it goes on from.
    pub goes_on_from: Option<Timestamp>,
}

/// What becomes of the row of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is as it was.
    None,
    /// It is this from now on.
    Put(Box<Schedule>),
    /// It goes.
    Delete,
}

/// A job that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The slot; none for a job that somebody asked for now.
    pub slot: Option<Timestamp>,
    /// The op that makes it.
    pub enqueue: Enqueue,
    note: Note,
}

impl Firing {
    /// What is noted once the job is made, was there before, or is refused. The job of a slot can be there because
    /// somebody filled the slot before its time came, or because a schedule of this name was deleted and made anew.
    pub fn note(self, made: &Result<Answer, Refusal>) -> Note {
        let note = Note { job_id: Some(self.enqueue.job_id), ..self.note };
        match made {
            Ok(Answer { recorded: false, .. }) => note,
            Ok(_) | Err(Refusal::JobExists { .. }) => {
                Note { what: "skipped", ..note.with("reason", "fired_before") }
            }
            Err(refusal) => {
                let note = note.with("reason", "refused").with("code", refusal.code());
                Note { what: "skipped", job_id: None, ..note.with("why", refusal.to_string()) }
            }
        }
    }
}

/// Decides what an op does to the schedule of its name, if there is one.
pub fn decide(
    current: Option<&Schedule>,
    last_job: LastJob,
    op: &ScheduleOp,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let known = || current.ok_or(Refusal::NotFound { what: "schedule" });
    match &op.action {
        Action::Put(spec) => match current {
            None => {
                check_not_own("name", op.name.as_str())?;
                check_plain("name", op.name.as_str())?;
                create(op, spec, now)
            }
            Some(schedule) => replace(schedule, op, spec, now),
        },
        Action::Pause { reason } => pause(known()?, op, reason.as_deref(), now),
        Action::Resume => resume(known()?, last_job, op, now),
        Action::Delete => {
            let note = Draft::of(known()?, op, now).note("deleted");
            let (firings, notes) = (Vec::new(), vec![note]);
            Ok(Decision { change: Change::Delete, firings, notes, goes_on_from: None })
        }
        Action::Fire { version } => fire(known()?, last_job, op, *version, now),
        Action::Trigger { job_id, random } => trigger(known()?, op, *job_id, *random, now),
        Action::Backfill { from, to } => backfill(known()?, op, *from, *to, now),
    }
}

fn create(op: &ScheduleOp, spec: &ScheduleSpec, now: Timestamp) -> Result<Decision, Refusal> {
    let next_at = first_slot(spec, None, now)?;
    let schedule = Schedule {
        tenant: op.tenant.clone(),
        name: op.name.clone(),
        spec: Arc::new(spec.clone()),
        version: 0,
        created_at: now,
        updated_at: now,
        pause: None,
        next_at: Some(next_at),
        fires_at: None,
        seen_at: None,
        last_slot: None,
        last_job: None,
    };
    let mut draft = Draft::of(&schedule, op, now);
    draft.wait_for_next();
    let note = draft.note("created").with("next_at", next_at.to_string());
    draft.notes.push(note);
    Ok(draft.finish())
}

/// The slot that a schedule with these slots begins with. What has fired does not fire again.
fn first_slot(
    spec: &ScheduleSpec,
    last_slot: Option<Timestamp>,
    now: Timestamp,
) -> Result<Timestamp, Refusal> {
    spec.check(now)?;
    let slots = Slots::of_spec(spec)?;
    let from = match spec.when {
        // One that comes a little late is meant all the same.
        When::At(_) => now.minus(super::GRACE),
        When::Every { .. } | When::Cron { .. } => now,
    };
    let first = match last_slot {
        Some(last) if last >= from => slots.after(last),
        _ => slots.from(from),
    };
    first.ok_or_else(|| match spec.when {
        When::At(_) => {
            Refusal::invalid("at", "lies in the past, or outside of start_at and end_at")
        }
        When::Every { .. } | When::Cron { .. } => {
            Refusal::invalid("end_at", "leaves no slot: the schedule would never fire")
        }
    })
}

fn replace(
    schedule: &Schedule,
    op: &ScheduleOp,
    spec: &ScheduleSpec,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let differs = spec.differs_from(&schedule.spec);
    if differs.is_empty() {
        return Ok(Draft::of(schedule, op, now).unchanged());
    }
    let mut draft = Draft::of(schedule, op, now);
    if spec.has_slots_of(&schedule.spec) {
        spec.check(now)?;
    } else {
        let next_at = first_slot(spec, schedule.last_slot, now)?;
        // What was due by the old slots, and has not been fired, is given up.
        if schedule.next_at.is_some_and(|next| next < next_at && next <= now) {
            draft.give_up("changed")?;
        }
        draft.schedule.next_at = Some(next_at);
        draft.schedule.seen_at = None;
    }
    draft.schedule.spec = Arc::new(spec.clone());
    if draft.schedule.pause.is_none() {
        draft.wait_for_next();
    }
    let note = draft.note("changed").with("fields", differs);
    draft.notes.push(note);
    Ok(draft.finish())
}

fn pause(
    schedule: &Schedule,
    op: &ScheduleOp,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if reason.is_some_and(|reason| reason.len() > Action::REASON_MAX) {
        return Err(Refusal::invalid("reason", "must be at most 1000 bytes long"));
    }
    let mut draft = Draft::of(schedule, op, now);
    if schedule.pause.is_some() {
        return Ok(draft.unchanged());
    }
    let reason = reason.map(str::to_owned);
    let note = draft.note("paused").with("reason", reason.clone());
    draft.notes.push(note);
    draft.schedule.pause = Some(Pause { by: op.by.actor.clone(), at: now, reason });
    draft.schedule.fires_at = None;
    draft.schedule.seen_at = None;
    Ok(draft.finish())
}

fn resume(
    schedule: &Schedule,
    last_job: LastJob,
    op: &ScheduleOp,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let mut draft = Draft::of(schedule, op, now);
    if schedule.pause.is_none() {
        return Ok(draft.unchanged());
    }
    let note = draft.note("resumed");
    draft.notes.push(note);
    draft.schedule.pause = None;
    draft.look(last_job, "paused")?;
    Ok(draft.finish())
}

fn fire(
    schedule: &Schedule,
    last_job: LastJob,
    op: &ScheduleOp,
    version: u64,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if schedule.version != version {
        return Err(Refusal::Outdated);
    }
    match schedule.fires_at {
        None => return Err(Refusal::Outdated),
        Some(at) if at > now => return Err(Refusal::NotDue { at }),
        Some(_) => {}
    }
    let mut draft = Draft::of(schedule, op, now);
    draft.look(last_job, "missed")?;
    Ok(draft.finish())
}

fn trigger(
    schedule: &Schedule,
    op: &ScheduleOp,
    job_id: JobId,
    random: u128,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let mut draft = Draft::of(schedule, op, now);
    let enqueue = Enqueue {
        job_id,
        tenant: schedule.tenant.clone(),
        new: Box::new(draft.job()),
        random,
        by: op.by.clone(),
    };
    let note = draft.note("fired").with("trigger", true);
    draft.firings.push(Firing { slot: None, enqueue, note });
    draft.schedule.last_job = Some(job_id);
    Ok(draft.finish())
}

fn backfill(
    schedule: &Schedule,
    op: &ScheduleOp,
    from: Timestamp,
    to: Timestamp,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if from >= to {
        return Err(Refusal::invalid("to", "must lie after from"));
    }
    if to > now {
        return Err(Refusal::invalid(
            "to",
            "must not lie in the future: slots to come fire by themselves",
        ));
    }
    let mut draft = Draft::of(schedule, op, now);
    let slots = Slots::of_spec(&schedule.spec)?;
    let all = std::iter::successors(slots.from(from), |slot| slots.after(*slot));
    let mut slots = all.take_while(|slot| *slot < to);
    for slot in slots.by_ref().take(Action::BACKFILL_MAX) {
        let note = draft.note("fired").with("backfill", true);
        draft.fire(slot, note);
    }
    let goes_on_from = slots.next();
    let note = draft.note("backfilled").with("slots", draft.firings.len());
    let reached = goes_on_from.unwrap_or(to).to_string();
    draft.notes.push(note.with("from", from.to_string()).with("to", reached));
    // The row stays as it is: what is filled in says nothing about the slots to come.
    Ok(Decision { goes_on_from, ..draft.unchanged() })
}

/// What is being decided about a schedule.
struct Draft<'a> {
    schedule: Schedule,
    op: &'a ScheduleOp,
    now: Timestamp,
    firings: Vec<Firing>,
    notes: Vec<Note>,
}

impl<'a> Draft<'a> {
    fn of(schedule: &Schedule, op: &'a ScheduleOp, now: Timestamp) -> Self {
        let (firings, notes) = (Vec::new(), Vec::new());
        Self { schedule: schedule.clone(), op, now, firings, notes }
    }

    fn note(&self, what: &'static str) -> Note {
        let about = About::Schedule(self.schedule.name.clone());
        Note::new(self.schedule.tenant.clone(), about, what, self.op.by.clone())
    }

    /// The job that the schedule makes.
    fn job(&self) -> NewJob {
        let spec = &self.schedule.spec;
        let schedule_type = match spec.when {
            When::At(_) => ScheduleType::At,
            When::Every { .. } => ScheduleType::Every,
            When::Cron { .. } => ScheduleType::Cron,
        };
        NewJob { schedule_type, ..spec.job.clone() }
    }

    /// Makes the job of a slot.
    fn fire(&mut self, slot: Timestamp, note: Note) {
        let Schedule { tenant, name, .. } = &self.schedule;
        let (job_id, random) = job_id(tenant, name, slot);
        let key = IdempotencyKey::new(format!("{name}@{slot}"));
        let key = key.expect("a name is short enough to be part of a key");
        let new = NewJob {
            scheduled_at: Some(slot),
            idempotency: Idempotency::Slot { key },
            ..self.job()
        };
        let by = By { actor: Actor::Scheduler, trace_id: self.op.by.trace_id.clone() };
        let tenant = tenant.clone();
        let enqueue = Enqueue { job_id, tenant, new: Box::new(new), random, by };
        let note = note.with("slot", slot.to_string());
        self.firings.push(Firing { slot: Some(slot), enqueue, note });
    }

    /// Looks at what is due, fires and skips, and says when to look again.
    fn look(&mut self, last_job: LastJob, missed: &'static str) -> Result<(), Refusal> {
        let is_busy = last_job == LastJob::Active;
        let Look { fired, skipped, next_at, fires_at, seen_at } =
            look(&self.schedule, is_busy, missed, self.now)?;
        for group in skipped {
            self.skip(group.reason, group.count, group.first, group.last);
        }
        for slot in fired {
            let note = self.note("fired");
            self.fire(slot, note);
            self.schedule.last_slot = Some(slot);
        }
        let made = self.firings.last().map(|firing| firing.enqueue.job_id);
        self.schedule.last_job = made.or(self.schedule.last_job);
        if next_at.is_none() && self.schedule.next_at.is_some() {
            let note = self.note("ended");
            self.notes.push(note);
        }
        (self.schedule.next_at, self.schedule.fires_at) = (next_at, fires_at);
        self.schedule.seen_at = seen_at;
        Ok(())
    }

    /// Skips what is due, whatever the policies say.
    fn give_up(&mut self, reason: &'static str) -> Result<(), Refusal> {
        let slots = Slots::of_spec(&self.schedule.spec)?;
        let all = std::iter::successors(self.schedule.next_at, |slot| slots.after(*slot));
        let mut due = all.take_while(|slot| *slot <= self.now);
        let Some(first) = due.next() else { return Ok(()) };
        // Counted as far as anybody cares.
        let (count, last) =
            due.take(super::GIVEN_UP_MAX).fold((1, first), |(count, _), slot| (count + 1, slot));
        self.skip(reason, count, first, last);
        Ok(())
    }

    fn skip(&mut self, reason: &'static str, count: u64, first: Timestamp, last: Timestamp) {
        let note = self.note("skipped").with("reason", reason).with("count", count);
        let note = note.with("first", first.to_string()).with("last", last.to_string());
        self.notes.push(note);
    }

    /// A timer has to look when the next slot is due.
    fn wait_for_next(&mut self) {
        let Schedule { tenant, name, spec, .. } = &self.schedule;
        let due = |slot: Timestamp| slot.plus(jitter_of(tenant, name, slot, spec.jitter));
        self.schedule.fires_at = self.schedule.next_at.map(due);
    }

    fn finish(mut self) -> Decision {
        self.schedule.version += 1;
        self.schedule.updated_at = self.now;
        let change = Change::Put(Box::new(self.schedule));
        Decision { change, firings: self.firings, notes: self.notes, goes_on_from: None }
    }

    /// What is decided leaves the row as it was.
    fn unchanged(self) -> Decision {
        let (firings, notes) = (self.firings, self.notes);
        Decision { change: Change::None, firings, notes, goes_on_from: None }
    }
}
