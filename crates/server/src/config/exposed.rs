//! What a server is set up with and others can read: its config file, and what it sends to its database.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use windlass_store::{postgres, without_password};

/// Says in the log who else can read what only the server should know.
pub(crate) fn warn_of_readers(file: Option<&Path>, store: &str) {
    if let Some(file) = file.filter(|file| is_readable_by_others(file)) {
        let file = file.display();
        tracing::warn!("{file} has a secret in it, and others can read it: chmod go-rwx {file}");
    }
    let is_server = store.starts_with("postgres");
    if is_server && postgres::Options::parse(store).is_ok_and(|options| options.is_in_clear()) {
        let store = without_password(store);
        tracing::warn!(
            store,
            "what is sent to the database can be read on its way: leave sslmode=disable out"
        );
    }
}

/// Is there a secret in the file, which others than its owner can read?
fn is_readable_by_others(file: &Path) -> bool {
    let mode = fs::metadata(file).map_or(0, |found| found.permissions().mode());
    mode & 0o044 != 0 && fs::read_to_string(file).is_ok_and(|text| has_secret(&text))
}

/// Is a secret written there, and not only the name of a variable that has it? The address of a store can have one.
pub(crate) fn has_secret(text: &str) -> bool {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim())).any(|(key, value)| match key {
        "secret" | "secret_old" => true,
        "store" => without_password(value) != value,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::has_secret;

    #[test]
    fn a_password_in_the_address_of_the_store_is_a_secret_too() {
        assert!(has_secret("[server]\nstore = \"postgres://ann:pw@db/x\""));
        assert!(has_secret("[server]\nstore = \"postgres://db/x?password=pw\""));
        assert!(has_secret("[[webhooks]]\nsecret = \"s\""));
        assert!(!has_secret("[server]\nstore = \"sqlite:windlass.db\"\nlisten = \"[::1]:1\""));
        assert!(!has_secret("[[webhooks]]\nsecret_env = \"HOOK\""));
    }
}
