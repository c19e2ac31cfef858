//! A job with many children in a store that has many other jobs: whoever looks for them reads them and no others.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use windlass_kernel::{JobId, ops::Cancel, ops::NewJob};

use crate::common::{TestStore, enqueue, person, plain, postgres::SchemaHome, tenant, write};

const OTHERS: u128 = 4_000;
const CHILDREN: u128 = 1_000;

fn cancel(job_id: JobId) -> Cancel {
    Cancel { job_id, force: true, grace: Duration::ZERO, reason: None, by: person("ann") }
}

/// Rows of jobs that were read by way of an index. A connection tells what it has counted when it ends, at the latest.
fn rows_read(home: &SchemaHome) -> i64 {
    let shell = home.sql();
    let others = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = $1 AND pid <> pg_backend_pid()";
    let begun = Instant::now();
    while shell.query(others, &[&home.options.schema])[0].get::<_, i64>(0) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "a connection stays");
        sleep(Duration::from_millis(10));
    }
    let read = "SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'jobs'::regclass";
    shell.query(read, &[])[0].get(0)
}

#[test]
fn open_children_are_found_without_a_walk_through_all_jobs() {
    let mut home = SchemaHome::new();
    let name = home.options.schema.clone();
    home.options.config.application_name(&name);
    let home = std::sync::Arc::new(home);
    let test = TestStore::open(home.clone()).unwrap();
    for first in (1..=OTHERS).step_by(1_000) {
        let made = (first..first + 1_000).map(|number| write(enqueue(number, plain())));
        assert!(test.commit(made.collect()).iter().all(Result::is_ok));
        let ended = (first..first + 1_000).map(|id| write(cancel(JobId::from_u128(id))));
        assert!(test.commit(ended.collect()).iter().all(Result::is_ok));
    }
    let parent = test.enqueue(OTHERS + 1, plain());
    let child = || NewJob { parent: Some(parent), ..plain() };
    let first = OTHERS + 2;
    let made = (first..first + CHILDREN).map(|number| write(enqueue(number, child())));
    assert!(test.commit(made.collect()).iter().all(Result::is_ok));
    drop(test);
    // The planner knows by now that a job is most likely a child of this parent.
    home.sql().run("ANALYZE");
    let before = rows_read(&home);
    let test = TestStore::open(home.clone()).unwrap();
    let open = test.wait(test.store.open_children(&tenant(), parent, None, 10));
    assert_eq!(open, (first..first + 10).map(JobId::from_u128).collect::<Vec<_>>());
    drop(test);
    let read = rows_read(&home) - before;
    assert!(read < 100, "{read} rows were read to find ten children");

    // Most of them are told, and have ended: whoever knows how far that went does not pass them again.
    let test = TestStore::open(home.clone()).unwrap();
    let told = first + CHILDREN - 50;
    let ended = (first..told).map(|id| write(cancel(JobId::from_u128(id))));
    assert!(test.commit(ended.collect()).iter().all(Result::is_ok));
    drop(test);
    home.sql().run("ANALYZE");
    let before = rows_read(&home);
    let test = TestStore::open(home.clone()).unwrap();
    let after = Some(JobId::from_u128(told - 1));
    let open = test.wait(test.store.open_children(&tenant(), parent, after, 10));
    assert_eq!(open, (told..told + 10).map(JobId::from_u128).collect::<Vec<_>>());
    drop(test);
    let read = rows_read(&home) - before;
    assert!(read < 100, "{read} rows were read to find ten children behind those that have ended");
}
