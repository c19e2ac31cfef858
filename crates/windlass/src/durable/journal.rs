//! The journal: the ledger of one execution, in memory.
//!
//! It knows what is on record, what the handler has asked for, and what has to be recorded. No IO and no clock: it is a plain
//! value, and tests ask it everything.
//!
//! Always true: what came of steps is delivered one at a time; first what earlier attempts have on record and the handler asks for,
//! then the records of this attempt in their order, and only then what comes of steps that run now.

use std::{
    collections::{BTreeMap, VecDeque},
    task::Waker,
};

use windlass_kernel::{
    Epoch, Failure, JobId, Timestamp,
    failure::{LEDGER_FULL, STEP_FAILED, WAIT_TIMED_OUT},
    ids::{Channel, CorrelationKey, StepKey},
    ledger::{
        Effect, LedgerHead, Mail, MailContent, MailName, Mode, RecordedBy, Shape, Step, StepAnswer,
        StepOp, StepOutcome,
    },
    ops::{Entry, Happened},
};
use windlass_store::read::Ledger;

/// What the handler asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A step of its own.
    Step,
    /// A value that is recorded as it is.
    Value(StepOutcome),
    /// A time.
    Sleep { until: Timestamp },
    /// A signal, until then.
    Signal { key: CorrelationKey, until: Option<Timestamp> },
    /// The next message of a channel, until then.
    Receive { channel: Channel, until: Option<Timestamp> },
    /// The end of a child.
    Child { child: JobId },
}

impl Wanted {
    fn until(&self) -> Option<Timestamp> {
        match self {
            Wanted::Step | Wanted::Value(_) | Wanted::Child { .. } => None,
            Wanted::Sleep { until } => Some(*until),
            Wanted::Signal { until, .. } | Wanted::Receive { until, .. } => *until,
        }
    }
}

/// How far an operation of the handler has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Asked for, and nothing has been done about it.
    Asked,
    /// Its begin is on its way to the store.
    Begins,
    /// It may run now; so many tries have failed before.
    May { tries: u32 },
    /// A worker that is gone has begun it: find out what became of it.
    Unknown,
    /// It ran and may have happened, for this reason: find out.
    Maybe(String),
    /// It ran, and nothing happened: it may be tried again.
    NotDone(Failure),
    /// It runs.
    Runs,
    /// A try failed, and the next one is due then.
    BacksOff { until: Timestamp },
    /// It waits for time, mail or a child.
    Waits { until: Option<Timestamp> },
    /// It has ended, and what came of it is not delivered yet.
    Ended,
    /// This is delivered.
    Delivered(StepOutcome),
    /// It is cancelled before it began.
    Cancelled,
}

/// One operation that the handler has asked for.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) shape: Shape,
    pub(super) wanted: Wanted,
    pub(super) location: Option<String>,
    pub(super) phase: Phase,
    pub(super) waker: Option<Waker>,
    pub(super) shielded: bool,
    /// Does the handler not wait for it any more?
    pub(super) dropped: bool,
}

/// Why the execution cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The code asks for something else than what is on record, or what is on record does not decode: a person has to look.
    Park { code: &'static str, message: String, step: Option<StepKey> },
    /// The job fails for good.
    Fail(Failure),
}

/// The ledger of one execution.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) epoch: Epoch,
    attempt: u32,
    counters: BTreeMap<String, u32>,
    known: BTreeMap<StepKey, Step>,
    /// Records of this attempt that are not delivered yet, in their order.
    replay: VecDeque<StepKey>,
    /// What succeeded in earlier attempts and is not delivered yet, by its number.
    memo: BTreeMap<u32, StepKey>,
    mails: Vec<Mail>,
    mails_seen: u32,
    effects: BTreeMap<StepKey, Effect>,
    pub(super) cells: BTreeMap<StepKey, Cell>,
    /// In the order in which they were asked for.
    order: Vec<StepKey>,
    /// What came of steps that ran now, in the order in which they ended.
    ended: VecDeque<(StepKey, StepOutcome, RecordedBy, Option<MailName>)>,
    /// What has to be recorded, in order.
    pending: Vec<Entry>,
    /// Does something of what is pending not wait?
    urgent: bool,
    head: LedgerHead,
    pub(super) now: Timestamp,
    pub(super) trouble: Option<Trouble>,
    pub(super) cancelled: bool,
    pub(super) state: Option<String>,
}

