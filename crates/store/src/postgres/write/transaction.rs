//! One try of a commit: a transaction of two trips to the server. The first locks and reads, the second writes. In which
//! order locks are taken stands in `first_load`.

use std::collections::BTreeSet;

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{JobId, Op, Timestamp, ids::ClaimId};

use super::{
    decide::{Commit, load_more},
    first_load::{FirstLoad, Locking},
    load::{add_jobs, load_rest},
    log_rows::{Block, write_log},
    save,
    work::Work,
    writer::NOTE_COMMIT,
};
use crate::{
    IdMap, Replies, Write,
    commit::{
        Changes, Needs, Row,
        driver::{self, Decided},
    },
    job_row::is_ready,
    news::News,
    postgres::{
        Failure, Inner, PgResult,
        claim::{
            grant::Claims,
            names::CommitGroups,
            rules::{Edition, LOCK_VERSION},
        },
        link::{
            pipeline::{Ask, run, run_one},
            server_time::ServerTime,
            types::{Time, Uuid, Xid},
        },
        row::{
            column::{number, time_of, time_or_none},
            inbox,
            job::{JOBS_READ, Place},
            ledger, rule, schedule,
            session::{self, KnownSession, SESSIONS_LOCKED, session_columns},
            token,
        },
    },
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
pub(crate) const FOUND_INCARNATION: usize = 4;
pub(crate) const FOUND_META: usize = 10;

/// What the first trip tells about the moment.
pub(crate) struct Moment {
    now: Timestamp,
    incarnation: u32,
    block: Block,
    transaction: Xid,
    pub(crate) newest_group: i32,
    pub(crate) last_pruned: Option<JobId>,
    pub(crate) has_inbox: bool,
    rules_version: i64,
    has_keys: bool,
}

/// How a try ended.
pub(crate) enum TryOutcome {
    Done(Replies),
    /// It was written by an earlier try with the same id.
    WasDone,
    /// Something was refused, and what it lacks may be among the rows that still wait in the inbox.
    InboxFirst,
    /// Something was refused, and the job that it names may be there: nobody has looked.
    LookFirst,
}

/// One try of a commit.
pub(crate) struct Try<'a> {
    pub(crate) store: &'a Inner,
    pub(crate) commit_id: u128,
    pub(crate) trusts: bool,
    /// Nobody knows what became of an earlier try.
    pub(crate) resolves: bool,
    pub(crate) take: inbox::Take,
    /// Which rows of the inbox it took.
    pub(crate) promoting: inbox::Promoting,
    /// What is answered when the commit is: it stays here if the answer to the commit is lost.
    pub(crate) unanswered: Option<Replies>,
}

impl Try<'_> {
    pub(crate) async fn run(&mut self, writes: &[Write]) -> PgResult<TryOutcome> {
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
            Ok(TryOutcome::Done(_)) => false,
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

    async fn transact(&mut self, client: &ClientWrapper, writes: &[Write]) -> PgResult<TryOutcome> {
        let store = self.store;
        let mut work = Work::new(client, driver::room(writes), store.rules.known());
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
            commit_id = crate::postgres::random_id();
        }
        let opening = asks.len();
        schedule::ask_for(&needs, &mut asks);
        token::ask_for(&needs, &mut asks);
        first.ask_jobs(&mut asks);
        ledger::ask_for(&needs, &mut asks);
        claims.ask_turn(&mut asks, store.feed_lock.1);
        let sets_rules = writes.iter().any(|write| matches!(write, Write::Rule(_)));
        asks.extend(sets_rules.then(|| Ask::new(LOCK_VERSION)));
        first.ask_sessions(&mut asks);
        claims.ask_ready(&mut asks, store.time.instead());
        let moment = Ask::new(MOMENT).with(Uuid(commit_id)).with(claims.ids());
        asks.push(moment.with(claims.group()));
        let found = match run(client, &asks).await.map_err(Failure::from) {
            Err(error) if error.is_conflict_of("commits_pkey") => return Ok(TryOutcome::WasDone),
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
        schedule::take(&needs, &mut rows, &mut work)?;
        token::take(&needs, &mut rows, &mut work)?;
        let jobs = first.take_jobs(&mut rows, remembered, !is_new, &mut work)?;
        ledger::take(&needs, &mut rows, &mut work)?;
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
            // The claim went the direct way because the cache of lines knew of no jobs with limit keys: it is stale.
            store.ready.hear();
        }
        claims.look_again(&work.rules, moment.has_keys);
        work.set.set_incarnation(moment.incarnation);
        lock_sessions(writes, &first, &mut work, moment.now).await?;
        work.bring_up_to_date();
        load_rest(&mut work, &store.names, &needs, Locking::Waits).await?;
        let inbox = if moment.has_inbox || self.take.waits {
            inbox::InboxRows::load(client, self.take, store.inbox_lock()).await?
        } else {
            inbox::InboxRows::default()
        };
        self.promoting = inbox.promoting();
        let joined;
        let writes = if inbox.len() == 0 {
            writes
        } else {
            joined = inbox.before(writes);
            // A commit that has locked jobs already must not wait for the locks of another, or the two may deadlock.
            let locking = if writes.is_empty() { Locking::Waits } else { Locking::NoWait };
            match load_more(store, &joined[..inbox.len()], &mut work, locking).await {
                Err(error) if error.is_in_the_way() => return Ok(TryOutcome::InboxFirst),
                loaded => loaded?,
            }
            &joined
        };
        self.decide_and_save(writes, &inbox, claims, work, moment).await
    }

    async fn decide_and_save<'w>(
        &mut self,
        writes: &[Write],
        inbox: &inbox::InboxRows,
        claims: Claims<'w>,
        work: Work<'w>,
        mut moment: Moment,
    ) -> PgResult<TryOutcome> {
        let (store, now) = (self.store, moment.now);
        let mut commit = Commit { tried: self, moment: &moment, inbox, work, claims };
        let mut replies = match driver::decide(&mut commit, writes, now).await? {
            Decided::Answers(answers) => answers,
            Decided::Retry(tried) => return Ok(tried),
        };
        let Commit { mut work, claims, .. } = commit;
        let client = work.client;
        let set = std::mem::take(&mut work.set);
        let (changes, mut rows) = set.finish();
        self.take_numbers(client, &changes, inbox, &mut moment).await?;
        let mut log = write_log(&changes, &mut rows, &mut moment.block, now);
        let mut groups = CommitGroups::default();
        let mut asks = Vec::new();
        save::asks(&changes, &mut rows, &work, &store.names, &mut groups, &mut asks).await?;
        rule::save(&changes, now, &mut asks);
        session::save(&work, now, &mut asks);
        inbox.save(&replies, &mut log, &mut moment.block, now, &mut asks);
        // A claim that was granted something has events.
        let has_events = !log.seqs.is_empty();
        let is_idle = asks.is_empty() && !has_events;
        if has_events {
            log.finish(&mut asks, &changes, store.feed_lock, now);
        }
        replies.drain(..inbox.len());
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
        Ok(TryOutcome::Done(replies))
    }

    /// What is known after the commit.
    fn remember(&self, rows: IdMap<Row<Place>>, moment: &Moment) {
        self.store.held().put_back(rows, moment.transaction);
        self.store.note_incarnation(moment.incarnation);
    }

    /// Wakes whoever waits for jobs, if there are some, or for what is to be looked after.
    pub(crate) fn tell(
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
        inbox: &inbox::InboxRows,
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
}

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
