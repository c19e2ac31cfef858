//! The control run: two nodes, workers whose calls reach either of them, rules that they share, timers on both, and no fault.
//!
//! Nobody is told that a live lease is lost, no two commits wait for each other, and nothing fails. It takes a quarter of a
//! minute, and ten minutes with `WINDLASS_DEEP`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{task::JoinHandle, time::sleep};
use windlass_kernel::{
    Answer, By, Epoch, IdempotencyKey, IdempotencyScope, Jitter, JobId, LimitKey, Refusal, Says,
    State, UniqueKey,
    ops::{Idempotency, NewJob, Outcome, Renew, Rerun, Settle},
    rule::{Each, Rate},
    timer,
};
use windlass_store::{
    ClaimMany, Commit as _, ReadFeed as _, Reply, Watch as _, Write,
    postgres::{Postgres, enqueue_in},
    read::{Listens, Word},
};
use windlass_testkit::{
    random::{self, Chance},
    refusals::{RefusalNote, asks_for_an_end},
};

use crate::{
    common::*,
    count,
    load::Nodes,
    lock_order::{Two, put},
};

/// Short, so that leases of jobs that nobody settles lapse while others are renewed.
const LEASE_SHORT: Duration = Duration::from_millis(400);

/// What everybody was told.
#[derive(Default)]
struct Told {
    commits: u64,
    settled: u64,
    lapsed: u64,
    refused: Vec<RefusalNote>,
    refusals: BTreeMap<String, u64>,
    longest: Duration,
}

/// What all who take part share.
#[derive(Clone)]
struct Run {
    nodes: Arc<Nodes>,
    told: Arc<Mutex<Told>>,
    stop: Arc<AtomicBool>,
}

impl Run {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    /// One commit, at the next node.
    async fn commit(&self, writes: Vec<Write>) -> Vec<Result<Reply, Refusal>> {
        let (begun, writes) = (Instant::now(), Arc::new(writes));
        let asks = |write: &Write| matches!(write, Write::Op { op, .. } if asks_for_an_end(op));
        let feed_begin = match writes.iter().any(asks) {
            true => self.nodes.next().feed_end().await.unwrap(),
            false => 0,
        };
        let replies = self.nodes.next().commit(writes.clone()).await;
        let replies = replies.unwrap_or_else(|error| panic!("there is no fault here: {error:?}"));
        let feed_end = match replies.iter().any(Result::is_err) {
            true => self.nodes.next().feed_end().await.unwrap(),
            false => u64::MAX,
        };
        let mut told = self.told.lock().unwrap();
        told.commits += 1;
        told.longest = told.longest.max(begun.elapsed());
        for refusal in replies.iter().filter_map(|reply| reply.as_ref().err()) {
            *told.refusals.entry(refusal.code().to_owned()).or_default() += 1;
        }
        for (write, reply) in writes.iter().zip(&replies) {
            if let (Write::Op { op, .. }, Err(refusal)) = (write, reply) {
                told.refused.extend(RefusalNote::of(op, refusal, feed_begin..=feed_end));
            }
        }
        replies
    }
}

/// Enqueues, claims, renews and settles, each by way of another node.
struct Worker {
    run: Run,
    name: String,
    number: u128,
    next: u128,
    chance: Chance,
}

impl Worker {
    async fn work(mut self) {
        while self.run.goes_on() {
            self.enqueue().await;
            let held = self.claim().await;
            sleep(Duration::from_millis(self.chance.below(10))).await;
            if self.chance.below(3) == 0 {
                self.renew(&held).await;
            }
            self.settle(held).await;
        }
    }

    fn new_id(&mut self) -> u128 {
        self.next += 1;
        (self.number << 64) + self.next
    }

    /// Some jobs, of which others may be sending the same at this moment.
    async fn enqueue(&mut self) {
        let mut writes = Vec::new();
        for _ in 0..1 + self.chance.below(6) {
            let (id, raced) = (self.new_id(), self.chance.below(40));
            let limit_key = LimitKey::new(format!("k{}", self.chance.below(12))).unwrap();
            let mut new = NewJob { limit_key: Some(limit_key), ..plain() };
            match self.chance.below(6) {
                0 => {
                    let era = self.next / 20;
                    let key = IdempotencyKey::new(format!("{era}-{raced}")).unwrap();
                    let scope = IdempotencyScope::new("raced").unwrap();
                    new.idempotency = Idempotency::Key { scope, key };
                }
                1 => new.unique_key = Some(UniqueKey::new(format!("u{raced}")).unwrap()),
                _ => {}
            }
            writes.push(write(enqueue(id, new)));
        }
        assert!(self.run.commit(writes).await.iter().all(Result::is_ok));
    }

