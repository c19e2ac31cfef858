//! One try of a commit: a transaction of two trips to the server. The first locks and reads, the second writes. In which
//! order locks are taken stands in `first_load`.

use std::{collections::BTreeSet, sync::Arc};

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Answer, JobId, Op, Refusal, TenantId, Timestamp, ids::ClaimId};

use super::{
    Failure, Inner, PgResult,
    claim::Claims,
    first_load::{FirstLoad, Locking},
    inbox,
    load::{
        JOBS_READ, KnownSession, Place, SESSIONS_LOCKED, add_jobs, id_of, load_rest, number,
        session_columns, time_of, time_or_none,
    },
    log_rows::{Block, write_log},
    names::CommitGroups,
    pipeline::{Ask, run, run_one},
    ready::is_ready,
    rules::{self, Edition, LOCK_VERSION},
    save, schedules,
    server_time::ServerTime,
    tokens,
    types::{Time, Uuid, Xid},
    work::Work,
    writer::NOTE_COMMIT,
};
use crate::{
    IdMap, IdSet, Replies, Reply, Write,
    commit::{Changes, Grant, Granted, Grants, Needs, Row, enqueues, jobs_of},
    news::News,
    read::Word,
};

const BEGIN: &str = "BEGIN";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// Names the commit, and tells what the database knows and a commit has to, also whether there are jobs with keys in
/// the group whose jobs without one it has locked: asked last, when all locks are there. The transaction has its id
/// before it takes numbers of the log, which `partitions` relies on.
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
        ARRAY(SELECT id FROM claims WHERE id = ANY($2)),
        (SELECT value::bigint FROM meta WHERE name = 'rules_version'),
        (SELECT tableoid::bigint FROM meta WHERE name = 'incarnation'),
        EXISTS (SELECT FROM jobs WHERE group_id = $3 AND lane > 0
            AND (state = 'queued' OR state = 'interrupted'))
        OR EXISTS (SELECT FROM jobs WHERE group_id = $3 AND lane < 0
            AND (state = 'queued' OR state = 'interrupted'))
        OR EXISTS (SELECT FROM jobs WHERE group_id = $3 AND lane > 0 AND next_retry_at IS NOT NULL)
        OR EXISTS (SELECT FROM jobs WHERE group_id = $3 AND lane < 0 AND next_retry_at IS NOT NULL)";

/// Where [`MOMENT`] tells the incarnation, and which table it stands in.
pub(super) const FOUND_INCARNATION: usize = 4;
pub(super) const FOUND_META: usize = 10;

/// What the first trip tells about the moment.
struct Moment {
    now: Timestamp,
    incarnation: u32,
    block: Block,
    transaction: Xid,
    newest_group: i32,
    last_pruned: Option<JobId>,
    has_inbox: bool,
    rules_version: i64,
    has_keys: bool,
}

/// How a try ended.
pub(super) enum Tried {
    Done(Replies),
    /// It was written by an earlier try with the same id.
    WasDone,
    /// Something was refused, and what it lacks may be among the rows that still wait in the inbox.
    InboxFirst,
    /// Something was refused, and the job that it names may be there: nobody has looked.
    LookFirst,
}

/// One try of a commit.
pub(super) struct Try<'a> {
    pub(super) store: &'a Inner,
    pub(super) commit_id: u128,
    pub(super) trusts: bool,
    /// Nobody knows what became of an earlier try.
    pub(super) resolves: bool,
    pub(super) take: inbox::Take,
    /// How many rows of the inbox it took.
    pub(super) promoting: usize,
    /// What is answered when the commit is: it stays here if the answer to the commit is lost.
    pub(super) unanswered: Option<Replies>,
}

