//! The log as a whole: numbers without a gap, times that never go back, lines that can be read.

use windlass_kernel::{JobId, Timestamp};

use super::{Report, Rule, line, values::LogRow};

/// What is known of the log rows before.
#[derive(Default)]
pub(crate) struct LogCheck {
    next_id: Option<u64>,
    last_at: Option<Timestamp>,
}

impl LogCheck {
    /// Checks the next row, and gives back its lines with the jobs they speak of.
    pub(crate) fn check<'a>(
        &mut self,
        row: &LogRow<'a>,
        report: &mut Report,
    ) -> Vec<(JobId, &'a str)> {
        report.log_rows += 1;
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
                return Vec::new();
            }
        };
        if lines.len() as u64 != row.count {
            let sentence =
                format!("log row {} counts {} lines and has {}", row.id, row.count, lines.len());
            report.add(Rule::LogContiguous, sentence);
        }
        report.events += lines.len() as u64;
        let mut spoken = Vec::with_capacity(lines.len());
        for text in lines.into_iter().map(serde_json::value::RawValue::get) {
            match line::job_of(text) {
                Some(job) => spoken.push((job, text)),
                None => {
                    let sentence = format!("log row {} speaks of no job: {text}", row.id);
                    report.add(Rule::Readable, sentence);
                }
            }
        }
        spoken
    }
}
