//! What holds in the end, key by key, and where each value comes from.
//!
//! Never true: that a secret is shown. What is compared is the value; what is shown may be `…`.

use toml::{Table, Value as Toml};
use windlass_store::without_password;

use super::{
    keys::{Key, SECTIONS, Sort, Value},
    variables::value,
};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    /// A variable.
    Environment,
    /// The file, on this line as far as it is known.
    File(Option<usize>),
    Default,
}

/// A key and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) section: String,
    pub(crate) key: String,
    /// None, if nothing is said and nothing is usual.
    pub(crate) value: Option<Toml>,
    pub(crate) origin: Origin,
    /// Does a server take another value without a restart?
    pub(crate) reloads: bool,
}

impl Entry {
    /// The value as it may be shown.
    pub(crate) fn shown(&self) -> Option<Toml> {
        let hidden = || Toml::String("…".to_owned());
        match (self.key.as_str(), &self.value) {
            ("secret" | "secret_old" | "url", Some(_)) => Some(hidden()),
            ("store", Some(Toml::String(url))) => Some(Toml::String(without_password(url))),
            // What a program gets may be a secret, too.
            ("env", Some(Toml::Table(env))) => {
                Some(Toml::Table(env.keys().map(|key| (key.clone(), hidden())).collect()))
            }
            (_, value) => value.clone(),
        }
    }
}

/// Every key with its value. `given` says what flags and variables say about a key of a section; the file can be used.
pub(crate) fn entries(
    given: impl Fn(&str, &str) -> Option<(String, Origin)>,
    file: &str,
) -> Vec<Entry> {
    let table: Table = toml::from_str(file).unwrap_or_default();
    let mut entries = Vec::new();
    for section in SECTIONS {
        match section.sort {
            Sort::One => {
                let found = at(&table, section.name);
                for key in section.keys {
                    let above = given(section.name, key.name);
                    entries.push(entry(section.name, key, above, found, file));
                }
            }
            Sort::Named => {
                let parent = section.name.rsplit_once('.').map_or("", |it| it.0);
                for (name, value) in at(&table, parent).into_iter().flatten() {
                    let name = format!("{parent}.{name}");
                    let found = value.as_table();
                    let one = section.keys.iter().map(|key| entry(&name, key, None, found, file));
                    entries.extend(one);
                }
            }
            Sort::Many => {
                let all = table.get(section.name).and_then(Toml::as_array);
                for (number, value) in all.into_iter().flatten().enumerate() {
                    let (name, found) = (format!("{}.{number}", section.name), value.as_table());
                    let one = section.keys.iter().map(|key| Entry {
                        origin: origin(found, key, None),
                        ..entry(&name, key, None, found, file)
                    });
                    entries.extend(one);
                }
            }
        }
    }
    entries
}

/// The section of the file, if it has one.
fn at<'a>(table: &'a Table, section: &str) -> Option<&'a Table> {
    section.split('.').try_fold(table, |table, part| table.get(part)?.as_table())
}

fn entry(
    section: &str,
    key: &Key,
    above: Option<(String, Origin)>,
    found: Option<&Table>,
    file: &str,
) -> Entry {
    let usual = match key.value {
        Value::Usual(text) => Some(read(text)),
        Value::Example(_) => None,
    };
    let sort = read(key.value.text());
    let in_file = found.and_then(|found| found.get(key.name));
    let (value, origin) = match (above, in_file) {
        (Some((text, origin)), _) => (value(&text, &sort).ok(), origin),
        (None, Some(found_value)) => {
            (Some(found_value.clone()), origin(found, key, line(file, section, key.name)))
        }
        (None, None) => (usual, Origin::Default),
    };
    let (section, key_name) = (section.to_owned(), key.name.to_owned());
    Entry { section, key: key_name, value, origin, reloads: key.reloads }
}

fn origin(found: Option<&Table>, key: &Key, line: Option<usize>) -> Origin {
    match found.is_some_and(|found| found.contains_key(key.name)) {
        true => Origin::File(line),
        false => Origin::Default,
    }
}

/// A value as the file has it. What is none is taken for text.
pub(super) fn read(text: &str) -> Toml {
    let table = toml::from_str::<Table>(&format!("value = {text}"));
    let value = table.ok().and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Toml::String(text.to_owned()))
}

/// The line on which a key of a section stands, if it is written in the usual way.
fn line(file: &str, section: &str, key: &str) -> Option<usize> {
    let mut current = "";
    for (number, line) in (1..).zip(file.lines()) {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            current = name.trim();
        } else if current == section
            && line.split_once('=').is_some_and(|(name, _)| name.trim() == key)
        {
            return Some(number);
        }
    }
    None
}
