//! Why a payload does not fit: where, and what kind of trouble it is, never what stands there.
//!
//! Messages end up in logs, in events and in dead letters, and not all who read those may read payloads. So nothing is told
//! that comes from the payload, but for keys that look like names of fields.

use std::fmt::Write as _;

/// What to tell of a payload that cannot be read as what the handler takes.
pub(crate) fn unfit(payload: &str, error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let trouble = trouble(&error.to_string());
    match consumed(payload, line, column) {
        Some(read) => format!("{} (line {line}, column {column}): {trouble}", path(read)),
        None => format!("$: {trouble}"),
    }
}

/// The kind of trouble, and what the handler's type would have taken: both are the program's own words.
fn trouble(message: &str) -> String {
    // What is expected comes last, so a value cannot look like it.
    let expected = message.rsplit_once(", expected ").map_or("", |(_, expected)| expected);
    let expected = expected.rsplit_once(" at line ").map_or(expected, |(expected, _)| expected);
    let is = |kind: &str| message.starts_with(kind);
    let kind = if is("invalid type: ") {
        found(message)
    } else if is("invalid value: ") {
        "a value that it does not take"
    } else if is("invalid length ") {
        "more or fewer values than it takes"
    } else if is("unknown variant ") {
        "a variant that it does not know"
    } else if is("unknown field ") {
        "a field that it does not know"
    } else if is("missing field ") || is("duplicate field ") {
        // The name is that of a field of the type.
        let words = message.split(" at line ").next().unwrap_or("a field is missing");
        return words.to_owned();
    } else {
        // In words of a type of the user, which may quote it.
        return "what its type refuses".to_owned();
    };
    match expected {
        "" => kind.to_owned(),
        expected => format!("{kind}, expected {expected}"),
    }
}

/// The type of what was found instead.
fn found(message: &str) -> &'static str {
    let found = message.trim_start_matches("invalid type: ");
    let kinds = ["string", "integer", "floating point", "boolean", "null", "map", "sequence"];
    let kind = kinds.into_iter().find(|kind| found.starts_with(kind));
    kind.unwrap_or("another type")
}

/// What was read of the payload when it was seen not to fit. None, if that is not known.
fn consumed(payload: &str, line: usize, column: usize) -> Option<&[u8]> {
    let before = payload.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len);
    payload.as_bytes().get(..before.sum::<usize>() + column)
}

/// What one is inside of.
enum Level {
    /// An object, and the key that was read last.
    Object { key: Option<String>, in_value: bool },
    /// A list, and the place in it; none, if nothing of it was read.
    List { place: Option<usize> },
}

/// Where one is after so much of a document: `$.items[2].count`.
fn path(read: &[u8]) -> String {
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while let Some(byte) = read.get(at) {
        at += 1;
        if let Some(Level::List { place: place @ None }) = levels.last_mut()
            && !byte.is_ascii_whitespace()
            && *byte != b']'
        {
            *place = Some(0);
        }
        match (byte, levels.last_mut()) {
            (b'{', _) => levels.push(Level::Object { key: None, in_value: false }),
            (b'[', _) => levels.push(Level::List { place: None }),
            (b'}' | b']', _) => drop(levels.pop()),
            (b',', Some(Level::List { place: Some(place) })) => *place += 1,
            (b',', Some(Level::Object { in_value, .. })) => *in_value = false,
            (b':', Some(Level::Object { in_value, .. })) => *in_value = true,
            (b'"', level) => {
                let text = text_at(&read[at..]);
                at += text.len() + 1;
                if let Some(Level::Object { key, in_value: false }) = level {
                    *key = Some(String::from_utf8_lossy(text).into_owned());
                }
            }
            _ => {}
        }
    }
    let mut path = String::from("$");
    for level in &levels {
        match level {
            Level::Object { key: Some(key), .. } if is_name(key) => {
                let _ = write!(path, ".{key}");
            }
            Level::Object { key: Some(_), .. } => path.push_str(".*"),
            Level::List { place: Some(place) } => {
                let _ = write!(path, "[{place}]");
            }
            Level::Object { key: None, .. } | Level::List { place: None } => {}
        }
    }
    path
}

