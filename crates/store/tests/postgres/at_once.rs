//! Commits that only make jobs, which ask the server nothing before they write.

use windlass_kernel::State;

use crate::common::{Backend, Scope, TestStore, enqueue, plain, postgres::SchemaHome};

/// What the function says that such a commit begins with: nothing, or the code of its error.
fn begin(shell: &crate::common::postgres::Shell, now: &str) -> Option<String> {
    let sql = format!("SELECT begin_at_once(gen_random_uuid(), {now}, true)");
    let error = shell.runtime.block_on(shell.client.query(&sql, &[])).err()?;
    Some(error.as_db_error().unwrap().code().code().to_owned())
}

#[test]
fn a_time_that_is_not_the_servers_is_not_taken() {
    let test = TestStore::new(Backend::Postgres);
    let shell = SchemaHome::at(&test.home.address()).sql();
    assert_eq!(begin(&shell, "clock_timestamp()"), None);
    assert_eq!(begin(&shell, "clock_timestamp() - interval '500 ms'"), None);
    for wrong in ["clock_timestamp() - interval '2 s'", "clock_timestamp() + interval '1 s'"] {
        assert_eq!(begin(&shell, wrong).as_deref(), Some("WL001"), "{wrong}");
    }
    // Another commit was later.
    shell.run("INSERT INTO feed VALUES (1, 1, 1, clock_timestamp())");
    assert_eq!(begin(&shell, "clock_timestamp() - interval '500 ms'").as_deref(), Some("WL001"));
    assert_eq!(begin(&shell, "clock_timestamp()"), None);
    // Whoever came before it goes first.
    shell.run("BEGIN; SELECT enqueue('mail')");
    assert_eq!(begin(&shell, "clock_timestamp()").as_deref(), Some("WL001"));
    shell.run("ROLLBACK");
}

#[test]
fn an_id_that_is_taken_is_found_although_nobody_has_looked() {
    let test = TestStore::new(Backend::Postgres);
    let id = test.enqueue(1, plain());
    let again = test.op(enqueue(1, plain())).unwrap();
    assert!(again.recorded, "it is the same job");
    assert_eq!(test.job(id).state, State::Queued);
    assert_eq!(test.wait(test.store.events(&Scope::Every, id)).len(), 1);
    assert!(test.home.check().is_clean());
}