    async fn claim(&mut self) -> Vec<(JobId, Epoch)> {
        let claim = self.new_id();
        let wanted = ClaimMany { lease: LEASE_SHORT, ..wanted(&self.name, claim, 6) };
        let mut writes = vec![Write::Claim(wanted)];
        if self.chance.below(8) == 0 {
            let word = Word::To(Listens::default());
            writes.push(Write::Listens { worker: worker(&self.name), tenant: None, word });
        }
        let replies = self.run.commit(writes).await;
        let jobs = granted(replies[0].as_ref().unwrap());
        jobs.iter().map(|granted| (granted.job.id, granted.job.epoch)).collect()
    }

    async fn renew(&mut self, held: &[(JobId, Epoch)]) {
        let renew = |(job_id, epoch): &(JobId, Epoch)| {
            let (job_id, epoch, progress) = (*job_id, *epoch, Some(payload("1")));
            let by = By::worker(worker(&self.name));
            write(Renew { job_id, epoch, by, lease: LEASE_SHORT, heartbeat: true, progress })
        };
        let mut writes: Vec<Write> = held.iter().map(renew).collect();
        let (worker, lease) = (worker(&self.name), LEASE_SHORT);
        writes.push(Write::RenewSession { worker, lease });
        let replies = self.run.commit(writes).await;
        expect_no_other_refusal(&replies[..held.len()]);
    }

