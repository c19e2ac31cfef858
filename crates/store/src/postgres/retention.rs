//! Retention: forgets finished jobs in small steps, and then what the log says of them.
//!
//! A pass looks at jobs from the greatest id to the smallest, then at the log from the oldest row on (`thin`).
//! Each step is one short transaction, so other commits run in between. Which job may go is the kernel's to
//! say. Where a pass stands is remembered by the node alone: after a restart the next one begins anew, and
//! nothing is lost but time. Several nodes may have passes, and one of them makes a step at a time.
//!
//! A job goes whole, and leaves a narrow row in `pruned` for as long as the log speaks of it: so a job
//! that is gone for any other reason is noticed, and its id is not given out again meanwhile. What the
//! inbox told of enqueues that made no job goes by its age, with its lines.
//!
//! A step never waits for a row that a commit has locked, because that commit may wait for one of the step's:
//! a job that somebody works on stays until the next pass.

use std::collections::HashMap;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{
    DeadLetter, Job, JobId, Timestamp,
    retention::{Retention, Ties, may_go},
    time::as_ms,
};

use super::{
    Failure, Inner, PgResult,
    load::{Loaded, id_of, job_columns, job_of, job_tables, json_of, time_of, time_or_none},
    partitions::{self, Watch},
    pipeline::{Ask, run, run_one},
    thin,
    types::{Time, Uuid, signed},
};
use crate::{Error, IdMap, IdSet, read::Pruned};

/// How many rows of jobs a step looks at.
const ROWS_MAX: i64 = 2_000;

/// What a node remembers of its retention.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pass: Pass,
    watch: Watch,
}

/// Where a pass stands.
#[derive(Debug)]
struct Pass {
    phase: Phase,
    /// The last event, as numbered in the feed, of a job of this pass, or of a result that may go. A first
    /// pass looks at all: what one before a restart left undone is not known.
    log_until: i64,
}

#[derive(Debug)]
enum Phase {
    Jobs {
        /// All with greater ids were looked at.
        from: Uuid,
        /// How many finished jobs of each tenant were met that stay.
        kept: HashMap<String, u64>,
    },
    Log {
        /// All up to this one were looked at.
        after: i64,
    },
}

impl Default for Pass {
    fn default() -> Self {
        Self { phase: Phase::start(), log_until: i64::MAX }
    }
}

impl Phase {
    fn start() -> Self {
        Phase::Jobs { from: Uuid(u128::MAX), kept: HashMap::new() }
    }
}

const BEGIN: &str = "BEGIN";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// One node at a time. Whoever comes second need not wait: the first does the work.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock($1, $2)";

const MOMENT: &str = "
    SELECT clock_timestamp(), (SELECT at FROM feed ORDER BY first DESC LIMIT 1)";

impl Inner {
    /// Makes one step that looks closely at `max` jobs at the most. After an error the pass begins anew.
    pub(super) async fn prune(&self, retention: &Retention, max: usize) -> Result<Pruned, Error> {
        let mut sweep = self.sweep.lock().await;
        let here = std::mem::take(&mut sweep.pass);
        let step = async |client: &ClientWrapper, now| match now {
            Some(now) => make_step(client, here, retention, max, now).await,
            None => Ok((Pruned::default(), here)),
        };
        let (pruned, next) = self.alone(step).await.map_err(Failure::into_error)?;
        sweep.pass = next;
        if !pruned.more {
            let dropped = self.drop_partitions(&mut sweep.watch).await;
            // Where someone is in the way, the next pass tries again.
            dropped
                .or_else(|error| if error.is_in_the_way() { Ok(()) } else { Err(error) })
                .map_err(Failure::into_error)?;
        }
        Ok(pruned)
    }

    /// Drops what nobody needs of the log, each partition in a transaction of its own.
    async fn drop_partitions(&self, watch: &mut Watch) -> PgResult<()> {
        let look = async |client: &ClientWrapper, _| watch.look(client).await;
        let Some(before) = self.alone(look).await? else { return Ok(()) };
        let drop_one = async |client: &ClientWrapper, now: Option<Timestamp>| match now {
            Some(_) => partitions::drop_one(client, before).await,
            None => Ok(false),
        };
        while self.alone(drop_one).await? {}
        Ok(())
    }

