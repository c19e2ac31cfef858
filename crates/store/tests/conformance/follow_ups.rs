//! What follows for other jobs is kept with the commit that caused it, until it is carried out.

use windlass_kernel::{FollowUp, JobId, State, TenantId};
use windlass_store::{Reply, Write, read::Scope};

use crate::common::{Backend, TestStore, plain, settle, succeeded, tenant};

for_each_backend!(
    the_end_of_a_child_is_kept_for_its_parent_until_it_is_told,
    children_are_found_until_they_are_at_their_end,
);

for_each_lasting_backend!(a_follow_up_that_is_done_means_no_later_one);

fn child_of(test: &TestStore, parent: JobId, number: u128) -> JobId {
    let mut child = plain();
    child.parent = Some(parent);
    test.enqueue(number, child)
}

fn ended(parent: JobId, child: JobId) -> FollowUp {
    FollowUp::ChildEnded { parent, child, state: State::Succeeded }
}

fn the_end_of_a_child_is_kept_for_its_parent_until_it_is_told(backend: Backend) {
    let test = TestStore::new(backend);
    let parent = test.enqueue(1, plain());
    let children = [2, 3, 4].map(|number| child_of(&test, parent, number));
    for granted in test.claim("w1", 1, 4) {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    let stored = test.wait(test.store.follow_ups(10));
    assert!(stored.is_sorted_by_key(|it| it.id) && stored.iter().all(|it| it.tenant == tenant()));
    let found: Vec<FollowUp> = stored.iter().map(|it| it.follow_up.clone()).collect();
    assert_eq!(found, children.map(|child| ended(parent, child)));
    assert_eq!(test.wait(test.store.follow_ups(2)), stored[..2]);
    // The oldest is carried out; to say so again changes nothing.
    for _ in 0..2 {
        let done = Write::FollowUpDone { id: stored[0].id };
        let events = test.wait(test.store.feed(&Scope::Every, 0, 1000)).events.len();
        assert!(matches!(test.write(done), Ok(Reply::Done)));
        assert_eq!(
            test.wait(test.store.feed(&Scope::Every, 0, 1000)).events.len(),
            events,
            "it is no event"
        );
        assert_eq!(test.wait(test.store.follow_ups(10)), stored[1..]);
    }
    let rest = stored[1..].iter().map(|it| Write::FollowUpDone { id: it.id });
    assert!(test.commit(rest.rev().collect()).iter().all(Result::is_ok));
    assert_eq!(test.wait(test.store.follow_ups(10)), []);
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn a_follow_up_that_is_done_means_no_later_one(backend: Backend) {
    let mut test = TestStore::new(backend);
    let parent = test.enqueue(1, plain());
    let mut ids = Vec::new();
    for number in 2..=4 {
        let child = child_of(&test, parent, number);
        let granted = test.claim("w1", number, 10);
        let granted = granted.iter().find(|it| it.job.id == child).unwrap();
        test.op(settle(child, granted.job.epoch, succeeded())).unwrap();
        let stored = test.wait(test.store.follow_ups(10)).remove(0);
        ids.push(stored.id);
        test.write(Write::FollowUpDone { id: stored.id }).unwrap();
        test = test.reopen();
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

fn children_are_found_until_they_are_at_their_end(backend: Backend) {
    let test = TestStore::new(backend);
    let parent = test.enqueue(1, plain());
    let granted = test.claim("w1", 1, 1).remove(0);
    let children = [2, 3, 4].map(|number| child_of(&test, parent, number));
    let after = |child, max| test.wait(test.store.open_children(&tenant(), parent, child, max));
    let open = |max| after(None, max);
    assert_eq!(open(10), children);
    assert_eq!(open(2), children[..2]);
    assert_eq!(after(Some(children[0]), 10), children[1..]);
    assert_eq!(after(Some(children[2]), 10), []);
    let other = TenantId::new("other").unwrap();
    assert_eq!(test.wait(test.store.open_children(&other, parent, None, 10)), []);
    assert_eq!(test.wait(test.store.open_children(&tenant(), children[0], None, 10)), []);
    for granted in test.claim("w1", 2, 2) {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    assert_eq!(open(10), children[2..]);
    assert_eq!(after(Some(children[0]), 10), children[2..], "it has ended, and is still a place");
    assert_eq!(granted.job.id, parent);
}
