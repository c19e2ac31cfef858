//! Several nodes that want the same.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Runtime, sync::Barrier};
use windlass_kernel::{
    Answer, IdempotencyKey, IdempotencyScope, Jitter, JobId, Kind, Refusal, State,
    ops::{Cancel, Expire, Expiry, Idempotency, NewJob},
};
use windlass_store::{Commit as _, ReadJobs as _, Reply, Write, postgres::Postgres, read::Scope};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    load::node,
};

/// Two nodes of one store.
struct Two {
    nodes: [Arc<Postgres>; 2],
    runtime: Runtime,
    home: SchemaHome,
}

impl Two {
    fn new() -> Self {
        let (home, runtime) = (SchemaHome::new(), runtime(2));
        let nodes = [node(&runtime, &home.options), node(&runtime, &home.options)];
        Self { nodes, runtime, home }
    }

    fn tell(&self, node: usize, write: Write) -> Result<Reply, Refusal> {
        self.runtime.block_on(self.nodes[node].commit(vec![write].into())).unwrap().remove(0)
    }

    fn op(&self, node: usize, op: impl Into<windlass_kernel::Op>) -> Result<Answer, Refusal> {
        self.tell(node, write(op)).map(|reply| answer(&reply))
    }

    /// Each write on its node, all at once, and what each is told.
    fn at_once(&self, writes: Vec<(usize, Write)>) -> Vec<Result<Reply, Refusal>> {
        let start = Arc::new(Barrier::new(writes.len()));
        let tasks = writes.into_iter().map(|(node, write)| {
            let (store, start) = (self.nodes[node].clone(), start.clone());
            self.runtime.spawn(async move {
                start.wait().await;
                store.commit(vec![write].into()).await.unwrap().remove(0)
            })
        });
        let tasks: Vec<_> = tasks.collect();
        tasks.into_iter().map(|task| self.runtime.block_on(task).unwrap()).collect()
    }

    fn check(&self) {
        let report = self.home.check();
        assert!(report.is_clean(), "{report}");
    }
}

#[test]
fn of_all_claimers_of_two_nodes_each_job_has_one() {
    let two = Two::new();
    let jobs = u128::from(count(500, 5_000));
    for first in (1..=jobs).step_by(100) {
        let writes: Vec<_> = (first..first + 100).map(|it| write(enqueue(it, plain()))).collect();
        two.runtime.block_on(two.nodes[0].commit(writes.into())).unwrap();
    }
    let claimers = (1..=64u128).map(|number| {
        let store = two.nodes[usize::try_from(number % 2).unwrap()].clone();
        two.runtime.spawn(async move {
            let mut got = Vec::new();
            for round in 1u128.. {
                let claim = claim_many(&format!("w{number}"), (number << 32) + round, 3);
                let told = store.commit(vec![claim].into()).await.unwrap();
                let new = granted(told[0].as_ref().unwrap());
                if new.is_empty() {
                    break;
                }
                got.extend(new.iter().map(|it| (it.job.id, it.job.epoch, number)));
            }
            got
        })
    });
    let claimers: Vec<_> = claimers.collect();
    let mut holders: BTreeMap<JobId, u128> = BTreeMap::new();
    for claimer in claimers {
        for (id, _, number) in two.runtime.block_on(claimer).unwrap() {
            assert_eq!(holders.insert(id, number), None, "{id} was granted twice");
        }
    }
    assert_eq!(holders.len() as u128, jobs, "each job was granted");
    assert!(holders.values().collect::<HashSet<_>>().len() > 2, "one took them all");
    two.check();
}

#[test]
fn of_settles_on_two_nodes_one_counts() {
    let two = Two::new();
    for number in 1..=u128::from(count(20, 200)) {
        let id = two.op(0, enqueue(number, plain())).unwrap().job_id;
        let epoch = granted(&two.tell(0, claim_many("w1", number, 1)).unwrap())[0].job.epoch;
        let writes = vec![
            (0, write(settle(id, epoch, succeeded()))),
            (1, write(settle(id, epoch, failed_for_good()))),
        ];
        let told = two.at_once(writes);
        assert_eq!(told.iter().filter(|it| it.is_ok()).count(), 1, "{told:?}");
        let events = two.runtime.block_on(two.nodes[0].events(&Scope::Every, id)).unwrap();
        assert_eq!(events.iter().filter(|event| event.to.is_end()).count(), 1);
    }
    two.check();
}