    /// A transaction that no other node has at the same time, and what time it is in it; no time, if another
    /// node has one.
    async fn alone<T>(
        &self,
        work: impl AsyncFnOnce(&ClientWrapper, Option<Timestamp>) -> PgResult<T>,
    ) -> PgResult<T> {
        let mut client = self.client().await?;
        let transact = async {
            let client = client.get();
            let done = match self.begin_alone(client).await {
                Ok(now) => work(client, now).await,
                Err(error) => Err(error),
            };
            end(client, done).await
        };
        let done = self.within(transact).await;
        if done.as_ref().err().is_none_or(|error| !error.is_unknown()) {
            client.give_back();
        }
        done
    }

    async fn begin_alone(&self, client: &ClientWrapper) -> PgResult<Option<Timestamp>> {
        let lock = Ask::new(LOCK).with(self.feed_lock.0 + 3).with(self.feed_lock.1);
        let rows = run(client, &[Ask::new(BEGIN), lock, Ask::new(MOMENT)]).await?;
        if !rows[1][0].try_get::<_, bool>(0)? {
            return Ok(None);
        }
        let now = match &self.clock {
            Some(clock) => clock(),
            None => time_of(&rows[2][0], 0)?,
        };
        Ok(Some(time_or_none(&rows[2][0], 1)?.map_or(now, |last| now.max(last))))
    }
}

/// Ends a transaction, so that whoever takes the connection next finds it outside of one.
async fn end<T>(client: &ClientWrapper, done: PgResult<T>) -> PgResult<T> {
    match &done {
        Ok(_) => run_one(client, Ask::new(COMMIT)).await?,
        Err(error) if error.is_unknown() => return done,
        Err(_) => run_one(client, Ask::new(ROLLBACK)).await?,
    };
    done
}

/// It gives back what it did and where the pass stands after it.
async fn make_step(
    client: &ClientWrapper,
    pass: Pass,
    retention: &Retention,
    max: usize,
    now: Timestamp,
) -> PgResult<(Pruned, Pass)> {
    match pass.phase {
        Phase::Jobs { from, kept } => {
            let mut step = Step { client, retention, now, kept, log_until: pass.log_until };
            let (jobs, from) = step.take(from, max.max(1)).await?;
            let (kept, log_until) = (step.kept, step.log_until);
            let next = match from {
                Some(from) => Some(Pass { phase: Phase::Jobs { from, kept }, log_until }),
                None => log_to_walk(client, retention, log_until, now).await?,
            };
            let more = next.is_some();
            let next = next.unwrap_or(Pass { phase: Phase::start(), log_until: 0 });
            Ok((Pruned { jobs, log_rows: 0, more }, next))
        }
        Phase::Log { after } => {
            let newest_result = retention.newest_result(now);
            let thinned = thin::thin(client, after, pass.log_until, newest_result).await?;
            let next = match thinned.after {
                Some(after) => Pass { phase: Phase::Log { after }, log_until: pass.log_until },
                None => Pass { phase: Phase::start(), log_until: 0 },
            };
            let (log_rows, more) = (thinned.deleted, thinned.after.is_some());
            Ok((Pruned { jobs: 0, log_rows, more }, next))
        }
    }
}

/// What is to be done in the log after the jobs, if there is anything.
async fn log_to_walk(
    client: &ClientWrapper,
    retention: &Retention,
    log_until: i64,
    now: Timestamp,
) -> PgResult<Option<Pass>> {
    let walk = |after, log_until| Some(Pass { phase: Phase::Log { after }, log_until });
    Ok(match old_results(client, retention.newest_result(now)).await? {
        Some((first, last)) if log_until == 0 => walk(first - 1, last),
        Some((_, last)) => walk(0, log_until.max(last)),
        None if log_until == 0 => None,
        None => walk(0, log_until),
    })
}

/// Served by the index `inbox_results_at`. The last row of the log stays, and so do the results that it tells.
const RESULTS: &str = "
    SELECT (SELECT f.first FROM inbox_results r JOIN feed f ON f.seq = r.seq
            ORDER BY r.at, r.seq LIMIT 1),
        (SELECT f.first FROM inbox_results r JOIN feed f ON f.seq = r.seq
         WHERE r.at <= $1 AND f.first < (SELECT max(first) FROM feed)
         ORDER BY r.at DESC, r.seq DESC LIMIT 1)";