/// The most records, and the most bytes of results, that wait to be written while the handler goes on.
const PENDING_MAX: usize = 100;
const PENDING_BYTES_MAX: usize = 1024 * 1024;

/// Of so many steps the journal warns, and says so once.
const WARN_AT: u32 = LedgerHead::STEPS_MAX / 5 * 4;

impl Journal {
    /// The journal of an execution whose job has this ledger, from its last checkpoint on.
    pub(super) fn new(
        epoch: Epoch,
        attempt: u32,
        head: LedgerHead,
        ledger: Ledger,
        now: Timestamp,
    ) -> Self {
        let mut journal = Self {
            epoch,
            attempt,
            counters: BTreeMap::new(),
            known: BTreeMap::new(),
            replay: VecDeque::new(),
            memo: BTreeMap::new(),
            mails_seen: ledger.mails.last().map_or(0, |mail| mail.number),
            // A message that was taken is gone; a signal can be looked at again.
            mails: ledger
                .mails
                .into_iter()
                .filter(|mail| !mail.taken || matches!(mail.name, MailName::Signal(_)))
                .collect(),
            effects: ledger.effects.into_iter().map(|it| (it.key.clone(), it)).collect(),
            cells: BTreeMap::new(),
            order: Vec::new(),
            ended: VecDeque::new(),
            pending: Vec::new(),
            urgent: false,
            head,
            now,
            trouble: None,
            cancelled: false,
            state: None,
        };
        for step in ledger.steps {
            journal.learn(step);
        }
        journal
    }

    fn learn(&mut self, step: Step) {
        if let Some(record) = &step.record {
            if step.shape.op == StepOp::Checkpoint {
                if record.number == self.head.checkpoint {
                    self.restore(&record.outcome);
                }
                return;
            }
            if step.counts_in(self.attempt) {
                match record.attempt == self.attempt {
                    true => self.replay.push_back(step.key.clone()),
                    false => drop(self.memo.insert(record.number, step.key.clone())),
                }
            }
        }
        self.known.insert(step.key.clone(), step);
    }

