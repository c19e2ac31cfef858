//! Three nodes, each a process behind a line of its own, and the lines are cut and healed at random.
//!
//! A line is cut in both directions, in one, or again and again. A node that hears nothing may still be heard:
//! what it asked for is done, and it does not know. One that is not heard keeps its jobs until their leases run
//! out, others take them over, and when its line heals it comes too late. Whatever a node was told stays true.

mod process;

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;
use windlass_kernel::{
    Jitter,
    ops::{Expire, Expiry, NewJob},
};
use windlass_store::{Commit as _, Error, Inspect as _, postgres::Postgres};
use windlass_testkit::{
    network::{Cut, Line},
    postgres::{Cluster, Door, Options},
    random::{self, Chance},
};

use self::process::{NodeProcess, Way};
use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::judge,
    load::{Ledger, PATIENCE, node},
    proxy::Proxy,
};

/// What a line goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It is cut for a while.
    Held(Cut),
    /// It is cut and healed again and again.
    Flaps,
}

const FATES: [Fate; 4] =
    [Fate::Held(Cut::ToThere), Fate::Held(Cut::FromThere), Fate::Flaps, Fate::Held(Cut::Both)];

/// A node is back to work so soon after its line has healed. A commit whose answer was lost is asked about for
/// fifteen seconds.
const RECOVERY_MAX: Duration = Duration::from_secs(20);

/// What was under way when a line was cut may still arrive.
const GRACE: Duration = Duration::from_millis(300);

/// How many jobs wait, so that everybody has something to do.
const BACKLOG: u64 = 60;

#[test]
fn nodes_that_lose_sight_of_the_server_do_nothing_twice_and_lose_nothing() {
    let lines: Result<Vec<Line>, String> = (0..3).map(|_| Line::new()).collect();
    let rounds = count(4, 60);
    match lines {
        Ok(lines) => {
            let doors = lines.iter().map(|it| Door { address: it.here(), guest: it.there() });
            let options = Options { doors: doors.collect(), ..Options::default() };
            let cluster = Cluster::start(&options);
            Fleet::start(&cluster, lines.into_iter().map(Way::Line).collect()).suffer(rounds);
        }
        Err(why) => {
            // Not by a macro: what those print is hidden while all is well.
            let _ = writeln!(
                std::io::stderr(),
                "\nWARNING: {why}\nWARNING: no network namespaces here, so the partitions are imitated by \
                 proxies, which hold back and never drop. Run it as root to see real ones.\n"
            );
            through_proxies(rounds);
        }
    }
}

/// A proxy drops nothing: what was held back arrives late, when its sender has long given up.
#[test]
fn what_arrives_after_its_sender_has_given_up_does_no_harm() {
    through_proxies(count(2, 30));
}

fn through_proxies(rounds: u64) {
    let cluster = Cluster::start(&Options::default());
    let proxies = (0..3).map(|_| Way::Proxy(Proxy::start(cluster.port()))).collect();
    Fleet::start(&cluster, proxies).suffer(rounds);
}

/// The nodes, and a store that nothing is in the way of: it makes the jobs, and ends leases that have run out.
struct Fleet {
    nodes: Vec<NodeProcess>,
    store: Arc<Postgres>,
    runtime: Runtime,
    home: SchemaHome,
    chance: Chance,
    ledger: Ledger,
    fates: BTreeMap<Fate, u64>,
    recoveries: Vec<Duration>,
}

const TAKEN_OVER: &str = "SELECT count(*) FROM events WHERE cause = 'lease_expired'";

impl Fleet {
    fn start(cluster: &Cluster, ways: Vec<Way>) -> Self {
        let chance = Chance::new(u64::from_be_bytes(random::seed()[..8].try_into().unwrap()));
        let (home, runtime) = (SchemaHome::new_in(cluster), runtime(2));
        let store = node(&runtime, &home.options);
        let start = |(number, way)| NodeProcess::start(number, way, cluster, &home.options.schema);
        let nodes = (1..).zip(ways).map(start).collect();
        let (ledger, fates, recoveries) = (Ledger::default(), BTreeMap::new(), Vec::new());
        Self { nodes, store, runtime, home, chance, ledger, fates, recoveries }
    }

    fn suffer(mut self, rounds: u64) {
        self.work_until(|fleet| fleet.nodes.iter().all(|node| node.told() > 20));
        let begun = Instant::now();
        for round in 0..rounds {
            self.cut_and_heal(usize::try_from(round).unwrap());
        }
        let (suffered, drained) = (begun.elapsed(), self.drain());
        for node in std::mem::take(&mut self.nodes) {
            node.end(&mut self.ledger);
        }
        let jobs = judge(&self.home, &self.ledger);
        let taken_over = self.home.sql().query(TAKEN_OVER, &[])[0].get::<_, i64>(0);
        let (settled, errors) = (self.ledger.settled.len(), &self.ledger.errors);
        println!("{jobs} jobs, {settled} settles told, {taken_over} leases ran out, {errors:?}");
        println!("{:?} in {suffered:?}, drained in {drained:?}", self.fates);
        println!("back to work after healing: {:?}", self.recoveries);
        assert!(settled as u64 > 20 * rounds, "the nodes did too little to prove anything");
        assert!(taken_over > 0, "nothing was taken over");
        assert!(errors.contains_key("UNAVAILABLE"), "no node noticed anything");
        assert!(rounds < 4 || self.fates.len() == FATES.len(), "something did not happen");
    }

