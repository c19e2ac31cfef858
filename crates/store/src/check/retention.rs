//! Retention: what is gone was at its end for long enough, and went whole.

use windlass_kernel::{JobId, Timestamp};

use super::{
    Invariant, Report, line,
    moves::ENDS,
    values::{Line, PrunedRow},
};

/// Checks a job that is not there, with all that the log still says of it.
pub(crate) fn check_gone(
    job: JobId,
    pruned: Option<&PrunedRow>,
    lines: &[Line],
    report: &mut Report,
) {
    let Some(pruned) = pruned else {
        let sentence = "is spoken of in the log and is not there";
        report.add_job(Invariant::Owner, job, sentence, lines, None);
        return;
    };
    let mut add =
        |sentence: String| report.add_job(Invariant::Retention, job, sentence, lines, None);
    let mut rows: Vec<u64> = lines.iter().map(|line| line.log_id).collect();
    rows.dedup();
    if rows.len() as u64 != pruned.rows {
        let sentence =
            format!("was forgotten, and {} log rows speak of it, not {}", rows.len(), pruned.rows);
        add(sentence);
    }
    let Some(last) = lines.last() else { return };
    // The row with its end may have gone before the others: then its last line is not its last event.
    match line::number_and_state(&last.text) {
        Some((number, _)) if number < pruned.version => {}
        Some((number, state)) if number == pruned.version && ENDS.contains(&state) => {
            check_age(pruned, last.at, &mut add);
        }
        Some((number, state)) => {
            add(format!(
                "was forgotten in {state}, after event {number}, and that is no end of it"
            ));
        }
        None => add("was forgotten, and its last line cannot be read".to_owned()),
    }
}

fn check_age(pruned: &PrunedRow, ended_at: Timestamp, add: &mut impl FnMut(String)) {
    let age = pruned.at.since(ended_at);
    if pruned.at < ended_at || age < pruned.least {
        add(format!("was forgotten {age:?} after its end, and had to stay for {:?}", pruned.least));
    }
}

/// A job of which something is left, though it was forgotten.
pub(crate) fn check_left(job: JobId, what: &str, report: &mut Report) {
    report.add_job(Invariant::Retention, job, format!("was forgotten, and {what}"), &[], None);
}
