//! How rules are locked: as a whole, or for one half of the keys.
//!
//! A large claim of jobs with many keys locks a rule that counts by key for one half of the keys only, so that another
//! claim can have the other half meanwhile. Whoever locks all of a rule, to claim from it or to change it, waits for both
//! halves, and they for it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

use windlass_kernel::{Lane, RuleName};

use crate::postgres::link::pipeline::Ask;

/// Rules that are to be locked, and for which half of the keys, if it is not for all.
#[derive(Clone, Default)]
pub(crate) struct Locks {
    pub(crate) names: BTreeSet<RuleName>,
    pub(crate) half: Option<Half>,
}

/// One half of all keys. No key is in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Half(bool);

/// Which half is next, for claims that want jobs of the same groups.
#[derive(Default)]
pub(crate) struct Halves {
    next: Mutex<HashMap<Vec<i32>, Half>>,
}

/// Of more sorts of claims than this it is not remembered which half is next.
const HALVES_MAX: usize = 1_024;

/// Advisory locks in front of the row locks, because they queue first in, first out: two half-locks
/// (`FOR SHARE`) that overlap again and again would starve a commit that wants the whole rule (`FOR
/// UPDATE`). Always in the same order, so that two commits cannot deadlock.
const QUEUE: &str = "
    SELECT pg_advisory_xact_lock(hashtextextended(name, $2)) FROM unnest($1::text[]) AS name";
const QUEUE_HALF: &str = "
    SELECT pg_advisory_xact_lock_shared(hashtextextended(name, $2)),
        pg_advisory_xact_lock(hashtextextended(name, $3))
    FROM unnest($1::text[]) AS name";

const LOCK: &str = "SELECT name FROM rules WHERE name = ANY($1) ORDER BY name FOR UPDATE";
const LOCK_HALF: &str = "SELECT name FROM rules WHERE name = ANY($1) ORDER BY name FOR SHARE";

impl Locks {
    /// How many statements lock rules.
    pub(crate) const ASKS: usize = 2;

    /// All of these rules.
    pub(crate) fn whole(names: BTreeSet<RuleName>) -> Self {
        Self { names, half: None }
    }

    /// The statements that lock them.
    pub(crate) fn asks(&self, schema: i32) -> [Ask; Self::ASKS] {
        let names: Vec<String> = self.names.iter().map(|name| name.as_str().to_owned()).collect();
        let whole = i64::from(schema) << 2;
        match self.half {
            Some(Half(half)) => {
                let queue = Ask::new(QUEUE_HALF).with(names.clone()).with(whole);
                [queue.with(whole | (1 + i64::from(half))), Ask::new(LOCK_HALF).with(names)]
            }
            None => [Ask::new(QUEUE).with(names.clone()).with(whole), Ask::new(LOCK).with(names)],
        }
    }
}

impl Half {
    pub(crate) fn has(self, lane: Lane) -> bool {
        // The lowest bit is always set.
        (lane.get() & 2 != 0) == self.0
    }
}

impl Halves {
    /// The half for a claim of jobs in these groups: never the same twice in a row.
    pub(crate) fn take(&self, groups: Vec<i32>) -> Half {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.len() > HALVES_MAX {
            next.clear();
        }
        let next = next.entry(groups).or_insert(Half(false));
        let half = *next;
        *next = Half(!half.0);
        half
    }
}
