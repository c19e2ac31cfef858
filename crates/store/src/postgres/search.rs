//! Looks through all lines that a claim wants, shares out what is there, and locks what the claim may have.
//!
//! What is read to choose from is not locked, so that nobody else has to go without it. What was chosen is locked if it
//! is still free; where others were faster, there is another round. If rules are shared out that others take from too,
//! their rows are locked before anything is read.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    slice,
};

use windlass_kernel::{
    Job, JobId, Lane, RuleName, Timestamp, WorkerId,
    admit::{Admission, Head, Quota, Request, admit},
    job::Rank,
};

use super::{
    Inner, PgResult,
    claim::{Claims, Grant, LOCK_MAX, apply},
    load::{Loaded, free_job_of, id_of, row_columns},
    pipeline::{Ask, run, run_one},
    ready::{self, Found, From},
    rules::{CommitRules, Question},
    types::{Time, Uuid},
    work::Work,
};
use crate::{IdMap, commit::ClaimMany, job_row::GroupName};

/// What one claim looks for, and what it has found.
pub(super) struct Search<'a> {
    wanted: &'a ClaimMany,
    groups: Vec<(i32, GroupName)>,
    store: &'a Inner,
    /// Jobs that it wanted to lock: it has them, or others were faster.
    tried: HashSet<JobId>,
    /// How many of them are of which line.
    tried_in: HashMap<(i32, Lane), usize>,
    granted: Vec<Grant>,
    again_at: Option<Timestamp>,
    is_alone: bool,
}

/// How often a claim looks again when others were faster, or when what it asked for first was not enough.
const ROUNDS: usize = 8;

/// So many lines are all asked for; of more a claim chooses by what is remembered of them.
const FEW: usize = 64;

/// More lines than this are not looked at by one claim. The next begins where it ended.
const LINES_MAX: usize = 4_096;

impl<'a> Search<'a> {
    pub(super) fn new(
        wanted: &'a ClaimMany,
        groups: Vec<(i32, GroupName)>,
        store: &'a Inner,
    ) -> Self {
        Self {
            wanted,
            groups,
            store,
            tried: HashSet::new(),
            tried_in: HashMap::new(),
            granted: Vec::new(),
            again_at: None,
            is_alone: false,
        }
    }

    pub(super) async fn run(
        mut self,
        claims: &Claims<'_>,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<(Vec<Grant>, Option<Timestamp>)> {
        let ids: Vec<i32> = self.groups.iter().map(|(id, _)| *id).collect();
        let mut has_looked = self.store.ready.is_old(ids.iter().copied());
        if has_looked {
            self.store.ready.look(work.client, &ids).await?;
        }
        for _ in 0..ROUNDS {
            let may_be_more = self.round(claims, work, now).await?;
            if self.granted.len() >= self.wanted.max || self.is_alone {
                break;
            }
            if may_be_more {
                continue;
            }
            if has_looked {
                break;
            }
            has_looked = true;
            self.store.ready.look(work.client, &ids).await?;
        }
        Ok((self.granted, self.again_at))
    }

    /// One round. It tells whether another may find more.
    async fn round(
        &mut self,
        claims: &Claims<'_>,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<bool> {
        let mut lines = self.store.ready.lines(self.groups.iter().map(|(id, _)| *id), now);
        let is_cut = lines.len() > LINES_MAX;
        if is_cut {
            let first = self.store.ready.next_window(LINES_MAX) % lines.len();
            lines.rotate_left(first);
            lines.truncate(LINES_MAX);
        }
        if lines.is_empty() {
            return Ok(false);
        }
        let shared = work.rules.shared(lines.iter().map(|from| self.name_of(from)));
        let all_shared = match shared.is_empty() {
            true => BTreeSet::new(),
            false => work.rules.shared(claims.groups(&self.store.names).iter().map(|it| &it.1)),
        };
        let locks_at_once = work.rules.has_locked(&all_shared) || !self.store.rules.is_full();
        let locks = if locks_at_once { all_shared.clone() } else { BTreeSet::new() };
        let (found, is_part) = self.look(&lines, locks, work, now).await?;
        let held = self.count_held(&found, work).await?;
        let mut admission = self.admit(&found, held, work, locks_at_once, now);
        if !locks_at_once && !admission.quotas.is_empty() {
            // There is something to be had, so it is worth the lock.
            self.ask_rules(&lines, all_shared, work).await?;
            admission = self.admit(&found, held, work, true, now);
        }
        if !shared.is_empty() {
            self.store.rules.note_full(admission.quotas.is_empty());
        }
        self.again_at = admission.again_at;
        let took_all = |quota: &Quota| {
            let found = &found[quota.head];
            found.may_have_more && found.ids.len() == quota.take
        };
        let has_moved = !admission.quotas.is_empty() || found.iter().any(|it| it.ids.is_empty());
        let may_be_more = admission.quotas.iter().any(took_all) || (is_part || is_cut) && has_moved;
        let lost = self.take(&found, admission, held, work, now).await?;
        Ok(lost || may_be_more)
    }

    fn name_of(&self, from: &From) -> &GroupName {
        &self.groups[from.place].1
    }

