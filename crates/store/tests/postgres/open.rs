//! Which servers and schemas are refused, and what is said.

use std::{error::Error as _, time::Duration};

use windlass_store::{
    Commit as _, Error,
    postgres::{Options, Postgres},
};
use windlass_testkit::postgres::Cluster;

use crate::common::{Backend, Scope, TestStore, plain, postgres::SchemaHome, runtime};

/// All that is said about a store that cannot be opened.
fn refused(options: Options) -> (Error, String) {
    let opened = runtime(1).block_on(Postgres::open(options));
    let error = opened.err().expect("it was opened");
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        said = format!("{said}: {next}");
        cause = next.source();
    }
    (error, said)
}

#[test]
fn a_url_says_all_there_is_to_say() {
    let url = "postgres://ann:secret@db.example:5433/shop?schema=jobs&sslmode=verify-full&sslrootcert=/ca.pem";
    let options = Options::parse(url).unwrap();
    assert_eq!(options.schema, "jobs");
    assert_eq!(options.config.get_ports(), [5433]);
    assert_eq!(options.name(), "postgres://db.example:5433/shop?schema=jobs");
    let seconds = |url: &str| *Options::parse(url).unwrap().config.get_connect_timeout().unwrap();
    assert_eq!(seconds("postgres://db.example/shop?connect_timeout=30"), Duration::from_secs(30));
    assert_eq!(seconds("postgres://db.example/shop"), Duration::from_secs(5));
    let usual = Options::parse("postgres://db.example:5432/shop").unwrap();
    assert_eq!(usual.schema, "windlass");
    assert_eq!(usual.name(), "postgres://db.example/shop?schema=windlass");
}

#[test]
fn only_what_is_asked_for_goes_in_clear_to_another_machine() {
    use windlass_store::postgres::{Verify, tokio_postgres::config::SslMode};
    for (url, mode, verify) in [
        ("postgres://db.example/x", SslMode::Require, Verify::System),
        ("postgres://db.example/x?sslmode=verify-full", SslMode::Require, Verify::System),
        ("postgres://db.example/x?sslmode=require", SslMode::Require, Verify::Nothing),
        ("postgres://db.example/x?sslmode=prefer", SslMode::Require, Verify::Nothing),
        ("postgres://db.example/x?sslmode=disable", SslMode::Disable, Verify::Nothing),
        ("postgres://127.0.0.1,db.example/x", SslMode::Require, Verify::System),
        ("postgres://10.0.0.7/x", SslMode::Require, Verify::System),
        ("postgres://127.0.0.1/x", SslMode::Prefer, Verify::Nothing),
        ("postgres://localhost/x", SslMode::Prefer, Verify::Nothing),
        ("postgres://%2Fvar%2Frun/x", SslMode::Prefer, Verify::Nothing),
    ] {
        let options = Options::parse(url).unwrap();
        assert_eq!((options.config.get_ssl_mode(), &options.verify), (mode, &verify), "{url}");
        assert_eq!(options.is_in_clear(), mode == SslMode::Disable, "{url}");
    }
    assert!(!Options::parse("postgres://[::1]/x?sslmode=disable").unwrap().is_in_clear());
}

#[test]
fn a_url_that_makes_no_sense_is_told_without_its_password() {
    let error = Options::parse("postgres://ann:secret@db.example/shop?colour=red").err().unwrap();
    let said = format!("{error}: {}", error.source().unwrap());
    assert!(said.contains("colour") && !said.contains("secret"), "{said}");
}

#[test]
fn a_schema_with_an_odd_name_is_refused() {
    for name in ["", "Jobs", "a b", "x\"; DROP TABLE jobs", &"x".repeat(64)] {
        let mut options = SchemaHome::new().options.clone();
        name.clone_into(&mut options.schema);
        let (error, said) = refused(options);
        assert_eq!(error.code(), "STORE_CANNOT_OPEN", "{name:?}");
        assert!(said.contains("small letters"), "{said}");
    }
}

