//! The walk: every move of the machine, through every contract.
//!
//! Each move is taken with both values of the one bit of history that images depend on. What a contract
//! sees of it has to be one of its own moves, or nothing. And nothing in a contract is for show: each of
//! its moves is what some move of the machine looks like, with one exception.

use std::collections::BTreeSet;

use super::{CONTRACTS, Contract, Step};
use crate::{
    Actor, DlqId, Epoch, Event, Fact, Failure, JobId, State, Timestamp,
    machine::{MOVES, Move, NOTES},
};

/// An event that says no more than its states and its cause.
fn event(step: Move, started: bool, fact: Fact) -> Event {
    Event {
        job_id: JobId::from_u128(1),
        number: 1,
        at: Timestamp::MIN,
        cause: step.cause,
        from: step.from,
        to: step.to,
        attempt: 1,
        retry_count: 0,
        epoch: Epoch::ZERO,
        started,
        actor: Actor::Scheduler,
        trace_id: None,
        fact,
    }
}

/// The states in which the way to the dead letters begins.
fn burial_begins() -> impl Iterator<Item = State> {
    MOVES.iter().filter(|step| step.to == State::DlqPending).filter_map(|step| step.from)
}

/// What the events of this move may know: for the way to the dead letters, where it began.
fn facts(step: Move) -> Vec<Fact> {
    let buried = |began_in| Fact::Buried {
        dlq_id: DlqId::from_u128(1),
        began_in,
        why: step.cause,
        failure: Failure::permanent("BROKEN", "it broke"),
        settle: None,
    };
    match (step.from, step.to) {
        (Some(from), State::DlqPending) => vec![buried(from)],
        (_, State::DlqRecorded | State::Failed) => burial_begins().map(buried).collect(),
        _ => vec![Fact::Plain],
    }
}

/// Every event that the machine can write, as far as contracts look at it.
fn events() -> impl Iterator<Item = Event> {
    let started = |from: Option<State>| {
        let fits = move |bit: &bool| from.map_or(!bit, |from| from.allows_started(*bit));
        [false, true].into_iter().filter(fits)
    };
    MOVES.iter().flat_map(move |step| {
        let facts = facts(*step);
        started(step.from)
            .flat_map(move |bit| facts.clone().into_iter().map(move |fact| event(*step, bit, fact)))
    })
}

fn steps(contract: &'static Contract) -> impl Iterator<Item = Step> {
    events().filter_map(|event| contract.step(&event))
}

#[test]
fn every_move_is_a_legal_step_of_every_contract_or_none() {
    for contract in CONTRACTS {
        for event in events() {
            let Some(step) = contract.step(&event) else { continue };
            let (name, Step { previous, now }) = (contract.name, step);
            assert!(
                contract.allows(step),
                "{:?} -> {} by {} (started: {}) is {previous:?} -> {now} in contract {name}, \
                 which knows no such move; {:?}",
                event.from,
                event.to,
                event.cause,
                event.started,
                event.fact,
            );
        }
    }
}

#[test]
fn what_has_a_state_before_shows_it() {
    for contract in CONTRACTS {
        for event in events() {
            let Some(step) = contract.step(&event) else { continue };
            assert_eq!(step.previous.is_none(), event.from.is_none(), "{event:?}");
        }
    }
}

#[test]
fn a_note_is_silent_in_every_contract() {
    for (state, cause) in NOTES {
        let note = Move { from: Some(*state), cause: *cause, to: *state };
        for contract in CONTRACTS {
            let step = contract.step(&event(note, true, Fact::Plain));
            assert_eq!(step, None, "{cause} in {state} is seen in contract {}", contract.name);
        }
    }
}

#[test]
fn the_way_to_the_dead_letters_is_one_step_for_those_who_do_not_see_it() {
    let begins: BTreeSet<State> = burial_begins().collect();
    assert_eq!(begins, BTreeSet::from([State::Running, State::Interrupted, State::Waiting]));
    for contract in CONTRACTS.into_iter().filter(|contract| contract.name != "jobs") {
        for began_in in &begins {
            let seen: Vec<Step> = events()
                .filter(|event| matches!(&event.fact, Fact::Buried { began_in: b, .. } if b == began_in))
                .filter_map(|event| contract.step(&event))
                .collect();
            let previous = contract.image(*began_in, true);
            let now = contract.image(State::Failed, true).unwrap();
            assert!(!seen.is_empty() && seen.iter().all(|s| *s == Step { previous, now }));
        }
    }
}

#[test]
fn every_move_of_a_contract_is_used_but_one() {
    let mut unused = Vec::new();
    for contract in CONTRACTS {
        let used: BTreeSet<_> = steps(contract).map(|step| (step.previous, step.now)).collect();
        let legal = contract.begins.iter().map(|state| (None, *state));
        let legal = legal.chain(contract.all_moves().map(|(from, to)| (Some(from), to)));
        unused.extend(legal.filter(|step| !used.contains(step)).map(|step| (contract.name, step)));
    }
    // A job that waits for its retry is claimed before it can fail again.
    assert_eq!(unused, [("jobs", (Some("retrying"), "dlq_pending"))]);
}
