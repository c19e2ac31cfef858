//! A cache of groups, and the floor of each: the rank from which on a claim scans it.
//!
//! A group is never changed or deleted, so a cached one stays valid while the server is the same. A
//! group that a transaction adds is cached when the transaction is committed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Job, Queue};

use crate::{
    job_row::GroupName,
    postgres::{
        PgResult,
        link::pipeline::{Ask, run_one},
        row::{column::text_of, job::Place},
    },
};

/// Groups by name and by the number they have in rows.
#[derive(Default)]
pub(crate) struct Names {
    known: Mutex<GroupCache>,
}

#[derive(Default)]
struct GroupCache {
    by_name: HashMap<GroupName, i32>,
    by_id: HashMap<i32, GroupName>,
    by_queue: HashMap<Queue, Vec<(i32, GroupName)>>,
    learned: i32,
    floors: HashMap<i32, Floor>,
}

/// The rank from which on a claim scans a group: the jobs below it were claimed.
///
/// PostgreSQL keeps dead index entries for as long as an old snapshot may need them, and without a
/// floor each claim would step over all of them. Every half second a claim scans from the
/// beginning, because another node may have put a job below the floor.
struct Floor {
    rank: i64,
    looked_at_all: Instant,
}

/// How long a job that another process put below the floor may wait.
const LOOK_AT_ALL: Duration = Duration::from_millis(500);

/// A sequence hands out a number before its row is committed, so a later group may be visible
/// before an earlier one: each look-up overlaps the last by so many numbers.
const NUMBERS_IN_FLIGHT: i32 = 1_000;

const GROUPS: &str =
    "SELECT id, queue, tenant, kind, isolated FROM job_groups WHERE id > $1 ORDER BY id";
const ADD_GROUP: &str = "
    INSERT INTO job_groups (queue, tenant, kind, isolated) VALUES ($1, $2, $3, $4)
    ON CONFLICT (queue, tenant, kind, isolated) DO UPDATE SET isolated = excluded.isolated
    RETURNING id";

impl Names {
    fn known(&self) -> MutexGuard<'_, GroupCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns the groups that others have made.
    pub(crate) async fn learn(&self, client: &ClientWrapper) -> PgResult<()> {
        let from = self.known().learned - NUMBERS_IN_FLIGHT;
        let rows = run_one(client, Ask::new(GROUPS).with(from)).await?;
        for row in &rows {
            let name = GroupName {
                queue: text_of(row, 1)?,
                tenant: text_of(row, 2)?,
                kind: text_of(row, 3)?,
                isolated: row.try_get(4)?,
            };
            let id = row.try_get(0)?;
            self.add(id, name);
            let mut known = self.known();
            known.learned = known.learned.max(id);
        }
        Ok(())
    }

    /// The newest group that was learned. What this process has made itself does not count: others may have
    /// made groups before it that nobody here has heard of.
    pub(crate) fn learned(&self) -> i32 {
        self.known().learned
    }

    /// Remembers a group.
    pub(crate) fn add(&self, id: i32, name: GroupName) {
        let mut known = self.known();
        known.by_id.insert(id, name.clone());
        if known.by_name.insert(name.clone(), id).is_none() {
            known.by_queue.entry(name.queue.clone()).or_default().push((id, name));
        }
    }

    /// The group of this number.
    pub(crate) fn named_by(&self, id: i32) -> Option<GroupName> {
        self.known().by_id.get(&id).cloned()
    }

    /// The groups of some queues.
    pub(crate) fn groups_of(&self, queues: &[Queue]) -> Vec<(i32, GroupName)> {
        let known = self.known();
        let mut groups: Vec<(i32, GroupName)> = queues
            .iter()
            .filter_map(|queue| known.by_queue.get(queue))
            .flatten()
            .cloned()
            .collect();
        groups.sort_by_key(|(id, _)| *id);
        groups.dedup_by_key(|(id, _)| *id);
        groups
    }

    /// The rank from which on a claim scans a group. After half a second the floor has expired, and
    /// the scan begins at the front.
    pub(crate) fn floor(&self, group: i32) -> i64 {
        let mut known = self.known();
        let Some(floor) = known.floors.get_mut(&group) else { return i64::MIN };
        if floor.looked_at_all.elapsed() < LOOK_AT_ALL {
            return floor.rank;
        }
        known.floors.remove(&group);
        i64::MIN
    }

