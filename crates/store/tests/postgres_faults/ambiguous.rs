//! Connections that end in the middle of a commit: the caller is answered as if nothing had happened, and
//! nothing is done twice.

use std::{future::poll_fn, sync::Arc, time::Duration};

use windlass_kernel::{
    JobId, State,
    ops::{Cancel, NewJob, Requeue},
};
use windlass_store::{
    Commit as _, Reply, Watch as _, Write,
    postgres::{
        Postgres,
        tokio_postgres::{AsyncMessage, NoTls},
    },
};
use windlass_testkit::{
    postgres::Cluster,
    random::{self, Chance},
};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::judge,
    load::{Ledger, Load, node},
    proxy::{Fault, Proxy},
};

/// A home, and the options that lead to it by way of a proxy.
fn home_behind(proxy: &Proxy) -> (SchemaHome, windlass_store::postgres::Options) {
    let home = SchemaHome::new();
    let config =
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres sslmode=disable", proxy.port);
    let mut options = windlass_store::postgres::Options::new(config.parse().unwrap());
    options.schema.clone_from(&home.options.schema);
    options.connections = 16;
    (home, options)
}

const FAULTS: [Fault; 5] = [
    Fault::Swallow,
    Fault::Drop,
    Fault::Late(Duration::from_millis(20)),
    Fault::Late(Duration::from_millis(300)),
    Fault::Unnoticed(Duration::from_millis(300)),
];

/// One store whose commits are cut, each in its turn.
struct Cut {
    store: Arc<Postgres>,
    runtime: tokio::runtime::Runtime,
    proxy: Proxy,
    fault: Fault,
    ledger: Ledger,
    cuts: u64,
}

impl Cut {
    /// What the write is told, although the commit's connection ends.
    fn told(&mut self, write: Write) -> Reply {
        let before = self.proxy.done();
        self.proxy.arm(self.fault);
        let told = self.runtime.block_on(self.store.commit(vec![write].into()));
        assert_eq!(self.proxy.done(), before + 1, "{:?} did not happen", self.fault);
        self.cuts += 1;
        told.unwrap_or_else(|error| panic!("{:?}: {error:?}", self.fault)).remove(0).unwrap()
    }

    /// The life of a job and of the one that comes after it, every commit of which is cut.
    fn live(&mut self, number: u128) {
        let (id, next) = (number * 10, number * 10 + 1);
        self.ledger.asked.extend([id, next]);
        let made = answer(&self.told(write(enqueue(id, plain()))));
        assert_eq!((made.job_id.as_u128(), made.state, made.recorded), (id, State::Queued, false));
        self.ledger.made.insert(id);
        let got = granted(&self.told(claim_many("w1", number, 5)));
        assert_eq!(got.len(), 1);
        let (job_id, epoch) = (got[0].job.id, got[0].job.epoch);
        self.ledger.granted.insert((job_id.as_u128(), epoch.get()), number);
        let ended = answer(&self.told(write(settle(job_id, epoch, failed_for_good()))));
        assert_eq!((ended.state, ended.recorded), (State::Failed, false));
        self.ledger.settled.insert((id, epoch.get()), State::Failed);
        let (dlq_id, new_job_id) = (ended.dlq_id.unwrap(), JobId::from_u128(next));
        let requeue = Requeue { dlq_id, new_job_id, payload: None, by: person("ann") };
        assert_eq!(answer(&self.told(write(requeue))).job_id, new_job_id);
        self.ledger.requeued.insert(dlq_id.as_u128(), next);
        let (force, grace, reason) = (true, Duration::ZERO, None);
        let cancel = Cancel { job_id: new_job_id, force, grace, reason, by: person("ann") };
        assert_eq!(answer(&self.told(write(cancel))).state, State::Cancelled);
        self.ledger.cancelled.insert(next);
    }
}

#[test]
fn a_commit_that_is_cut_is_answered_as_if_nothing_had_happened() {
    let proxy = Proxy::start(Cluster::shared().port());
    let (home, options) = home_behind(&proxy);
    let runtime = runtime(2);
    let store = node(&runtime, &options);
    let (ledger, fault) = (Ledger::default(), Fault::Drop);
    let mut cut = Cut { store, runtime, proxy, fault, ledger, cuts: 0 };
    for number in 1..=u128::from(count(8, 80)) {
        cut.fault = FAULTS[usize::try_from(number).unwrap() % FAULTS.len()];
        cut.live(number);
    }
    println!("{} commits were cut", cut.cuts);
    assert!(cut.cuts >= count(20, 200));
    drop(cut.store);
    judge(&home, &cut.ledger);
}

/// Nobody waits for the next look of a node that was told nothing.
#[test]
fn others_hear_of_a_commit_whose_answer_was_lost() {
    let proxy = Proxy::start(Cluster::shared().port());
    let (home, options) = home_behind(&proxy);
    let runtime = runtime(2);
    let (cut, other) = (node(&runtime, &options), node(&runtime, &home.options));
    let (hear, heard) = std::sync::mpsc::channel();
    let (config, channel) = (home.options.config.clone(), home.options.schema.clone());
    let listener = runtime.block_on(async {
        let (client, mut connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|it| connection.poll_message(it)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    let _ = hear.send(());
                }
            }
        });
        client.batch_execute(&format!("LISTEN \"windlass_{channel}\"")).await.unwrap();
        client
    });
    proxy.arm(Fault::Swallow);
    runtime.block_on(cut.commit(vec![write(enqueue(1, plain()))].into())).unwrap();
    assert_eq!(proxy.done(), 1, "its answer was not lost");
    heard.recv_timeout(Duration::from_secs(5)).expect("others are told");
    drop((listener, cut, other));
}

/// What the commit set is not known any more when it is found to be done.
#[test]
fn whoever_looks_after_alarms_hears_of_a_commit_whose_answer_was_lost() {
    let proxy = Proxy::start(Cluster::shared().port());
    let (home, options) = home_behind(&proxy);
    let runtime = runtime(2);
    let store = node(&runtime, &options);
    let sooner = store.sooner();
    let now = runtime.block_on(store.due(1)).unwrap().now;
    let at = Some(now.plus(Duration::from_secs(60)));
    proxy.arm(Fault::Swallow);
    let later = write(enqueue(1, NewJob { scheduled_at: at, ..plain() }));
    runtime.block_on(store.commit(vec![later].into())).unwrap();
    assert_eq!(proxy.done(), 1, "its answer was not lost");
    assert!(sooner.is_rung());
    assert_eq!(runtime.block_on(store.due(1)).unwrap().next_at, at);
    drop((store, home));
}

#[test]
fn many_workers_whose_commits_are_cut_lose_nothing() {
    let mut chance = Chance::new(u64::from_be_bytes(random::seed()[..8].try_into().unwrap()));
    let proxy = Proxy::start(Cluster::shared().port());
    let (home, options) = home_behind(&proxy);
    let runtime = runtime(2);
    let store = node(&runtime, &options);
    let load = Load::start(&runtime, &[store], 6);
    load.wait_for(10);
    let cuts = count(30, 300);
    while proxy.done() < cuts {
        proxy.arm(*chance.pick(&FAULTS).unwrap());
        load.wait_for(3);
    }
    load.wait_for(20);
    let ledger = load.stop(&runtime);
    let jobs = judge(&home, &ledger);
    println!("{} cuts, {jobs} jobs, errors {:?}", proxy.done(), ledger.errors);
    assert_eq!(ledger.errors.get("AMBIGUOUS"), None, "each could be resolved");
}
