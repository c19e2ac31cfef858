//! JSON that means the same has the same digest.
//!
//! The canonical form sorts the members of each object by key, drops white space and writes strings one
//! way. Numbers stay as they were written, digit for digit: a number is never rounded, and `1.0` is not
//! `1`. A payload itself is kept byte for byte; only its digest is taken from the canonical form.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::{Refusal, ids::hex};

/// JSON text that a caller sent, kept byte for byte, with the digest of its meaning.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    text: Arc<str>,
    digest: Digest,
}

impl Payload {
    /// The largest payload unless the store is told otherwise.
    pub const MAX_BYTES_DEFAULT: usize = 1024 * 1024;
    /// The deepest nesting of arrays and objects.
    pub const MAX_DEPTH: usize = 64;

    /// Checks that the text is JSON, not too large and not too deep.
    pub fn parse(text: &str, max_bytes: usize) -> Result<Self, Refusal> {
        let refuse = |why: String| Err(Refusal::invalid("payload", why));
        if text.len() > max_bytes {
            return refuse(format!("must be at most {max_bytes} bytes long, not {}", text.len()));
        }
        // Depth first: what is measured here bounds the recursion below.
        if depth(text) > Self::MAX_DEPTH {
            return refuse(format!("must not be nested deeper than {}", Self::MAX_DEPTH));
        }
        if let Err(error) = serde_json::from_str::<&RawValue>(text) {
            return refuse(format!("must be JSON: {error}"));
        }
        Ok(Self { text: text.into(), digest: Digest::of(&canonical(text)) })
    }

    /// The text as it was sent.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The digest of its canonical form.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl fmt::Debug for Payload {
    /// Shows the digest alone: payloads never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes, {})", self.text.len(), self.digest)
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some text.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// The bytes, as a store keeps them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its 64 digits.
    pub fn digits(&self) -> [u8; 64] {
        let mut digits = [0; 64];
        for (two, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            two.copy_from_slice(&hex(byte));
        }
        digits
    }

    /// From the bytes of a row.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).expect("digits are ASCII"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let refusal = || Refusal::invalid("digest", "must be 64 lower-case hexadecimal digits");
        if text.len() != 64 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(refusal());
        }
        let mut bytes = [0; 32];
        for (byte, place) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[place..place + 2], 16).map_err(|_| refusal())?;
        }
        Ok(Self(bytes))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

/// The canonical form of JSON text that is known to be valid and not too deep.
///
/// Of members with the same key the last one counts, as it does for most readers of JSON.
fn canonical(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    Reader { rest: json }.value(&mut out);
    out
}

/// Reads valid JSON from the front of a text.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn value(&mut self, out: &mut String) {
        match self.peek() {
            b'{' => self.object(out),
            b'[' => self.array(out),
            b'"' => out.push_str(&quoted(self.string())),
            _ => out.push_str(self.scalar()),
        }
    }

    fn object(&mut self, out: &mut String) {
        let mut members = BTreeMap::new();
        self.skip(1);
        while self.peek() != b'}' {
            let key = quoted(self.string());
            self.expect(b':');
            let mut value = String::new();
            self.value(&mut value);
            members.insert(key, value);
            self.separator();
        }
        self.skip(1);
        let members: Vec<String> = members.into_iter().map(|(k, v)| format!("{k}:{v}")).collect();
        out.push('{');
        out.push_str(&members.join(","));
        out.push('}');
    }

    fn array(&mut self, out: &mut String) {
        self.skip(1);
        out.push('[');
        while self.peek() != b']' {
            self.value(out);
            if self.separator() {
                out.push(',');
            }
        }
        self.skip(1);
        out.push(']');
    }

    /// The string at the front with its quotes, as it was written.
    fn string(&mut self) -> &'a str {
        self.peek();
        let mut escaped = false;
        let end = self.rest.bytes().skip(1).position(|byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        });
        self.take(end.expect("a string is closed") + 2)
    }

    /// The number or word at the front, as it was written.
    fn scalar(&mut self) -> &'a str {
        let ends = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | ']' | '}');
        self.take(self.rest.find(ends).unwrap_or(self.rest.len()))
    }

    /// The first byte that is not white space; zero at the end.
    fn peek(&mut self) -> u8 {
        self.rest = self.rest.trim_ascii_start();
        self.rest.bytes().next().unwrap_or(0)
    }

    /// Skips a comma, if one is next.
    fn separator(&mut self) -> bool {
        let comma = self.peek() == b',';
        if comma {
            self.skip(1);
        }
        comma
    }

    fn expect(&mut self, byte: u8) {
        assert_eq!(self.peek(), byte, "the JSON was checked before");
        self.skip(1);
    }

    fn skip(&mut self, bytes: usize) {
        self.take(bytes);
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }
}

