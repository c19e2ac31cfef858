//! The schedules of the year, drawn by chance, and what they are known by.

use std::time::Duration;

use windlass_kernel::{
    Kind, Payload, Queue, Timestamp,
    ops::NewJob,
    schedule::{CatchUp, Overlap, ScheduleSpec, When},
};

use crate::chance::Chance;

pub(crate) const ZONES: [&str; 7] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Santiago",
    "Asia/Kolkata",
    "UTC",
];

/// Fixed times and intervals, some a few times a year, some often on the days on which clocks change.
const EXPRESSIONS: [&str; 24] = [
    "30 2 * * 0",
    "15 1 * * 0",
    "0 0 * * 6",
    "0 9 * * 1",
    "45 23 * * 5",
    "0 0 1 * *",
    "30 6 15 * *",
    "0 12 31 * *",
    "0 0 28 2 *",
    "5 4 1,15 * *",
    "0 3 1-7 * 0",
    "30 2 28-30 3 *",
    "0,30 1-3 29 3 *",
    "*/30 * 29 3 *",
    "*/20 0-4 8 3 *",
    "15,45 2 7-9 3 *",
    "*/30 * 25 10 *",
    "0,30 1-3 25 10 *",
    "*/15 0-3 1 11 *",
    "30 1,13 1 11 *",
    "0 0 24 4 *",
    "*/30 0-3 24,30 4,10 *",
    "15,45 1,2 5,6 4,9,10 *",
    "0 */6 4-6 4,10 *",
];

/// One schedule.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) spec: ScheduleSpec,
}

/// Jobs that somebody works on, so that they come to their end. All others wait for ever.
pub(crate) const WORKED_ON: &str = "worked_on";

const DAY: u64 = 24 * 60 * 60;

impl Plan {
    /// The schedule of this number.
    pub(crate) fn draw(number: usize, chance: &Chance) -> Self {
        let begin: Timestamp = windlass::testing::BEGINS_AT.parse().unwrap();
        let seconds = |most: u64| Duration::from_secs(chance.below(most));
        let when = match chance.below(20) {
            0 => When::At(begin.plus(seconds(364 * DAY) + Duration::from_secs(60))),
            1..3 => When::Every {
                period: Duration::from_secs(10 * DAY) + seconds(30 * DAY),
                anchor: begin.plus(seconds(20 * DAY)),
            },
            _ => {
                let expression = EXPRESSIONS[pick(chance, EXPRESSIONS.len())].to_owned();
                When::Cron { expression, zone: ZONES[pick(chance, ZONES.len())].to_owned() }
            }
        };
        // One that waits is looked at every few seconds, so there are few.
        let overlap = match chance.below(200) {
            0 => Overlap::Queue,
            1..30 => Overlap::Skip,
            _ => Overlap::Allow,
        };
        let catch_up = match chance.below(4) {
            0 => CatchUp::Skip,
            1 => CatchUp::All { max: 1 + u32::try_from(chance.below(5)).unwrap() },
            2 => CatchUp::All { max: 1_000 },
            _ => CatchUp::One,
        };
        let jitter = if chance.percent(30) { seconds(600) } else { Duration::ZERO };
        let payload = Payload::parse("null", 4).unwrap();
        let mut job = NewJob::new(Kind::new("report").unwrap(), payload);
        if overlap != Overlap::Allow {
            job.queue = Queue::new(WORKED_ON).unwrap();
        }
        // What is late at the end of the year is made up for in the hour after it, in which nothing else is due.
        let end_at = Some(begin.plus(Duration::from_secs(365 * DAY)));
        let spec =
            ScheduleSpec { jitter, catch_up, overlap, end_at, ..ScheduleSpec::new(when, job) };
        Self { name: format!("schedule-{number:05}"), spec }
    }
}

fn pick(chance: &Chance, count: usize) -> usize {
    usize::try_from(chance.below(count as u64)).unwrap()
}