    /// One by one, lines are cut; one by one, and in another order, they heal.
    fn cut_and_heal(&mut self, round: usize) {
        // All three at once only now and then: while it lasts, nobody can take anything over.
        let victims = [1, 2, 2, 3][round % 4];
        let mut cut = Vec::new();
        for (place, number) in self.some_order().into_iter().take(victims).enumerate() {
            let fate = FATES[(round + place) % FATES.len()];
            *self.fates.entry(fate).or_default() += 1;
            if let Fate::Held(cut) = fate {
                self.nodes[number].way.cut(cut);
            }
            cut.push((number, fate));
            self.work_for_up_to(300);
        }
        self.work_for(GRACE);
        let told: Vec<u64> = self.nodes.iter().map(NodeProcess::told).collect();
        self.live_with(&cut);
        for (number, fate) in &cut {
            let was_silent = self.nodes[*number].told() == told[*number];
            assert!(was_silent || *fate == Fate::Flaps, "{fate:?} did not cut {number} off");
        }
        let mut healed = Vec::new();
        for number in self.some_order() {
            if cut.iter().any(|it| it.0 == number) {
                self.nodes[number].way.heal();
                healed.push((number, Instant::now()));
                self.work_for_up_to(300);
            }
        }
        for (number, since) in healed {
            self.work_until(|fleet| fleet.nodes[number].first_told_after(since).is_some());
            let took = self.nodes[number].first_told_after(since).unwrap() - since;
            assert!(took < RECOVERY_MAX, "node {number} took {took:?} to go on");
            self.recoveries.push(took);
        }
    }

    fn some_order(&mut self) -> [usize; 3] {
        let mut order = [0, 1, 2];
        for place in 1..3u64 {
            let other = usize::try_from(self.chance.below(place + 1)).unwrap();
            order.swap(usize::try_from(place).unwrap(), other);
        }
        order
    }

    /// Time passes, longer than a lease for most. Some lines come and go.
    fn live_with(&mut self, cut: &[(usize, Fate)]) {
        let until = Instant::now() + self.chance.ms(1_500, 3_000);
        let flapping: Vec<usize> =
            cut.iter().filter(|it| it.1 == Fate::Flaps).map(|it| it.0).collect();
        while Instant::now() < until {
            for number in &flapping {
                match self.chance.pick(&[None, Some(Cut::Both), Some(Cut::ToThere)]).unwrap() {
                    Some(cut) => self.nodes[*number].way.cut(*cut),
                    None => self.nodes[*number].way.heal(),
                }
            }
            self.work_for_up_to(200);
        }
    }

    fn work_for_up_to(&mut self, ms: u64) {
        let time = self.chance.ms(0, ms);
        self.work_for(time);
    }

    fn work_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        self.work_until(|_| Instant::now() >= until);
    }

    /// Jobs are made and leases ended until something is so.
    fn work_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "the nodes do not go on");
            self.end_leases();
            self.make_jobs();
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Everything comes to its end.
    fn drain(&mut self) -> Duration {
        let begun = Instant::now();
        while self.end_leases() > 0 {
            assert!(begun.elapsed() < PATIENCE, "something never ends");
            thread::sleep(Duration::from_millis(20));
        }
        begun.elapsed()
    }

    /// Ends the leases that have run out, and gives back how many jobs are at no end.
    fn end_leases(&self) -> u64 {
        let open = self.runtime.block_on(self.store.open_jobs()).unwrap();
        let held = open.iter().filter(|job| job.lease.is_some());
        let expire = held.map(|job| {
            let (what, jitter) = (Expiry::Lease, Jitter::NONE);
            write(Expire { job_id: job.id, version: job.version, what, jitter })
        });
        // Most of them are refused: those leases have not run out. A node that is cut off may hold locks until the server
        // notices, and on a busy machine that may be later than others wait for them.
        match self.runtime.block_on(self.store.commit(expire.collect::<Vec<_>>().into())) {
            Ok(_) | Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
        open.len() as u64
    }

    fn make_jobs(&mut self) {
        let open = self.runtime.block_on(self.store.open_jobs()).unwrap().len() as u64;
        let first = self.ledger.asked.len() as u128 + 1;
        let ids = first..first + u128::from(BACKLOG.saturating_sub(open));
        self.ledger.asked.extend(ids.clone());
        let new = || NewJob { max_interruptions: 100, ..plain() };
        let writes: Vec<_> = ids.clone().map(|id| write(enqueue(id, new()))).collect();
        self.runtime.block_on(self.store.commit(writes.into())).unwrap();
        self.ledger.made.extend(ids);
    }
}
