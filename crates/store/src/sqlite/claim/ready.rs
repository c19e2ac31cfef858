//! The writer's cache of what can be claimed.
//!
//! There is one writer, so the cache is authoritative: each plan updates it with the jobs that
//! became ready and those that no longer are. Of a group the first jobs are remembered, in the
//! order of their ranks and each in its lane; when they do not suffice, the next are read. So a
//! claim reads each job once, however many lanes there are, and jobs that are taken together stand
//! together in the index.
//!
//! Always true: a job that can be claimed is cached; or it comes after the part of its group's
//! index that was read; or after the point at which its lane was cut; or it is a retry that is not
//! due before the lane's `retry_at`. Plans in flight are newer than what a snapshot of the database
//! shows.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::{Job, Lane, Timestamp, job::Rank};

use crate::{
    commit::Row,
    job_row::is_ready,
    sqlite::{SqlResult, row::job::Place, write::write_plan::WritePlan},
};

mod line;
#[cfg(test)]
mod tests;

pub(crate) use self::line::Line;

/// What is remembered of each group that was looked at.
#[derive(Default)]
pub(crate) struct Ready {
    groups: HashMap<i64, Group>,
    bounds: Bounds,
}

/// How much is read and remembered.
#[derive(Clone, Copy)]
struct Bounds {
    /// How many jobs are read at the least.
    read_min: usize,
    /// With more than this many in a group, long lanes are cut.
    kept_max: usize,
    /// When a lane is long.
    line_max: usize,
    /// How many of a long lane are kept.
    line_cut: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { read_min: 256, kept_max: 100_000, line_max: 1_024, line_cut: 512 }
    }
}

/// The lanes of a group that have something, or may have.
struct Group {
    lanes: BTreeMap<Lane, Line>,
    /// How far the index was read; none, if all of it was.
    read_to: Option<Key>,
    /// How many jobs are remembered.
    kept: usize,
    /// With more than this, long lanes are cut.
    cut_above: usize,
    bounds: Bounds,
}

/// A job's place in the index: its rank, its lane and its number.
type Key = (Rank, Lane, i64);

/// Before every other.
const FIRST: Key = (Rank(i64::MIN), Lane::new(i64::MIN), i64::MIN);

/// Plans that are on their way, oldest first.
pub(crate) type Flying = VecDeque<Arc<WritePlan>>;

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
    SELECT rank, lane, seq FROM jobs
    WHERE group_id = ?1 AND (state = 'queued' OR state = 'interrupted')
        AND rank >= ?2 AND (rank, lane, seq) > (?2, ?3, ?4)
    ORDER BY rank, lane, seq LIMIT ?5";

