//! The config file is read again when the server is told so: what can hold at once does, and all else is named.

use std::{fs, sync::Weak};

use tokio::signal::unix::Signal;

use super::given;
use crate::{
    config::{Config, Entry, ServerArgs, entries},
    http::App,
};

/// A key whose value is another.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    key: String,
    from: String,
    to: String,
    reloads: bool,
}

/// Reads the file at each hangup, until the process ends. A file that cannot be used changes nothing.
///
/// It does not keep what it changes: the store is closed when the last who has it lets go.
pub(super) async fn on_hangup(app: Weak<App>, args: ServerArgs, mut hangup: Signal) {
    let given = given();
    let read = || args.config.as_ref().and_then(|path| fs::read_to_string(path).ok());
    let mut running = entries(&given, &read().unwrap_or_default());
    while hangup.recv().await.is_some() {
        if args.config.is_none() {
            tracing::warn!("there is no config file to read again; name one with --config");
            continue;
        }
        let (setup, text) = match (Config::load(&args), read()) {
            (Ok(setup), Some(text)) => (setup, text),
            (Err(why), _) => {
                tracing::error!(why, "the config cannot be used; all stays as it was");
                continue;
            }
            (Ok(_), None) => continue,
        };
        let wanted = entries(&given, &text);
        let changes = changes(&running, &wanted);
        tell(&changes);
        let Some(app) = app.upgrade() else { return };
        app.limits.set(setup.server.settings);
        // What needs a restart is told again until there was one.
        for entry in &mut running {
            let same = |it: &&Entry| (&it.section, &it.key) == (&entry.section, &entry.key);
            if let Some(found) = wanted.iter().find(same).filter(|found| found.reloads) {
                entry.value.clone_from(&found.value);
            }
        }
    }
}

/// What is otherwise than before. A section that is new or gone is told key by key.
fn changes(before: &[Entry], after: &[Entry]) -> Vec<Change> {
    let find = |all: &'_ [Entry], one: &Entry| {
        let found = all.iter().find(|it| (&it.section, &it.key) == (&one.section, &one.key));
        found.cloned()
    };
    let shown = |entry: Option<&Entry>| {
        let value = entry.and_then(Entry::shown);
        value.map_or_else(|| "nothing".to_owned(), |value| value.to_string())
    };
    let gone =
        before.iter().filter(|old| find(after, old).is_none()).map(|old| (Some(old.clone()), None));
    let there = after.iter().map(|new| (find(before, new), Some(new.clone())));
    let differs = |(old, new): &(Option<Entry>, Option<Entry>)| {
        old.as_ref().and_then(|it| it.value.as_ref())
            != new.as_ref().and_then(|it| it.value.as_ref())
    };
    let changed = there.chain(gone).filter(differs);
    changed
        .filter_map(|(old, new)| {
            let one = new.as_ref().or(old.as_ref())?;
            Some(Change {
                key: format!("{}.{}", one.section, one.key),
                from: shown(old.as_ref()),
                to: shown(new.as_ref()),
                reloads: one.reloads,
            })
        })
        .collect()
}

fn tell(changes: &[Change]) {
    for Change { key, from, to, reloads } in changes {
        match reloads {
            true => tracing::warn!(key, from, to, "the setting is changed"),
            false => tracing::warn!(key, from, to, "this setting needs a restart"),
        }
    }
    if changes.is_empty() {
        tracing::warn!("the config was read again; nothing is changed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_told_without_secrets() {
        let of = |file: &str| entries(|_, _| None, file);
        assert!(changes(&of(""), &of("[server]\ngrace_ms = 10000\n")).is_empty());
        let told =
            changes(&of("[server]\nlisten = \"127.0.0.1:1\"\n"), &of("[server]\ngrace_ms = 7\n"));
        let told: Vec<_> =
            told.iter().map(|it| (it.key.as_str(), it.to.as_str(), it.reloads)).collect();
        let expected =
            [("server.listen", "\"127.0.0.1:7117\"", false), ("server.grace_ms", "7", true)];
        assert_eq!(told, expected);
        let hook = |secret| format!("[[webhooks]]\nname = \"x\"\nsecret = \"{secret}\"\n");
        let told = changes(&of(&hook("one")), &of(&hook("two")));
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].key.as_str(), told[0].to.as_str()), ("webhooks.0.secret", "\"…\""));
        let gone = changes(&of(&hook("one")), &of(""));
        assert!(
            gone.iter().any(|it| it.key == "webhooks.0.name" && it.to == "nothing"),
            "{gone:?}"
        );
    }

    #[test]
    fn what_a_flag_says_does_not_change() {
        let given = |_: &str, name: &str| {
            (name == "grace_ms").then(|| ("5".to_owned(), crate::config::Origin::Flag))
        };
        let of = |file: &str| entries(given, file);
        assert!(changes(&of(""), &of("[server]\ngrace_ms = 7\n")).is_empty());
    }
}
