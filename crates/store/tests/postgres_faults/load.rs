//! Work for stores under fault, and a ledger of what was asked and what was acknowledged.
//!
//! A worker asks for the same again, under the same identity, until it is told: as a client should. Each call goes to
//! the next node, as a load balancer would send it: no node sees all calls of one job.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{runtime::Runtime, task::JoinHandle, time::sleep};
use windlass_kernel::{
    Answer, By, DlqId, Epoch, Jitter, JobId, Op, Refusal, State,
    ops::{Cancel, Outcome, Requeue, Settle},
};
use windlass_store::{
    Commit as _, Error, ReadFeed as _, Replies, Reply, Write,
    postgres::{Options, Postgres},
};
use windlass_testkit::refusals::RefusalNote;

use crate::common::{postgres::open_patiently, *};

/// Nobody waits for longer than this for what was asked again and again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What was asked, and what was acknowledged.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Every id that a job was asked for under.
    pub(crate) asked: BTreeSet<u128>,
    /// Jobs whose enqueue was acknowledged.
    pub(crate) made: BTreeSet<u128>,
    /// Who was told to hold a job under an epoch.
    pub(crate) granted: BTreeMap<(u128, u64), u128>,
    /// What a settle under an epoch was answered with.
    pub(crate) settled: BTreeMap<(u128, u64), State>,
    /// Jobs whose cancel was acknowledged.
    pub(crate) cancelled: BTreeSet<u128>,
    /// New jobs by the letter that they were made from.
    pub(crate) requeued: BTreeMap<u128, u128>,
    /// Who was told that a lease is over.
    pub(crate) refused: Vec<RefusalNote>,
    /// How often each error was told.
    pub(crate) errors: BTreeMap<&'static str, u64>,
    /// How many commits were acknowledged.
    pub(crate) acknowledged: u64,
    /// The longest that anybody waited for an answer, be it an error.
    pub(crate) longest_answer: Duration,
    last_told: Option<Instant>,
    /// The longest that nobody was told anything but errors.
    pub(crate) longest_silence: Duration,
}

impl Ledger {
    /// Notes an answer and how long it took. All errors but two fail the test.
    fn note(&mut self, told: &Result<Replies, Error>, took: Duration) {
        self.longest_answer = self.longest_answer.max(took);
        match told {
            Ok(_) => {
                let last = self.last_told.replace(Instant::now());
                let silence = last.map(|last| last.elapsed()).unwrap_or_default();
                self.longest_silence = self.longest_silence.max(silence);
                self.acknowledged += 1;
            }
            Err(error) => {
                let code = error.code();
                assert!(matches!(code, "UNAVAILABLE" | "AMBIGUOUS"), "{error:?}");
                *self.errors.entry(code).or_default() += 1;
            }
        }
    }
}

/// Workers that go on until they are stopped.
pub(crate) struct Load {
    ledger: Arc<Mutex<Ledger>>,
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    /// This many workers, each of which goes to these stores in turn.
    pub(crate) fn start(runtime: &Runtime, stores: &[Arc<Postgres>], workers: u128) -> Self {
        let (ledger, stop) = (Arc::<Mutex<Ledger>>::default(), Arc::<AtomicBool>::default());
        let start = |number: u128| {
            let (ledger, stop) = (ledger.clone(), stop.clone());
            let stores = Nodes::new(stores, number);
            runtime.spawn(Worker { stores, number, ledger, stop, made: 0, claims: 0 }.run())
        };
        let workers = (1..=workers).map(start).collect();
        Self { ledger, stop, workers }
    }

    /// How many commits were acknowledged until now.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.ledger.lock().unwrap().acknowledged
    }

    /// Waits until this many more commits are acknowledged, and gives back how long it took.
    pub(crate) fn wait_for(&self, more: u64) -> Duration {
        let (begun, goal) = (Instant::now(), self.acknowledged() + more);
        while self.acknowledged() < goal {
            assert!(begun.elapsed() < PATIENCE, "the store does not go on");
            assert!(!self.workers.iter().any(JoinHandle::is_finished), "a worker gave up");
            std::thread::sleep(Duration::from_millis(2));
        }
        begun.elapsed()
    }

    /// Lets everybody end what they are at, and gives back the ledger.
    pub(crate) fn stop(self, runtime: &Runtime) -> Ledger {
        self.stop.store(true, Ordering::SeqCst);
        self.workers.into_iter().for_each(|worker| runtime.block_on(worker).unwrap());
        std::mem::take(&mut self.ledger.lock().unwrap())
    }
}

/// The nodes that a worker's calls reach, one after the other.
pub(crate) struct Nodes {
    stores: Vec<Arc<Postgres>>,
    calls: AtomicUsize,
}

impl Nodes {
    pub(crate) fn new(stores: &[Arc<Postgres>], number: u128) -> Self {
        let calls = AtomicUsize::new(usize::try_from(number).unwrap());
        Self { stores: stores.to_vec(), calls }
    }

    pub(crate) fn next(&self) -> &Arc<Postgres> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        // Not one after the other without exception: then a job would see the same pair of nodes again and again.
        &self.stores[(call + call / 3) % self.stores.len()]
    }
}

struct Worker {
    stores: Nodes,
    number: u128,
    ledger: Arc<Mutex<Ledger>>,
    stop: Arc<AtomicBool>,
    made: u128,
    claims: u128,
}

impl Worker {
    async fn run(mut self) {
        while !self.stop.load(Ordering::SeqCst) {
            let made = [self.new_id(), self.new_id(), self.new_id()];
            self.enqueue(&made).await;
            self.cancel(made[2]).await;
            let held = self.claim().await;
            for dlq_id in self.settle(&held).await {
                let id = self.new_id();
                self.requeue(dlq_id, id).await;
            }
        }
    }

