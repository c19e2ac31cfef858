//! Claims: what is ready, and who gets it.
//!
//! A claim locks the jobs that it takes, and skips those that another transaction has locked (`SKIP
//! LOCKED`). The usual claim names one group ([`Direct`]); any other looks through all lines that
//! it wants ([`Search`]).

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;
use windlass_kernel::{Op, Timestamp, WorkerId, ids::ClaimId, ops::Claim};

use super::{direct::Direct, names::Names, rules::CommitRules, search::Search};
use crate::{
    Write,
    commit::{ClaimMany, Grant, Grants},
    job_row::GroupName,
    postgres::{
        Inner, PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::Uuid,
        },
        row::{
            column::id_of,
            job::{Candidate, row_columns},
        },
        write::{load::add_jobs, work::Work},
    },
};

/// What the claims of a batch are about to ask.
#[derive(Default)]
pub(crate) struct Claims<'a> {
    wanted: Vec<&'a ClaimMany>,
    direct: Option<Direct>,
    /// What claims got together with one before them.
    shared: HashMap<ClaimId, Grants>,
    /// Claims that were answered.
    answered: HashSet<ClaimId>,
}

/// One statement locks no more jobs than this.
pub(crate) const LOCK_MAX: usize = 5_000;

/// The same claim may be asked for again while it is still on its way, perhaps by way of another node. The
/// second waits for the first, and then finds what that was granted.
const ONE_AT_A_TIME: &str =
    "SELECT count(pg_advisory_xact_lock(claim)) FROM unnest($1::bigint[]) AS claim";

impl<'a> Claims<'a> {
    /// The claims among these writes, and the way they go.
    pub(crate) fn of(writes: &'a [Write], store: &Inner, rules: &CommitRules) -> Self {
        let claims = writes.iter().filter_map(|write| match write {
            Write::Claim(wanted) if write.check().is_ok() => Some(wanted),
            _ => None,
        });
        let wanted: Vec<&ClaimMany> = claims.collect();
        let Some(first) = wanted.first() else { return Self::default() };
        let mut direct = None;
        if wanted.iter().all(|other| wants_the_same(first, other)) {
            let mut groups = groups_of(first, &store.names);
            let only = groups.pop().filter(|_| groups.is_empty());
            let is_plain = |(group, name): &(i32, GroupName)| {
                !name.isolated && !rules.restrain(name) && !store.ready.has_keys(*group)
            };
            let only = only.filter(is_plain);
            direct = only.map(|only| Direct::new(only, &wanted, writes, &store.names));
        }
        Self { wanted, direct, ..Self::default() }
    }

    /// The group whose jobs are asked for at once, if there is one.
    pub(crate) fn group(&self) -> Option<i32> {
        self.direct.as_ref().map(|direct| direct.group)
    }

    /// All groups that some claim wants.
    pub(crate) fn groups(&self, names: &Names) -> Vec<(i32, GroupName)> {
        let mut groups: Vec<_> =
            self.wanted.iter().flat_map(|wanted| groups_of(wanted, names)).collect();
        groups.sort_unstable_by_key(|(id, _)| *id);
        groups.dedup_by_key(|(id, _)| *id);
        groups
    }

    /// The ids of the claims.
    pub(crate) fn ids(&self) -> Vec<Uuid> {
        self.wanted.iter().map(|it| Uuid(it.claim_id.as_u128())).collect()
    }

    /// The statement that waits for the same claims, if they are on their way.
    pub(crate) fn ask_turn(&self, asks: &mut Vec<Ask>, schema: i32) {
        if !self.wanted.is_empty() {
            asks.push(Ask::new(ONE_AT_A_TIME).with(self.locks(schema)));
        }
    }

    /// The statement that asks for jobs at once, if there is one, which [`Claims::take_ready`] expects the rows of. A
    /// clock that is not the database's says what time it is.
    pub(crate) fn ask_ready(&self, asks: &mut Vec<Ask>, now: Option<Timestamp>) {
        asks.extend(self.direct.as_ref().map(|direct| direct.ask(now)));
    }

