//! One commit: a transaction of two trips to the server. The first locks and reads, the second writes.
//!
//! Whatever can go wrong is told apart by what is known afterwards. If the transaction is known to have done
//! nothing, it is tried again with what is stored, a few times. If the answer to its `COMMIT` was lost, nobody
//! knows: then the next try carries the same commit id, and either finds that id taken, which means that it
//! was written, or writes everything.

use std::{sync::Arc, time::Duration};

use deadpool_postgres::ClientWrapper;
use tokio::time::{Instant, sleep};
use windlass_kernel::{
    Answer, Jitter, JobId, Op, Refusal, State, TenantId, Timestamp,
    ops::{Expire, Expiry},
};

use super::{
    Failure, Inner, PgResult,
    claim::{Claims, Grant},
    inbox,
    load::{
        FirstLoad, Place, add_jobs, id_of, load_rest, number, session_columns, time_of,
        time_or_none,
    },
    names::CommitGroups,
    partitions,
    pipeline::{Ask, run, run_one},
    save::{self, Block},
    types::{Time, Uuid, Xid},
    work::Work,
};
use crate::{
    Error, IdMap, Replies, Reply, Write,
    commit::{Changes, Granted, Needs, Row},
};

/// How often a transaction that did nothing is tried again.
const TRIES: u32 = 8;

/// How long a commit whose answer was lost is asked about.
const RESOLVE_MAX: Duration = Duration::from_secs(15);

const BEGIN: &str = "BEGIN";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

const NOTE_COMMIT: &str = "INSERT INTO commits (id) VALUES ($1)";

/// Names the commit, and tells what the database knows and a commit has to: asked last, when all locks are
/// there. The transaction has its id before it takes numbers of the log, which `partitions` relies on.
const MOMENT: &str = "
    WITH named AS (INSERT INTO commits (id) VALUES ($1))
    SELECT pg_current_xact_id()::xid,
        nextval('log_seq'),
        clock_timestamp(),
        (SELECT at FROM feed ORDER BY first DESC LIMIT 1),
        (SELECT value::bigint FROM meta WHERE name = 'incarnation'),
        (SELECT coalesce(max(id), 0) FROM job_groups),
        (SELECT id FROM pruned ORDER BY id DESC LIMIT 1),
        EXISTS (SELECT FROM inbox),
        ARRAY(SELECT id FROM claims WHERE id = ANY($2))";

/// What the first trip tells about the moment.
struct Moment {
    now: Timestamp,
    incarnation: u32,
    block: Block,
    transaction: Xid,
    newest_group: i32,
    last_pruned: Option<JobId>,
    has_inbox: bool,
}

/// How a try ended.
enum Tried {
    Done(Replies),
    /// It was written by an earlier try with the same id.
    WasDone,
    /// Something was refused, and what it lacks may be among the rows that still wait in the inbox.
    InboxFirst,
    /// Something was refused, and the job that it names may be there: nobody has looked.
    LookFirst,
}

/// A commit whose answer was lost, and what it would have answered.
struct Lost {
    replies: Replies,
    error: Failure,
}

impl Inner {
    /// A batch, and before it what waits in the inbox, in one transaction.
    ///
    /// The inbox gets transactions of its own in two cases: it is long and may hold a job that the batch
    /// names, or the database refuses what some row would do, which must not fail the batch.
    pub(super) async fn commit(&self, writes: &[Write]) -> Result<Replies, Error> {
        let mut promoting = 0;
        let take = inbox::Take { rows_max: inbox::ROWS_MAX, waits: false };
        match self.commit_with(writes, take, &mut promoting).await {
            Ok(Some(replies)) => return Ok(replies),
            Ok(None) => {}
            Err(Error::Contradiction(_)) if promoting > 0 => {}
            Err(error) => return Err(error),
        }
        self.promote_all().await?;
        let replies = self.commit_with(writes, inbox::Take::NONE, &mut promoting).await?;
        Ok(replies.expect("without the inbox nothing is missing from it"))
    }

