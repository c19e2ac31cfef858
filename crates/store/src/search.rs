//! The search behind a list: which rows have all that a filter asks for, newest first. No IO.
//!
//! A filter is a set of parts that must all hold: a tag, a code, a group in a state. Each part is answered by one or
//! several sources, each of which gives keys in falling order from an index. The search walks all parts at once and
//! jumps ahead wherever one of them has a gap, so the rarest part sets the cost, whichever it is. What no index knows
//! is looked at in the row itself, which the backend loads.

use std::collections::{BinaryHeap, VecDeque};

use windlass_kernel::{Lane, State, Tag, TenantId, Timestamp};

use crate::read::{JobFilter, Scope};

/// Where keys come from. A backend knows the statement for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// Jobs of a group that can be claimed at once. Its keys are sorted when they are asked for.
    Ready(i64),
    /// Jobs of a group that wait for a retry. Sorted when asked for.
    Retry(i64),
    /// Jobs that a worker holds, of whichever group. Sorted when asked for.
    Held,
    /// Jobs of a group in a state that is in the index `jobs_listed`.
    Listed(i64, State),
    /// Jobs of a tenant that have a tag.
    Tag(TenantId, Tag),
    /// Jobs that have a limit key.
    Key(Lane),
    /// Jobs whose last failure has a code.
    Code(String),
    /// Jobs that failed for good within a time. Sorted when asked for.
    Failed(Scope, Timestamp, Timestamp),
}

impl KeySource {
    /// Has the index another order than the list? Then each fetch reads all of it, and takes more at once.
    fn is_sorted_each_time(&self) -> bool {
        match self {
            KeySource::Ready(_) | KeySource::Retry(_) | KeySource::Held | KeySource::Failed(..) => {
                true
            }
            KeySource::Listed(..) | KeySource::Tag(..) | KeySource::Key(_) | KeySource::Code(_) => {
                false
            }
        }
    }
}

/// A group of jobs, as a search knows it.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) id: i64,
    pub(crate) tenant: TenantId,
}

/// The parts of a filter that indexes know, or none if it can have no job.
pub(crate) fn parts(filter: &JobFilter, groups: &[Group]) -> Option<Vec<Vec<KeySource>>> {
    let mut parts = Vec::new();
    let mut tenants: Vec<&TenantId> = groups.iter().map(|group| &group.tenant).collect();
    tenants.sort_unstable();
    tenants.dedup();
    if let Some(tag) = &filter.tag {
        let of = |tenant: &&TenantId| KeySource::Tag((*tenant).clone(), tag.clone());
        parts.push(tenants.iter().map(of).collect());
    }
    if let Some(key) = &filter.limit_key {
        let of = |tenant: &&TenantId| KeySource::Key(Lane::of(tenant, key));
        parts.push(tenants.iter().map(of).collect());
    }
    if let Some(code) = &filter.code {
        parts.push(vec![KeySource::Code(code.clone())]);
    }
    if filter.failed_from.is_some() || filter.failed_before.is_some() {
        let from = filter.failed_from.unwrap_or(Timestamp::MIN);
        let before = filter.failed_before.unwrap_or(Timestamp::MAX);
        parts.push(vec![KeySource::Failed(filter.scope.clone(), from, before)]);
    }
    if names_groups(filter) {
        let by_group = by_group(filter, groups);
        if parts.is_empty() || by_group.len() <= GROUP_SOURCES_MAX {
            parts.push(by_group);
        }
    }
    (!groups.is_empty() && parts.iter().all(|part: &Vec<KeySource>| !part.is_empty()))
        .then_some(parts)
}

/// Where another part narrows the search down, groups are left to the rows if there are more than this.
const GROUP_SOURCES_MAX: usize = 2_000;

/// Does the filter ask for something that groups and states know?
fn names_groups(filter: &JobFilter) -> bool {
    // A tag and a limit key are those of one tenant.
    let names_tenant = filter.tag.is_some() || filter.limit_key.is_some();
    (filter.scope.tenant().is_some() && !names_tenant)
        || filter.queue.is_some()
        || filter.kind.is_some()
        || !filter.states.is_empty()
}

