//! One execution of a durable handler, as its context, its steps and its driver share it.

use std::{
    cell::Cell as FlagCell,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context as TaskContext, Poll},
};

use tokio::sync::Notify;
use windlass_kernel::{
    By, Digest, Epoch, Failure, JobId, Op, Payload, Refusal,
    failure::{EFFECT_UNKNOWN, STEP_NESTED},
    ids::StepKey,
    ledger::{LedgerHead, RecordedBy, StepOutcome},
    ops::{Advance, Checkpoint, Enqueue, Entry},
};
use windlass_store::Write;

use super::{
    ctx::Children,
    error::StepError,
    journal::{Cell, Journal, Phase, REJECTED, Trouble},
    late,
    step::OnceEnd,
};
use crate::{Error, worker::Context};

/// One execution of a durable handler.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(super) context: Context,
    pub(super) journal: Mutex<Journal>,
    /// Something came of a step that runs beside the handler, or mail came.
    pub(super) changed: Notify,
    /// Is the execution over? What comes of steps after that is handed in.
    closed: Mutex<bool>,
    /// Children that are to be made.
    children: Mutex<Children>,
}

impl Exec {
    pub(super) fn new(context: Context, journal: Journal) -> Arc<Self> {
        let (journal, closed) = (Mutex::new(journal), Mutex::new(false));
        let (changed, children) = (Notify::new(), Mutex::default());
        Arc::new(Self { context, journal, changed, closed, children })
    }

    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.context.epoch()
    }

    pub(super) fn job_id(&self) -> JobId {
        self.context.job_id()
    }

    /// A child that is to be made when its step begins.
    pub(super) fn keep_child(&self, key: &StepKey, op: Enqueue) {
        self.children().insert(key.clone(), op);
    }

    /// The children of these steps.
    pub(super) fn take_children(&self, entries: &[Entry]) -> Vec<Enqueue> {
        let mut children = self.children();
        entries.iter().filter_map(|entry| children.remove(&entry.key)).collect()
    }

    fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chance, to tell calls apart.
    pub(super) fn chance(&self) -> u64 {
        u64::try_from(self.context.engine().inner().ids.random() >> 64).expect("it is shifted")
    }

    /// Saves the state of the handler, after everything that is on its way to the record.
    pub(super) async fn checkpoint(self: &Arc<Self>, state: &str) -> Result<(), Error> {
        let (entries, kept) = {
            let mut journal = self.journal();
            (journal.take_all(), journal.saved(state))
        };
        let tenant = self.context.tenant().clone();
        let by = By::worker(self.context.worker().clone());
        let (job_id, epoch) = (self.job_id(), self.epoch());
        let mut writes = Vec::new();
        if !entries.is_empty() {
            let by = by.clone();
            let op = Op::Advance(Advance { job_id, epoch, by, entries });
            writes.push(Write::Op { tenant: tenant.clone(), op });
        }
        let kept = Self::payload(&kept)?;
        let (digest, kept) = (Digest::of(state), Some(kept));
        let op = Op::Checkpoint(Checkpoint { job_id, epoch, by, state: digest, kept });
        writes.push(Write::Op { tenant, op });
        for answer in self.context.engine().inner().submit_many(writes).await {
            answer?;
        }
        self.journal().saved_checkpoint();
        Ok(())
    }

    /// The execution is over: from now on what comes of steps is handed in.
    pub(super) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// This came of a step that ran beside the handler.
    pub(super) fn ended_beside(self: &Arc<Self>, key: &StepKey, outcome: StepOutcome) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            drop(closed);
            late::hand_in(self, vec![(key.clone(), outcome)]);
            return;
        }
        self.journal().end(key, outcome, RecordedBy::Executed, None);
        drop(closed);
        self.changed.notify_one();
    }

    /// A `once` step ran beside the handler and gave no result.
    pub(super) fn once_failed(&self, key: &StepKey, end: OnceEnd) {
        let phase = match end {
            OnceEnd::NotDone(failure) => Phase::NotDone(failure),
            OnceEnd::Maybe(why) => Phase::Maybe(why),
        };
        let waker = self.journal().once_ended(key, phase);
        waker.into_iter().for_each(std::task::Waker::wake);
        self.changed.notify_one();
    }

    /// Asks for an operation, if that is not done yet, and takes what was delivered.
    pub(super) fn poll(
        &self,
        key: &StepKey,
        asked: &mut bool,
        task: &TaskContext<'_>,
        cell: impl FnOnce() -> Cell,
    ) -> Poll<Result<Payload, StepError>> {
        let mut journal = self.journal();
        if !std::mem::replace(asked, true) {
            journal.ask(key, cell());
        }
        match journal.take(key) {
            Some(Phase::Delivered(StepOutcome::Done(payload))) => Poll::Ready(Ok(payload)),
            Some(Phase::Delivered(StepOutcome::Failed(failure))) => {
                let rejected = failure.code.strip_prefix(REJECTED).map(str::to_owned);
                Poll::Ready(Err(match rejected {
                    Some(code) => {
                        let mut failure = failure;
                        failure.code = code;
                        StepError::Rejected(failure)
                    }
                    None => StepError::of(failure),
                }))
            }
            Some(_) => Poll::Ready(Err(StepError::Cancelled)),
            None => {
                if let Some(cell) = journal.cells.get_mut(key) {
                    cell.waker = Some(task.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// A result that can be kept.
    pub(super) fn payload(text: &str) -> Result<Payload, Refusal> {
        Payload::parse(text, LedgerHead::RESULT_BYTES_MAX)
    }

    /// Nobody knows what became of the step, and the job is given up for it.
    pub(super) fn give_up(&self, key: &StepKey, why: &str) {
        let failure = unknown(key, why);
        self.journal().trouble.get_or_insert(Trouble::Fail(failure));
        self.changed.notify_one();
    }

    /// Nobody knows what became of the step, and a person is asked.
    pub(super) fn ask_operator(&self, key: &StepKey, why: &str) {
        let message = unknown(key, why).message;
        self.journal().park(EFFECT_UNKNOWN, message, Some(key.clone()));
        self.changed.notify_one();
    }
}

/// The failure of a step of which nobody knows what became.
pub(super) fn unknown(key: &StepKey, why: &str) -> Failure {
    Failure::own(EFFECT_UNKNOWN, &format!("step {key} may have happened: {why}"))
}

thread_local! {
    /// Does a step of a durable handler run on this thread just now?
    static IN_STEP: FlagCell<bool> = const { FlagCell::new(false) };
}

/// Runs this as part of a step: a context that is used meanwhile says so.
pub(super) fn within_step<T>(poll: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_STEP.set(self.0);
        }
    }
    let _restore = Restore(IN_STEP.replace(true));
    poll()
}

/// The failure of a context that is used inside a step.
pub(super) fn nested() -> Option<Failure> {
    IN_STEP.get().then(|| {
        Failure::own(STEP_NESTED, "the context of a durable handler was used inside a step")
    })
}
