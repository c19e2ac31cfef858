//! Why a job is not running: one look at all that could say so.

use std::time::Duration;

use rusqlite::{Connection, params};
use windlass_kernel::{
    Job, JobId, Lane, Rule, State, Timestamp, WorkerId,
    admit::{self, Head},
    rule::Part,
};

use super::{
    SqlResult,
    load::{Loaded, json_of, text_of, u128_of},
    read::read_job,
    rules::load_book,
};
use crate::{
    read::{Holder, Listens, Standing},
    rules::{HeldParts, Known},
};

/// What keeps the job, and the workers that listen and that somebody vouched for.
pub(super) fn read_standing(
    connection: &Connection,
    id: JobId,
    now: Timestamp,
) -> SqlResult<Option<(Standing, Listening)>> {
    let Some(Loaded { job, place }) = read_job(connection, id)? else { return Ok(None) };
    let book = load_book(connection)?;
    let held = read_held(connection)?;
    let mut parts = HeldParts::default();
    for row in &held {
        parts.add(&book.rules, (&row.queue, &row.tenant, &row.kind, row.lane), 1);
    }
    let spec = &job.spec;
    let head = Head {
        queue: &spec.queue,
        tenant: &spec.tenant,
        kind: &spec.kind,
        lane: place.lane,
        retries: job.state == State::RetryScheduled,
        ranks: vec![spec.rank()].into(),
        isolated_since: None,
    };
    let known = Known { states: &book.states, held: &parts };
    let blocked = admit::blocked(&head, &book.rules, &known, now);
    let keeps = |rule: &&Rule| blocked.iter().any(|it| it.rule == rule.name);
    let rules: Vec<Rule> = book.rules.iter().filter(keeps).cloned().collect();
    let mut holders = Vec::new();
    for rule in &rules {
        if rule.counts_held() {
            let own = Part::of(rule.says.each(), head.queue, head.tenant, head.kind, head.lane);
            let same = held.iter().filter(|row| row.part_of(rule) == own);
            holders.extend(same.take(Standing::HOLDERS_MAX).map(|row| row.holder(rule)));
        }
    }
    let in_queue = held.iter().filter(|row| row.queue == spec.queue);
    let since: Vec<Duration> =
        in_queue.filter_map(|row| Some(now.since(row.started_at?))).collect();
    let count = u32::try_from(since.len()).unwrap_or(u32::MAX);
    let running = (count > 0).then(|| (u64::from(count), since.iter().sum::<Duration>() / count));
    let before = read_before(connection, &job, place.seq)?;
    let (listening, vouched) = read_listening(connection, now)?;
    let standing = Standing { now, blocked, rules, holders, listening, before, running, job };
    Ok(Some((standing, vouched)))
}

/// A job that is held.
struct HeldJob {
    id: JobId,
    queue: windlass_kernel::Queue,
    tenant: windlass_kernel::TenantId,
    kind: windlass_kernel::Kind,
    lane: Lane,
    worker: WorkerId,
    started_at: Option<Timestamp>,
}

impl HeldJob {
    fn part_of(&self, rule: &Rule) -> Option<Part> {
        let covers = rule.scope.covers(&self.queue, &self.tenant, &self.kind);
        let part = Part::of(rule.says.each(), &self.queue, &self.tenant, &self.kind, self.lane);
        part.filter(|_| covers)
    }

    fn holder(&self, rule: &Rule) -> Holder {
        Holder { rule: rule.name.clone(), job_id: self.id, worker: self.worker.clone() }
    }
}

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT j.id, g.queue, g.tenant, g.kind, j.lane, s.worker, iif(j.state = 'running', j.updated_at, NULL)
    FROM jobs j JOIN job_groups g ON g.id = j.group_id JOIN sessions s ON s.id = j.lease_session
    WHERE j.lease_session IS NOT NULL ORDER BY j.seq";

fn read_held(connection: &Connection) -> SqlResult<Vec<HeldJob>> {
    let mut statement = connection.prepare_cached(HELD)?;
    let rows = statement.query_map([], |row| {
        Ok(HeldJob {
            id: JobId::from_u128(u128_of(row, 0)?),
            queue: text_of(row, 1)?,
            tenant: text_of(row, 2)?,
            kind: text_of(row, 3)?,
            lane: Lane::new(row.get(4)?),
            worker: text_of(row, 5)?,
            started_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros),
        })
    })?;
    rows.collect()
}

/// Jobs of the same queue and tenant that can be claimed and come first. Served by the index `jobs_ready`.
const BEFORE: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM job_groups g CROSS JOIN jobs j ON j.group_id = g.id
        WHERE g.queue = ?1 AND g.tenant = ?2 AND (j.state = 'queued' OR j.state = 'interrupted')
            AND j.rank <= ?3 AND (j.rank, j.seq) < (?3, ?4)
        LIMIT ?5)";

fn read_before(connection: &Connection, job: &Job, seq: i64) -> SqlResult<u64> {
    let spec = &job.spec;
    let (rank, limit) = (spec.rank().0, Standing::BEFORE_MAX);
    let row = params![spec.queue.as_str(), spec.tenant.as_str(), rank, seq, limit];
    connection.prepare_cached(BEFORE)?.query_row(row, |row| row.get(0))
}

const LISTENING: &str = "
    SELECT worker, listens, listened_at, vouched FROM sessions
    WHERE listens IS NOT NULL AND (vouched = 1 OR listened_at > ?1) ORDER BY id";

type Listening = Vec<(WorkerId, Listens)>;

/// Workers that said a short while ago what they listen to, and those that a process vouches for.
fn read_listening(connection: &Connection, now: Timestamp) -> SqlResult<(Listening, Listening)> {
    let from = now.minus(Standing::LISTENS_FOR).as_micros();
    let mut statement = connection.prepare_cached(LISTENING)?;
    let mut rows = statement.query([from])?;
    let (mut recently, mut vouched) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let worker = (text_of(row, 0)?, json_of(row, 1)?);
        if row.get(3)? { vouched.push(worker) } else { recently.push(worker) }
    }
    Ok((recently, vouched))
}
