//! Contracts: the vocabularies in which other programs see a job.
//!
//! There is one job machine. A contract is a view of it, and it is data: its own states and moves, its
//! own codes, and an image of each of the machine's states. The image depends on the state and on one
//! bit of history: has the job ever started? Each contract has a file with its documents and events.
//!
//! Always true: a move of the machine is a legal step of every contract, or no step at all; `walk.rs`
//! proves it move by move. Never here: a decision. Whatever a contract shows was decided before.

pub mod ingest;
pub mod jobs;
pub mod runs;
pub mod tasks;

#[cfg(test)]
mod life;
#[cfg(test)]
mod walk;

use serde::Serialize;

use crate::{Event, Fact, Failure, Job, Refusal, Spec, State, Timestamp, TraceId};

/// One vocabulary for jobs.
#[derive(Debug)]
pub struct Contract {
    /// Its name, as requests ask for it.
    pub name: &'static str,
    /// Its states.
    pub states: &'static [&'static str],
    /// The states in which something begins.
    pub begins: &'static [&'static str],
    /// The states that nothing follows.
    pub ends: &'static [&'static str],
    /// The moves that its document gives.
    pub moves: &'static [(&'static str, &'static str)],
    /// The moves that its document leaves open and we allow.
    pub additions: &'static [Addition],
    /// Codes of refusals that it spells in its own way: ours, then its own.
    pub codes: &'static [(&'static str, &'static str)],
    /// What it sees of a state, by whether the job has ever started.
    image: fn(State, bool) -> Option<&'static str>,
}

/// A move that a contract's document leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The state it leaves.
    pub from: &'static str,
    /// The state it enters.
    pub to: &'static str,
    /// Why we allow it.
    pub why: &'static str,
}

/// One step in a contract's own states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The state before; none at creation.
    pub previous: Option<&'static str>,
    /// The state after.
    pub now: &'static str,
}

/// Every contract.
pub static CONTRACTS: [&Contract; 4] =
    [&runs::CONTRACT, &tasks::CONTRACT, &jobs::CONTRACT, &ingest::CONTRACT];

impl Contract {
    /// The contract of this name.
    pub fn named(name: &str) -> Option<&'static Contract> {
        CONTRACTS.into_iter().find(|contract| contract.name == name)
    }

    /// What it calls a state; nothing, if it does not see it.
    pub fn image(&self, state: State, started: bool) -> Option<&'static str> {
        (self.image)(state, started)
    }

    /// What it calls the state of `job`.
    ///
    /// # Panics
    /// If the job is on its way to the dead letters. That way is one transaction: no job rests there.
    pub fn status(&self, job: &Job) -> &'static str {
        self.image(job.state, job.has_started()).expect("a job rests where every contract sees it")
    }

    /// The step that `event` is in its states; none, if nothing changed that it can see.
    pub fn step(&self, event: &Event) -> Option<Step> {
        let now = self.image(event.to, event.started_after())?;
        let image = |state| self.image(state, event.started);
        let previous = event.from.and_then(|from| match &event.fact {
            // Who does not see the way to the dead letters sees the state in which it began.
            Fact::Buried { began_in, .. } => image(from).or_else(|| image(*began_in)),
            _ => image(from),
        });
        (previous != Some(now)).then_some(Step { previous, now })
    }

    /// Is this step one of its moves, or a beginning?
    pub fn allows(&self, step: Step) -> bool {
        match step.previous {
            None => self.begins.contains(&step.now),
            Some(previous) => self.all_moves().any(|legal| legal == (previous, step.now)),
        }
    }

    /// Its moves: those of its document, then our additions.
    pub fn all_moves(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let additions = self.additions.iter().map(|addition| (addition.from, addition.to));
        self.moves.iter().copied().chain(additions)
    }

    /// The code of a refusal, as it spells it.
    pub fn code(&self, refusal: &Refusal) -> &'static str {
        let code = refusal.code();
        self.codes.iter().find(|(ours, _)| *ours == code).map_or(code, |(_, own)| own)
    }
}

/// An event as most contracts tell it: its name, its trace and what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told<P> {
    /// Its name.
    #[serde(rename = "type")]
    pub name: &'static str,
    /// Its number in the store: it says which of two events came first.
    pub number: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The trace of the request behind it, or else of its job.
    pub trace_id: TraceId,
    /// What it is about.
    pub payload: P,
}

impl<P> Told<P> {
    fn new(name: &'static str, event: &Event, spec: &Spec, number: u64, payload: P) -> Self {
        let trace_id = event.trace_id.as_ref().unwrap_or(&spec.trace_id).clone();
        Self { name, number, at: event.at, trace_id, payload }
    }
}

/// What went wrong, if the event is about that.
fn failure(event: &Event) -> Option<&Failure> {
    match &event.fact {
        Fact::Retry { failure, .. } | Fact::Buried { failure, .. } => Some(failure),
        Fact::Cancelled { failure, .. } => failure.as_ref(),
        Fact::Plain
        | Fact::Created { .. }
        | Fact::Claimed { .. }
        | Fact::Interrupted { .. }
        | Fact::Finished { .. }
        | Fact::Parked { .. }
        | Fact::Woken { .. }
        | Fact::CancelRequested { .. }
        | Fact::Checkpoint { .. }
        | Fact::StepBegun { .. }
        | Fact::StepTryFailed { .. }
        | Fact::StepFinished { .. }
        | Fact::StepCommitted { .. }
        | Fact::Signalled { .. }
        | Fact::Resolved { .. } => None,
    }
}