    /// Settles most of what it holds, together or one by one, and lets the rest lapse.
    async fn settle(&mut self, mut held: Vec<(JobId, Epoch)>) {
        held.retain(|_| self.chance.below(12) > 0);
        // In no order: the store has its own.
        held.sort_by_key(|(id, _)| id.as_u128().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let by = By::worker(worker(&self.name));
        let size = 1 + usize::try_from(self.chance.below(6)).unwrap();
        for part in held.chunks(size) {
            let mut settles = Vec::new();
            for (job_id, epoch) in part {
                let (job_id, epoch, by, outcome) = (*job_id, *epoch, by.clone(), self.outcome());
                let jitter = Jitter::NONE;
                settles.push(write(Settle { job_id, epoch, by, outcome, stats: None, jitter }));
            }
            let replies = self.run.commit(settles).await;
            expect_no_other_refusal(&replies);
            for reply in replies.iter().flatten() {
                self.run_again(&answer(reply)).await;
            }
        }
    }

    fn outcome(&mut self) -> Outcome {
        match self.chance.below(10) {
            0 => failed_for_good(),
            1 => failed_for_now(),
            _ => succeeded(),
        }
    }

    /// What failed can be run again at any node: it was told to have failed.
    async fn run_again(&mut self, settled: &Answer) {
        self.run.told.lock().unwrap().settled += 1;
        if settled.state == State::Failed && self.chance.below(2) == 0 {
            let new_job_id = JobId::from_u128(self.new_id());
            let rerun = Rerun { job_id: settled.job_id, new_job_id, by: person("ann") };
            let told = self.run.commit(vec![write(rerun)]).await.remove(0);
            assert!(told.is_ok(), "a job that failed cannot be run again: {told:?}");
        }
    }
}

/// Leases may lapse, and nothing else is refused.
fn expect_no_other_refusal(replies: &[Result<Reply, Refusal>]) {
    for refusal in replies.iter().filter_map(|reply| reply.as_ref().err()) {
        assert_eq!(*refusal, Refusal::StaleAttempt, "a worker was told something else");
    }
}

/// The timers of one node: both nodes see the same leases lapse.
async fn timers(store: Arc<Postgres>, run: Run) {
    while run.goes_on() {
        let due = store.due(200).await.unwrap();
        let ring = |job: windlass_store::read::DueJob| {
            let op = timer::op_for(job.job_id, job.version, job.alarm, Jitter::NONE);
            Write::Op { tenant: job.tenant, op }
        };
        let writes: Vec<Write> = due.jobs.into_iter().map(ring).collect();
        if !writes.is_empty() {
            let rung = store.commit(writes.into()).await.unwrap();
            let rung = rung.iter().filter(|reply| reply.is_ok()).count();
            run.told.lock().unwrap().lapsed += u64::try_from(rung).unwrap();
        }
        sleep(Duration::from_millis(15)).await;
    }
}

/// Rules of all sorts, which are set again and again.
fn rules(turn: u32) -> Vec<Write> {
    vec![
        put("wide", Says::Concurrency { max: 100_000 + turn, each: Each::Together }),
        put("by_key", Says::Concurrency { max: 4 + turn % 2, each: Each::Key }),
        put("rate_by_key", Says::Rate(rate())),
    ]
}

fn rate() -> Rate {
    Rate { count: 200, per: Duration::from_secs(1), burst: None, each: Each::Key }
}

async fn keep_setting_rules(run: Run) {
    for turn in 0.. {
        if !run.goes_on() {
            return;
        }
        assert!(run.commit(rules(turn)).await.iter().all(Result::is_ok));
        sleep(Duration::from_millis(300)).await;
    }
}

/// Enqueues of users' own transactions, with the same keys as those of workers.
async fn users(two_options: windlass_store::postgres::Options, run: Run) {
    use windlass_store::postgres::tokio_postgres::NoTls;
    let (client, connection) = two_options.config.connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut number = 1u128 << 100;
    while run.goes_on() {
        client.batch_execute("BEGIN").await.unwrap();
        for raced in (0..3u128).rev() {
            number += 1;
            let scope = IdempotencyScope::new("raced").unwrap();
            let key =
                IdempotencyKey::new(format!("{}-{}", number / 60, (number + 40 - 2 * raced) % 40));
            let idempotency = Idempotency::Key { scope, key: key.unwrap() };
            let now = run.nodes.next().due(1).await.unwrap().now;
            let op = enqueue(number, NewJob { idempotency, ..plain() });
            enqueue_in(&client, &two_options.schema, &op, now).await.unwrap();
        }
        client.batch_execute("COMMIT").await.unwrap();
        sleep(Duration::from_millis(40)).await;
    }
    drop(client);
    connection.await.unwrap().unwrap();
}

#[test]
fn without_a_fault_no_live_lease_is_refused_and_nobody_waits_for_each_other() {
    let two = Two::new("control");
    let nodes = Arc::new(Nodes::new(&two.nodes, 0));
    let run = Run { nodes, told: Arc::default(), stop: Arc::default() };
    let seed = u64::from_be_bytes(random::seed()[..8].try_into().unwrap());
    assert!(two.commit(0, rules(0)).iter().all(Result::is_ok));
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    for number in 1..=10u64 {
        let (run, name, chance) = (run.clone(), format!("w{number}"), Chance::new(seed ^ number));
        let (number, next) = (u128::from(number), 0);
        tasks.push(two.runtime.spawn(Worker { run, name, number, next, chance }.work()));
    }
    for store in &two.nodes {
        tasks.push(two.runtime.spawn(timers(store.clone(), run.clone())));
    }
    tasks.push(two.runtime.spawn(keep_setting_rules(run.clone())));
    tasks.push(two.runtime.spawn(users(two.home.options.clone(), run.clone())));
    let end = Instant::now() + Duration::from_secs(count(15, 600));
    while Instant::now() < end {
        assert!(!tasks.iter().any(JoinHandle::is_finished), "somebody gave up");
        std::thread::sleep(Duration::from_millis(50));
    }
    run.stop.store(true, Ordering::SeqCst);
    tasks.into_iter().for_each(|task| two.runtime.block_on(task).unwrap());
    let told = std::mem::take(&mut *run.told.lock().unwrap());
    drop(run);
    let jobs = two.home.count("jobs");
    let unfounded = crate::judge::unfounded(&two.home, &told.refused);
    let report = two.home.check();
    let deadlocks = two.deadlocks();
    let Told { commits, settled, lapsed, refused, refusals, longest } = told;
    println!(
        "{jobs} jobs, {commits} commits, {settled} settles, {lapsed} alarms, {} leases lost, of which \
         {} were alive, {deadlocks} deadlocks, longest answer {longest:?}, refusals {refusals:?}",
        refused.len(),
        unfounded.len()
    );
    assert!(report.is_clean(), "{report}");
    assert_eq!(unfounded.len(), 0, "live leases were refused: {unfounded:?}");
    assert_eq!(deadlocks, 0);
    assert!(settled > 100 && lapsed > 10, "too little happened");
}
