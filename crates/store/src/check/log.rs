//! The log as a whole: numbers without a gap, times that never go back, lines that can be read.

use windlass_kernel::Timestamp;

use super::{
    Invariant, Report, act, inbox, line, note,
    values::{LogRow, Spoken},
};

/// What is known of the log rows before.
pub(crate) struct LogCheck {
    /// From this number on retention has taken nothing.
    whole_from: u64,
    /// Commits run side by side, and what began later may be numbered first.
    many_writers: bool,
    next_id: Option<u64>,
    last_at: Option<Timestamp>,
}

impl LogCheck {
    /// The check of a log from which nothing was taken from this number on. If there are many writers, times
    /// are in order within each job and not from one row to the next.
    pub(crate) fn new(whole_from: u64, many_writers: bool) -> Self {
        Self { whole_from, many_writers, next_id: None, last_at: None }
    }

    /// Checks the next row, and gives back its lines with what they speak of.
    pub(crate) fn check<'a>(&mut self, row: &LogRow<'a>, report: &mut Report) -> Spoken<'a> {
        report.log_rows += 1;
        let mut spoken = Spoken::default();
        let expected = self.next_id.unwrap_or(1);
        let was_taken = row.id > expected && row.id <= self.whole_from;
        if row.id != expected && !was_taken {
            let sentence = format!("log row {} follows where {expected} should be", row.id);
            report.add(Invariant::LogContiguous, sentence);
        }
        if !self.many_writers && self.last_at.is_some_and(|last| row.at < last) {
            report.add(Invariant::Time, format!("log row {} is older than the one before", row.id));
        }
        let next_id = row.id.saturating_add_signed(row.count.max(0));
        self.next_id = Some(next_id);
        self.last_at = self.last_at.max(Some(row.at));
        let lines = match crate::log::lines(row.events) {
            Ok(lines) => lines,
            Err(error) => {
                report.add(Invariant::Readable, format!("log row {}: {error}", row.id));
                return spoken;
            }
        };
        if i64::try_from(lines.len()) != Ok(row.count) {
            let sentence =
                format!("log row {} counts {} lines and has {}", row.id, row.count, lines.len());
            report.add(Invariant::LogContiguous, sentence);
        }
        let may_miss_lines = next_id <= self.whole_from;
        let lines = lines.into_iter().map(serde_json::value::RawValue::get);
        for (number, text) in (row.id..).zip(lines) {
            if text == "null" && may_miss_lines {
                continue;
            }
            report.events += 1;
            // The row's number is as large as a column takes: what comes after it cannot be looked for.
            if i64::try_from(number).is_err() {
                let sentence = format!("log row {} has an event of number {number}", row.id);
                report.add(Invariant::Readable, sentence);
                continue;
            }
            spoken.acts.extend(act::read(text).map(|told| (number, told)));
            match line::job_of(text) {
                Some(job) => spoken.of_jobs.push((job, text)),
                None if inbox::is_line(text) => spoken.of_inbox.push((number, text)),
                None if note::is_line(text) => spoken.notes.push((number, text)),
                None => {
                    let sentence = format!("log row {} speaks of no job: {text}", row.id);
                    report.add(Invariant::Readable, sentence);
                }
            }
        }
        spoken
    }

    /// After the last row: the next number must be new.
    pub(crate) fn finish(self, report: &mut Report) {
        let next = self.next_id.unwrap_or(1);
        if next < self.whole_from {
            let sentence =
                format!("the log ends before {next}, and {} was the next", self.whole_from);
            report.add(Invariant::LogContiguous, sentence);
        }
    }
}