/// The code of what went wrong, if the event is about that.
fn error_code(event: &Event) -> Option<String> {
    failure(event).map(|failure| failure.code.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::OpKind;

    /// The arrows of a diagram, in any of the notations that the documents use: `a --> b: why`,
    /// `a|b -> c`, `a→b→c/d`.
    pub(super) fn arrows(diagram: &'static str) -> BTreeSet<(&'static str, &'static str)> {
        let mut arrows = BTreeSet::new();
        for line in diagram.lines().filter(|line| !line.contains("[*]")) {
            let path = line.split(':').next().unwrap_or(line);
            let stops: Vec<Vec<&str>> = path
                .split(['-', '>', '→'])
                .filter(|stop| !stop.trim().is_empty())
                .map(|stop| stop.split(['|', '/']).map(str::trim).collect())
                .collect();
            for pair in stops.windows(2) {
                let ends = pair[0].iter().flat_map(|from| pair[1].iter().map(|to| (*from, *to)));
                arrows.extend(ends);
            }
        }
        arrows
    }

    /// Checks that the contract's moves are the arrows of its document, and its additions are not.
    pub(super) fn check_moves(contract: &Contract, diagram: &'static str) {
        assert_eq!(contract.moves.iter().copied().collect::<BTreeSet<_>>(), arrows(diagram));
        for addition in contract.additions {
            let arrow = (addition.from, addition.to);
            assert!(!contract.moves.contains(&arrow), "{arrow:?} is not an addition");
        }
    }

    /// What each contract calls each state; a star is for a job that has started before.
    const IMAGES: &str = "
        scheduled        queued           pending    queued        QUEUED
        queued           queued           ready      queued        QUEUED
        queued*          running          running    running       EXECUTING
        dispatched       queued           ready      queued        DISPATCHED
        dispatched*      running          running    running       EXECUTING
        running*         running          running    running       EXECUTING
        waiting*         running          running    running       EXECUTING
        retry_scheduled* retry_scheduled  ready      retrying      EXECUTING
        interrupted*     interrupted      running    running       EXECUTING
        dlq_pending*     -                -          dlq_pending   -
        dlq_recorded*    -                -          dlq_recorded  -
        succeeded*       succeeded        succeeded  succeeded     SUCCEEDED
        partial*         succeeded        succeeded  succeeded     PARTIAL
        failed*          failed           failed     failed        FAILED
        cancelled        cancelled        cancelled  cancelled     CANCELLED
        cancelled*       cancelled        cancelled  cancelled     CANCELLED";

    #[test]
    fn each_state_has_its_image_in_each_contract() {
        let mut rows = IMAGES.lines().skip(1);
        for state in State::ALL {
            for started in [false, true].into_iter().filter(|bit| state.allows_started(*bit)) {
                let seen = CONTRACTS.map(|contract| contract.image(*state, started).unwrap_or("-"));
                let name = format!("{state}{}", if started { "*" } else { "" });
                let row: Vec<&str> = rows.next().unwrap().split_whitespace().collect();
                assert_eq!(row, [&[name.as_str()], &seen[..]].concat());
            }
        }
        assert_eq!(rows.next(), None);
    }

    #[test]
    fn a_contract_is_found_by_its_name() {
        for name in ["runs", "tasks", "jobs", "ingest"] {
            assert_eq!(Contract::named(name).map(|contract| contract.name), Some(name));
        }
        assert!(Contract::named("Runs").is_none());
    }

    #[test]
    fn each_contract_speaks_only_of_its_own_states() {
        for contract in CONTRACTS {
            let ends_of_moves = contract.all_moves().flat_map(|(from, to)| [from, to]);
            let words = ends_of_moves.chain(contract.begins.iter().chain(contract.ends).copied());
            let used: BTreeSet<&str> = words.collect();
            let states: BTreeSet<&str> = contract.states.iter().copied().collect();
            assert_eq!(used, states, "{}", contract.name);
            let images = State::ALL.iter().flat_map(|state| {
                [false, true].into_iter().filter_map(|started| contract.image(*state, started))
            });
            assert_eq!(images.collect::<BTreeSet<_>>(), states, "{}", contract.name);
        }
    }

    #[test]
    fn nothing_leads_out_of_the_end_of_a_contract() {
        for contract in CONTRACTS {
            for state in contract.states {
                let is_trap = !contract.all_moves().any(|(from, _)| from == *state);
                let is_end = contract.ends.contains(state);
                assert_eq!(is_end, is_trap, "{} of {}", state, contract.name);
            }
        }
    }

    #[test]
    fn an_end_of_the_machine_is_an_end_of_every_contract() {
        for contract in CONTRACTS {
            for state in State::ALL {
                let image = contract.image(*state, true);
                let shows_end = image.is_some_and(|image| contract.ends.contains(&image));
                assert_eq!(shows_end, state.is_end(), "{state} in {}", contract.name);
            }
        }
    }

    #[test]
    fn each_contract_refuses_in_its_own_code() {
        let illegal = Refusal::InvalidTransition { from: State::Succeeded, op: OpKind::Cancel };
        let codes = CONTRACTS.map(|contract| contract.code(&illegal));
        let expected = [
            "INVALID_TRANSITION",
            "TASK_INVALID_TRANSITION",
            "WF_STATE_TRANSITION_INVALID",
            "INVALID_TRANSITION",
        ];
        assert_eq!(codes, expected);
        for contract in CONTRACTS {
            assert_eq!(contract.code(&Refusal::StaleAttempt), "STALE_ATTEMPT");
            for (ours, _) in contract.codes {
                assert!(Refusal::CODES.iter().any(|info| info.code == *ours), "{ours}");
            }
        }
    }
}