    /// What there is in these lines, or in some of them, and whether there are others. What rules know is asked with it.
    async fn look(
        &self,
        lines: &[From],
        locks: BTreeSet<RuleName>,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<(Vec<Found>, bool)> {
        let left = self.left();
        if lines.len() <= FEW {
            let question = self.question(lines, locks, work);
            let each = vec![left; lines.len()];
            return Ok((self.find(lines, &each, question, work, now).await?, false));
        }
        self.ask_rules(lines, locks, work).await?;
        let chosen = self.choose(lines, work, now);
        // Each has its share, and a few more; where a limit lets few go, those and the next, which says where the line
        // stands afterwards.
        let each = (left.saturating_mul(4) / chosen.len().max(1)).clamp(4, left.max(4));
        let each: Vec<usize> = chosen
            .iter()
            .map(|from| match work.rules.room(self.name_of(from), from.lane) {
                Some(room) => each.min(room.saturating_add(1)),
                None => each,
            })
            .collect();
        let found = self.find(&chosen, &each, Question::default(), work, now).await?;
        Ok((found, true))
    }

    fn question(&self, lines: &[From], locks: BTreeSet<RuleName>, work: &mut Work<'_>) -> Question {
        let names: Vec<(&GroupName, Lane)> =
            lines.iter().map(|from| (self.name_of(from), from.lane)).collect();
        let Work { rules, set, .. } = work;
        rules.question(&names, locks, |rule| set.forgets(rule))
    }

    /// Asks what rules know of these lines, and nothing else.
    async fn ask_rules(
        &self,
        lines: &[From],
        locks: BTreeSet<RuleName>,
        work: &mut Work<'_>,
    ) -> PgResult<()> {
        let question = self.question(lines, locks, work);
        self.find(&[], &[], question, work, Timestamp::MIN).await.map(drop)
    }

    /// Asks what rules know, and for the first jobs of lines, so many of each, and as many more as are out.
    async fn find(
        &self,
        lines: &[From],
        each: &[usize],
        question: Question,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<Vec<Found>> {
        let out = self.out(work);
        let out = |from: &From| out.get(&(from.group, from.lane)).copied().unwrap_or(0);
        let limits = lines.iter().zip(each).map(|(from, each)| each.saturating_add(out(from)));
        let limits: Vec<usize> = limits.map(|limit| limit.min(LOCK_MAX)).collect();
        let mut asks = Vec::new();
        question.asks(&mut asks);
        ready::asks(lines, &limits, now, &mut asks);
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = run(work.client, &asks).await?.into_iter();
        CommitRules::take(work, &self.store.names, question, &mut rows).await?;
        let is_out = |id| work.set.contains(id) || self.tried.contains(&id);
        ready::found_of(lines, &limits, &mut rows, is_out, now)
    }

    /// How many jobs of which line may be found and are out: the commit has touched them, or this claim has tried them.
    fn out(&self, work: &Work<'_>) -> HashMap<(i32, Lane), usize> {
        let mut out = self.tried_in.clone();
        let could = |job: &Job| job.claim_at().is_some();
        for row in work.set.rows().filter(|row| could(row.before.as_ref().unwrap_or(&row.job))) {
            if let Some((group, _)) = row.place.group
                && !self.tried.contains(&row.job.id)
            {
                *out.entry((group, row.place.lane)).or_default() += 1;
            }
        }
        out
    }

    /// The lines that would be next, if each had one job, by what is remembered of them.
    fn choose(&self, lines: &[From], work: &Work<'_>, now: Timestamp) -> Vec<From> {
        // Whoever has no room left gets nothing, and need not be shared out to: with a thousand keys most have none.
        let has_room = |from: &&From| work.rules.room(self.name_of(from), from.lane) != Some(0);
        let lines: Vec<From> = lines.iter().filter(has_room).copied().collect();
        let heads = lines.iter().map(|from| {
            let first = slice::from_ref(&from.first);
            head_of(self.name_of(from), from.lane, from.retries, first, None)
        });
        let heads = heads.collect();
        let max = self.left().max(FEW);
        let request = Request { max, held: 0, holds_isolated: false, heads };
        let mut turns = self.store.rules.turns().clone();
        let rules = &work.rules;
        let quotas = admit(&request, &rules.book.rules, &rules.known(), &mut turns, now).quotas;
        quotas.iter().map(|quota| lines[quota.head]).collect()
    }

    fn left(&self) -> usize {
        self.wanted.max - self.granted.len()
    }

    /// Shares out what was found. If it is not for good, nobody's turn is over by it.
    fn admit(
        &self,
        found: &[Found],
        held: usize,
        work: &Work<'_>,
        for_good: bool,
        now: Timestamp,
    ) -> Admission {
        let heads = found.iter().map(|Found { from, ranks, since, .. }| {
            let name = self.name_of(from);
            head_of(name, from.lane, from.retries, ranks, name.isolated.then_some(*since))
        });
        let heads = heads.collect();
        let request = Request { max: self.left(), held, holds_isolated: false, heads };
        let (rules, known) = (&work.rules.book.rules, work.rules.known());
        let mut turns = self.store.rules.turns();
        if for_good {
            admit(&request, rules, &known, &mut turns, now)
        } else {
            admit(&request, rules, &known, &mut turns.clone(), now)
        }
    }

    /// Locks and grants what was admitted, and tells whether others were faster somewhere.
    async fn take(
        &mut self,
        found: &[Found],
        admission: Admission,
        held: usize,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<bool> {
        let Admission { quotas, mut states, .. } = admission;
        let mut taken = vec![0; found.len()];
        quotas.iter().for_each(|quota| taken[quota.head] = quota.take);
        self.store.ready.note_found(found, &taken);
        if quotas.is_empty() {
            return Ok(false);
        }
        let chosen: Vec<(i32, JobId)> = quotas
            .iter()
            .flat_map(|quota| {
                let Found { from, ids, .. } = &found[quota.head];
                ids[..quota.take].iter().map(|id| (from.group, *id))
            })
            .collect();
        self.tried.extend(chosen.iter().map(|(_, id)| *id));
        for quota in &quotas {
            let from = found[quota.head].from;
            *self.tried_in.entry((from.group, from.lane)).or_default() += quota.take;
        }
        let mut jobs = self.lock(&chosen, work, now).await?;
        let lost = jobs.len() < chosen.len();
        if lost {
            // Rules remember what was taken, and not what was to be.
            let got: Vec<Found> = quotas
                .iter()
                .map(|quota| found[quota.head].only(|id| jobs.contains_key(&id)))
                .collect();
            states = self.admit(&got, held, work, false, now).states;
        }
        for quota in &quotas {
            let Found { from, ids, .. } = &found[quota.head];
            let ids = &ids[..quota.take];
            let mine: Vec<_> = ids.iter().filter_map(|id| jobs.remove(id)).collect();
            let granted = apply(mine, self.wanted, quota.alone, work, now);
            self.is_alone |= quota.alone && !granted.is_empty();
            work.rules.took(&self.groups[from.place].1, from.lane, granted.len());
            self.granted.extend(granted);
        }
        work.rules.remember(&states);
        work.set.remember(states);
        Ok(lost)
    }

    /// Locks those that are still free, and still in the group where they were found.
    async fn lock(
        &self,
        chosen: &[(i32, JobId)],
        work: &Work<'_>,
        now: Timestamp,
    ) -> PgResult<IdMap<(Loaded, String)>> {
        let ids: Vec<Uuid> = chosen.iter().map(|(_, id)| Uuid(id.as_u128())).collect();
        let names: HashMap<i32, &GroupName> =
            self.groups.iter().map(|(id, name)| (*id, name)).collect();
        let groups: IdMap<i32> = chosen.iter().map(|(group, id)| (*id, *group)).collect();
        let mut jobs = IdMap::default();
        for row in run_one(work.client, Ask::new(LOCK).with(ids).with(Time(now))).await? {
            let (id, group): (JobId, i32) = (id_of(&row, 1)?, row.try_get(3)?);
            if groups.get(&id) == Some(&group) {
                jobs.insert(id, (free_job_of(&row, names[&group])?, row.try_get(26)?));
            }
        }
        Ok(jobs)
    }

    /// How many jobs the worker's process holds, if that matters; whoever holds many is not counted to the end.
    async fn count_held(&self, found: &[Found], work: &Work<'_>) -> PgResult<usize> {
        let is_isolated = |it: &Found| !it.ids.is_empty() && self.name_of(&it.from).isolated;
        if !found.iter().any(is_isolated) {
            return Ok(0);
        }
        let here: Vec<&WorkerId> =
            self.wanted.neighbours.iter().chain([&self.wanted.worker]).collect();
        let names: Vec<String> = here.iter().map(|it| it.as_str().to_owned()).collect();
        let mut held = here.iter().map(|worker| work.held_here(worker).count()).sum();
        for row in run_one(work.client, Ask::new(HOLDS).with(names)).await? {
            held += usize::from(!work.set.contains(id_of(&row, 0)?));
        }
        Ok(held)
    }
}

/// Those that are still free, and free for us.
const LOCK: &str = concat!(
    "SELECT ",
    row_columns!(),
    ", j.payload FROM jobs j
     WHERE j.id = ANY($1)
        AND (j.state = 'queued' OR j.state = 'interrupted' OR j.next_retry_at <= $2)
     FOR UPDATE SKIP LOCKED"
);

/// Served by the index `jobs_leased`.
const HOLDS: &str = "
    SELECT id FROM jobs
    WHERE lease_session = ANY(ARRAY(SELECT id FROM sessions WHERE worker = ANY($1)))
        AND lease_session IS NOT NULL LIMIT 1000";

fn head_of<'a>(
    name: &'a GroupName,
    lane: Lane,
    retries: bool,
    ranks: &'a [Rank],
    isolated_since: Option<Timestamp>,
) -> Head<'a> {
    let GroupName { queue, tenant, kind, .. } = name;
    Head { queue, tenant, kind, lane, retries, ranks: ranks.into(), isolated_since }
}
