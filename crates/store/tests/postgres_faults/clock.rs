//! A clock that goes back.

use std::time::Duration;

use windlass_kernel::{
    Jitter, State,
    ops::{Expire, Expiry},
};

use crate::common::{postgres::SchemaHome, *};

const HOUR: Duration = Duration::from_secs(3600);

/// Time is told by a clock that the test sets; it goes back by an hour between two commits.
#[test]
fn times_never_go_back_with_the_clock() {
    let home = std::sync::Arc::new(SchemaHome::new());
    let test = TestStore::open(home.clone()).unwrap();
    let id = test.enqueue(1, plain());
    test.pass(HOUR);
    let held = test.claim("w1", 1, 1).remove(0).job;
    let until = held.lease.as_ref().unwrap().until;
    let late = test.now();
    test.go_back(HOUR);
    let other = test.enqueue(2, plain());
    assert!(test.job(other).spec.created_at >= late, "a later commit is not earlier");
    let (version, jitter) = (held.version, Jitter::NONE);
    let expire = Expire { job_id: id, version, what: Expiry::Lease, jitter };
    assert!(test.op(expire.clone()).is_err(), "a lease does not run out while the clock goes back");
    assert_eq!(test.job(id).lease.as_ref().unwrap().until, until);
    let ended = test.op(settle(id, held.epoch, succeeded())).unwrap();
    assert_eq!(ended.state, State::Succeeded);
    let times: Vec<_> =
        test.wait(test.store.events(&Scope::Every, id)).iter().map(|event| event.at).collect();
    assert!(times.is_sorted(), "{times:?}");
    // What was granted after the clock went back runs out by the time that counts.
    let next = test.claim("w1", 2, 1).remove(0).job;
    assert!(next.lease.as_ref().unwrap().until >= late.plus(LEASE));
    test.pass(HOUR + 2 * LEASE);
    let expire = Expire { job_id: next.id, version: next.version, what: Expiry::Lease, jitter };
    assert_eq!(test.op(expire).unwrap().state, State::Interrupted);
    let feed: Vec<_> = test
        .wait(test.store.feed(&Scope::Every, 0, 100))
        .events
        .iter()
        .map(|event| event.at)
        .collect();
    assert!(feed.is_sorted(), "{feed:?}");
    drop(test);
    let report = home.check();
    assert!(report.is_clean(), "{report}");
}