    /// The number of each claim's advisory lock, which differs between the schemas of a database;
    /// sorted, so that two commits cannot deadlock.
    fn locks(&self, schema: i32) -> Vec<i64> {
        let number = |wanted: &&ClaimMany| {
            let [.., a, b, c, d, e, f, g, h] = wanted.claim_id.as_u128().to_be_bytes();
            i64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ (i64::from(schema) << 32)
        };
        let mut locks: Vec<i64> = self.wanted.iter().map(number).collect();
        locks.sort_unstable();
        locks
    }

    /// Skips the answer to [`Claims::ask_turn`], which has nothing in it: waiting for the lock was
    /// the point.
    pub(crate) fn take_turn(&self, rows: &mut impl Iterator<Item = Vec<Row>>) {
        if !self.wanted.is_empty() {
            rows.next();
        }
    }

    /// Takes the jobs that were found at once.
    pub(crate) fn take_ready(&mut self, rows: &mut impl Iterator<Item = Vec<Row>>) -> PgResult<()> {
        match &mut self.direct {
            Some(direct) => direct.take(&rows.next().unwrap_or_default()),
            None => Ok(()),
        }
    }

    /// Looks below the floor, if there was not enough above it.
    pub(crate) async fn look_below(&mut self, work: &Work<'_>, now: Timestamp) -> PgResult<()> {
        let Some(direct) = self.direct.as_mut() else { return Ok(()) };
        if direct.looks_below() {
            let found = run_one(work.client, direct.ask(Some(now))).await?;
            direct.take(&found)?;
        }
        Ok(())
    }

    /// Is there a group that this batch may want and that is not known yet?
    pub(crate) fn is_about(&self, newest_group: i32, names: &Names) -> bool {
        !self.wanted.is_empty() && newest_group > names.learned()
    }

    /// Gives up the direct way: the claim searches all lines of its groups ([`Search`]).
    pub(crate) fn look_further(&mut self) {
        self.direct = None;
    }

    /// The cached rules were out of date, or the group has jobs with limit keys after all: the
    /// direct way is given up if it no longer holds.
    pub(crate) fn look_again(&mut self, rules: &CommitRules, has_keys: bool) {
        if self.direct.as_ref().is_some_and(|direct| has_keys || rules.restrain(&direct.name)) {
            self.look_further();
        }
    }

    /// Grants what the claim may have.
    pub(crate) async fn grant(
        &mut self,
        wanted: &ClaimMany,
        work: &mut Work<'_>,
        store: &Inner,
        now: Timestamp,
    ) -> PgResult<Grants> {
        self.answered.insert(wanted.claim_id);
        if let Some(grants) = self.shared.remove(&wanted.claim_id) {
            return Ok(grants);
        }
        if work.set.was_granted(wanted.claim_id) {
            return Ok(Grants::again(grant_again(wanted, work, &store.names).await?));
        }
        if is_busy_alone(wanted, work) {
            return Ok(Grants::default());
        }
        if let Some(direct) = &mut self.direct {
            let (jobs, again_at) = direct.grant(wanted, work, now);
            return Ok(Grants { jobs, again_at, repeated: false });
        }
        let groups = groups_of(wanted, &store.names);
        let others = self.alike(wanted, &groups, work);
        let takers = || [wanted].into_iter().chain(others.iter().copied());
        let search = Search::new(takers(), groups, store);
        let (granted, again_at) = search.run(self, work, now).await?;
        for (taker, jobs) in takers().zip(granted) {
            self.shared.insert(taker.claim_id, Grants { jobs, again_at, repeated: false });
        }
        Ok(self.shared.remove(&wanted.claim_id).unwrap_or_default())
    }

