//! What can be claimed, lane by lane, as far as the writer remembers it.
//!
//! There is one writer, so what it remembers is true: each plan says which jobs became ready and which are so no
//! more. Of a lane the first jobs are remembered; when they are taken, the next are read. So a claim reads each job
//! once, however many lanes there are, and an empty lane costs nothing.
//!
//! Always true: whatever can be claimed is remembered, or its lane has `more`, or its time is not before the lane's
//! `retry_at`. What is on its way to the disk is newer than what a snapshot shows.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::{Job, Lane, State, Timestamp, job::Rank};

use super::{SqlResult, load::Place, plan::Plan};

/// The lanes of each group that was looked at. A lane that has nothing is not here.
#[derive(Default)]
pub(super) struct Ready {
    groups: HashMap<i64, BTreeMap<Lane, Line>>,
}

/// The jobs of one lane, best first.
#[derive(Default)]
pub(super) struct Line {
    /// Those before this place are taken.
    from: usize,
    ranks: Vec<Rank>,
    seqs: Vec<i64>,
    /// May there be more than is remembered, after the last of them?
    more: bool,
    /// No retry is due before this.
    pub(super) retry_at: Option<Timestamp>,
}

/// Plans that are on their way, oldest first.
pub(super) type Flying = VecDeque<Arc<Plan>>;

/// How many are read at the least, and how many are remembered at the most, of one lane.
const READ_MIN: usize = 64;
const KEPT_MAX: usize = 8_192;

/// The lanes of a group that have jobs which can be claimed, one after the other. Served by the index `jobs_ready`.
const LANES: &str = "
    WITH RECURSIVE lanes (lane) AS (
        SELECT (SELECT min(lane) FROM jobs
            WHERE group_id = ?1 AND (state = 'queued' OR state = 'interrupted'))
        UNION ALL
        SELECT (SELECT min(lane) FROM jobs
            WHERE group_id = ?1 AND (state = 'queued' OR state = 'interrupted')
                AND lane > lanes.lane)
        FROM lanes WHERE lane IS NOT NULL)
    SELECT lane FROM lanes WHERE lane IS NOT NULL";

/// The lanes of a group that have retries. Served by the index `jobs_retry`.
const RETRY_LANES: &str = "
    WITH RECURSIVE lanes (lane) AS (
        SELECT (SELECT min(lane) FROM jobs WHERE group_id = ?1 AND next_retry_at IS NOT NULL)
        UNION ALL
        SELECT (SELECT min(lane) FROM jobs
            WHERE group_id = ?1 AND next_retry_at IS NOT NULL AND lane > lanes.lane)
        FROM lanes WHERE lane IS NOT NULL)
    SELECT lane FROM lanes WHERE lane IS NOT NULL";

/// Served by the index `jobs_ready` alone.
const READY: &str = "
    SELECT seq, rank FROM jobs
    WHERE group_id = ?1 AND lane = ?2 AND (state = 'queued' OR state = 'interrupted')
        AND rank >= ?3 AND (rank, seq) > (?3, ?4)
    ORDER BY rank, seq LIMIT ?5";

/// Retries that are due, longest due first. Served by the index `jobs_retry`.
const DUE_RETRIES: &str = "
    SELECT seq, rank FROM jobs
    WHERE group_id = ?1 AND lane = ?2 AND next_retry_at <= ?3
    ORDER BY next_retry_at LIMIT ?4";

/// Served by the index `jobs_retry`.
const NEXT_RETRY: &str = "
    SELECT next_retry_at FROM jobs
    WHERE group_id = ?1 AND lane = ?2 AND next_retry_at > ?3
    ORDER BY next_retry_at LIMIT 1";

impl Ready {
    /// Learns which lanes of a group have something, unless it is known.
    pub(super) fn look(
        &mut self,
        connection: &Connection,
        group: i64,
        flying: &Flying,
    ) -> SqlResult<()> {
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let mut lanes: BTreeMap<Lane, Line> = BTreeMap::new();
        let mut statement = connection.prepare_cached(LANES)?;
        let mut rows = statement.query([group])?;
        while let Some(row) = rows.next()? {
            lanes.entry(Lane::new(row.get(0)?)).or_default().more = true;
        }
        let mut statement = connection.prepare_cached(RETRY_LANES)?;
        let mut rows = statement.query([group])?;
        while let Some(row) = rows.next()? {
            lanes.entry(Lane::new(row.get(0)?)).or_default().retry_at = Some(Timestamp::MIN);
        }
        for row in flying.iter().flat_map(|plan| plan.rows.values()) {
            if row.place.group.is_some_and(|(id, _)| id == group) {
                let line = lanes.entry(row.place.lane).or_default();
                line.more |= is_ready(row.job.state);
                line.retry_at = line.retry_at.or(row.job.next_retry_at.map(|_| Timestamp::MIN));
            }
        }
        lanes.retain(|_, line| !line.is_empty());
        self.groups.insert(group, lanes);
        Ok(())
    }

