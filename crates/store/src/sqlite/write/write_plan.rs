//! What a batch does: decided, and not yet written.
//!
//! All that a row says is settled here, numbers included, so that the saver has nothing to decide and
//! nothing to give back.

use std::collections::HashMap;

use windlass_kernel::{About, JobId, NewPayload, TenantId, Timestamp, ids::ClaimId};

use crate::{
    IdMap,
    commit::{Changes, Key, Row, Unique, WorkingSet},
    log,
    news::News,
    notes,
    packed::History,
    sqlite::{
        claim::{
            names::{Names, Unsaved},
            ready::Ready,
        },
        row::{inbox, job::Place},
    },
};

/// What one transaction writes.
pub(crate) struct WritePlan {
    pub(crate) changes: Changes,
    /// Every job of the batch, as it is once this is written.
    pub(crate) rows: IdMap<Row<Place>>,
    /// The keys that callers gave to these jobs.
    keys: HashMap<Key, JobId>,
    uniques: HashMap<Unique, JobId>,
    pub(crate) names: Unsaved,
    pub(crate) log: Vec<LogRow>,
    /// Log ids that no longer stand in the row of their job, with its number.
    pub(crate) older: Vec<(i64, u64)>,
    /// What it takes out of the inbox.
    pub(crate) inbox: inbox::Promotion,
    /// What it means to those who wait.
    pub(crate) news: News,
    pub(crate) now: Timestamp,
    /// The number of its last event, but for those of the inbox.
    pub(crate) last_event: u64,
}

/// All events of the plan for one tenant.
pub(crate) struct LogRow {
    pub(crate) id: u64,
    pub(crate) tenant: TenantId,
    pub(crate) count: usize,
    pub(crate) events: String,
    /// What its notes are about, with the numbers of their events.
    pub(crate) noted: Vec<(u64, About)>,
    /// The numbers of the events and notes that tell what people did.
    pub(crate) acts: Vec<u64>,
}

/// The greatest numbers that were given out.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) event: u64,
    pub(crate) seq: i64,
    /// No job has a later id.
    pub(crate) newest: JobId,
    /// No claim that is remembered has a later id.
    pub(crate) newest_claim: ClaimId,
}

impl WritePlan {
    /// Settles what has been decided.
    pub(crate) fn new(
        mut set: WorkingSet<Place>,
        names: &mut Names,
        ready: &mut Ready,
        numbers: &mut Numbers,
        now: Timestamp,
    ) -> Self {
        let (keys, uniques) = (set.take_keys(), set.take_uniques());
        let (changes, mut rows) = set.finish();
        for (id, _) in &changes.created {
            numbers.seq += 1;
            numbers.newest = numbers.newest.max(*id);
            rows.get_mut(id).expect("it was just created").place.seq = numbers.seq;
        }
        for claim in &changes.claims {
            numbers.newest_claim = numbers.newest_claim.max(*claim);
        }
        let log = write_log(&changes, &mut rows, numbers, now);
        let mut older = Vec::new();
        let mut news = News::of(&changes);
        for id in changes.created.iter().map(|(id, _)| id).chain(&changes.updated) {
            let Row { job, place, before, .. } = rows.get_mut(id).expect("it is part of the batch");
            let left = place.group;
            if left.is_none() {
                place.lane = job.spec.lane();
            }
            place.group = Some(names.group(job, place));
            let before = before.as_deref().zip(left.map(|(group, _)| group));
            ready.note(before, job, place);
            let session = job.lease.as_ref().map(|lease| {
                names.session_of(&lease.worker).expect("a session begins with its first lease")
            });
            place.session = session.map(|(id, _)| id);
            news.add(job, session.map_or(Timestamp::MIN, |(_, session)| session.until), now);
            if place.history.log_ids().len() > History::LOG_IDS_INLINE {
                older.extend(place.history.take_older().into_iter().map(|id| (place.seq, id)));
            }
        }
        Self {
            changes,
            rows,
            keys,
            uniques,
            names: names.take_unsaved(),
            log,
            older,
            inbox: inbox::Promotion::default(),
            news,
            now,
            last_event: numbers.event,
        }
    }

    /// Is there nothing to write?
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.names.is_empty() && self.inbox.is_empty()
    }

    /// The job of the plan that has this key.
    pub(crate) fn by_key(&self, key: &Key) -> Option<&Row<Place>> {
        self.rows.get(self.keys.get(key)?)
    }

    /// The job of the plan that was the last to have this unique key.
    pub(crate) fn by_unique(&self, unique: &Unique) -> Option<JobId> {
        self.uniques.get(unique).copied()
    }

    /// The payload of a job that the plan creates.
    pub(crate) fn new_payload(&self, id: JobId) -> Option<&NewPayload> {
        self.changes.new_payload(id)
    }
}

/// One row for each tenant, with all its events and then its notes. Each job learns where its events are.
fn write_log(
    changes: &Changes,
    rows: &mut IdMap<Row<Place>>,
    numbers: &mut Numbers,
    now: Timestamp,
) -> Vec<LogRow> {
    let write = |tenant: &TenantId| {
        let events = changes.events.get(tenant).map_or(&[][..], Vec::as_slice);
        let id = numbers.event + 1;
        let mut text = String::with_capacity(events.len() * 256);
        let mut acts = Vec::new();
        for (number, event) in (id..).zip(events) {
            if event.is_act() {
                acts.push(number);
            }
            text.push(if text.is_empty() { '[' } else { ',' });
            let start = text.len();
            log::encode(event, &mut text);
            let row = rows.get_mut(&event.job_id).expect("an event is of a job of this commit");
            let history = &mut row.place.history;
            history.add(&log::extend(history.chain(), now, &text[start..]), id);
        }
        let mine = notes::of(changes, tenant);
        notes::append(&mine, &mut text);
        text.push(']');
        let numbered = || (id + events.len() as u64..).zip(&mine);
        let noted = numbered().map(|(number, note)| (number, note.about.clone())).collect();
        acts.extend(numbered().filter(|(_, note)| note.is_act()).map(|(number, _)| number));
        let count = events.len() + mine.len();
        numbers.event += count as u64;
        LogRow { id, tenant: tenant.clone(), count, events: text, noted, acts }
    };
    notes::tenants(changes).into_iter().map(write).collect()
}