impl Try<'_> {
    pub(super) async fn run(&mut self, writes: &[Write]) -> PgResult<Tried> {
        let store = self.store;
        let mut client = store.client().await?;
        if let Some(now) = self.time_to_make_at_once(writes) {
            let tried = store.within(self.make_at_once(client.get(), writes, now)).await;
            if tried.as_ref().err().is_none_or(|error| !error.is_unknown()) {
                client.give_back();
            }
            return tried;
        }
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
        let mut work = Work::new(client, room(writes), store.rules.known());
        let needs = Needs::of(writes);
        let remembered = store.held().take(&needs.jobs);
        let mut claims = Claims::of(writes, store, &work.rules);
        let first = FirstLoad::of(writes, &needs, &work, &remembered, self.trusts);
        let mut asks = vec![Ask::new(BEGIN)];
        let mut commit_id = self.commit_id;
        if self.resolves {
            // An earlier try may still hold what this one wants to claim, until the server notices that its
            // connection has ended. Its id is waited for, and then its locks are gone.
            asks.push(Ask::new(NOTE_COMMIT).with(Uuid(commit_id)));
            commit_id = super::random_id();
        }
        let opening = asks.len();
        schedules::ask_for(&needs, &mut asks);
        tokens::ask_for(&needs, &mut asks);
        first.ask_jobs(&mut asks);
        claims.ask_turn(&mut asks, store.feed_lock.1);
        let sets_rules = writes.iter().any(|write| matches!(write, Write::Rule(_)));
        asks.extend(sets_rules.then(|| Ask::new(LOCK_VERSION)));
        first.ask_sessions(&mut asks);
        claims.ask_ready(&mut asks, store.time.instead());
        let moment = Ask::new(MOMENT).with(Uuid(commit_id)).with(claims.ids());
        asks.push(moment.with(claims.group()));
        let found = match run(client, &asks).await.map_err(Failure::from) {
            Err(error) if error.is_conflict_of("commits_pkey") => return Ok(Tried::WasDone),
            found => found?,
        };
        let moment = found.last().and_then(|rows| rows.first());
        let is_new = store.meet(moment.ok_or_else(|| Failure::damaged("there is no moment"))?)?;
        if is_new {
            // Another server, or the same one without its last commits: groups may have other numbers.
            store.names.forget();
            claims.look_further();
        }
        let mut rows = found.into_iter().skip(opening);
        schedules::take(&needs, &mut rows, &mut work)?;
        tokens::take(&needs, &mut rows, &mut work)?;
        let jobs = first.take_jobs(&mut rows, remembered, !is_new, &mut work)?;
        claims.take_turn(&mut rows);
        rows.by_ref().take(usize::from(sets_rules)).for_each(drop);
        first.take_sessions(&mut rows, &mut work)?;
        claims.take_ready(&mut rows)?;
        let moment = rows.last().unwrap_or_default();
        add_jobs(&mut work, &store.names, &jobs.rows).await?;
        if !jobs.stale.is_empty() {
            // Another node has changed them since. They are locked, so now they stay as they are.
            let stored = run_one(client, Ask::new(JOBS_READ).with(jobs.stale)).await?;
            add_jobs(&mut work, &store.names, &stored).await?;
        }
        if Write::accept_clock(writes) {
            store.time.accept();
        }
        let (moment, repeated) = Moment::of(&moment, &store.time, &work)?;
        repeated.into_iter().for_each(|id| work.set.add_claim(ClaimId::from_u128(id.0)));
        if moment.rules_version != work.rules.version || is_new {
            work.go_by(store.rules.learn(client).await?);
        }
        if moment.has_keys {
            // Whoever knew of them would not have asked.
            store.ready.hear();
        }
        claims.look_again(&work.rules, moment.has_keys);
        work.set.set_incarnation(moment.incarnation);
        lock_sessions(writes, &first, &mut work, moment.now).await?;
        work.bring_up_to_date();
        load_rest(&mut work, &store.names, &needs, Locking::Waits).await?;
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
            // Whoever has locked jobs already must not wait for others.
            let locking = if writes.is_empty() { Locking::Waits } else { Locking::NoWait };
            match self.load_more(&joined[..inbox.len()], &mut work, locking).await {
                Err(error) if error.is_in_the_way() => return Ok(Tried::InboxFirst),
                loaded => loaded?,
            }
            &joined
        };
        self.decide_and_save(writes, &inbox, &mut claims, work, moment).await
    }

    /// Loads what the enqueues of the inbox or of schedules need, which nobody knew before they were read.
    async fn load_more(
        &self,
        enqueues: &[Write],
        work: &mut Work<'_>,
        locking: Locking,
    ) -> PgResult<()> {
        let needs = Needs::of(enqueues);
        let load = FirstLoad::of(enqueues, &needs, work, &[], false).locking(locking);
        let mut asks = Vec::new();
        load.ask_jobs(&mut asks);
        let found = run(work.client, &asks).await?;
        let jobs = load.take_jobs(&mut found.into_iter(), Vec::new(), true, work)?;
        add_jobs(work, &self.store.names, &jobs.rows).await?;
        load_rest(work, &self.store.names, &needs, locking).await
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
        self.decide_schedules(writes, &mut work, &mut replies, &moment).await?;
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
                (Ok(()), Write::FollowUpDone { id }) => {
                    *reply = Some(Ok(work.set.follow_up_done(*id)));
                }
                (Ok(()), Write::Rule(op)) => {
                    *reply = Some(work.set.apply_rule(&mut work.rules.book, op, now));
                }
                (Ok(()), Write::Listens { worker, word, .. }) => {
                    *reply = Some(work.hear(worker, word));
                }
                (Ok(()), Write::Token(op)) => *reply = Some(work.set.apply_token(op, now)),
                (Ok(()), Write::Clock(op)) => {
                    work.set.note(op.note());
                    *reply = Some(Ok(Reply::Done));
                }
                (Ok(()), Write::Mark { name, number }) => {
                    *reply = Some(Ok(work.set.mark(name, *number)));
                }
                (Ok(()), Write::Claim(_) | Write::RenewSession { .. } | Write::Schedule(_)) => {}
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
        // A rule that is set here may keep back what is claimed here.
        claims.look_again(&work.rules, false);
        work.lock_rules(|| claims.groups(&store.names), store.feed_lock.1, now).await?;
        claims.look_below(&work, now).await?;
        let mut granted: Vec<(usize, Grants)> = Vec::new();
        for (place, write) in writes.iter().enumerate() {
            if replies[place].is_some() {
                continue;
            }
            match write {
                Write::Op { .. } | Write::FollowUpDone { .. } | Write::Schedule(_) => {}
                Write::Rule(_) | Write::Listens { .. } => {}
                Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => {}
                Write::Claim(wanted) => {
                    granted.push((place, claims.grant(wanted, &mut work, store, now).await?));
                }
                Write::RenewSession { worker, lease } => {
                    replies[place] = Some(match work.renew(worker, *lease, now) {
                        Some(until) => Ok(self.renewed(worker, until, &work).await?),
                        None => Err(Refusal::NotFound { what: "session" }),
                    });
                }
            }
        }
        let set = std::mem::take(&mut work.set);
        let (changes, mut rows) = set.finish();
        self.take_numbers(client, &changes, inbox, &mut moment).await?;
        let mut log = write_log(&changes, &mut rows, &mut moment.block, now);
        let mut groups = CommitGroups::default();
        let mut asks = Vec::new();
        save::asks(&changes, &mut rows, &work, &store.names, &mut groups, &mut asks).await?;
        rules::save(&changes, now, &mut asks);
        save::save_sessions(&work, now, &mut asks);
        inbox.save(&replies, &mut log, &mut moment.block, now, &mut asks);
        // A claim that was granted something has events.
        let has_events = !log.seqs.is_empty();
        let is_idle = asks.is_empty() && !has_events;
        if has_events {
            log.finish(&mut asks, &changes, store.feed_lock, now);
        }
        for (place, Grants { jobs, again_at, repeated }) in granted {
            let jobs = load_grants(client, jobs, &rows).await?;
            replies[place] = Some(Ok(Reply::Granted { jobs, again_at, repeated }));
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
        if !changes.rules.is_empty() {
            let (version, rules) = (work.rules.version + 1, work.rules.book.rules.clone());
            store.rules.keep(Edition { version, rules });
        }
        self.tell(&changes, &rows, &work, now);
        self.remember(rows, &moment);
        Ok(Tried::Done(replies))
    }

    /// Decides the ops on schedules, and makes their jobs.
    async fn decide_schedules(
        &self,
        writes: &[Write],
        work: &mut Work<'_>,
        replies: &mut [Option<Result<Reply, Refusal>>],
        moment: &Moment,
    ) -> PgResult<()> {
        if !writes.iter().any(|write| matches!(write, Write::Schedule(_))) {
            return Ok(());
        }
        schedules::load_last_jobs(work).await?;
        let (decided, refused) = work.set.decide_schedules(writes, moment.now);
        for (place, refusal) in refused {
            replies[place] = Some(Err(refusal));
        }
        let enqueues = enqueues(&decided);
        // A schedule's job has no parent and no task, so nothing that is there is changed.
        self.load_more(&enqueues, work, Locking::Reads).await?;
        let mut forgotten = IdSet::default();
        for write in &enqueues {
            let Write::Op { op, .. } = write else { continue };
            if is_forgotten(work.client, op, moment.last_pruned).await? {
                forgotten.extend(op.new_job_id());
            }
        }
        for decided in decided {
            let place = decided.place;
            let reply = work.set.fire(decided, &|id| forgotten.contains(&id), moment.now);
            replies[place] = Some(Ok(reply));
        }
        Ok(())
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
    fn remember(&self, rows: IdMap<Row<Place>>, moment: &Moment) {
        self.store.held().put_back(rows, moment.transaction);
        self.store.note_incarnation(moment.incarnation);
    }

    /// Wakes whoever waits for jobs, if there are some, or for what is to be looked after.
    pub(super) fn tell(
        &self,
        changes: &Changes,
        rows: &IdMap<Row<Place>>,
        work: &Work<'_>,
        now: Timestamp,
    ) {
        let store = self.store;
        let mut news = News::of(changes);
        news.is_ready |= work.rules.lets_more_go(changes, rows);
        let touched = || changes.created.iter().map(|(id, _)| id).chain(&changes.updated);
        store.ready.note(touched().map(|id| (&*rows[id].job, &rows[id].place)));
        for id in touched() {
            let Row { job, place, .. } = &rows[id];
            let session = job.lease.as_ref().and_then(|lease| work.session(&lease.worker));
            news.add(job, session.map_or(Timestamp::MIN, |known| known.session.until), now);
            if is_ready(job.state)
                && let Some((group, _)) = place.group
            {
                store.names.lower_floor(group, job.spec.rank().0);
            }
        }
        if news.is_ready {
            store.wake.tell();
        }
        store.sooner.tell(&news);
    }

    /// More log rows than a block has numbers, for as many tenants: rare, and it takes a trip of its own.
    async fn take_numbers(
        &self,
        client: &ClientWrapper,
        changes: &Changes,
        inbox: &inbox::Batch,
        moment: &mut Moment,
    ) -> PgResult<()> {
        let blocks = moment.block.lacks(changes.events.len() + changes.notes.len() + inbox.len());
        if blocks > 0 {
            for row in run_one(client, Ask::new(MORE_NUMBERS).with(blocks)).await? {
                moment.block.add(row.try_get(0)?);
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
     VALUES ($1, 'epoch', 0, 'epoch', $2) ON CONFLICT (worker) DO NOTHING RETURNING ",
    session_columns!()
);

/// Locks the sessions that this commit will write to and has not locked yet, and makes those that are missing.
///
/// A claim writes to its session only if its leases would last longer than that of any before it, so it is known only now
/// whether it has to be locked: most claims of one worker can be on their way together.
async fn lock_sessions(
    writes: &[Write],
    first: &FirstLoad,
    work: &mut Work<'_>,
    now: Timestamp,
) -> PgResult<()> {
    let (mut locked, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for write in writes {
        let (worker, until) = match write {
            Write::Op { op: Op::Claim(claim), .. } => (&claim.worker, now.plus(claim.lease)),
            Write::Claim(wanted) => (&wanted.worker, now.plus(wanted.lease)),
            Write::Listens { worker, word: Word::To(_), .. } => (worker, now),
            _ => continue,
        };
        match work.session(worker) {
            None => drop(missing.insert(worker)),
            Some(known) if known.lapses_at < until && !first.has_locked(worker.as_str()) => {
                locked.insert(worker.as_str().to_owned());
            }
            Some(_) => {}
        }
    }
    if !locked.is_empty() {
        let locked: Vec<String> = locked.into_iter().collect();
        for row in run_one(work.client, Ask::new(SESSIONS_LOCKED).with(locked)).await? {
            work.add_session(KnownSession::of(&row)?);
        }
    }
    for worker in missing {
        let add = Ask::new(ADD_SESSION).with(worker.as_str().to_owned()).with(Time(now));
        let rows = run_one(work.client, add).await?;
        work.add_session(KnownSession::of(rows.first().ok_or(Failure::Overtaken)?)?);
    }
    Ok(())
}

impl Moment {
    fn of(
        rows: &[tokio_postgres::Row],
        time: &ServerTime,
        work: &Work<'_>,
    ) -> PgResult<(Self, Vec<Uuid>)> {
        let row = rows.first().ok_or_else(|| Failure::damaged("there is no moment"))?;
        let last = time_or_none(row, 3)?;
        let seen = work.set.rows().map(|row| row.job.updated_at).max();
        let seen = seen.max(work.set.schedules_seen_at()).max(work.set.tokens_seen_at());
        let incarnation = u32::try_from(number(row, FOUND_INCARNATION)?).unwrap_or(u32::MAX);
        let moment = Self {
            now: time.read(time_of(row, 2)?, last.max(seen)),
            incarnation,
            block: Block::new(row.try_get(1)?),
            transaction: row.try_get(0)?,
            newest_group: row.try_get(5)?,
            last_pruned: row.try_get::<_, Option<Uuid>>(6)?.map(|id| JobId::from_u128(id.0)),
            has_inbox: row.try_get(7)?,
            rules_version: row.try_get(9)?,
            has_keys: row.try_get(11)?,
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
pub(super) fn apply(
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
        Write::RenewSession { .. } | Write::FollowUpDone { .. } => 0,
        Write::Rule(_) | Write::Listens { .. } => 0,
        Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => 0,
        Write::Schedule(op) => jobs_of(op),
    };
    writes.iter().map(jobs).sum()
}
