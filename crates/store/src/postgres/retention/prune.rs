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

use std::{collections::HashMap, time::Duration};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{
    JobId, Timestamp,
    retention::{Retention, Ties, may_go},
    time::as_ms,
};

use super::{candidates::Candidates, gone::Gone, thin};
use crate::{
    Error,
    postgres::{
        Failure, Inner, PgResult,
        link::{
            partitions::{self, Watch},
            pipeline::{Ask, run, run_one},
            types::{Time, Uuid},
        },
        read::causes,
        row::{
            column::{id_of, time_of, time_or_none},
            granted,
            job::Loaded,
            rule,
        },
    },
    read::Pruned,
};

/// How many rows of jobs a step looks at.
const ROWS_MAX: i64 = 2_000;

/// What a node remembers of its retention.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pass: Pass,
    /// When a pass last began with the greatest id.
    walked_all_at: Option<Timestamp>,
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
        /// All with greater ids were looked at; none at the beginning.
        from: Option<Uuid>,
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
        Phase::Jobs { from: None, kept: HashMap::new() }
    }
}

const BEGIN: &str = "BEGIN";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// One node at a time prunes. A node that does not get the lock does not wait for it: the other
/// does the work.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock($1, $2)";

/// And whether the store is still the one that was opened: its lock is named after it.
const MOMENT: &str = "
    SELECT clock_timestamp(), (SELECT at FROM feed ORDER BY first DESC LIMIT 1),
        EXISTS (SELECT FROM meta WHERE tableoid::bigint = $1)";

impl Inner {
    /// Makes one step that looks closely at `max` jobs at the most. After an error the pass begins anew.
    pub(crate) async fn prune(&self, retention: &Retention, max: usize) -> Result<Pruned, Error> {
        let mut sweep = self.sweep.lock().await;
        let Sweep { pass, mut walked_all_at, mut watch } = std::mem::take(&mut *sweep);
        let step = async |client: &ClientWrapper, now| match now {
            Some(now) => {
                rule::sweep(client, now).await?;
                causes::make(client).await?;
                let forgot = granted::forget(client, now).await?;
                let step = make_step(client, pass, &mut walked_all_at, retention, max, now).await;
                let (mut pruned, pass) = step?;
                pruned.more |= forgot == granted::FORGET_MAX;
                Ok((pruned, pass))
            }
            None => Ok((Pruned::default(), pass)),
        };
        let (pruned, pass) = self.alone(step).await.map_err(Failure::into_error)?;
        if !pruned.more {
            match self.drop_partitions(&mut watch).await {
                // Where someone is in the way, the next pass tries again.
                Err(error) if !error.is_in_the_way() => return Err(error.into_error()),
                _ => {}
            }
        }
        *sweep = Sweep { pass, walked_all_at, watch };
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
        let moment = Ask::new(MOMENT).with(self.identity().1);
        let rows = run(client, &[Ask::new(BEGIN), lock, moment]).await?;
        if !rows[1][0].try_get::<_, bool>(0)? || !rows[2][0].try_get::<_, bool>(2)? {
            return Ok(None);
        }
        Ok(Some(self.time.read(time_of(&rows[2][0], 0)?, time_or_none(&rows[2][0], 1)?)))
    }
}