/// Where the log tells the first and the last result of the inbox that may go. A log row that tells a
/// result tells nothing else, so the rows that tell these go whole. Nodes write side by side, so one that
/// stands before the first or after the last may be as old: it goes with the next pass.
async fn old_results(client: &ClientWrapper, newest: Timestamp) -> PgResult<Option<(i64, i64)>> {
    let rows = run_one(client, Ask::new(RESULTS).with(Time(newest))).await?;
    let ends: (Option<i64>, Option<i64>) = (rows[0].try_get(0)?, rows[0].try_get(1)?);
    Ok(ends.0.zip(ends.1))
}

/// One step through the jobs.
struct Step<'a> {
    client: &'a ClientWrapper,
    retention: &'a Retention,
    now: Timestamp,
    kept: HashMap<String, u64>,
    log_until: i64,
}

/// Greatest ids first, with the time of the end. What is at its end does not change.
const JOBS_FROM: &str = "
    SELECT id, tenant,
        CASE WHEN state IN ('succeeded', 'partial', 'failed', 'cancelled') THEN updated_at END
    FROM jobs WHERE id <= $1 ORDER BY id DESC LIMIT $2";

impl Step<'_> {
    /// Deletes what may go, and says how many went and where the next step goes on, unless it is done.
    async fn take(&mut self, from: Uuid, max: usize) -> PgResult<(u64, Option<Uuid>)> {
        let ask = Ask::new(JOBS_FROM).with(from).with(ROWS_MAX);
        let rows = run_one(self.client, ask).await?;
        let is_end = i64::try_from(rows.len()).is_ok_and(|count| count < ROWS_MAX);
        let mut seen = rows.iter().map(Seen::of).collect::<PgResult<Vec<_>>>()?;
        // All that may have to go: which of them are over the count is known only one after the other.
        let newest = self.retention.newest_end(self.retention.keep_at_most.is_some(), self.now);
        let is_old = |seen: &Seen| seen.finished_at.is_some_and(|at| at <= newest);
        let too_many = (0..seen.len()).filter(|place| is_old(&seen[*place])).nth(max);
        seen.truncate(too_many.unwrap_or(seen.len()));
        let next = seen.last().and_then(|last| last.id.as_u128().checked_sub(1)).map(Uuid);
        let next = next.filter(|_| too_many.is_some() || !is_end);
        let old = seen.iter().filter(|seen| is_old(seen)).map(|seen| Uuid(seen.id.as_u128()));
        let old = Candidates::load(self.client, old.collect()).await?;
        let gone = self.choose(&seen, old);
        if let Some(last) = gone.save(self.client, self.now).await? {
            self.log_until = self.log_until.max(last);
        }
        Ok((gone.ids.len() as u64, next))
    }

    /// Which of these may go, one after the other: each that stays counts for those after it.
    fn choose(&mut self, seen: &[Seen], mut candidates: Candidates) -> Gone {
        let mut gone = Gone::default();
        for Seen { id, tenant, finished_at } in seen {
            let Some(finished_at) = *finished_at else { continue };
            let kept = self.kept.get(tenant).copied().unwrap_or(0);
            let is_over = self.retention.keep_at_most.is_some_and(|most| kept >= most);
            let is_old = finished_at <= self.retention.newest_end(is_over, self.now);
            let judge = |(loaded, ties): &(&Loaded, Ties<'_>)| {
                may_go(&loaded.job, ties, is_over, self.retention, self.now).ok()
            };
            let least = candidates.with_ties(*id).filter(|_| is_old).as_ref().and_then(judge);
            match least.zip(candidates.jobs.remove(id)) {
                Some((least, loaded)) => {
                    candidates.forget_child_of(loaded.job.spec.parent);
                    gone.add(&loaded, as_ms(least));
                }
                None => {
                    self.kept.insert(tenant.clone(), kept + 1);
                }
            }
        }
        gone
    }
}

/// A job as a step first sees it.
struct Seen {
    id: JobId,
    tenant: String,
    finished_at: Option<Timestamp>,
}

impl Seen {
    fn of(row: &Row) -> PgResult<Self> {
        let (id, tenant) = (id_of(row, 0)?, row.try_get(1)?);
        Ok(Self { id, tenant, finished_at: time_or_none(row, 2)? })
    }
}

