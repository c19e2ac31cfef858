//! Words: one line of a story, cut up and read from left to right.
//!
//! Words are parted by spaces. JSON in brackets and text in double quotes are one word each. Whatever
//! does not fit is an error that says what was expected; nothing is passed over in silence.

use std::{collections::VecDeque, fmt, str::FromStr, time::Duration};

use serde_json::Value;
use windlass_kernel::JobId;

/// What is wrong with a line, as a sentence.
pub(super) type Result<T> = std::result::Result<T, String>;

/// The words of a line that were not read yet.
#[derive(Debug)]
pub(super) struct Words {
    left: VecDeque<String>,
    keys: Vec<String>,
}

impl Words {
    /// Cuts a line at its arrow: what happens, and what is expected of it.
    pub(super) fn of_line(line: &str) -> Result<(Words, Option<Words>)> {
        let mut words = cut(line)?;
        let Some(arrow) = words.iter().position(|word| word == "->") else {
            return Ok((Words::new(words), None));
        };
        let expected = words.split_off(arrow + 1);
        words.pop_back();
        if expected.is_empty() {
            return Err("nothing stands after the arrow".to_owned());
        }
        Ok((Words::new(words), Some(Words::new(expected))))
    }

    fn new(left: VecDeque<String>) -> Words {
        Words { left, keys: Vec::new() }
    }

    /// The next word, which is a key or a flag and stands once in a line.
    pub(super) fn key(&mut self) -> Result<Option<String>> {
        let Some(key) = self.next() else { return Ok(None) };
        if self.keys.contains(&key) {
            return Err(format!("{key} is said twice"));
        }
        self.keys.push(key.clone());
        Ok(Some(key))
    }

    /// The next word, if there is one.
    pub(super) fn next(&mut self) -> Option<String> {
        self.left.pop_front()
    }

    /// The next word, which has to be there.
    pub(super) fn word(&mut self, what: &str) -> Result<String> {
        self.next().ok_or_else(|| format!("{what} is missing"))
    }

    /// The next word, if it is this one.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let found = self.left.front().is_some_and(|next| next == word);
        if found {
            self.left.pop_front();
        }
        found
    }

    /// The next word, if it is the name of a job.
    pub(super) fn take_job(&mut self) -> Option<Name> {
        let name = Name::parse(self.left.front()?).ok()?;
        self.left.pop_front();
        Some(name)
    }

    /// The name of a job.
    pub(super) fn job(&mut self, what: &str) -> Result<Name> {
        Name::parse(&self.word(what)?)
    }

    /// A whole number.
    pub(super) fn number<T: FromStr>(&mut self, what: &str) -> Result<T> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("{what} must be a number, not {word:?}"))
    }

    /// A length of time, such as `1500ms` or `10s`.
    pub(super) fn duration(&mut self, what: &str) -> Result<Duration> {
        let word = self.word(what)?;
        parse_duration(&word).ok_or_else(|| format!("{what} must be a time like 10s, not {word:?}"))
    }

    /// A piece of JSON, as it was written.
    pub(super) fn json(&mut self, what: &str) -> Result<String> {
        let word = self.word(what)?;
        match serde_json::from_str::<Value>(&word) {
            Ok(_) => Ok(word),
            Err(error) => Err(format!("{what} must be JSON: {error}")),
        }
    }

    /// All that is left, as one text.
    pub(super) fn rest(&mut self) -> String {
        self.left.drain(..).collect::<Vec<_>>().join(" ")
    }

    /// Refuses words that are left over.
    pub(super) fn end(&self) -> Result<()> {
        match self.left.front() {
            None => Ok(()),
            Some(word) => Err(format!("{word:?} is one word too many")),
        }
    }
}

/// A key that nobody knows here, and those that are known.
pub(super) fn unknown<T>(what: &str, word: &str, known: &str) -> Result<T> {
    Err(format!("there is no {what} {word:?}; known are: {known}"))
}

/// The name of a job in a story: `j1`, `j2` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(u32);

impl Name {
    /// Reads a name.
    pub(super) fn parse(word: &str) -> Result<Name> {
        let digits = word.strip_prefix('j').filter(|digits| !digits.starts_with(['0', '+']));
        let number = digits.and_then(|digits| digits.parse().ok());
        number.map(Name).ok_or_else(|| format!("a job is called j1, j2 and so on, not {word:?}"))
    }

    /// The id of the job: the same in every run.
    pub fn id(self) -> JobId {
        JobId::from_u128(self.0.into())
    }

    /// The name of the job with this id.
    pub(super) fn of(id: JobId) -> Name {
        Name(u32::try_from(id.as_u128()).expect("the ids of a story come from its names"))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "j{}", self.0)
    }
}

/// Reads a length of time: a whole number and its unit.
pub(super) fn parse_duration(word: &str) -> Option<Duration> {
    let (digits, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit())?);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_ms).map(Duration::from_millis)
}

fn cut(line: &str) -> Result<VecDeque<String>> {
    let mut words = VecDeque::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '{' | '[' => json_length(rest)?,
            '"' => 2 + rest[1..].find('"').ok_or("a quoted text has no end")?,
            _ => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(length);
        words.push_back(if first == '"' {
            word[1..length - 1].to_owned()
        } else {
            word.to_owned()
        });
        rest = after.trim_start();
    }
    Ok(words)
}

fn json_length(text: &str) -> Result<usize> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(_)) => Ok(values.byte_offset()),
        _ => Err("what begins like JSON is not JSON".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_spaces_and_at_its_arrow() {
        let line = r#"enqueue j1 payload {"a": [1, 2]}  key "" -> queued"#;
        let (mut happens, expected) = Words::of_line(line).unwrap();
        let words: Vec<_> = std::iter::from_fn(|| happens.next()).collect();
        assert_eq!(words, ["enqueue", "j1", "payload", r#"{"a": [1, 2]}"#, "key", ""]);
        assert_eq!(expected.unwrap().rest(), "queued");
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(parse_duration("1500ms"), Some(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("2h"), Some(Duration::from_secs(7_200)));
        for word in ["", "5", "s", "5 s", "-1s", "1.5s", "5weeks", "99999999999999999999s"] {
            assert_eq!(parse_duration(word), None, "{word:?} was taken");
        }
    }

    #[test]
    fn a_job_has_a_number() {
        assert_eq!(Name::parse("j12").unwrap().id(), JobId::from_u128(12));
        assert_eq!(Name::of(JobId::from_u128(12)).to_string(), "j12");
        for word in ["", "j", "j0", "j01", "j+1", "jx", "12", "job"] {
            assert!(Name::parse(word).is_err(), "{word:?} was taken");
        }
    }

    #[test]
    fn what_has_no_end_is_refused() {
        assert!(Words::of_line("enqueue j1 payload {").is_err());
        assert!(Words::of_line("enqueue j1 key \"a").is_err());
        assert!(Words::of_line("claim j1 ->").is_err());
    }
}
