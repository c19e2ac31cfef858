//! Marks: how far a follower of the feed has come. They never go back.

use windlass_kernel::MarkName;
use windlass_store::{Reply, Write};

use crate::common::*;

for_each_backend!(a_mark_goes_forward_only, a_mark_is_no_event);
for_each_lasting_backend!(a_mark_is_there_after_a_restart);

fn name(text: &str) -> MarkName {
    MarkName::new(text).unwrap()
}

fn mark(text: &str, number: u64) -> Write {
    Write::Mark { name: name(text), number }
}

fn read(test: &TestStore, text: &str) -> Option<u64> {
    test.wait(test.store.mark(&name(text)))
}

fn a_mark_goes_forward_only(backend: Backend) {
    let test = TestStore::new(backend);
    assert_eq!(read(&test, "alerts"), None);
    for (number, then) in [(0, 0), (5, 5), (3, 5), (5, 5), (6, 6)] {
        assert!(matches!(test.write(mark("alerts", number)), Ok(Reply::Done)));
        assert_eq!(read(&test, "alerts"), Some(then));
    }
    test.commit(vec![mark("alerts", 9), mark("alerts", 8), mark("other", 2)]);
    assert_eq!((read(&test, "alerts"), read(&test, "other")), (Some(9), Some(2)));
    assert_eq!(test.write(mark("alerts", u64::MAX)).unwrap_err().code(), "INVALID_INPUT");
    assert_eq!(read(&test, "alerts"), Some(9));
}

fn a_mark_is_no_event(backend: Backend) {
    let test = TestStore::new(backend);
    test.enqueue(1, plain());
    test.write(mark("alerts", 1)).unwrap();
    assert_eq!(test.wait(test.store.feed(&Scope::Every, 0, 100)).upto, 1);
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn a_mark_is_there_after_a_restart(backend: Backend) {
    let test = TestStore::new(backend);
    test.write(mark("alerts", 7)).unwrap();
    let test = test.reopen();
    assert_eq!(read(&test, "alerts"), Some(7));
}
