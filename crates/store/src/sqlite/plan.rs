//! What a batch does: decided, and not yet written.
//!
//! All that a row says is settled here, numbers included, so that the saver has nothing to decide and
//! nothing to give back.

use std::collections::HashMap;

use windlass_kernel::{About, JobId, NewPayload, TenantId, Timestamp, ids::ClaimId};

use super::{
    inbox,
    load::Place,
    names::{Names, Unsaved},
    ready::Ready,
};
use crate::{
    IdMap,
    commit::{Changes, Key, Row, WorkingSet},
    log,
    news::News,
    notes,
};

/// How many log ids stand in a job's row before the older ones move to their own table.
const LOG_IDS_INLINE: usize = 16;

/// What one transaction writes.
pub(super) struct Plan {
    pub(super) changes: Changes,
    /// Every job of the batch, as it is once this is written.
    pub(super) rows: IdMap<Row<Place>>,
    /// The keys that callers gave to these jobs.
    keys: HashMap<Key, JobId>,
    pub(super) names: Unsaved,
    pub(super) log: Vec<LogRow>,
    /// Log ids that no longer stand in the row of their job, with its number.
    pub(super) older: Vec<(i64, u64)>,
    /// What it takes out of the inbox.
    pub(super) inbox: inbox::Promotion,
    /// What it means to those who wait.
    pub(super) news: News,
    pub(super) now: Timestamp,
    /// The number of its last event, but for those of the inbox.
    pub(super) last_event: u64,
}

/// All events of the plan for one tenant.
pub(super) struct LogRow {
    pub(super) id: u64,
    pub(super) tenant: TenantId,
    pub(super) count: usize,
    pub(super) events: String,
    /// What its notes are about, with the numbers of their events.
    pub(super) noted: Vec<(u64, About)>,
    /// The numbers of the events and notes that tell what people did.
    pub(super) acts: Vec<u64>,
}

/// The greatest numbers that were given out.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub(super) event: u64,
    pub(super) seq: i64,
    /// No job has a later id.
    pub(super) newest: JobId,
    /// No claim that is remembered has a later id.
    pub(super) newest_claim: ClaimId,
}

impl Plan {
    /// Settles what has been decided.
    pub(super) fn new(
        mut set: WorkingSet<Place>,
        names: &mut Names,
        ready: &mut Ready,
        numbers: &mut Numbers,
        now: Timestamp,
    ) -> Self {
        let keys = set.take_keys();
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
            if place.history.log_ids().len() > LOG_IDS_INLINE {
                older.extend(place.history.take_older().into_iter().map(|id| (place.seq, id)));
            }
        }
        Self {
            changes,
            rows,
            keys,
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
    pub(super) fn is_empty(&self) -> bool {
        let Changes {
            created,
            updated,
            events,
            outputs,
            progress,
            letters,
            approvals,
            tasks,
            follow_ups,
            follow_ups_done,
            rules,
            rule_states,
            notes,
            schedules,
            tokens,
            marks,
            claims,
        } = &self.changes;
        created.is_empty()
            && updated.is_empty()
            && events.is_empty()
            && outputs.is_empty()
            && progress.is_empty()
            && letters.is_empty()
            && approvals.is_empty()
            && tasks.is_empty()
            && follow_ups.is_empty()
            && follow_ups_done.is_empty()
            && rules.is_empty()
            && rule_states.is_empty()
            && notes.is_empty()
            && schedules.is_empty()
            && tokens.is_empty()
            && marks.is_empty()
            && claims.is_empty()
            && self.names.is_empty()
            && self.inbox.is_empty()
    }

    /// The job of the plan that has this key.
    pub(super) fn by_key(&self, key: &Key) -> Option<&Row<Place>> {
        self.rows.get(self.keys.get(key)?)
    }

    /// The payload of a job that the plan creates.
    pub(super) fn new_payload(&self, id: JobId) -> Option<&NewPayload> {
        let mut created = self.changes.created.iter();
        created.find(|(created, _)| *created == id).map(|(_, payload)| payload)
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
