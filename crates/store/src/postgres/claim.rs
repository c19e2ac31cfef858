//! Claims: what is ready, and who gets it.
//!
//! What a claim takes it locks, and what another transaction has locked it leaves alone. The usual claim names
//! one group: then its jobs are asked for and locked together with everything else that the commit loads.

use std::collections::{HashSet, VecDeque};

use tokio_postgres::Row;
use windlass_kernel::{
    JobId, Lane, Op, OpKind, Timestamp, WorkerId,
    admit::{Head, NoBooks, Request, Turns, admit},
    job::Rank,
    ops::Claim,
};

use super::{
    PgResult,
    load::{Loaded, add_jobs, free_job_of, id_of, row_columns, text_of, time_of},
    names::Names,
    pipeline::{Ask, run, run_one},
    types::{Time, Uuid},
    work::Work,
};
use crate::{Write, commit::ClaimMany, job_row::GroupName};

/// A job that a claim got, and its payload if it is known.
pub(super) type Grant = (JobId, Option<String>);

/// What the claims of a batch are about to ask.
#[derive(Default)]
pub(super) struct Claims<'a> {
    wanted: Vec<&'a ClaimMany>,
    direct: Option<Direct>,
    /// Claims that were granted something before.
    repeated: HashSet<u128>,
}

/// All claims want the same, and it is one group.
struct Direct {
    group: i32,
    name: GroupName,
    floor: i64,
    limit: usize,
    /// What was found, best first, and locked.
    ready: VecDeque<(Loaded, String)>,
    /// The best rank that was found, if there may be more than was asked for.
    full_from: Option<i64>,
}

/// One statement locks no more jobs than this.
const LOCK_MAX: usize = 5_000;

/// What is ready, best first, served by the index `jobs_ready`; then retries that are due, longest due first,
/// served by the index `jobs_retry`.
const READY: &str = concat!(
    "SELECT *, false FROM (SELECT ",
    row_columns!(),
    ", j.payload FROM jobs j
     WHERE j.group_id = $1 AND (j.state = 'queued' OR j.state = 'interrupted') AND j.rank >= $2
     ORDER BY j.rank LIMIT $3 FOR UPDATE SKIP LOCKED) AS ready
     UNION ALL SELECT *, true FROM (SELECT ",
    row_columns!(),
    ", j.payload FROM jobs j
     WHERE j.group_id = $1 AND j.next_retry_at <= coalesce($4, statement_timestamp())
     ORDER BY j.next_retry_at LIMIT $3 FOR UPDATE SKIP LOCKED) AS due"
);

/// The same claim may be asked for again while it is still on its way, perhaps by way of another node. The
/// second waits for the first, and then finds what that was granted.
const ONE_AT_A_TIME: &str =
    "SELECT count(pg_advisory_xact_lock(claim)) FROM unnest($1::bigint[]) AS claim";

impl<'a> Claims<'a> {
    /// The claims among these writes, and the way they go.
    pub(super) fn of(writes: &'a [Write], names: &Names) -> Self {
        let claims = writes.iter().filter_map(|write| match write {
            Write::Claim(wanted) if write.check().is_ok() => Some(wanted),
            _ => None,
        });
        let wanted: Vec<&ClaimMany> = claims.collect();
        let Some(first) = wanted.first() else { return Self::default() };
        let alike = |other: &&ClaimMany| {
            (&other.queues, &other.kinds, &other.tenant)
                == (&first.queues, &first.kinds, &first.tenant)
        };
        let mut direct = None;
        if wanted.iter().all(alike) {
            let mut groups = names.groups_of(&first.queues);
            groups.retain(|(_, name)| wants(first, name));
            if let [(group, name)] = &groups[..]
                && !name.isolated
            {
                let touched = writes.iter().filter(|write| may_touch_ready(write)).count();
                let limit = wanted.iter().map(|it| it.max).fold(touched, usize::saturating_add);
                let (group, name, limit) = (*group, name.clone(), limit.min(LOCK_MAX));
                let floor = names.floor(group);
                let (ready, full_from) = (VecDeque::new(), None);
                direct = Some(Direct { group, name, floor, limit, ready, full_from });
            }
        }
        Self { wanted, direct, ..Self::default() }
    }

