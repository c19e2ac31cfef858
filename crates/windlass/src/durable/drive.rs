//! The driver: polls a durable handler, delivers to it what came of its steps, records it, and parks the job when the handler can
//! only wait.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context as TaskContext, Poll, Wake, Waker},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use windlass_kernel::{
    Answer, Failure, Op, Refusal, State, Timestamp,
    failure::{CHILD_CANCELLED, CHILD_FAILED, HANDLER_FAILED, LEDGER_FULL},
    ids::StepKey,
    job::{Wait, WaitOn},
    ledger::{Mode, RecordedBy, StepOutcome},
    ops::{Advance, Entry, Happened},
};
use windlass_store::{
    TenantOp,
    read::{Ledger, Scope},
};

use super::{
    Ctx, Exec,
    journal::{Cell, Journal, Phase, Trouble, Wanted},
    late,
};
use crate::{
    SubmitError,
    worker::{BoxFuture, Context, Outcome, Park, Stop, panicked},
};

/// How soon it is looked again whether mail came for a handler that waits for it and does something else as well.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A wait for a time that is no longer than this is not worth parking the job.
const INLINE_MAX: Duration = Duration::from_secs(2);
/// How long before a store that could not take something is asked again.
const BACK_OFF: Duration = Duration::from_millis(200);

/// Runs a durable handler to its end, or until it can only wait.
pub(crate) async fn run(
    context: Context,
    start: impl FnOnce(Ctx) -> BoxFuture<Result<Outcome, Failure>> + Send,
) -> Result<Outcome, Failure> {
    let ledger = load(&context).await?;
    let job = context.job();
    let began = job.started_at.unwrap_or(job.updated_at);
    let mut journal = Journal::new(job.epoch, job.attempt, job.ledger, ledger, began);
    journal.cancelled = job.cancel.is_some();
    let exec = Exec::new(context, journal);
    let handler = start(Ctx::new(exec.clone()));
    let mut drive = Drive::new(exec, handler);
    let ended = drive.run().await;
    drive.is_done = true;
    ended
}

/// The ledger of the job. There is nothing to read of a job that has done nothing yet.
async fn load(context: &Context) -> Result<Ledger, Failure> {
    let job = context.job();
    if job.ledger.is_empty() {
        return Ok(Ledger::default());
    }
    let inner = context.engine().inner();
    let Some(store) = &inner.own else {
        return Err(Failure::own(HANDLER_FAILED, "a durable handler runs where its store is"));
    };
    loop {
        match store.ledger(&Scope::Every, job.id, job.ledger.checkpoint).await {
            Ok(ledger) => return Ok(ledger.unwrap_or_default()),
            Err(error) if error.info().retryable => sleep(BACK_OFF).await,
            Err(error) => return Err(Failure::own(HANDLER_FAILED, &error.to_string())),
        }
    }
}

/// Wakes the driver when something wakes the handler.
#[derive(Debug, Default)]
struct Root(Notify);

impl Wake for Root {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// How the handler ended.
enum Ending {
    Returned(Result<Outcome, Failure>),
    Trouble(Trouble),
}

type Writing = BoxFuture<(Vec<Entry>, Result<Answer, SubmitError>)>;

struct Drive {
    exec: Arc<Exec>,
    handler: Option<BoxFuture<Result<Outcome, Failure>>>,
    root: Arc<Root>,
    waker: Waker,
    ending: Option<Ending>,
    writing: Option<Writing>,
    /// What is being written, for the case that it is refused.
    in_flight: Vec<Entry>,
    is_done: bool,
    looked_at_children: bool,
}

impl Drop for Drive {
    /// An execution that is dropped has lost its lease, or its worker ends: what came of its steps is handed in.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        self.exec.close();
        let mut entries = std::mem::take(&mut self.in_flight);
        let mut journal = self.exec.journal();
        entries.extend(journal.take_all());
        let mut outcomes: Vec<(StepKey, StepOutcome)> =
            entries.into_iter().filter_map(effect_of).collect();
        outcomes.extend(journal.take_ended_once());
        drop(journal);
        late::hand_in(&self.exec, outcomes);
    }
}

/// What a record says of an effect that must not be repeated.
fn effect_of(entry: Entry) -> Option<(StepKey, StepOutcome)> {
    match entry.what {
        Happened::Recorded { outcome, .. } if entry.shape.mode == Some(Mode::Once) => {
            Some((entry.key, outcome))
        }
        _ => None,
    }
}

impl Drive {
    fn new(exec: Arc<Exec>, handler: BoxFuture<Result<Outcome, Failure>>) -> Self {
        let root = Arc::new(Root::default());
        let waker = Waker::from(root.clone());
        Self {
            exec,
            handler: Some(handler),
            root,
            waker,
            ending: None,
            writing: None,
            in_flight: Vec::new(),
            is_done: false,
            looked_at_children: false,
        }
    }

