//! Times and durations as people read them.

use std::time::Duration;

use clap::ValueEnum;
use windlass_kernel::Timestamp;

/// How times are written.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeStyle {
    /// How long ago, or in how long.
    #[default]
    Relative,
    /// By the clock of this machine.
    Local,
    /// By the clock of everybody, as documents have them.
    Utc,
    /// Seconds since 1970.
    Unix,
}

/// Writes times in one style.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    style: TimeStyle,
    now: Timestamp,
}

impl Times {
    pub(crate) fn new(style: TimeStyle, now: Timestamp) -> Self {
        Self { style, now }
    }

    /// The same style at another moment.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        Self { now, ..self }
    }

    pub(crate) fn now(self) -> Timestamp {
        self.now
    }

    /// A time.
    pub(crate) fn show(self, at: Timestamp) -> String {
        match self.style {
            TimeStyle::Relative => self.relative(at),
            TimeStyle::Local => zoned(at, jiff::tz::TimeZone::system()),
            TimeStyle::Utc => zoned(at, jiff::tz::TimeZone::UTC).replace(' ', "T") + "Z",
            TimeStyle::Unix => {
                let ms = at.as_micros() / 1_000;
                format!("{}.{:03}", ms / 1_000, ms % 1_000)
            }
        }
    }

    /// How long ago it was at that moment; the time itself, if times are wanted.
    pub(crate) fn age(self, at: Timestamp, now: Timestamp) -> String {
        match self.style {
            TimeStyle::Relative => rough(now.since(at)),
            _ => self.show(at),
        }
    }

    /// A time that may not be there.
    pub(crate) fn show_option(self, at: Option<Timestamp>) -> String {
        at.map_or_else(|| "-".to_owned(), |at| self.show(at))
    }

    /// When something in a row of things happened: how long after the first of them, or its time.
    pub(crate) fn after(self, first: Timestamp, at: Timestamp) -> String {
        match self.style {
            TimeStyle::Relative => format!("+{}", exact(at.since(first))),
            TimeStyle::Local | TimeStyle::Utc | TimeStyle::Unix => self.show(at),
        }
    }

    /// When something happened that is told as it happens: how long ago would always be now.
    pub(crate) fn live(self, at: Timestamp) -> String {
        match self.style {
            TimeStyle::Relative => zoned(at, jiff::tz::TimeZone::system())[11..].to_owned(),
            TimeStyle::Local | TimeStyle::Utc | TimeStyle::Unix => self.show(at),
        }
    }

    fn relative(self, at: Timestamp) -> String {
        let (ago, ahead) = (self.now.since(at), at.since(self.now));
        let second = Duration::from_secs(1);
        match () {
            () if ahead >= second => format!("in {}", rough(ahead)),
            () if ago >= second => format!("{} ago", rough(ago)),
            () => "now".to_owned(),
        }
    }
}

/// The time of the day, as a log has it: in UTC if that is wanted, else by the clock of this machine.
pub(crate) fn clock(at: Timestamp, times: Times) -> String {
    let zone = match times.style {
        TimeStyle::Utc | TimeStyle::Unix => jiff::tz::TimeZone::UTC,
        TimeStyle::Relative | TimeStyle::Local => jiff::tz::TimeZone::system(),
    };
    zoned(at, zone)[11..].to_owned()
}

