//! A part of a job's history, without reading the rest.
//!
//! The numbers of a job's events have no gap, and each of its log rows has one event of it at least. So a look at a row
//! says on which side of it the part lies, and the part is known to be whole when no number is missing. Rows are looked at
//! in the order of their ids, which is nearly that of the history: if that misleads, the other rows are read too.
//!
//! Never here: IO. A backend reads the rows that [`next`](PageSearch::next) names, and adds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_kernel::{JobId, Spec, Timestamp};

use crate::{
    Error, log,
    read::{EventsPage, PlacedEvent},
};

/// A search for the events of a part.
pub(crate) struct PageSearch {
    job_id: JobId,
    /// The first and the last event of the part. The last is before the first if there is none.
    first: u64,
    last: u64,
    more: bool,
    /// The log rows of the job.
    rows: Vec<u64>,
    /// The first event of the part is in one of these rows: from this place to before that one.
    from: usize,
    to: usize,
    /// The rows that were named.
    named: BTreeSet<u64>,
    found: BTreeMap<u64, PageLine>,
}

/// An event of the part, as it stands in the log.
struct PageLine {
    at: Timestamp,
    feed_number: u64,
    line: String,
}

/// So few rows are read without a look at which of them it is.
const FEW: usize = 8;

impl PageSearch {
    /// A search among these log rows of a job that has so many events.
    pub(crate) fn new(
        job_id: JobId,
        events: u64,
        mut rows: Vec<u64>,
        after: u64,
        limit: usize,
    ) -> Self {
        rows.sort_unstable();
        rows.dedup();
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let (first, last) = (after.saturating_add(1), after.saturating_add(limit).min(events));
        // Each row before it has one event at least.
        let to = rows.len().min(usize::try_from(first).unwrap_or(usize::MAX));
        let (more, named, found) = (last < events, BTreeSet::new(), BTreeMap::new());
        Self { job_id, first, last, more, rows, from: 0, to, named, found }
    }

    /// The rows to read next. None, when the part is whole or there are no more.
    pub(crate) fn next(&mut self) -> Vec<u64> {
        let missing = (self.first..=self.last).filter(|number| !self.found.contains_key(number));
        let missing = missing.count();
        if missing == 0 {
            return Vec::new();
        }
        if let Some(middle) = self.middle() {
            let row = self.rows[middle];
            if self.named.insert(row) {
                return vec![row];
            }
            // It was named before and is not there.
            (self.from, self.to) = (middle, middle);
        }
        let unread = |rows: &[u64]| {
            let unread = rows.iter().filter(|row| !self.named.contains(row));
            unread.take(missing.max(FEW)).copied().collect::<Vec<u64>>()
        };
        let later = unread(&self.rows[self.from.min(self.rows.len())..]);
        let next = if later.is_empty() { unread(&self.rows) } else { later };
        self.named.extend(&next);
        next
    }

    /// The row that is looked at next, while there are many that the part could begin in.
    fn middle(&self) -> Option<usize> {
        let rows = self.to.saturating_sub(self.from);
        (rows > FEW).then_some(self.from + rows / 2)
    }

    /// Adds a row that was read: its time, the number of its first event in the feed, and its text.
    pub(crate) fn add(
        &mut self,
        row: u64,
        at: Timestamp,
        feed_first: u64,
        text: &str,
    ) -> Result<(), Error> {
        let mut numbers = Vec::new();
        for (feed_number, line) in (feed_first..).zip(log::lines(text)?) {
            if !log::speaks_of(line.get(), self.job_id) {
                continue;
            }
            let number = log::number_of(line.get())?;
            numbers.push(number);
            if (self.first..=self.last).contains(&number) {
                let line = line.get().to_owned();
                self.found.insert(number, PageLine { at, feed_number, line });
            }
        }
        self.narrow(row, &numbers);
        Ok(())
    }