    async fn run(&mut self) -> Result<Outcome, Failure> {
        loop {
            self.hear_cancel();
            self.poll_handler();
            if self.advance() {
                continue;
            }
            self.write();
            if let Some(ended) = self.end() {
                return ended;
            }
            if !std::mem::replace(&mut self.looked_at_children, true)
                && look_at_children(&self.exec).await
            {
                continue;
            }
            if let Some(park) = self.park() {
                return Ok(Outcome::park(park));
            }
            self.wait().await?;
        }
    }

    /// A cancel reaches the handler at its next durable operation.
    fn hear_cancel(&self) {
        if self.exec.context.stop() == Some(Stop::Cancelled) {
            self.exec.journal().cancelled = true;
        }
    }

    /// Polls the handler until it is at rest.
    fn poll_handler(&mut self) {
        let Some(handler) = self.handler.as_mut().filter(|_| self.ending.is_none()) else { return };
        let mut task = TaskContext::from_waker(&self.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(&mut task)));
        self.ending = match polled {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(ended)) => Some(Ending::Returned(ended)),
            Err(panic) => Some(Ending::Returned(Err(panicked(&*panic)))),
        };
        if self.ending.is_some() {
            self.handler = None;
        }
    }

    /// Delivers one thing, or begins what was asked for. Is there a reason to poll the handler again?
    fn advance(&mut self) -> bool {
        let now = self.exec.context.engine().inner().now();
        let chance = self.exec.chance();
        let foreign = self.foreign();
        let trouble = self.exec.journal().trouble.take();
        if let Some(trouble) = trouble {
            // Its futures look into the journal when they are dropped.
            self.handler = None;
            self.ending = Some(Ending::Trouble(trouble));
        }
        let mut journal = self.exec.journal();
        if self.ending.is_some() {
            // What steps gave that nobody waits for is recorded all the same.
            while journal.deliver().is_some() {}
            return false;
        }
        if let Some(waker) = journal.deliver() {
            drop(journal);
            waker.into_iter().for_each(Waker::wake);
            return true;
        }
        if let Some(key) = journal.is_astray().filter(|_| foreign == 0).cloned() {
            let message =
                format!("the record has step {key} next, and the code does not ask for it");
            journal.park("NONDETERMINISTIC", message, None);
            return true;
        }
        let wake = journal.start(now, self.writing.is_some(), chance);
        let more = journal.has_ended();
        drop(journal);
        let woke = !wake.is_empty();
        wake.into_iter().for_each(Waker::wake);
        woke || more
    }

    /// How many clones of the handler's waker are held by others than durable operations: something foreign is awaited.
    fn foreign(&self) -> usize {
        let journal = self.exec.journal();
        let own = journal.wakers().filter(|waker| waker.will_wake(&self.waker)).count();
        // This driver holds two: the root itself, and its waker.
        Arc::strong_count(&self.root).saturating_sub(2 + own)
    }

    /// Writes what cannot wait, unless something is being written.
    fn write(&mut self) {
        if self.writing.is_some() {
            return;
        }
        let entries = self.exec.journal().take_urgent();
        // What is left at the end goes with the report of the execution.
        if entries.is_empty() {
            return;
        }
        if self.ending.is_some() && !self.exec.journal().runs_once() {
            self.exec.journal().put_back(entries);
            return;
        }
        self.in_flight.clone_from(&entries);
        let exec = self.exec.clone();
        self.writing = Some(Box::pin(async move {
            let children = exec.take_children(&entries);
            let answer = submit(&exec, &entries).await;
            if answer.is_ok() {
                make_children(&exec, children).await;
            }
            (entries, answer)
        }));
    }

    /// The end of the execution, if it has come.
    fn end(&mut self) -> Option<Result<Outcome, Failure>> {
        if self.ending.is_none() || self.writing.is_some() {
            return None;
        }
        let mut journal = self.exec.journal();
        if journal.runs_once() {
            return None;
        }
        let is_success = matches!(&self.ending, Some(Ending::Returned(Ok(_))));
        if let Some(key) = journal.unasked().filter(|_| is_success).cloned() {
            let message = format!("step {key} is on record, and the code returned without it");
            let trouble = Trouble::Park { code: "NONDETERMINISTIC", message, step: None };
            self.ending = Some(Ending::Trouble(trouble));
        }
        let entries = journal.take_all();
        let mails_seen = Some(journal.mails_seen());
        drop(journal);
        Some(match self.ending.take().expect("it was looked at") {
            Ending::Returned(ended) => {
                self.exec.context.leave(entries);
                ended
            }
            Ending::Trouble(Trouble::Fail(failure)) => {
                self.exec.context.leave(entries);
                Err(failure)
            }
            Ending::Trouble(Trouble::Park { code, message, step }) => {
                let on = WaitOn::Operator { code: code.to_owned(), step, message };
                let wait = Wait { on, until: None };
                Ok(Outcome::park(Park { entries, wait, mails_seen }))
            }
        })
    }

    /// What to park the job on, if the handler can only wait.
    fn park(&mut self) -> Option<Park> {
        if self.writing.is_some() || self.ending.is_some() {
            return None;
        }
        // A combinator such as FuturesUnordered holds one clone of the waker for all that it waits for.
        let foreign = self.foreign();
        let now = self.exec.context.engine().inner().now();
        let mut journal = self.exec.journal();
        let has_inner = journal.wakers().any(|waker| !waker.will_wake(&self.waker));
        if foreign > usize::from(has_inner) || journal.is_busy() {
            return None;
        }
        let mut on = Vec::new();
        let mut until: Option<Timestamp> = None;
        for (_, cell) in journal.waits() {
            let (each, at) = wait_on(cell);
            if !on.contains(&each) {
                on.push(each);
            }
            until = [until, at].into_iter().flatten().min();
        }
        let is_short = until.is_some_and(|until| until.since(now) <= INLINE_MAX);
        if on.is_empty() || (is_short && on.iter().all(|on| *on == WaitOn::Time)) {
            return None;
        }
        on.sort_by_key(ToString::to_string);
        let on = if on.len() == 1 { on.remove(0) } else { WaitOn::Any(on) };
        let (entries, mails_seen) = (journal.take_all(), Some(journal.mails_seen()));
        Some(Park { entries, wait: Wait { on, until }, mails_seen })
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) -> Result<(), Failure> {
        let exec = self.exec.clone();
        let due = self.next_due();
        let waits_for_mail = exec.journal().waits().iter().any(|(_, cell)| is_for_mail(cell));
        let look = async {
            match waits_for_mail {
                true => sleep(LOOK_EVERY).await,
                false => std::future::pending().await,
            }
        };
        let timer = async {
            match due {
                Some(due) => sleep(due).await,
                None => std::future::pending().await,
            }
        };
        let is_cancelled = exec.journal().cancelled;
        let cancelled = async {
            match is_cancelled {
                true => std::future::pending().await,
                false => exec.context.cancel_requested().await,
            }
        };
        let writing = async {
            match &mut self.writing {
                Some(writing) => writing.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            written = writing => {
                self.writing = None;
                self.written(written);
            }
            () = self.root.0.notified() => {}
            () = exec.changed.notified() => {}
            () = cancelled => {}
            () = timer => {}
            () = look => {
                look_for_mail(&exec).await;
                look_at_children(&exec).await;
            }
        }
        Ok(())
    }

    /// The store has answered.
    fn written(&mut self, (entries, answer): (Vec<Entry>, Result<Answer, SubmitError>)) {
        match answer {
            Ok(answer) => {
                self.in_flight.clear();
                let mut journal = self.exec.journal();
                let mut wake = Vec::new();
                for (entry, answer) in entries.iter().zip(&answer.steps) {
                    if matches!(entry.what, Happened::Begun { .. }) {
                        wake.extend(journal.begun(&entry.key, answer));
                    }
                }
                drop(journal);
                wake.into_iter().for_each(Waker::wake);
            }
            Err(SubmitError::Refused(refusal)) => self.refused(&refusal),
            // What could not be written is written again; if the lease is lost meanwhile, this is dropped.
            Err(_) => {
                self.in_flight.clear();
                self.exec.journal().put_back(entries);
            }
        }
    }

    fn refused(&mut self, refusal: &Refusal) {
        match refusal {
            // The lease is lost: this execution is dropped in a moment, and what it did is handed in.
            Refusal::StaleAttempt | Refusal::InvalidTransition { .. } => {
                let inner = self.exec.context.engine().inner();
                inner.local.lose(self.exec.job_id(), self.exec.epoch());
            }
            Refusal::Nondeterministic { .. } => {
                self.in_flight.clear();
                self.exec.journal().park("NONDETERMINISTIC", refusal.to_string(), None);
            }
            other => {
                self.in_flight.clear();
                let failure = Failure::own(LEDGER_FULL, &other.to_string());
                self.exec.journal().trouble.get_or_insert(Trouble::Fail(failure));
            }
        }
    }

    /// How long until a time that the handler waits for.
    fn next_due(&self) -> Option<Duration> {
        let now = self.exec.context.engine().inner().now();
        let journal = self.exec.journal();
        let due = journal.waits().into_iter().filter_map(|(_, cell)| wait_on(cell).1).min();
        due.map(|due| due.since(now).max(Duration::from_millis(1)))
    }
}