    /// Promotes all that waits now. Rows that the database refuses are halved until the one that is to
    /// blame stands alone; it is set aside.
    async fn promote_all(&self) -> Result<(), Error> {
        let mut left = self.with_client(async |client| inbox::count(client).await).await?;
        let mut rows_max = inbox::ROWS_MAX;
        while left > 0 {
            let mut promoting = 0;
            let take = inbox::Take { rows_max, waits: true };
            match self.commit_with(&[], take, &mut promoting).await {
                Ok(_) => rows_max = (rows_max * 2).min(inbox::ROWS_MAX),
                Err(Error::Contradiction(_)) if promoting > 1 => {
                    rows_max = promoting / 2;
                    continue;
                }
                Err(Error::Contradiction(why)) if promoting == 1 => {
                    let why = format!("the database refuses it: {why}");
                    self.with_client(async |client| inbox::set_first_aside(client, &why).await)
                        .await?;
                }
                Err(error) => return Err(error),
            }
            left = left.saturating_sub(promoting.max(1));
        }
        Ok(())
    }

    /// Ends the leases of earlier incarnations: their workers know of a past that this store has not had.
    /// Each is an op like any other.
    pub(super) async fn end_old_leases(&self, incarnation: u32) -> Result<(), Error> {
        let first_epoch = i64::from(incarnation) << 32;
        loop {
            let old = self
                .with_client(async |client| load_leased_before(client, first_epoch).await)
                .await?;
            let expire = |(tenant, job_id, version)| {
                let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
                Write::Op { tenant, op: Expire { job_id, version, what, jitter }.into() }
            };
            let writes: Vec<Write> = old.into_iter().map(expire).collect();
            if writes.is_empty() {
                return Ok(());
            }
            let done = self.commit_with(&writes, inbox::Take::NONE, &mut 0).await?;
            // Each ends a lease; if none did, nothing more can be done here, and leases still lapse.
            if !done.is_some_and(|replies| replies.iter().any(Result::is_ok)) {
                return Ok(());
            }
        }
    }

    /// A batch and so many rows of the inbox, in one transaction. None, if something was refused and what
    /// it lacks may be among the rows that still wait: then nothing was written.
    async fn commit_with(
        &self,
        writes: &[Write],
        take: inbox::Take,
        promoting: &mut usize,
    ) -> Result<Option<Replies>, Error> {
        let commit_id = super::random_id();
        let begun = Instant::now();
        let mut lost: Option<Lost> = None;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut attempt = Attempt {
                store: self,
                commit_id,
                // What is remembered, and that new ids are new, is trusted once.
                trusts: tries == 1,
                resolves: lost.is_some(),
                take,
                promoting: 0,
                unanswered: None,
            };
            let tried = attempt.run(writes).await;
            *promoting = attempt.promoting;
            let error = match tried {
                Ok(Tried::Done(replies)) => return Ok(Some(replies)),
                Ok(Tried::InboxFirst) => return Ok(None),
                Ok(Tried::LookFirst) => continue,
                Ok(Tried::WasDone) => match self.confirm().await {
                    Ok(()) => {
                        let lost = lost.expect("only a commit of ours has this id");
                        // What it made ready is no longer known, and others may wait for it.
                        self.names.forget_floors();
                        self.wake.tell();
                        return Ok(Some(lost.replies));
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if error.lacks_partition() && tries < TRIES {
                // It takes numbers faster than partitions are made ahead.
                let lock = self.feed_lock;
                self.with_client(async |it| Ok(partitions::look_ahead(it, lock).await?)).await?;
                continue;
            }
            if let Some(replies) = attempt.unanswered {
                lost = Some(Lost { replies, error });
            } else if lost.is_none() && !(error.is_worth_a_try() && tries < TRIES) {
                return Err(error.into_error());
            }
            if let Some(lost) = lost.take_if(|_| begun.elapsed() > RESOLVE_MAX) {
                return Err(Error::Ambiguous(lost.error.into_source()));
            }
            sleep(pause(tries)).await;
        }
    }
}

impl Inner {
    /// Waits until all that can be seen is as durable as the server makes it.
    ///
    /// A commit whose connection ended while it waited for a standby can be seen, and the standby may not have
    /// it. A later commit is told only when the standby has both.
    async fn confirm(&self) -> PgResult<()> {
        let mut client = self.client().await?;
        let note = Ask::new(NOTE_COMMIT).with(Uuid(super::random_id()));
        let noted = self.within(run(client.get(), &[note])).await;
        if noted.is_ok() {
            client.give_back();
        }
        noted.map(drop)
    }
}

/// Longer from try to try, and never the same for two.
fn pause(tries: u32) -> Duration {
    let most = 1u64 << tries.min(9);
    let part = u64::try_from(super::random_id() % 1_000).expect("it is small");
    Duration::from_micros(most * part)
}

/// One try of a commit.
struct Attempt<'a> {
    store: &'a Inner,
    commit_id: u128,
    trusts: bool,
    /// Nobody knows what became of an earlier try.
    resolves: bool,
    take: inbox::Take,
    /// How many rows of the inbox it took.
    promoting: usize,
    /// What is answered when the commit is: it stays here if the answer to the commit is lost.
    unanswered: Option<Replies>,
}

impl Attempt<'_> {
    async fn run(&mut self, writes: &[Write]) -> PgResult<Tried> {
        let store = self.store;
        let mut client = store.client().await?;
        // One deadline for all trips, however many there are.
        let tried = store.within(self.transact(client.get(), writes)).await;
        let is_open = match &tried {
            Ok(Tried::Done(_)) => false,
            Err(error) if error.is_unknown() => return tried,
            _ => true,
        };
        // Whoever takes the connection next must find it outside of a transaction.
        if is_open && store.within(run(client.get(), &[Ask::new(ROLLBACK)])).await.is_err() {
            return tried;
        }
        client.give_back();
        tried
    }

