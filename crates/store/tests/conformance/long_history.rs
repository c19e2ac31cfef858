//! A job with a long history: all of it can be read, and it breaks no rule.

use windlass_kernel::{By, Digest, Event, TenantId, WorkerId, ops::Checkpoint};

use crate::common::*;

for_each_backend!(all_of_a_long_history_can_be_read,);

const CHECKPOINTS: u64 = 600;

fn all_of_a_long_history_can_be_read(backend: Backend) {
    let test = TestStore::new(backend);
    let job_id = test.enqueue(1, plain());
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let by = By::worker(WorkerId::new("w1").unwrap());
    for number in 0..CHECKPOINTS {
        let state = Digest::of(&number.to_string());
        test.op(Checkpoint { job_id, epoch, by: by.clone(), state, kept: None }).unwrap();
    }
    test.op(settle(job_id, epoch, succeeded())).unwrap();

    // Creation, claim and start, then the checkpoints, then the end.
    let expected = CHECKPOINTS + 4;
    let job = test.job(job_id);
    assert_eq!(job.version, expected);
    let events = test.wait(test.store.events(&Scope::Every, job_id));
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=expected).collect::<Vec<_>>());
    assert_eq!(windlass_kernel::fold(&events).unwrap().state, job.state);
    check_parts(&test, &events);

    let report = test.close().check();
    assert!(report.violations.is_empty(), "{report}");
}

/// Each part is the same as in the whole, and its events have the numbers that the feed gives them.
fn check_parts(test: &TestStore, events: &[Event]) {
    let job_id = events[0].job_id;
    let part = |scope: &Scope, after: u64, limit: usize| {
        test.wait(test.store.events_after(scope, job_id, after, limit))
    };
    let mut fed = Vec::new();
    let mut upto = 0;
    loop {
        let feed = test.wait(test.store.feed(&Scope::Every, upto, 100));
        if feed.upto == upto {
            break;
        }
        fed.extend(feed.events.into_iter().filter(|told| told.event().is_some()));
        upto = feed.upto;
    }
    for (after, limit) in
        [(0, 1), (0, 10), (0, 1_000), (3, 1), (17, 40), (300, 7), (599, 100), (604, 5), (900, 1)]
    {
        let page = part(&Scope::Every, after, limit).unwrap();
        let first = usize::try_from(after).unwrap().min(events.len());
        let last = (first + limit).min(events.len());
        let found: Vec<&Event> = page.items.iter().map(|placed| &placed.event).collect();
        assert_eq!(found, events[first..last].iter().collect::<Vec<_>>(), "{after} {limit}");
        assert_eq!(page.more, last < events.len(), "{after} {limit}");
        let numbers: Vec<u64> = page.items.iter().map(|placed| placed.feed_number).collect();
        let expected: Vec<u64> = fed[first..last].iter().map(|told| told.number).collect();
        assert_eq!(numbers, expected, "{after} {limit}");
    }
    let other = Scope::Of(TenantId::new("other").unwrap());
    assert_eq!(part(&other, 0, 1), None);
}