/// Every state of every group, each where an index knows it.
fn by_group(filter: &JobFilter, groups: &[Group]) -> Vec<KeySource> {
    let wants = |state: &State| filter.states.is_empty() || filter.states.contains(state);
    let states: Vec<State> = State::ALL.iter().copied().filter(wants).collect();
    let has = |some: &[State]| states.iter().any(|state| some.contains(state));
    let mut sources = Vec::new();
    if has(&[State::Running, State::Dispatched]) {
        sources.push(KeySource::Held);
    }
    for Group { id, .. } in groups {
        if has(&[State::Queued, State::Interrupted]) {
            sources.push(KeySource::Ready(*id));
        }
        if has(&[State::RetryScheduled]) {
            sources.push(KeySource::Retry(*id));
        }
        let listed = states.iter().filter(|state| is_listed(**state));
        sources.extend(listed.map(|state| KeySource::Listed(*id, *state)));
    }
    sources
}

/// Is a job in this state in the index `jobs_listed`? It has the states that no other index has.
fn is_listed(state: State) -> bool {
    match state {
        State::Scheduled
        | State::Waiting
        | State::Succeeded
        | State::Partial
        | State::Failed
        | State::Cancelled => true,
        State::Queued
        | State::Dispatched
        | State::Running
        | State::RetryScheduled
        | State::Interrupted
        | State::DlqPending
        | State::DlqRecorded => false,
    }
}

/// What a backend does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SearchMove {
    /// Ask these sources for more, and add what they give.
    Fetch(Vec<Fetch>),
    /// Every part has this key: look at its row.
    Found(u128),
    /// There are no more.
    End,
}

/// Keys that are wanted of a source: below a place, greatest first, so many at the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) walk: usize,
    pub(crate) source: KeySource,
    pub(crate) below: u128,
    pub(crate) limit: usize,
}

/// A walk through all parts of a filter.
pub(crate) struct Search {
    walks: Vec<Walk>,
    parts: Vec<Part>,
    /// Everything from here on was looked at.
    below: u128,
    /// Nothing before this is wanted.
    floor: u128,
    fetched: u64,
}

/// One source, and what it gave.
struct Walk {
    source: KeySource,
    part: usize,
    keys: VecDeque<u128>,
    /// Everything from here on was fetched.
    below: u128,
    limit: usize,
    has_ended: bool,
}

/// A part of the filter: the greatest key of each of its walks, and walks that have to be asked.
#[derive(Default)]
struct Part {
    heads: BinaryHeap<(u128, usize)>,
    hungry: Vec<usize>,
}

/// The most keys of one fetch.
const LIMIT_MAX: usize = 1_024;

impl Search {
    /// A search below a place, not further than another.
    pub(crate) fn new(parts: Vec<Vec<KeySource>>, below: u128, floor: u128) -> Self {
        let mut search = Self { walks: Vec::new(), parts: Vec::new(), below, floor, fetched: 0 };
        for (part, sources) in parts.into_iter().enumerate() {
            let limit = if sources.len() > 64 { 8 } else { 64 };
            let first = search.walks.len();
            search.walks.extend(sources.into_iter().map(|source| Walk {
                limit: if source.is_sorted_each_time() { LIMIT_MAX } else { limit },
                source,
                part,
                keys: VecDeque::new(),
                below,
                has_ended: false,
            }));
            let hungry = (first..search.walks.len()).collect();
            search.parts.push(Part { heads: BinaryHeap::new(), hungry });
        }
        search
    }

    /// How many keys were fetched.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Everything from here on was looked at.
    pub(crate) fn below(&self) -> u128 {
        self.below
    }

    pub(crate) fn step(&mut self) -> SearchMove {
        loop {
            let hungry = self.seek();
            if !hungry.is_empty() {
                return SearchMove::Fetch(hungry);
            }
            let heads = self.parts.iter().map(|part| part.heads.peek().map(|(key, _)| *key));
            let Some(heads) = heads.collect::<Option<Vec<u128>>>() else { return SearchMove::End };
            let Some(lowest) = heads.iter().copied().min().filter(|key| *key >= self.floor) else {
                return SearchMove::End;
            };
            if heads.iter().all(|key| *key == lowest) {
                self.below = lowest;
                return SearchMove::Found(lowest);
            }
            self.below = lowest + 1;
        }
    }

