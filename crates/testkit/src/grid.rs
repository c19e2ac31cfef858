//! The grid: what each op does in each situation, asked of the kernel cell by cell.
//!
//! A column is a situation: a state, and whether the caller's lease is live, lost or none. A row is
//! an op, aimed at a job in that situation. A cell is a short name of what happened:
//!
//! - the states that the job entered, such as `queued` or `interrupted, failed`; `failed` stands
//!   for the whole way through `dlq_pending` and `dlq_recorded`, which is always taken at once;
//! - `noted` for an event that moves nothing, `renewed` for a lease, `letter …` for a dead letter;
//! - `recorded` if the answer came from the record and nothing was done;
//! - the code of a refusal, or [`NO_SUCH_OP`] where there is nothing to repeat.
//!
//! Jobs come into their situation by ordinary ops. Only `dlq_pending` and `dlq_recorded` are made
//! by hand, for no job is ever seen in them.

mod rows;
mod sample;

use std::collections::BTreeMap;

use windlass_kernel::{Answer, JobId, Refusal, State};

use self::{rows::ROWS, sample::Sample};
use crate::MapStore;

/// A cell whose op does not exist: nothing was claimed, settled or requeued that could be repeated.
pub const NO_SUCH_OP: &str = "—";

/// Situations that belong side by side.
pub struct Group {
    /// What they have in common.
    pub title: &'static str,
    /// Their names.
    pub situations: &'static [&'static str],
}

/// All situations.
pub const GROUPS: &[Group] = &[
    Group {
        title: "Before a worker has it",
        situations: &[
            "no job",
            "scheduled",
            "scheduled, due",
            "queued",
            "queued again",
            "queued, to cancel",
        ],
    },
    Group {
        title: "With a worker",
        situations: &[
            "dispatched",
            "dispatched, stale epoch",
            "dispatched, to cancel",
            "running",
            "running, stale epoch",
            "running, to cancel",
        ],
    },
    Group {
        title: "Between executions, and on the way to the dead letters",
        situations: &[
            "waiting",
            "retry_scheduled",
            "retry_scheduled, due",
            "interrupted",
            "dlq_pending",
            "dlq_recorded",
        ],
    },
    Group {
        title: "At its end",
        situations: &[
            "succeeded",
            "partial",
            "cancelled",
            "failed",
            "failed, discard requested",
            "failed, discarded",
            "failed, requeued",
        ],
    },
    Group {
        title: "Ended by somebody else",
        situations: &["succeeded, stale epoch", "cancelled, by force", "failed, given up"],
    },
];

/// The names of all ops, in order.
pub fn ops() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// The names of all situations, in order.
pub fn situations() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.situations).copied()
}

/// Every cell: by op and situation, what happens.
pub fn cells() -> BTreeMap<(&'static str, &'static str), String> {
    let pairs = ROWS.iter().flat_map(|row| situations().map(move |situation| (row, situation)));
    pairs.map(|(row, situation)| ((row.name, situation), cell(row, situation))).collect()
}

/// The grid as Markdown: one table for each group of situations, one row for each op.
pub fn markdown() -> String {
    let cells = cells();
    let mut text = String::from(
        "`–` is a refusal with `INVALID_TRANSITION`; an empty cell has nothing to repeat. \
         `failed` is the whole way through `dlq_pending` and `dlq_recorded`.\n",
    );
    for group in GROUPS {
        text.push_str(&format!("\n### {}\n\n| op |", group.title));
        group.situations.iter().for_each(|situation| text.push_str(&format!(" {situation} |")));
        text.push_str(&format!("\n|---|{}\n", "---|".repeat(group.situations.len())));
        for op in ops() {
            text.push_str(&format!("| {op} |"));
            for situation in group.situations {
                text.push_str(&format!(" {} |", shown(&cells[&(op, *situation)])));
            }
            text.push('\n');
        }
    }
    text
}

/// How a cell looks on a page: states stand out, codes are code.
fn shown(cell: &str) -> String {
    match cell {
        "INVALID_TRANSITION" => "–".to_owned(),
        NO_SUCH_OP => String::new(),
        code if code.chars().all(|c| c.is_ascii_uppercase() || c == '_') => format!("`{code}`"),
        happened => format!("**{happened}**"),
    }
}

fn cell(row: &rows::Row, situation: &str) -> String {
    let mut sample = Sample::of(situation);
    let Some(op) = (row.make)(&mut sample) else { return NO_SUCH_OP.to_owned() };
    let before = sample.store.clone();
    let result = sample.store.commit(&op, sample.now);
    name(&before, &sample.store, sample.job_id, &result)
}

/// The short name of what happened between two moments of a store.
fn name(
    before: &MapStore,
    after: &MapStore,
    job_id: JobId,
    result: &Result<Answer, Refusal>,
) -> String {
    let answer = match result {
        Ok(answer) => answer,
        Err(refusal) => return refusal.code().to_owned(),
    };
    let events = &after.events[before.events.len()..];
    let moves = events.iter().map(|e| if e.is_move() { e.to.as_str() } else { "noted" }).collect();
    if answer.recorded {
        "recorded".to_owned()
    } else if answer.job_id != job_id {
        format!("new job {}", joined(moves))
    } else if !events.is_empty() {
        joined(moves)
    } else if let Some(letter) = after.letters.values().find(|new| before.letters[&new.id] != **new)
    {
        format!("letter {}", letter.state)
    } else if after.jobs[&job_id].lease_count > before.jobs[&job_id].lease_count {
        "renewed".to_owned()
    } else {
        "unchanged".to_owned()
    }
}

/// The states entered, with the whole way to the dead letters as one.
fn joined(mut moves: Vec<&str>) -> String {
    let way = [State::DlqPending, State::DlqRecorded, State::Failed].map(State::as_str);
    if moves.ends_with(&way) {
        moves.truncate(moves.len() - way.len());
        moves.push(State::Failed.as_str());
    }
    moves.join(", ")
}