    /// The lanes of a group that have something, or may have.
    pub(super) fn lanes(&self, group: i64) -> impl Iterator<Item = (Lane, &Line)> {
        self.groups.get(&group).into_iter().flatten().map(|(lane, line)| (*lane, line))
    }

    /// What is remembered of a lane.
    pub(super) fn line(&self, group: i64, lane: Lane) -> Option<&Line> {
        self.groups.get(&group)?.get(&lane)
    }

    /// Sees to it that so many of each lane of a group are remembered, if there are so many.
    pub(super) fn fill(
        &mut self,
        connection: &Connection,
        group: i64,
        wanted: usize,
        flying: &Flying,
    ) -> SqlResult<()> {
        let Some(lanes) = self.groups.get_mut(&group) else { return Ok(()) };
        let mut is_any_empty = false;
        for (lane, line) in lanes.iter_mut() {
            if line.more && line.ranks.len() - line.from < wanted {
                line.read_on(connection, group, *lane, wanted, flying)?;
            }
            is_any_empty |= line.is_empty();
        }
        if is_any_empty {
            lanes.retain(|_, line| !line.is_empty());
        }
        Ok(())
    }

    /// A job is taken, or cannot be claimed any more.
    pub(super) fn remove(&mut self, group: i64, lane: Lane, rank: Rank, seq: i64) {
        let Some(lanes) = self.groups.get_mut(&group) else { return };
        let Some(line) = lanes.get_mut(&lane) else { return };
        line.remove(rank, seq);
        if line.is_empty() {
            lanes.remove(&lane);
        }
    }

    /// A plan made a job, or changed it.
    pub(super) fn note(&mut self, before: Option<(&Job, i64)>, job: &Job, place: &Place) {
        let (lane, rank, seq) = (place.lane, job.spec.rank(), place.seq);
        let group = place.group_id();
        if let Some((_, group)) = before.filter(|(before, _)| is_ready(before.state)) {
            self.remove(group, lane, rank, seq);
        }
        let Some(lanes) = self.groups.get_mut(&group) else { return };
        if is_ready(job.state) {
            lanes.entry(lane).or_default().insert(rank, seq);
        } else if let Some(at) = job.next_retry_at {
            let line = lanes.entry(lane).or_default();
            line.retry_at = Some(line.retry_at.map_or(at, |known| known.min(at)));
        }
    }