    /// The ids of the claims.
    pub(super) fn ids(&self) -> Vec<Uuid> {
        self.wanted.iter().map(|it| Uuid(it.claim_id.as_u128())).collect()
    }

    /// These were granted something before.
    pub(super) fn are_repeated(&mut self, ids: Vec<Uuid>) {
        self.repeated = ids.into_iter().map(|id| id.0).collect();
    }

    /// The statements, which [`Claims::take`] expects the rows of. A clock that is not the database's says
    /// what time it is.
    pub(super) fn asks(&self, asks: &mut Vec<Ask>, schema: i32, now: Option<Timestamp>) {
        if self.wanted.is_empty() {
            return;
        }
        asks.push(Ask::new(ONE_AT_A_TIME).with(self.locks(schema)));
        if let Some(direct) = &self.direct {
            asks.push(direct.ask(now));
        }
    }

    /// A number for each claim, another in each schema of a database; always in the same order, so that no two
    /// wait for each other.
    fn locks(&self, schema: i32) -> Vec<i64> {
        let number = |wanted: &&ClaimMany| {
            let [.., a, b, c, d, e, f, g, h] = wanted.claim_id.as_u128().to_be_bytes();
            i64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ (i64::from(schema) << 32)
        };
        let mut locks: Vec<i64> = self.wanted.iter().map(number).collect();
        locks.sort_unstable();
        locks
    }