/// Jobs that may have to go, locked, and the living things that lean on them.
#[derive(Default)]
struct Candidates {
    jobs: IdMap<Loaded>,
    letters: IdMap<DeadLetter>,
    parents: IdMap<Job>,
    children: IdMap<Children>,
    with_active_task: IdSet,
}

/// Those that nobody works on. One that is locked stays until the next pass.
const JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    job_tables!(),
    "WHERE j.id = ANY($1) FOR UPDATE OF j SKIP LOCKED"
);

/// A letter that someone decides about is as good as open.
const LETTERS: &str = "
    SELECT job_id, letter FROM dlq_items WHERE job_id = ANY($1) FOR UPDATE SKIP LOCKED";

/// What may become a tie is locked with the job: whoever makes a child of it locks it first.
const CHILDREN: &str = "
    SELECT parent.id, count(*),
        count(*) FILTER (WHERE child.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled'))
    FROM unnest($1::uuid[]) AS parent (id), LATERAL (
        SELECT jobs.state FROM children JOIN jobs ON jobs.id = children.id
        WHERE children.parent = parent.id LIMIT $2) AS child
    GROUP BY parent.id";

/// Once at its end a parent stays there, so nobody need lock it.
const PARENTS: &str = concat!("SELECT ", job_columns!(), job_tables!(), "WHERE j.id = ANY($1)");

/// Jobs whose task runs: one of the last two attempts, or the job whose own id is named as the task. Served by
/// the index `jobs_task`.
const ACTIVE: &str = "
    SELECT task.job FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[])
        AS task (job, tenant, name, own)
    WHERE EXISTS (
        SELECT FROM (
            SELECT state FROM jobs
            WHERE jobs.tenant = task.tenant AND jobs.task_id = task.name AND jobs.task_id IS NOT NULL
            ORDER BY attempt DESC LIMIT 2) AS run
        WHERE run.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled'))
    OR EXISTS (
        SELECT FROM jobs WHERE jobs.id = task.own AND jobs.tenant = task.tenant
            AND jobs.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled'))";

impl Candidates {
    async fn load(client: &ClientWrapper, ids: Vec<Uuid>) -> PgResult<Self> {
        let mut found = Self::default();
        if ids.is_empty() {
            return Ok(found);
        }
        let most = Children::MANY + i64::try_from(ids.len()).expect("a step is bounded");
        let asks = [
            Ask::new(JOBS).with(ids.clone()),
            Ask::new(LETTERS).with(ids.clone()),
            Ask::new(CHILDREN).with(ids).with(most),
        ];
        let [jobs, letters, children] = rows_of(run(client, &asks).await?);
        for row in jobs {
            let loaded = job_of(&row)?;
            found.jobs.insert(loaded.job.id, loaded);
        }
        for row in letters {
            found.letters.insert(id_of(&row, 0)?, json_of(&row, 1)?);
        }
        for row in children {
            let (count, live) = (row.try_get(1)?, row.try_get::<_, i64>(2)?);
            found.children.insert(id_of(&row, 0)?, Children { count, has_live: live > 0 });
        }
        found.load_relatives(client).await?;
        Ok(found)
    }

    /// What the jobs themselves name.
    async fn load_relatives(&mut self, client: &ClientWrapper) -> PgResult<()> {
        let (mut ids, mut tenants) = (Vec::new(), Vec::new());
        let (mut tasks, mut own, mut parents) = (Vec::new(), Vec::new(), Vec::new());
        for Loaded { job, .. } in self.jobs.values() {
            let task = job.spec.task_id.as_str();
            ids.push(Uuid(job.id.as_u128()));
            tenants.push(job.spec.tenant.as_str().to_owned());
            own.push(task.parse::<JobId>().ok().map(|id| Uuid(id.as_u128())));
            tasks.push(task.to_owned());
            parents.extend(job.spec.parent.map(|id| Uuid(id.as_u128())));
        }
        let asks = [
            Ask::new(ACTIVE).with(ids).with(tenants).with(tasks).with(own),
            Ask::new(PARENTS).with(parents),
        ];
        let [active, parents] = rows_of(run(client, &asks).await?);
        for row in active {
            self.with_active_task.insert(id_of(&row, 0)?);
        }
        for row in parents {
            let Loaded { job, .. } = job_of(&row)?;
            self.parents.insert(job.id, job);
        }
        Ok(())
    }

    /// A job that is locked, with its ties.
    fn with_ties(&self, id: JobId) -> Option<(&Loaded, Ties<'_>)> {
        let loaded = self.jobs.get(&id)?;
        let ties = Ties {
            letter: self.letters.get(&id),
            parent: loaded.job.spec.parent.and_then(|parent| self.parents.get(&parent)),
            has_live_child: self.children.get(&id).is_some_and(Children::may_live),
            task_is_active: self.with_active_task.contains(&id),
        };
        Some((loaded, ties))
    }

    fn forget_child_of(&mut self, parent: Option<JobId>) {
        if let Some(children) = parent.and_then(|parent| self.children.get_mut(&parent)) {
            children.count -= 1;
        }
    }
}

/// The rows of so many statements.
fn rows_of<const N: usize>(rows: Vec<Vec<Row>>) -> [Vec<Row>; N] {
    rows.try_into().expect("each statement has its rows")
}

/// What is known of the children of a job.
struct Children {
    count: i64,
    has_live: bool,
}

impl Children {
    /// So many children are looked at and no more: a parent that has more left counts as one with a live
    /// child, until those that ended were forgotten.
    const MANY: i64 = 100;

    fn may_live(&self) -> bool {
        self.has_live || self.count >= Self::MANY
    }
}

/// Jobs that go.
#[derive(Default)]
struct Gone {
    ids: Vec<Uuid>,
    least_ms: Vec<i64>,
    versions: Vec<i64>,
    /// How many log rows stand in the row of each, and the last of them.
    log_rows: Vec<i32>,
    last_seqs: Vec<i64>,
    /// Each that has a parent, with it.
    parents: Vec<Uuid>,
    children: Vec<Uuid>,
}

const NOTE: &str = "
    INSERT INTO pruned (id, at, least_ms, version, rows)
    SELECT v.id, $2, v.least_ms, v.version,
        v.rows + (SELECT count(*) FROM job_log WHERE job_log.id = v.id)
    FROM unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::int[]) AS v (id, least_ms, version, rows)";
const DELETE: [&str; 4] = [
    "DELETE FROM jobs WHERE id = ANY($1)",
    "DELETE FROM outputs WHERE id = ANY($1)",
    "DELETE FROM job_log WHERE id = ANY($1)",
    // What people said about it goes with it.
    "DELETE FROM dlq_items WHERE job_id = ANY($1)",
];
const DELETE_CHILDREN: &str = "
    DELETE FROM children USING unnest($1::uuid[], $2::uuid[]) AS v (parent, id)
    WHERE children.parent = v.parent AND children.id = v.id";
const LAST_EVENT: &str = "SELECT max(first) FROM feed WHERE seq = ANY($1)";

impl Gone {
    fn add(&mut self, Loaded { job, place }: &Loaded, least_ms: u64) {
        let id = Uuid(job.id.as_u128());
        let log_ids = place.history.log_ids();
        self.ids.push(id);
        self.least_ms.push(signed(least_ms));
        self.versions.push(signed(job.version));
        self.log_rows.push(i32::try_from(log_ids.len()).expect("a few"));
        self.last_seqs.extend(log_ids.last().map(signed));
        if let Some(parent) = job.spec.parent {
            self.parents.push(Uuid(parent.as_u128()));
            self.children.push(id);
        }
    }

    /// Deletes them with all that is their own, and says where the log speaks of them for the last time.
    async fn save(&self, client: &ClientWrapper, now: Timestamp) -> PgResult<Option<i64>> {
        if self.ids.is_empty() {
            return Ok(None);
        }
        let mut asks = vec![
            Ask::new(LAST_EVENT).with(self.last_seqs.clone()),
            Ask::new(NOTE)
                .with(self.ids.clone())
                .with(Time(now))
                .with(self.least_ms.clone())
                .with(self.versions.clone())
                .with(self.log_rows.clone()),
        ];
        asks.extend(DELETE.map(|sql| Ask::new(sql).with(self.ids.clone())));
        let children = Ask::new(DELETE_CHILDREN).with(self.parents.clone());
        asks.push(children.with(self.children.clone()));
        Ok(run(client, &asks).await?[0][0].try_get(0)?)
    }
}