    async fn transact(&mut self, client: &ClientWrapper, writes: &[Write]) -> PgResult<Tried> {
        let store = self.store;
        let mut work = Work::new(client, room(writes));
        let needs = Needs::of(writes);
        if self.trusts {
            for (job, place) in store.held().take(&needs.jobs) {
                work.set.add_job(job, place);
            }
        } else {
            store.held().take(&needs.jobs);
        }
        let mut claims = Claims::of(writes, &store.names);
        let first = FirstLoad::of(writes, &needs, &work, self.trusts);
        let clock = store.clock.as_ref().map(|clock| clock());
        let mut asks = vec![Ask::new(BEGIN)];
        let mut commit_id = self.commit_id;
        if self.resolves {
            // An earlier try may still hold what this one wants to claim, until the server notices that its
            // connection has ended. Its id is waited for, and then its locks are gone.
            asks.push(Ask::new(NOTE_COMMIT).with(Uuid(commit_id)));
            commit_id = super::random_id();
        }
        let opening = asks.len();
        first.asks(&mut asks);
        claims.asks(&mut asks, clock);
        asks.push(Ask::new(MOMENT).with(Uuid(commit_id)).with(claims.ids()));
        let found = match run(client, &asks).await.map_err(Failure::from) {
            Err(error) if error.is_conflict_of("commits_pkey") => return Ok(Tried::WasDone),
            found => found?,
        };
        let mut rows = found.into_iter().skip(opening);
        let jobs = first.take(&mut rows, &mut work)?;
        claims.take(&mut rows)?;
        let moment = rows.next().unwrap_or_default();
        add_jobs(&mut work, &store.names, &jobs).await?;
        let (moment, repeated) = Moment::of(&moment, clock, &work)?;
        claims.are_repeated(repeated);
        work.set.set_incarnation(moment.incarnation);
        work.bring_up_to_date();
        load_rest(&mut work, &store.names, &needs).await?;
        let inbox = if moment.has_inbox || self.take.waits {
            inbox::Batch::load(client, self.take, store.inbox_lock()).await?
        } else {
            inbox::Batch::default()
        };
        self.promoting = inbox.rows();
        let joined;
        let writes = if inbox.len() == 0 {
            writes
        } else {
            joined = inbox.before(writes);
            self.load_inbox(&joined[..inbox.len()], &mut work).await?;
            &joined
        };
        self.decide_and_save(writes, &inbox, &mut claims, work, moment).await
    }

