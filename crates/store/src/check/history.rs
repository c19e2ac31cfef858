//! One job's history, from its creation to its last event.

use windlass_kernel::{Event, Fact, JobId, Timestamp};

use super::{
    Invariant, Report, line,
    moves::{ENDS, LEASED, is_legal},
    retry,
    values::{JobRow, Line},
};
use crate::log::{NO_CHAIN, extend, spec_digest};

/// The events of a job, if each can be read and none is missing. Else nothing more can be judged.
pub(super) fn read(row: &JobRow, lines: &[Line], report: &mut Report) -> Option<Vec<Event>> {
    let id = row.job.id;
    let mut spoken: Vec<u64> = lines.iter().map(|line| line.log_id).collect();
    spoken.dedup();
    if spoken != row.log_ids {
        let (points, spoken) = only_in(&row.log_ids, &spoken);
        let sentence = format!("points to log rows {points}, while {spoken} speak of it");
        report.add_job(Invariant::LogPointers, id, sentence, lines, None);
        return None;
    }
    let mut events = Vec::with_capacity(lines.len());
    for (place, text) in lines.iter().enumerate() {
        let told = match line::read(text, &row.job.spec) {
            Ok(told) => told,
            Err(why) => {
                let sentence = format!("has a line that cannot be read: {why}");
                report.add_job(Invariant::Readable, id, sentence, lines, Some(place));
                return None;
            }
        };
        let (number, expected) = (told.event.number, place as u64 + 1);
        if number != expected {
            let sentence = format!("has event {number} where {expected} should be");
            report.add_job(Invariant::Numbers, id, sentence, lines, Some(place));
            return None;
        }
        if place == 0 && told.created != Some(spec_digest(&row.job.spec)) {
            let sentence = "does not begin with the creation of what its row asks for";
            report.add_job(Invariant::Creation, id, sentence, lines, Some(place));
            return None;
        }
        events.push(told.event);
    }
    if events.is_empty() {
        report.add_job(Invariant::Numbers, id, "has no event", lines, None);
        return None;
    }
    Some(events)
}

/// What each list has and the other has not; all of it if that is only the order.
fn only_in(one: &[u64], other: &[u64]) -> (String, String) {
    let less = |some: &[u64], rest: &[u64]| {
        let alone: Vec<u64> = some.iter().filter(|id| !rest.contains(id)).copied().collect();
        format!("{alone:?}")
    };
    (less(one, other), less(other, one))
}

/// Checks every event against the one before.
pub(super) fn check(row: &JobRow, events: &[Event], lines: &[Line], report: &mut Report) {
    let mut walk = Walk { row, lines, report, id: row.job.id, place: 0, started: false };
    walk.chain();
    for (place, event) in events.iter().enumerate() {
        walk.place = place;
        walk.tenant();
        match place.checked_sub(1).map(|before| &events[before]) {
            None => walk.first(event),
            Some(before) => walk.next(before, event),
        }
        walk.dead_letter_path(events);
        walk.started |= event.cause.as_str() == "started";
    }
}

struct Walk<'a> {
    row: &'a JobRow,
    lines: &'a [Line],
    report: &'a mut Report,
    id: JobId,
    place: usize,
    started: bool,
}

