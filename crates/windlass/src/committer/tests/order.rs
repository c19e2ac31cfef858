//! What waits comes out in the order of each job, whatever comes in: random pushes and batches.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};
use windlass_kernel::JobId;

use super::fake::*;
use crate::committer::pending::{Lane, Pending, Waiting, jobs_of};

/// Jobs, each with the mark of a write that names it.
type Named = Vec<(JobId, u32)>;

#[derive(Clone, Copy, Debug)]
enum Step {
    Settle(u8),
    Cancel(u8),
    Requeue(u8, u8),
    Renew,
    Batch,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let job = 0..4u8;
    let step = prop_oneof![
        3 => job.clone().prop_map(Step::Settle),
        3 => job.clone().prop_map(Step::Cancel),
        2 => (job.clone(), job).prop_map(|(failed, new)| Step::Requeue(failed, new)),
        1 => Just(Step::Renew),
        2 => Just(Step::Batch),
    ];
    vec(step, 0..80)
}

fn waiting(step: Step, mark: u32, cost: u32) -> Waiting<u32> {
    let write = match step {
        Step::Settle(job) => settle(job.into(), mark),
        Step::Cancel(job) => cancel(job.into(), mark),
        Step::Requeue(failed, new) => requeue(failed.into(), new.into(), mark),
        Step::Renew | Step::Batch => renew(mark),
    };
    Waiting { jobs: jobs_of(&write), lane: Lane::of(&write), cost, item: mark }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_waits_comes_out_once_and_in_the_order_of_each_job(
        steps in steps(),
        costs in vec(1..4u32, 80),
        batch_max in 1..12u32,
    ) {
        let mut pending = Pending::new(batch_max);
        let mut came: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
        let mut left: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
        let (mut waits, mut taken) = (0, Vec::new());
        let mut leave = |batch: Vec<Waiting<u32>>, waits: &mut usize| {
            *waits -= batch.len();
            for waiting in batch {
                waiting.jobs.into_iter().flatten().for_each(|job| {
                    left.entry(job).or_default().push(waiting.item);
                });
                taken.push(waiting.item);
            }
        };
        for ((mark, step), cost) in (0u32..).zip(&steps).zip(costs) {
            if let Step::Batch = step {
                let batch = pending.next_batch();
                prop_assert_eq!(batch.is_empty(), waits == 0);
                leave(batch, &mut waits);
                continue;
            }
            let waiting = waiting(*step, mark, cost);
            for job in waiting.jobs.into_iter().flatten() {
                came.entry(job).or_default().push(mark);
            }
            pending.push(waiting);
            waits += 1;
        }
        while waits > 0 {
            let batch = pending.next_batch();
            prop_assert!(!batch.is_empty());
            leave(batch, &mut waits);
        }
        prop_assert!(pending.next_batch().is_empty());
        prop_assert!(pending.is_forgotten());
        prop_assert_eq!(left, came);
        taken.sort_unstable();
        let pushed: Vec<u32> = (0u32..).zip(&steps).filter(|(_, step)| !matches!(step, Step::Batch))
            .map(|(mark, _)| mark).collect();
        prop_assert_eq!(taken, pushed);
    }

    #[test]
    fn a_batch_costs_no_more_than_it_may_and_each_lane_moves_on(
        steps in steps(),
        costs in vec(1..4u32, 80),
        batch_max in 1..40u32,
    ) {
        let mut pending = Pending::new(batch_max);
        for ((mark, step), cost) in (0u32..).zip(steps).zip(costs) {
            pending.push(waiting(step, mark, cost));
        }
        loop {
            let fronts = pending.fronts();
            let batch = pending.next_batch();
            if batch.is_empty() {
                break;
            }
            for front in fronts.into_iter().flatten() {
                prop_assert!(batch.iter().any(|waiting| waiting.item == front));
            }
            let cost: u32 = batch.iter().map(|waiting| waiting.cost).sum();
            // The first write of each lane costs at most 3 here.
            prop_assert!(cost <= batch_max.max(3) + 3, "{cost} of {batch_max}");
        }
    }
}

#[test]
fn a_settle_waits_behind_what_its_job_waits_for_and_only_there() {
    let mut pending = Pending::new(8);
    for (mark, step) in [
        (0, Step::Cancel(0)),
        (1, Step::Cancel(1)),
        (2, Step::Settle(1)),
        (3, Step::Settle(2)),
        (4, Step::Cancel(2)),
    ] {
        pending.push(waiting(step, mark, 1));
    }
    let marks: Vec<u32> = pending.next_batch().into_iter().map(|waiting| waiting.item).collect();
    assert_eq!(marks, [3, 4, 0, 1, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_several_batches_on_their_way_no_two_name_one_job_and_each_job_keeps_its_order(
        steps in steps(),
        batch_max in 1..12u32,
        lands in vec(0..3usize, 80),
    ) {
        let mut pending = Pending::new(batch_max);
        let mut flying: Vec<Vec<Waiting<u32>>> = Vec::new();
        let (mut came, mut left): (Named, Named) = (Vec::new(), Vec::new());
        let (mut waits, mut taken) = (0, 0);
        let jobs_of = |batch: &[Waiting<u32>]| -> Named {
            let mut named = Vec::new();
            for waiting in batch {
                let jobs = waiting.jobs.into_iter().flatten();
                named.extend(jobs.map(|job| (job, waiting.item)));
            }
            named
        };
        let mut take_off = |pending: &mut Pending<u32>, flying: &mut Vec<Vec<Waiting<u32>>>| {
            let batch = pending.next_batch();
            pending.take_off(&batch);
            for (job, _) in jobs_of(&batch) {
                let others = flying.iter().flatten();
                assert!(!others.flat_map(|it| it.jobs).any(|it| it == Some(job)), "{job} flies twice");
            }
            left.extend(jobs_of(&batch));
            taken += batch.len();
            let is_empty = batch.is_empty();
            if !is_empty {
                flying.push(batch);
            }
            !is_empty
        };
        for ((mark, step), land) in (0u32..).zip(&steps).zip(&lands) {
            if let Step::Batch = step {
                if flying.len() < 3 {
                    let took = take_off(&mut pending, &mut flying);
                    prop_assert!(took || waits == 0 || !flying.is_empty(), "something waits and nothing flies");
                }
                if *land < flying.len() {
                    let landed = flying.remove(*land);
                    waits -= landed.len();
                    pending.land(landed.iter().flat_map(|it| it.jobs).flatten());
                }
                continue;
            }
            let waiting = waiting(*step, mark, 1);
            came.extend(waiting.jobs.into_iter().flatten().map(|job| (job, mark)));
            pending.push(waiting);
            waits += 1;
        }
        // Whatever is left goes, one batch after the other.
        while !pending.is_empty() || !flying.is_empty() {
            let took = take_off(&mut pending, &mut flying);
            prop_assert!(took || !flying.is_empty(), "nothing can go");
            for landed in flying.drain(..) {
                pending.land(landed.iter().flat_map(|it| it.jobs).flatten());
            }
        }
        came.sort_by_key(|(job, _)| *job);
        left.sort_by_key(|(job, _)| *job);
        prop_assert_eq!(came, left);
        prop_assert_eq!(taken, steps.iter().filter(|it| !matches!(it, Step::Batch)).count());
        prop_assert!(pending.is_forgotten());
    }
}
