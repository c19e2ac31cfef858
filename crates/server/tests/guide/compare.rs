//! Does a command print what the page shows? What differs from run to run (ids, times, durations) may differ.

use std::collections::HashMap;

use serde_json::Value;

/// Which id of the page stands for which real one.
#[derive(Clone, Default)]
pub(crate) struct Ids(HashMap<String, String>);

impl Ids {
    /// The text with the ids of the page in place of the real ones.
    pub(crate) fn as_shown(&self, text: &str) -> String {
        let shown =
            |real: &str| self.0.iter().find(|(_, is)| *is == real).map(|(shown, _)| shown.clone());
        words(text).map(|word| shown(word).unwrap_or_else(|| word.to_owned())).collect()
    }

    /// The text with the real ids in place of those of the page.
    pub(crate) fn as_meant(&self, text: &str) -> String {
        let real = |word: &str| self.0.get(word).cloned().unwrap_or_else(|| word.to_owned());
        words(text).map(real).collect()
    }

    /// Lets unknown ids of a line that is shown stand for those of the line that was printed, in their order.
    fn learn(&mut self, shown: &str, printed: &str) {
        let unknown: Vec<&str> = words(printed)
            .filter(|word| is_id(word) && !self.0.values().any(|known| known == word))
            .collect();
        let free = words(shown).filter(|word| is_id(word) && !self.0.contains_key(*word));
        for (shown, printed) in free.collect::<Vec<_>>().into_iter().zip(unknown) {
            self.0.insert(shown.to_owned(), printed.to_owned());
        }
    }
}

/// Are these lines what the page shows? If so, the ids in them are known from now on.
pub(crate) fn is_shown(shown: &[String], printed: &[String], ids: &mut Ids) -> bool {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty() };
    if first.trim() == "..." {
        let mut skips = 0..=printed.len();
        return skips.any(|skip| {
            let mut tried = ids.clone();
            let fits = is_shown(rest, &printed[skip..], &mut tried);
            if fits {
                *ids = tried;
            }
            fits
        });
    }
    let Some((line, more)) = printed.split_first() else { return false };
    ids.learn(first, line);
    fits(&steady(first), &steady(&ids.as_shown(line))) && is_shown(rest, more, ids)
}

/// Is this line that one, where `…` stands for anything?
fn fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The line with one space between its words, and a sign for each time, each duration and each bar.
fn steady(line: &str) -> String {
    let mut steady: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_end_matches([',', '.', ';', ':', ')']);
        let end = &word[bare.len()..];
        let before = steady.last().map(String::as_str);
        let is_ago = bare == "ago" && before == Some("⌛");
        if is_ago || is_duration(bare) && before == Some("in") {
            steady.pop();
            steady.push(format!("⏰{end}"));
        } else if is_duration(bare) {
            // `1m 4s` is one duration.
            if before == Some("⌛") {
                steady.pop();
            }
            steady.push(format!("⌛{end}"));
        } else if word.chars().all(|it| "█░≈".contains(it)) {
            steady.push("▒".to_owned());
        } else if bare == "now" || is_time(bare) {
            steady.push(format!("⏰{end}"));
        } else {
            steady.push(without_session(word).to_owned());
        }
    }
    steady.join(" ")
}

/// A worker such as `http-bb5c5196` without the name of its session.
fn without_session(word: &str) -> &str {
    let is_session =
        |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    word.rsplit_once('-').filter(|(_, end)| is_session(end)).map_or(word, |(name, _)| name)
}

fn is_duration(word: &str) -> bool {
    let word = word.trim_start_matches('+');
    let digits = word.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let units = ["µs", "us", "ms", "s", "m", "h", "d"];
    digits > 0 && units.contains(&&word[digits..])
}

/// Is it a time such as `2026-01-02T03:04:05.678Z`, or a part of one?
fn is_time(word: &str) -> bool {
    let shape: String = word.chars().map(|it| if it.is_ascii_digit() { 'd' } else { it }).collect();
    let (date, clock) = ("dddd-dd-dd", "dd:dd:dd");
    let rest = shape.strip_prefix(date).map(|rest| rest.strip_prefix('T').unwrap_or(rest));
    let is_end = |rest: &str| {
        let zone = rest.trim_start_matches(['d', '.']);
        ["", "Z", "+dd:dd", "-dd:dd"].contains(&zone)
    };
    match rest {
        Some("") => true,
        Some(rest) => rest.strip_prefix(clock).is_some_and(is_end),
        None => shape.strip_prefix(clock).is_some_and(is_end),
    }
}

/// The text cut where words of letters, digits and `_` begin and end.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let is = is_word(rest.chars().next()?);
        let end = rest.find(|char| is_word(char) != is).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

/// Is it an id such as `job_…`, or a trace?
fn is_id(word: &str) -> bool {
    let ids = ["job_", "dlq_", "tok_", "claim_"];
    let is_id = ids.iter().any(|id| word.strip_prefix(id).is_some_and(|rest| rest.len() == 26));
    is_id || word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Says where the answer lacks something that the page shows. `"…"` stands for anything that is there.
pub(crate) fn lacks(shown: &Value, answer: &Value) -> Option<String> {
    match (shown, answer) {
        (Value::String(any), found) if any == "…" => found.is_null().then(|| "it is null".into()),
        (Value::Object(shown), Value::Object(answer)) => shown.iter().find_map(|(name, shown)| {
            let Some(found) = answer.get(name) else { return Some(format!("there is no {name}")) };
            lacks(shown, found).map(|why| format!("{name}: {why}"))
        }),
        (Value::Array(shown), Value::Array(answer)) if shown.len() == answer.len() => {
            shown.iter().zip(answer).find_map(|(shown, found)| lacks(shown, found))
        }
        _ if shown == answer => None,
        _ => Some(format!("{shown} is shown, and it is {answer}")),
    }
}

#[test]
fn only_what_differs_from_run_to_run_may_differ() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let check = |shown: &str, printed: &str, expected: bool| {
        let is = is_shown(&lines(shown), &lines(printed), &mut Ids::default());
        assert_eq!(is, expected, "{shown:?} {printed:?}");
    };
    let (a, b) = ("job_01kz000000000000000000000a", "job_01kz000000000000000000000b");
    check("JOB  AT\nx    3s ago", "JOB   AT\nx  now", true);
    check("took 1m 4s, at 2026-01-02T03:04:05Z", "took 12ms, at 2026-09-09T09:09:09.123Z", true);
    check("2026-11-18 02:30:00+01:00 Berlin", "2027-06-18 02:30:00+02:00 Berlin", true);
    check("worker:http-bb5c5196 took 5s", "worker:http-0123abcd took 6s", true);
    check("1  ░░██  5s", "1  ░≈░███  6s", true);
    check("took 5s", "took five", false);
    check("first\n...\nlast", "first\na\nb\nlast", true);
    check("first\n...\nlast", "first\na", false);
    check("in the … there", "in the middle of it there", true);
    check(&format!("{a}\n{a}"), &format!("{b}\n{b}"), true);
    check(&format!("{a}\n{a}"), &format!("{a}\n{b}"), false);
    check(&format!("{a}\n{b}"), &format!("{b}\n{b}"), false);
}
