//! The log rows of a commit, their numbers, and the end of the commit, which gives them their places in the feed.

use windlass_kernel::Timestamp;

use crate::{
    IdMap,
    commit::{Changes, Row},
    log, notes,
    postgres::{
        link::{
            pipeline::Ask,
            types::{Time, Uuid},
        },
        row::{act::Acts, job::Place, job_save::UPDATE_AND_FINISH, note::Noted},
    },
};

/// The log rows of one commit, in the order they have in the feed.
#[derive(Default)]
pub(crate) struct LogRows {
    pub(crate) seqs: Vec<i64>,
    counts: Vec<i32>,
    tenants: Vec<String>,
    texts: Vec<String>,
    noted: Noted,
    acts: Acts,
}

impl LogRows {
    /// Begins a row. Its number is the next of the block that the commit has.
    pub(crate) fn begin(&mut self, block: &mut Block) -> i64 {
        let seq = block.next();
        self.seqs.push(seq);
        seq
    }

    /// Says what stands in the row that was begun.
    pub(crate) fn end(&mut self, tenant: &str, count: usize, text: String) {
        self.counts.push(i32::try_from(count).expect("a batch is bounded"));
        self.tenants.push(tenant.to_owned());
        self.texts.push(text);
    }
}

/// The numbers that a commit may give to its log rows.
pub(crate) struct Block {
    next: i64,
    end: i64,
    /// Where further blocks begin.
    more: Vec<i64>,
}

impl Block {
    /// How many numbers each commit gets. It is the step of the sequence `log_seq`.
    const SIZE: i64 = 1024;

    pub(crate) fn new(first: i64) -> Self {
        Self { next: first, end: first + Self::SIZE, more: Vec::new() }
    }

    /// How many blocks it lacks to have so many numbers.
    pub(crate) fn lacks(&self, count: usize) -> i64 {
        i64::try_from(count).unwrap_or(i64::MAX) / Self::SIZE
    }

    pub(crate) fn add(&mut self, first: i64) {
        self.more.push(first);
    }

    fn next(&mut self) -> i64 {
        if self.next == self.end {
            self.next = self.more.pop().expect("blocks are taken before they are needed");
            self.end = self.next + Self::SIZE;
        }
        self.next += 1;
        self.next - 1
    }
}

/// One row for each tenant, with all its events and then its notes. Each job learns where its events are.
pub(crate) fn write_log(
    changes: &Changes,
    rows: &mut IdMap<Row<Place>>,
    block: &mut Block,
    now: Timestamp,
) -> LogRows {
    let mut log_rows = LogRows::default();
    for tenant in notes::tenants(changes) {
        let events = changes.events.get(tenant).map_or(&[][..], Vec::as_slice);
        let id = log_rows.begin(block);
        let mut text = String::with_capacity(events.len() * 256);
        for (place, event) in events.iter().enumerate() {
            if event.is_act() {
                log_rows.acts.add(id, place, tenant);
            }
            text.push(if text.is_empty() { '[' } else { ',' });
            let start = text.len();
            log::encode(event, &mut text);
            let row = rows.get_mut(&event.job_id).expect("an event is of a job of this commit");
            let history = &mut row.place.history;
            let chain = log::extend(history.chain(), now, &text[start..]);
            history.add(&chain, u64::try_from(id).expect("numbers are positive"));
        }
        let mine = notes::of(changes, tenant);
        notes::append(&mine, &mut text);
        log_rows.noted.add(id, events.len(), &mine);
        for (place, _) in (events.len()..).zip(&mine).filter(|(_, note)| note.is_act()) {
            log_rows.acts.add(id, place, tenant);
        }
        text.push(']');
        log_rows.end(tenant.as_str(), events.len() + mine.len(), text);
    }
    log_rows
}

const FINISH: &str = "SELECT finish(0, 0, 0, $1, $2, $3, $4, $5, $6, $7, $8, $9)";

impl LogRows {
    /// Appends the rows, and gives them their places in the feed. It is the last thing before the commit, but for what
    /// has to know those places. What claims were granted something is noted with it.
    pub(crate) fn finish(
        mut self,
        asks: &mut Vec<Ask>,
        changes: &Changes,
        lock: (i32, i32),
        now: Timestamp,
    ) {
        std::mem::take(&mut self.noted).save(now, asks);
        let acts = std::mem::take(&mut self.acts);
        // Most commits of a worker write rows of jobs and nothing else: they do both in one statement.
        let is_update =
            asks.len() == 1 && changes.created.is_empty() && !changes.updated.is_empty();
        let ask = match asks.pop_if(|_| is_update) {
            Some(update) => update.instead(UPDATE_AND_FINISH),
            None => Ask::new(FINISH),
        };
        asks.push(self.add_to(ask, changes, lock, now));
        acts.save(asks);
    }

    /// Adds its values to a statement that ends with a call of `finish`.
    pub(crate) fn add_to(
        self,
        ask: Ask,
        changes: &Changes,
        lock: (i32, i32),
        now: Timestamp,
    ) -> Ask {
        // In the order of their ids, so that two commits cannot deadlock.
        let mut claims: Vec<Uuid> = changes.claims.iter().map(|id| Uuid(id.as_u128())).collect();
        claims.sort_unstable();
        let made: Vec<Uuid> = changes.created.iter().map(|(id, _)| Uuid(id.as_u128())).collect();
        ask.with(self.seqs)
            .with(self.tenants)
            .with(self.counts)
            .with(self.texts)
            .with(Time(now))
            .with(claims)
            .with(made)
            .with(lock.0)
            .with(lock.1)
    }
}
