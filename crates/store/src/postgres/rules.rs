//! Rules as a node knows them, and what is known of the parts that they cover while one commit lasts.
//!
//! What rules say is remembered with the version that it has, and each commit compares the version. What they remember
//! is never kept at hand, for all nodes share it; how many jobs are held is counted from leases. Whoever takes from a
//! rule that others take from has locked its row before it reads either. So no two nodes exceed a limit together, and
//! nothing can leak. A large claim may lock one half of the keys only: see `rule_locks`.
//!
//! A commit locks rules after the jobs that it names, all at once and in the order of their names: see `first_load`.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
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
    Failure, PgResult,
    load::{json_of, text_of},
    names::Names,
    pipeline::{Ask, run, run_one},
    rule_locks::{Half, Halves, Locks},
    types::Time,
    work::Work,
};
use crate::{
    RuleChange,
    commit::{Changes, Row as Changed},
    job_row::{GroupName, json},
    rules::{HeldParts, Known, Outcome, Rulebook},
};

/// The rules that a node remembers, and whose turn it is here.
#[derive(Default)]
pub(super) struct Rules {
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
pub(super) struct Edition {
    pub(super) version: i64,
    pub(super) rules: Arc<Vec<Rule>>,
}

impl Default for Edition {
    /// None that was ever stored.
    fn default() -> Self {
        Self { version: -1, rules: Arc::default() }
    }
}

const EDITION: &str = "
    SELECT (SELECT value::bigint FROM meta WHERE name = 'rules_version'),
        ARRAY(SELECT rule FROM rules)";

impl Rules {
    /// What is remembered.
    pub(super) fn known(&self) -> Edition {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers this, which is committed.
    pub(super) fn keep(&self, edition: Edition) {
        self.are_shared.store(edition.rules.iter().any(Rule::is_shared), Ordering::Relaxed);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = edition;
    }

    /// Loads what rules say now, and remembers it.
    pub(super) async fn learn(&self, client: &ClientWrapper) -> PgResult<Edition> {
        let edition = load_edition(client).await?;
        self.keep(edition.clone());
        Ok(edition)
    }

    /// Whose turn it is.
    pub(super) fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Do claims wait for each other?
    pub(super) fn claims_wait(&self) -> bool {
        self.are_shared.load(Ordering::Relaxed) && !self.by_halves.load(Ordering::Relaxed)
    }

    /// A claim locks rules as a whole.
    pub(super) fn take_whole(&self) {
        self.by_halves.store(false, Ordering::Relaxed);
    }

    /// The half of the keys that a claim of jobs in these groups locks: never the same twice in a row.
    pub(super) fn take_half(&self, groups: Vec<i32>) -> Half {
        self.by_halves.store(true, Ordering::Relaxed);
        self.halves.take(groups)
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    pub(super) fn note_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }
}

/// What rules say now.
pub(super) async fn load_edition(client: &ClientWrapper) -> PgResult<Edition> {
    let rows = run_one(client, Ask::new(EDITION)).await?;
    let row = rows.first().ok_or_else(|| Failure::damaged("there are no rules"))?;
    let version: Option<i64> = row.try_get(0)?;
    let version = version.ok_or_else(|| Failure::damaged("the rules have no version"))?;
    let texts: Vec<&str> = row.try_get(1)?;
    let parse = |text: &&str| serde_json::from_str::<Rule>(text);
    let rules: Result<Vec<Rule>, _> = texts.iter().map(parse).collect();
    let mut rules = rules.map_err(|error| Failure::damaged(error.to_string()))?;
    rules.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Edition { version, rules: Arc::new(rules) })
}

/// Locks what tells the version: only one commit at a time changes rules.
pub(super) const LOCK_VERSION: &str = "SELECT FROM meta WHERE name = 'rules_version' FOR UPDATE";

/// The rules that one commit goes by, and what it knows of the parts that they cover.
#[derive(Default)]
pub(super) struct CommitRules {
    pub(super) version: i64,
    /// What rules say, and what those remember that this commit has asked for.
    pub(super) book: Rulebook,
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
    pub(super) fn new(edition: Edition) -> Self {
        let book = Rulebook { rules: edition.rules, ..Rulebook::default() };
        Self { version: edition.version, book, ..Self::default() }
    }

    /// What is known, as `admit` asks for it.
    pub(super) fn known(&self) -> Known<'_> {
        Known { states: &self.book.states, held: &self.held }
    }

    /// Are these rules locked, so that what is known of them stays true?
    pub(super) fn has_locked(&self, names: &BTreeSet<RuleName>) -> bool {
        names.is_subset(&self.locked)
    }

    /// Rules are locked all at once. Whoever has some and needs others, of a group that it did not know then, begins anew.
    pub(super) fn expect_none_locked(&self) -> PgResult<()> {
        if self.locked.is_empty() { Ok(()) } else { Err(Failure::Overtaken) }
    }

    /// The half of the keys that rules are locked for, if it is not all.
    pub(super) fn half(&self) -> Option<Half> {
        self.half
    }

    /// May these rules be locked for one half of the keys? Nothing is locked yet, and each counts by key.
    pub(super) fn may_halve(&self, names: &BTreeSet<RuleName>) -> bool {
        let by_key = |rule: &Rule| matches!(rule.says, Says::Concurrency { each: Each::Key, .. });
        let mut rules = self.book.rules.iter().filter(|rule| names.contains(&rule.name));
        self.locked.is_empty() && !names.is_empty() && rules.all(by_key)
    }

