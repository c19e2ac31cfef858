//! The feed: every event of the store, once and in order, also while others write.

use std::collections::HashSet;

use windlass_store::{Write, read::FeedEvent};

use crate::common::*;

for_each_backend!(
    a_follower_of_the_feed_misses_nothing_and_repeats_nothing,
    a_part_of_the_feed_has_a_bound_also_inside_of_one_commit,
);

fn a_part_of_the_feed_has_a_bound_also_inside_of_one_commit(backend: Backend) {
    let test = TestStore::new(backend);
    test.commit((1..=500).map(|number| write(enqueue(number, plain()))).collect());
    test.enqueue(501, plain());
    for limit in [1, 7, 499, 500, 501, 1_000] {
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let part = test.wait(test.store.feed(&Scope::Every, after, limit));
            assert!(part.events.len() <= limit as usize, "{} events", part.events.len());
            seen.extend(part.events.iter().map(|event| event.number));
            if part.upto == after {
                break;
            }
            after = part.upto;
        }
        assert_eq!(seen, (1..=501).collect::<Vec<u64>>(), "in parts of {limit}");
    }
    for after in [501, i64::MAX as u64 - 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        let part = test.wait(test.store.feed(&Scope::Every, after, 10));
        assert_eq!((part.events.len(), part.upto), (0, after));
    }
}

fn a_follower_of_the_feed_misses_nothing_and_repeats_nothing(backend: Backend) {
    let test = TestStore::new(backend);
    let writers: Vec<_> = (1..=8u128)
        .map(|writer| {
            let store = test.store.clone();
            test.runtime.spawn(async move {
                for number in 0..25 {
                    let id = writer * 1000 + number * 3;
                    // Commits of different lengths, and of two tenants.
                    let mut writes: Vec<Write> =
                        (0..=number % 3).map(|it| write(enqueue(id + it, plain()))).collect();
                    let mut other = enqueue(id + 500, plain());
                    other.tenant = windlass_kernel::TenantId::new("other").unwrap();
                    writes.push(Write::Op { tenant: other.tenant.clone(), op: other.into() });
                    store.commit(writes.into()).await.unwrap();
                }
            })
        })
        .collect();
    let total = 8 * (0..25).map(|number| number % 3 + 2).sum::<u64>();
    let mut seen: Vec<FeedEvent> = Vec::new();
    assert!(test.wait(test.store.feed_end()) <= total);
    let mut page = 1;
    while (seen.len() as u64) < total {
        let after = seen.last().map_or(0, |event| event.number);
        seen.extend(test.wait(test.store.feed(&Scope::Every, after, page)).events);
        page = page % 7 + 1;
    }
    for writer in writers {
        test.runtime.block_on(writer).unwrap();
    }
    let numbers: Vec<u64> = seen.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=total).collect::<Vec<_>>());
    let lines: HashSet<&str> = seen.iter().map(|event| &*event.line).collect();
    assert_eq!(lines.len() as u64, total);
    assert!(test.wait(test.store.feed(&Scope::Every, total, 10)).events.is_empty());
    assert_eq!(test.wait(test.store.feed_end()), total);
    // From the middle of a commit, too.
    for after in 0..total {
        let next = test.wait(test.store.feed(&Scope::Every, after, 1));
        assert_eq!(next.events[0], seen[usize::try_from(after).unwrap()]);
    }
}
