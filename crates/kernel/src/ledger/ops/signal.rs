//! Signal: something came for a job from outside: a signal, a message, or the end of a child.
//!
//! It is kept until the handler asks for it, and wakes a job that waits for it. The same again changes nothing, in whatever
//! state the job is by then; another content under the same name is refused.

use crate::{
    By, Cause, Fact, Job, JobId, OpKind, Refusal, Timestamp, Transition,
    footprint::{Footprint, LedgerRows},
    job::{WaitOn, Wakeup},
    ledger::{LedgerHead, Mail, MailContent, MailName},
    ops::Current,
    transition::{Draft, SideRow},
};

/// Something came for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The job.
    pub job_id: JobId,
    /// What it is known by.
    pub name: MailName,
    /// What came.
    pub content: MailContent,
    /// Is it refused if the job does not wait for it now?
    pub expect_waiting: bool,
    /// Who sent it.
    pub by: By,
}

impl Signal {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let ledger = LedgerRows::Mail(&self.name);
        Footprint { ledger, ..Footprint::of_job(self.job_id) }.carrying(self.content.bytes())
    }
}

pub(crate) fn decide(
    job: &Job,
    current: &Current<'_>,
    op: &Signal,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    if let Some(known) = current.mails.iter().find(|mail| mail.name == op.name) {
        if known.content.digest() != op.content.digest() {
            return Err(Refusal::SignalConflict { name: op.name.clone() });
        }
        return Ok(Transition::recorded(job));
    }
    if job.state.is_end() {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Signal });
    }
    if let MailContent::Rejected(failure) = &op.content {
        failure.bounded()?;
    }
    let awaited = job.wait.as_ref().is_some_and(|wait| op.name.ends(&wait.on));
    if op.expect_waiting && !awaited {
        return Err(Refusal::NotWaitingFor);
    }
    // Only a job with a ledger looks for the ends of its children later on; any other hears of them while it waits.
    if matches!(op.name, MailName::Child(_)) && job.ledger.steps == 0 {
        if !awaited {
            return Err(Refusal::NotWaitingFor);
        }
        let mut draft = Draft::of(job, OpKind::Signal, &op.by, now);
        let woken = Fact::Woken { how: Wakeup::Child, payload: None };
        draft.record(Cause::WaitCompleted, woken)?;
        return Ok(draft.finish(None));
    }
    if job.ledger.waiting_mail() >= LedgerHead::MAIL_MAX {
        let max = u64::from(LedgerHead::MAIL_MAX);
        return Err(Refusal::HistoryLimit { what: "signals and messages that wait", max });
    }
    let mut draft = Draft::of(job, OpKind::Signal, &op.by, now);
    let digest = op.content.digest();
    let fact = Fact::Signalled { name: op.name.clone(), content: digest };
    draft.record(Cause::SignalReceived, fact)?;
    if awaited {
        let how = match op.name {
            MailName::Signal(_) => Wakeup::Signal,
            MailName::Message { .. } => Wakeup::Message,
            MailName::Child(_) => Wakeup::Child,
        };
        draft.record(Cause::WaitCompleted, Fact::Woken { how, payload: Some(digest) })?;
    }
    let number = draft.job().ledger.mails;
    let mail = Mail {
        job_id: job.id,
        name: op.name.clone(),
        number,
        content: op.content.clone(),
        at: now,
        by: op.by.actor.clone(),
        taken: false,
    };
    draft.transition().rows.push(SideRow::Mail(mail));
    let mut transition = draft.finish(None);
    transition.answer.delivered = awaited;
    Ok(transition)
}

impl WaitOn {
    /// What mail it waits for, as people read it.
    pub fn awaited(&self) -> Vec<String> {
        match self {
            WaitOn::Any(all) => all.iter().flat_map(WaitOn::awaited).collect(),
            other => vec![other.to_string()],
        }
    }
}