    /// Retries of a lane that are due, at most so many, and when the next one is.
    pub(super) fn due_retries(
        &mut self,
        connection: &Connection,
        (group, lane): (i64, Lane),
        limit: usize,
        flying: &Flying,
        now: Timestamp,
    ) -> SqlResult<Vec<(Rank, i64)>> {
        let newer = newer(group, lane, flying);
        let limit = i64::try_from(limit.saturating_add(newer.len())).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(DUE_RETRIES)?;
        let mut rows = statement.query(params![group, lane.get(), now.as_micros(), limit])?;
        let (mut due, mut read) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            read += 1;
            let seq = row.get(0)?;
            if !newer.contains_key(&seq) {
                due.push((Rank(row.get(1)?), seq));
            }
        }
        let here = newer.iter().filter_map(|(seq, job)| Some((*seq, (*job)?)));
        let retries =
            here.filter_map(|(seq, job)| Some((seq, job.spec.rank(), job.next_retry_at?)));
        due.extend(retries.clone().filter(|it| it.2 <= now).map(|it| (it.1, it.0)));
        due.sort_unstable();
        if due.is_empty() && read < limit {
            let mut statement = connection.prepare_cached(NEXT_RETRY)?;
            let next = params![group, lane.get(), now.as_micros()];
            let next: Option<i64> = statement.query_row(next, |row| row.get(0)).optional()?;
            let next = next.map(Timestamp::from_micros).into_iter().chain(retries.map(|it| it.2));
            let next = next.min();
            if let Some(lanes) = self.groups.get_mut(&group)
                && let Some(line) = lanes.get_mut(&lane)
            {
                line.retry_at = next;
                if line.is_empty() {
                    lanes.remove(&lane);
                }
            }
        }
        Ok(due)
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.from == self.ranks.len() && !self.more && self.retry_at.is_none()
    }

    /// The ranks of those that are remembered, best first.
    pub(super) fn ranks(&self) -> &[Rank] {
        &self.ranks[self.from..]
    }

    /// Where they are, in the same order.
    pub(super) fn seqs(&self) -> &[i64] {
        &self.seqs[self.from..]
    }

    fn place_of(&self, rank: Rank, seq: i64) -> Result<usize, usize> {
        let before = |place: &usize| (self.ranks[*place], self.seqs[*place]) < (rank, seq);
        let (mut low, mut high) = (self.from, self.ranks.len());
        while low < high {
            let middle = low.midpoint(high);
            if before(&middle) { low = middle + 1 } else { high = middle }
        }
        let is_it = low < self.ranks.len() && (self.ranks[low], self.seqs[low]) == (rank, seq);
        if is_it { Ok(low) } else { Err(low) }
    }

    fn insert(&mut self, rank: Rank, seq: i64) {
        let Err(place) = self.place_of(rank, seq) else { return };
        // After the last that is remembered there may be others before it.
        if self.more && place == self.ranks.len() {
            return;
        }
        self.ranks.insert(place, rank);
        self.seqs.insert(place, seq);
        if self.ranks.len() - self.from > KEPT_MAX {
            let kept = self.from + KEPT_MAX / 2;
            self.ranks.truncate(kept);
            self.seqs.truncate(kept);
            self.more = true;
        }
    }

    fn remove(&mut self, rank: Rank, seq: i64) {
        let Ok(place) = self.place_of(rank, seq) else { return };
        if place == self.from {
            self.from += 1;
        } else {
            self.ranks.remove(place);
            self.seqs.remove(place);
        }
        if self.from > 1_024 && self.from * 2 > self.ranks.len() {
            self.ranks.drain(..self.from);
            self.seqs.drain(..self.from);
            self.from = 0;
        }
    }

    fn read_on(
        &mut self,
        connection: &Connection,
        group: i64,
        lane: Lane,
        wanted: usize,
        flying: &Flying,
    ) -> SqlResult<()> {
        let newer = newer(group, lane, flying);
        let limit = wanted.saturating_mul(2).clamp(READ_MIN, KEPT_MAX / 2) + newer.len();
        let last = self.ranks().last().zip(self.seqs().last());
        let last = last.map_or((i64::MIN, i64::MIN), |(rank, seq)| (rank.0, *seq));
        let sql_limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(READY)?;
        let mut rows = statement.query(params![group, lane.get(), last.0, last.1, sql_limit])?;
        let mut found: Vec<(Rank, i64)> = Vec::new();
        let mut end = None;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            let job = (Rank(row.get(1)?), row.get(0)?);
            read += 1;
            end = Some(job);
            if !newer.contains_key(&job.1) {
                found.push(job);
            }
        }
        // What is on its way stands after what is remembered, and before what was not read.
        let is_there_more = read == limit;
        let here = newer.iter().filter_map(|(seq, job)| Some((*seq, (*job)?)));
        let on_its_way = here.filter(|(_, job)| is_ready(job.state));
        let on_its_way = on_its_way.map(|(seq, job)| (job.spec.rank(), seq));
        found.extend(on_its_way.filter(|job| {
            (job.0.0, job.1) > last && (!is_there_more || end.is_none_or(|end| *job <= end))
        }));
        found.sort_unstable();
        self.ranks.extend(found.iter().map(|job| job.0));
        self.seqs.extend(found.iter().map(|job| job.1));
        self.more = is_there_more;
        Ok(())
    }
}

/// The jobs that are on their way and have this key, as they are then; none for one that is in another group: it
/// may have left this one, to be claimed alone.
fn newer(group: i64, lane: Lane, flying: &Flying) -> HashMap<i64, Option<&Job>> {
    let rows = flying.iter().flat_map(|plan| plan.rows.values());
    let same = rows.filter(|row| row.place.lane == lane);
    let is_here = |place: &Place| place.group.is_some_and(|(id, _)| id == group);
    same.map(|row| (row.place.seq, is_here(&row.place).then_some(&*row.job))).collect()
}

fn is_ready(state: State) -> bool {
    matches!(state, State::Queued | State::Interrupted)
}
