//! Claims: what is ready, and who gets it.

use std::{borrow::Cow, collections::HashSet};

use rusqlite::{Connection, OptionalExtension as _};
use windlass_kernel::{
    JobId, Lane, NewPayload, Op, Rule, Says, Timestamp,
    admit::{Admission, Head, Request, Turns, admit, give_back},
    job::Rank,
    ops::Claim,
};

use crate::{
    commit::{ClaimMany, ClaimShare, Filled, Grant, Grants},
    job_row::GroupName,
    read::Scope,
    sqlite::{
        SqlResult,
        read::job::read_payload,
        row::{
            job::{Loaded, load_job, load_to_grant},
            lease::HeldRow,
        },
        write::work::Work,
    },
};

/// Grants what the claim may have.
pub(crate) fn claim(
    connection: &Connection,
    wanted: &ClaimMany,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Grants> {
    let held = work.held_by(connection, &wanted.worker)?;
    let mut same: Vec<&HeldRow> =
        held.iter().filter(|row| row.claim_id == Some(wanted.claim_id)).collect();
    if !same.is_empty() || work.was_granted(connection, wanted.claim_id, now)? {
        same.sort_by_key(|row| (row.rank, row.id));
        let again = grant_again(connection, same.into_iter().map(|row| row.id), work)?;
        return Ok(Grants::again(again));
    }
    let (mut count, mut holds_isolated) = (held.len(), held.iter().any(|row| row.alone));
    for neighbour in &wanted.neighbours {
        let held = work.held_by(connection, neighbour)?;
        count += held.len();
        holds_isolated |= held.iter().any(|row| row.alone);
    }
    let touched = work.touched();
    let rules = work.rules.book.rules.clone();
    let groups = groups_of(wanted, work);
    let mut unread = Unread::new(&rules, &groups, work);
    if rules.iter().any(|rule| rule.says == Says::TurnsByKey) {
        unread.read_all(connection, work)?;
    }
    let mut asked = ClaimShare::new(wanted.max);
    let (admission, chosen) = loop {
        let limit = asked.max.saturating_add(touched.len());
        let lines = Lines::look(connection, &groups, limit, work, &touched, now)?;
        // The turns are moved out of `work` while `admit` changes them, because the heads borrow
        // the rest of `work`.
        let mut turns = std::mem::take(&mut work.rules.turns);
        let heads = lines.heads(work, &touched);
        let request = Request { max: asked.max, held: count, holds_isolated, heads };
        let admission = admit(&request, &rules, &work.rules.known(), &mut turns, now);
        let taken: usize = admission.quotas.iter().map(|quota| quota.take).sum();
        let is_alone = admission.quotas.iter().any(|quota| quota.alone);
        let chosen = lines.chosen(&admission, work, &touched);
        let given_back = |mut turns: Turns| {
            give_back(&request.heads, &rules, &admission.quotas, &mut turns);
            turns
        };
        if taken < asked.max && !is_alone && unread.may_read_on(work) {
            // Rules hold back all cached jobs that are left, and jobs further down the index may be
            // free to go: so read on, and admit again.
            work.rules.turns = given_back(turns);
            unread.read_on(connection, work)?;
            continue;
        }
        let chosen = load_chosen(connection, &chosen, work)?;
        if chosen.len() < taken {
            work.rules.turns = given_back(turns);
            asked.cut(chosen.len());
            continue;
        }
        work.rules.turns = turns;
        break (admission, chosen);
    };
    work.rules.remember(&admission.states, now);
    work.set.remember(admission.states);
    let jobs = grant(wanted, chosen, work, now);
    Ok(Grants { jobs, again_at: asked.again_at(admission.again_at, now), repeated: false })
}

/// The groups that a claim wants.
fn groups_of(wanted: &ClaimMany, work: &Work<'_>) -> Vec<(i64, bool)> {
    let (mut groups, mut seen) = (Vec::new(), HashSet::new());
    let wants = wanted.wants();
    for queue in wanted.queues.iter().filter(|queue| seen.insert(*queue)) {
        let of_queue = work.names().groups_of(queue).iter();
        let wanted = of_queue.filter(|(_, name)| wants.admits(name));
        groups.extend(wanted.map(|(id, name)| (*id, name.isolated)));
    }
    groups
}

/// The groups under rules whose ready jobs are not all cached, and how many more of these one claim
/// may read.
struct Unread {
    groups: Vec<i64>,
    left: usize,
}

impl Unread {
    /// How many jobs one claim reads at the most because rules hold those before them back.
    const READ_MAX: usize = 20_000;
    /// How many at a time.
    const READ: usize = 1_024;

    fn new(rules: &[Rule], groups: &[(i64, bool)], work: &Work<'_>) -> Self {
        let matters = |rule: &&Rule| rule.restrains() || rule.says == Says::TurnsByKey;
        let matter: Vec<&Rule> = rules.iter().filter(matters).collect();
        if matter.is_empty() {
            return Self { groups: Vec::new(), left: 0 };
        }
        let is_covered = |id: i64| {
            let name = work.names.group_by_id(id);
            let covers =
                |rule: &&Rule, it: &GroupName| rule.scope.covers(&it.queue, &it.tenant, &it.kind);
            name.is_some_and(|it| matter.iter().any(|rule| covers(rule, it)))
        };
        let groups = groups.iter().map(|(id, _)| *id).filter(|id| is_covered(*id)).collect();
        Self { groups, left: Self::READ_MAX }
    }

    /// Reads all of the groups, as far as one claim may. Where keys take turns, all of them have to be known.
    fn read_all(&mut self, connection: &Connection, work: &mut Work<'_>) -> SqlResult<()> {
        let flying = work.flying();
        for group in &self.groups {
            work.ready.look(connection, *group, 1, flying)?;
        }
        while self.left > 0 {
            self.read_on(connection, work)?;
        }
        Ok(())
    }

    fn may_read_on(&self, work: &Work<'_>) -> bool {
        self.left > 0 && self.groups.iter().any(|group| work.ready.has_more(*group))
    }

    /// Reads more of each group. If there is nothing more, that was all.
    fn read_on(&mut self, connection: &Connection, work: &mut Work<'_>) -> SqlResult<()> {
        let flying = work.flying();
        let mut read = 0;
        for group in &self.groups {
            if read < self.left {
                read += work.ready.read_on(connection, *group, Self::READ, flying)?;
            }
        }
        self.left = if read == 0 { 0 } else { self.left.saturating_sub(read) };
        Ok(())
    }
}

/// Jobs that a claim may have.
struct Chosen {
    group: i64,
    lane: Lane,
    seqs: Vec<i64>,
    alone: bool,
}

/// A job that a claim may have, with its payload.
struct Candidate {
    group: i64,
    lane: Lane,
    seq: i64,
    alone: bool,
    id: JobId,
    /// None, if only a plan in flight has it so far.
    loaded: Option<Loaded>,
    payload: String,
}

/// Loads what was chosen, up to the first job that does not fit into the answer of one claim.
fn load_chosen(
    connection: &Connection,
    chosen: &[Chosen],
    work: &Work<'_>,
) -> SqlResult<Vec<Candidate>> {
    let (mut candidates, mut filled) = (Vec::new(), Filled::default());
    for Chosen { group, lane, seqs, alone } in chosen {
        for seq in seqs {
            let (loaded, payload) = match load_to_grant(connection, *seq, work.names())? {
                Some((loaded, payload)) => (Some(loaded), payload),
                None => (None, new_payload(connection, work.new_job(*seq).id, work)?),
            };
            let job = loaded.as_ref().map_or_else(|| work.new_job(*seq), |loaded| &loaded.job);
            if !filled.add(job, payload.len()) {
                return Ok(candidates);
            }
            let (group, lane, seq, alone, id) = (*group, *lane, *seq, *alone, job.id);
            candidates.push(Candidate { group, lane, seq, alone, id, loaded, payload });
        }
    }
    Ok(candidates)
}

/// The payload of a job that is on its way to the disk. Few are claimed before they are written.
fn new_payload(connection: &Connection, id: JobId, work: &Work<'_>) -> SqlResult<String> {
    match work.flying().iter().rev().find_map(|plan| plan.new_payload(id)) {
        Some(NewPayload::Given(payload)) => Ok(payload.as_str().to_owned()),
        Some(NewPayload::Of(other)) => new_payload(connection, *other, work),
        None => {
            read_payload(connection, &Scope::Every, id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
        }
    }
}

fn grant(
    wanted: &ClaimMany,
    chosen: Vec<Candidate>,
    work: &mut Work<'_>,
    now: Timestamp,
) -> Vec<Grant> {
    let session = work.names().session_of(&wanted.worker);
    let renewals = session.map_or(0, |(_, session)| session.renewals);
    let mut granted = Vec::new();
    for Candidate { group, lane, seq, alone, id, loaded, payload } in chosen {
        match loaded {
            Some(loaded) => work.add(loaded),
            None => work.add_new(id),
        }
        let tenant = work.set.job(id).expect("it was just loaded").spec.tenant.clone();
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
            let job = work.set.job(id).expect("it was just loaded");
            work.ready.remove(group, lane, job.spec.rank(), seq);
            work.rules.took(job, lane);
            granted.push((id, Some(payload)));
        }
    }
    granted
}

/// The same claim again gets the same leases: what it got before and still holds.
fn grant_again(
    connection: &Connection,
    same: impl Iterator<Item = JobId>,
    work: &mut Work<'_>,
) -> SqlResult<Vec<Grant>> {
    let mut granted = Vec::new();
    for id in same {
        if !work.set.contains(id)
            && !work.take_held(id)
            && let Some(loaded) = load_job(connection, id, work.names())?
        {
            work.add(loaded);
        }
        granted.push((id, None));
    }
    Ok(granted)
}

/// Where a claim may take from, in the order of its heads.
#[derive(Default)]
struct Lines {
    lines: Vec<ClaimLine>,
}

/// One lane of a group, or the retries of it that are due.
struct ClaimLine {
    group: i64,
    lane: Lane,
    /// Retries with their ranks; none, if it is what is ready.
    retries: Option<(Vec<Rank>, Vec<i64>)>,
    isolated_since: Option<Timestamp>,
}

const WAITS_SINCE: &str = "SELECT updated_at FROM jobs WHERE seq = ?1";

impl Lines {
    /// Everything that is ready for this worker.
    fn look(
        connection: &Connection,
        groups: &[(i64, bool)],
        limit: usize,
        work: &mut Work<'_>,
        touched: &[i64],
        now: Timestamp,
    ) -> SqlResult<Self> {
        let flying = work.flying();
        let ready = &mut *work.ready;
        let mut lines = Self::default();
        for (group, isolated) in groups {
            ready.look(connection, *group, limit, flying)?;
            let mut due = Vec::new();
            for (lane, line) in ready.lanes(*group) {
                if !line.ranks().is_empty() {
                    let first = line.seqs().iter().find(|seq| !touched.contains(seq));
                    let isolated_since = match first.filter(|_| *isolated) {
                        Some(first) => Some(waits_since(connection, *first, now)?),
                        None => None,
                    };
                    let retries = None;
                    lines.lines.push(ClaimLine { group: *group, lane, retries, isolated_since });
                }
                due.extend(line.retry_at.filter(|at| *at <= now).map(|_| lane));
            }
            for lane in due {
                let mut jobs = ready.due_retries(connection, (*group, lane), limit, flying, now)?;
                jobs.retain(|(_, seq)| !touched.contains(seq));
                let Some((_, first)) = jobs.first() else { continue };
                let isolated_since = match isolated {
                    true => Some(waits_since(connection, *first, now)?),
                    false => None,
                };
                let retries = Some(jobs.into_iter().unzip());
                lines.lines.push(ClaimLine { group: *group, lane, retries, isolated_since });
            }
        }
        Ok(lines)
    }

    fn heads<'b>(&'b self, work: &'b Work<'_>, touched: &[i64]) -> Vec<Head<'b>> {
        let head = |from: &'b ClaimLine| {
            let name = work.names.group_by_id(from.group).expect("it was just found");
            let ranks = match &from.retries {
                Some((ranks, _)) => Cow::Borrowed(&ranks[..]),
                None => from.ready(work, touched).0,
            };
            Head {
                queue: &name.queue,
                tenant: &name.tenant,
                kind: &name.kind,
                lane: from.lane,
                retries: from.retries.is_some(),
                ranks,
                isolated_since: from.isolated_since,
            }
        };
        self.lines.iter().map(head).collect()
    }

    /// The jobs that were admitted.
    fn chosen(&self, admission: &Admission, work: &Work<'_>, touched: &[i64]) -> Vec<Chosen> {
        let quotas = admission.quotas.iter();
        let chosen = quotas.map(|quota| {
            let from = &self.lines[quota.head];
            let seqs = match &from.retries {
                Some((_, seqs)) => Cow::Borrowed(&seqs[..]),
                None => from.ready(work, touched).1,
            };
            let (group, lane, alone) = (from.group, from.lane, quota.alone);
            Chosen { group, lane, seqs: seqs[..quota.take].to_vec(), alone }
        });
        chosen.collect()
    }
}

impl ClaimLine {
    /// What is ready, less what this commit has touched: ranks, and where they are.
    fn ready<'b>(&self, work: &'b Work<'_>, touched: &[i64]) -> (Cow<'b, [Rank]>, Cow<'b, [i64]>) {
        let Some(line) = work.ready.line(self.group, self.lane) else { return Default::default() };
        let (ranks, seqs) = (line.ranks(), line.seqs());
        if touched.is_empty() || !seqs.iter().any(|seq| touched.contains(seq)) {
            return (ranks.into(), seqs.into());
        }
        let jobs = ranks.iter().zip(seqs).filter(|(_, seq)| !touched.contains(seq));
        let (ranks, seqs): (Vec<Rank>, Vec<i64>) = jobs.unzip();
        (ranks.into(), seqs.into())
    }
}

/// Since when a job waits. A job that only a plan in flight has so far has waited for no time.
fn waits_since(connection: &Connection, seq: i64, now: Timestamp) -> SqlResult<Timestamp> {
    let mut since = connection.prepare_cached(WAITS_SINCE)?;
    let since: Option<i64> = since.query_row([seq], |row| row.get(0)).optional()?;
    Ok(since.map_or(now, Timestamp::from_micros))
}