/// What stands up to the end of a text.
fn text_at(rest: &[u8]) -> &[u8] {
    let mut end = 0;
    while end < rest.len() && rest[end] != b'"' {
        end += if rest[end] == b'\\' { 2 } else { 1 };
    }
    &rest[..end.min(rest.len())]
}

/// The longest key that is taken for the name of a field.
const NAME_MAX: usize = 40;

/// Does a key look like the name of a field? Others may be data: an address, a customer.
fn is_name(key: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    key.len() <= NAME_MAX
        && key.bytes().all(fits)
        && key.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, de::DeserializeOwned};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is only read from JSON")]
    struct Order {
        id: u32,
        #[serde(default)]
        items: Vec<Item>,
        #[serde(default)]
        by_customer: BTreeMap<String, Item>,
        state: Option<Stage>,
        until: Option<std::net::IpAddr>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "it is only read from JSON")]
    struct Item {
        count: u8,
    }

    #[derive(Debug, Deserialize)]
    enum Stage {
        Open,
        Closed,
    }

    fn told<T: DeserializeOwned + std::fmt::Debug>(payload: &str) -> String {
        unfit(payload, &serde_json::from_str::<T>(payload).unwrap_err())
    }

    #[track_caller]
    fn check(payload: &str, expected: &str) {
        let told = told::<Order>(payload);
        assert!(!told.contains("s3cret"), "{told}");
        let (place, trouble) = told.split_once(": ").unwrap();
        let place = place.split(" (").next().unwrap();
        assert_eq!(format!("{place}: {trouble}"), expected, "{payload}");
    }

    #[test]
    fn the_place_and_the_kind_are_told_and_not_the_value() {
        check(r#"{"id": "s3cret"}"#, "$.id: string, expected u32");
        check(r#"{"id": {"s3cret": 1}}"#, "$.id: map, expected u32");
        check(r#"{"id": ["s3cret"]}"#, "$.id: sequence, expected u32");
        check(r#"{"id": 1.5}"#, "$.id: floating point, expected u32");
        check(r#"{"id": null}"#, "$.id: null, expected u32");
        check(r#"["s3cret", 1]"#, "$[0]: string, expected u32");
        check(r#""s3cret""#, "$: string, expected struct Order");
        check(
            r#"{"id": 1, "items": [{"count": 1}, {"count": "s3cret"}]}"#,
            "$.items[1].count: string, expected u8",
        );
        check(
            "{\n \"items\": [\n {\"count\": 300}]}",
            "$.items[0].count: a value that it does not take, expected u8",
        );
        check(r#"{"items": [], "state": null}"#, "$: missing field `id`");
        check(r#"{"id": 1, "items": [{}]}"#, "$.items[0]: missing field `count`");
        check(r#"{"id": 1, "id": 2}"#, "$.id: duplicate field `id`");
        check(
            r#"{"id": 1, "state": "s3cret"}"#,
            "$.state: a variant that it does not know, expected `Open` or `Closed`",
        );
        check(r#"{"id": 1, "until": "s3cret"}"#, "$.until: what its type refuses");
    }

    #[test]
    fn a_key_that_may_be_data_is_not_told() {
        check(
            r#"{"id": 1, "by_customer": {"s3cret@example.com": {"count": "x"}}}"#,
            "$.by_customer.*.count: string, expected u8",
        );
        check(
            r#"{"id": 1, "by_customer": {"a\"s3cret": {"count": []}}}"#,
            "$.by_customer.*.count: sequence, expected u8",
        );
        let told = told::<Order>(r#"{"more": 1}"#);
        assert!(
            told.starts_with("$.more (line 1, column 7): a field that it does not know"),
            "{told}"
        );
    }

    #[test]
    fn a_value_that_looks_like_our_words_is_not_told() {
        check(r#"{"id": "a, expected s3cret at line 7"}"#, "$.id: string, expected u32");
        check(r#"{"id": "{[\"s3cret\\\",:"}"#, "$.id: string, expected u32");
    }
}
