//! Groups that this process knows, and from which rank on they are looked through.
//!
//! A group never changes and is never taken away, so what is remembered stays true while the server is the same. What a transaction adds is
//! remembered when it is committed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Job, Queue};

use super::{
    PgResult,
    load::{Place, text_of},
    pipeline::{Ask, run_one},
};
use crate::job_row::GroupName;

/// Groups by name and by the number they have in rows.
#[derive(Default)]
pub(super) struct Names {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_name: HashMap<GroupName, i32>,
    by_id: HashMap<i32, GroupName>,
    by_queue: HashMap<Queue, Vec<(i32, GroupName)>>,
    learned: i32,
    floors: HashMap<i32, Floor>,
}

/// From which rank on a group is looked through: what stood below was taken.
///
/// An index remembers what it no longer has for as long as any old snapshot may ask for it. Without a floor
/// each claim would pass all of that. Now and then a claim looks from the beginning, for others may have put
/// something there.
struct Floor {
    rank: i64,
    looked_at_all: Instant,
}

/// How long a job that another process put below the floor may wait.
const LOOK_AT_ALL: Duration = Duration::from_millis(500);

/// Numbers are given before they can be seen, so a later one may be seen before an earlier one.
const NUMBERS_IN_FLIGHT: i32 = 1_000;

const GROUPS: &str =
    "SELECT id, queue, tenant, kind, isolated FROM job_groups WHERE id > $1 ORDER BY id";
const ADD_GROUP: &str = "
    INSERT INTO job_groups (queue, tenant, kind, isolated) VALUES ($1, $2, $3, $4)
    ON CONFLICT (queue, tenant, kind, isolated) DO UPDATE SET isolated = excluded.isolated
    RETURNING id";

impl Names {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns the groups that others have made.
    pub(super) async fn learn(&self, client: &ClientWrapper) -> PgResult<()> {
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
    pub(super) fn learned(&self) -> i32 {
        self.known().learned
    }

    /// Remembers a group.
    pub(super) fn add(&self, id: i32, name: GroupName) {
        let mut known = self.known();
        known.by_id.insert(id, name.clone());
        if known.by_name.insert(name.clone(), id).is_none() {
            known.by_queue.entry(name.queue.clone()).or_default().push((id, name));
        }
    }

    /// The group of this number.
    pub(super) fn named_by(&self, id: i32) -> Option<GroupName> {
        self.known().by_id.get(&id).cloned()
    }

    /// The groups of some queues.
    pub(super) fn groups_of(&self, queues: &[Queue]) -> Vec<(i32, GroupName)> {
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

    /// The rank from which on a group is looked through now.
    pub(super) fn floor(&self, group: i32) -> i64 {
        let mut known = self.known();
        let Some(floor) = known.floors.get_mut(&group) else { return i64::MIN };
        if floor.looked_at_all.elapsed() < LOOK_AT_ALL {
            return floor.rank;
        }
        known.floors.remove(&group);
        i64::MIN
    }

    /// What was found in a group begins at this rank.
    pub(super) fn raise_floor(&self, group: i32, rank: i64) {
        let mut known = self.known();
        #[expect(
            clippy::disallowed_methods,
            reason = "the age of what this process remembers, which decides nothing about jobs"
        )]
        let looked_at_all = Instant::now();
        let floor = known.floors.entry(group).or_insert(Floor { rank, looked_at_all });
        floor.rank = floor.rank.max(rank);
    }

    /// A job of this rank can be claimed, or may be: someone who looked found too little.
    pub(super) fn lower_floor(&self, group: i32, rank: i64) {
        let mut known = self.known();
        if known.floors.get(&group).is_some_and(|floor| floor.rank > rank) {
            known.floors.remove(&group);
        }
    }

    /// Forgets all groups: the server is not the one that gave them their numbers.
    pub(super) fn forget(&self) {
        *self.known() = Known::default();
    }

    /// Anybody may have put anything anywhere.
    pub(super) fn forget_floors(&self) {
        self.known().floors.clear();
    }

    fn named(&self, name: &GroupName) -> Option<i32> {
        self.known().by_name.get(name).copied()
    }
}

/// The groups that the jobs of one commit are in, and those that it has made.
#[derive(Default)]
pub(super) struct CommitGroups {
    last: Option<(i32, GroupName)>,
    made: BTreeMap<GroupName, i32>,
}

impl CommitGroups {
    /// The number of a job's group, which is made if it is new.
    pub(super) async fn of(
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
    pub(super) async fn make_all<'a>(
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
    pub(super) fn keep(self, names: &Names) {
        self.made.into_iter().for_each(|(name, id)| names.add(id, name));
    }
}
