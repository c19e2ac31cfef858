//! How values are read from the file, and what is said about those that cannot be used.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Deserializer, de::Error};
use windlass_kernel::Queue;

/// The line of an error, and what to do about it.
///
/// The library would show the line as it stands, with whatever secret is on it.
pub(super) fn explain(text: &str, error: &toml::de::Error) -> (usize, String) {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text[..at].matches('\n').count() + 1;
    let message = error.message();
    if let Some(told) = unknown(message) {
        return (line, told);
    }
    let whole = text.lines().nth(line - 1).unwrap_or_default();
    let key = whole.split_once('=').map(|(key, _)| key.trim());
    match key.filter(|key| !key.is_empty() && !message.starts_with("missing")) {
        Some(key) => (line, format!("{key}: {message}")),
        None => (line, message.to_owned()),
    }
}

/// What to say about a key that nobody knows: the known one that comes closest.
fn unknown(message: &str) -> Option<String> {
    let mut names = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let given = names.next()?;
    let known: Vec<&str> = names.collect();
    let distance = |name: &&str| strsim::damerau_levenshtein(given, name);
    let nearest = known.iter().copied().min_by_key(distance)?;
    Some(match distance(&nearest) <= nearest.len().max(3) / 2 {
        true => format!("there is no key {given:?} here; did you mean {nearest:?}?"),
        false => format!("there is no key {given:?} here; there are {}", known.join(", ")),
    })
}

/// Refuses a number that is out of its bounds.
pub(super) fn within(number: u64, bounds: &RangeInclusive<u64>) -> Result<u64, String> {
    match bounds.contains(&number) {
        true => Ok(number),
        false => {
            Err(format!("it must be from {} to {}, not {number}", bounds.start(), bounds.end()))
        }
    }
}

/// A number within bounds.
pub(super) fn number<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(
    from: D,
) -> Result<u64, D::Error> {
    within(u64::deserialize(from)?, &(MIN..=MAX)).map_err(D::Error::custom)
}

/// A count within bounds.
pub(super) fn count<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(
    from: D,
) -> Result<usize, D::Error> {
    let number = number::<D, MIN, MAX>(from)?;
    usize::try_from(number).map_err(D::Error::custom)
}

/// Milliseconds within bounds.
pub(super) fn ms<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(
    from: D,
) -> Result<Duration, D::Error> {
    number::<D, MIN, MAX>(from).map(Duration::from_millis)
}

/// The names of queues: at least one.
pub(super) fn queues<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let queues = Vec::<String>::deserialize(from)?;
    if queues.is_empty() {
        return Err(D::Error::custom("name at least one queue, such as [\"default\"]"));
    }
    for queue in &queues {
        Queue::new(queue).map_err(|refusal| D::Error::custom(refusal.to_string()))?;
    }
    Ok(queues)
}
