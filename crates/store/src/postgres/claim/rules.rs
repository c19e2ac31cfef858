//! Rules as a node knows them, and what is known of the parts that they cover while one commit lasts.
//!
//! What rules say is remembered with the version that it has, and each commit compares the version.
//! What they remember is never kept at hand, for all nodes share it; how many jobs are held is
//! counted from leases. A claim under a rule that several claims share locks the rule's row before
//! it reads either. So no two nodes exceed a limit together, and nothing can leak. A large claim
//! may lock one half of the keys only: see `rule_locks`.
//!
//! A commit locks rules after the jobs that it names, all at once and in the order of their names: see `first_load`.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{
    Lane, Rule, RuleName, Says, Timestamp,
    admit::Turns,
    rule::{Each, Part, RuleState},
};

use super::{
    names::Names,
    rule_locks::{Half, Halves, Locks},
};
use crate::{
    commit::{Changes, Row as Changed},
    job_row::GroupName,
    postgres::{
        Failure, PgResult,
        link::pipeline::{Ask, run, run_one},
        row::{
            column::{json_of, text_of},
            rule::load_edition,
        },
        write::work::Work,
    },
    rules::{HeldParts, Outcome, Rulebook, RulesView},
};

/// The rules that a node remembers, and whose turn it is here.
#[derive(Default)]
pub(crate) struct Rules {
    known: Mutex<Edition>,
    turns: Mutex<Turns>,
    /// Is there a rule that claims take from one after the other?
    are_shared: AtomicBool,
    /// Did the last claim lock one half of the keys, so that another can be on its way?
    by_halves: AtomicBool,
    halves: Halves,
    /// Did the last claim that locked rules get nothing? Then the next one looks first, and locks only if there is
    /// something to be had.
    is_full: AtomicBool,
}

/// What rules say, and which version of it this is.
#[derive(Clone)]
pub(crate) struct Edition {
    pub(crate) version: i64,
    pub(crate) rules: Arc<Vec<Rule>>,
}

impl Default for Edition {
    /// A version that no store has, so that the first commit loads the rules.
    fn default() -> Self {
        Self { version: -1, rules: Arc::default() }
    }
}

impl Rules {
    /// What is remembered.
    pub(crate) fn known(&self) -> Edition {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers this, which is committed.
    pub(crate) fn keep(&self, edition: Edition) {
        self.are_shared.store(edition.rules.iter().any(Rule::is_shared), Ordering::Relaxed);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = edition;
    }

    /// Loads what rules say now, and remembers it.
    pub(crate) async fn learn(&self, client: &ClientWrapper) -> PgResult<Edition> {
        let edition = load_edition(client).await?;
        self.keep(edition.clone());
        Ok(edition)
    }

    /// Whose turn it is.
    pub(crate) fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Do claims wait for each other?
    pub(crate) fn claims_wait(&self) -> bool {
        self.are_shared.load(Ordering::Relaxed) && !self.by_halves.load(Ordering::Relaxed)
    }

    /// A claim locks rules as a whole.
    pub(crate) fn take_whole(&self) {
        self.by_halves.store(false, Ordering::Relaxed);
    }

    /// The half of the keys that a claim of jobs in these groups locks: never the same twice in a row.
    pub(crate) fn take_half(&self, groups: Vec<i32>) -> Half {
        self.by_halves.store(true, Ordering::Relaxed);
        self.halves.take(groups)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    pub(crate) fn note_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }
}

/// Locks what tells the version: only one commit at a time changes rules.
pub(crate) const LOCK_VERSION: &str = "SELECT FROM meta WHERE name = 'rules_version' FOR UPDATE";

/// The rules that one commit goes by, and what it knows of the parts that they cover.
#[derive(Default)]
pub(crate) struct CommitRules {
    pub(crate) version: i64,
    /// What rules say, and what those remember that this commit has asked for.
    pub(crate) book: Rulebook,
    held: HeldParts,
    /// The parts whose states were loaded.
    asked: HashSet<(RuleName, Part)>,
    locked: BTreeSet<RuleName>,
    /// Are they locked for one half of the keys only?
    half: Option<Half>,
    /// Is it known what is held?
    counted: Option<Counted>,
}

/// Which leases were counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    WithKey,
    All,
}

impl CommitRules {
    pub(crate) fn new(edition: Edition) -> Self {
        let book = Rulebook { rules: edition.rules, ..Rulebook::default() };
        Self { version: edition.version, book, ..Self::default() }
    }

