//! Variables: whatever can be said in the file in one value, or in a list of them, can be said by a variable too.
//!
//! Its name is `WINDLASS_`, the section and the key: `lease_churn` of `[alerts]` is `WINDLASS_ALERTS_LEASE_CHURN`. Keys of
//! `[server]` go without their section, as their flags do: `WINDLASS_GRACE_MS`. A list has commas between its values.
//!
//! Never here: sections that stand under a name of one's own, or more than once. They are for the file, which can name
//! variables for their secrets. A variable that is empty says nothing.

use std::{collections::BTreeMap, env};

use serde::Deserialize as _;
use toml::{Table, Value as Toml};

use super::{
    File,
    keys::{SECTIONS, Sort},
    origins::read,
};

/// What each name begins with.
const PREFIX: &str = "WINDLASS_";

/// Keys that are a flag of every command that has them, which reads the variable itself.
const FLAGS: [&str; 3] = ["store", "listen", "dev"];

/// The variable of a key, if it has one.
pub(crate) fn variable(section: &str, key: &str) -> Option<String> {
    let known = SECTIONS.iter().find(|it| it.name == section && it.sort == Sort::One)?;
    known.keys.iter().find(|it| it.name == key)?;
    let name = match section {
        "server" => key.to_owned(),
        section => format!("{}_{key}", section.replace('.', "_")),
    };
    Some(format!("{PREFIX}{}", name.to_ascii_uppercase()))
}

/// The names of all of them.
pub(crate) fn variables() -> impl Iterator<Item = String> {
    let all =
        SECTIONS.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key)));
    all.filter_map(|(section, key)| variable(section.name, key.name))
}

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(crate) fn of_environment() -> Self {
        let ours = |(name, text): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, text.into_string().ok()?))
        };
        env::vars_os().filter_map(ours).collect()
    }

    /// The names of those that begin as ours do.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What is said about a key.
    pub(crate) fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.0.get(&variable(section, key)?).map(String::as_str)
    }

    /// The file, below what is said here. The error names the variable.
    pub(super) fn above(&self, file: &str) -> Result<File, String> {
        let mut table: Table = toml::from_str(file).map_err(|error| error.message().to_owned())?;
        for section in SECTIONS {
            for key in section.keys.iter().filter(|key| !FLAGS.contains(&key.name)) {
                let Some(text) = self.get(section.name, key.name) else { continue };
                let name = variable(section.name, key.name).unwrap_or_default();
                let value = value(text, &read(key.value.text()));
                let value = value.map_err(|why| format!("{name}: {why}"))?;
                // By itself first, so that it is known whose fault it is.
                let mut alone = Table::new();
                put(&mut alone, section.name, key.name, value.clone());
                let fits = File::deserialize(Toml::Table(alone));
                fits.map_err(|error| format!("{name}: {}", error.message()))?;
                put(&mut table, section.name, key.name, value);
            }
        }
        File::deserialize(Toml::Table(table)).map_err(|error| error.message().to_owned())
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(all: T) -> Self {
        let is_ours =
            |(name, text): &(String, String)| name.starts_with(PREFIX) && !text.is_empty();
        Self(all.into_iter().filter(is_ours).collect())
    }
}

/// Puts a value into its section, which is made if it is not there.
fn put(table: &mut Table, section: &str, key: &str, value: Toml) {
    let below = section.split('.').try_fold(table, |table, part| {
        let entry = table.entry(part.to_owned()).or_insert_with(|| Toml::Table(Table::new()));
        entry.as_table_mut()
    });
    if let Some(below) = below {
        below.insert(key.to_owned(), value);
    }
}

/// What a flag or a variable says, as the file would have it: of the sort of another value of the key.
pub(super) fn value(text: &str, sort: &Toml) -> Result<Toml, String> {
    match sort {
        Toml::String(_) => Ok(Toml::String(text.to_owned())),
        Toml::Boolean(_) => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "on" | "1" => Ok(Toml::Boolean(true)),
            "false" | "f" | "no" | "n" | "off" | "0" => Ok(Toml::Boolean(false)),
            _ => Err("say true or false".to_owned()),
        },
        Toml::Array(_) if !text.trim_start().starts_with('[') => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Ok(Toml::Array(parts.map(|part| Toml::String(part.to_owned())).collect()))
        }
        _ => Ok(read(text)),
    }
}