    /// Loads what the enqueues of the inbox need, which nobody knew before they were read.
    async fn load_inbox(&self, promoted: &[Write], work: &mut Work<'_>) -> PgResult<()> {
        let needs = Needs::of(promoted);
        let load = FirstLoad::of(promoted, &needs, work, false);
        let mut asks = Vec::new();
        load.asks(&mut asks);
        let found = run(work.client, &asks).await?;
        let jobs = load.take(&mut found.into_iter(), work)?;
        add_jobs(work, &self.store.names, &jobs).await?;
        load_rest(work, &self.store.names, &needs).await
    }

    async fn decide_and_save(
        &mut self,
        writes: &[Write],
        inbox: &inbox::Batch,
        claims: &mut Claims<'_>,
        mut work: Work<'_>,
        mut moment: Moment,
    ) -> PgResult<Tried> {
        let (store, client, now) = (self.store, work.client, moment.now);
        let mut replies: Vec<Option<Result<Reply, Refusal>>> = vec![None; writes.len()];
        self.ensure_sessions(writes, &mut work, now).await?;
        for (write, reply) in writes.iter().zip(&mut replies) {
            match (write.check(), write) {
                (Err(refusal), _) => *reply = Some(Err(refusal)),
                (Ok(()), Write::Op { op, .. })
                    if is_forgotten(client, op, moment.last_pruned).await? =>
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
        if self.take.rows_max > 0
            && replies[inbox.len()..].iter().any(is_refused)
            && (inbox.is_full() || inbox.rows() == 0 && moment.has_inbox)
        {
            return Ok(Tried::InboxFirst);
        }
        if self.trusts && self.refuses_unseen(writes, &replies, &work) {
            return Ok(Tried::LookFirst);
        }
        if claims.is_about(moment.newest_group, &store.names) {
            store.names.learn(client).await?;
            claims.look_further();
        }
        claims.look_below(&work, now).await?;
        let mut granted: Vec<(usize, Vec<Grant>)> = Vec::new();
        let mut new_claims = Vec::new();
        for (place, write) in writes.iter().enumerate() {
            if replies[place].is_some() {
                continue;
            }
            match write {
                Write::Op { .. } => {}
                Write::Claim(wanted) => {
                    let grants = claims.grant(wanted, &mut work, &store.names, now).await?;
                    if claims.is_new(wanted) && grants.iter().any(|grant| grant.1.is_some()) {
                        new_claims.push(Uuid(wanted.claim_id.as_u128()));
                    }
                    granted.push((place, grants));
                }
                Write::RenewSession { worker, lease } => {
                    replies[place] = Some(match work.renew(worker, *lease, now) {
                        Some(until) => Ok(self.renewed(worker, until, &work).await?),
                        None => Err(Refusal::NotFound { what: "session" }),
                    });
                }
            }
        }
        new_claims.sort_unstable();
        new_claims.dedup();
        let set = std::mem::take(&mut work.set);
        let (changes, mut rows) = set.finish();
        self.take_numbers(client, &changes, inbox, &mut moment).await?;
        let mut log = save::write_log(&changes, &mut rows, &mut moment.block, now);
        let mut groups = CommitGroups::default();
        let mut asks = Vec::new();
        save::asks(&changes, &mut rows, &work, &store.names, &mut groups, &mut asks).await?;
        save::save_sessions(&work, now, &mut asks);
        inbox.save(&replies, &mut log, &mut moment.block, now, &mut asks);
        // A claim that was granted something has events.
        let has_events = !log.seqs.is_empty();
        let is_idle = asks.is_empty() && !has_events;
        if has_events {
            asks.push(log.finish(&changes, new_claims, store.feed_lock, now));
        }
        for (place, ids) in granted {
            replies[place] = Some(Ok(Reply::Granted(load_grants(client, ids, &rows).await?)));
        }
        let mine = replies.into_iter().skip(inbox.len());
        let mut replies: Replies =
            mine.map(|reply| reply.expect("each write was answered")).collect();
        // Nothing was changed, so nothing has to be durable.
        if is_idle {
            run(client, &[Ask::new(ROLLBACK)]).await?;
        } else {
            asks.push(Ask::new(COMMIT));
            self.unanswered = Some(replies);
            if let Err(error) = run(client, &asks).await.map_err(Failure::from) {
                self.unanswered.take_if(|_| !error.is_unknown());
                return Err(error);
            }
            replies = self.unanswered.take().expect("it was put there");
        }
        groups.keep(&store.names);
        claims.note(&store.names);
        self.remember(&changes, rows, &moment);
        Ok(Tried::Done(replies))
    }

    /// Is an enqueue refused whose id nobody has looked for? An insert would have told that it is taken.
    fn refuses_unseen(
        &self,
        writes: &[Write],
        replies: &[Option<Result<Reply, Refusal>>],
        work: &Work<'_>,
    ) -> bool {
        writes.iter().zip(replies).any(|(write, reply)| match write {
            Write::Op { op: Op::Enqueue(op), .. } => {
                is_refused(reply) && !work.set.contains(op.job_id)
            }
            _ => false,
        })
    }

    /// What is known after the commit.
    fn remember(&self, changes: &Changes, rows: IdMap<Row<Place>>, moment: &Moment) {
        let store = self.store;
        let mut is_ready = false;
        for id in changes.created.iter().map(|(id, _)| id).chain(&changes.updated) {
            let row = &rows[id];
            if matches!(row.job.state, State::Queued | State::Interrupted) {
                is_ready = true;
                if let Some((group, _)) = row.place.group {
                    store.names.lower_floor(group, row.job.spec.rank().0);
                }
            }
        }
        store.held().put_back(rows, moment.transaction);
        if is_ready {
            store.wake.tell();
        }
        store.note_incarnation(moment.incarnation);
    }

    /// More log rows than a block has numbers, for as many tenants: rare, and it takes a trip of its own.
    async fn take_numbers(
        &self,
        client: &ClientWrapper,
        changes: &Changes,
        inbox: &inbox::Batch,
        moment: &mut Moment,
    ) -> PgResult<()> {
        let blocks = moment.block.lacks(changes.events.len() + inbox.len());
        if blocks > 0 {
            for row in run_one(client, Ask::new(MORE_NUMBERS).with(blocks)).await? {
                moment.block.add(row.try_get(0)?);
            }
        }
        Ok(())
    }

    /// Makes sure that whoever claims has a session.
    async fn ensure_sessions(
        &self,
        writes: &[Write],
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<()> {
        for write in writes {
            let worker = match write {
                Write::Op { op: Op::Claim(claim), .. } => &claim.worker,
                Write::Claim(wanted) => &wanted.worker,
                _ => continue,
            };
            if work.session(worker).is_none() {
                let add = Ask::new(ADD_SESSION).with(worker.as_str().to_owned()).with(Time(now));
                let rows = run_one(work.client, add).await?;
                work.add_session(super::load::KnownSession::of(&rows[0])?);
            }
        }
        Ok(())
    }

    async fn renewed(
        &self,
        worker: &windlass_kernel::WorkerId,
        until: Timestamp,
        work: &Work<'_>,
    ) -> PgResult<Reply> {
        let session = work.session(worker).map(|known| known.id);
        let rows = run_one(work.client, Ask::new(HELD).with(session)).await?;
        let (mut held, mut cancelled) = (Vec::new(), Vec::new());
        for row in &rows {
            let id = id_of(row, 0)?;
            if !work.set.contains(id) {
                held.push(id);
                cancelled.extend(row.try_get::<_, bool>(1)?.then_some(id));
            }
        }
        for job in work.held_here(worker) {
            held.push(job.id);
            cancelled.extend(job.cancel.is_some().then_some(job.id));
        }
        Ok(Reply::Renewed { until, cancelled, held })
    }
}

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT id, coalesce(rest::json -> 'cancel', 'null')::text <> 'null'
    FROM jobs WHERE lease_session = $1 AND lease_session IS NOT NULL";

const MORE_NUMBERS: &str = "SELECT nextval('log_seq') FROM generate_series(1, $1::bigint)";

/// A session begins without a lease.
const ADD_SESSION: &str = concat!(
    "INSERT INTO sessions (worker, until, renewals, lapses_at, started_at)
     VALUES ($1, 'epoch', 0, 'epoch', $2)
     ON CONFLICT (worker) DO UPDATE SET worker = excluded.worker RETURNING ",
    session_columns!()
);

/// Served by the index `jobs_leased`.
const LEASED_BEFORE: &str = "
    SELECT tenant, id, version FROM jobs WHERE lease_session IS NOT NULL AND epoch < $1 LIMIT 500";

/// Some jobs that are held under an epoch before this one.
async fn load_leased_before(
    client: &ClientWrapper,
    epoch: i64,
) -> PgResult<Vec<(TenantId, JobId, u64)>> {
    let rows = run_one(client, Ask::new(LEASED_BEFORE).with(epoch)).await?;
    let lease = |row: &_| Ok((super::load::text_of(row, 0)?, id_of(row, 1)?, number(row, 2)?));
    rows.iter().map(lease).collect()
}

impl Moment {
    fn of(
        rows: &[tokio_postgres::Row],
        clock: Option<Timestamp>,
        work: &Work<'_>,
    ) -> PgResult<(Self, Vec<Uuid>)> {
        let row = rows.first().ok_or_else(|| Failure::damaged("there is no moment"))?;
        // The clock never goes back, whatever the server's does.
        let last = time_or_none(row, 3)?.unwrap_or(Timestamp::from_micros(0));
        let seen = work.set.rows().map(|row| row.job.updated_at).max();
        let clock = match clock {
            Some(clock) => clock,
            None => time_of(row, 2)?,
        };
        let incarnation = u32::try_from(number(row, 4)?).unwrap_or(u32::MAX);
        let moment = Self {
            now: clock.max(last).max(seen.unwrap_or(last)),
            incarnation,
            block: Block::new(row.try_get(1)?),
            transaction: row.try_get(0)?,
            newest_group: row.try_get(5)?,
            last_pruned: row.try_get::<_, Option<Uuid>>(6)?.map(|id| JobId::from_u128(id.0)),
            has_inbox: row.try_get(7)?,
        };
        Ok((moment, row.try_get(8)?))
    }
}

const PAYLOADS: &str = "SELECT id, payload FROM jobs WHERE id = ANY($1)";

/// The granted jobs with their payloads; those that are not known are loaded.
async fn load_grants(
    client: &ClientWrapper,
    grants: Vec<Grant>,
    rows: &IdMap<Row<Place>>,
) -> PgResult<Vec<Granted>> {
    let missing = grants.iter().filter(|grant| grant.1.is_none());
    let missing: Vec<Uuid> = missing.map(|grant| Uuid(grant.0.as_u128())).collect();
    let mut loaded: IdMap<String> = IdMap::default();
    if !missing.is_empty() {
        for row in run_one(client, Ask::new(PAYLOADS).with(missing)).await? {
            loaded.insert(id_of(&row, 0)?, row.try_get(1)?);
        }
    }
    let granted = grants.into_iter().map(|(id, payload)| {
        let payload = payload.or_else(|| loaded.remove(&id));
        let payload = payload.ok_or_else(|| Failure::damaged(format!("{id} has no payload")))?;
        Ok(Granted { job: Arc::clone(&rows[&id].job), payload })
    });
    granted.collect()
}

const IS_PRUNED: &str = "SELECT 1 FROM pruned WHERE id = $1";

/// Would the op give out the id of a job that was forgotten, while the log still speaks of that job?
async fn is_forgotten(client: &ClientWrapper, op: &Op, last: Option<JobId>) -> PgResult<bool> {
    match op.new_job_id() {
        Some(id) if Some(id) <= last => {
            let rows = run_one(client, Ask::new(IS_PRUNED).with(Uuid(id.as_u128()))).await?;
            Ok(!rows.is_empty())
        }
        _ => Ok(false),
    }
}

/// An op on one job. A claim by name keeps its session alive like any other.
fn apply(
    tenant: &TenantId,
    op: &Op,
    work: &mut Work<'_>,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    let applied = work.set.apply(tenant, op, now);
    if let (Op::Claim(claim), Ok(Answer { recorded: false, .. })) = (op, &applied) {
        let renewals = work.renewals(&claim.worker);
        work.lease_until(&claim.worker, now.plus(claim.lease));
        work.set.place_mut(claim.job_id).expect("its claim was granted").lease_seen = renewals;
    }
    applied.map(Reply::Answer)
}

fn is_refused(reply: &Option<Result<Reply, Refusal>>) -> bool {
    matches!(reply, Some(Err(_)))
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
