//! Compares what a ledger says with what is stored. It reads with SQL of its own, so that no mistake of the
//! store's reads hides a mistake of its writes.

use std::collections::BTreeMap;

use windlass_kernel::{Epoch, JobId, State};
use windlass_testkit::refusals::{self, RefusalNote, Step};

use crate::{
    common::{Home as _, postgres::SchemaHome},
    load::Ledger,
};

/// One event, as the view of the database tells it.
struct Event {
    /// Its number in the feed, and in the history of its job.
    feed_number: u64,
    number: i64,
    cause: String,
    from: Option<String>,
    to: String,
    epoch: u64,
}

const EVENTS: &str = "
    SELECT number, job_id, job_number, cause, from_state, to_state, epoch FROM events ORDER BY number";
const JOBS: &str = "SELECT id::text, version, state, epoch FROM jobs";
const LETTERS: &str = "SELECT count(*), count(DISTINCT job_id) FROM dlq_items";

/// All that was acknowledged is there once, nothing is there that nobody asked for, and the history of each
/// job says what its row says. Gives back how many jobs there are.
pub(crate) fn judge(home: &SchemaHome, ledger: &Ledger) -> usize {
    let histories = read_histories(home);
    for id in histories.keys() {
        assert!(ledger.asked.contains(id), "nobody asked for job {id:x}");
    }
    for (id, history) in &histories {
        judge_history(*id, history);
    }
    judge_rows(home, &histories);
    for id in &ledger.made {
        assert!(histories.contains_key(id), "job {id:x} was acknowledged and is lost");
    }
    let times = |id: u128, what: &dyn Fn(&Event) -> bool| {
        histories.get(&id).map_or(0, |history| history.iter().filter(|it| what(it)).count())
    };
    for (id, epoch) in ledger.granted.keys() {
        let granted = times(*id, &|it| is_claim(it) && it.epoch == *epoch);
        assert_eq!(granted, 1, "job {id:x} was granted under epoch {epoch}");
    }
    for ((id, epoch), state) in &ledger.settled {
        let settled = times(*id, &|it| {
            it.to == state.as_str() && it.epoch == *epoch && it.from.as_deref() != Some(&it.to)
        });
        assert_eq!(settled, 1, "job {id:x} was settled as {state} under epoch {epoch}");
    }
    let refused = refusals::unfounded(&ledger.refused, steps(&histories));
    assert!(refused.is_empty(), "live leases were refused: {refused:?}");
    for id in &ledger.cancelled {
        assert_eq!(times(*id, &|it| it.to == "cancelled"), 1, "job {id:x} was cancelled");
    }
    for id in ledger.requeued.values() {
        assert!(histories.contains_key(id), "job {id:x} was made from a letter and is lost");
    }
    let report = home.check();
    assert!(report.is_clean(), "{report}");
    histories.len()
}

/// Refusals for which the history has no reason.
pub(crate) fn unfounded(home: &SchemaHome, refused: &[RefusalNote]) -> Vec<RefusalNote> {
    refusals::unfounded(refused, steps(&read_histories(home)))
}

/// The histories, as refusals are judged by them.
fn steps(histories: &BTreeMap<u128, Vec<Event>>) -> impl Iterator<Item = Step> {
    histories.iter().flat_map(|(id, history)| {
        history.iter().map(|event| Step {
            number: event.feed_number,
            job_id: JobId::from_u128(*id),
            epoch: Epoch::new(event.epoch),
            to: State::parse(&event.to).unwrap(),
        })
    })
}

fn is_claim(event: &Event) -> bool {
    event.to == "dispatched" && event.from.as_deref() != Some("dispatched")
}

/// The numbers of the feed have no gap, and neither have those of each job.
fn read_histories(home: &SchemaHome) -> BTreeMap<u128, Vec<Event>> {
    let mut histories: BTreeMap<u128, Vec<Event>> = BTreeMap::new();
    for (place, row) in (1..).zip(home.sql().query(EVENTS, &[])) {
        assert_eq!(row.get::<_, i64>(0), place, "the feed has a gap");
        // A note is in no job's history.
        let Some(number) = row.get::<_, Option<i64>>(2) else { continue };
        let id: JobId = row.get::<_, &str>(1).parse().unwrap();
        histories.entry(id.as_u128()).or_default().push(Event {
            feed_number: u64::try_from(place).unwrap(),
            number,
            cause: row.get(3),
            from: row.get(4),
            to: row.get(5),
            epoch: u64::try_from(row.get::<_, i64>(6)).unwrap(),
        });
    }
    histories
}

/// The number of an id as a column of the database shows it.
pub(crate) fn number_of(id: &str) -> u128 {
    u128::from_str_radix(&id.replace('-', ""), 16).unwrap()
}

fn judge_history(id: u128, history: &[Event]) {
    let mut before: Option<&Event> = None;
    for (place, event) in (1..).zip(history) {
        assert_eq!(event.number, place, "job {id:x} has a gap, or something twice");
        assert_eq!(event.cause == "enqueued" || event.cause == "requeued", place == 1);
        if let Some(before) = before {
            assert_eq!(event.from.as_deref(), Some(&*before.to), "job {id:x} jumps");
            assert!(event.epoch >= before.epoch, "job {id:x} goes back");
            let is_granted = event.epoch > before.epoch;
            assert_eq!(is_granted, is_claim(event), "job {id:x}: one grant, one epoch");
        }
        before = Some(event);
    }
    let is_end = |event: &&Event| matches!(&*event.to, "succeeded" | "failed" | "cancelled");
    assert!(history.iter().filter(is_end).count() <= 1, "job {id:x} ended twice");
}

fn judge_rows(home: &SchemaHome, histories: &BTreeMap<u128, Vec<Event>>) {
    let rows = home.sql().query(JOBS, &[]);
    assert_eq!(rows.len(), histories.len(), "each job has a history, and each history a job");
    for row in rows {
        let id = number_of(row.get(0));
        let last = histories[&id].last().unwrap();
        let (version, state, epoch): (i64, &str, i64) = (row.get(1), row.get(2), row.get(3));
        let stored = (version, state, u64::try_from(epoch).unwrap());
        assert_eq!(stored, (last.number, &*last.to, last.epoch), "job {id:x} is half written");
    }
    let letters = home.sql().query(LETTERS, &[]);
    assert_eq!(letters[0].get::<_, i64>(0), letters[0].get::<_, i64>(1));
}
