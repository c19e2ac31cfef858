//! Looks through all lines that a claim wants, shares out what is there, and locks what the claim may have. Claims of one
//! commit that want the same are one claim here, whose jobs are handed to one after the other.
//!
//! Candidates are read without a lock, so that claims of other nodes can still have them. What was
//! chosen is then locked with `SKIP LOCKED`; if other claims took some of it in between, the search
//! goes another round (optimistic, with a retry loop). If a rule that several claims share limits
//! the jobs, its row is locked before anything is counted. Then another claim under the same rule
//! waits already, so where a limit lets a few jobs of each key go, they are locked as they are
//! found, which spares a round trip.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    mem, slice,
    time::Duration,
};

use windlass_kernel::{
    Job, JobId, Lane, RuleName, TenantId, Timestamp, WorkerId,
    admit::{Admission, Head, Quota, Request, Turns, admit, give_back},
    job::Rank,
};

use super::{
    grant::{Claims, LOCK_MAX, apply},
    ready::{self, ClaimLine, LineJobs},
    rule_locks::Locks,
    rules::{CommitRules, Question},
};
use crate::{
    IdMap,
    commit::{ClaimMany, ClaimShare, Filled, Grant},
    job_row::GroupName,
    postgres::{
        Inner, PgResult,
        link::{
            pipeline::{Ask, run, run_one},
            types::{Time, Uuid},
        },
        row::{
            column::id_of,
            job::{Candidate, candidate_of, grant_columns},
        },
        write::work::Work,
    },
};

/// What claims that want the same look for, and what they have found.
pub(crate) struct Search<'a> {
    takers: Vec<Taker<'a>>,
    groups: Vec<(i32, GroupName)>,
    store: &'a Inner,
    /// Jobs that it has tried to lock: it holds them, or another claim did.
    tried: HashSet<JobId>,
    /// How many of them are of which line.
    tried_in: HashMap<(i32, Lane), usize>,
    /// Jobs that were locked as they were found.
    locked: IdMap<Candidate>,
    again_at: Option<Timestamp>,
    /// Lines whose keys are of the half that is not locked.
    others: Vec<ClaimLine>,
    is_alone: bool,
    /// Is there more than fits into the answers?
    is_cut: bool,
}

/// One claim, and what it gets.
struct Taker<'a> {
    wanted: &'a ClaimMany,
    granted: Vec<Grant>,
    filled: Filled,
    /// Did a job not fit any more?
    is_full: bool,
}

/// What each claim got, and when to ask again.
pub(crate) type Shared = (Vec<Vec<Grant>>, Option<Timestamp>);

/// The most rounds of one search: a round is repeated if other claims took what was chosen, or if
/// the lines that were asked first did not fill the claim.
const ROUNDS: usize = 8;

/// A claim of so many jobs is a large one. What is done for its speed costs a little of the order of jobs.
const LARGE: usize = 128;

/// A large claim with so many lines to have jobs from locks rules that count by key for one half of the keys.
const HALVES_LINES: usize = 256;

/// So long after a claim that was not filled its worker asks again, if there is more to be had: in the half of the keys
/// that was not locked, or in lines that were not come to.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Up to so many lines, all are queried. Of more, the claim chooses by the cached rank of each
/// line's first job.
const FEW: usize = 64;

/// One claim considers at most so many lines. The next claim begins with the line after them.
const LINES_MAX: usize = 4_096;

impl<'a> Search<'a> {
    /// For one claim, or for several that want jobs of the same groups, none of which has to be alone.
    pub(crate) fn new(
        takers: impl Iterator<Item = &'a ClaimMany>,
        groups: Vec<(i32, GroupName)>,
        store: &'a Inner,
    ) -> Self {
        let takers = takers.map(Taker::new).collect();
        Self {
            takers,
            groups,
            store,
            tried: HashSet::new(),
            tried_in: HashMap::new(),
            locked: IdMap::default(),
            again_at: None,
            others: Vec::new(),
            is_alone: false,
            is_cut: false,
        }
    }

