//! A wall clock that is read minute by minute: which times of a cron expression it shows, and when.
//!
//! It is written from the rule and not from the kernel: it steps through every minute and compares fields by hand. So
//! it can say what the slots of a schedule should be. It knows numbers, lists, ranges and steps, and nothing else.

use jiff::{Span, civil::DateTime, tz::TimeZone};
use windlass_kernel::Timestamp;

/// What a clock in one place shows between two instants.
pub struct WallClock {
    ticks: Vec<Tick>,
    from: Timestamp,
    step: i64,
}

/// One step of the clock.
struct Tick {
    at: Timestamp,
    shows: Shown,
    /// Has it shown this time before, an hour ago or so?
    is_again: bool,
    /// Times that were jumped over to come here.
    jumped: Vec<Shown>,
}

/// What fields are compared with: second, minute, hour, day, month, day of the week.
type Shown = [u8; 6];

impl WallClock {
    /// The clock of a zone, read every minute.
    pub fn by_minutes(zone: &str, from: Timestamp, to: Timestamp) -> Self {
        Self::read(zone, from, to, 60)
    }

    /// The same, read every second.
    pub fn by_seconds(zone: &str, from: Timestamp, to: Timestamp) -> Self {
        Self::read(zone, from, to, 1)
    }

    fn read(zone: &str, from: Timestamp, to: Timestamp, step: i64) -> Self {
        let zone = TimeZone::get(zone).expect("a zone that exists");
        let second = |at: Timestamp| at.as_micros() / 1_000_000;
        // What was shown before matters for what is shown again, so it begins earlier.
        let first = (second(from) - 6 * 3_600) / step * step;
        let mut ticks = Vec::new();
        let mut latest: Option<DateTime> = None;
        for at in (first..second(to)).step_by(usize::try_from(step).expect("steps are positive")) {
            let instant = jiff::Timestamp::from_second(at).expect("an instant");
            let shows = zone.to_datetime(instant);
            let mut jumped = Vec::new();
            if let Some(latest) = latest {
                let mut next = latest + Span::new().seconds(step);
                while next < shows {
                    jumped.push(shown(next));
                    next += Span::new().seconds(step);
                }
            }
            let is_again = latest.is_some_and(|latest| shows <= latest);
            latest = latest.max(Some(shows));
            let at = Timestamp::from_micros(at * 1_000_000);
            ticks.push(Tick { at, shows: shown(shows), is_again, jumped });
        }
        Self { ticks, from, step }
    }

    /// When it shows what the expression asks for, in order. It has five fields, or six with seconds first.
    pub fn slots(&self, expression: &str) -> Vec<Timestamp> {
        let wanted = Wanted::parse(expression);
        assert!(self.step == 1 || wanted.fields[0] == 1, "seconds are not read");
        let fits = |tick: &&Tick| {
            let shows = wanted.fits(&tick.shows);
            if wanted.is_interval {
                shows
            } else {
                shows && !tick.is_again || tick.jumped.iter().any(|time| wanted.fits(time))
            }
        };
        let ticks = self.ticks.iter().filter(|tick| tick.at >= self.from);
        ticks.filter(fits).map(|tick| tick.at).collect()
    }
}

#[expect(clippy::cast_sign_loss, reason = "no part of a time is negative")]
fn shown(time: DateTime) -> Shown {
    let weekday = time.weekday().to_sunday_zero_offset();
    [time.second(), time.minute(), time.hour(), time.day(), time.month(), weekday]
        .map(|it| it as u8)
}

/// What an expression asks for.
struct Wanted {
    /// A bit for each value that fits.
    fields: [u64; 6],
    any_day_of_month: bool,
    any_day_of_week: bool,
    is_interval: bool,
}

impl Wanted {
    fn parse(expression: &str) -> Self {
        let mut texts: Vec<&str> = expression.split(' ').collect();
        if texts.len() == 5 {
            texts.insert(0, "0");
        }
        let bounds = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        let field = |place: usize| parse_field(texts[place], bounds[place]);
        Self {
            fields: std::array::from_fn(field),
            any_day_of_month: texts[3] == "*",
            any_day_of_week: texts[5] == "*",
            is_interval: texts[..3].iter().any(|text| text.contains('*')),
        }
    }

    fn fits(&self, shows: &Shown) -> bool {
        let fits = |place: usize| self.fields[place] >> shows[place] & 1 == 1;
        let day = match (self.any_day_of_month, self.any_day_of_week) {
            // If both are named, either is enough.
            (false, false) => fits(3) || fits(5),
            _ => fits(3) && fits(5),
        };
        fits(0) && fits(1) && fits(2) && fits(4) && day
    }
}

fn parse_field(text: &str, (low, high): (u8, u8)) -> u64 {
    let number = |text: &str| text.parse::<u8>().expect("a number");
    let part = |part: &str| {
        let (range, step) = part.split_once('/').map_or((part, 1), |(it, step)| (it, number(step)));
        let (low, high) = match range.split_once('-') {
            Some((low, high)) => (number(low), number(high)),
            None if range == "*" => (low, high),
            None => (number(range), number(range)),
        };
        (low..=high).step_by(step.into())
    };
    text.split(',').flat_map(part).fold(0, |bits, value| bits | 1 << value)
}
