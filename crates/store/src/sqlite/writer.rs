//! The writer: the thread that decides what is written.
//!
//! It takes a batch, looks at the database, asks the rules, and makes a plan of all that changes, which the
//! saver puts on the disk. While it does, the writer makes the next plan: it sees those that are on their
//! way as if they were written. Nobody is told of a plan before it is on the disk; if that fails, what was
//! planned on top of it is planned anew.
//!
//! A row that cannot be right ends it for good, and so does an error of the disk.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use tokio::sync::mpsc;
use windlass_kernel::{
    Answer, Jitter, JobId, NewPayload, Op, Refusal, Retention, TenantId, Timestamp, WorkerId,
    ops::{Expire, Expiry},
};

use super::{
    Clock, SqlResult, claim, classify, inbox, load,
    mark::Point,
    names::Names,
    open::{INCARNATION, SET_INCARNATION},
    plan::{Numbers, Plan},
    retention::{self, Sweep},
    saver::{Asker, Gate, Outcome, Saver, ends},
    work::{Held, Work},
    writer_thread::Request,
};
use crate::{
    ClaimMany, Error, Replies, Reply, Write,
    commit::{Granted, Needs},
    read::Pruned,
};

/// What the thread owns.
pub(super) struct Writer {
    /// It only reads.
    connection: Connection,
    saver: Saver,
    gate: Gate,
    clock: Clock,
    known: Known,
    /// Plans that are on their way, oldest first, and the batches they were made of.
    flying: VecDeque<Arc<Plan>>,
    batches: VecDeque<Arc<Vec<Write>>>,
    sweep: Sweep,
    /// The greatest id of a job that is forgotten while the log still speaks of it.
    last_pruned: Option<JobId>,
    /// A plan was given up, or could not be written: what is known may be what is not so.
    is_unsure: bool,
    last_now: Timestamp,
    incarnation: u32,
    /// How many rows of the inbox the last plan took.
    promoting: usize,
}

/// What the writer knows without a look: what is stored, and what is planned on top of it.
struct Known {
    names: Names,
    held: Held,
    numbers: Numbers,
}

const NEWEST: &str = "SELECT coalesce(max(id), zeroblob(16)), coalesce(max(seq), 0) FROM jobs";
const LAST: &str = "SELECT id + count - 1, at FROM log ORDER BY id DESC LIMIT 1";