/// Takes the mail that came since.
async fn look_for_mail(exec: &Exec) {
    let inner = exec.context.engine().inner();
    let Some(store) = &inner.own else { return };
    let found = store.ledger(&Scope::Every, exec.job_id(), u32::MAX);
    if let Ok(Ok(Some(ledger))) = timeout(LOOK_EVERY * 10, found).await {
        exec.journal().add_mail(ledger.mails);
    }
}

/// Looks whether children that the handler waits for have ended. Is there something new?
async fn look_at_children(exec: &Exec) -> bool {
    let waits: Vec<_> = {
        let journal = exec.journal();
        let children = journal.waits().into_iter().filter_map(|(key, cell)| match cell.wanted {
            Wanted::Child { child } => Some((key.clone(), child)),
            _ => None,
        });
        children.collect()
    };
    let mut found = false;
    for (key, child) in waits {
        let inner = exec.context.engine().inner();
        let Ok(Some(job)) = inner.store.job(&Scope::Every, child).await else { continue };
        if !job.state.is_end() {
            continue;
        }
        let output = inner.store.last_output(&Scope::Every, child).await;
        let result = output.ok().flatten().filter(|output| output.attempt == job.attempt);
        let result = result.and_then(|output| output.result);
        let outcome = child_outcome(&job, result.as_deref());
        exec.journal().end(&key, outcome, RecordedBy::Executed, None);
        found = true;
    }
    found
}

