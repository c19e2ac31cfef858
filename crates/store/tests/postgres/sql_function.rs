//! `enqueue` for any language: a function of the schema, in the caller's own transaction.

use windlass_kernel::{JobId, State};
use windlass_store::{read::InboxOutcome, read::Scope};

use crate::common::{
    Backend, TestStore,
    postgres::{SchemaHome, Shell},
};

fn open() -> (TestStore, Shell) {
    let test = TestStore::new(Backend::Postgres);
    let shell = SchemaHome::at(&test.home.address()).sql();
    (test, shell)
}

fn enqueue(shell: &Shell, arguments: &str) -> JobId {
    let rows = shell.query(&format!("SELECT enqueue({arguments})"), &[]);
    rows[0].get::<_, &str>(0).parse().unwrap()
}

/// What the database says about arguments that it refuses.
fn refusal(shell: &Shell, arguments: &str) -> String {
    let sql = format!("SELECT enqueue({arguments})");
    let error = shell.runtime.block_on(shell.client.query(&sql, &[])).unwrap_err();
    error.as_db_error().unwrap().message().to_owned()
}

#[test]
fn a_job_from_sql_is_a_job_like_any_other() {
    let (test, shell) = open();
    shell.run("BEGIN");
    let id = enqueue(
        &shell,
        "'mail', '{\"n\": 12345678901234567890.10}', queue => 'fast', tenant => 'acme', priority => -5,
         scheduled_at => '2027-01-01 12:00:00.5+02', idempotency_key => 'k1', max_retries => 7,
         timeout_ms => 1500, tags => ARRAY['a', 'b \"c\"'], principal => 'ann'",
    );
    assert!(test.wait(test.store.job(&Scope::Every, id)).is_none(), "it is not committed");
    shell.run("COMMIT");
    let job = test.job(id);
    let spec = &job.spec;
    assert_eq!(job.state, State::Scheduled);
    assert_eq!(
        (spec.queue.as_str(), spec.tenant.as_str(), spec.kind.as_str()),
        ("fast", "acme", "mail")
    );
    assert_eq!((spec.priority.0, spec.max_retries), (-5, 7));
    assert_eq!(spec.scheduled_at.unwrap().to_string(), "2027-01-01T10:00:00.5Z");
    assert_eq!(spec.timeout.unwrap().as_millis(), 1500);
    assert_eq!(spec.idempotency_key.as_str(), "k1");
    assert_eq!(spec.idempotency_scope.as_str(), "default");
    let tags: Vec<&str> = spec.tags.iter().map(windlass_kernel::Tag::as_str).collect();
    assert_eq!(tags, ["a", "b \"c\""]);
    let payload = test.wait(test.store.payload(&Scope::Every, id)).unwrap();
    assert_eq!(payload, "{\"n\": 12345678901234567890.10}", "not a digit is lost");
    let events = test.wait(test.store.events(&Scope::Every, id));
    assert_eq!(events[0].actor.to_string(), "user:ann");
    assert!(test.home.check().is_clean());
}

#[test]
fn the_ids_of_sql_are_ours_and_grow() {
    let (test, shell) = open();
    let mut last = JobId::from_u128(0);
    for _ in 0..20 {
        let id = enqueue(&shell, "'mail'");
        let bits = id.as_u128();
        assert_eq!((bits >> 76 & 0xf, bits >> 62 & 3), (7, 2), "{id} is no version 7");
        assert!(id > last, "{id} does not come after {last}");
        last = id;
        assert_eq!(test.job(id).state, State::Queued);
    }
}

#[test]
fn what_is_rolled_back_was_never_asked_for() {
    let (test, shell) = open();
    shell.run("BEGIN");
    let id = enqueue(&shell, "'mail'");
    shell.run("ROLLBACK");
    assert!(test.wait(test.store.job(&Scope::Every, id)).is_none());
    assert_eq!(test.home.count("inbox"), 0);
}

#[test]
fn bad_input_is_refused_at_once_or_told_later() {
    let (test, shell) = open();
    assert!(refusal(&shell, "''").contains("must not be empty"));
    assert!(refusal(&shell, "'mail', idempotency_scope => 's'").contains("says nothing"));
    let large = "'mail', to_json(repeat('x', 1048576))";
    assert!(refusal(&shell, large).contains("1048576 is the most"));
    assert_eq!(test.home.count("inbox"), 0);
    // What only the rules know is told under the id that was given.
    let id = enqueue(&shell, "'mail', priority => 20000, tenant => 'acme'");
    let told = test.wait(test.store.inbox_result(&Scope::Every, id)).unwrap();
    assert_eq!(told.outcome, InboxOutcome::Refused);
    assert!(told.why.unwrap().contains("priority"));
    assert!(test.wait(test.store.job(&Scope::Every, id)).is_none());
    // What cannot be read at all is set aside, and stops nobody.
    let unreadable = enqueue(&shell, "'mail', priority => 2000000");
    let next = enqueue(&shell, "'mail'");
    assert_eq!(test.job(next).state, State::Queued);
    assert!(test.wait(test.store.job(&Scope::Every, unreadable)).is_none());
    assert_eq!(test.home.count("inbox_set_aside"), 1);
}

#[test]
fn a_known_key_is_a_hit() {
    let (test, shell) = open();
    let first = enqueue(&shell, "'mail', idempotency_key => 'k'");
    let second = enqueue(&shell, "'mail', idempotency_key => 'k'");
    assert_eq!(test.job(first).state, State::Queued);
    let told = test.wait(test.store.inbox_result(&Scope::Every, second)).unwrap();
    assert_eq!((told.outcome, told.existing), (InboxOutcome::Hit, Some(first)));
    // The number of its event is the one that the feed gives.
    let feed = test.wait(test.store.feed(&Scope::Every, told.event - 1, 1));
    assert!(feed.events[0].line.contains("\"inbox\":\"hit\""), "{}", feed.events[0].line);
}

#[test]
fn a_transaction_that_stays_open_stops_nobody() {
    let (test, shell) = open();
    shell.run("BEGIN");
    let open = enqueue(&shell, "'mail', idempotency_key => 'k'");
    let other = SchemaHome::at(&test.home.address()).sql();
    let done = enqueue(&other, "'mail', idempotency_key => 'k'");
    assert_eq!(test.job(done).state, State::Queued);
    shell.run("COMMIT");
    let told = test.wait(test.store.inbox_result(&Scope::Every, open)).unwrap();
    assert_eq!((told.outcome, told.existing), (InboxOutcome::Hit, Some(done)));
}