    /// What is known, as `admit` asks for it.
    pub(crate) fn known(&self) -> RulesView<'_> {
        RulesView { states: &self.book.states, held: &self.held }
    }

    /// Are these rules locked, so that what is known of them stays true?
    pub(crate) fn has_locked(&self, names: &BTreeSet<RuleName>) -> bool {
        names.is_subset(&self.locked)
    }

    /// Rules are locked all at once, in one order, against deadlocks. A commit that has locked some
    /// and needs others (for a group that it learned of since) fails here and is tried again.
    pub(crate) fn expect_none_locked(&self) -> PgResult<()> {
        if self.locked.is_empty() { Ok(()) } else { Err(Failure::Overtaken) }
    }

    /// The half of the keys that rules are locked for, if it is not all.
    pub(crate) fn half(&self) -> Option<Half> {
        self.half
    }

    /// May these rules be locked for one half of the keys? Nothing is locked yet, and each counts by key.
    pub(crate) fn may_halve(&self, names: &BTreeSet<RuleName>) -> bool {
        let by_key = |rule: &Rule| matches!(rule.says, Says::Concurrency { each: Each::Key, .. });
        let mut rules = self.book.rules.iter().filter(|rule| names.contains(&rule.name));
        self.locked.is_empty() && !names.is_empty() && rules.all(by_key)
    }

    /// Does a rule keep jobs of this group back, now or at times?
    pub(crate) fn restrain(&self, group: &GroupName) -> bool {
        self.book.rules.iter().any(|rule| rule.restrains() && covers(rule, group))
    }

    /// The rules that two claims of jobs in these groups have to take from one after the other.
    pub(crate) fn shared<'a>(
        &self,
        groups: impl Iterator<Item = &'a GroupName>,
    ) -> BTreeSet<RuleName> {
        let shared: Vec<&Rule> = self.book.rules.iter().filter(|it| it.is_shared()).collect();
        if shared.is_empty() {
            return BTreeSet::new();
        }
        let groups: Vec<&GroupName> = groups.collect();
        let shared = shared.iter().filter(|rule| groups.iter().any(|group| covers(rule, group)));
        shared.map(|rule| rule.name.clone()).collect()
    }

    /// How many more jobs of this key may be held, as far as it is known; none, if no limit goes by keys.
    pub(crate) fn room(&self, group: &GroupName, lane: Lane) -> Option<usize> {
        let rooms = self.book.rules.iter().filter_map(|rule| match rule.says {
            Says::Concurrency { max, each: Each::Key }
                if lane != Lane::NONE && covers(rule, group) =>
            {
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                Some(max.saturating_sub(self.held.of(rule, &Part::Key(lane))))
            }
            _ => None,
        });
        rooms.min()
    }

    /// A claim took so many jobs of this lane.
    pub(crate) fn took(&mut self, group: &GroupName, lane: Lane, count: usize) {
        if self.counted.is_some() {
            let jobs = (&group.queue, &group.tenant, &group.kind, lane);
            let count = isize::try_from(count).unwrap_or(isize::MAX);
            self.held.add(&self.book.rules, jobs, count);
        }
    }

    /// What rules remember after a claim.
    pub(crate) fn remember(&mut self, states: &[(RuleName, Part, RuleState)]) {
        for (rule, part, state) in states {
            self.book.states.insert((rule.clone(), part.clone()), *state);
        }
    }
}

fn covers(rule: &Rule, group: &GroupName) -> bool {
    rule.scope.covers(&group.queue, &group.tenant, &group.kind)
}

const VERSION: &str = "SELECT value::bigint FROM meta WHERE name = 'rules_version'";

const STATES: &str = "
    SELECT s.rule, s.part, s.state FROM unnest($1::text[], $2::text[]) AS v (rule, part)
    JOIN rule_states s ON s.rule = v.rule AND s.part = v.part";

/// In one row, because a row for each of a thousand keys took longer to send than to count. Served by the index
/// `jobs_leased`.
const HELD: &str = "
    SELECT array_agg(group_id), array_agg(lane), array_agg(count) FROM (
        SELECT group_id, lane, count(*) FROM jobs WHERE lease_session IS NOT NULL
        GROUP BY group_id, lane) AS held";

/// Served by the index `jobs_held_keys`.
const HELD_WITH_KEY: &str = "
    SELECT array_agg(group_id), array_agg(lane), array_agg(count) FROM (
        SELECT group_id, lane, count(*) FROM jobs WHERE lease_session IS NOT NULL AND lane <> 0
        GROUP BY group_id, lane) AS held";

/// What a claim asks about rules, together with what else it asks.
#[derive(Default)]
pub(crate) struct Question {
    locks: Locks,
    parts: Vec<(RuleName, Part)>,
    counts: Option<Counted>,
}