    /// Does the part begin before this row, in it, or after it?
    fn narrow(&mut self, row: u64, numbers: &[u64]) {
        let Some(middle) = self.middle().filter(|middle| self.rows[*middle] == row) else { return };
        match (numbers.iter().min(), numbers.iter().max()) {
            (Some(min), _) if *min > self.first => self.to = middle,
            (_, Some(max)) if *max < self.first => self.from = middle + 1,
            // It begins here, or the row says nothing.
            _ => (self.from, self.to) = (middle, middle),
        }
    }

    /// What was found.
    pub(crate) fn finish(self, spec: &Arc<Spec>) -> Result<EventsPage, Error> {
        let placed = |PageLine { at, feed_number, line }: PageLine| {
            Ok(PlacedEvent { event: log::decode(&line, at, spec)?, feed_number })
        };
        let items = self.found.into_values().map(placed).collect::<Result<_, Error>>()?;
        Ok(EventsPage { items, more: self.more })
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::{Actor, Cause, Epoch, Event, Fact, State};

    use super::*;

    /// A job with so many events, some of them together in a row, in rows of these ids.
    fn rows(ids: &[u64]) -> (BTreeMap<u64, String>, u64) {
        let (mut rows, mut number) = (BTreeMap::new(), 0);
        for (place, id) in ids.iter().enumerate() {
            let mut text = String::from("[null");
            for _ in 0..=place % 3 {
                number += 1;
                text.push(',');
                log::encode(&event(number), &mut text);
            }
            rows.insert(*id, text + "]");
        }
        (rows, number)
    }

    fn event(number: u64) -> Event {
        Event {
            job_id: JobId::from_u128(7),
            number,
            at: Timestamp::MIN,
            cause: Cause::WorkerClaim,
            from: Some(State::Queued),
            to: State::Dispatched,
            attempt: 1,
            retry_count: 0,
            epoch: Epoch::new(number),
            started: false,
            actor: Actor::Scheduler,
            trace_id: None,
            fact: Fact::Plain,
        }
    }

    /// Every part is found, whole and in order. Gives back how many rows were read for the one that took most.
    fn check(ids: &[u64], limit: usize) -> usize {
        let (rows, events) = rows(ids);
        let mut most = 0;
        for after in 0..=events + 1 {
            let mut search =
                PageSearch::new(JobId::from_u128(7), events, ids.to_vec(), after, limit);
            let mut read = 0;
            loop {
                let next = search.next();
                if next.is_empty() {
                    break;
                }
                for id in next {
                    read += 1;
                    search.add(id, Timestamp::MIN, id * 10, &rows[&id]).unwrap();
                }
            }
            most = most.max(read);
            let found: Vec<u64> = search.found.keys().copied().collect();
            let skipped = usize::try_from(after).unwrap();
            let expected: Vec<u64> = (1..=events).skip(skipped).take(limit).collect();
            assert_eq!(found, expected, "after {after}");
            assert_eq!(search.more, events > after + limit as u64, "after {after}");
            let is_placed = |found: &PageLine| rows.contains_key(&(found.feed_number / 10));
            assert!(search.found.values().all(is_placed));
        }
        most
    }

    #[test]
    fn a_part_of_a_long_history_is_found_without_reading_the_rest() {
        let ids: Vec<u64> = (1..=2_000).map(|id| id * 3).collect();
        let most = check(&ids, 10);
        assert!(most <= 11 + 10 + FEW, "{most} rows were read");
    }

    #[test]
    fn rows_that_are_not_in_order_are_found_too() {
        for swapped in [[3, 1, 2, 4], [40, 30, 20, 10], [1, 100, 2, 99]] {
            check(&swapped, 2);
        }
        let mut ids: Vec<u64> = (1..=60).collect();
        ids.reverse();
        check(&ids, 5);
        ids.rotate_left(17);
        check(&ids, 3);
    }

    #[test]
    fn a_short_history_is_read_at_once() {
        check(&[], 5);
        check(&[7], 5);
        check(&[7, 8, 9], 1);
    }
}