/// A JSON string written in one way. A lone surrogate has no other way: it stays as it was.
fn quoted(raw: &str) -> String {
    match serde_json::from_str::<String>(raw) {
        Ok(text) => serde_json::to_string(&text).expect("a string is JSON"),
        Err(_) => raw.to_owned(),
    }
}

/// How deep arrays and objects are nested, counting brackets outside strings.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut inside, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => inside = !inside,
            b'{' | b'[' if !inside => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !inside => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        assert_eq!(canonical(json), expected);
    }

    #[test]
    fn order_and_white_space_do_not_matter() {
        check(
            r#" { "b" : 1 , "a" : [ true , null , { } , [ ] ] } "#,
            r#"{"a":[true,null,{},[]],"b":1}"#,
        );
        check("[1,\n2]", "[1,2]");
        check("  -0  ", "-0");
    }

    #[test]
    fn numbers_stay_as_they_were_written() {
        check(
            r#"{"n":3544790567247868102,"x":1.0,"y":1e400,"z":-0.10}"#,
            r#"{"n":3544790567247868102,"x":1.0,"y":1e400,"z":-0.10}"#,
        );
        assert_ne!(Digest::of(&canonical("1")), Digest::of(&canonical("1.0")));
    }

    #[test]
    fn strings_are_written_in_one_way() {
        check(r#""\u0041\/\"\\""#, r#""A/\"\\""#);
        check(r#"{"\u0061":1}"#, r#"{"a":1}"#);
        check(r#"["\\","}"]"#, r#"["\\","}"]"#);
        check(r#""\ud800""#, r#""\ud800""#);
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        check(r#"{"a":1,"a":2}"#, r#"{"a":2}"#);
    }

    #[test]
    fn a_payload_keeps_its_bytes() {
        let text = r#"{ "b":1.50, "a":[ ] }"#;
        let payload = Payload::parse(text, 100).unwrap();
        assert_eq!(payload.as_str(), text);
        let twin = Payload::parse(r#"{"a":[],"b":1.50}"#, 100).unwrap();
        assert_eq!(twin.digest(), payload.digest());
        assert!(!format!("{payload:?}").contains("1.50"));
        assert!(format!("{payload:?}").starts_with("Payload(21 bytes, "));
    }

    #[test]
    fn a_payload_is_json_of_bounded_size_and_depth() {
        for text in ["", "{", "nul", "1 2", "{\"a\":1,}", "\"\u{1}\"", "{'a':1}"] {
            assert!(Payload::parse(text, 100).is_err(), "{text:?} was taken");
        }
        assert!(Payload::parse("[1,2]", 5).is_ok());
        assert!(Payload::parse("[1,2]", 4).is_err());
        let nested = |n| "[".repeat(n) + &"]".repeat(n);
        assert!(Payload::parse(&nested(64), 1_000).is_ok());
        assert!(Payload::parse(&nested(65), 1_000).is_err());
        assert!(Payload::parse(&nested(500_000), 2_000_000).is_err());
        let hidden = format!(r#"["]]]]",{}]"#, nested(64));
        assert!(Payload::parse(&hidden, 1_000).is_err(), "brackets in text close nothing");
        assert_eq!(Payload::MAX_BYTES_DEFAULT, 1_048_576);
        let objects = r#"{"a":"#.repeat(64) + "1" + &"}".repeat(64);
        assert!(Payload::parse(&objects, 1_000).is_ok());
        let wide = format!("[{}[]]", "[],".repeat(200));
        assert!(Payload::parse(&wide, 1_000).is_ok());
        let brackets_in_text = format!(r#"["\"{}"]"#, "[".repeat(99));
        assert!(Payload::parse(&brackets_in_text, 1_000).is_ok());
    }

    #[test]
    fn a_digest_reads_back_as_it_was_written() {
        let digest = Digest::of("");
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        assert_eq!(Digest::from_bytes(*digest.as_bytes()), digest);
        assert_eq!(format!("{digest:?}"), text);
        assert_eq!(serde_json::to_string(&digest).unwrap(), format!("\"{text}\""));
        for bad in ["", "e3", &text[1..], &text.to_uppercase(), &text.replace('e', "+")] {
            assert!(bad.parse::<Digest>().is_err(), "{bad:?} was taken");
        }
    }
}