    pub(crate) async fn run(
        mut self,
        claims: &Claims<'_>,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<Shared> {
        let ids: Vec<i32> = self.groups.iter().map(|(id, _)| *id).collect();
        let mut has_looked = self.store.ready.is_old(ids.iter().copied());
        if has_looked {
            self.store.ready.look(work.client, &ids).await?;
        }
        let mut may_be_more = false;
        for _ in 0..ROUNDS {
            may_be_more = self.round(claims, work, now).await?;
            if self.left() == 0 || self.is_alone || self.is_cut {
                break;
            }
            if may_be_more {
                continue;
            }
            // A worker that got some jobs claims again soon, so its claim need not refresh the
            // cached lines now.
            let has_some = self.takers.iter().any(|taker| !taker.granted.is_empty());
            if has_looked || has_some || self.others_wait(work, now) {
                break;
            }
            has_looked = true;
            self.store.ready.look(work.client, &ids).await?;
        }
        if self.is_cut {
            self.again_at = Some(now);
        } else if self.left() > 0 && !self.is_alone && (may_be_more || self.others_wait(work, now))
        {
            let soon = now.plus(AGAIN_AFTER);
            self.again_at = Some(self.again_at.map_or(soon, |at| at.min(soon)));
        }
        Ok((self.takers.into_iter().map(|taker| taker.granted).collect(), self.again_at))
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
        let mut locks = Locks::default();
        if locks_at_once {
            locks = self.locks(&all_shared, lines.len(), work)?;
        }
        self.others.clear();
        if let Some(half) = locks.half {
            let is_other = |from: &mut ClaimLine| {
                !half.has(from.lane) && work.rules.room(self.name_of(from), from.lane).is_some()
            };
            self.others = lines.extract_if(.., is_other).collect();
        }
        let (found, is_part) = self.look(&lines, locks, work, now).await?;
        let held = self.count_held(&found, work).await?;
        let mut admission = self.admit(&found, self.left(), held, work, locks_at_once, now);
        if !locks_at_once && !admission.quotas.is_empty() {
            // Without the lock there seem to be jobs that the rules let go, so it is worth taking
            // the lock and counting again behind it.
            work.rules.expect_none_locked()?;
            self.ask_rules(&lines, Locks::whole(all_shared), work).await?;
            admission = self.admit(&found, self.left(), held, work, true, now);
        }
        if !shared.is_empty() {
            self.store.rules.note_full(admission.quotas.is_empty() && self.others.is_empty());
        }
        self.again_at = admission.again_at;
        let took_all = |quota: &Quota| {
            let found = &found[quota.head];
            let has_room = || {
                let room = work.rules.room(self.name_of(&found.from), found.from.lane);
                room.is_none_or(|room| room > quota.take)
            };
            found.may_have_more && found.ids.len() == quota.take && has_room()
        };
        let has_moved = !admission.quotas.is_empty() || found.iter().any(|it| it.ids.is_empty());
        let may_be_more = admission.quotas.iter().any(took_all) || (is_part || is_cut) && has_moved;
        let lost = self.take(&found, admission, held, work, now).await?;
        Ok(lost || may_be_more)
    }

    /// May jobs go, as far as it is known, whose keys are of the half that is not locked?
    fn others_wait(&self, work: &Work<'_>, now: Timestamp) -> bool {
        let heads = self.others.iter().map(|from| {
            let first = slice::from_ref(&from.first);
            head_of(self.name_of(from), from.lane, from.retries, first, None)
        });
        let request = Request { max: 1, held: 0, holds_isolated: false, heads: heads.collect() };
        let (rules, known) = (&work.rules.book.rules, work.rules.known());
        !admit(&request, rules, &known, &mut Turns::default(), now).quotas.is_empty()
    }

    /// These rules, which are locked already or to be locked now, and for which keys.
    fn locks(&self, names: &BTreeSet<RuleName>, lines: usize, work: &Work<'_>) -> PgResult<Locks> {
        let mut half = work.rules.half();
        if !names.is_empty() && !work.rules.has_locked(names) {
            work.rules.expect_none_locked()?;
            // A job that has to be alone must be seen by all claims.
            let has_isolated = || self.groups.iter().any(|(_, name)| name.isolated);
            let is_large = lines >= HALVES_LINES && self.is_large() && !has_isolated();
            if is_large && work.rules.may_halve(names) {
                let groups = self.groups.iter().map(|(id, _)| *id).collect();
                half = Some(self.store.rules.take_half(groups));
            } else {
                self.store.rules.take_whole();
            }
        }
        Ok(Locks { names: names.clone(), half })
    }

