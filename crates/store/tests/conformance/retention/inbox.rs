//! What the inbox told of enqueues that made no job is kept for a while, and goes with its lines.

use windlass_kernel::{
    IdempotencyKey, IdempotencyScope, JobId, Retention, State, Timestamp,
    ops::{Idempotency, NewJob},
};
use windlass_store::read::{InboxOutcome, InboxResult};

use super::{DAY, HOUR, finish, is_there, older_than, prune, step};
use crate::common::*;

for_each_backend!(
    a_result_goes_with_its_line_when_it_is_as_old_as_keys_and_jobs_have_to_be,
    a_result_in_the_last_row_of_the_log_waits_for_the_next,
);

for_each_lasting_backend!(a_users_transaction_does_not_get_the_id_of_a_forgotten_job,);

fn keyed(payload: &str) -> NewJob {
    let scope = IdempotencyScope::new("orders").unwrap();
    let key = IdempotencyKey::new("order-1").unwrap();
    NewJob { idempotency: Idempotency::Key { scope, key }, ..with_payload(payload) }
}

/// A user's transaction with one enqueue, promoted.
fn user_enqueues(test: &TestStore, number: u128, new: NewJob) {
    let mut user = test.home.user();
    user.begin();
    user.put(&enqueue(number, new), test.now()).unwrap();
    user.sql("COMMIT");
    test.commit(Vec::new());
}

fn result(test: &TestStore, number: u128) -> Option<InboxResult> {
    test.wait(test.store.inbox_result(&Scope::Every, JobId::from_u128(number)))
}

fn a_result_goes_with_its_line_when_it_is_as_old_as_keys_and_jobs_have_to_be(backend: Backend) {
    let (long, short) = (2 * DAY, HOUR);
    for (finished_for, key_ttl) in [(long, short), (short, long)] {
        let retention = Retention { key_ttl, ..older_than(finished_for) };
        let test = TestStore::new(backend);
        // It waits all the time, so no job goes, and still the log is looked at.
        let at = Some(Timestamp::MAX);
        let job = test.enqueue(1, NewJob { scheduled_at: at, ..keyed("1") });
        prune(&test, retention);
        user_enqueues(&test, 2, NewJob { scheduled_at: at, ..keyed("1") });
        user_enqueues(&test, 3, keyed("2"));
        let outcomes = [2, 3].map(|number| result(&test, number).unwrap().outcome);
        assert_eq!(outcomes, [InboxOutcome::Hit, InboxOutcome::Conflict]);
        test.pass(HOUR);
        user_enqueues(&test, 4, keyed("3"));
        test.enqueue(5, NewJob { scheduled_at: at, ..plain() });

        test.pass(long - HOUR - std::time::Duration::from_micros(1));
        assert_eq!(prune(&test, retention).log_rows, 0);
        test.pass(std::time::Duration::from_micros(1));
        let pruned = prune(&test, retention);
        assert_eq!((pruned.jobs, pruned.log_rows), (0, 2));
        assert_eq!((result(&test, 2), result(&test, 3)), (None, None));
        assert!(result(&test, 4).is_some(), "it is younger");
        assert_eq!(test.job(job).state, State::Scheduled);
        assert_eq!(test.wait(test.store.events(&Scope::Every, job)).len(), 1);
        assert!(!step(&test, retention, 100).more, "nothing is left to do");
    }
}

fn a_result_in_the_last_row_of_the_log_waits_for_the_next(backend: Backend) {
    let test = TestStore::new(backend);
    test.enqueue(1, NewJob { scheduled_at: Some(Timestamp::MAX), ..keyed("1") });
    prune(&test, older_than(HOUR));
    user_enqueues(&test, 2, keyed("2"));
    test.pass(30 * DAY);
    for _ in 0..2 {
        assert!(!step(&test, older_than(HOUR), 100).more, "it would read the log again and again");
    }
    assert!(result(&test, 2).is_some());
    test.enqueue(3, plain());
    assert_eq!(prune(&test, older_than(HOUR)).log_rows, 1);
    assert_eq!((result(&test, 2), test.home.count("inbox_results")), (None, 0));
}

fn a_users_transaction_does_not_get_the_id_of_a_forgotten_job(backend: Backend) {
    let test = TestStore::new(backend);
    let id = finish(&test, 7, plain());
    test.pass(HOUR);
    assert_eq!(step(&test, older_than(HOUR), 100).jobs, 1);
    let test = test.reopen();
    user_enqueues(&test, 7, plain());
    assert!(!is_there(&test, id));
    let refused = result(&test, 7).unwrap();
    assert_eq!((refused.outcome, refused.existing), (InboxOutcome::Refused, Some(id)));
    assert_eq!(refused.code.as_deref(), Some("JOB_EXISTS"));
    step(&test, older_than(HOUR), 100);
}