impl Walk<'_> {
    fn add(&mut self, rule: Invariant, sentence: impl Into<String>) {
        self.report.add_job(rule, self.id, sentence, self.lines, Some(self.place));
    }

    fn chain(&mut self) {
        let add = |chain, line: &Line| extend(chain, line.at, &line.text);
        if self.lines.iter().fold(NO_CHAIN, add) != self.row.chain {
            self.add(Invariant::Chain, "has lines that are not those its chain was made of");
        }
    }

    fn tenant(&mut self) {
        let (told, owner) = (&self.lines[self.place].tenant, &self.row.job.spec.tenant);
        if told != owner.as_str() {
            let sentence = format!("belongs to {owner} and is spoken of in the log of {told}");
            self.add(Invariant::Tenant, sentence);
        }
    }

    fn first(&mut self, event: &Event) {
        if event.from.is_some() || !is_legal(None, event.cause, event.to) {
            let sentence = format!("is created in {} by {}", event.to, event.cause);
            self.add(Invariant::Creation, sentence);
        }
        let spec = &self.row.job.spec;
        if event.at != spec.created_at {
            self.add(Invariant::Creation, format!("says it was created at {}", spec.created_at));
        }
        let first_of_own = spec.task_given || event.attempt == 1;
        if !matches!(event.fact, Fact::Created { attempt, .. } if attempt == event.attempt)
            || event.attempt < 1
            || !first_of_own
        {
            self.add(Invariant::Attempts, format!("begins with attempt {}", event.attempt));
        }
        if event.epoch.get() != 0 || event.retry_count != 0 {
            self.add(Invariant::EpochGrows, "has an epoch or a retry from the start");
        }
    }

    fn next(&mut self, before: &Event, event: &Event) {
        if ENDS.contains(&before.to) {
            self.add(Invariant::OneEnd, format!("goes on after its end, {}", before.to));
            return;
        }
        self.step(before, event);
        self.epoch(before, event);
        self.attempt(before, event);
        self.retry(before, event);
        if event.at < before.at {
            self.add(Invariant::Time, format!("has event {} before the one before", event.number));
        }
    }

    fn step(&mut self, before: &Event, event: &Event) {
        let Event { cause, from, to, .. } = event;
        if *from != Some(before.to) {
            let from = from.map_or("nothing", |state| state.as_str());
            let sentence = format!("leaves {from} when it is in {}", before.to);
            self.add(Invariant::Moves, sentence);
        } else if !is_legal(*from, *cause, *to) {
            self.add(Invariant::Moves, format!("goes from {} to {to} by {cause}", before.to));
        } else if event.started != self.started {
            let sentence =
                format!("says in event {} whether it had started, wrongly", event.number);
            self.add(Invariant::Moves, sentence);
        }
    }

    fn epoch(&mut self, before: &Event, event: &Event) {
        let (last, now) = (before.epoch, event.epoch);
        let claim = match &event.fact {
            Fact::Claimed { epoch, .. } => Some(*epoch),
            _ => None,
        };
        let grants = !LEASED.contains(&before.to) && LEASED.contains(&event.to);
        if claim.is_some() || grants {
            if claim != Some(now) || now <= last {
                let sentence = format!("is claimed under epoch {now} after epoch {last}");
                self.add(Invariant::EpochGrows, sentence);
            }
        } else if now < last {
            self.add(
                Invariant::Fenced,
                format!("is written under epoch {now} when {last} is granted"),
            );
        } else if now > last {
            self.add(Invariant::EpochGrows, format!("gets epoch {now} without a claim"));
        }
    }

    fn attempt(&mut self, before: &Event, event: &Event) {
        let risen = u32::from(event.cause.as_str() == "retry_due");
        if event.attempt != before.attempt + risen {
            let (last, now) = (before.attempt, event.attempt);
            let sentence = format!("is in attempt {now} after {last} by {}", event.cause);
            self.add(Invariant::Attempts, sentence);
        }
    }

    fn retry(&mut self, before: &Event, event: &Event) {
        let spec = &self.row.job.spec;
        let retry = match &event.fact {
            Fact::Retry { failure, next_retry_at, .. } => Some((failure, *next_retry_at)),
            _ => None,
        };
        let used = event.retry_count;
        if used != before.retry_count + u32::from(retry.is_some()) || used > spec.max_retries {
            let (last, most) = (before.retry_count, spec.max_retries);
            let sentence = format!("has used {used} of {most} retries after {last}");
            self.add(Invariant::Retries, sentence);
        }
        let enters = event.to.as_str() == "retry_scheduled" && before.to != event.to;
        if enters != retry.is_some() {
            self.add(Invariant::RetryDelay, "is to be retried at no time");
        }
        let Some((failure, next)) = retry else { return };
        let (least, most) = retry::delay_us(&spec.retry, used, failure);
        let delay = next.since(event.at).as_micros();
        if next != Timestamp::MAX && (delay < least || delay > most) {
            let sentence =
                format!("waits {delay} us for retry {used}, not between {least} and {most}");
            self.add(Invariant::RetryDelay, sentence);
        }
    }

    /// The three events of the way stand together in one log row.
    fn dead_letter_path(&mut self, events: &[Event]) {
        let word = |place: usize| events.get(place).map(|event| event.to.as_str());
        let row = |place: usize| self.lines.get(place).map(|line| line.log_id);
        let place = self.place;
        let next = match word(place) {
            Some("dlq_pending") => "dlq_recorded",
            Some("dlq_recorded") => "failed",
            Some("failed") => {
                if place == 0 || word(place - 1) != Some("dlq_recorded") {
                    self.add(Invariant::DeadLetterPath, "failed without a recorded letter");
                }
                return;
            }
            _ => return,
        };
        if word(place + 1) != Some(next) || row(place + 1) != row(place) {
            let here = events[place].to;
            self.add(Invariant::DeadLetterPath, format!("does not go on to {next} with {here}"));
        }
    }
}
