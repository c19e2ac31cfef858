//! The writer: the thread that decides what is written.
//!
//! It takes a batch, loads its rows, asks the kernel, and makes a plan (the write set of one
//! transaction), which the saver puts on the disk. While it does, the writer makes the next plan:
//! it sees plans in flight as if they were written (pipelined commits). Nobody is told of a plan
//! before it is on the disk; if that fails, what was planned on top of it is planned anew.
//!
//! A row that cannot be right ends it for good, and so does an error of the disk.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, PoisonError},
};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use tokio::sync::mpsc;
use windlass_kernel::{
    Jitter, JobId, Retention, Timestamp, WorkerId,
    ops::{Expire, Expiry},
};

use super::{
    begun::Begun,
    decide::{AnsweredPlan, PlanOutcome, State, WriterCache, decide},
    rest::Rest,
    saver::{CommitRequest, Disk, Gate, Outcome, Saver, Saves, ends},
    write_plan::WritePlan,
    writer_thread::Request,
};
use crate::{
    Error, Overlap, Replies, Write,
    read::Pruned,
    sqlite::{
        SqlResult, classify,
        file::{
            mark::Point,
            now::Now,
            open::{INCARNATION, SET_INCARNATION},
        },
        retention::prune::{self, Sweep},
        row::{inbox, lease},
    },
};

/// One commit is decided while another is written, unless it is so small that the Committer would rather let it grow.
pub(crate) const OVERLAP: Overlap = Overlap { commits_max: 2, writes_min: 64 };

/// What the thread owns.
pub(crate) struct Writer {
    /// It only reads.
    connection: Connection,
    saver: Saver,
    gate: Gate,
    now: Arc<Now>,
    known: WriterCache,
    /// Plans that are on their way, oldest first.
    flying: VecDeque<Arc<WritePlan>>,
    sweep: Sweep,
    /// The greatest id of a job that is forgotten while the log still speaks of it.
    last_pruned: Option<JobId>,
    /// A plan was given up or could not be written, so the caches in `known` may be ahead of the
    /// database.
    is_unsure: bool,
    incarnation: u32,
    /// How many rows of the inbox the last plan took.
    promoting: usize,
}

