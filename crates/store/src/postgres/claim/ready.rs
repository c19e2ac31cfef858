//! A node's cache of the lines that have jobs to claim. A line is one lane (limit key) of one
//! group.
//!
//! There may be thousands of lines, one for each tenant or key, and a claim must not ask for all of
//! them. So a node remembers which have something, with the rank of the first job, and asks for the
//! jobs of a few. The cache is a hint, not the truth: other nodes take jobs and make new ones. A
//! line that is found empty is evicted. All lines are looked up anew when a claim finds nothing,
//! when others say that something became ready, and once a second: so if a notification was lost, a
//! job in a line that is not cached waits for one second at the most.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use deadpool_postgres::ClientWrapper;
use tokio::time::Instant;
use tokio_postgres::Row;
use windlass_kernel::{Job, JobId, Lane, Timestamp, job::Rank};

use crate::{
    job_row::is_ready,
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run},
            types::Time,
        },
        row::{
            column::{id_of, time_of},
            job::{GRANT_COLUMNS, Place, grant_columns},
        },
    },
};

/// The lines that this node knows.
#[derive(Default)]
pub(crate) struct Ready {
    known: Mutex<LineCache>,
}

#[derive(Default)]
struct LineCache {
    groups: HashMap<i32, Group>,
    /// A generation number: counts the times that jobs may have become ready in lines that are not
    /// cached. A group that was looked up under an earlier number is stale.
    heard: u64,
    /// How many look-ups are running.
    looks: usize,
    /// Were there more lines at the last look than are looked up at once?
    is_cut: bool,
    /// The line at which the next claim begins, if it cannot consider all of them.
    window: usize,
}

#[derive(Default)]
struct Group {
    lanes: BTreeMap<Lane, Line>,
    /// The value of `heard` when the group was last looked up.
    heard: u64,
    /// When that was.
    at: Option<Instant>,
}

/// What may be ready in one lane of a group.
#[derive(Clone, Copy, Default)]
struct Line {
    /// The rank of the first job, as it was last seen.
    first: Option<Rank>,
    /// No retry is due before this.
    retry_at: Option<Timestamp>,
}

/// Where a claim may take from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimLine {
    /// The place of the group among those that are wanted.
    pub(crate) place: usize,
    pub(crate) group: i32,
    pub(crate) lane: Lane,
    /// Retries that are due, or what is ready?
    pub(crate) retries: bool,
    /// The rank of the first, as far as it is known.
    pub(crate) first: Rank,
}

/// What was found in a line, best first.
pub(crate) struct LineJobs {
    pub(crate) from: ClaimLine,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) ids: Vec<JobId>,
    /// Since when the first one waits.
    pub(crate) since: Timestamp,
    /// May there be more than was asked for?
    pub(crate) may_have_more: bool,
}

impl LineJobs {
    /// Only those jobs of it.
    pub(crate) fn only(&self, is_one: impl Fn(JobId) -> bool) -> Self {
        let jobs = self.ranks.iter().zip(&self.ids).filter(|(_, id)| is_one(**id));
        let (ranks, ids) = jobs.map(|(rank, id)| (*rank, *id)).unzip();
        Self { from: self.from, ranks, ids, since: self.since, may_have_more: false }
    }
}

/// The time to live of a cached group.
const OLD: Duration = Duration::from_secs(1);

/// More lines than this are not looked up at once. Then each look begins at another lane, by chance: lanes are numbers
/// that have no order, so all get their turn.
const LOOK_MAX: usize = 4_096;

/// The lanes of groups that have jobs which can be claimed, one after the other, with the first rank of each. Jobs without
/// a key are always looked for. Served by the index `jobs_ready`.
const LANES: &str = "
    WITH RECURSIVE lines AS (
        SELECT g.id AS group_id, first.lane, first.rank
        FROM unnest($1::int[]) AS g (id) CROSS JOIN LATERAL (
            SELECT lane, rank FROM jobs
            WHERE group_id = g.id AND lane >= $2 AND (state = 'queued' OR state = 'interrupted')
            ORDER BY lane, rank LIMIT 1) AS first
        UNION ALL
        SELECT lines.group_id, next.lane, next.rank
        FROM lines CROSS JOIN LATERAL (
            SELECT lane, rank FROM jobs
            WHERE group_id = lines.group_id AND lane > lines.lane
                AND (state = 'queued' OR state = 'interrupted')
            ORDER BY lane, rank LIMIT 1) AS next)
    (SELECT group_id, lane, rank FROM lines LIMIT $3)
    UNION ALL
    SELECT g.id, 0, first.rank FROM unnest($1::int[]) AS g (id) CROSS JOIN LATERAL (
        SELECT rank FROM jobs
        WHERE group_id = g.id AND lane = 0 AND (state = 'queued' OR state = 'interrupted')
        ORDER BY rank LIMIT 1) AS first
    WHERE $2 > -9223372036854775808";