/// The same for one lane, up to where its group was read. Served by the index `jobs_ready` alone.
const READY_IN_LANE: &str = "
    SELECT rank, seq FROM jobs
    WHERE group_id = ?1 AND (state = 'queued' OR state = 'interrupted')
        AND lane = ?2 AND rank >= ?3 AND (rank, seq) >= (?3, ?4)
        AND (rank, lane, seq) <= (?5, ?6, ?7)
    ORDER BY rank, lane, seq LIMIT ?8";

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
    /// Reads on until so many jobs of a group are cached, or all that there are.
    pub(crate) fn look(
        &mut self,
        connection: &Connection,
        id: i64,
        wanted: usize,
        flying: &Flying,
    ) -> SqlResult<()> {
        let group = match self.groups.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Group::begin(connection, id, self.bounds, flying)?),
        };
        if group.kept < wanted {
            group.read_on(connection, id, wanted, flying)?;
        }
        group.mend(connection, id, wanted, flying)
    }

    /// Reads more of a group, and says how many there were.
    pub(crate) fn read_on(
        &mut self,
        connection: &Connection,
        id: i64,
        wanted: usize,
        flying: &Flying,
    ) -> SqlResult<usize> {
        match self.groups.get_mut(&id) {
            Some(group) => group.read_on(connection, id, wanted, flying),
            None => Ok(0),
        }
    }

    /// Was not all of a group read?
    pub(crate) fn has_more(&self, group: i64) -> bool {
        self.groups.get(&group).is_some_and(|group| group.read_to.is_some())
    }

    /// The lanes of a group that have something, or may have.
    pub(crate) fn lanes(&self, group: i64) -> impl Iterator<Item = (Lane, &Line)> {
        let lanes = self.groups.get(&group).map(|group| &group.lanes);
        lanes.into_iter().flatten().map(|(lane, line)| (*lane, line))
    }

    /// What is remembered of a lane.
    pub(crate) fn line(&self, group: i64, lane: Lane) -> Option<&Line> {
        self.groups.get(&group)?.lanes.get(&lane)
    }

    /// A job is taken, or cannot be claimed any more.
    pub(crate) fn remove(&mut self, group: i64, lane: Lane, rank: Rank, seq: i64) {
        let Some(group) = self.groups.get_mut(&group) else { return };
        let Some(line) = group.lanes.get_mut(&lane) else { return };
        group.kept -= usize::from(line.remove(rank, seq));
        if line.is_empty() {
            group.lanes.remove(&lane);
        }
    }

    /// A plan made a job, or changed it.
    pub(crate) fn note(&mut self, before: Option<(&Job, i64)>, job: &Job, place: &Place) {
        let (lane, rank, seq) = (place.lane, job.spec.rank(), place.seq);
        if let Some((_, group)) = before.filter(|(before, _)| is_ready(before.state)) {
            self.remove(group, lane, rank, seq);
        }
        let Some(group) = self.groups.get_mut(&place.group_id()) else { return };
        if is_ready(job.state) {
            group.add((rank, lane, seq));
        } else if let Some(at) = job.next_retry_at {
            let line = group.lanes.entry(lane).or_default();
            line.retry_at = Some(line.retry_at.map_or(at, |known| known.min(at)));
        }
    }

    /// Retries of a lane that are due, at most so many, and when the next one is.
    pub(crate) fn due_retries(
        &mut self,
        connection: &Connection,
        (group, lane): (i64, Lane),
        limit: usize,
        flying: &Flying,
        now: Timestamp,
    ) -> SqlResult<Vec<(Rank, i64)>> {
        let newer = newer(group, Some(lane), flying);
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
        let here = newer.iter().filter_map(|(seq, row)| Some((*seq, &(*row)?.job)));
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
            if let Some(group) = self.groups.get_mut(&group)
                && let Some(line) = group.lanes.get_mut(&lane)
            {
                line.retry_at = next;
                if line.is_empty() {
                    group.lanes.remove(&lane);
                }
            }
        }
        Ok(due)
    }
}

impl Group {
    /// A group of which nothing was read yet.
    fn begin(connection: &Connection, id: i64, bounds: Bounds, flying: &Flying) -> SqlResult<Self> {
        let mut lanes: BTreeMap<Lane, Line> = BTreeMap::new();
        let mut statement = connection.prepare_cached(RETRY_LANES)?;
        let mut rows = statement.query([id])?;
        while let Some(row) = rows.next()? {
            lanes.entry(Lane::new(row.get(0)?)).or_default().retry_at = Some(Timestamp::MIN);
        }
        for row in flying.iter().flat_map(|plan| plan.rows.values()) {
            let is_here = row.place.group.is_some_and(|(group, _)| group == id);
            if is_here && row.job.next_retry_at.is_some() {
                lanes.entry(row.place.lane).or_default().retry_at = Some(Timestamp::MIN);
            }
        }
        Ok(Self { lanes, read_to: Some(FIRST), kept: 0, cut_above: bounds.kept_max, bounds })
    }

    /// A job can be claimed from now on. One behind what was read is read later: there may be others before it.
    fn add(&mut self, key: Key) {
        if self.read_to.is_none_or(|read_to| key <= read_to) {
            self.insert(key);
            self.cut();
        }
    }

    fn insert(&mut self, (rank, lane, seq): Key) {
        let line = self.lanes.entry(lane).or_default();
        self.kept += usize::from(line.insert(rank, seq));
    }

