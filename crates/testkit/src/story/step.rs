//! Steps: what one line of a story says, and what it expects.

use std::time::Duration;

use serde_json::Value;
use windlass_kernel::Cause;

use super::{
    contract,
    deed::Deed,
    expect::Expect,
    words::{Name, Result, Words, unknown},
};

/// What one line says.
#[derive(Debug)]
pub(super) struct Step {
    /// What happens, or what is looked at.
    pub(super) action: Action,
    /// What is expected of it. Where nothing is, it only must not be refused.
    pub(super) expects: Vec<Expect>,
}

/// What happens, or what is looked at.
#[derive(Debug)]
pub(super) enum Action {
    /// One op.
    Do(Deed),
    /// A worker session is proved dead: all its leases end.
    Die { worker: String },
    /// Time passes, and timers fire on the way, unless nobody notices.
    Pass { time: Duration, unnoticed: bool },
    /// The store is restored from a copy.
    Restore,
    /// A job is run from where it stands to the end of one execution.
    Run { job: Name, ending: RunEnding },
    /// Nothing happens: a job is looked at.
    Expect { job: Name },
    /// The causes of all events of a job are looked at.
    Events { job: Name, causes: Vec<Cause> },
    /// The last event of a job is looked at, as a contract shows it.
    Event { job: Name, contract: Option<String>, fields: Value },
    /// The way of a job in the words of contract jobs is looked at, and shown.
    Replay { job: Name, statuses: Vec<String> },
}

/// How a run of a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnding {
    Succeeded,
    Failed,
    Transient,
}

impl Step {
    /// Reads a line, cut at its arrow.
    pub(super) fn read(mut words: Words, expected: Option<Words>) -> Result<Step> {
        let verb = words.word("the verb")?;
        if let Some(deed) = Deed::read(&verb, &mut words)? {
            return Ok(Step { action: Action::Do(deed), expects: Expect::read_all(expected)? });
        }
        match verb.as_str() {
            "events" | "replay" => read_history(&verb, &mut words, expected),
            "event" => read_event(&mut words, expected.is_some()),
            _ => {
                let action = read_action(&verb, &mut words)?;
                words.end()?;
                let expects = Expect::read_all(expected)?;
                if matches!(action, Action::Expect { .. }) && expects.is_empty() {
                    return Err("an arrow and what is expected are missing".to_owned());
                }
                Ok(Step { action, expects })
            }
        }
    }

    /// The jobs that the line names before its arrow, in order.
    pub(super) fn jobs(&self) -> Vec<Name> {
        match &self.action {
            Action::Do(deed) => deed.jobs(),
            Action::Run { job, .. }
            | Action::Expect { job }
            | Action::Events { job, .. }
            | Action::Event { job, .. }
            | Action::Replay { job, .. } => vec![*job],
            Action::Die { .. } | Action::Pass { .. } | Action::Restore => Vec::new(),
        }
    }
}

fn read_action(verb: &str, words: &mut Words) -> Result<Action> {
    Ok(match verb {
        "die" => Action::Die { worker: words.word("the worker")? },
        "pass" => {
            let time = words.duration("the time")?;
            Action::Pass { time, unnoticed: words.take("unnoticed") }
        }
        "restore" => Action::Restore,
        "run" => Action::Run { job: words.job("the job")?, ending: read_ending(words)? },
        "expect" => Action::Expect { job: words.job("the job")? },
        _ => {
            let others = "die pass restore run expect events event replay";
            return unknown("verb", verb, &format!("{} {others}", Deed::VERBS));
        }
    })
}

fn read_ending(words: &mut Words) -> Result<RunEnding> {
    let word = words.word("the ending")?;
    match word.as_str() {
        "succeeded" => Ok(RunEnding::Succeeded),
        "failed" => Ok(RunEnding::Failed),
        "transient" => Ok(RunEnding::Transient),
        _ => unknown("ending", &word, "succeeded failed transient"),
    }
}

/// Reads a line whose expectation is a list: all that ever happened, in order.
fn read_history(verb: &str, words: &mut Words, expected: Option<Words>) -> Result<Step> {
    let job = words.job("the job")?;
    words.end()?;
    let list = expected.ok_or("an arrow and what is expected are missing")?.rest();
    let list = list.split(' ');
    let action = if verb == "events" {
        let cause = |word| Cause::parse(word).ok_or(format!("there is no cause {word:?}"));
        Action::Events { job, causes: list.map(cause).collect::<Result<_>>()? }
    } else {
        let status = |word: &str| contract::status(word).map(str::to_owned);
        Action::Replay { job, statuses: list.map(status).collect::<Result<_>>()? }
    };
    Ok(Step { action, expects: Vec::new() })
}

fn read_event(words: &mut Words, has_arrow: bool) -> Result<Step> {
    if has_arrow {
        return Err("an event is expected as JSON, without an arrow".to_owned());
    }
    let job = words.job("the job")?;
    let mut word = words.word("the event")?;
    let contract = if word.starts_with('{') { None } else { Some(word.clone()) };
    if contract.is_some() {
        word = words.json("the event")?;
    }
    words.end()?;
    let fields =
        serde_json::from_str(&word).map_err(|error| format!("{word} is no JSON: {error}"))?;
    Ok(Step { action: Action::Event { job, contract, fields }, expects: Vec::new() })
}