    /// Takes the rows, which come in the order of the statements.
    pub(super) fn take(&mut self, rows: &mut impl Iterator<Item = Vec<Row>>) -> PgResult<()> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        rows.next();
        if let Some(direct) = &mut self.direct {
            direct.take(&rows.next().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Looks below the floor, if there was not enough above it.
    pub(super) async fn look_below(&mut self, work: &Work<'_>, now: Timestamp) -> PgResult<()> {
        let Some(direct) = &mut self.direct else { return Ok(()) };
        if direct.floor == i64::MIN || direct.full_from.is_some() {
            return Ok(());
        }
        direct.floor = i64::MIN;
        let found = run_one(work.client, direct.ask(Some(now))).await?;
        direct.take(&found)
    }

    /// Is there a group that this batch may want and that is not known yet?
    pub(super) fn is_about(&self, newest_group: i32, names: &Names) -> bool {
        !self.wanted.is_empty() && newest_group > names.learned()
    }

    /// Does not trust what it knows of groups: looks for them.
    pub(super) fn look_further(&mut self) {
        self.direct = None;
    }

    /// Grants what the claim may have, and gives back the ids.
    pub(super) async fn grant(
        &mut self,
        wanted: &ClaimMany,
        work: &mut Work<'_>,
        names: &Names,
        now: Timestamp,
    ) -> PgResult<Vec<Grant>> {
        let again = self.grant_again(wanted, work, names).await?;
        if !again.is_empty() {
            return Ok(again);
        }
        if self.holds_alone(&wanted.worker, work) {
            return Ok(Vec::new());
        }
        let granted = match &mut self.direct {
            Some(direct) => direct.grant(wanted, work, now),
            None => look_and_grant(wanted, work, now).await?,
        };
        if !granted.is_empty() {
            work.lease_until(&wanted.worker, now.plus(wanted.lease));
        }
        Ok(granted)
    }

    /// Was this claim never granted anything before?
    pub(super) fn is_new(&self, wanted: &ClaimMany) -> bool {
        !self.repeated.contains(&wanted.claim_id.as_u128())
    }

    /// Notes how far a group was looked through, when what was found is taken for good.
    pub(super) fn note(&self, names: &Names) {
        let Some(direct) = &self.direct else { return };
        match direct.full_from {
            Some(rank) => names.raise_floor(direct.group, rank),
            None => names.lower_floor(direct.group, i64::MIN),
        }
    }

    fn holds_alone(&self, worker: &WorkerId, work: &Work<'_>) -> bool {
        let known = work.session(worker).into_iter();
        known.flat_map(|known| &known.alone).any(|id| !work.set.contains(*id))
            || work.held_here(worker).any(|job| job.lease.as_ref().is_some_and(|it| it.alone))
    }

    /// The same claim again gets the same leases: what it got before and still holds.
    async fn grant_again(
        &self,
        wanted: &ClaimMany,
        work: &mut Work<'_>,
        names: &Names,
    ) -> PgResult<Vec<Grant>> {
        if self.repeated.contains(&wanted.claim_id.as_u128()) {
            let claim = wanted.claim_id.as_u128().to_be_bytes().to_vec();
            let ask = Ask::new(OF_CLAIM).with(wanted.worker.as_str().to_owned()).with(claim);
            let mut rows = run_one(work.client, ask).await?;
            rows.retain(|row| id_of(row, 1).is_ok_and(|id| !work.set.contains(id)));
            add_jobs(work, names, &rows).await?;
        }
        let held = work.held_here(&wanted.worker);
        let mut same: Vec<_> = held
            .filter(|job| job.claim_id == Some(wanted.claim_id))
            .map(|job| (job.spec.rank(), job.id))
            .collect();
        same.sort_unstable();
        Ok(same.into_iter().map(|(_, id)| (id, None)).collect())
    }
}

/// Served by the index `jobs_leased`.
const OF_CLAIM: &str = concat!(
    "SELECT ",
    row_columns!(),
    " FROM jobs j WHERE j.lease_session = (SELECT id FROM sessions WHERE worker = $1)
        AND substring(j.lease FOR 16) = $2
     ORDER BY j.id FOR UPDATE"
);

fn rank_of(loaded: &Loaded) -> (Rank, JobId) {
    (loaded.job.spec.rank(), loaded.job.id)
}

/// May a write be about a job that could be claimed? Whatever is locked and not granted is kept from others.
fn may_touch_ready(write: &Write) -> bool {
    let Write::Op { op, .. } = write else { return false };
    !matches!(op.kind(), OpKind::Enqueue | OpKind::Settle | OpKind::Renew | OpKind::Checkpoint)
}

fn wants(wanted: &ClaimMany, name: &GroupName) -> bool {
    wanted.tenant.as_ref().is_none_or(|only| *only == name.tenant)
        && (wanted.kinds.is_empty() || wanted.kinds.contains(&name.kind))
}

impl Direct {
    fn ask(&self, now: Option<Timestamp>) -> Ask {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        Ask::new(READY).with(self.group).with(self.floor).with(limit).with(now.map(Time))
    }

    fn take(&mut self, rows: &[Row]) -> PgResult<()> {
        let mut found = Vec::with_capacity(rows.len());
        let mut ready = 0;
        for row in rows {
            found.push((free_job_of(row, &self.name)?, row.try_get(26)?));
            ready += usize::from(!row.try_get::<_, bool>(27)?);
        }
        let best = found.first().filter(|_| ready == self.limit);
        self.full_from = best.map(|(loaded, _): &(Loaded, String)| rank_of(loaded).0.0);
        found.sort_by_key(|(loaded, _)| rank_of(loaded));
        self.ready = found.into();
        Ok(())
    }

    fn grant(&mut self, wanted: &ClaimMany, work: &mut Work<'_>, now: Timestamp) -> Vec<Grant> {
        self.ready.retain(|(loaded, _)| !work.set.contains(loaded.job.id));
        let head = Head {
            queue: &self.name.queue,
            tenant: &self.name.tenant,
            kind: &self.name.kind,
            lane: Lane::NONE,
            retries: false,
            ranks: self.ready.iter().take(wanted.max).map(|(job, _)| rank_of(job).0).collect(),
            isolated_since: None,
        };
        let request =
            Request { max: wanted.max, held: 0, holds_isolated: false, heads: vec![head] };
        let quotas = admit(&request, &[], &NoBooks, &mut Turns::default(), now).quotas;
        let take = quotas.first().map_or(0, |quota| quota.take);
        let taken: Vec<_> = self.ready.drain(..take).collect();
        apply(taken, wanted, false, work, now)
    }
}

/// Decides the claim of each job, and gives back those that were granted.
fn apply(
    jobs: Vec<(Loaded, String)>,
    wanted: &ClaimMany,
    alone: bool,
    work: &mut Work<'_>,
    now: Timestamp,
) -> Vec<Grant> {
    let renewals = work.renewals(&wanted.worker);
    let mut granted = Vec::with_capacity(jobs.len());
    for (loaded, payload) in jobs {
        let (id, tenant) = (loaded.job.id, loaded.job.spec.tenant.clone());
        work.add(loaded);
        let op = Op::Claim(Claim {
            job_id: id,
            claim_id: wanted.claim_id,
            worker: wanted.worker.clone(),
            trace_id: wanted.trace_id.clone(),
            lease: wanted.lease,
            start: wanted.start,
            alone,
        });
        // The same claim had this job before and lost it: it must not take it again.
        if work.set.apply(&tenant, &op, now).is_ok_and(|answer| !answer.recorded) {
            work.set.place_mut(id).expect("it was just loaded").lease_seen = renewals;
            granted.push((id, Some(payload)));
        }
    }
    granted
}

/// What can be claimed of each group that a claim wants. Nothing is locked by it.
const HEADS: &str = "
    SELECT g.id, g.queue, g.tenant, g.kind, g.isolated, j.id, j.rank, j.updated_at
    FROM job_groups g CROSS JOIN LATERAL (
        (SELECT id, rank, updated_at FROM jobs
         WHERE group_id = g.id AND (state = 'queued' OR state = 'interrupted')
         ORDER BY rank LIMIT $4)
        UNION ALL
        (SELECT id, rank, updated_at FROM jobs
         WHERE group_id = g.id AND next_retry_at <= $5
         ORDER BY next_retry_at LIMIT $4)) AS j
    WHERE g.queue = ANY($1) AND ($2::text IS NULL OR g.tenant = $2)
        AND (cardinality($3::text[]) = 0 OR g.kind = ANY($3))
    ORDER BY g.id, j.rank, j.id";

/// Those that are still free, and free for us.
const LOCK: &str = concat!(
    "SELECT ",
    row_columns!(),
    ", j.payload FROM jobs j
     WHERE j.id = ANY($1)
        AND (j.state = 'queued' OR j.state = 'interrupted' OR j.next_retry_at <= $2)
     FOR UPDATE SKIP LOCKED"
);

const HOLDS: &str = "
    SELECT id FROM jobs WHERE lease_session = (SELECT id FROM sessions WHERE worker = $1) LIMIT 1000";

/// How often a claim looks again when others were faster.
const ROUNDS: usize = 3;

/// Looks at all groups that the claim wants, shares them out, and locks what it may have.
async fn look_and_grant(
    wanted: &ClaimMany,
    work: &mut Work<'_>,
    now: Timestamp,
) -> PgResult<Vec<Grant>> {
    let mut granted = Vec::new();
    let mut tried: HashSet<JobId> = HashSet::new();
    for _ in 0..ROUNDS {
        let left = wanted.max - granted.len();
        let limit = left.saturating_add(work.set.rows().count()).saturating_add(tried.len());
        let groups = look(wanted, limit, work, &tried, now).await?;
        let has_isolated = groups.iter().any(|group| group.name.isolated);
        let held = if has_isolated { count_held(&wanted.worker, work).await? } else { 0 };
        let heads = groups.iter().map(Group::head).collect();
        let request = Request { max: left, held, holds_isolated: false, heads };
        let quotas = admit(&request, &[], &NoBooks, &mut Turns::default(), now).quotas;
        let mut lost = false;
        for quota in quotas {
            let group = &groups[quota.head];
            let ids: Vec<JobId> = group.jobs[..quota.take].iter().map(|job| job.1).collect();
            let jobs = lock(&ids, &group.name, work, now).await?;
            lost |= jobs.len() < ids.len();
            tried.extend(ids);
            granted.extend(apply(jobs, wanted, quota.alone, work, now));
            if quota.alone && !granted.is_empty() {
                return Ok(granted);
            }
        }
        if !lost || granted.len() >= wanted.max {
            break;
        }
    }
    Ok(granted)
}

/// A group with what can be claimed of it, best first.
struct Group {
    name: GroupName,
    jobs: Vec<(Rank, JobId)>,
    first_since: Timestamp,
}

impl Group {
    fn head(&self) -> Head<'_> {
        Head {
            queue: &self.name.queue,
            tenant: &self.name.tenant,
            kind: &self.name.kind,
            lane: Lane::NONE,
            retries: false,
            ranks: self.jobs.iter().map(|(rank, _)| *rank).collect(),
            isolated_since: self.name.isolated.then_some(self.first_since),
        }
    }
}

/// Everything that is ready for this worker, less what this commit has touched.
async fn look(
    wanted: &ClaimMany,
    limit: usize,
    work: &Work<'_>,
    tried: &HashSet<JobId>,
    now: Timestamp,
) -> PgResult<Vec<Group>> {
    let queues: Vec<String> = wanted.queues.iter().map(|it| it.as_str().to_owned()).collect();
    let kinds: Vec<String> = wanted.kinds.iter().map(|it| it.as_str().to_owned()).collect();
    let ask = Ask::new(HEADS)
        .with(queues)
        .with(wanted.tenant.as_ref().map(|it| it.as_str().to_owned()))
        .with(kinds)
        .with(i64::try_from(limit.min(LOCK_MAX)).unwrap_or(i64::MAX))
        .with(Time(now));
    let mut groups: Vec<Group> = Vec::new();
    let mut last = None;
    for row in &run_one(work.client, ask).await? {
        let id = id_of(row, 5)?;
        if work.set.contains(id) || tried.contains(&id) {
            continue;
        }
        let group: i32 = row.try_get(0)?;
        if last != Some(group) {
            last = Some(group);
            let name = GroupName {
                queue: text_of(row, 1)?,
                tenant: text_of(row, 2)?,
                kind: text_of(row, 3)?,
                isolated: row.try_get(4)?,
            };
            groups.push(Group { name, jobs: Vec::new(), first_since: time_of(row, 7)? });
        }
        let group = groups.last_mut().expect("it was just pushed");
        group.jobs.push((Rank(row.try_get(6)?), id));
    }
    Ok(groups)
}

/// Locks those that are still free, in the order asked.
async fn lock(
    ids: &[JobId],
    group: &GroupName,
    work: &Work<'_>,
    now: Timestamp,
) -> PgResult<Vec<(Loaded, String)>> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| Uuid(id.as_u128())).collect();
    let rows = run(work.client, &[Ask::new(LOCK).with(uuids).with(Time(now))]).await?.remove(0);
    let mut jobs = Vec::with_capacity(rows.len());
    for row in &rows {
        jobs.push((free_job_of(row, group)?, row.try_get(26)?));
    }
    jobs.sort_by_key(|(loaded, _): &(Loaded, String)| rank_of(loaded));
    Ok(jobs)
}

/// How many jobs a worker holds; whoever holds many is not counted to the end.
async fn count_held(worker: &WorkerId, work: &Work<'_>) -> PgResult<usize> {
    let ask = Ask::new(HOLDS).with(worker.as_str().to_owned());
    let mut held = work.held_here(worker).count();
    for row in run_one(work.client, ask).await? {
        held += usize::from(!work.set.contains(id_of(&row, 0)?));
    }
    Ok(held)
}