    /// Does a rule keep jobs of this group back, now or at times?
    pub(super) fn restrain(&self, group: &GroupName) -> bool {
        self.book.rules.iter().any(|rule| rule.restrains() && covers(rule, group))
    }

    /// The rules that two claims of jobs in these groups have to take from one after the other.
    pub(super) fn shared<'a>(
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
    pub(super) fn room(&self, group: &GroupName, lane: Lane) -> Option<usize> {
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
    pub(super) fn took(&mut self, group: &GroupName, lane: Lane, count: usize) {
        if self.counted.is_some() {
            let jobs = (&group.queue, &group.tenant, &group.kind, lane);
            let count = isize::try_from(count).unwrap_or(isize::MAX);
            self.held.add(&self.book.rules, jobs, count);
        }
    }

    /// What rules remember after a claim.
    pub(super) fn remember(&mut self, states: &[(RuleName, Part, RuleState)]) {
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
pub(super) struct Question {
    locks: Locks,
    parts: Vec<(RuleName, Part)>,
    counts: Option<Counted>,
}

impl CommitRules {
    /// What has to be asked before jobs in these lines can be shared out. If the rules are to be locked, all is asked
    /// anew, behind the locks.
    pub(super) fn question(
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
    pub(super) async fn take(
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

    fn take_states(&mut self, rows: &[Row]) -> PgResult<()> {
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
    /// The statements. Each sees what was committed before it began, so those behind the lock see all that whoever had
    /// it before has done.
    pub(super) fn asks(&self, asks: &mut Vec<Ask>, schema: i32) {
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
    pub(super) async fn lock_rules(
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
    pub(super) fn lets_more_go<P>(
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

const PUT: &str = "
    INSERT INTO rules (name, rule) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET rule = excluded.rule";
const DROP: &str = "DELETE FROM rules WHERE name = $1";
const FORGET: &str = "DELETE FROM rule_states WHERE rule = $1";
const NEXT_VERSION: &str = "UPDATE meta SET value = value::bigint + 1 WHERE name = 'rules_version'";
const REMEMBER: &str = "
    INSERT INTO rule_states (rule, part, state, forget_at)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[])
    ON CONFLICT (rule, part) DO UPDATE SET state = excluded.state, forget_at = excluded.forget_at";
const FORGET_PARTS: &str = "
    DELETE FROM rule_states s USING unnest($1::text[], $2::text[]) AS v (rule, part)
    WHERE s.rule = v.rule AND s.part = v.part";

/// The statements that write what became of rules, which are locked, and what they remember.
pub(super) fn save(changes: &Changes, now: Timestamp, asks: &mut Vec<Ask>) {
    for change in &changes.rules {
        match change {
            RuleChange::Put { rule, forgets } => {
                let name = rule.name.as_str().to_owned();
                asks.push(Ask::new(PUT).with(name.clone()).with(json(rule)));
                asks.extend(forgets.then(|| Ask::new(FORGET).with(name)));
            }
            RuleChange::Drop(name) => asks.push(Ask::new(DROP).with(name.as_str().to_owned())),
        }
    }
    if !changes.rules.is_empty() {
        asks.push(Ask::new(NEXT_VERSION));
    }
    save_states(&changes.rule_states, now, asks);
}

fn save_states(
    states: &BTreeMap<(RuleName, Part), RuleState>,
    now: Timestamp,
    asks: &mut Vec<Ask>,
) {
    let columns = |states: &[(&(RuleName, Part), &RuleState)]| -> (Vec<String>, Vec<String>) {
        let names = states.iter().map(|((rule, part), _)| (rule.to_string(), part.as_text()));
        names.unzip()
    };
    let (gone, kept): (Vec<_>, Vec<_>) =
        states.iter().partition(|(_, state)| state.is_forgotten(now));
    if !gone.is_empty() {
        let (rules, parts) = columns(&gone);
        asks.push(Ask::new(FORGET_PARTS).with(rules).with(parts));
    }
    if !kept.is_empty() {
        let (rules, parts) = columns(&kept);
        let texts: Vec<String> = kept.iter().map(|(_, state)| json(state)).collect();
        let forget_at = kept.iter().map(|(_, state)| state.forget_at().map(Time));
        let ask = Ask::new(REMEMBER).with(rules).with(parts).with(texts);
        asks.push(ask.with(forget_at.collect::<Vec<Option<Time>>>()));
    }
}

/// What a commit works on stays until the next step.
const SWEEP: &str = "
    DELETE FROM rule_states WHERE (rule, part) IN (
        SELECT rule, part FROM rule_states WHERE forget_at <= $1 LIMIT 1000 FOR UPDATE SKIP LOCKED)";

/// Forgets what is the same as knowing nothing.
pub(super) async fn sweep(client: &ClientWrapper, now: Timestamp) -> PgResult<()> {
    Ok(run_one(client, Ask::new(SWEEP).with(Time(now))).await.map(drop)?)
}

/// Everything that rules remember.
const ALL_STATES: &str = "SELECT rule, part, state FROM rule_states";

/// The rules, and all that they remember.
pub(super) async fn load_book(client: &ClientWrapper) -> PgResult<Rulebook> {
    let mut rules = CommitRules::new(load_edition(client).await?);
    rules.take_states(&run_one(client, Ask::new(ALL_STATES)).await?)?;
    Ok(rules.book)
}
