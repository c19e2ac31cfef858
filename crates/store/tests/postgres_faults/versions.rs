//! Two versions of the program serve one store, as they do while it is upgraded.
//!
//! The earlier version is this very program as it was at an earlier commit: `scripts/previous-version` builds it,
//! and `make test-deep` says where it is. Its process works like ours does, in the same store at the same time.

use std::{env, ffi::OsString, process::Command, thread, time::Duration};

use crate::{
    common::{postgres::SchemaHome, *},
    crash::{WORKS, Works, address_of, wait_for_the_server},
    judge::{judge, number_of},
    load::Ledger,
};

/// How long each mix of versions works.
const WHILE: Duration = Duration::from_secs(4);

/// A later version has added something, and says that programs of ours can still serve.
const EXPAND: &str = "
    BEGIN;
    ALTER TABLE jobs ADD COLUMN later text;
    UPDATE meta SET value = value::int + 1 WHERE name = 'schema';
    COMMIT";

/// And then it has taken something away.
const CONTRACT: &str = "
    UPDATE meta SET value = (SELECT value FROM meta WHERE name = 'schema') WHERE name = 'schema_served_by'";

#[test]
fn an_earlier_version_and_this_one_serve_one_store() {
    let Some(earlier) = env::var_os("WINDLASS_PREVIOUS") else {
        assert!(
            env::var_os("WINDLASS_DEEP").is_none(),
            "WINDLASS_PREVIOUS is not set: it names the tests of an earlier version, which \
             `scripts/previous-version` builds and `make test-deep` runs"
        );
        return;
    };
    let home = SchemaHome::new();
    let old = || works(Some(&earlier), &home);
    let mut ledger = Ledger::default();
    // The earlier version makes the store, and ours comes to it.
    let mut working = vec![Works::start(old(), 1), Works::start(works(None, &home), 2)];
    thread::sleep(WHILE);
    // The schema is expanded while all of them work, and each version can still be started.
    home.sql().run(EXPAND);
    working.extend([Works::start(old(), 3), Works::start(works(None, &home), 4)]);
    thread::sleep(WHILE);
    for works in working {
        let before = ledger.settled.len();
        works.kill(&mut ledger);
        assert!(ledger.settled.len() > before + 20, "a version did too little");
    }
    wait_for_the_server(&home);
    let stored = home.sql().query("SELECT id::text FROM jobs", &[]);
    ledger.asked.extend(stored.iter().map(|row| number_of(row.get(0))));
    let jobs = judge(&home, &ledger);
    println!("{jobs} jobs, {} settles told", ledger.settled.len());
    // When it is contracted, neither can.
    home.sql().run(CONTRACT);
    for mut command in [old(), works(None, &home)] {
        let refused = command.env("WINDLASS_TEST_NUMBER", "5").output().unwrap();
        let said =
            String::from_utf8_lossy(&refused.stdout) + String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("Newer"), "{said}");
    }
}

/// A process of this version, or of the one whose program is given.
fn works(program: Option<&OsString>, home: &SchemaHome) -> Command {
    let ours = child(WORKS, address_of(home).as_ref());
    let Some(program) = program else { return ours };
    let mut command = Command::new(program);
    command.args(ours.get_args());
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}
