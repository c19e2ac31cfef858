//! The attempts of a job, as the API tells them: how each ended, and who had it in hand.
//!
//! Who had it is history, so it is read from the events. Of a history that is very long, the beginning and the end are
//! looked through; what lies between is left out.

use std::collections::BTreeMap;

use windlass::wire::{AttemptDocument, List};
use windlass_kernel::{Actor, Event, Job, State, WorkerId, event::Fact};
use windlass_store::read::PlacedEvent;

use crate::http::core::{
    problem::Problem,
    route::{Answer, Call},
};

/// `GET /api/v1/jobs/{id}/attempts`
pub(crate) async fn attempts(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    let job = call.app.job(&call, id).await?;
    let after: u32 = call.query.get("cursor")?.unwrap_or(0);
    let limit = call.query.number("limit", 1_000)?.unwrap_or(1_000);
    let limit = usize::try_from(limit.max(1)).expect("it is bounded");
    let page = call.engine().store().attempts(call.scope(), id, after, limit).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| last.attempt.to_string());
    let mut hands = read_hands(&call, &job).await?;
    let items = page.items.into_iter().map(|attempt| {
        let Hands { first, last, ended_by } = hands.remove(&attempt.attempt).unwrap_or_default();
        let (first_worker, last_worker) = (first, last);
        AttemptDocument { first_worker, last_worker, ended_by, ..attempt.into() }
    });
    Ok(Answer::ok(&List { items: items.collect(), next }))
}

/// Who had an attempt in hand.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hands {
    first: Option<WorkerId>,
    last: Option<WorkerId>,
    ended_by: Option<Actor>,
}

/// How many events are looked through at the beginning of a history, and as many at its end.
const EVENTS_MAX: u64 = 2_000;

/// Who had each attempt in hand, as the history says it.
async fn read_hands(call: &Call, job: &Job) -> Result<BTreeMap<u32, Hands>, Problem> {
    let (store, limit) =
        (call.engine().own_store()?, usize::try_from(EVENTS_MAX).expect("it is small"));
    let read = async |after: u64| -> Result<Vec<PlacedEvent>, Problem> {
        let page = store.events_after(call.scope(), job.id, after, limit).await?;
        Ok(page.map(|page| page.items).unwrap_or_default())
    };
    let mut hands = BTreeMap::new();
    read(0).await?.iter().for_each(|it| note(&mut hands, &it.event));
    if job.version > EVENTS_MAX {
        let after = (job.version - EVENTS_MAX).max(EVENTS_MAX);
        let rest = read(after).await?;
        // Who had this one first is between the two parts, unless it is in the first.
        let cut = rest.first().map(|it| it.event.attempt).filter(|_| after > EVENTS_MAX);
        let cut = cut.filter(|attempt| !hands.contains_key(attempt));
        rest.iter().for_each(|it| note(&mut hands, &it.event));
        if let Some(it) = cut.and_then(|attempt| hands.get_mut(&attempt)) {
            it.first = None;
        }
    }
    Ok(hands)
}

/// Notes what an event says of the hands that an attempt was in. Events come in their order.
fn note(hands: &mut BTreeMap<u32, Hands>, event: &Event) {
    if let Fact::Claimed { worker, .. } = &event.fact {
        let it = hands.entry(event.attempt).or_default();
        it.first.get_or_insert_with(|| worker.clone());
        it.last = Some(worker.clone());
    }
    let is_end = match event.to {
        State::RetryScheduled
        | State::Succeeded
        | State::Partial
        | State::DlqPending
        | State::Cancelled => true,
        State::Scheduled
        | State::Queued
        | State::Dispatched
        | State::Running
        | State::Waiting
        | State::Interrupted
        | State::DlqRecorded
        | State::Failed => false,
    };
    // What happens to the job between two attempts has the number of the first, whose end is known then.
    if is_end && let Some(it) = hands.get_mut(&event.attempt) {
        it.ended_by.get_or_insert_with(|| event.actor.clone());
    }
}
