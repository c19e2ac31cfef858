//! Advance: the worker of a durable job says how its ledger grows: steps that it begins, tries that failed, and what came of
//! steps.
//!
//! All entries of one op are taken, or none. What is on record already is answered from the record; something else for a step
//! that is on record is refused, and so is a step of another shape than the one on record: the code has changed.

use crate::{
    Cause, Epoch, Fact, Failure, Job, JobId, OpKind, Refusal, State, Timestamp, Transition,
    event::By,
    footprint::{Footprint, LedgerRows},
    ids::StepKey,
    ledger::{
        Mail, MailName, Mode, Record, RecordedBy, Shape, Step, StepAnswer, StepOp, StepOutcome,
    },
    ops::{Current, fence},
    transition::{Draft, SideRow},
};

/// A worker says how the ledger of its job grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
    /// What happened, in order. What is recorded is numbered in this order.
    pub entries: Vec<Entry>,
}

/// One thing that happened to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The step.
    pub key: StepKey,
    /// What it is.
    pub shape: Shape,
    /// The place in the code that asked for it.
    pub location: Option<String>,
    /// What happened.
    pub what: Happened,
}

/// What happened to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is about to run, or to be waited for.
    Begun {
        /// Tells this call from another one that begins the same step.
        call_id: u64,
        /// When a wait is over in any case.
        until: Option<Timestamp>,
    },
    /// A try failed, and another one may follow.
    TryFailed {
        /// How.
        failure: Failure,
        /// When the next one is due.
        next_try_at: Option<Timestamp>,
    },
    /// This came of it.
    Recorded {
        /// The outcome.
        outcome: StepOutcome,
        /// How that is known.
        by: RecordedBy,
        /// The mail that it took.
        mail: Option<MailName>,
    },
}

/// The most entries of one op.
const ENTRIES_MAX: usize = 1_000;

/// The longest place in the code that is kept.
const LOCATION_MAX_BYTES: usize = 200;

impl Advance {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let bytes = |entry: &Entry| {
            let location = entry.location.as_ref().map_or(0, String::len);
            let what = match &entry.what {
                Happened::Begun { .. } => 0,
                Happened::TryFailed { failure, .. } => failure.message.len(),
                Happened::Recorded { outcome, .. } => outcome.bytes(),
            };
            entry.key.as_str().len() + location + what
        };
        let bytes = self.entries.iter().map(bytes).sum();
        let ledger = LedgerRows::Entries(&self.entries);
        Footprint { ledger, ..Footprint::of_lease(self.job_id) }.carrying(bytes)
    }
}

pub(crate) fn decide(
    job: &Job,
    current: &Current<'_>,
    op: &Advance,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let by = fence(job, op.epoch, &op.by, OpKind::Advance)?;
    if job.state != State::Running {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Advance });
    }
    if op.entries.is_empty() || op.entries.len() > ENTRIES_MAX {
        return Err(Refusal::invalid("entries", format!("must be 1 to {ENTRIES_MAX}")));
    }
    let mut book = Book { draft: Draft::of(job, OpKind::Advance, &by, now), rows: Vec::new(), now };
    let mut answers = Vec::with_capacity(op.entries.len());
    for entry in &op.entries {
        check(entry)?;
        let known = book.step(current, &entry.key).cloned();
        if let Some(known) = &known
            && known.shape != entry.shape
        {
            return Err(Refusal::Nondeterministic {
                key: entry.key.clone(),
                expected: known.shape.to_string(),
                actual: entry.shape.to_string(),
            });
        }
        answers.push(match &entry.what {
            Happened::Begun { call_id, until } => book.begin(entry, known, *call_id, *until)?,
            Happened::TryFailed { failure, next_try_at } => {
                book.fail(entry, known, failure, *next_try_at)?
            }
            Happened::Recorded { outcome, by, mail } => {
                let mail = mail.as_ref().map(|name| taken(current, name)).transpose()?;
                book.record(entry, known, outcome, *by, mail)?
            }
        });
    }
    let Book { mut draft, rows, .. } = book;
    draft.transition().rows.extend(rows.into_iter().map(SideRow::Step));
    let mut transition = draft.finish(None);
    transition.answer.steps = answers;
    Ok(transition)
}