    /// Leaves out all keys that were looked at, and says which walks have to be asked for more.
    fn seek(&mut self) -> Vec<Fetch> {
        let (below, walks) = (self.below, &mut self.walks);
        let mut fetches = Vec::new();
        for part in &mut self.parts {
            while let Some((_, index)) = part.heads.peek().copied().filter(|(key, _)| *key >= below)
            {
                part.heads.pop();
                let walk = &mut walks[index];
                while walk.keys.front().is_some_and(|key| *key >= below) {
                    walk.keys.pop_front();
                }
                match walk.keys.front() {
                    Some(key) => part.heads.push((*key, index)),
                    None if walk.has_ended => {}
                    None => part.hungry.push(index),
                }
            }
            for index in part.hungry.drain(..) {
                let walk = &mut walks[index];
                walk.below = walk.below.min(below);
                let (source, limit) = (walk.source.clone(), walk.limit);
                fetches.push(Fetch { walk: index, source, below: walk.below, limit });
            }
        }
        fetches
    }

    /// Adds what a source gave, in any order.
    pub(crate) fn add(&mut self, fetch: &Fetch, mut keys: Vec<u128>) {
        keys.sort_unstable_by(|one, other| other.cmp(one));
        self.fetched += keys.len() as u64;
        let walk = &mut self.walks[fetch.walk];
        walk.has_ended = keys.len() < fetch.limit;
        walk.below = keys.last().copied().unwrap_or(walk.below);
        walk.limit = (walk.limit * 2).min(LIMIT_MAX);
        walk.keys = keys.into();
        if let Some(key) = walk.keys.front() {
            self.parts[walk.part].heads.push((*key, fetch.walk));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Runs a search over sources that are sets, and gives back what was found and how much was fetched.
    fn run(parts: &[Vec<BTreeSet<u128>>], below: u128, floor: u128) -> (Vec<u128>, u64) {
        let (mut sets, mut sources) = (BTreeMap::new(), Vec::new());
        for part in parts {
            let mut of_part = Vec::new();
            for set in part {
                let group = i64::try_from(sets.len()).expect("a few");
                sets.insert(group, set);
                of_part.push(KeySource::Listed(group, State::Succeeded));
            }
            sources.push(of_part);
        }
        let mut search = Search::new(sources, below, floor);
        let mut found = Vec::new();
        loop {
            match search.step() {
                SearchMove::End => return (found, search.fetched()),
                SearchMove::Found(key) => found.push(key),
                SearchMove::Fetch(fetches) => {
                    for fetch in fetches {
                        let KeySource::Listed(group, _) = fetch.source else {
                            panic!("another source")
                        };
                        let keys = sets[&group].range(..fetch.below).rev().take(fetch.limit);
                        let keys = keys.copied().collect();
                        search.add(&fetch, keys);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_every_part_has_is_found_once_newest_first(
            parts in prop::collection::vec(
                prop::collection::vec(prop::collection::btree_set(0_u128..500, 0..200), 1..4), 1..4),
            below in 0_u128..600,
            floor in 0_u128..100,
        ) {
            let has = |part: &Vec<BTreeSet<u128>>, key: &u128| part.iter().any(|set| set.contains(key));
            let keys = (floor..below).rev();
            let expected: Vec<u128> =
                keys.filter(|key| parts.iter().all(|part| has(part, key))).collect();
            prop_assert_eq!(run(&parts, below, floor).0, expected);
        }
    }

    #[test]
    fn the_rarest_part_sets_the_cost_whichever_it_is() {
        let common: BTreeSet<u128> = (0..1_000_000).collect();
        let rare = BTreeSet::from([3, 777_777]);
        let even: BTreeSet<u128> = (0..1_000_000).filter(|key| key % 2 == 1).collect();
        for parts in [
            [vec![common.clone()], vec![rare.clone()], vec![even.clone()]],
            [vec![rare], vec![even], vec![common]],
        ] {
            let (found, fetched) = run(&parts, u128::MAX, 0);
            assert_eq!(found, [777_777, 3]);
            assert!(fetched < 2_000, "{fetched} keys were fetched");
        }
    }

    #[test]
    fn every_state_is_known_to_an_index_or_is_never_stored() {
        let groups = [Group { id: 7, tenant: TenantId::new("acme").expect("a name") }];
        for state in State::ALL {
            let filter = JobFilter { states: vec![*state], ..JobFilter::of(Scope::Every) };
            let is_stored = !matches!(state, State::DlqPending | State::DlqRecorded);
            assert_eq!(parts(&filter, &groups).is_some(), is_stored, "{state}");
        }
    }
}