/// The lanes of groups that have retries, with the time of the first of each. Served by the index `jobs_retry`.
const RETRY_LANES: &str = "
    WITH RECURSIVE lines AS (
        SELECT g.id AS group_id, first.lane, first.next_retry_at
        FROM unnest($1::int[]) AS g (id) CROSS JOIN LATERAL (
            SELECT lane, next_retry_at FROM jobs
            WHERE group_id = g.id AND lane >= $2 AND next_retry_at IS NOT NULL
            ORDER BY lane, next_retry_at LIMIT 1) AS first
        UNION ALL
        SELECT lines.group_id, next.lane, next.next_retry_at
        FROM lines CROSS JOIN LATERAL (
            SELECT lane, next_retry_at FROM jobs
            WHERE group_id = lines.group_id AND lane > lines.lane AND next_retry_at IS NOT NULL
            ORDER BY lane, next_retry_at LIMIT 1) AS next)
    (SELECT group_id, lane, next_retry_at FROM lines LIMIT $3)
    UNION ALL
    SELECT g.id, 0, first.next_retry_at FROM unnest($1::int[]) AS g (id) CROSS JOIN LATERAL (
        SELECT next_retry_at FROM jobs
        WHERE group_id = g.id AND lane = 0 AND next_retry_at IS NOT NULL
        ORDER BY next_retry_at LIMIT 1) AS first
    WHERE $2 > -9223372036854775808";

impl Ready {
    fn known(&self) -> MutexGuard<'_, LineCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a group have jobs with a key, as far as it is known?
    pub(crate) fn has_keys(&self, group: i32) -> bool {
        let known = self.known();
        let lanes = known.groups.get(&group).map(|group| &group.lanes);
        lanes.is_some_and(|lanes| lanes.keys().any(|lane| *lane != Lane::NONE))
    }

    /// Is it time to look these groups up?
    pub(crate) fn is_old(&self, mut groups: impl Iterator<Item = i32>) -> bool {
        let known = self.known();
        groups.any(|id| {
            let group = known.groups.get(&id).filter(|group| group.heard == known.heard);
            group.and_then(|group| group.at).is_none_or(|at| at.elapsed() >= OLD)
        })
    }

    /// Looks up which lines of these groups have something.
    pub(crate) async fn look(&self, client: &ClientWrapper, groups: &[i32]) -> PgResult<()> {
        let (heard, was_cut) = {
            let mut known = self.known();
            known.looks += 1;
            (known.heard, known.is_cut)
        };
        let (looks, at) = (Looks(self), Instant::now());
        let from = if was_cut { random_lane() } else { i64::MIN };
        let mut rows = look_from(client, groups, from).await?;
        let mut is_cut = rows.iter().any(|rows| rows.len() >= LOOK_MAX);
        if was_cut && !is_cut {
            // The last look-up was cut off, and this one, from a random lane on, was not: there may
            // be few lines altogether, or few behind that lane. So look up all of them.
            rows = look_from(client, groups, i64::MIN).await?;
            is_cut = rows.iter().any(|rows| rows.len() >= LOOK_MAX);
        }
        let mut found: HashMap<i32, Group> = HashMap::with_capacity(groups.len());
        for id in groups {
            found.insert(*id, Group { heard, at: Some(at), ..Group::default() });
        }
        for row in &rows[0] {
            let line = line_of(&mut found, row.try_get(0)?, Lane::new(row.try_get(1)?));
            line.first = Some(Rank(row.try_get(2)?));
        }
        for row in &rows[1] {
            let line = line_of(&mut found, row.try_get(0)?, Lane::new(row.try_get(1)?));
            line.retry_at = Some(time_of(row, 2)?);
        }
        let mut known = self.known();
        known.groups.extend(found);
        known.is_cut = is_cut;
        drop(known);
        drop(looks);
        Ok(())
    }

    /// Where something may be had, group by group.
    pub(crate) fn lines(
        &self,
        groups: impl Iterator<Item = i32>,
        now: Timestamp,
    ) -> Vec<ClaimLine> {
        let known = self.known();
        let mut lines = Vec::new();
        for (place, group) in groups.enumerate() {
            let lanes = known.groups.get(&group).into_iter().flat_map(|group| &group.lanes);
            for (lane, line) in lanes {
                let from =
                    ClaimLine { place, group, lane: *lane, retries: false, first: Rank(i64::MIN) };
                lines.extend(line.first.map(|first| ClaimLine { first, ..from }));
                let is_due = line.retry_at.is_some_and(|at| at <= now);
                lines.extend(is_due.then_some(ClaimLine { retries: true, ..from }));
            }
        }
        lines
    }

