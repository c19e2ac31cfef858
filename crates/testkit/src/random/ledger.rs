//! Ops on ledgers: steps that begin, fail and are recorded, signals, late effects and statements.

use windlass_kernel::{
    Digest, Failure, Job, Op, Payload, State,
    ids::{Channel, CorrelationKey, MessageId, StepKey},
    job::WaitOn,
    ledger::{MailContent, MailName, Mode, RecordedBy, Shape, Step, StepOutcome},
    ops::{Advance, Checkpoint, Entry, HandIn, Happened, Resolve, Signal, Stated, Statement},
};

use super::{
    Chance, World,
    ops::{correlation_key, holder, user},
};

const NAMES: [&str; 4] = ["price", "charge", "mail", "book"];

impl World {
    /// The worker of a job says how its ledger grows: one to three entries.
    pub(super) fn advance(&self, job: &Job, chance: &mut Chance) -> Op {
        let entries = (0..=chance.below(3)).map(|_| self.entry(job, chance)).collect();
        Advance { job_id: job.id, epoch: job.epoch, by: holder(job), entries }.into()
    }

    fn entry(&self, job: &Job, chance: &mut Chance) -> Entry {
        let key = self.step_key(job, chance);
        let known = self.store.steps.get(&(job.id, key.clone()));
        let mode = *chance.pick(Mode::ALL).expect("there are some");
        let shape = match known {
            // The code has changed now and then.
            Some(known) if !chance.percent(2) => known.shape.clone(),
            _ => Shape::step(mode, chance.maybe(30, |_| Digest::of("input"))),
        };
        let location = chance.maybe(20, |_| "src/order.rs:7".to_owned());
        let what = match chance.below(10) {
            0..4 => Happened::Begun {
                call_id: chance.below(2),
                until: chance.maybe(10, |chance| self.now.plus(chance.ms(0, 10_000))),
            },
            4 => Happened::TryFailed {
                failure: Failure::transient("BUSY", "try later"),
                next_try_at: chance.maybe(50, |chance| self.now.plus(chance.ms(0, 10_000))),
            },
            _ => self.recorded(job, known, chance),
        };
        Entry { key, shape, location, what }
    }

    /// Any step; often one that stands behind the barrier, if there is one, for those are rare.
    fn step_key(&self, job: &Job, chance: &mut Chance) -> StepKey {
        let is_behind = |step: &&Step| step.job_id == job.id && step.is_behind_barrier(job.epoch);
        let behind: Vec<&Step> = self.store.steps.values().filter(is_behind).collect();
        if let Some(step) = chance.pick(&behind)
            && chance.percent(50)
        {
            return step.key.clone();
        }
        let name = *chance.pick(&NAMES).expect("there are some");
        let nth = 1 + u32::from(chance.percent(30));
        StepKey::of_step(name, nth).expect("a key")
    }

    fn recorded(&self, job: &Job, known: Option<&Step>, chance: &mut Chance) -> Happened {
        let by = match known {
            Some(known) if known.is_behind_barrier(job.epoch) && chance.percent(50) => {
                RecordedBy::Reconciled
            }
            _ => RecordedBy::Executed,
        };
        let mails = self.store.mails.keys().filter(|(id, _)| *id == job.id);
        let mails: Vec<&MailName> = mails.map(|(_, name)| name).collect();
        let mail = chance.maybe(20, |chance| chance.pick(&mails).map(|name| (*name).clone()));
        Happened::Recorded { outcome: outcome(chance), by, mail: mail.flatten() }
    }

    /// Something comes for a job from outside.
    pub(super) fn signal(&self, job: &Job, chance: &mut Chance) -> Op {
        let name = match chance.below(3) {
            0 => MailName::Message {
                channel: Channel::new("chat").expect("a channel"),
                id: MessageId::new(chance.below(20).to_string()).expect("an id"),
            },
            _ => MailName::Signal(correlation_key(chance)),
        };
        let content = match chance.below(10) {
            0 => MailContent::Rejected(Failure::permanent("NO", "not like this")),
            // Seldom another content under the same name.
            1 => MailContent::Payload(json("2")),
            _ => MailContent::Payload(json("1")),
        };
        let expect_waiting = chance.percent(10);
        Signal { job_id: job.id, name, content, expect_waiting, by: user("ann") }.into()
    }