    /// Reads the next jobs of the index, at least so many if there are so many. It says how many it has read.
    fn read_on(
        &mut self,
        connection: &Connection,
        id: i64,
        wanted: usize,
        flying: &Flying,
    ) -> SqlResult<usize> {
        let Some(from) = self.read_to else { return Ok(0) };
        let bounds = self.bounds;
        let newer = newer(id, None, flying);
        let limit =
            wanted.saturating_mul(2).clamp(bounds.read_min, bounds.kept_max / 4) + newer.len();
        let mut statement = connection.prepare_cached(READY)?;
        let (rank, lane, seq) = from;
        let sql_limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![id, rank.0, lane.get(), seq, sql_limit])?;
        let (mut read, mut end) = (0, from);
        while let Some(row) = rows.next()? {
            read += 1;
            end = (Rank(row.get(0)?), Lane::new(row.get(1)?), row.get(2)?);
            if !newer.contains_key(&end.2) {
                self.insert(end);
            }
        }
        self.read_to = (read == limit).then_some(end);
        // Adds the ready jobs of plans in flight whose keys lie in the range that was read just
        // now.
        for (seq, row) in newer.iter().filter_map(|(seq, row)| Some((*seq, (*row)?))) {
            let key = (row.job.spec.rank(), row.place.lane, seq);
            if is_ready(row.job.state)
                && key > from
                && self.read_to.is_none_or(|read_to| key <= read_to)
            {
                self.insert(key);
            }
        }
        self.cut();
        Ok(read)
    }

    /// Forgets the ends of long lanes, if there are too many jobs.
    fn cut(&mut self) {
        if self.kept <= self.cut_above {
            return;
        }
        let Bounds { line_max, line_cut, .. } = self.bounds;
        for line in self.lanes.values_mut() {
            if line.ranks().len() > line_max {
                self.kept -= line.cut(line_cut);
            }
        }
        // If all lanes are short nothing was cut: the next attempt waits until the cache has
        // doubled, so that it is not made at each insert.
        self.cut_above = self.bounds.kept_max.max(self.kept * 2);
    }

    /// Reads again what was forgotten of lanes that have become short.
    fn mend(
        &mut self,
        connection: &Connection,
        id: i64,
        wanted: usize,
        flying: &Flying,
    ) -> SqlResult<()> {
        let is_short = |line: &Line| line.cut_from.is_some() && line.ranks().len() < wanted;
        let short = self.lanes.iter().filter(|(_, line)| is_short(line));
        let short: Vec<Lane> = short.map(|(lane, _)| *lane).collect();
        for lane in short {
            self.mend_lane(connection, id, lane, wanted, flying)?;
        }
        Ok(())
    }

    fn mend_lane(
        &mut self,
        connection: &Connection,
        id: i64,
        lane: Lane,
        wanted: usize,
        flying: &Flying,
    ) -> SqlResult<()> {
        let line = self.lanes.get_mut(&lane).expect("it was just found");
        let Some(from) = line.cut_from.take() else { return Ok(()) };
        let newer = newer(id, Some(lane), flying);
        let limit = wanted.clamp(self.bounds.line_cut, self.bounds.kept_max / 4) + newer.len();
        let last = (Rank(i64::MAX), Lane::new(i64::MAX), i64::MAX);
        let to = self.read_to.unwrap_or(last);
        let mut statement = connection.prepare_cached(READY_IN_LANE)?;
        let mut rows = statement.query(params![
            id,
            lane.get(),
            from.0.0,
            from.1,
            to.0.0,
            to.1.get(),
            to.2,
            i64::try_from(limit).unwrap_or(i64::MAX)
        ])?;
        let (mut read, mut end) = (0, from);
        while let Some(row) = rows.next()? {
            read += 1;
            end = (Rank(row.get(0)?), row.get(1)?);
            if !newer.contains_key(&end.1) {
                self.kept += usize::from(line.insert(end.0, end.1));
            }
        }
        let is_more = read == limit;
        for (seq, row) in newer.iter().filter_map(|(seq, row)| Some((*seq, (*row)?))) {
            let key = (row.job.spec.rank(), seq);
            let is_read = (key.0, lane, seq) <= to && (!is_more || key <= end);
            if is_ready(row.job.state) && key >= from && is_read {
                self.kept += usize::from(line.insert(key.0, key.1));
            }
        }
        // The first that was not read.
        line.cut_from = is_more.then_some((end.0, end.1 + 1));
        if line.is_empty() {
            self.lanes.remove(&lane);
        }
        Ok(())
    }
}

/// The jobs that are on their way, of all lanes or of this one, as they are then; none for one that is in another
/// group: it may have left this one, to be claimed alone.
fn newer(group: i64, lane: Option<Lane>, flying: &Flying) -> HashMap<i64, Option<&Row<Place>>> {
    let rows = flying.iter().flat_map(|plan| plan.rows.values());
    let same = rows.filter(|row| lane.is_none_or(|lane| row.place.lane == lane));
    let is_here = |place: &Place| place.group.is_some_and(|(id, _)| id == group);
    same.map(|row| (row.place.seq, is_here(&row.place).then_some(row))).collect()
}
