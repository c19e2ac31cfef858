//! The local queue and its numbers. Time is an argument, and jobs come from a real claim.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use windlass_kernel::{Kind, Queue, WorkerId};
use windlass_store::{ClaimMany, Reply, Write};

use super::*;
use crate::{Work, testing};

const LEASE: Duration = Duration::from_secs(10);
const SLOTS: Slots = Slots { concurrency: 2, ahead_max: 8, tenant_max: usize::MAX, reports_max: 8 };

#[derive(Serialize, Deserialize)]
struct Nothing;

impl Work for Nothing {
    const KIND: &str = "nothing";
}

/// So many jobs that a worker has claimed.
async fn granted<const COUNT: usize>() -> [Granted; COUNT] {
    let engine = testing::engine().unwrap();
    for enqueued in engine.enqueue_all((0..COUNT).map(|_| Nothing)).await {
        enqueued.unwrap();
    }
    let claim = ClaimMany {
        claim_id: engine.inner().ids.claim_id(),
        worker: WorkerId::new("worker").unwrap(),
        trace_id: None,
        tenant: None,
        except: Vec::new(),
        queues: vec![Queue::new("default").unwrap()],
        kinds: vec![Kind::new(Nothing::KIND).unwrap()],
        max: COUNT,
        lease: LEASE,
        start: false,
        neighbours: Vec::new(),
    };
    match engine.committer().submit(Write::Claim(claim)).await.unwrap() {
        Reply::Granted { jobs, .. } => jobs.try_into().expect("as many as were asked for"),
        other => panic!("a claim was answered with {other:?}"),
    }
}