    /// Goes on from a checkpoint: its state, and what steps are counted by.
    fn restore(&mut self, outcome: &StepOutcome) {
        #[derive(serde::Deserialize)]
        struct Saved<'a> {
            counters: BTreeMap<String, u32>,
            #[serde(borrow)]
            state: &'a serde_json::value::RawValue,
        }
        if let StepOutcome::Done(payload) = outcome
            && let Ok(saved) = serde_json::from_str::<Saved<'_>>(payload.as_str())
        {
            self.counters = saved.counters;
            self.state = Some(saved.state.get().to_owned());
        }
    }

    /// What a checkpoint of now keeps.
    pub(super) fn saved(&self, state: &str) -> String {
        let counters = serde_json::to_string(&self.counters).expect("names and numbers are JSON");
        format!("{{\"counters\":{counters},\"state\":{state}}}")
    }

    /// A checkpoint was saved: it is a record like any other.
    pub(super) fn saved_checkpoint(&mut self) {
        self.head.steps += 1;
    }

    /// Which of the operations of this name the next one is, from 1.
    pub(super) fn count(&mut self, name: &str) -> u32 {
        let count = self.counters.entry(name.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Is it the moment to say that the ledger is nearly full?
    pub(super) fn is_nearly_full(&self) -> bool {
        self.head.steps == WARN_AT
    }

    /// The handler asks for something for the first time.
    pub(super) fn ask(&mut self, key: &StepKey, cell: Cell) {
        if let Some(known) = self.known.get(key)
            && known.shape != cell.shape
        {
            let (expected, actual) = (&known.shape, &cell.shape);
            let message =
                format!("step {key} is on record as {expected}, and the code asks for {actual}");
            self.park("NONDETERMINISTIC", message, None);
        }
        self.order.push(key.clone());
        self.cells.insert(key.clone(), cell);
    }

    pub(super) fn park(&mut self, code: &'static str, message: String, step: Option<StepKey>) {
        self.trouble.get_or_insert(Trouble::Park { code, message, step });
    }

    /// Delivers what comes next, if anything does, and says whom to wake.
    pub(super) fn deliver(&mut self) -> Option<Option<Waker>> {
        let memo = self.memo.iter().find(|(_, key)| self.cells.contains_key(*key));
        if let Some((number, key)) = memo.map(|(number, key)| (*number, key.clone())) {
            self.memo.remove(&number);
            return Some(self.replay_one(&key));
        }
        if let Some(key) = self.replay.front().cloned() {
            if !self.cells.contains_key(&key) {
                return None;
            }
            self.replay.pop_front();
            return Some(self.replay_one(&key));
        }
        let (key, outcome, by, mail) = self.ended.pop_front()?;
        let cell = self.cells.get_mut(&key).expect("what ran was asked for");
        cell.phase = Phase::Delivered(outcome.clone());
        let (shape, location, waker) =
            (cell.shape.clone(), cell.location.take(), cell.waker.take());
        if cell.dropped {
            self.cells.remove(&key);
        }
        let is_pure = shape.mode == Some(Mode::Pure) || shape.op == StepOp::Version;
        let what = Happened::Recorded { outcome, by, mail };
        if !self.known.contains_key(&key) {
            self.head.steps += 1;
        }
        self.pending.push(Entry { key, shape, location, what });
        self.urgent |= !is_pure;
        Some(waker)
    }

    fn replay_one(&mut self, key: &StepKey) -> Option<Waker> {
        let record = self.known[key].record.clone().expect("it is on record");
        self.now = self.now.max(record.at);
        let cell = self.cells.get_mut(key).expect("it was asked for");
        cell.phase = Phase::Delivered(record.outcome);
        let waker = cell.waker.take();
        if cell.dropped {
            self.cells.remove(key);
        }
        waker
    }

    /// The handler does not wait for this any more. What has begun goes on to its record; what has not is forgotten.
    pub(super) fn drop_asked(&mut self, key: &StepKey) {
        let is_known = self.known.get(key).is_some_and(|step| step.counts_in(self.attempt));
        let Some(cell) = self.cells.get_mut(key) else { return };
        cell.dropped = true;
        let goes_on = match cell.phase {
            Phase::Begins | Phase::Ended => true,
            Phase::Runs => cell.shape.mode == Some(Mode::Once),
            Phase::Asked => is_known,
            _ => false,
        };
        if !goes_on {
            self.cells.remove(key);
            self.order.retain(|other| other != key);
        }
    }

    /// Takes what was delivered; none, if nothing was yet.
    pub(super) fn take(&mut self, key: &StepKey) -> Option<Phase> {
        let cell = self.cells.get(key)?;
        if !matches!(cell.phase, Phase::Delivered(_) | Phase::Cancelled) {
            return None;
        }
        self.order.retain(|other| other != key);
        self.cells.remove(key).map(|cell| cell.phase)
    }

    /// Does the record of this attempt have something next that the handler, which is at rest, has not asked for?
    pub(super) fn is_astray(&self) -> Option<&StepKey> {
        let has_memo = self.memo.values().any(|key| self.cells.contains_key(key));
        self.replay.front().filter(|key| !has_memo && !self.cells.contains_key(*key))
    }

    /// Is everything delivered that was on record?
    pub(super) fn is_live(&self) -> bool {
        let has_memo = self.memo.values().any(|key| self.cells.contains_key(key));
        self.replay.is_empty() && !has_memo
    }

    /// Begins what was asked for and can begin. It says whom to wake. Nothing runs while a record of before waits to be
    /// written, unless it has no effect outside.
    pub(super) fn start(&mut self, now: Timestamp, is_writing: bool, chance: u64) -> Vec<Waker> {
        let mut wake = Vec::new();
        if !self.is_live() {
            return wake;
        }
        self.now = self.now.max(now);
        let keys: Vec<StepKey> = self.order.clone();
        for key in keys {
            let Some(cell) = self.cells.get(&key) else { continue };
            let (wanted, mode) = (cell.wanted.clone(), cell.shape.mode);
            match &cell.phase {
                Phase::Asked if self.cancelled && !cell.shielded => {
                    wake.extend(self.set(&key, Phase::Cancelled));
                }
                Phase::Asked => match wanted {
                    Wanted::Step => wake.extend(self.start_step(&key, mode, is_writing, chance)),
                    Wanted::Value(outcome) => self.end(&key, outcome, RecordedBy::Executed, None),
                    _ => self.begin_wait(&key, &wanted),
                },
                Phase::Waits { .. } if self.cancelled && !cell.shielded => {
                    wake.extend(self.set(&key, Phase::Cancelled));
                }
                Phase::Waits { until } => {
                    let until = *until;
                    self.look(&key, &wanted, until, now);
                }
                Phase::BacksOff { until } if *until <= now && !is_writing => {
                    let tries = self.known.get(&key).map_or(1, |step| step.tries);
                    wake.extend(self.set(&key, Phase::May { tries }));
                }
                _ => {}
            }
        }
        let cells = &self.cells;
        self.order.retain(|key| {
            let phase = cells.get(key).map(|cell| &cell.phase);
            phase.is_some_and(|phase| !matches!(phase, Phase::Delivered(_) | Phase::Cancelled))
        });
        wake
    }

    fn start_step(
        &mut self,
        key: &StepKey,
        mode: Option<Mode>,
        is_writing: bool,
        chance: u64,
    ) -> Option<Waker> {
        let known = self.known.get(key).filter(|step| !step.counts_in(self.attempt));
        let tries = known.map_or(0, |step| step.tries);
        if known.is_none()
            && let Err(refusal) = self.head.check_room()
        {
            let failure = Failure::own(LEDGER_FULL, &refusal.to_string());
            self.trouble.get_or_insert(Trouble::Fail(failure));
            return None;
        }
        let next_try_at = known.and_then(|step| step.next_try_at);
        if let Some(until) = next_try_at.filter(|at| *at > self.now) {
            return self.set(key, Phase::BacksOff { until });
        }
        match mode {
            Some(Mode::Once) => {
                if known.is_some_and(|step| step.is_behind_barrier(self.epoch)) {
                    if let Some(effect) = self.effects.remove(key) {
                        self.end(key, effect.outcome, RecordedBy::LateEffect, None);
                        return None;
                    }
                    return self.set(key, Phase::Unknown);
                }
                let cell = &self.cells[key];
                let (shape, location) = (cell.shape.clone(), cell.location.clone());
                let what = Happened::Begun { call_id: chance | 1, until: None };
                self.pending.push(Entry { key: key.clone(), shape, location, what });
                self.urgent = true;
                self.set(key, Phase::Begins)
            }
            Some(Mode::Idempotent) if is_writing || !self.pending.is_empty() => {
                self.urgent = true;
                None
            }
            // What has no effect outside need not be written yet, but it must not pile up.
            _ if self.is_heavy() => {
                self.urgent = true;
                None
            }
            _ => self.set(key, Phase::May { tries }),
        }
    }

    /// Waits so much to be written that it had better be?
    fn is_heavy(&self) -> bool {
        let bytes = |entry: &Entry| match &entry.what {
            Happened::Recorded { outcome, .. } => outcome.bytes(),
            Happened::Begun { .. } | Happened::TryFailed { .. } => 0,
        };
        self.pending.len() >= PENDING_MAX
            || self.pending.iter().map(bytes).sum::<usize>() >= PENDING_BYTES_MAX
    }

    fn set(&mut self, key: &StepKey, phase: Phase) -> Option<Waker> {
        let cell = self.cells.get_mut(key).expect("it was asked for");
        cell.phase = phase;
        cell.waker.clone()
    }

    /// A wait begins, or goes on from before: its end is the one that was said first.
    fn begin_wait(&mut self, key: &StepKey, wanted: &Wanted) {
        let known = self.known.get(key).map(|step| step.until);
        let until = known.unwrap_or_else(|| wanted.until());
        if known.is_none() {
            let cell = &self.cells[key];
            let (shape, location) = (cell.shape.clone(), cell.location.clone());
            let what = Happened::Begun { call_id: 0, until };
            self.pending.push(Entry { key: key.clone(), shape, location, what });
            self.head.steps += 1;
            self.urgent = true;
        }
        self.set(key, Phase::Waits { until });
        let now = self.now;
        self.look(key, wanted, until, now);
    }

    /// Is a wait over?
    fn look(&mut self, key: &StepKey, wanted: &Wanted, until: Option<Timestamp>, now: Timestamp) {
        let is_over = until.is_some_and(|until| until <= now);
        let mail = self.mail_for(wanted);
        match (mail, wanted) {
            (Some(mail), _) => {
                let outcome = match mail.content {
                    MailContent::Payload(payload) => StepOutcome::Done(payload),
                    MailContent::Rejected(mut failure) => {
                        failure.code.insert_str(0, REJECTED);
                        StepOutcome::Failed(failure)
                    }
                    // What a child gave back is read by whoever drives the handler.
                    MailContent::Ended(_) => return,
                };
                self.end(key, outcome, RecordedBy::Executed, Some(mail.name));
            }
            (None, Wanted::Sleep { .. }) if is_over => {
                let nothing = windlass_kernel::Payload::parse("null", 4).expect("it is JSON");
                self.end(key, StepOutcome::Done(nothing), RecordedBy::Executed, None);
            }
            (None, _) if is_over => {
                let failure = Failure::own(WAIT_TIMED_OUT, "it did not come in time");
                self.end(key, StepOutcome::Failed(failure), RecordedBy::Executed, None);
            }
            _ => {}
        }
    }

    /// The first mail that ends such a wait and that nobody has taken.
    fn mail_for(&mut self, wanted: &Wanted) -> Option<Mail> {
        let is_meant = |mail: &Mail| match (&mail.name, wanted) {
            (MailName::Signal(key), Wanted::Signal { key: awaited, .. }) => key == awaited,
            (MailName::Message { channel, .. }, Wanted::Receive { channel: awaited, .. }) => {
                channel == awaited
            }
            _ => false,
        };
        let is_signal = matches!(wanted, Wanted::Signal { .. });
        let place = self.mails.iter().position(is_meant)?;
        // A signal stays: there is one for each key, for ever.
        Some(if is_signal { self.mails[place].clone() } else { self.mails.remove(place) })
    }

    /// More mail has come.
    pub(super) fn add_mail(&mut self, mails: Vec<Mail>) {
        for mail in mails {
            if mail.number > self.mails_seen {
                self.mails_seen = mail.number;
                self.mails.push(mail);
            }
        }
    }

    /// This came of an operation.
    pub(super) fn end(
        &mut self,
        key: &StepKey,
        outcome: StepOutcome,
        by: RecordedBy,
        mail: Option<MailName>,
    ) {
        self.set(key, Phase::Ended);
        self.ended.push_back((key.clone(), outcome, by, mail));
    }

    /// A try failed. The next one is due then; at once, if no time is given.
    pub(super) fn try_failed(
        &mut self,
        key: &StepKey,
        failure: Failure,
        next_try_at: Option<Timestamp>,
    ) {
        let cell = self.cells.get_mut(key).expect("it was asked for");
        let (shape, location) = (cell.shape.clone(), cell.location.clone());
        let is_once = shape.mode == Some(Mode::Once);
        cell.phase = match next_try_at {
            _ if is_once => Phase::Asked,
            Some(until) => Phase::BacksOff { until },
            None => Phase::Asked,
        };
        let tries = self.known.get(key).map_or(0, |step| step.tries) + 1;
        let step = self.known.entry(key.clone()).or_insert_with(|| Step {
            job_id: JobId::from_u128(0),
            key: key.clone(),
            shape: shape.clone(),
            epoch: self.epoch,
            call_id: 0,
            begun_at: self.now,
            until: None,
            location: None,
            tries: 0,
            failure: None,
            next_try_at: None,
            not_done: true,
            record: None,
        });
        (step.tries, step.next_try_at, step.not_done) = (tries, next_try_at, true);
        let what = Happened::TryFailed { failure, next_try_at };
        self.pending.push(Entry { key: key.clone(), shape, location, what });
        self.urgent = true;
    }

    /// What has to be written now, if it cannot wait.
    pub(super) fn take_urgent(&mut self) -> Vec<Entry> {
        if !self.urgent {
            return Vec::new();
        }
        self.take_all()
    }

    /// Everything that is to be written.
    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        self.urgent = false;
        std::mem::take(&mut self.pending)
    }

    /// Has something ended that is not delivered yet?
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// What came of `once` steps and was not delivered.
    pub(super) fn take_ended_once(&mut self) -> Vec<(StepKey, StepOutcome)> {
        let ended = std::mem::take(&mut self.ended);
        let is_once = |key: &StepKey| {
            self.cells.get(key).is_some_and(|cell| cell.shape.mode == Some(Mode::Once))
        };
        let ended = ended.into_iter().filter(|(key, ..)| is_once(key));
        ended.map(|(key, outcome, ..)| (key, outcome)).collect()
    }

    /// What could not be written comes before what came since.
    pub(super) fn put_back(&mut self, mut entries: Vec<Entry>) {
        entries.append(&mut self.pending);
        (self.pending, self.urgent) = (entries, true);
    }

    /// A record of this attempt that the handler never asked for.
    pub(super) fn unasked(&self) -> Option<&StepKey> {
        self.replay.iter().find(|key| !self.cells.contains_key(*key))
    }

    /// Does anything run, or is it about to?
    pub(super) fn is_busy(&self) -> bool {
        self.cells.values().any(|cell| {
            matches!(
                cell.phase,
                Phase::Asked
                    | Phase::Begins
                    | Phase::May { .. }
                    | Phase::Unknown
                    | Phase::Maybe(_)
                    | Phase::NotDone(_)
                    | Phase::Runs
            )
        }) || !self.ended.is_empty()
    }

    /// How many tries of a step have failed.
    pub(super) fn tries(&self, key: &StepKey) -> u32 {
        self.known.get(key).map_or(0, |step| step.tries)
    }

    /// A `once` step ended without a result. It gives back whom to wake; if nobody waits for it, what is unknown stays so.
    pub(super) fn once_ended(&mut self, key: &StepKey, phase: Phase) -> Option<Waker> {
        let cell = self.cells.get_mut(key)?;
        if cell.dropped {
            let failure = match &phase {
                Phase::NotDone(failure) => Some(failure.clone()),
                _ => None,
            };
            match failure {
                Some(failure) => self.try_failed(key, failure, None),
                None => drop(self.cells.remove(key)),
            }
            self.cells.remove(key);
            return None;
        }
        cell.phase = phase;
        cell.waker.clone()
    }

    /// A begin was answered: run it; it may be behind the barrier after all, or on record.
    pub(super) fn begun(&mut self, key: &StepKey, answer: &StepAnswer) -> Option<Waker> {
        let cell = self.cells.get_mut(key)?;
        if cell.phase != Phase::Begins {
            return None;
        }
        if !self.known.contains_key(key) {
            self.head.steps += 1;
        }
        let phase = match answer {
            StepAnswer::Execute { tries, .. } => Phase::May { tries: *tries },
            StepAnswer::Barrier { .. } => Phase::Unknown,
            StepAnswer::Recorded(record) => Phase::Delivered(record.outcome.clone()),
            StepAnswer::Wait | StepAnswer::Done { .. } | StepAnswer::Noted => return None,
        };
        if cell.dropped {
            // Nobody is there to run it, and nothing happened.
            let failure =
                Failure::own(STEP_FAILED, "the code stopped waiting for it before it ran");
            self.try_failed(key, failure, None);
            self.cells.remove(key);
            return None;
        }
        cell.phase = phase;
        cell.waker.clone()
    }

    /// Does a step run that has to come to its record?
    pub(super) fn runs_once(&self) -> bool {
        self.cells.values().any(|cell| {
            cell.shape.mode == Some(Mode::Once)
                && matches!(cell.phase, Phase::Begins | Phase::Runs | Phase::Ended)
        })
    }

    /// What the handler waits for, if it can only wait.
    pub(super) fn waits(&self) -> Vec<(&StepKey, &Cell)> {
        let waits =
            |cell: &Cell| matches!(cell.phase, Phase::Waits { .. } | Phase::BacksOff { .. });
        self.cells.iter().filter(|(_, cell)| waits(cell)).collect()
    }

    /// How much mail is known.
    pub(super) fn mails_seen(&self) -> u32 {
        self.mails_seen
    }

    /// The wakers that are kept here.
    pub(super) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        self.cells.values().filter_map(|cell| cell.waker.as_ref())
    }
}

/// What the code of a failure begins with that somebody sent instead of a signal.
pub(super) const REJECTED: &str = "SIGNAL_REJECTED:";