    fn name_of(&self, from: &ClaimLine) -> &GroupName {
        &self.groups[from.place].1
    }

    /// What there is in these lines, or in some of them, and whether there are others. What rules know is asked with it.
    async fn look(
        &mut self,
        lines: &[ClaimLine],
        locks: Locks,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<(Vec<LineJobs>, bool)> {
        let left = self.left();
        if lines.len() <= FEW {
            let question = self.question(lines, locks, work);
            let each = vec![left; lines.len()];
            return Ok((self.find(lines, &each, question, work, now).await?, false));
        }
        let are_locked = !locks.names.is_empty();
        self.ask_rules(lines, locks, work).await?;
        let (chosen, shares) = self.choose(lines, work, now);
        // The usual share: what is left of the claim, divided by the lines that were chosen. It is
        // for lines whose own share is not known.
        let usual = left.div_ceil(chosen.len().max(1));
        let room = |from: &ClaimLine| work.rules.room(self.name_of(from), from.lane);
        let is_limited = |from: &ClaimLine| !from.retries && room(from).is_some();
        if are_locked && self.is_large() && chosen.iter().all(is_limited) {
            let each = chosen.iter().zip(&shares).map(|(from, share)| {
                share.unwrap_or(usual.max(4)).min(room(from).unwrap_or(usize::MAX))
            });
            let each: Vec<usize> = each.collect();
            return Ok((self.find_and_lock(&chosen, &each, work, now).await?, true));
        }
        // Of a line whose share is known, reads that and one more job; of any other, four times the
        // usual share, because some lines turn out short. Under a limit by key it reads no more
        // than the limit has room for and one more. The rank of that one more is cached as the new
        // head of the line.
        let usual = usual.saturating_mul(4).clamp(4, left.max(4));
        let each = chosen.iter().zip(&shares).map(|(from, share)| {
            let each = share.map_or(usual, |share| share.saturating_add(1));
            room(from).map_or(each, |room| each.min(room.saturating_add(1)))
        });
        let each: Vec<usize> = each.collect();
        let found = self.find(&chosen, &each, Question::default(), work, now).await?;
        Ok((found, true))
    }

    fn question(&self, lines: &[ClaimLine], locks: Locks, work: &mut Work<'_>) -> Question {
        let names: Vec<(&GroupName, Lane)> =
            lines.iter().map(|from| (self.name_of(from), from.lane)).collect();
        let Work { rules, set, .. } = work;
        rules.question(&names, locks, |rule| set.forgets(rule))
    }

    /// Asks what rules know of these lines, and nothing else.
    async fn ask_rules(
        &self,
        lines: &[ClaimLine],
        locks: Locks,
        work: &mut Work<'_>,
    ) -> PgResult<()> {
        let question = self.question(lines, locks, work);
        self.find(&[], &[], question, work, Timestamp::MIN).await.map(drop)
    }

    /// Asks what rules know, and for the first jobs of lines, so many of each, and as many more as are out.
    async fn find(
        &self,
        lines: &[ClaimLine],
        each: &[usize],
        question: Question,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<Vec<LineJobs>> {
        let limits = self.limits(lines, each, work);
        let mut asks = Vec::new();
        question.asks(&mut asks, self.store.feed_lock.1);
        ready::asks(lines, &limits, now, &mut asks);
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = run(work.client, &asks).await?.into_iter();
        CommitRules::take(work, &self.store.names, question, &mut rows).await?;
        let is_out = |id| work.set.contains(id) || self.tried.contains(&id);
        ready::found_of(lines, &limits, &mut rows, is_out, now)
    }

    /// Asks for the first jobs of lines, so many of each, and locks them. Jobs that another
    /// transaction has locked are skipped (`SKIP LOCKED`).
    async fn find_and_lock(
        &mut self,
        lines: &[ClaimLine],
        each: &[usize],
        work: &Work<'_>,
        now: Timestamp,
    ) -> PgResult<Vec<LineJobs>> {
        let limits = self.limits(lines, each, work);
        let Some(ask) = ready::ask_and_lock(lines, &limits) else { return Ok(Vec::new()) };
        let rows = run_one(work.client, ask).await?;
        for row in &rows {
            let Some(from) = ready::place_of(row)?.and_then(|place| lines.get(place)) else {
                continue;
            };
            let candidate = candidate_of(row, self.name_of(from))?;
            self.locked.insert(candidate.loaded.job.id, candidate);
        }
        let is_out = |id| work.set.contains(id) || self.tried.contains(&id);
        ready::found_and_locked(lines, &limits, &rows, is_out, now)
    }

    /// So many of each line, and as many more as are out.
    fn limits(&self, lines: &[ClaimLine], each: &[usize], work: &Work<'_>) -> Vec<usize> {
        let out = self.out(work);
        let out = |from: &ClaimLine| out.get(&(from.group, from.lane)).copied().unwrap_or(0);
        let limits = lines.iter().zip(each).map(|(from, each)| each.saturating_add(out(from)));
        limits.map(|limit| limit.min(LOCK_MAX)).collect()
    }

    /// How many jobs of each line a query may return that the claim cannot have: the commit has
    /// touched them, or this search has tried them.
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

    /// The lines that would be next, by what is remembered of them, and the share of each, if it is known.
    ///
    /// Only the first job of a line is known. A tenant that has many lines gets its jobs in the order of their ranks, so
    /// each line is asked as if it had one. A tenant that has one line takes its turns from it: that it has enough jobs is
    /// believed at first, and if the claim is not filled then, no longer.
    fn choose(
        &self,
        lines: &[ClaimLine],
        work: &Work<'_>,
        now: Timestamp,
    ) -> (Vec<ClaimLine>, Vec<Option<usize>>) {
        // A line whose key has no room left under its limit is left out before `admit` shares out
        // slots: with a thousand keys of one job each, that is most of them.
        let has_room =
            |from: &&ClaimLine| work.rules.room(self.name_of(from), from.lane) != Some(0);
        let lines: Vec<ClaimLine> = lines.iter().filter(has_room).copied().collect();
        let mut lines_of: HashMap<&TenantId, usize> = HashMap::new();
        for from in &lines {
            *lines_of.entry(&self.name_of(from).tenant).or_default() += 1;
        }
        let max = self.left().max(FEW);
        let turn = max.saturating_mul(2) / lines_of.len().max(1);
        let turn = turn.max(max / Turns::PER_CLAIM).clamp(1, LOCK_MAX);
        let is_only = |from: &ClaimLine| {
            self.tried.is_empty() && lines_of[&self.name_of(from).tenant] == 1 && !from.retries
        };
        let ranks: Vec<Vec<Rank>> = lines
            .iter()
            .map(|from| vec![from.first; if is_only(from) { turn } else { 1 }])
            .collect();
        let heads = lines.iter().zip(&ranks);
        let heads = heads
            .map(|(from, ranks)| head_of(self.name_of(from), from.lane, from.retries, ranks, None))
            .collect();
        let request = Request { max, held: 0, holds_isolated: false, heads };
        let mut turns = self.store.rules.turns().clone();
        let rules = &work.rules;
        let quotas = admit(&request, &rules.book.rules, &rules.known(), &mut turns, now).quotas;
        let chosen = quotas.iter().map(|quota| {
            let from = lines[quota.head];
            (from, is_only(&from).then_some(quota.take))
        });
        chosen.unzip()
    }

    fn left(&self) -> usize {
        self.takers.iter().map(Taker::left).sum()
    }

    fn is_large(&self) -> bool {
        self.takers.iter().map(|taker| taker.wanted.max).sum::<usize>() >= LARGE
    }

    /// Shares out what was found, so many at the most. Unless it is for good, it works on a copy of
    /// the turns, and no tenant's turn is used up.
    fn admit(
        &self,
        found: &[LineJobs],
        max: usize,
        held: usize,
        work: &Work<'_>,
        for_good: bool,
        now: Timestamp,
    ) -> Admission {
        let heads = found.iter().map(|LineJobs { from, ranks, since, .. }| {
            let name = self.name_of(from);
            head_of(name, from.lane, from.retries, ranks, name.isolated.then_some(*since))
        });
        let heads = heads.collect();
        let request = Request { max, held, holds_isolated: false, heads };
        let (rules, known) = (&work.rules.book.rules, work.rules.known());
        let mut turns = self.store.rules.turns();
        if for_good {
            admit(&request, rules, &known, &mut turns, now)
        } else {
            admit(&request, rules, &known, &mut turns.clone(), now)
        }
    }

    /// Gives back the turns that were taken for what is not granted after all.
    fn give_back(&self, found: &[LineJobs], quotas: &[Quota], work: &Work<'_>) {
        let heads = found.iter().map(|LineJobs { from, ranks, .. }| {
            head_of(self.name_of(from), from.lane, from.retries, ranks, None)
        });
        let heads: Vec<Head<'_>> = heads.collect();
        give_back(&heads, &work.rules.book.rules, quotas, &mut self.store.rules.turns());
    }

    /// Locks and grants what was admitted, and tells whether others were faster somewhere.
    async fn take(
        &mut self,
        found: &[LineJobs],
        admission: Admission,
        held: usize,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> PgResult<bool> {
        let Admission { mut quotas, mut states, .. } = admission;
        let mut taken = vec![0; found.len()];
        quotas.iter().for_each(|quota| taken[quota.head] = quota.take);
        self.store.ready.note_found(found, &taken);
        if quotas.is_empty() {
            return Ok(false);
        }
        let chosen: Vec<(i32, JobId)> = quotas
            .iter()
            .flat_map(|quota| {
                let LineJobs { from, ids, .. } = &found[quota.head];
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
            // Other claims took some of the jobs first. The rates and budgets of rules count only
            // the jobs that were locked, so their states are computed again for those.
            let got: Vec<LineJobs> = quotas
                .iter()
                .map(|quota| found[quota.head].only(|id| jobs.contains_key(&id)))
                .collect();
            states = self.admit(&got, self.left(), held, work, false, now).states;
        }
        let mut asked = ClaimShare::new(self.left());
        while let Some(fitting) = self.fitting(&quotas, found, &jobs) {
            asked.cut(fitting);
            self.give_back(found, &quotas, work);
            let got: Vec<LineJobs> =
                found.iter().map(|it| it.only(|id| jobs.contains_key(&id))).collect();
            // The cut keeps one job at the least; but an earlier round may have filled the answers
            // already, and then none fits.
            let max = asked.max.min(fitting);
            Admission { quotas, states, .. } = self.admit(&got, max, held, work, true, now);
        }
        for quota in &quotas {
            let LineJobs { from, ids, .. } = &found[quota.head];
            let locked = ids.iter().filter(|id| jobs.contains_key(id)).take(quota.take);
            let ids: Vec<JobId> = locked.copied().collect();
            let mut mine: VecDeque<_> = ids.iter().filter_map(|id| jobs.remove(id)).collect();
            for taker in &mut self.takers {
                let granted = apply(taker.take(&mut mine), taker.wanted, quota.alone, work, now);
                self.is_alone |= quota.alone && !granted.is_empty();
                work.rules.took(&self.groups[from.place].1, from.lane, granted.len());
                taker.granted.extend(granted);
            }
        }
        if asked.is_cut {
            self.is_cut = true;
            // What does not fit is still there, for the next claim.
            let left = jobs.values().map(|it| (&it.loaded.job, &it.loaded.place));
            self.store.ready.note(left);
        }
        work.rules.remember(&states);
        work.set.remember(states);
        Ok(lost)
    }

    /// How many of these jobs fit into the answers of those who claim, if not all do.
    fn fitting(
        &self,
        quotas: &[Quota],
        found: &[LineJobs],
        jobs: &IdMap<Candidate>,
    ) -> Option<usize> {
        let mut takers = self.takers.iter().map(Taker::room);
        let (mut room, mut count) = (takers.next(), 0);
        for quota in quotas {
            let ids = &found[quota.head].ids;
            let locked = ids.iter().filter_map(|id| jobs.get(id)).take(quota.take);
            for candidate in locked {
                while !room.as_mut()?.add(candidate) {
                    room = takers.next();
                    if room.is_none() {
                        return Some(count);
                    }
                }
                count += 1;
            }
        }
        None
    }

    /// Locks the jobs that can still be claimed and are still in the group in which they were found
    /// (an optimistic read, checked under the lock).
    async fn lock(
        &mut self,
        chosen: &[(i32, JobId)],
        work: &Work<'_>,
        now: Timestamp,
    ) -> PgResult<IdMap<Candidate>> {
        if chosen.iter().all(|(_, id)| self.locked.contains_key(id)) {
            return Ok(mem::take(&mut self.locked));
        }
        let ids: Vec<Uuid> = chosen.iter().map(|(_, id)| Uuid(id.as_u128())).collect();
        let names: HashMap<i32, &GroupName> =
            self.groups.iter().map(|(id, name)| (*id, name)).collect();
        let groups: IdMap<i32> = chosen.iter().map(|(group, id)| (*id, *group)).collect();
        let mut jobs = IdMap::default();
        for row in run_one(work.client, Ask::new(LOCK).with(ids).with(Time(now))).await? {
            let (id, group): (JobId, i32) = (id_of(&row, 1)?, row.try_get(3)?);
            if groups.get(&id) == Some(&group) {
                jobs.insert(id, candidate_of(&row, names[&group])?);
            }
        }
        Ok(jobs)
    }

    /// How many jobs the worker's process holds, if that matters, counted up to a thousand.
    async fn count_held(&self, found: &[LineJobs], work: &Work<'_>) -> PgResult<usize> {
        let is_isolated = |it: &LineJobs| !it.ids.is_empty() && self.name_of(&it.from).isolated;
        if !found.iter().any(is_isolated) {
            return Ok(0);
        }
        let wanted = self.takers.iter().map(|taker| taker.wanted);
        let here = wanted.flat_map(|wanted| wanted.neighbours.iter().chain([&wanted.worker]));
        let here: Vec<&WorkerId> = here.collect();
        let names: Vec<String> = here.iter().map(|it| it.as_str().to_owned()).collect();
        let mut held = here.iter().map(|worker| work.held_here(worker).count()).sum();
        for row in run_one(work.client, Ask::new(HOLDS).with(names)).await? {
            held += usize::from(!work.set.contains(id_of(&row, 0)?));
        }
        Ok(held)
    }
}

impl<'a> Taker<'a> {
    fn new(wanted: &'a ClaimMany) -> Self {
        Self { wanted, granted: Vec::new(), filled: Filled::default(), is_full: false }
    }

    fn left(&self) -> usize {
        if self.is_full { 0 } else { self.wanted.max - self.granted.len() }
    }

    fn room(&self) -> Room {
        Room { left: self.left(), filled: self.filled }
    }

    /// Takes the first of these jobs, as far as there is room.
    fn take(&mut self, jobs: &mut VecDeque<Candidate>) -> Vec<Candidate> {
        let (mut room, mut taken) = (self.room(), Vec::new());
        while let Some(next) = jobs.front() {
            if !room.add(next) {
                self.is_full = room.left > 0;
                break;
            }
            taken.extend(jobs.pop_front());
        }
        self.filled = room.filled;
        taken
    }
}

/// How much a claim may still have.
struct Room {
    left: usize,
    filled: Filled,
}

impl Room {
    /// Adds a job, if there is room for it.
    fn add(&mut self, candidate: &Candidate) -> bool {
        let job = &candidate.loaded.job;
        let fits = self.left > 0 && self.filled.add(job, candidate.payload_bytes);
        self.left -= usize::from(fits);
        fits
    }
}

/// The jobs that can still be claimed and that no other transaction has locked.
const LOCK: &str = concat!(
    "SELECT ",
    grant_columns!(),
    " FROM jobs j
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
