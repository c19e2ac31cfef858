//! The log as a whole: numbers without a gap, times that never go back, lines that can be read.

use windlass_kernel::Timestamp;

use super::{
    Report, Rule, inbox, line,
    values::{LogRow, Spoken},
};

/// What is known of the log rows before.
#[derive(Default)]
pub(crate) struct LogCheck {
    next_id: Option<u64>,
    last_at: Option<Timestamp>,
}

impl LogCheck {
    /// Checks the next row, and gives back its lines with what they speak of.
    pub(crate) fn check<'a>(&mut self, row: &LogRow<'a>, report: &mut Report) -> Spoken<'a> {
        report.log_rows += 1;
        let mut spoken = Spoken { of_jobs: Vec::new(), of_inbox: Vec::new() };
        let expected = self.next_id.unwrap_or(1);
        if row.id != expected {
            let sentence = format!("log row {} follows where {expected} should be", row.id);
            report.add(Rule::LogContiguous, sentence);
        }
        if self.last_at.is_some_and(|last| row.at < last) {
            report.add(Rule::Time, format!("log row {} is older than the one before", row.id));
        }
        self.next_id = Some(row.id + row.count);
        self.last_at = self.last_at.max(Some(row.at));
        let lines = match crate::log::lines(row.events) {
            Ok(lines) => lines,
            Err(error) => {
                report.add(Rule::Readable, format!("log row {}: {error}", row.id));
                return spoken;
            }
        };
        if lines.len() as u64 != row.count {
            let sentence =
                format!("log row {} counts {} lines and has {}", row.id, row.count, lines.len());
            report.add(Rule::LogContiguous, sentence);
        }
        report.events += lines.len() as u64;
        let lines = lines.into_iter().map(serde_json::value::RawValue::get);
        for (number, text) in (row.id..).zip(lines) {
            match line::job_of(text) {
                Some(job) => spoken.of_jobs.push((job, text)),
                None if inbox::is_line(text) => spoken.of_inbox.push((number, text)),
                None => {
                    let sentence = format!("log row {} speaks of no job: {text}", row.id);
                    report.add(Rule::Readable, sentence);
                }
            }
        }
        spoken
    }
}