impl CommitRules {
    /// What has to be asked before jobs in these lines can be shared out. If the rules are to be locked, all is asked
    /// anew, behind the locks.
    pub(crate) fn question(
        &mut self,
        lines: &[(&GroupName, Lane)],
        mut locks: Locks,
        is_forgotten: impl Fn(&RuleName) -> bool,
    ) -> Question {
        if !self.has_locked(&locks.names) {
            let Self { asked, book, locked, .. } = self;
            asked.retain(|(rule, _)| locked.contains(rule));
            book.states.retain(|(rule, _), _| locked.contains(rule));
            self.counted = None;
        }
        let (mut parts, mut counts) = (Vec::new(), None);
        for rule in self.book.rules.iter().filter(|rule| rule.is_shared()) {
            let each = rule.says.each();
            let mut is_covered = false;
            for (group, lane) in lines.iter().filter(|(group, _)| covers(rule, group)) {
                let part = Part::of(each, &group.queue, &group.tenant, &group.kind, *lane);
                let Some(part) = part else { continue };
                is_covered = true;
                if !rule.remembers() {
                    break;
                }
                let key = (rule.name.clone(), part);
                if self.asked.insert(key.clone()) && !is_forgotten(&rule.name) {
                    parts.push(key);
                }
            }
            if is_covered && rule.counts_held() {
                let needs = if each == Each::Key { Counted::WithKey } else { Counted::All };
                counts = counts.max(Some(needs));
            }
        }
        counts = counts.filter(|needs| self.counted.is_none_or(|counted| counted < *needs));
        if self.has_locked(&locks.names) {
            locks.names.clear();
        }
        Question { locks, parts, counts }
    }

    /// Takes the answers, which come in the order of the statements.
    pub(crate) async fn take(
        work: &mut Work<'_>,
        names: &Names,
        question: Question,
        rows: &mut impl Iterator<Item = Vec<Row>>,
    ) -> PgResult<()> {
        if !question.locks.names.is_empty() {
            let version = rows.nth(Locks::ASKS).unwrap_or_default();
            let version = version.first().map(|row| row.try_get::<_, i64>(0)).transpose()?;
            if version != Some(work.rules.version) {
                return Err(Failure::RulesChanged);
            }
            work.rules.locked.extend(question.locks.names);
            work.rules.half = question.locks.half;
        }
        if !question.parts.is_empty() {
            work.rules.take_states(&rows.next().unwrap_or_default())?;
        }
        if let Some(counts) = question.counts {
            let counted = rows.next().unwrap_or_default();
            work.count(names, &counted).await?;
            work.rules.counted = Some(counts);
        }
        Ok(())
    }

    pub(crate) fn take_states(&mut self, rows: &[Row]) -> PgResult<()> {
        for row in rows {
            let name: RuleName = text_of(row, 0)?;
            let rule = self.book.rules.iter().find(|rule| rule.name == name);
            let part: &str = row.try_get(1)?;
            if let Some(part) = rule.and_then(|rule| Part::parse(rule.says.each(), part)) {
                self.book.states.insert((name, part), json_of(row, 2)?);
            }
        }
        Ok(())
    }
}

impl Question {
    /// The statements. Under READ COMMITTED each statement has a snapshot of its own, so those that
    /// come after the lock see what its previous holder has committed.
    pub(crate) fn asks(&self, asks: &mut Vec<Ask>, schema: i32) {
        if !self.locks.names.is_empty() {
            asks.extend(self.locks.asks(schema));
            asks.push(Ask::new(VERSION));
        }
        if !self.parts.is_empty() {
            asks.push(states_of(&self.parts));
        }
        match self.counts {
            Some(Counted::All) => asks.push(Ask::new(HELD)),
            Some(Counted::WithKey) => asks.push(Ask::new(HELD_WITH_KEY)),
            None => {}
        }
    }
}

fn states_of(parts: &[(RuleName, Part)]) -> Ask {
    let rules: Vec<String> = parts.iter().map(|(rule, _)| rule.as_str().to_owned()).collect();
    let parts: Vec<String> = parts.iter().map(|(_, part)| part.as_text()).collect();
    Ask::new(STATES).with(rules).with(parts)
}

/// How many jobs of which lane are held; where there are none, the row has nothing.
fn held_of(rows: &[Row]) -> PgResult<Vec<(i32, Lane, isize)>> {
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let groups: Option<Vec<i32>> = row.try_get(0)?;
    let lanes: Option<Vec<i64>> = row.try_get(1)?;
    let counts: Option<Vec<i64>> = row.try_get(2)?;
    let lanes = lanes.unwrap_or_default().into_iter().map(Lane::new);
    let counts = counts.unwrap_or_default().into_iter();
    let counts = counts.map(|count| isize::try_from(count).unwrap_or(isize::MAX));
    let groups = groups.unwrap_or_default().into_iter();
    Ok(groups.zip(lanes).zip(counts).map(|((group, lane), count)| (group, lane, count)).collect())
}