    fn new_id(&mut self) -> u128 {
        self.made += 1;
        (self.number << 64) + self.made
    }

    async fn enqueue(&self, ids: &[u128]) {
        self.ledger.lock().unwrap().asked.extend(ids);
        let writes = ids.iter().map(|id| write(enqueue(*id, plain()))).collect();
        let told = self.until_told(writes).await;
        let mut ledger = self.ledger.lock().unwrap();
        for (id, reply) in ids.iter().zip(&told.replies) {
            assert_eq!(told.answer(reply.as_ref().unwrap()).job_id.as_u128(), *id);
            ledger.made.insert(*id);
        }
    }

    /// A cancel has no identity: the second of two may be told that the job is at its end, or that another
    /// worker was faster.
    async fn cancel(&self, id: u128) {
        let job_id = JobId::from_u128(id);
        let (force, grace, reason) = (true, Duration::ZERO, None);
        let cancel = Cancel { job_id, force, grace, reason, by: person("ann") };
        let reply = self.until_told(vec![write(cancel)]).await.replies.remove(0);
        if reply.is_ok_and(|reply| answer(&reply).state == State::Cancelled) {
            self.ledger.lock().unwrap().cancelled.insert(id);
        }
    }

    async fn claim(&mut self) -> Vec<(JobId, Epoch)> {
        self.claims += 1;
        let claim = (self.number << 64) + self.claims;
        let wanted = claim_many(&format!("w{}", self.number), claim, 3);
        let got = granted(&self.until_told(vec![wanted]).await.replies.remove(0).unwrap());
        let mut ledger = self.ledger.lock().unwrap();
        for granted in &got {
            let grant = (granted.job.id.as_u128(), granted.job.epoch.get());
            let other = ledger.granted.insert(grant, claim);
            assert_eq!(other, None, "{grant:?} was granted twice");
        }
        got.iter().map(|granted| (granted.job.id, granted.job.epoch)).collect()
    }

    /// Settles what it holds, and gives back the letters of what failed for good.
    async fn settle(&self, held: &[(JobId, Epoch)]) -> Vec<DlqId> {
        let by = By::worker(worker(&format!("w{}", self.number)));
        let settle = |(job_id, epoch): &(JobId, Epoch)| {
            let (job_id, epoch, by) = (*job_id, *epoch, by.clone());
            let outcome = outcome(job_id.as_u128());
            Settle { job_id, epoch, by, outcome, stats: None, jitter: Jitter::NONE }.into()
        };
        let mut letters = Vec::new();
        let settles: Vec<Op> = held.iter().map(settle).collect();
        let told = self.until_told(settles.iter().cloned().map(write).collect()).await;
        let feed_end = self.feed_end(&told.replies).await;
        let mut ledger = self.ledger.lock().unwrap();
        for (((id, epoch), op), reply) in held.iter().zip(&settles).zip(&told.replies) {
            let reply = match reply {
                Ok(reply) => reply,
                // Another worker may have cancelled it.
                Err(refusal) => {
                    ledger.refused.extend(RefusalNote::of(op, refusal, 0..=feed_end));
                    continue;
                }
            };
            let answer = told.answer(reply);
            ledger.settled.insert((id.as_u128(), epoch.get()), answer.state);
            letters.extend(answer.dlq_id);
        }
        letters
    }

    /// The last event, if a lease was refused.
    async fn feed_end(&self, replies: &Replies) -> u64 {
        if !replies.iter().any(|reply| matches!(reply, Err(Refusal::StaleAttempt))) {
            return 0;
        }
        loop {
            if let Ok(end) = self.stores.next().feed_end().await {
                return end;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn requeue(&self, dlq_id: DlqId, id: u128) {
        self.ledger.lock().unwrap().asked.insert(id);
        let new_job_id = JobId::from_u128(id);
        let requeue = Requeue { dlq_id, new_job_id, payload: None, by: person("ann") };
        let told = self.until_told(vec![write(requeue)]).await;
        assert_eq!(told.answer(told.replies[0].as_ref().unwrap()).job_id, new_job_id);
        self.ledger.lock().unwrap().requeued.insert(dlq_id.as_u128(), id);
    }

    /// Asks for the same until there is an answer.
    async fn until_told(&self, writes: Vec<Write>) -> Told {
        let (writes, begun) = (Arc::new(writes), Instant::now());
        for asks in 1.. {
            let asked = Instant::now();
            let told = self.stores.next().commit(writes.clone()).await;
            self.ledger.lock().unwrap().note(&told, asked.elapsed());
            match told {
                Ok(replies) => return Told { replies, asks },
                Err(error) => assert!(begun.elapsed() < PATIENCE, "still {error:?}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
        unreachable!("patience ends")
    }
}

/// What a worker was told, and how often it had to ask.
struct Told {
    replies: Replies,
    asks: u32,
}

impl Told {
    /// An answer. Who asked once is not told that it was done before: then the store did it twice.
    fn answer(&self, reply: &Reply) -> Answer {
        let answer = answer(reply);
        assert!(self.asks > 1 || !answer.recorded, "it was done twice: {answer:?}");
        answer
    }
}

fn outcome(id: u128) -> Outcome {
    match id % 7 {
        0 => failed_for_good(),
        1 => failed_for_now(),
        _ => succeeded(),
    }
}

/// A node: a store with the database's own clock.
pub(crate) fn node(runtime: &Runtime, options: &Options) -> Arc<Postgres> {
    Arc::new(runtime.block_on(open_patiently(options.clone())).unwrap())
}
