//! An observer outside the store: which executions there are at once, from what handlers say and from who is dead.
//!
//! Lines are in the order in which they were written, by whichever process. An execution is there from `begun` to
//! `done`, or until its process is dead. Between `killing` and `dead` a process may be dead already, and what it had may
//! have begun elsewhere: what it runs then is not held against others. In any other moment it is.

use std::collections::{BTreeMap, BTreeSet};

use crate::outside::{Outside, Said};

/// The key of each job, by its id.
pub(crate) type Keys = BTreeMap<String, String>;

/// What was seen, and what there is now.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    running: Vec<Said>,
    dying: BTreeSet<u32>,
    /// How many began.
    pub(crate) begun: usize,
    /// How many ended because their process did.
    pub(crate) interrupted: usize,
    /// The most that there were at once.
    pub(crate) most: usize,
    /// The most of one key that there were at once.
    pub(crate) most_of_key: usize,
}

impl Watch {
    /// Looks at all that happened outside.
    pub(crate) fn over(outside: &Outside, keys: &Keys) -> Self {
        let mut watch = Self::default();
        for line in outside.lines() {
            match (Said::parse(&line), line.split_once(" killing "), line.split_once(" dead ")) {
                (Some(said), ..) if said.what == "begun" => watch.begin(said, keys),
                (Some(said), ..) if said.what == "done" => {
                    watch.running.retain(|it| !is_same(it, &said));
                }
                (_, Some((_, process)), _) => {
                    watch.dying.insert(process.parse().unwrap());
                }
                (.., Some((_, process))) => watch.bury(process.parse().unwrap()),
                _ => {}
            }
        }
        watch
    }

    /// The keys of what these processes run.
    pub(crate) fn held_by(&self, processes: &[u32], keys: &Keys) -> BTreeSet<String> {
        let theirs = self.running.iter().filter(|it| processes.contains(&it.process));
        theirs.map(|it| keys[&it.job].clone()).collect()
    }

    fn begin(&mut self, said: Said, keys: &Keys) {
        self.running.push(said);
        self.begun += 1;
        let mut of_key = BTreeMap::<&str, usize>::new();
        for it in self.running.iter().filter(|it| !self.dying.contains(&it.process)) {
            *of_key.entry(&keys[&it.job]).or_default() += 1;
        }
        self.most = self.most.max(of_key.values().sum());
        self.most_of_key = self.most_of_key.max(of_key.into_values().max().unwrap_or(0));
    }

    fn bury(&mut self, process: u32) {
        let before = self.running.len();
        self.running.retain(|it| it.process != process);
        self.interrupted += before - self.running.len();
        self.dying.remove(&process);
    }
}

fn is_same(one: &Said, other: &Said) -> bool {
    (&one.job, one.epoch) == (&other.job, other.epoch)
}
