//! Instants, and durations on the wire.
//!
//! An instant is a whole number of microseconds since 1970 in UTC, between 1970 and 9999, written as
//! RFC 3339 with `Z`. Arithmetic stops at the ends of that range: it never wraps and never panics.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::Refusal;

/// An instant, to the microsecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const MIN: Timestamp = Timestamp(0);
    /// 9999-01-01T00:00:00Z.
    pub const MAX: Timestamp = Timestamp(253_370_764_800_000_000);

    /// From microseconds since 1970. What lies outside the range becomes the nearest end of it.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This much later, or the end of time.
    pub fn plus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self::from_micros(self.0.saturating_add(micros))
    }

    /// This much earlier, or the beginning of time.
    pub fn minus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self::from_micros(self.0.saturating_sub(micros))
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant =
            jiff::Timestamp::from_microsecond(self.0).expect("the range is inside jiff's");
        fmt::Display::fmt(&instant, f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let instant: jiff::Timestamp = text.parse().map_err(|_| {
            Refusal::invalid("time", "must be RFC 3339, such as 2026-02-25T12:00:00Z")
        })?;
        let micros = instant.as_microsecond();
        if !(Self::MIN.0..=Self::MAX.0).contains(&micros) {
            return Err(Refusal::invalid("time", "must lie between the years 1970 and 9999"));
        }
        Ok(Self(micros))
    }
}

impl From<Timestamp> for String {
    fn from(instant: Timestamp) -> String {
        instant.to_string()
    }
}

impl TryFrom<String> for Timestamp {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

/// A duration as whole milliseconds, for serde's `with`.
pub mod duration_ms {
    use super::{Deserialize, Duration};

    /// Writes whole milliseconds.
    pub fn serialize<S: serde::Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(super::as_ms(*duration))
    }

    /// Reads whole milliseconds.
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// A duration that may be absent, as whole milliseconds, for serde's `with`.
pub mod duration_ms_option {
    use super::{Deserialize, Duration};

    /// Writes whole milliseconds or null.
    pub fn serialize<S: serde::Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_some(&super::as_ms(*duration)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads whole milliseconds or null.
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// Whole milliseconds of a duration, as rows and documents hold them.
pub fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Can the duration stand in a row or a document as it is?
pub(crate) fn is_whole_ms(duration: Duration) -> bool {
    duration.subsec_nanos().is_multiple_of(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_rfc_3339_with_z() {
        let instant: Timestamp = "2026-02-25T12:00:00Z".parse().unwrap();
        assert_eq!(instant.to_string(), "2026-02-25T12:00:00Z");
        assert_eq!(format!("{instant:?}"), "2026-02-25T12:00:00Z");
        assert_eq!(
            instant.plus(Duration::from_micros(1500)).to_string(),
            "2026-02-25T12:00:00.0015Z"
        );
        let zoned: Timestamp = "2026-02-25T14:00:00+02:00".parse().unwrap();
        assert_eq!(zoned, instant);
    }

    #[test]
    fn absurd_times_are_refused() {
        for text in [
            "",
            "yesterday",
            "1969-12-31T23:59:59Z",
            "9999-01-01T00:00:01Z",
            "2026-02-30T00:00:00Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text:?} was taken");
        }
        assert_eq!("1970-01-01T00:00:00Z".parse::<Timestamp>().unwrap(), Timestamp::MIN);
        assert_eq!("9999-01-01T00:00:00Z".parse::<Timestamp>().unwrap(), Timestamp::MAX);
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Timestamp::MAX.plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_micros(-5), Timestamp::MIN);
        assert_eq!(Timestamp::from_micros(i64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(
            Timestamp::from_micros(9).since(Timestamp::from_micros(4)),
            Duration::from_micros(5)
        );
        assert_eq!(as_ms(Duration::MAX), u64::MAX);
        assert_eq!(as_ms(Duration::from_micros(2_999)), 2);
    }
}
