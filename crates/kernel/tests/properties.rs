//! Whatever happens, in whatever order: the promises of the design hold after every step.
//!
//! Each case is a random history, made from a list of numbers, so that a failing history shrinks to
//! a short one; its ops are shown, and the seed of the run. A run that never saw some op succeed, some code refuse or some
//! legal move happen fails too, for it has proved nothing about them.

#[path = "properties/invariants.rs"]
mod invariants;

use std::{cell::RefCell, collections::BTreeSet};

use proptest::{
    collection::vec,
    prelude::any,
    prop_assert, prop_assert_eq,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use windlass_kernel::{JobId, timer};
use windlass_testkit::{
    MapStore,
    random::{Tally, World, cases, seed, told},
};

/// Random histories in one run, of this many steps at most.
const HISTORIES: u32 = 1_700;
const STEPS_MAX: usize = 120;

#[test]
fn random_histories_keep_every_promise() {
    let tally = RefCell::new(Tally::default());
    let config = Config { cases: cases(HISTORIES), failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed());
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&vec(any::<u64>(), 1..=STEPS_MAX), |numbers| {
        let mut world = World::default();
        for number in numbers {
            let step = world.step(number);
            tally.borrow_mut().count(&step);
            invariants::of_step(&step, &world.store)?;
        }
        invariants::of_store(&world.store)?;
        every_alarm_is_heard(&world)?;
        every_job_comes_to_its_end(world)
    });

    let tally = tally.into_inner();
    tally.print();
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, numbers)) => {
            panic!("{reason}\nnumbers: {numbers:?}\n{}", told(&numbers))
        }
        Err(abort) => panic!("{abort}"),
    }
    assert_eq!(tally.never_seen(), [""; 0], "never seen");
    let legal: BTreeSet<_> = invariants::LEGAL.iter().copied().collect();
    assert_eq!(tally.moves, legal, "every legal move is made, and no other");
    assert!(tally.percent_applied() >= 60, "most steps do something");
    assert!(tally.steps >= 50_000, "the run is long enough");
}

/// An alarm that rings is never refused, whichever of a job's alarms it is.
fn every_alarm_is_heard(world: &World) -> Result<(), TestCaseError> {
    for job in world.store.jobs.values() {
        for alarm in timer::Alarm::ALL {
            let Some(at) = timer::rings_at(job, *alarm) else { continue };
            let op = timer::op(job, *alarm, windlass_kernel::Jitter::NONE);
            let mut store = world.store.clone();
            let result = store.commit(&op, at.max(world.now));
            prop_assert!(result.is_ok(), "{alarm} of a job that is {}: {result:?}", job.state);
            invariants::of_job(&store, job.id)?;
        }
    }
    Ok(())
}

/// With a willing worker and enough time every job comes to its end, in a few steps.
fn every_job_comes_to_its_end(mut world: World) -> Result<(), TestCaseError> {
    let ids: Vec<JobId> = world.store.jobs.keys().copied().collect();
    for id in ids {
        let mut steps = 0;
        while let Some(op) = world.willing_op(&world.store.jobs[&id].clone()) {
            let step = world.commit(op);
            prop_assert!(step.result.is_ok(), "{:?}: {:?}", step.op, step.result);
            invariants::of_job(&world.store, id)?;
            steps += 1;
            prop_assert!(steps <= 5, "{id} does not come to its end");
        }
    }
    prop_assert_eq!(not_at_an_end(&world.store), 0);
    Ok(())
}

fn not_at_an_end(store: &MapStore) -> usize {
    store.jobs.values().filter(|job| !job.state.is_end()).count()
}
