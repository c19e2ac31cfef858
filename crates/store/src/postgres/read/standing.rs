//! Why a job is not running: one look at all that could say so.

use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Job, JobId, Lane, Timestamp};

use super::{due::read_now, job::read_job};
use crate::{
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run, run_one},
            server_time::ServerTime,
            types::{Time, Uuid, signed},
        },
        row::{
            column::{id_of, json_of, number, text_of, time_or_none},
            job::Loaded,
            rule::load_book,
        },
    },
    read::{ListeningWorker, Scope, Standing},
    standing::{HeldJob, StandingRows},
};

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const END: &str = "ROLLBACK";

/// What a look at a job's standing has to know beforehand.
#[derive(Clone)]
pub(crate) struct Look {
    /// Whose things may be seen.
    pub(crate) scope: Scope,
    pub(crate) id: JobId,
    /// What time it is.
    pub(crate) time: Arc<ServerTime>,
    /// The class of the locks that processes hold for their workers.
    pub(crate) presence_class: i32,
}

impl Look {
    /// What keeps the job, as one snapshot shows it.
    pub(crate) async fn read(&self, client: &ClientWrapper) -> PgResult<Option<Standing>> {
        run_one(client, Ask::new(BEGIN)).await?;
        let found = self.read_standing(client).await;
        // The connection goes back to the pool, so it must not be left inside a transaction.
        if found.as_ref().err().is_none_or(|error| !error.is_unknown()) {
            run_one(client, Ask::new(END)).await?;
        }
        found
    }

    async fn read_standing(&self, client: &ClientWrapper) -> PgResult<Option<Standing>> {
        let found = read_job(client, &self.scope, self.id).await?;
        let Some(Loaded { job, place }) = found else { return Ok(None) };
        let now = read_now(client, &self.time).await?;
        let book = load_book(client).await?;
        let held = read_held(client).await?;
        let before = read_before(client, &job).await?;
        let listening = read_listening(client, self.presence_class, now).await?;
        let seen = StandingRows { lane: place.lane, book, held, before, listening, job };
        Ok(Some(seen.standing(&self.scope, now)))
    }
}

/// The workers that are there, as far as the scope may see them.
pub(crate) async fn read_workers(
    client: &ClientWrapper,
    scope: &Scope,
    time: &ServerTime,
    presence_class: i32,
) -> PgResult<Vec<ListeningWorker>> {
    let now = read_now(client, time).await?;
    let mut listening = read_listening(client, presence_class, now).await?;
    listening.retain(|it| it.listens.is_seen_by(scope));
    Ok(listening)
}

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT j.id, g.queue, g.tenant, g.kind, j.lane, s.worker,
        CASE WHEN j.state = 'running' THEN j.updated_at END
    FROM jobs j JOIN job_groups g ON g.id = j.group_id JOIN sessions s ON s.id = j.lease_session
    WHERE j.lease_session IS NOT NULL ORDER BY j.id";

async fn read_held(client: &ClientWrapper) -> PgResult<Vec<HeldJob>> {
    let rows = run_one(client, Ask::new(HELD)).await?;
    let held = rows.iter().map(|row| {
        Ok(HeldJob {
            id: id_of(row, 0)?,
            queue: text_of(row, 1)?,
            tenant: text_of(row, 2)?,
            kind: text_of(row, 3)?,
            lane: Lane::new(row.try_get(4)?),
            worker: text_of(row, 5)?,
            started_at: time_or_none(row, 6)?,
        })
    });
    held.collect()
}

/// Jobs of the same queue and tenant that can be claimed and come first. Served by the index `jobs_ready`.
const BEFORE: &str = "
    SELECT count(*) FROM (
        SELECT FROM job_groups g JOIN jobs j ON j.group_id = g.id
        WHERE g.queue = $1 AND g.tenant = $2 AND (j.state = 'queued' OR j.state = 'interrupted')
            AND j.rank <= $3 AND (j.rank, j.id) < ($3, $4)
        LIMIT $5) AS before";

async fn read_before(client: &ClientWrapper, job: &Job) -> PgResult<u64> {
    let spec = &job.spec;
    let ask = Ask::new(BEFORE)
        .with(spec.queue.as_str().to_owned())
        .with(spec.tenant.as_str().to_owned())
        .with(spec.rank().0)
        .with(Uuid(job.id.as_u128()))
        .with(signed(Standing::BEFORE_MAX));
    number(&run(client, &[ask]).await?[0][0], 0)
}

/// The process of a live worker holds its advisory lock.
const LISTENING: &str = "
    SELECT worker, listens, listened_at, vouched FROM sessions
    WHERE listens IS NOT NULL AND CASE WHEN vouched THEN EXISTS (
            SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
                AND classid = $3::bigint::oid AND objid = sessions.id::bigint::oid)
        ELSE listened_at > $1 OR lapses_at > $2 END
    ORDER BY id";

/// Workers that said a short while ago what they listen to, those whose leases last, and those that a process which lives
/// vouches for.
async fn read_listening(
    client: &ClientWrapper,
    presence_class: i32,
    now: Timestamp,
) -> PgResult<Vec<ListeningWorker>> {
    let class = i64::from(presence_class.cast_unsigned());
    let from = now.minus(Standing::LISTENS_FOR);
    let ask = Ask::new(LISTENING).with(Time(from)).with(Time(now)).with(class);
    let rows = run_one(client, ask).await?;
    let listening = rows.iter().map(|row| {
        let (worker, listens) = (text_of(row, 0)?, json_of(row, 1)?);
        Ok(ListeningWorker::of_row(worker, listens, row.try_get(3)?, time_or_none(row, 2)?))
    });
    listening.collect()
}