impl Work<'_> {
    /// Counts what is held: what the rows say that are stored, and what this commit has made of them since.
    async fn count(&mut self, names: &Names, counted: &[Row]) -> PgResult<()> {
        self.rules.held = HeldParts::default();
        for (group, lane, count) in held_of(counted)? {
            if names.named_by(group).is_none() {
                names.learn(self.client).await?;
            }
            let name = names.named_by(group);
            let name = name.ok_or_else(|| Failure::damaged(format!("no group {group}")))?;
            let jobs = (&name.queue, &name.tenant, &name.kind, lane);
            self.rules.held.add(&self.rules.book.rules, jobs, count);
        }
        for row in self.set.rows().filter(|row| row.is_changed()) {
            let change = lease_change(row);
            if change != 0 {
                let spec = &row.job.spec;
                let jobs = (&spec.queue, &spec.tenant, &spec.kind, spec.lane());
                self.rules.held.add(&self.rules.book.rules, jobs, change);
            }
        }
        Ok(())
    }

    /// The ops of a commit are decided: breakers hear of the executions that they ended. A rule is locked only if it was
    /// set or taken away, or if what it remembers changes, and then together with those that the claims of the commit
    /// will need.
    pub(crate) async fn lock_rules(
        &mut self,
        groups: impl FnOnce() -> Vec<(i32, GroupName)>,
        schema: i32,
        now: Timestamp,
    ) -> PgResult<()> {
        let outcomes = self.set.take_outcomes();
        let set = self.set.rules_set();
        let parts = self.rules.heard_by(&outcomes, |name| self.set.forgets(name));
        if outcomes.is_empty() && set.is_empty() {
            return Ok(());
        }
        if !parts.is_empty() {
            let rows = run_one(self.client, states_of(&parts)).await?;
            self.rules.take_states(&rows)?;
        }
        let mut trial = self.rules.book.clone();
        let changed = outcomes.iter().flat_map(|outcome| trial.hear(outcome, now));
        let mut locks: BTreeSet<RuleName> = changed.map(|(name, ..)| name).chain(set).collect();
        if locks.is_empty() {
            return Ok(());
        }
        locks.append(&mut self.rules.shared(groups().iter().map(|(_, name)| name)));
        let locks = Locks::whole(locks);
        let mut asks = Vec::from(locks.asks(schema));
        asks.push(Ask::new(VERSION));
        asks.extend((!parts.is_empty()).then(|| states_of(&parts)));
        let rows = run(self.client, &asks).await?;
        if rows[Locks::ASKS].first().map(|row| row.try_get::<_, i64>(0)).transpose()?
            != Some(self.rules.version)
        {
            return Err(Failure::RulesChanged);
        }
        self.rules.locked = locks.names;
        self.rules.book.states.clear();
        if let Some(rows) = rows.get(Locks::ASKS + 1) {
            self.rules.take_states(rows)?;
        }
        self.rules.asked.extend(parts);
        for outcome in &outcomes {
            let states = self.rules.book.hear(outcome, now);
            self.set.remember(states);
        }
        Ok(())
    }
}

impl CommitRules {
    /// The parts of breakers that these executions belong to, and whose states are stored.
    fn heard_by(
        &self,
        outcomes: &[Outcome],
        is_forgotten: impl Fn(&RuleName) -> bool,
    ) -> Vec<(RuleName, Part)> {
        let mut parts = BTreeSet::new();
        let breakers = self.book.rules.iter().filter(|it| matches!(it.says, Says::Breaker(_)));
        for rule in breakers.filter(|rule| !is_forgotten(&rule.name)) {
            for Outcome { queue, tenant, kind, lane, .. } in outcomes {
                if rule.scope.covers(queue, tenant, kind) {
                    let part = Part::of(rule.says.each(), queue, tenant, kind, *lane);
                    parts.extend(part.map(|part| (rule.name.clone(), part)));
                }
            }
        }
        parts.into_iter().collect()
    }

    /// May jobs go that a rule held back before these changes?
    pub(crate) fn lets_more_go<P>(
        &self,
        changes: &Changes,
        rows: &crate::IdMap<Changed<P>>,
    ) -> bool {
        let has_rules = || self.book.rules.iter().any(Rule::restrains);
        let ends_a_lease = || changes.updated.iter().any(|id| lease_change(&rows[id]) < 0);
        !changes.rules.is_empty() || has_rules() && ends_a_lease()
    }
}

/// How many more leases there are after the commit for one job: one, none, or one fewer.
fn lease_change<P>(row: &Changed<P>) -> isize {
    let before = row.before.as_ref().is_some_and(|job| job.lease.is_some());
    isize::from(row.job.lease.is_some()) - isize::from(before)
}