const LAST_AT: &str = "SELECT at FROM log ORDER BY id DESC LIMIT 1";

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        saver: Saver,
        gate: Gate,
        now: Arc<Now>,
    ) -> Result<Self, Error> {
        let known = WriterCache::load(&connection).map_err(classify)?;
        let at =
            connection.query_row(LAST_AT, [], |row| row.get(0)).optional().map_err(classify)?;
        now.at_least(Timestamp::from_micros(at.unwrap_or(0)));
        let incarnation = connection.query_row(INCARNATION, [], |row| row.get(0)).optional();
        let incarnation = incarnation.map_err(classify)?.unwrap_or(0);
        let last_pruned = prune::load_last_pruned(&connection).map_err(classify)?;
        Ok(Self {
            connection,
            saver,
            gate,
            now,
            known,
            flying: VecDeque::new(),
            sweep: Sweep::default(),
            last_pruned,
            is_unsure: false,
            incarnation,
            promoting: 0,
        })
    }

    /// Ends the leases of earlier incarnations: they are from before the store was restored, so their
    /// workers know of a past that this store has not had. Each is an op like any other.
    pub(crate) fn end_old_leases(&mut self) -> Result<(), Error> {
        let first_epoch = u64::from(self.incarnation) << 32;
        loop {
            let old = lease::load_leased_before(&self.connection, first_epoch).map_err(classify)?;
            let expire = |(tenant, job_id, version)| {
                let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
                Write::Op { tenant, op: Expire { job_id, version, what, jitter }.into() }
            };
            let writes: Vec<Write> = old.into_iter().map(expire).collect();
            if writes.is_empty() {
                return Ok(());
            }
            let done = self.commit_with(&writes, 0)?;
            // Each ends a lease; if none did, nothing more can be done here, and leases still lapse.
            if !done.is_some_and(|replies| replies.iter().any(Result::is_ok)) {
                return Ok(());
            }
        }
    }

    pub(crate) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut rest = Rest::default();
        while let Some(request) = rest.until(&mut requests) {
            let by = if requests.is_empty() { Saves::Writer } else { Saves::Saver };
            if !self.answer(request, by) {
                // Dropping the saver first answers the callers whose plans it has written; only
                // then do the requests that still wait hear that the store has stopped.
                return drop(self);
            }
        }
        if self.land_all().is_ok() {
            // The last connection to close checkpoints the log, and one that reads cannot.
            let Self { connection, saver, .. } = self;
            drop(connection);
            saver.close();
        }
    }

    /// Answers a request, or hands it to the saver. False, if the writer has to end.
    fn answer(&mut self, request: Request, by: Saves) -> bool {
        if let Err(error) = self.land() {
            request.refuse(error);
            return false;
        }
        match request {
            Request::Commit(writes, answer) => self.commit(CommitRequest { writes, answer }, by),
            Request::Prune(retention, max, answer) => {
                tell(self.prune(retention, max), |result| drop(answer.send(result)))
            }
            Request::RaiseIncarnation(answer) => {
                tell(self.raise_incarnation(), |result| drop(answer.send(result)))
            }
            Request::Vouch(worker, vouched, answer) => {
                tell(self.vouch(&worker, vouched), |result| drop(answer.send(result)))
            }
            // The look itself is the `land` above: outcomes of the saver were taken there.
            Request::Look => true,
        }
    }

    fn raise_incarnation(&mut self) -> Result<(), Error> {
        self.land_all()?;
        let next = self.incarnation + 1;
        let point = Point { incarnation: next, event: self.known.numbers.event };
        let raise = move |disk: &mut Disk| -> SqlResult<()> {
            disk.connection.execute(SET_INCARNATION, [next])?;
            disk.note(point);
            Ok(())
        };
        self.saver.run(raise)?.map_err(classify)?;
        self.incarnation = next;
        Ok(())
    }

    /// Notes whether a process vouches for a worker. One row, so one transaction.
    fn vouch(&mut self, worker: &WorkerId, vouched: bool) -> Result<(), Error> {
        self.land_all()?;
        self.be_sure()?;
        let (names, now) = (self.known.vouch(worker, vouched), self.now.get());
        if names.is_empty() {
            return Ok(());
        }
        let saved = self.saver.run(move |disk| names.save(&disk.connection, now))?;
        self.is_unsure = saved.is_err();
        saved.map_err(classify)
    }

    /// One step of retention, one transaction. It writes no event. After an error the pass begins anew.
    fn prune(&mut self, retention: Retention, max: usize) -> Result<Pruned, Error> {
        self.land_all()?;
        let now = self.now.get();
        let sweep = mem::take(&mut self.sweep);
        let step = move |disk: &mut Disk| -> SqlResult<_> {
            let transaction =
                disk.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (pruned, sweep) = prune::prune(&transaction, sweep, &retention, max, now)?;
            let last_pruned = prune::load_last_pruned(&transaction)?;
            transaction.commit()?;
            Ok((pruned, sweep, last_pruned))
        };
        let (pruned, sweep, last_pruned) = self.saver.run(step)?.map_err(classify)?;
        (self.sweep, self.last_pruned) = (sweep, last_pruned);
        Ok(pruned)
    }

    /// Takes the outcomes of plans in flight that the saver has reported so far.
    fn land(&mut self) -> Result<(), Error> {
        while let Some(outcome) = self.saver.try_outcome() {
            self.landed(outcome)?;
        }
        Ok(())
    }

    /// Waits until no plan is in flight.
    fn land_all(&mut self) -> Result<(), Error> {
        while !self.flying.is_empty() {
            let outcome = self.saver.outcome()?;
            self.landed(outcome)?;
        }
        Ok(())
    }

    fn landed(&mut self, outcome: Outcome) -> Result<(), Error> {
        let plan = self.flying.pop_front();
        match outcome {
            Outcome::Told | Outcome::Saved(..) => {
                let plan = plan.and_then(Arc::into_inner).expect("the saver is done with it");
                self.known.held.put_back(plan.rows);
                Ok(())
            }
            Outcome::Failed { ended: true, error } => Err(error.unwrap_or_else(ended)),
            Outcome::Failed { ended: false, .. } | Outcome::Skipped(_) => self.plan_anew(),
        }
    }

    /// After a failure: what was planned on top of it is skipped. It is planned anew, each on its own.
    fn plan_anew(&mut self) -> Result<(), Error> {
        self.is_unsure = true;
        let mut skipped = Vec::new();
        while self.flying.pop_front().is_some() {
            if let Outcome::Skipped(Some(asked)) = self.saver.outcome()? {
                skipped.push(asked);
            }
        }
        for CommitRequest { writes, answer } in skipped {
            if !tell(self.commit_now(&writes), |result| drop(answer.send(result))) {
                return Err(ended());
            }
        }
        Ok(())
    }

    /// Plans a batch and lets it go; or, if it is small and nobody else asks for anything, or if the inbox is not
    /// empty, sees it through.
    fn commit(&mut self, asked: CommitRequest, by: Saves) -> bool {
        match self.plan(&asked.writes, None) {
            Ok(Some(AnsweredPlan { plan, replies })) => {
                // Counted by rows, not by writes: one claim may take hundreds of jobs.
                let is_small = plan.rows.len() < OVERLAP.writes_min as usize;
                let by = if is_small && self.flying.is_empty() { by } else { Saves::Saver };
                self.flying.push_back(plan.clone());
                self.saver.save(plan, replies, Some(asked), self.incarnation, by).is_ok()
            }
            Ok(None) => {
                let done = self.commit_now(&asked.writes);
                tell(done, |result| drop(asked.answer.send(result)))
            }
            Err(error) => tell(Err(error), |result| drop(asked.answer.send(result))),
        }
    }

    /// A batch, and before it what waits in the inbox, in one transaction.
    ///
    /// The inbox gets transactions of its own in two cases: it is long and may hold a job that the batch
    /// names, or the database refuses what some row would do, which must not fail the batch.
    fn commit_now(&mut self, writes: &[Write]) -> Result<Replies, Error> {
        match self.commit_with(writes, inbox::ROWS_MAX) {
            Ok(Some(replies)) => return Ok(replies),
            Err(Error::Contradiction(_)) if self.promoting > 0 => {}
            Ok(None) => {}
            Err(error) => return Err(error),
        }
        self.promote_all()?;
        let replies = self.commit_with(writes, 0)?;
        Ok(replies.expect("without the inbox nothing is missing from it"))
    }

    /// Promotes all that waits now. Rows that the database refuses are halved until the one that is to
    /// blame stands alone; it is set aside.
    fn promote_all(&mut self) -> Result<(), Error> {
        let mut left = inbox::count(&self.connection).map_err(classify)?;
        let mut rows_max = inbox::ROWS_MAX;
        while left > 0 {
            match self.commit_with(&[], rows_max) {
                Ok(_) => rows_max = (rows_max * 2).min(inbox::ROWS_MAX),
                Err(Error::Contradiction(_)) if self.promoting > 1 => {
                    rows_max = self.promoting / 2;
                    continue;
                }
                Err(Error::Contradiction(why)) if self.promoting == 1 => {
                    let (why, now) = (format!("the database refuses it: {why}"), self.now.get());
                    self.saver
                        .run(move |disk| inbox::set_first_aside(&mut disk.connection, &why, now))?
                        .map_err(classify)?;
                }
                Err(error) => return Err(error),
            }
            left = left.saturating_sub(self.promoting.max(1));
        }
        Ok(())
    }

    /// A batch and so many rows of the inbox, in one transaction that is waited for. None, if an op
    /// was refused and the job that it names may still wait in the inbox: then nothing was written.
    fn commit_with(
        &mut self,
        writes: &[Write],
        inbox_max: usize,
    ) -> Result<Option<Replies>, Error> {
        self.land_all()?;
        let Some(AnsweredPlan { plan, replies }) = self.plan(writes, Some(inbox_max))? else {
            return Ok(None);
        };
        self.saver.save(plan.clone(), replies, None, self.incarnation, Saves::Writer)?;
        match self.saver.outcome()? {
            Outcome::Saved(replies, last_event) => {
                self.known.numbers.event = last_event;
                let plan = Arc::into_inner(plan).expect("the saver is done with it");
                self.known.held.put_back(plan.rows);
                Ok(Some(replies))
            }
            Outcome::Failed { error, .. } => {
                self.is_unsure = true;
                Err(error.unwrap_or_else(ended))
            }
            Outcome::Told | Outcome::Skipped(_) => unreachable!("nobody else was to be told"),
        }
    }

    /// Decides a batch, and before it so many rows of the inbox. None, as in [`Self::commit_with`]; or, if it
    /// is to take none, because something waits there.
    fn plan(
        &mut self,
        writes: &[Write],
        take: Option<usize>,
    ) -> Result<Option<AnsweredPlan>, Error> {
        let now = match Write::accept_clock(writes) {
            true => self.now.accept(),
            false => self.now.get(),
        };
        loop {
            self.be_sure()?;
            match self.try_plan(writes, take, now).map_err(classify) {
                Ok(PlanOutcome::Planned(planned)) => return Ok(Some(planned)),
                Ok(PlanOutcome::HasToWait) => self.land_all()?,
                Ok(PlanOutcome::InboxWaits) => return Ok(None),
                Ok(PlanOutcome::MayBeInInbox) => {
                    self.is_unsure = true;
                    return Ok(None);
                }
                Err(error) => {
                    self.is_unsure = true;
                    return Err(error);
                }
            }
        }
    }

    /// Reloads the caches from the database, if a plan that they include was not written.
    fn be_sure(&mut self) -> Result<(), Error> {
        while self.is_unsure {
            self.is_unsure = false;
            // A plan in flight that fails meanwhile makes the caches unsure again, hence the loop.
            self.land_all()?;
            self.known = WriterCache::load(&self.connection).map_err(classify)?;
        }
        Ok(())
    }

    fn try_plan(
        &mut self,
        writes: &[Write],
        take: Option<usize>,
        now: Timestamp,
    ) -> SqlResult<PlanOutcome> {
        let _looks = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = Begun::to_read(&self.connection)?;
        if take.is_none() && !inbox::is_empty(&snapshot)? {
            return Ok(PlanOutcome::InboxWaits);
        }
        let inbox = inbox::load_batch(&snapshot, take.unwrap_or(0))?;
        self.promoting = inbox.rows();
        let (last_pruned, incarnation) = (self.last_pruned, self.incarnation);
        let state = State { snapshot: &snapshot, flying: &self.flying, last_pruned, incarnation };
        decide(&state, &mut self.known, inbox, writes, now)
    }
}

/// Gives an answer, and says whether the writer may go on after it.
fn tell<T>(result: Result<T, Error>, answer: impl FnOnce(Result<T, Error>)) -> bool {
    let stops = result.as_ref().is_err_and(ends);
    answer(result);
    !stops
}

fn ended() -> Error {
    Error::Stopped("its writer has ended".to_owned())
}