/// What the parent is told of a child that ended.
fn child_outcome(job: &windlass_kernel::Job, result: Option<&str>) -> StepOutcome {
    let failed = |failure| StepOutcome::Failed(failure);
    match job.state {
        State::Succeeded | State::Partial => match Exec::payload(result.unwrap_or("null")) {
            Ok(payload) => StepOutcome::Done(payload),
            Err(refusal) => failed(Failure::own(CHILD_FAILED, &refusal.to_string())),
        },
        State::Cancelled => {
            failed(Failure::own(CHILD_CANCELLED, &format!("{} was cancelled", job.id)))
        }
        _ => {
            let error = job.error.as_ref();
            let why = error.map_or_else(String::new, |it| format!("{}: {}", it.code, it.message));
            failed(Failure::own(CHILD_FAILED, &format!("{} failed: {why}", job.id)))
        }
    }
}

/// What a cell waits for, and until when.
fn wait_on(cell: &Cell) -> (WaitOn, Option<Timestamp>) {
    let until = match &cell.phase {
        Phase::Waits { until } => *until,
        Phase::BacksOff { until } => return (WaitOn::Time, Some(*until)),
        _ => None,
    };
    let on = match &cell.wanted {
        Wanted::Signal { key, .. } => WaitOn::Signal(key.clone()),
        Wanted::Receive { channel, .. } => WaitOn::Message(channel.clone()),
        Wanted::Child { child } => WaitOn::Child(*child),
        Wanted::Sleep { .. } | Wanted::Step | Wanted::Value(_) => WaitOn::Time,
    };
    (on, until)
}

fn is_for_mail(cell: &Cell) -> bool {
    matches!(cell.wanted, Wanted::Signal { .. } | Wanted::Receive { .. } | Wanted::Child { .. })
}

/// Advances the ledger; the same again is answered from the record.
async fn submit(exec: &Exec, entries: &[Entry]) -> Result<Answer, SubmitError> {
    let by = windlass_kernel::By::worker(exec.context.worker().clone());
    let (job_id, epoch, entries) = (exec.job_id(), exec.epoch(), entries.to_vec());
    let op = Op::Advance(Advance { job_id, epoch, by, entries });
    let tenant = exec.context.tenant().clone();
    let inner = exec.context.engine().inner();
    loop {
        let request = TenantOp { tenant: tenant.clone(), op: op.clone() };
        match inner.submit_known(request).await {
            Err(SubmitError::Store(error)) if error.info().retryable => sleep(BACK_OFF).await,
            Err(SubmitError::Full) => sleep(BACK_OFF).await,
            answer => return answer.map(|(answer, _)| answer),
        }
    }
}

/// Makes the children that these steps are. One that is there already is met by its id.
async fn make_children(exec: &Exec, children: Vec<windlass_kernel::ops::Enqueue>) {
    let inner = exec.context.engine().inner();
    for child in children {
        let tenant = exec.context.tenant().clone();
        loop {
            let request = TenantOp { tenant: tenant.clone(), op: child.clone().into() };
            match inner.submit_known(request).await {
                Err(SubmitError::Store(error)) if error.info().retryable => sleep(BACK_OFF).await,
                Err(SubmitError::Full) => sleep(BACK_OFF).await,
                _ => break,
            }
        }
    }
}