impl Known {
    fn load(connection: &Connection) -> SqlResult<Self> {
        let last = connection.query_row(LAST, [], |row| row.get(0)).optional()?;
        let (newest, seq) =
            connection.query_row(NEWEST, [], |row| Ok((load::u128_of(row, 0)?, row.get(1)?)))?;
        let (event, newest) = (last.unwrap_or(0), JobId::from_u128(newest));
        let numbers = Numbers { event, seq, newest };
        Ok(Self { names: Names::load(connection)?, held: Held::default(), numbers })
    }
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        saver: Saver,
        gate: Gate,
        clock: Clock,
    ) -> Result<Self, Error> {
        let known = Known::load(&connection).map_err(classify)?;
        let at = connection.query_row(LAST, [], |row| row.get(1)).optional().map_err(classify)?;
        let last_now = Timestamp::from_micros(at.unwrap_or(0));
        let incarnation = connection.query_row(INCARNATION, [], |row| row.get(0)).optional();
        let incarnation = incarnation.map_err(classify)?.unwrap_or(0);
        let last_pruned = retention::load_last_pruned(&connection).map_err(classify)?;
        Ok(Self {
            connection,
            saver,
            gate,
            clock,
            known,
            flying: VecDeque::new(),
            batches: VecDeque::new(),
            sweep: Sweep::default(),
            last_pruned,
            is_unsure: false,
            last_now,
            incarnation,
            promoting: 0,
        })
    }

    /// Ends the leases of earlier incarnations: they are from before the store was restored, so their
    /// workers know of a past that this store has not had. Each is an op like any other.
    pub(super) fn end_old_leases(&mut self) -> Result<(), Error> {
        let first_epoch = u64::from(self.incarnation) << 32;
        loop {
            let old = load::load_leased_before(&self.connection, first_epoch).map_err(classify)?;
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

    pub(super) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(request) = requests.blocking_recv() {
            if !self.answer(request) {
                // Whoever the saver has an answer for hears that, before others hear that it has ended.
                return drop(self);
            }
        }
        if self.land_all().is_ok() {
            // The last connection to close folds the log into the file, and one that reads cannot.
            let Self { connection, saver, .. } = self;
            drop(connection);
            saver.close();
        }
    }

    /// Does what was asked, or sees to it. It says whether the writer may go on.
    fn answer(&mut self, request: Request) -> bool {
        if let Err(error) = self.land() {
            request.refuse(error);
            return false;
        }
        match request {
            Request::Commit(writes, asker) => self.commit(writes, asker),
            Request::Prune(retention, max, asker) => tell(self.prune(retention, max), |result| {
                let _ = asker.send(result);
            }),
            Request::RaiseIncarnation(asker) => tell(self.raise_incarnation(), |result| {
                let _ = asker.send(result);
            }),
            // It has.
            Request::Look => true,
        }
    }

    fn raise_incarnation(&mut self) -> Result<(), Error> {
        self.land_all()?;
        let next = self.incarnation + 1;
        let point = Point { incarnation: next, event: self.known.numbers.event };
        let raise = move |disk: &mut super::saver::Disk| -> SqlResult<()> {
            disk.connection.execute(SET_INCARNATION, [next])?;
            disk.note(point);
            Ok(())
        };
        self.saver.run(raise)?.map_err(classify)?;
        self.incarnation = next;
        Ok(())
    }

    /// One step of retention, one transaction. It writes no event. After an error the pass begins anew.
    fn prune(&mut self, retention: Retention, max: usize) -> Result<Pruned, Error> {
        self.land_all()?;
        let now = (self.clock)().max(self.last_now);
        let sweep = mem::take(&mut self.sweep);
        let step = move |disk: &mut super::saver::Disk| -> SqlResult<_> {
            let transaction =
                disk.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (pruned, sweep) = retention::prune(&transaction, sweep, &retention, max, now)?;
            let last_pruned = retention::load_last_pruned(&transaction)?;
            transaction.commit()?;
            Ok((pruned, sweep, last_pruned))
        };
        let (pruned, sweep, last_pruned) = self.saver.run(step)?.map_err(classify)?;
        (self.sweep, self.last_pruned, self.last_now) = (sweep, last_pruned, now);
        Ok(pruned)
    }

    /// Hears what became of the plans that were on their way.
    fn land(&mut self) -> Result<(), Error> {
        while let Some(outcome) = self.saver.try_outcome() {
            self.landed(outcome)?;
        }
        Ok(())
    }

    /// Waits until no plan is on its way.
    fn land_all(&mut self) -> Result<(), Error> {
        while !self.flying.is_empty() {
            let outcome = self.saver.outcome()?;
            self.landed(outcome)?;
        }
        Ok(())
    }

    fn landed(&mut self, outcome: Outcome) -> Result<(), Error> {
        match outcome {
            Outcome::Told | Outcome::Saved(..) => {
                self.land_first();
                Ok(())
            }
            Outcome::Failed { ended: true, error } => Err(error.unwrap_or_else(ended)),
            Outcome::Failed { ended: false, .. } | Outcome::Skipped(_) => {
                self.give_up_first();
                self.plan_anew()
            }
        }
    }

    /// The oldest plan is on the disk.
    fn land_first(&mut self) {
        self.batches.pop_front();
        let plan = self.flying.pop_front().and_then(Arc::into_inner);
        self.known.held.put_back(plan.expect("the saver is done with it").rows);
    }

    /// The oldest plan was not written.
    fn give_up_first(&mut self) -> Option<Arc<Vec<Write>>> {
        self.is_unsure = true;
        self.flying.pop_front();
        self.batches.pop_front()
    }

    /// After a failure: what was planned on top of it was skipped. It is planned anew, each on its own.
    fn plan_anew(&mut self) -> Result<(), Error> {
        let mut skipped = Vec::new();
        while !self.flying.is_empty() {
            let outcome = self.saver.outcome()?;
            let writes = self.give_up_first();
            if let (Outcome::Skipped(Some(asker)), Some(writes)) = (outcome, writes) {
                skipped.push((writes, asker));
            }
        }
        for (writes, asker) in skipped {
            let goes_on = tell(self.commit_now(&writes), |result| drop(asker.send(result)));
            if !goes_on {
                return Err(ended());
            }
        }
        Ok(())
    }

    /// Plans a batch and lets it go; or, if the inbox is not empty, sees it through.
    fn commit(&mut self, writes: Arc<Vec<Write>>, asker: Asker) -> bool {
        match self.plan(&writes, inbox::ROWS_MAX) {
            Ok(Some(Planned { plan, replies })) if plan.inbox.is_empty() => {
                let plan = Arc::new(plan);
                self.flying.push_back(plan.clone());
                self.batches.push_back(writes);
                self.saver.save(plan, replies, Some(asker), self.incarnation).is_ok()
            }
            // It was not let go, so what is known has moved on without it.
            Ok(_) => {
                self.is_unsure = true;
                tell(self.commit_now(&writes), |result| drop(asker.send(result)))
            }
            Err(error) => tell(Err(error), |result| drop(asker.send(result))),
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
                    let (why, now) = (format!("the database refuses it: {why}"), self.last_now);
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

    /// A batch and so many rows of the inbox, in one transaction that is waited for. None, if something was
    /// refused and what it lacks may be among the rows that still wait: then nothing was written.
    fn commit_with(
        &mut self,
        writes: &[Write],
        inbox_max: usize,
    ) -> Result<Option<Replies>, Error> {
        self.land_all()?;
        let Some(Planned { plan, replies }) = self.plan(writes, inbox_max)? else {
            return Ok(None);
        };
        let plan = Arc::new(plan);
        self.saver.save(plan.clone(), replies, None, self.incarnation)?;
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

    /// Decides a batch, and before it so many rows of the inbox. None, as in [`Self::commit_with`].
    fn plan(&mut self, writes: &[Write], inbox_max: usize) -> Result<Option<Planned>, Error> {
        // The clock never goes back, whatever the machine's does.
        let now = (self.clock)().max(self.last_now);
        self.last_now = now;
        loop {
            while self.is_unsure {
                self.is_unsure = false;
                // One that fails meanwhile makes it unsure again.
                self.land_all()?;
                self.known = Known::load(&self.connection).map_err(classify)?;
            }
            match self.try_plan(writes, inbox_max, now).map_err(classify) {
                Ok(Tried::Planned(planned)) => return Ok(Some(planned)),
                Ok(Tried::HasToWait) => self.land_all()?,
                Ok(Tried::MayBeInInbox) => {
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

    fn try_plan(&mut self, writes: &[Write], inbox_max: usize, now: Timestamp) -> SqlResult<Tried> {
        let _looks = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.connection.transaction()?;
        let inbox = inbox::load_batch(&snapshot, inbox_max)?;
        self.promoting = inbox.rows();
        let joined;
        let writes = if inbox.len() == 0 {
            writes
        } else {
            joined = inbox.before(writes);
            &joined
        };
        let needs = Needs::of(writes);
        if !self.flying.is_empty() && (inbox.rows() > 0 || needs.more_than_jobs()) {
            return Ok(Tried::HasToWait);
        }
        let Known { names, held, numbers } = &mut self.known;
        let mut work =
            Work::new(self.incarnation, room(writes), names, held, &self.flying, numbers.newest);
        load::load(&snapshot, &needs, &mut work)?;
        let mut replies: Vec<Option<Result<Reply, Refusal>>> = vec![None; writes.len()];
        for (write, reply) in writes.iter().zip(&mut replies) {
            match (write.check(), write) {
                (Err(refusal), _) => *reply = Some(Err(refusal)),
                (Ok(()), Write::Op { op, .. })
                    if is_forgotten(&snapshot, op, self.last_pruned)? =>
                {
                    let job_id = op.new_job_id().expect("only a new id can be taken");
                    *reply = Some(Err(Refusal::JobExists { job_id }));
                }
                (Ok(()), Write::Op { tenant, op }) => {
                    *reply = Some(apply(tenant, op, &mut work, now));
                }
                (Ok(()), Write::Claim(_) | Write::RenewSession { .. }) => {}
            }
        }
        if inbox.is_full() && replies[inbox.len()..].iter().any(is_refused) {
            return Ok(Tried::MayBeInInbox);
        }
        let mut granted = Vec::new();
        for (place, write) in writes.iter().enumerate() {
            if replies[place].is_some() {
                continue;
            }
            match write {
                Write::Op { .. } => {}
                Write::Claim(wanted) => {
                    granted.push((place, claim_many(&snapshot, wanted, &mut work, now)?));
                }
                Write::RenewSession { worker, lease } => {
                    replies[place] = Some(renew(&snapshot, worker, *lease, &mut work, now)?);
                }
            }
        }
        let Work { set, names, .. } = work;
        let mut plan = Plan::new(set, names, numbers, now);
        for (place, grants) in granted {
            let grant = |(id, payload): claim::Grant| {
                let job = plan.rows[&id].job.clone();
                let load = || payload_of(&snapshot, id, &plan, &self.flying);
                Ok(Granted { job, payload: payload.map_or_else(load, Ok)? })
            };
            let leases: SqlResult<Vec<Granted>> = grants.into_iter().map(grant).collect();
            replies[place] = Some(Ok(Reply::Granted(leases?)));
        }
        let mut replies = replies.into_iter().map(|reply| reply.expect("each write was answered"));
        let promoted = replies.by_ref().take(inbox.len()).collect();
        plan.inbox = inbox::Promotion { batch: inbox, replies: promoted };
        Ok(Tried::Planned(Planned { plan, replies: replies.collect() }))
    }
}

/// A plan, and what is said once it is written.
struct Planned {
    plan: Plan,
    replies: Replies,
}

enum Tried {
    Planned(Planned),
    /// It needs what a plan that is on its way may change.
    HasToWait,
    /// Something was refused, and what it lacks may be among the rows of the inbox that still wait.
    MayBeInInbox,
}

/// The payload of a job that was granted. Few are claimed before they are written.
fn payload_of(
    connection: &Connection,
    id: JobId,
    plan: &Plan,
    flying: &VecDeque<Arc<Plan>>,
) -> SqlResult<String> {
    let plans = flying.iter().map(|plan| &**plan).chain([plan]);
    match plans.rev().find_map(|plan| plan.new_payload(id)) {
        Some(NewPayload::Given(payload)) => Ok(payload.as_str().to_owned()),
        Some(NewPayload::Of(other)) => payload_of(connection, *other, plan, flying),
        None => load::load_payload(connection, plan.rows[&id].place.seq),
    }
}

fn ended() -> Error {
    Error::Stopped("its writer has ended".to_owned())
}

/// How many jobs these writes may touch.
fn room(writes: &[Write]) -> usize {
    let jobs = |write: &Write| match write {
        Write::Op { .. } => 1,
        // Few ask for more than there is; if one does, the map grows.
        Write::Claim(wanted) => wanted.max.min(1_000),
        Write::RenewSession { .. } => 0,
    };
    writes.iter().map(jobs).sum()
}

fn is_refused(reply: &Option<Result<Reply, Refusal>>) -> bool {
    matches!(reply, Some(Err(_)))
}

/// Gives an answer, and says whether the writer may go on after it.
fn tell<T>(result: Result<T, Error>, answer: impl FnOnce(Result<T, Error>)) -> bool {
    let stops = result.as_ref().is_err_and(ends);
    answer(result);
    !stops
}

/// Would the op give out the id of a job that was forgotten, while the log still speaks of that job?
fn is_forgotten(connection: &Connection, op: &Op, last: Option<JobId>) -> SqlResult<bool> {
    match op.new_job_id() {
        Some(id) if Some(id) <= last => retention::is_pruned(connection, id),
        _ => Ok(false),
    }
}

/// An op on one job. A claim by name begins a session like any other.
fn apply(
    tenant: &TenantId,
    op: &Op,
    work: &mut Work<'_>,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    let applied = work.set.apply(tenant, op, now);
    if let (Op::Claim(claim), Ok(Answer { recorded: false, .. })) = (op, &applied) {
        work.names.lease_session(&claim.worker, now.plus(claim.lease));
        let renewals = work.names().session_of(&claim.worker).map_or(0, |(_, it)| it.renewals);
        work.set.place_mut(claim.job_id).expect("its claim was granted").lease_seen = renewals;
    }
    applied.map(Reply::Answer)
}

/// Grants a claim, and keeps its session alive for as long as the leases last.
fn claim_many(
    connection: &Connection,
    wanted: &ClaimMany,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Vec<claim::Grant>> {
    let granted = claim::claim(connection, wanted, work, now)?;
    if !granted.is_empty() {
        work.names.lease_session(&wanted.worker, now.plus(wanted.lease));
    }
    Ok(granted)
}

fn renew(
    connection: &Connection,
    worker: &WorkerId,
    lease: Duration,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Result<Reply, Refusal>> {
    let Some((_, session)) = work.names().session_of(worker) else {
        return Ok(Err(Refusal::NotFound { what: "session" }));
    };
    let session = session.renewed(lease, now);
    let until = session.until;
    work.names.renew_session(session);
    let rows = work.held_by(connection, worker)?;
    let held = rows.iter().map(|row| row.id).collect();
    let unwanted = rows.iter().filter(|row| row.to_be_cancelled);
    let cancelled = unwanted.map(|row| row.id).collect();
    Ok(Ok(Reply::Renewed { until, cancelled, held }))
}
