//! Can each job be found by whatever moves it next? Queue, time, lease and wait, from the row alone.

use windlass_kernel::{Event, Fact, Job, State, Timestamp};

use super::{
    Invariant,
    moves::{ENDS, LEASED},
    values::{Group, JobRow, Places},
};

/// From this many interruptions on, a job is claimed alone.
const ISOLATED_FROM: u32 = 2;

/// Checks the columns by which a job is found.
pub(super) fn check(
    row: &JobRow,
    places: &Places,
    events: &[Event],
    add: &mut impl FnMut(Invariant, String),
) {
    let job = &row.job;
    let state = job.state;
    if job.next_retry_at.is_some() != (state == State::RetryScheduled) {
        add(
            Invariant::RetryTime,
            format!("is {state} and its retry is due at {:?}", job.next_retry_at),
        );
    }
    if job.wait.is_some() != (state == State::Waiting) {
        add(Invariant::Wait, format!("is {state} and waits for {:?}", job.wait));
    }
    lease(row, places, events, add);
    if places.groups.get(&row.group_id) != Some(&group(job)) {
        add(
            Invariant::Reachable,
            format!("is {state} in group {}, which is not its own", row.group_id),
        );
    }
    let alarm = first_alarm(row);
    if row.timer_at != alarm {
        add(Invariant::Reachable, format!("has its timer at {:?}, not {alarm:?}", row.timer_at));
    }
}

fn lease(row: &JobRow, places: &Places, events: &[Event], add: &mut impl FnMut(Invariant, String)) {
    let (state, lease) = (row.job.state, &row.lease);
    let claims = events.iter().filter(|event| matches!(event.fact, Fact::Claimed { .. })).count();
    if row.job.lease_count < claims as u64 {
        let count = row.job.lease_count;
        add(Invariant::Lease, format!("was claimed {claims} times and counts {count} leases"));
    }
    let held = LEASED.contains(&state);
    if [lease.session.is_some(), lease.beat_at.is_some()] != [held; 2] {
        add(Invariant::Lease, format!("is {state} and session {:?} holds it", lease.session));
        return;
    }
    let Some(session) = lease.session else { return };
    let last_claim = events.iter().rev().find_map(|event| match &event.fact {
        Fact::Claimed { worker, .. } => Some(worker.as_str()),
        _ => None,
    });
    match places.sessions.get(&session) {
        None => add(Invariant::Lease, format!("is held by session {session}, which is not there")),
        Some(worker) if last_claim.is_some_and(|claimed| claimed != worker) => {
            add(Invariant::Lease, format!("is held by {worker}, who did not claim it last"));
        }
        Some(_) => {}
    }
}

fn group(job: &Job) -> Group {
    let spec = &job.spec;
    Group {
        queue: spec.queue.as_str().to_owned(),
        tenant: spec.tenant.as_str().to_owned(),
        kind: spec.kind.as_str().to_owned(),
        isolated: job.interruptions >= ISOLATED_FROM,
    }
}

/// The first thing that time does to the job. Its lease rings with the session.
fn first_alarm(row: &JobRow) -> Option<Timestamp> {
    let (job, spec) = (&row.job, &row.job.spec);
    if ENDS.contains(&job.state) {
        return None;
    }
    let after = |from: Option<Timestamp>, length| Some(from?.plus(length?));
    let when = |holds: bool, at: Option<Timestamp>| at.filter(|_| holds);
    let runs = job.state == State::Running;
    let unstarted =
        [State::Queued, State::Dispatched].contains(&job.state) && job.started_at.is_none();
    let alarms = [
        when(job.state == State::Scheduled, Some(spec.due_at)),
        job.wait.as_ref().and_then(|wait| wait.until),
        when(runs, after(job.execution_started_at, spec.timeout)),
        when(runs, after(row.lease.beat_at, spec.heartbeat_timeout)),
        when(unstarted, after(Some(spec.due_at), spec.schedule_to_start)),
        spec.deadline_at,
        job.cancel.as_ref().map(|request| request.grace_until),
    ];
    alarms.into_iter().flatten().min()
}
