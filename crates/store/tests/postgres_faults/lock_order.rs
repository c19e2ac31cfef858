//! Commits of several nodes lock in one order: none waits for another that waits for it.
//!
//! Each test has a database of its own, and PostgreSQL counts the deadlocks of each database.

use std::{
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use tokio::{runtime::Runtime, task::JoinHandle};
use windlass_kernel::{
    DlqId, IdempotencyKey, IdempotencyScope, Jitter, JobId, Kind, Queue, RuleName, Says, Scope,
    TaskId, UniqueKey,
    ops::{Expire, Expiry, Idempotency, NewJob, NewTask, Requeue},
    rule::{Each, PutRule, RuleOp},
};
use windlass_store::{ClaimMany, Commit as _, Replies, Write, postgres::Postgres};
use windlass_testkit::postgres::Cluster;

use crate::{
    common::{
        postgres::{SchemaHome, Shell},
        *,
    },
    load::{PATIENCE, node},
};

/// A store in a database of its own, with two nodes.
pub(crate) struct Two {
    pub(crate) nodes: [Arc<Postgres>; 2],
    pub(crate) runtime: Runtime,
    pub(crate) home: SchemaHome,
}

impl Two {
    pub(crate) fn new(database: &str) -> Self {
        let (cluster, database) = (Cluster::shared(), format!("{database}_{}", std::process::id()));
        cluster.psql(&format!("CREATE DATABASE {database}"));
        let home = SchemaHome::at(&format!("{}|windlass", cluster.connection_string(&database)));
        let runtime = runtime(2);
        let nodes = [node(&runtime, &home.options), node(&runtime, &home.options)];
        Self { nodes, runtime, home }
    }

    pub(crate) fn commit(&self, node: usize, writes: Vec<Write>) -> Replies {
        self.runtime.block_on(self.nodes[node].commit(writes.into())).unwrap()
    }

    fn start(&self, node: usize, writes: Vec<Write>) -> JoinHandle<Replies> {
        let store = self.nodes[node].clone();
        self.runtime.spawn(async move { store.commit(writes.into()).await.unwrap() })
    }

    /// Waits until so many of our statements wait for a lock.
    fn wait_for_waiters(&self, shell: &Shell, count: i64) {
        let sql = "
            SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
            WHERE NOT granted AND datname = current_database()";
        let begun = Instant::now();
        while shell.query(sql, &[])[0].get::<_, i64>(0) < count {
            assert!(begun.elapsed() < PATIENCE, "nobody waits");
            sleep(Duration::from_millis(2));
        }
    }

    /// Closes the nodes, and gives back how many deadlocks there were.
    pub(crate) fn deadlocks(self) -> i64 {
        let Self { nodes, runtime, home } = self;
        drop((nodes, runtime));
        // What a connection has counted is told when it ends, at the latest.
        let shell = home.sql();
        let others = "
            SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let begun = Instant::now();
        while shell.query(others, &[])[0].get::<_, i64>(0) > 0 {
            assert!(begun.elapsed() < PATIENCE, "a connection stays");
            sleep(Duration::from_millis(10));
        }
        let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        shell.query(sql, &[])[0].get(0)
    }
}

pub(crate) fn put(name: &str, says: Says) -> Write {
    let (name, by) = (RuleName::new(name).unwrap(), person("ann"));
    let scope = Scope::queue(Queue::new(NewJob::DEFAULT_NAME).unwrap());
    Write::Rule(RuleOp::Put(PutRule { name, scope, says, within: None, by, reason: None }))
}

fn wide_limit() -> Write {
    put("wide", Says::Concurrency { max: 100_000, each: Each::Together })
}

fn claim(by: &str, claim: u128) -> Write {
    Write::Claim(ClaimMany { max: 2, ..wanted(by, claim, 2) })
}

/// One node remembers the job and so has no need to read it; the other does not. Both then need a rule.
#[test]
fn a_job_that_is_remembered_is_locked_before_a_rule() {
    let two = Two::new("remembered");
    two.commit(0, vec![wide_limit()]);
    let made = (1..=9).map(|number| write(enqueue(number, plain()))).collect();
    two.commit(0, made);
    let job = granted(two.commit(0, vec![claim_many("w1", 1, 1)])[0].as_ref().unwrap()).remove(0);
    let (job_id, version, epoch) = (job.job.id, job.job.version, job.job.epoch);
    let other = two.home.sql();
    other.run("BEGIN");
    other.query("SELECT 1 FROM jobs WHERE state = 'running' FOR UPDATE", &[]);
    let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
    let expire = write(Expire { job_id, version, what, jitter });
    let ending = two.start(1, vec![expire, claim("w2", 2)]);
    two.wait_for_waiters(&two.home.sql(), 1);
    let settling = two.start(0, vec![write(settle(job_id, epoch, succeeded())), claim("w1", 3)]);
    two.wait_for_waiters(&two.home.sql(), 2);
    other.run("COMMIT");
    let ended = two.runtime.block_on(ending).unwrap();
    let settled = two.runtime.block_on(settling).unwrap();
    assert_ne!(ended[0].is_ok(), settled[0].is_ok(), "one of them was first");
    assert_eq!(granted(ended[1].as_ref().unwrap()).len(), 2);
    assert_eq!(granted(settled[1].as_ref().unwrap()).len(), 2);
    drop(other);
    assert_eq!(two.deadlocks(), 0);
}

/// The same with a session in the place of the rule.
#[test]
fn a_job_that_is_remembered_is_locked_before_a_session() {
    let two = Two::new("sessions");
    two.commit(0, vec![write(enqueue(1, plain()))]);
    let job = granted(two.commit(0, vec![claim_many("w1", 1, 1)])[0].as_ref().unwrap()).remove(0);
    let (job_id, version, epoch) = (job.job.id, job.job.version, job.job.epoch);
    let renew = || Write::RenewSession { worker: worker("w1"), lease: LEASE };
    let other = two.home.sql();
    other.run("BEGIN");
    other.query("SELECT 1 FROM jobs FOR UPDATE", &[]);
    let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
    let expire = write(Expire { job_id, version, what, jitter });
    let ending = two.start(1, vec![expire, renew()]);
    two.wait_for_waiters(&two.home.sql(), 1);
    let settling = two.start(0, vec![write(settle(job_id, epoch, succeeded())), renew()]);
    two.wait_for_waiters(&two.home.sql(), 2);
    other.run("COMMIT");
    two.runtime.block_on(ending).unwrap();
    two.runtime.block_on(settling).unwrap();
    drop(other);
    assert_eq!(two.deadlocks(), 0);
}

/// One node is asked for the letter, the other for its task: both lock the letter first.
#[test]
fn a_letter_is_locked_before_its_task() {
    let two = Two::new("letters");
    let task_id = TaskId::new("t1").unwrap();
    let of_task = |number| {
        let task = Some(NewTask { task_id: task_id.clone(), may_rerun: true });
        write(enqueue(number, NewJob { task, ..plain() }))
    };
    two.commit(0, vec![of_task(1)]);
    let job = granted(two.commit(0, vec![claim_many("w1", 1, 1)])[0].as_ref().unwrap()).remove(0);
    let (job_id, epoch) = (job.job.id, job.job.epoch);
    two.commit(0, vec![write(settle(job_id, epoch, failed_for_good()))]);
    let other = two.home.sql();
    other.run("BEGIN");
    other.query("SELECT 1 FROM dlq_items FOR UPDATE", &[]);
    let (dlq_id, new_job_id, by) = (DlqId::of_job(job_id), JobId::from_u128(2), person("ann"));
    let requeue = write(Requeue { dlq_id, new_job_id, payload: None, by });
    let requeued = two.start(0, vec![requeue]);
    two.wait_for_waiters(&two.home.sql(), 1);
    let made = two.start(1, vec![of_task(3)]);
    two.wait_for_waiters(&two.home.sql(), 2);
    other.run("COMMIT");
    let requeued = two.runtime.block_on(requeued).unwrap().remove(0);
    let made = two.runtime.block_on(made).unwrap().remove(0);
    assert_ne!(requeued.is_ok(), made.is_ok(), "one of them was first: {requeued:?}, {made:?}");
    drop(other);
    assert!(two.home.check().is_clean());
    assert_eq!(two.deadlocks(), 0);
}

/// Two nodes are sent jobs that have something in common, in opposite orders. Another client is just making the one in the
/// middle, so both get stuck there, and when it gives up neither must have what the other needs.
fn opposite_orders(database: &str, new: fn(u128) -> NewJob, in_the_middle: &str) {
    let two = Two::new(database);
    // A row for the other client to copy.
    two.commit(0, vec![write(enqueue(1, new(0)))]);
    let other = two.home.sql();
    other.run(&format!("BEGIN; {in_the_middle}"));
    let jobs = |first: u128, order: &mut dyn Iterator<Item = u128>| -> Vec<Write> {
        order.map(|number| write(enqueue(first + number, new(number)))).collect()
    };
    let both = [two.start(0, jobs(100, &mut (1..=9))), two.start(1, jobs(200, &mut (1..=9).rev()))];
    two.wait_for_waiters(&two.home.sql(), 2);
    other.run("ROLLBACK");
    for done in both {
        let told = two.runtime.block_on(done).unwrap();
        assert!(told.iter().all(Result::is_ok), "{told:?}");
    }
    drop(other);
    assert!(two.home.check().is_clean());
    assert_eq!(two.deadlocks(), 0);
}

fn with_key(number: u128) -> NewJob {
    let key = IdempotencyKey::new(format!("k{number}")).unwrap();
    let scope = IdempotencyScope::new("orders").unwrap();
    NewJob { idempotency: Idempotency::Key { scope, key }, ..plain() }
}

#[test]
fn keys_in_opposite_orders_are_no_deadlock() {
    let copy = "
        CREATE TEMP TABLE copy AS SELECT * FROM jobs;
        UPDATE copy SET id = gen_random_uuid(), idempotency_key = 'k5';
        INSERT INTO jobs SELECT * FROM copy";
    opposite_orders("keys", with_key, copy);
}

#[test]
fn unique_keys_in_opposite_orders_are_no_deadlock() {
    let unique = |number| {
        let unique_key = Some(UniqueKey::new(format!("u{number}")).unwrap());
        NewJob { unique_key, ..plain() }
    };
    let copy = "
        CREATE TEMP TABLE copy AS SELECT * FROM jobs;
        UPDATE copy SET id = gen_random_uuid(), unique_key = 'u5';
        INSERT INTO jobs SELECT * FROM copy";
    opposite_orders("uniques", unique, copy);
}

#[test]
fn new_kinds_in_opposite_orders_are_no_deadlock() {
    let kind = |number| {
        let kind = Kind::new(format!("kind{number}")).unwrap();
        NewJob { kind, ..with_key(number) }
    };
    let group = "
        INSERT INTO job_groups (queue, tenant, kind, isolated)
        VALUES ('default', 'acme', 'kind5', false)";
    opposite_orders("kinds", kind, group);
}
