//! A hostile tenant beside a quiet one: whatever the first does with its own token, or anybody without one, the second
//! goes on almost as if it were alone, and the server's memory stays below its stated bound.
//!
//! The sizes are small here. With `WINDLASS_DEEP` they are those of a real attack, and the quiet tenant may wait for less.
//! `WINDLASS_ATTACK` names one of them, which is tried alone.

#![cfg(target_os = "linux")]

mod attacks;
#[path = "../http/client.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod client;
mod quiet;
#[path = "../http/server.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod server;

use std::time::Duration;

use self::{
    attacks::{ATTACKS, Attack, Hostile},
    quiet::Quiet,
    server::{Server, Store, block_on},
};

/// What is stated in `docs/guide/operating.md`.
const RSS_KB_MAX: u64 = 1_536 * 1024;
const CONFIG: &str = "[alerts]\nlook_every_ms = 500\nqueue_age_ms = 1000\n";

fn is_deep() -> bool {
    std::env::var_os("WINDLASS_DEEP").is_some()
}

/// A wait below this is noise of a busy machine, which runs a server that is not optimised and other tests beside it.
fn noise() -> Duration {
    if is_deep() { Duration::from_millis(250) } else { Duration::from_secs(5) }
}

#[test]
fn a_quiet_tenant_is_served_beside_a_hostile_one_on_sqlite() {
    block_on(all_attacks(Store::sqlite()));
}

#[test]
fn a_quiet_tenant_is_served_beside_a_hostile_one_on_postgres() {
    block_on(all_attacks(Store::postgres()));
}

async fn all_attacks(store: Store) {
    let quiet = store.token("quiet", "worker", "quiet");
    let tokens = ["worker", "viewer", "operator"].map(|role| store.token("evil", role, "hostile"));
    let server = Server::start_guarded_with(&store, CONFIG);
    let quiet = Quiet::new(&server, &quiet);
    let alone = quiet.p99(quiet_for()).await;
    let allowed = noise().max(alone * 5);
    let mut failed = Vec::new();
    let only = std::env::var("WINDLASS_ATTACK").ok();
    for Attack { name, run } in ATTACKS {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let hostile = Hostile::new(&server, &tokens, is_deep());
        let attack = run(hostile);
        let (waited, largest) = tokio::select! {
            measured = async {
                // The attack comes up to its height first.
                tokio::time::sleep(Duration::from_millis(500)).await;
                (quiet.p99(quiet_for()).await, server.rss_kb())
            } => measured,
            () = attack => panic!("{name}: the attack has ended by itself"),
        };
        println!("{name}: p99 {waited:?}, alone {alone:?}, {} MB", largest / 1024);
        if waited > allowed || largest > RSS_KB_MAX {
            failed.push(format!("{name}: p99 {waited:?} (allowed {allowed:?}), {largest} KB"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    let peak = server.status_kb("VmHWM:");
    assert!(peak < RSS_KB_MAX, "it had {peak} KB in use");
    drop(server);
    store.check();
}

fn quiet_for() -> Duration {
    if is_deep() { Duration::from_secs(20) } else { Duration::from_millis(1_500) }
}
