//! One job: its history, and whether its row is what the history says.

use windlass_kernel::{DlqId, Event, Job, Payload, State, fold, job::Origin};

use super::{
    Invariant, Report, history, reach,
    values::{JobRow, Line, Places, Run},
};

/// Checks a job with all its lines, in the order of the log. A run of a named task is given back.
pub(crate) fn check(
    row: &JobRow,
    lines: &[Line],
    places: &Places,
    report: &mut Report,
) -> Option<Run> {
    report.jobs += 1;
    let before = report.found();
    let events = history::read(row, lines, report);
    if let Some(events) = &events {
        history::check(row, events, lines, report);
    }
    let sound = report.found() == before;
    let (version, last) = (row.job.version, lines.len() as u64);
    let mut add = |rule, sentence: String| report.add_job(rule, row.job.id, sentence, lines, None);
    if events.is_some() && version != last {
        add(Invariant::Version, format!("has version {version} and {last} events"));
    }
    if !row.parent_knows {
        add(Invariant::Owner, "has a parent and is not noted as its child".to_owned());
    }
    letter(row, &mut add);
    payload(row, &mut add);
    reach::check(row, places, events.as_deref().unwrap_or_default(), &mut add);
    // A row is judged by its history only if that is sound.
    if let Some(events) = events.as_ref().filter(|_| sound) {
        let wrong = unlike_fold(&row.job, events);
        if !wrong.is_empty() {
            let sentence = format!("is not what its events make of it: {}", wrong.join(", "));
            report.add_job(Invariant::Fold, row.job.id, sentence, lines, None);
        }
    }
    row.job.spec.task_given.then(|| run(row, events.as_deref().unwrap_or_default()))
}

/// What the history makes of the row, lease and lease count aside.
fn unlike_fold(row: &Job, events: &[Event]) -> Vec<&'static str> {
    let Some(folded) = fold(events) else { return vec!["everything"] };
    macro_rules! unlike {
        ($($field:ident)*) => {
            [$((stringify!($field), folded.$field != row.$field)),*]
        };
    }
    let fields = unlike!(
        id spec state attempt retry_count epoch claim_id interruptions started_at
        attempt_started_at execution_started_at updated_at finished_at next_retry_at wait woken cancel
        error ended_by dlq_id result remaining settles
    );
    fields.into_iter().filter(|(_, unlike)| *unlike).map(|(field, _)| field).collect()
}

fn letter(row: &JobRow, add: &mut impl FnMut(Invariant, String)) {
    let failed = u64::from(row.job.state == State::Failed);
    if row.letters != failed {
        let state = row.job.state;
        add(Invariant::OneLetter, format!("is {state} and has {} dead letters", row.letters));
    } else if row.dlq_id.map(DlqId::as_u128) != (failed == 1).then(|| row.job.id.as_u128()) {
        add(
            Invariant::OneLetter,
            format!("is {} and names the letter {:?}", row.job.state, row.dlq_id),
        );
    }
    let Origin::Requeued(letter) = row.job.spec.origin else { return };
    match &row.came_from {
        Some(from) if from.tenant != row.job.spec.tenant.as_str() => {
            add(Invariant::Tenant, format!("took over {letter}, which belongs to {}", from.tenant));
        }
        Some(from) if from.requeued_as == Some(row.job.id) => {}
        Some(_) => add(Invariant::Requeued, format!("took over {letter}, which names another")),
        None if row.origin_forgotten => {}
        None => add(Invariant::Requeued, format!("took over {letter}, which is not there")),
    }
}

fn payload(row: &JobRow, add: &mut impl FnMut(Invariant, String)) {
    let digest = |text: &Option<String>| {
        let text = text.as_deref()?;
        Payload::parse(text, usize::MAX).ok().map(|payload| payload.digest())
    };
    let job = &row.job;
    let parts = [
        ("payload", digest(&row.payload), Some(job.spec.payload_digest)),
        ("result", digest(&row.result), job.result),
        ("remaining", digest(&row.remaining), job.remaining),
    ];
    for (name, found, expected) in parts {
        if found != expected {
            add(Invariant::Payload, format!("has another {name} than its digest says"));
        }
    }
}

fn run(row: &JobRow, events: &[Event]) -> Run {
    let job = &row.job;
    let first = events.first().map_or(job.attempt, |event| event.attempt);
    Run {
        job: job.id,
        tenant: job.spec.tenant.clone(),
        task: job.spec.task_id.as_str().to_owned(),
        first,
        last: job.attempt,
        ended: job.finished_at.is_some(),
        next_attempt: None,
    }
}