    /// Remembers what was found in lines. Of each so many were taken.
    pub(crate) fn note_found(&self, found: &[LineJobs], taken: &[usize]) {
        let mut known = self.known();
        for (LineJobs { from, ranks, may_have_more, .. }, taken) in found.iter().zip(taken) {
            let Some(group) = known.groups.get_mut(&from.group) else { continue };
            let Some(line) = group.lanes.get_mut(&from.lane) else { continue };
            let left = ranks.get(*taken).or(ranks.last().filter(|_| *may_have_more));
            if !from.retries {
                line.first = left.copied();
            } else if left.is_none() {
                // This was the last retry that was due. When the next one is due is not cached:
                // marking the group stale has the next claim look it up.
                line.retry_at = None;
                group.heard = u64::MAX;
            }
            if group.lanes[&from.lane].is_empty() {
                group.lanes.remove(&from.lane);
            }
        }
    }

    /// A commit of this node made a job, or changed it.
    pub(crate) fn note<'a>(&self, jobs: impl Iterator<Item = (&'a Job, &'a Place)>) {
        let mut known = self.known();
        if known.groups.is_empty() && known.looks == 0 {
            return;
        }
        for (job, place) in jobs {
            let Some((group, _)) = place.group else { continue };
            let first = is_ready(job.state).then(|| job.spec.rank());
            if first.is_none() && job.next_retry_at.is_none() {
                continue;
            }
            if known.looks > 0 {
                // A look-up that is running may have read before this commit, and its result will
                // replace the entry made here: so the group counts as stale afterwards.
                known.heard += 1;
            }
            let Some(group) = known.groups.get_mut(&group) else { continue };
            let line = group.lanes.entry(place.lane).or_default();
            line.first = [line.first, first].into_iter().flatten().min();
            line.retry_at = [line.retry_at, job.next_retry_at].into_iter().flatten().min();
        }
    }

    /// Where the next claim begins that looks at so many lines of more.
    pub(crate) fn next_window(&self, lines: usize) -> usize {
        let mut known = self.known();
        known.window = known.window.wrapping_add(lines);
        known.window
    }

    /// Marks every group as stale: jobs may have become ready in any of them.
    pub(crate) fn hear(&self) {
        self.known().heard += 1;
    }
}

async fn look_from(client: &ClientWrapper, groups: &[i32], from: i64) -> PgResult<Vec<Vec<Row>>> {
    let most = i64::try_from(LOOK_MAX).unwrap_or(i64::MAX);
    let ask = |sql| Ask::new(sql).with(groups.to_vec()).with(from).with(most);
    Ok(run(client, &[ask(LANES), ask(RETRY_LANES)]).await?)
}

fn random_lane() -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = crate::postgres::random_id().to_be_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn line_of(groups: &mut HashMap<i32, Group>, group: i32, lane: Lane) -> &mut Line {
    groups.entry(group).or_default().lanes.entry(lane).or_default()
}

impl Line {
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.retry_at.is_none()
    }
}

/// A guard that counts a running look-up until it is dropped.
struct Looks<'a>(&'a Ready);

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        self.0.known().looks -= 1;
    }
}

/// The first jobs of lines that can be claimed. Nothing is locked by it. Served by the index `jobs_ready`.
const FIRST: &str = "
    SELECT v.place, j.id, j.rank, j.updated_at
    FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[]) AS v (place, group_id, lane, most)
    CROSS JOIN LATERAL (
        SELECT id, rank, updated_at FROM jobs
        WHERE group_id = v.group_id AND lane = v.lane AND (state = 'queued' OR state = 'interrupted')
        ORDER BY rank LIMIT v.most) AS j";

/// The retries of lines that are due, longest due first. Served by the index `jobs_retry`.
const DUE: &str = "
    SELECT v.place, j.id, j.rank, j.updated_at
    FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[]) AS v (place, group_id, lane, most)
    CROSS JOIN LATERAL (
        SELECT id, rank, updated_at FROM jobs
        WHERE group_id = v.group_id AND lane = v.lane AND next_retry_at <= $5
        ORDER BY next_retry_at LIMIT v.most) AS j";