#[test]
fn a_server_that_is_not_there_is_told_by_its_name() {
    // A port that nobody listens on: the one after the cluster's own is free, or speaks no PostgreSQL.
    let options = Options::parse("postgres://postgres@127.0.0.1:1/postgres").unwrap();
    let (error, said) = refused(options);
    assert_eq!(error.code(), "UNAVAILABLE");
    assert!(said.contains("127.0.0.1") && said.contains("refused"), "{said}");
}

/// A server that is not there, one that is starting or stopping, and one that cuts the line: it may be there in a moment.
/// A server that is there and refuses us is another matter.
#[test]
fn a_server_that_is_away_is_told_from_one_that_refuses() {
    let cut = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = cut.local_addr().unwrap().port();
    std::thread::spawn(move || cut.incoming().for_each(drop));
    let socket = "postgres://postgres@%2Ftmp%2Fnobody-is-here/postgres".to_owned();
    let cuts = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable");
    for url in [socket, cuts] {
        let (error, said) = refused(Options::parse(&url).unwrap());
        assert_eq!(error.code(), "UNAVAILABLE", "{url}: {said}");
    }
    let mut stranger = SchemaHome::new().options.clone();
    stranger.config.user("nobody_knows");
    assert_eq!(refused(stranger).0.code(), "STORE_CANNOT_OPEN");
}

/// Whoever prints the whole chain reads each cause once.
#[test]
fn each_cause_is_named_once() {
    let nobody = Options::parse("postgres://postgres@127.0.0.1:1/postgres").unwrap();
    let mut stranger = SchemaHome::new().options.clone();
    stranger.config.user("nobody_knows");
    for (options, cause) in [(nobody, "Connection refused"), (stranger, "nobody_knows")] {
        let (_, said) = refused(options);
        assert_eq!(said.matches(cause).count(), 1, "{said}");
        let parts: Vec<&str> = said.split(": ").collect();
        for (place, part) in parts.iter().enumerate() {
            assert!(!parts[..place].contains(part), "{part:?} stands twice in {said:?}");
        }
    }
}

#[test]
fn a_database_in_another_encoding_is_refused() {
    let cluster = Cluster::shared();
    cluster.psql(
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    );
    let (_, said) = refused(Options::new(cluster.connection_string("latin").parse().unwrap()));
    assert!(said.contains("LATIN1") && said.contains("UTF8"), "{said}");
}

#[test]
fn whoever_may_not_make_a_schema_is_told_and_one_that_is_there_can_be_used() {
    let cluster = Cluster::shared();
    cluster.psql("CREATE ROLE plain LOGIN");
    let mut config: windlass_store::postgres::tokio_postgres::Config =
        cluster.connection_string("postgres").parse().unwrap();
    config.user("plain");
    let mut options = Options::new(config);
    "plain_jobs".clone_into(&mut options.schema);
    let (_, said) = refused(options.clone());
    assert!(said.contains("permission denied"), "{said}");
    cluster.psql("CREATE SCHEMA plain_jobs AUTHORIZATION plain");
    let runtime = runtime(1);
    // No more rights than those on its own schema are needed.
    let store = runtime.block_on(Postgres::open(options.clone())).unwrap();
    runtime.block_on(store.health()).unwrap();
    drop(store);
    runtime.block_on(Postgres::open(options)).map(drop).unwrap();
}

#[test]
fn a_row_that_every_store_has_and_somebody_took_away_is_damage() {
    let test = TestStore::new(Backend::Postgres);
    test.enqueue(1, plain());
    SchemaHome::at(&test.home.address()).sql().run("DELETE FROM meta WHERE name = 'feed_from'");
    let code = |error: Error| error.code();
    let end = test.runtime.block_on(test.store.feed_end());
    assert_eq!(end.map_err(code), Err("STORE_DAMAGED"));
    let feed = test.runtime.block_on(test.store.feed(&Scope::Every, 0, 10));
    assert_eq!(feed.map(drop).map_err(code), Err("STORE_DAMAGED"));
}