#[test]
fn one_key_from_two_nodes_is_one_job() {
    let two = Two::new();
    for round in 1..=u128::from(count(10, 100)) {
        let key = Idempotency::Key {
            scope: IdempotencyScope::new("orders").unwrap(),
            key: IdempotencyKey::new(format!("order-{round}")).unwrap(),
        };
        let new = || NewJob { idempotency: key.clone(), ..plain() };
        let writes =
            (1..=8usize).map(|it| (it % 2, write(enqueue(round * 100 + it as u128, new()))));
        let told = two.at_once(writes.collect());
        let ids: HashSet<JobId> =
            told.iter().map(|reply| answer(reply.as_ref().unwrap()).job_id).collect();
        assert_eq!(ids.len(), 1);
    }
    assert_eq!(u128::from(two.home.count("jobs")), u128::from(count(10, 100)));
    two.check();
}

#[test]
fn what_a_node_remembers_is_judged_by_what_is_stored() {
    let two = Two::new();
    let ends: [&dyn Fn(JobId, u64) -> windlass_kernel::Op; 2] = [
        &|job_id, _| {
            let (force, grace, reason) = (true, Duration::ZERO, None);
            Cancel { job_id, force, grace, reason, by: person("ann") }.into()
        },
        &|job_id, version| {
            let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
            Expire { job_id, version, what, jitter }.into()
        },
    ];
    for (number, end) in (1..).zip(ends) {
        let id = two.op(0, enqueue(number, plain())).unwrap().job_id;
        let job = granted(&two.tell(0, claim_many("w1", number, 1)).unwrap()).remove(0).job;
        let ended = two.op(1, end(id, job.version)).unwrap();
        let told = two.op(0, settle(id, job.epoch, succeeded()));
        assert_eq!(told, Err(Refusal::StaleAttempt), "the job was {}", ended.state);
        let stored = two.runtime.block_on(two.nodes[1].job(&Scope::Every, id)).unwrap().unwrap();
        assert_eq!(stored.state, ended.state);
        if ended.state == State::Interrupted {
            // It can go to the other node, and then comes back to nobody else.
            let again = granted(&two.tell(1, claim_many("w2", 100, 1)).unwrap()).remove(0).job;
            assert!(again.epoch > job.epoch);
            assert!(two.op(0, settle(id, job.epoch, succeeded())).is_err());
            assert_eq!(
                two.op(0, settle(id, again.epoch, succeeded())).unwrap().state,
                State::Succeeded
            );
        }
    }
    two.check();
}

/// Each node makes a kind of job that the other has never heard of, and then claims from the queue of both.
#[test]
fn a_node_is_given_jobs_of_kinds_that_another_node_made_first() {
    let two = Two::new();
    let kind = |name: &str| NewJob::new(Kind::new(name).unwrap(), payload("{}"));
    two.op(0, enqueue(1, kind("first"))).unwrap();
    two.op(1, enqueue(2, kind("second"))).unwrap();
    let got = granted(&two.tell(1, claim_many("w1", 1, 10)).unwrap());
    assert_eq!(
        got.len(),
        2,
        "it was given {:?}",
        got.iter().map(|it| it.job.id).collect::<Vec<_>>()
    );
}

/// Numbers of kinds are given before they can be seen: the later one is seen first here.
#[test]
fn a_kind_that_is_seen_late_is_not_overlooked() {
    let two = Two::new();
    let kind = |name: &str| NewJob::new(Kind::new(name).unwrap(), payload("{}"));
    let slow = two.home.sql();
    slow.run(
        "BEGIN; INSERT INTO job_groups (queue, tenant, kind, isolated)
         VALUES ('default', 'acme', 'slow', false)",
    );
    two.op(0, enqueue(1, kind("quick"))).unwrap();
    assert_eq!(granted(&two.tell(1, claim_many("w1", 1, 10)).unwrap()).len(), 1);
    slow.run("COMMIT");
    two.op(0, enqueue(2, kind("slow"))).unwrap();
    let mut got = Vec::new();
    for claim in 2..=40 {
        got = granted(&two.tell(1, claim_many("w1", claim, 10)).unwrap());
        if !got.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(got.len(), 1, "the job of the slow kind is never given out");
}