fn check(entry: &Entry) -> Result<(), Refusal> {
    let Entry { shape, location, what, .. } = entry;
    if (shape.op == StepOp::Step) != shape.mode.is_some() {
        return Err(Refusal::invalid("mode", "is what a step has, and nothing else"));
    }
    if location.as_ref().is_some_and(|location| location.len() > LOCATION_MAX_BYTES) {
        return Err(Refusal::invalid("location", "must be at most 200 bytes long"));
    }
    if let Happened::Recorded { outcome: StepOutcome::Failed(failure), .. }
    | Happened::TryFailed { failure, .. } = what
    {
        failure.bounded()?;
    }
    Ok(())
}

/// The mail that a record takes has to be there.
fn taken<'a>(current: &Current<'a>, name: &MailName) -> Result<&'a Mail, Refusal> {
    let mail = current.mails.iter().find(|mail| mail.name == *name);
    mail.copied().ok_or(Refusal::NotFound { what: "mail" })
}

/// The ledger in the making.
struct Book<'a> {
    draft: Draft<'a>,
    /// Rows as they are afterwards.
    rows: Vec<Step>,
    now: Timestamp,
}

impl Book<'_> {
    /// A step as it stands by now.
    fn step<'s>(&'s self, current: &Current<'s>, key: &StepKey) -> Option<&'s Step> {
        let loaded = || current.steps.iter().copied().find(|step| step.key == *key);
        self.rows.iter().find(|step| step.key == *key).or_else(loaded)
    }

    fn put(&mut self, step: Step) {
        match self.rows.iter_mut().find(|row| row.key == step.key) {
            Some(row) => *row = step,
            None => self.rows.push(step),
        }
    }

    fn begin(
        &mut self,
        entry: &Entry,
        known: Option<Step>,
        call_id: u64,
        until: Option<Timestamp>,
    ) -> Result<StepAnswer, Refusal> {
        let job = self.draft.job();
        let (epoch, attempt) = (job.epoch, job.attempt);
        let mut step = match known {
            None => {
                job.ledger.check_room()?;
                self.note_begun(entry, 0, true)?;
                Step { call_id, until, ..self.new_step(entry) }
            }
            Some(step) if step.counts_in(attempt) => {
                let record = step.record.expect("what counts is on record");
                return Ok(StepAnswer::Recorded(record));
            }
            Some(step) if step.epoch == epoch && !step.not_done && step.record.is_none() => {
                let is_same = step.call_id == call_id || step.shape.op != StepOp::Step;
                let (tries, until) = (step.tries, step.until);
                return Ok(match is_same {
                    true => StepAnswer::Execute { tries, until },
                    false => StepAnswer::Wait,
                });
            }
            Some(step) if step.is_behind_barrier(epoch) => {
                return Ok(StepAnswer::Barrier { epoch: step.epoch });
            }
            Some(step) => {
                // Nothing new is told of a wait that goes on.
                if step.shape.op == StepOp::Step {
                    self.note_begun(entry, step.tries, false)?;
                }
                step
            }
        };
        (step.epoch, step.call_id, step.not_done) = (epoch, call_id, false);
        (step.record, step.next_try_at) = (None, None);
        let (tries, until) = (step.tries, step.until);
        self.put(step);
        Ok(StepAnswer::Execute { tries, until })
    }

    fn fail(
        &mut self,
        entry: &Entry,
        known: Option<Step>,
        failure: &Failure,
        next_try_at: Option<Timestamp>,
    ) -> Result<StepAnswer, Refusal> {
        let job = self.draft.job();
        let (epoch, attempt) = (job.epoch, job.attempt);
        let is_new = known.is_none();
        let mut step = match known {
            Some(step) if step.counts_in(attempt) => return Err(recorded(entry)),
            Some(step) => step,
            None if entry.shape.mode == Some(Mode::Once) => return Err(not_begun(entry)),
            None => {
                job.ledger.check_room()?;
                self.new_step(entry)
            }
        };
        if is_new {
            self.note_begun(entry, 0, true)?;
        }
        step.tries += 1;
        (step.failure, step.next_try_at) = (Some(failure.clone()), next_try_at);
        (step.epoch, step.not_done, step.record) = (epoch, true, None);
        let fact = Fact::StepTryFailed {
            key: entry.key.clone(),
            tries: step.tries,
            failure: failure.clone(),
            next_try_at,
        };
        self.draft.record(Cause::StepTryFailed, fact)?;
        self.put(step);
        Ok(StepAnswer::Noted)
    }

    fn record(
        &mut self,
        entry: &Entry,
        known: Option<Step>,
        outcome: &StepOutcome,
        by: RecordedBy,
        mail: Option<&Mail>,
    ) -> Result<StepAnswer, Refusal> {
        let job = self.draft.job();
        let (epoch, attempt) = (job.epoch, job.attempt);
        job.ledger.check_bytes(outcome.bytes())?;
        let is_new = known.is_none();
        let mut step = match known {
            Some(step) if step.counts_in(attempt) => {
                let record = step.record.expect("what counts is on record");
                return match record.outcome.digest() == outcome.digest() {
                    true => Ok(StepAnswer::Recorded(record)),
                    false => Err(recorded(entry)),
                };
            }
            // Whoever did not begin it cannot know by having run it.
            Some(step) if by == RecordedBy::Executed && step.is_behind_barrier(epoch) => {
                return Err(Refusal::Barrier { key: entry.key.clone() });
            }
            Some(step) => step,
            None if entry.shape.mode == Some(Mode::Once) => return Err(not_begun(entry)),
            None => {
                job.ledger.check_room()?;
                self.new_step(entry)
            }
        };
        if is_new {
            self.note_begun(entry, 0, true)?;
        }
        let number = self.draft.job().ledger.recorded + 1;
        note_recorded(&mut self.draft, &entry.key, entry.shape.op, outcome, by, mail.is_some())?;
        if let Some(mail) = mail {
            let mail = Mail { taken: true, ..mail.clone() };
            self.draft.transition().rows.push(SideRow::Mail(mail));
        }
        step.next_try_at = None;
        step.record = Some(Record { number, attempt, at: self.now, outcome: outcome.clone(), by });
        self.put(step);
        Ok(StepAnswer::Done { number })
    }

    fn new_step(&self, entry: &Entry) -> Step {
        let job = self.draft.job();
        Step {
            job_id: job.id,
            key: entry.key.clone(),
            shape: entry.shape.clone(),
            epoch: job.epoch,
            call_id: 0,
            begun_at: self.now,
            until: None,
            location: entry.location.clone(),
            tries: 0,
            failure: None,
            next_try_at: None,
            not_done: false,
            record: None,
        }
    }

    fn note_begun(&mut self, entry: &Entry, tries: u32, is_new: bool) -> Result<(), Refusal> {
        let (key, shape) = (entry.key.clone(), entry.shape.clone());
        self.draft.record(Cause::StepBegun, Fact::StepBegun { key, shape, tries, is_new })
    }
}

/// Tells what came of a step: of one that the handler runs itself, first that it ended and then that it is committed.
pub(crate) fn note_recorded(
    draft: &mut Draft<'_>,
    key: &StepKey,
    op: StepOp,
    outcome: &StepOutcome,
    by: RecordedBy,
    takes_mail: bool,
) -> Result<(), Refusal> {
    let fact = || {
        let (key, digest, failed) = (key.clone(), outcome.digest(), outcome.is_failed());
        (key, digest, failed)
    };
    if op == StepOp::Step {
        let (key, outcome, failed) = fact();
        draft.record(Cause::StepFinished, Fact::StepFinished { key, outcome, failed })?;
    }
    let number = draft.job().ledger.recorded + 1;
    let (key, outcome_digest, _) = fact();
    let bytes = outcome.bytes() as u64;
    let fact = Fact::StepCommitted { key, number, outcome: outcome_digest, by, bytes, takes_mail };
    draft.record(Cause::StepCommitted, fact)
}

fn recorded(entry: &Entry) -> Refusal {
    Refusal::StepRecorded { key: entry.key.clone() }
}

fn not_begun(entry: &Entry) -> Refusal {
    Refusal::StepNotBegun { key: entry.key.clone() }
}
