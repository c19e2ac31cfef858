//! Dead letters: whether they are true, and whether what became of them was allowed.

use windlass_kernel::{Approval, LetterState, State, job::Origin, letter::ApprovalStep};

use super::{Invariant, Report, values::LetterRow};

/// Checks one dead letter with everything it names.
pub(crate) fn check(row: &LetterRow, report: &mut Report) {
    report.letters += 1;
    let mut add = |rule, sentence: String| report.add_job(rule, row.job_id, sentence, &[], None);
    columns(row, &mut add);
    job(row, &mut add);
    time(row, &mut add);
    match row.letter.state {
        LetterState::Open => undecided(row, &[], &mut add),
        LetterState::DiscardRequested => undecided(row, &[ApprovalStep::Requested], &mut add),
        LetterState::Discarded => discarded(row, &mut add),
        LetterState::Requeued => requeued(row, &mut add),
    }
}

/// The columns say what the letter says.
fn columns(row: &LetterRow, add: &mut impl FnMut(Invariant, String)) {
    let letter = &row.letter;
    let same = [
        ("id", row.id == letter.id && row.id.as_u128() == row.job_id.as_u128()),
        ("job", row.job_id == letter.job_id),
        ("state", row.state == Some(letter.state)),
        ("code", row.code == letter.failure.code),
        ("created_at", row.created_at == letter.created_at),
        ("requeued_as", row.requeued_as == letter.requeued_as),
        ("closed_at", row.closed_at == letter.closed_at),
    ];
    for (name, _) in same.iter().filter(|(_, same)| !same) {
        add(Invariant::LetterTrue, format!("has a letter whose column {name} says something else"));
    }
    if row.tenant != letter.tenant.as_str() {
        add(Invariant::Tenant, format!("has a letter in the rows of {}", row.tenant));
    }
}

/// The letter speaks of a job that failed, and says what that job says.
fn job(row: &LetterRow, add: &mut impl FnMut(Invariant, String)) {
    let Some(job) = &row.job else {
        add(Invariant::OneLetter, "has a dead letter and is not there".to_owned());
        return;
    };
    if job.state != State::Failed {
        // Told by the job already, which counts its letters.
        return;
    }
    let letter = &row.letter;
    if job.spec.tenant != letter.tenant {
        add(Invariant::Tenant, format!("has a letter that belongs to {}", letter.tenant));
    }
    let same = [
        ("why", job.ended_by == Some(letter.why)),
        ("failure", job.error.as_ref() == Some(&letter.failure)),
        ("attempt", job.attempt == letter.attempt),
        ("epoch", job.epoch == letter.epoch),
        ("payload", job.spec.payload_digest == letter.payload_digest),
    ];
    for (name, _) in same.iter().filter(|(_, same)| !same) {
        add(Invariant::LetterTrue, format!("has a letter that knows another {name}"));
    }
}

fn time(row: &LetterRow, add: &mut impl FnMut(Invariant, String)) {
    let created = row.letter.created_at;
    if row.job.as_ref().and_then(|job| job.finished_at).is_some_and(|at| at != created) {
        add(Invariant::Time, format!("failed at another time than its letter, {created}"));
    }
    let mut later = row.approvals.iter().map(|approval| approval.at).chain(row.letter.closed_at);
    if later.any(|at| at < created) {
        add(Invariant::Time, "has a letter that was decided before it was written".to_owned());
    }
}

/// Someone asked, or nobody did; and nothing was decided.
fn undecided(row: &LetterRow, expected: &[ApprovalStep], add: &mut impl FnMut(Invariant, String)) {
    let state = row.letter.state;
    let steps: Vec<ApprovalStep> = row.approvals.iter().map(|approval| approval.step).collect();
    if steps != expected {
        add(Invariant::TwoPeople, format!("has a letter that is {state} with {steps:?}"));
    }
    if row.letter.requeued_as.is_some() || row.letter.closed_at.is_some() {
        add(Invariant::LetterTrue, format!("has a letter that is {state} and closed"));
    }
    asked(row, add);
}

/// Whoever asked is who the letter says, in the words it says.
fn asked(row: &LetterRow, add: &mut impl FnMut(Invariant, String)) {
    let letter = &row.letter;
    let asked = row.approvals.iter().find(|approval| approval.step == ApprovalStep::Requested);
    if asked.map(|it| &it.principal) != letter.discard_requested_by.as_ref()
        || asked.map(|it| &it.reason) != letter.discard_reason.as_ref()
    {
        add(Invariant::TwoPeople, "has a letter that someone else asked to discard".to_owned());
    }
}

fn discarded(row: &LetterRow, add: &mut impl FnMut(Invariant, String)) {
    let by = |step| row.approvals.iter().find(|approval| approval.step == step);
    let has_reason = |approval: &Approval| !approval.reason.trim().is_empty();
    match (by(ApprovalStep::Requested), by(ApprovalStep::Approved)) {
        (Some(one), Some(other)) if one.principal == other.principal => {
            add(
                Invariant::TwoPeople,
                format!("has a letter that {} alone discarded", one.principal),
            );
        }
        (Some(one), Some(other)) if has_reason(one) && has_reason(other) => asked(row, add),
        (Some(_), Some(_)) => {
            add(Invariant::TwoPeople, "has a letter discarded without a reason".to_owned());
        }
        _ => add(Invariant::TwoPeople, "has a letter discarded without two people".to_owned()),
    }
    if row.letter.closed_at.is_none() {
        add(Invariant::LetterTrue, "has a letter that was discarded at no time".to_owned());
    }
}

fn requeued(row: &LetterRow, add: &mut impl FnMut(Invariant, String)) {
    let named = row.letter.requeued_as;
    match &row.heir {
        Some(heir) if heir.spec.origin != Origin::Requeued(row.letter.id) => {
            add(
                Invariant::Requeued,
                format!("has a letter taken over by {}, which came from elsewhere", heir.id),
            );
        }
        Some(heir) if heir.spec.tenant != row.letter.tenant => {
            add(
                Invariant::Tenant,
                format!("has a letter taken over by {}, of another tenant", heir.id),
            );
        }
        Some(heir) if Some(heir.id) == named => {}
        None if named.is_some() && row.heir_forgotten => {}
        _ => {
            add(
                Invariant::Requeued,
                format!("has a letter taken over by {named:?}, which is not there"),
            );
        }
    }
    if row.letter.closed_at.is_none() {
        add(Invariant::LetterTrue, "has a letter that was requeued at no time".to_owned());
    }
    asked(row, add);
}