/// A worker whose local queue has these jobs since this time.
fn queued(jobs: &[Granted], since: Instant) -> Executions {
    let executions = Executions::new(SLOTS);
    for job in jobs {
        executions.add(job, false, since, LEASE);
    }
    executions
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn id_of(granted: &Granted) -> JobId {
    granted.job.id
}

/// The jobs that can start, one after the other.
fn start_all(executions: &Executions) -> Vec<JobId> {
    std::iter::from_fn(|| executions.next()).map(|(granted, _)| id_of(&granted)).collect()
}

fn end(executions: &Executions, granted: &Granted, now: Instant) {
    assert!(executions.begin_report(granted.job.id, granted.job.epoch, now));
    assert!(executions.end(granted.job.id, granted.job.epoch).is_some());
}

#[tokio::test]
async fn the_local_queue_starts_each_job_once_in_order_and_in_a_slot() {
    let (jobs, now) = (granted::<4>().await, Instant::now());
    let executions = queued(&jobs, now);
    assert_eq!(start_all(&executions), [&jobs[0], &jobs[1]].map(id_of), "there are two slots");
    end(&executions, &jobs[1], now);
    assert_eq!(start_all(&executions), [id_of(&jobs[2])]);
    end(&executions, &jobs[0], now);
    end(&executions, &jobs[2], now);
    assert_eq!(start_all(&executions), [id_of(&jobs[3])]);
    end(&executions, &jobs[3], now);
    assert_eq!(start_all(&executions), []);
    assert!(executions.is_idle());
}

#[tokio::test]
async fn a_job_that_is_lost_in_the_local_queue_is_passed_over() {
    let (jobs, now) = (granted::<3>().await, Instant::now());
    let executions = queued(&jobs, now);
    executions.lose(jobs[0].job.id, jobs[0].job.epoch);
    assert_eq!(start_all(&executions), [&jobs[1], &jobs[2]].map(id_of));
    let executions = queued(&jobs, now);
    executions.lose(jobs[1].job.id, jobs[1].job.epoch);
    let taken = executions.take_queue();
    assert_eq!(taken.iter().map(id_of).collect::<Vec<_>>(), [&jobs[0], &jobs[2]].map(id_of));
}

#[tokio::test]
async fn a_job_whose_lease_ran_out_in_the_local_queue_neither_starts_nor_goes_back() {
    let ([job], now) = (granted::<1>().await, Instant::now());
    for is_renewed in [false, true] {
        let executions = queued(std::slice::from_ref(&job), now);
        if is_renewed {
            executions.renewed(executions.grants(), now + LEASE * 2, &[job.job.id], &[]);
        }
        executions.lose_lapsed(now + LEASE - ms(1));
        assert!(!executions.is_idle(), "its lease lasts");
        executions.lose_lapsed(now + LEASE);
        assert_eq!(executions.is_idle(), !is_renewed);
        let expected = if is_renewed { vec![job.job.id] } else { Vec::new() };
        assert_eq!(start_all(&executions), expected);
        assert!(executions.take_queue().is_empty());
        assert!(executions.take_overdue(now + LEASE).is_empty());
    }
}

#[tokio::test]
async fn a_job_that_is_claimed_again_runs_under_its_newer_epoch_only() {
    let ([job], now) = (granted::<1>().await, Instant::now());
    let executions = queued(std::slice::from_ref(&job), now);
    let mut newer = job.clone();
    Arc::make_mut(&mut newer.job).epoch = Epoch::new(job.job.epoch.get() + 1);
    executions.add(&newer, false, now, LEASE);
    let (started, _) = executions.next().unwrap();
    assert_eq!(started.job.epoch, newer.job.epoch);
    assert!(executions.next().is_none());
}

#[tokio::test]
async fn a_job_is_overdue_after_a_second_in_the_local_queue() {
    let ([first, second], now) = (granted::<2>().await, Instant::now());
    let executions = queued(std::slice::from_ref(&first), now);
    executions.add(&second, false, now + ms(400), LEASE);
    assert_eq!(executions.load(false, now).overdue_at, Some(now + ms(1_000)));
    assert!(executions.take_overdue(now + ms(999)).is_empty());
    let taken = executions.take_overdue(now + ms(1_000));
    assert_eq!(taken.iter().map(id_of).collect::<Vec<_>>(), [id_of(&first)]);
    assert!(executions.is_stranger(first.job.id), "it is given back, and not in hand any more");
    assert_eq!(executions.load(false, now).overdue_at, Some(now + ms(1_400)));
    assert_eq!(start_all(&executions), [id_of(&second)]);
    assert_eq!(executions.load(false, now).overdue_at, None);
}

#[tokio::test]
async fn a_shutdown_takes_what_has_not_started_and_nothing_else() {
    let (jobs, now) = (granted::<4>().await, Instant::now());
    let executions = queued(&jobs, now);
    assert_eq!(start_all(&executions).len(), 2);
    let taken = executions.take_queue();
    assert_eq!(taken.iter().map(id_of).collect::<Vec<_>>(), [&jobs[2], &jobs[3]].map(id_of));
    assert!(executions.take_queue().is_empty(), "nothing is given back twice");
    end(&executions, &jobs[0], now);
    end(&executions, &jobs[1], now);
    assert_eq!(start_all(&executions), []);
    assert!(executions.is_idle());
}

#[tokio::test]
async fn the_load_follows_a_job_from_the_local_queue_to_its_end() {
    let ([job], now) = (granted::<1>().await, Instant::now());
    let executions = queued(std::slice::from_ref(&job), now);
    let numbers = |at: Instant| {
        let Load { running, queued, reporting, pace, .. } = executions.load(false, at);
        (queued, running, reporting, pace)
    };
    assert_eq!(numbers(now), (1, 0, 0, 0));
    assert!(executions.next().is_some());
    assert_eq!(numbers(now), (0, 1, 0, 0));
    assert!(executions.begin_report(job.job.id, job.job.epoch, now));
    assert_eq!(numbers(now + ms(150)), (0, 0, 1, 1));
    assert!(executions.end(job.job.id, job.job.epoch).is_some());
    assert_eq!(numbers(now + ms(300)), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_execution_wakes_a_worker_that_wants_room_or_has_a_local_queue() {
    let ([running, waiting], now) = (granted::<2>().await, Instant::now());
    for (calls, has_queue, expected) in
        [(false, false, false), (true, false, true), (false, true, true)]
    {
        let executions = Executions::new(SLOTS);
        executions.add(&running, true, now, LEASE);
        if has_queue {
            executions.add(&waiting, false, now, LEASE);
        }
        executions.load(calls, now);
        end(&executions, &running, now);
        let is_woken = timeout(ms(1), executions.changed()).await.is_ok();
        assert_eq!(is_woken, expected, "calls: {calls}, has a queue: {has_queue}");
    }
}