/// The statements that ask for the first jobs of lines, of each at most so many, which [`found_of`] expects the rows of.
pub(crate) fn asks(lines: &[ClaimLine], limits: &[usize], now: Timestamp, asks: &mut Vec<Ask>) {
    for retries in [false, true] {
        let (mut places, mut groups, mut lanes) = (Vec::new(), Vec::new(), Vec::new());
        let mut most: Vec<i64> = Vec::new();
        for (place, from) in lines.iter().enumerate().filter(|(_, from)| from.retries == retries) {
            most.push(i64::try_from(limits[place]).unwrap_or(i64::MAX));
            places.push(i32::try_from(place).expect("lines are bounded"));
            groups.push(from.group);
            lanes.push(from.lane.get());
        }
        if places.is_empty() {
            continue;
        }
        let ask = Ask::new(if retries { DUE } else { FIRST });
        let ask = ask.with(places).with(groups).with(lanes).with(most);
        asks.push(if retries { ask.with(Time(now)) } else { ask });
    }
}

/// The same jobs whole, and locked, but for those that somebody else has locked. Behind its columns stands the place of the
/// line.
const FIRST_LOCKED: &str = concat!(
    "SELECT ",
    grant_columns!(),
    ", v.place
    FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[]) AS v (place, group_id, lane, most)
    CROSS JOIN LATERAL (
        SELECT jobs.xmin AS xmin, jobs.* FROM jobs
        WHERE jobs.group_id = v.group_id AND jobs.lane = v.lane
            AND (jobs.state = 'queued' OR jobs.state = 'interrupted')
        ORDER BY jobs.rank LIMIT v.most FOR UPDATE SKIP LOCKED) AS j"
);

/// The statement that asks for the first jobs of lines and locks them, of each at most so many. None, if there is no line.
pub(crate) fn ask_and_lock(lines: &[ClaimLine], limits: &[usize]) -> Option<Ask> {
    let mut both = Vec::new();
    asks(lines, limits, Timestamp::MIN, &mut both);
    both.pop().map(|ask| ask.instead(FIRST_LOCKED))
}

/// The place of the line of a job that was locked.
pub(crate) fn place_of(row: &Row) -> PgResult<Option<usize>> {
    Ok(usize::try_from(row.try_get::<_, i32>(GRANT_COLUMNS)?).ok())
}

/// What was found and locked in each of these lines, less some jobs.
pub(crate) fn found_and_locked(
    lines: &[ClaimLine],
    limits: &[usize],
    rows: &[Row],
    is_out: impl Fn(JobId) -> bool,
    now: Timestamp,
) -> PgResult<Vec<LineJobs>> {
    let mut gathered = Gathered::new(lines.len());
    for row in rows {
        let (Some(place), id) = (place_of(row)?, id_of(row, 1)?) else { continue };
        gathered.add(place, (Rank(row.try_get(5)?), id, time_of(row, 12)?), is_out(id));
    }
    Ok(gathered.found(lines, limits, now))
}

/// What was found in each of these lines, less some jobs.
pub(crate) fn found_of(
    lines: &[ClaimLine],
    limits: &[usize],
    rows: &mut impl Iterator<Item = Vec<Row>>,
    is_out: impl Fn(JobId) -> bool,
    now: Timestamp,
) -> PgResult<Vec<LineJobs>> {
    let mut gathered = Gathered::new(lines.len());
    for retries in [false, true] {
        if !lines.iter().any(|from| from.retries == retries) {
            continue;
        }
        for row in rows.next().unwrap_or_default() {
            let place = usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or(usize::MAX);
            let id = id_of(&row, 1)?;
            gathered.add(place, (Rank(row.try_get(2)?), id, time_of(&row, 3)?), is_out(id));
        }
    }
    Ok(gathered.found(lines, limits, now))
}

/// The jobs of each line, and how many rows there were.
struct Gathered {
    jobs: Vec<Vec<(Rank, JobId, Timestamp)>>,
    counts: Vec<usize>,
}

impl Gathered {
    fn new(lines: usize) -> Self {
        Self { jobs: vec![Vec::new(); lines], counts: vec![0; lines] }
    }

    fn add(&mut self, place: usize, job: (Rank, JobId, Timestamp), is_out: bool) {
        let Some(jobs) = self.jobs.get_mut(place) else { return };
        self.counts[place] += 1;
        if !is_out {
            jobs.push(job);
        }
    }

    fn found(self, lines: &[ClaimLine], limits: &[usize], now: Timestamp) -> Vec<LineJobs> {
        let lines = lines.iter().zip(limits);
        let found = lines.zip(self.jobs).zip(self.counts);
        let found = found.map(|(((from, limit), mut jobs), count)| {
            jobs.sort_unstable();
            let since = jobs.first().map_or(now, |job| job.2);
            let (ranks, ids) = jobs.into_iter().map(|(rank, id, _)| (rank, id)).unzip();
            LineJobs { from: *from, ranks, ids, since, may_have_more: count >= *limit }
        });
        found.collect()
    }
}
