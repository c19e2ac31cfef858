//! The feed, while many nodes write, one of them loses its connections, and somebody's transaction stays open.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use windlass_store::{ReadFeed as _, read::Scope};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::judge,
    load::{Load, node},
};

#[test]
fn a_follower_sees_every_number_once_and_in_order() {
    let home = SchemaHome::new();
    let runtime = runtime(2);
    let mut shaken = home.options.clone();
    let name = format!("{}_shaken", home.options.schema);
    shaken.config.application_name(&name);
    let nodes = [node(&runtime, &home.options), node(&runtime, &shaken)];
    let reader = node(&runtime, &home.options);
    let foreign = home.sql();
    foreign.run(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs; SELECT txid_current()",
    );
    let load = Load::start(&runtime, &nodes, 12);
    let stop = Arc::<AtomicBool>::default();
    let stopping = stop.clone();
    let follower = runtime.spawn(async move {
        let (mut last, mut rows, mut pages) = (0, 1, 0u64);
        loop {
            let is_last = stopping.load(Ordering::SeqCst);
            let events = reader.feed(&Scope::Every, last, rows).await.unwrap();
            for event in &events.events {
                assert_eq!(event.number, last + 1, "a gap, or a repeat");
                last = event.number;
            }
            if events.events.is_empty() && is_last {
                return (last, pages);
            }
            pages += 1;
            rows = rows % 7 + 1;
        }
    });
    let shell = home.sql();
    for _ in 0..count(15, 200) {
        load.wait_for(15);
        let sql = "
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = $1 ORDER BY random() LIMIT 1";
        shell.query(sql, &[&name]);
    }
    let ledger = load.stop(&runtime);
    stop.store(true, Ordering::SeqCst);
    let (last, pages) = runtime.block_on(follower).unwrap();
    foreign.run("ROLLBACK");
    judge(&home, &ledger);
    let stored = home.sql().query("SELECT max(number) FROM events", &[])[0].get::<_, i64>(0);
    assert_eq!(u64::try_from(stored).unwrap(), last, "the follower saw all");
    println!("{last} events in {pages} pages, the longest silence {:?}", ledger.longest_silence);
    assert!(ledger.longest_silence < Duration::from_secs(5), "a foreign transaction stalls us");
}