    /// What ends the wait of a job, if mail or a person does.
    pub(super) fn end_by_ledger(job: &Job, wait: &WaitOn) -> Option<Op> {
        let signal = |name| -> Op {
            let content = MailContent::Payload(json("1"));
            let (job_id, by) = (job.id, user("ann"));
            Signal { job_id, name, content, expect_waiting: false, by }.into()
        };
        Some(match wait {
            WaitOn::Signal(key) => signal(MailName::Signal(key.clone())),
            WaitOn::Message(channel) => {
                let id = MessageId::new(format!("v{}", job.version)).expect("an id");
                signal(MailName::Message { channel: channel.clone(), id })
            }
            WaitOn::Operator { step, .. } => {
                let (job_id, by, reason) = (job.id, user("ann"), "it was looked up".to_owned());
                let statement = step.clone().map(|key| {
                    let stated = Stated::Happened(StepOutcome::Done(json("\"stated\"")));
                    let what = if job.version.is_multiple_of(2) { Stated::NotDone } else { stated };
                    Statement { key, what }
                });
                Resolve { job_id, statement, reason, by }.into()
            }
            WaitOn::Any(all) => return all.iter().find_map(|one| Self::end_by_ledger(job, one)),
            WaitOn::Time | WaitOn::Child(_) => return None,
        })
    }

    /// A worker that may have lost its lease hands in what came of a step.
    pub(super) fn hand_in(&self, chance: &mut Chance) -> Option<Op> {
        let is_open = |step: &&Step| {
            let job = &self.store.jobs[&step.job_id];
            step.record.is_none() && !step.not_done && job.state != State::Succeeded
        };
        let open: Vec<&Step> = self.store.steps.values().filter(is_open).collect();
        let step = *chance.pick(&open)?;
        let (job_id, key, epoch) = (step.job_id, step.key.clone(), step.epoch);
        let by = windlass_kernel::By::worker("w1".parse().expect("a worker"));
        Some(HandIn { job_id, key, epoch, outcome: outcome(chance), by }.into())
    }

    /// A wait for mail or for a person.
    pub(super) fn ledger_wait(&self, job: &Job, chance: &mut Chance) -> WaitOn {
        let open = self.store.steps.values();
        let open = open.filter(|step| step.job_id == job.id && step.record.is_none());
        let open: Vec<&Step> = open.collect();
        match chance.pick(&open) {
            Some(step) if chance.percent(40) => WaitOn::Operator {
                code: "EFFECT_UNKNOWN".to_owned(),
                step: Some(step.key.clone()),
                message: "what became of it?".to_owned(),
            },
            _ if chance.percent(20) => WaitOn::Operator {
                code: "NONDETERMINISTIC".to_owned(),
                step: None,
                message: "the code has changed".to_owned(),
            },
            _ => WaitOn::Any(vec![
                WaitOn::Message(Channel::new("chat").expect("a channel")),
                WaitOn::Signal(CorrelationKey::new("paid").expect("a key")),
            ]),
        }
    }
}

pub(super) fn checkpoint(job: &Job, epoch: windlass_kernel::Epoch, chance: &mut Chance) -> Op {
    let text = chance.below(10).to_string();
    let (state, kept) = (Digest::of(&text), chance.maybe(50, |_| json(&text)));
    Checkpoint { job_id: job.id, epoch, by: holder(job), state, kept }.into()
}

fn outcome(chance: &mut Chance) -> StepOutcome {
    match chance.below(6) {
        0 => StepOutcome::Failed(Failure::permanent("DECLINED", "no")),
        1 => StepOutcome::Done(json("null")),
        number => StepOutcome::Done(json(&number.to_string())),
    }
}

fn json(text: &str) -> Payload {
    Payload::parse(text, 100).expect("it is JSON")
}