fn zoned(at: Timestamp, zone: jiff::tz::TimeZone) -> String {
    let instant = jiff::Timestamp::from_microsecond(at.as_micros());
    let instant = instant.expect("the range is inside jiff's").to_zoned(zone);
    instant.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

/// About how long, in one word: `4s`, `12m`, `3h`, `5d`.
pub(crate) fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long something took: `12ms`, `1.25s`, `3m 4s`, `2h 5m`, `4d 2h`.
pub(crate) fn exact(duration: Duration) -> String {
    let (ms, seconds) = (duration.as_millis(), duration.as_secs());
    match seconds {
        0 => format!("{ms}ms"),
        1..=59 => format!("{}.{:02}s", seconds, (ms % 1_000) / 10),
        60..=3_599 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A duration as people write it, such that it reads back as the same: `250ms`, `10s`, `15m`, `1h30m`.
pub(crate) fn written(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let mut text = String::new();
    for (unit, ms) in units {
        if rest >= ms {
            text.push_str(&format!("{}{unit}", rest / ms));
            rest %= ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reads a duration as people write it: `250ms`, `10s`, `5m`, `2h`, `1d`, also together: `1h30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let why = || format!("{text:?} is no duration; write it as 250ms, 10s, 5m, 2h or 1d");
    let (mut rest, mut whole) = (text.trim(), Duration::ZERO);
    if rest.is_empty() {
        return Err(why());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| why())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit_ms: u64 = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(why()),
        };
        rest = &rest[letters..];
        let part = number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(why)?;
        whole = whole.checked_add(part).ok_or_else(why)?;
    }
    Ok(whole)
}

/// Reads a time: RFC 3339, or a duration from now (`10m`) or before now (`-2h`).
pub(crate) fn parse_time(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let relative = match text.strip_prefix('-') {
        Some(before) => parse(before).map(|ago| now.minus(ago)),
        None => parse(text).map(|ahead| now.plus(ahead)),
    };
    relative.map_err(|_| {
        format!(
            "{text:?} is no time; write it as 2026-02-25T12:00:00Z, 10m (from now) or -2h (ago)"
        )
    })
}

/// Reads a time that has been: RFC 3339, or how long ago (`2h`, and `-2h` means the same).
pub(crate) fn parse_past(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago = parse(text.strip_prefix('-').unwrap_or(text));
    ago.map(|ago| now.minus(ago)).map_err(|_| {
        format!("{text:?} is no time; write it as 2026-02-25T12:00:00Z or 2h (two hours ago)")
    })
}

/// The same for a beginning, which cannot lie ahead: nothing would fit.
pub(crate) fn parse_since(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let at = parse_past(text, now)?;
    match at <= now {
        true => Ok(at),
        false => Err(format!("{text} lies in the future, so nothing can be since then")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_true() {
        let now = Timestamp::from_micros(1_790_000_000_000_000);
        let times = |style| Times::new(style, now);
        let at = |ms: i64| Timestamp::from_micros(now.as_micros() + ms * 1_000);
        for (ms, text) in [
            (0, "now"),
            (-999, "now"),
            (-1_000, "1s ago"),
            (4_200, "in 4s"),
            (-125_000, "2m ago"),
            (-7_300_000, "2h ago"),
            (-200_000_000, "2d ago"),
        ] {
            assert_eq!(times(TimeStyle::Relative).show(at(ms)), text);
        }
        assert_eq!(times(TimeStyle::Utc).show(at(0)), "2026-09-21T14:13:20.000Z");
        assert_eq!(times(TimeStyle::Unix).show(at(7)), "1790000000.007");
    }

    #[test]
    fn durations_are_written_and_read() {
        for (ms, text) in [
            (7, "7ms"),
            (1_259, "1.25s"),
            (184_000, "3m 4s"),
            (7_500_000, "2h 5m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(exact(Duration::from_millis(ms)), text);
        }
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        for text in ["250ms", "10s", "15m", "1h30m", "1d1ms", "0s"] {
            assert_eq!(written(parse(text).unwrap()), text);
        }
        for bad in ["", "5", "m", "5 m", "5y", "99999999999999999999s", "-5s"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_are_read_from_now_on_or_as_they_stand() {
        let now = Timestamp::from_micros(1_790_000_000_000_000);
        assert_eq!(parse_time("10s", now).unwrap(), now.plus(Duration::from_secs(10)));
        assert_eq!(parse_time("-10s", now).unwrap(), now.minus(Duration::from_secs(10)));
        assert_eq!(
            parse_time("2026-02-25T12:00:00Z", now).unwrap().to_string(),
            "2026-02-25T12:00:00Z"
        );
        assert!(parse_time("tomorrow", now).is_err());
    }

    #[test]
    fn what_has_been_is_so_long_ago() {
        let now = Timestamp::from_micros(1_790_000_000_000_000);
        let ago = now.minus(Duration::from_secs(7_200));
        for text in ["2h", "-2h"] {
            assert_eq!(parse_past(text, now), Ok(ago));
            assert_eq!(parse_since(text, now), Ok(ago));
        }
        assert!(parse_past("9999-01-01T00:00:00Z", now).is_ok(), "before it is everything");
        assert!(parse_since("9999-01-01T00:00:00Z", now).is_err(), "since then is nothing");
        for bad in ["tomorrow", "", "-", "--2h", "+2h"] {
            assert!(parse_past(bad, now).is_err(), "{bad:?}");
        }
    }
}