    /// Raises the floor: a scan that was filled began with this rank, so the jobs below it are
    /// taken.
    pub(crate) fn raise_floor(&self, group: i32, rank: i64) {
        let mut known = self.known();
        #[expect(
            clippy::disallowed_methods,
            reason = "the age of what this process remembers, which decides nothing about jobs"
        )]
        let looked_at_all = Instant::now();
        let floor = known.floors.entry(group).or_insert(Floor { rank, looked_at_all });
        floor.rank = floor.rank.max(rank);
    }

    /// Drops the floor, if it is above this rank: a job of the rank became ready, or a scan from
    /// the floor on found too few.
    pub(crate) fn lower_floor(&self, group: i32, rank: i64) {
        let mut known = self.known();
        if known.floors.get(&group).is_some_and(|floor| floor.rank > rank) {
            known.floors.remove(&group);
        }
    }

    /// Forgets all groups: the server is not the one that gave them their numbers.
    pub(crate) fn forget(&self) {
        *self.known() = GroupCache::default();
    }

    /// Drops every floor: another node may have put jobs below any of them.
    pub(crate) fn forget_floors(&self) {
        self.known().floors.clear();
    }

    fn named(&self, name: &GroupName) -> Option<i32> {
        self.known().by_name.get(name).copied()
    }
}

/// The groups that the jobs of one commit are in, and those that it has made.
#[derive(Default)]
pub(crate) struct CommitGroups {
    last: Option<(i32, GroupName)>,
    made: BTreeMap<GroupName, i32>,
}

impl CommitGroups {
    /// The number of a job's group, which is made if it is new.
    pub(crate) async fn of(
        &mut self,
        client: &ClientWrapper,
        names: &Names,
        job: &Job,
        place: &mut Place,
    ) -> PgResult<i32> {
        let isolated = job.is_isolated();
        if let Some((id, _)) = place.group.filter(|(_, was)| *was == isolated) {
            return Ok(id);
        }
        // Jobs that are enqueued together are mostly of one group.
        let id = match self.last.as_ref().filter(|(_, name)| name.is_of(job)) {
            Some((id, _)) => *id,
            None => {
                let name = GroupName::of(job);
                let id = match names.named(&name).or_else(|| self.made.get(&name).copied()) {
                    Some(id) => id,
                    None => self.make(client, &name).await?,
                };
                self.last = Some((id, name));
                id
            }
        };
        place.group = Some((id, isolated));
        Ok(id)
    }

    /// Makes the groups of these jobs that nobody has made yet, in the order of their names: a commit of another node may
    /// be making the same.
    pub(crate) async fn make_all<'a>(
        &mut self,
        client: &ClientWrapper,
        names: &Names,
        jobs: impl Iterator<Item = (&'a Job, &'a Place)>,
    ) -> PgResult<()> {
        let (mut last, mut new) = (None, BTreeSet::new());
        for (job, place) in jobs {
            let isolated = job.is_isolated();
            if place.group.is_some_and(|(_, was)| was == isolated)
                || last.as_ref().is_some_and(|name: &GroupName| name.is_of(job))
            {
                continue;
            }
            let name = GroupName::of(job);
            if names.named(&name).is_none() {
                new.insert(name.clone());
            }
            last = Some(name);
        }
        for name in &new {
            self.make(client, name).await?;
        }
        Ok(())
    }

    async fn make(&mut self, client: &ClientWrapper, name: &GroupName) -> PgResult<i32> {
        let add = Ask::new(ADD_GROUP)
            .with(name.queue.as_str().to_owned())
            .with(name.tenant.as_str().to_owned())
            .with(name.kind.as_str().to_owned())
            .with(name.isolated);
        let id = run_one(client, add).await?.remove(0).try_get(0)?;
        self.made.insert(name.clone(), id);
        Ok(id)
    }

    /// The transaction is committed: what it made is there.
    pub(crate) fn keep(self, names: &Names) {
        self.made.into_iter().for_each(|(name, id)| names.add(id, name));
    }
}