/// Ends a transaction, because the connection goes back to the pool.
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
    walked_all_at: &mut Option<Timestamp>,
    retention: &Retention,
    max: usize,
    now: Timestamp,
) -> PgResult<(Pruned, Pass)> {
    match pass.phase {
        Phase::Jobs { from, kept } => {
            let from = from.unwrap_or_else(|| start(walked_all_at, retention, now));
            let mut pruner = Pruner { client, retention, now, kept, log_until: pass.log_until };
            let (jobs, from) = pruner.take(from, max.max(1)).await?;
            let (kept, log_until) = (pruner.kept, pruner.log_until);
            let next = match from {
                Some(_) => Some(Pass { phase: Phase::Jobs { from, kept }, log_until }),
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

/// How often a pass begins with the greatest id in any case.
const WALK_ALL: Duration = Duration::from_secs(24 * 60 * 60);

/// The clock that an id was made from may be ahead by so much.
const AHEAD_MAX: Duration = Duration::from_secs(60 * 60);

/// Where a pass begins. If only the age counts, it leaves out the jobs whose ids say that they were made too late
/// to be old enough: an id that we make begins with its time, in milliseconds. A caller may have made ids in
/// another way, so now and then a pass looks at all.
fn start(walked_all_at: &mut Option<Timestamp>, retention: &Retention, now: Timestamp) -> Uuid {
    let is_due = walked_all_at.is_none_or(|at| now.since(at) >= WALK_ALL);
    if is_due || retention.keep_at_most.is_some() {
        *walked_all_at = Some(now);
        return Uuid(u128::MAX);
    }
    let newest = retention.newest_end(false, now).plus(AHEAD_MAX);
    let millis = u128::from(newest.as_micros().unsigned_abs() / 1000);
    Uuid(((millis + 1) << 80) - 1)
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

/// Served by the index `notes_at`.
const NOTES: &str = "
    SELECT (SELECT f.first FROM notes n JOIN feed f ON f.seq = n.seq ORDER BY n.at, n.seq LIMIT 1),
        (SELECT f.first FROM notes n JOIN feed f ON f.seq = n.seq
         WHERE n.at <= $1 AND f.first < (SELECT max(first) FROM feed)
         ORDER BY n.at DESC, n.seq DESC LIMIT 1)";

/// Where the log tells the first and the last result of the inbox, or note, that may go. Nodes write side by side, so one that
/// stands before the first or after the last may be as old: it goes with the next pass.
async fn old_results(client: &ClientWrapper, newest: Timestamp) -> PgResult<Option<(i64, i64)>> {
    let asks = [RESULTS, NOTES].map(|sql| Ask::new(sql).with(Time(newest)));
    let mut found: Option<(i64, i64)> = None;
    for rows in run(client, &asks).await? {
        let ends: (Option<i64>, Option<i64>) = (rows[0].try_get(0)?, rows[0].try_get(1)?);
        let Some((first, last)) = ends.0.zip(ends.1) else { continue };
        let (low, high) = found.unwrap_or((first, last));
        found = Some((low.min(first), high.max(last)));
    }
    Ok(found)
}

/// One step through the jobs.
struct Pruner<'a> {
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

impl Pruner<'_> {
    /// Deletes what may go, and says how many went and where the next step goes on, unless it is done.
    async fn take(&mut self, from: Uuid, max: usize) -> PgResult<(u64, Option<Uuid>)> {
        let ask = Ask::new(JOBS_FROM).with(from).with(ROWS_MAX);
        let rows = run_one(self.client, ask).await?;
        let is_end = i64::try_from(rows.len()).is_ok_and(|count| count < ROWS_MAX);
        let mut seen = rows.iter().map(PruneJob::of).collect::<PgResult<Vec<_>>>()?;
        // All that may have to go: which of them are over the count is known only one after the other.
        let newest = self.retention.newest_end(self.retention.keep_at_most.is_some(), self.now);
        let is_old = |seen: &PruneJob| seen.finished_at.is_some_and(|at| at <= newest);
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
    fn choose(&mut self, seen: &[PruneJob], mut candidates: Candidates) -> Gone {
        let mut gone = Gone::default();
        for PruneJob { id, tenant, finished_at } in seen {
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
struct PruneJob {
    id: JobId,
    tenant: String,
    finished_at: Option<Timestamp>,
}

impl PruneJob {
    fn of(row: &Row) -> PgResult<Self> {
        let (id, tenant) = (id_of(row, 0)?, row.try_get(1)?);
        Ok(Self { id, tenant, finished_at: time_or_none(row, 2)? })
    }
}