    /// Later claims of this batch that want what this one wants, from groups of which none has to be alone.
    fn alike(
        &self,
        wanted: &ClaimMany,
        groups: &[(i32, GroupName)],
        work: &Work<'_>,
    ) -> Vec<&'a ClaimMany> {
        let mut alike: Vec<&'a ClaimMany> = Vec::new();
        if groups.iter().any(|(_, name)| name.isolated) {
            return alike;
        }
        let later = self.wanted.iter().skip_while(|other| other.claim_id != wanted.claim_id);
        let (mut seen, mut sum) = (self.answered.clone(), wanted.max);
        for other in later.skip(1) {
            if wants_the_same(wanted, other)
                && sum.saturating_add(other.max) <= LOCK_MAX
                && !work.set.was_granted(other.claim_id)
                && !self.shared.contains_key(&other.claim_id)
                && !is_busy_alone(other, work)
                && seen.insert(other.claim_id)
            {
                sum += other.max;
                alike.push(other);
            }
        }
        alike
    }

    /// Notes how far a group was looked through, when what was found is taken for good.
    pub(crate) fn note(&self, names: &Names) {
        if let Some(direct) = &self.direct {
            direct.note(names);
        }
    }
}

/// The same claim again gets the same leases: what it got before and still holds.
async fn grant_again(
    wanted: &ClaimMany,
    work: &mut Work<'_>,
    names: &Names,
) -> PgResult<Vec<Grant>> {
    let claim = wanted.claim_id.as_u128().to_be_bytes().to_vec();
    let ask = Ask::new(OF_CLAIM).with(wanted.worker.as_str().to_owned()).with(claim);
    let mut rows = run_one(work.client, ask).await?;
    rows.retain(|row| id_of(row, 1).is_ok_and(|id| !work.set.contains(id)));
    add_jobs(work, names, &rows).await?;
    let held = work.held_here(&wanted.worker);
    let mut same: Vec<_> = held
        .filter(|job| job.claim_id == Some(wanted.claim_id))
        .map(|job| (job.spec.rank(), job.id))
        .collect();
    same.sort_unstable();
    Ok(same.into_iter().map(|(_, id)| (id, None)).collect())
}

/// A repeated claim only returns the leases that it was granted, so their rows are read without a
/// lock. Served by the index `jobs_leased`.
const OF_CLAIM: &str = concat!(
    "SELECT ",
    row_columns!(),
    " FROM jobs j WHERE j.lease_session = (SELECT id FROM sessions WHERE worker = $1)
        AND substring(j.lease FOR 16) = $2"
);

fn wants_the_same(one: &ClaimMany, other: &ClaimMany) -> bool {
    (&one.queues, &one.kinds, &one.tenant, &one.except)
        == (&other.queues, &other.kinds, &other.tenant, &other.except)
}

/// Does the process of this worker hold a job that has to be alone?
fn is_busy_alone(wanted: &ClaimMany, work: &Work<'_>) -> bool {
    wanted.neighbours.iter().chain([&wanted.worker]).any(|worker| holds_alone(worker, work))
}

fn holds_alone(worker: &WorkerId, work: &Work<'_>) -> bool {
    let known = work.session(worker).into_iter();
    known.flat_map(|known| &known.alone).any(|id| !work.set.contains(*id))
        || work.held_here(worker).any(|job| job.lease.as_ref().is_some_and(|it| it.alone))
}

/// The groups that a claim wants, as far as they are known.
fn groups_of(wanted: &ClaimMany, names: &Names) -> Vec<(i32, GroupName)> {
    let mut groups = names.groups_of(&wanted.queues);
    let wants = wanted.wants();
    groups.retain(|(_, name)| wants.admits(name));
    groups
}

/// Decides the claim of each job, and gives back those that were granted.
pub(crate) fn apply(
    jobs: Vec<Candidate>,
    wanted: &ClaimMany,
    alone: bool,
    work: &mut Work<'_>,
    now: Timestamp,
) -> Vec<Grant> {
    let renewals = work.renewals(&wanted.worker);
    let mut granted = Vec::with_capacity(jobs.len());
    for Candidate { loaded, payload, .. } in jobs {
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
            granted.push((id, payload));
        }
    }
    granted
}
