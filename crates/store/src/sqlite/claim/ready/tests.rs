//! What is remembered as ready, against a plain set.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// What can happen to a group, with few lanes and few ranks.
#[derive(Clone, Debug)]
enum Deed {
    Add(i64, i64),
    Take(i64),
    Withdraw(usize),
    Look(usize),
}

fn any_step() -> impl Strategy<Value = Deed> {
    prop_oneof![
        10 => (0..40i64, 0..3i64).prop_map(|(rank, lane)| Deed::Add(rank, lane)),
        4 => (0..3i64).prop_map(Deed::Take),
        1 => any::<usize>().prop_map(Deed::Withdraw),
        2 => (1..60usize).prop_map(Deed::Look),
    ]
}

const GROUP: i64 = 7;

struct World {
    connection: Connection,
    ready: Ready,
    jobs: BTreeSet<Key>,
    next: i64,
}

impl World {
    fn new() -> Self {
        let connection = Connection::open_in_memory().expect("memory");
        // As much of the table as claims look at.
        let table = "
            CREATE TABLE jobs (seq INTEGER PRIMARY KEY, group_id INTEGER, lane INTEGER,
                rank INTEGER, state TEXT, next_retry_at INTEGER);
            CREATE INDEX jobs_ready ON jobs (group_id, rank, lane)
                WHERE state = 'queued' OR state = 'interrupted'";
        connection.execute_batch(table).expect("a table");
        // So small that everything happens.
        let bounds = Bounds { read_min: 3, kept_max: 16, line_max: 4, line_cut: 2 };
        let ready = Ready { bounds, ..Ready::default() };
        Self { connection, ready, jobs: BTreeSet::new(), next: 1 }
    }

    fn add(&mut self, rank: i64, lane: i64) {
        let key = (Rank(rank), Lane::new(lane), self.next);
        self.next += 1;
        let row = params![key.2, GROUP, lane, rank];
        let insert = "INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, 'queued', NULL)";
        self.connection.execute(insert, row).expect("a row");
        self.jobs.insert(key);
        if let Some(group) = self.ready.groups.get_mut(&GROUP) {
            group.add(key);
        }
    }

    fn remove(&mut self, key: Key) {
        self.connection.execute("DELETE FROM jobs WHERE seq = ?1", [key.2]).expect("gone");
        self.jobs.remove(&key);
        self.ready.remove(GROUP, key.1, key.0, key.2);
    }

    /// The first of a lane, after as much reading as it takes.
    fn first_of(&mut self, lane: Lane) -> Option<Key> {
        let flying = Flying::new();
        loop {
            self.ready.look(&self.connection, GROUP, 2, &flying).expect("a look");
            let line = self.ready.line(GROUP, lane);
            let first = line.and_then(|line| Some((*line.ranks().first()?, *line.seqs().first()?)));
            if let Some((rank, seq)) = first {
                return Some((rank, lane, seq));
            }
            if self.ready.read_on(&self.connection, GROUP, 2, &flying).expect("more") == 0 {
                return None;
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_can_be_claimed_is_found_in_its_order(steps in prop::collection::vec(any_step(), 1..400)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Deed::Add(rank, lane) => world.add(rank, lane),
                Deed::Take(lane) => {
                    let lane = Lane::new(lane);
                    let expected = world.jobs.iter().find(|key| key.1 == lane).copied();
                    prop_assert_eq!(world.first_of(lane), expected);
                    expected.into_iter().for_each(|key| world.remove(key));
                }
                Deed::Withdraw(place) if !world.jobs.is_empty() => {
                    let place = place % world.jobs.len();
                    let key = world.jobs.iter().nth(place).copied();
                    key.into_iter().for_each(|key| world.remove(key));
                }
                Deed::Withdraw(_) => {}
                Deed::Look(wanted) => {
                    let flying = Flying::new();
                    world.ready.look(&world.connection, GROUP, wanted, &flying).expect("a look");
                }
            }
            let kept = world.ready.lanes(GROUP).map(|(_, line)| line.ranks().len()).sum::<usize>();
            let counted = world.ready.groups.get(&GROUP).map_or(0, |group| group.kept);
            prop_assert_eq!(kept, counted);
        }
    }
}
