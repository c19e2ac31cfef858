//! Lists: whatever is there is found, page by page, also while others write.

use std::{collections::HashSet, time::Duration};

use windlass_kernel::{
    DlqId, JobId, Kind, LetterState, State, Tag, TenantId, Timestamp,
    job::Priority,
    ops::{Cancel, Discard, NewJob},
};
use windlass_store::read::{JobFilter, LetterFilter, PageFrom, Position, Scope};

use crate::common::{
    Backend, START, TestStore, enqueue, failed_for_good, person, plain, queue, settle, tenant,
    write,
};

for_each_backend!(
    pages_cover_everything_once_newest_first_while_others_write,
    pages_neither_miss_nor_repeat_while_many_write_at_once,
    a_filter_takes_what_has_all_that_is_asked_for,
    letters_of_one_instant_are_all_told_whatever_the_page,
    counts_sessions_and_the_oldest_ready_job_are_told,
    the_oldest_ready_job_is_the_one_that_waits_longest_and_not_the_next,
);

fn ids(test: &TestStore, filter: JobFilter, cursor: PageFrom) -> (Vec<u128>, Option<Position>) {
    let page = test.wait(test.store.jobs(filter, cursor));
    (page.items.iter().map(|job| job.id.as_u128()).collect(), page.next)
}

fn cancel(number: u128) -> Cancel {
    let (job_id, force, reason) = (JobId::from_u128(number), false, None);
    Cancel { job_id, force, grace: Cancel::GRACE_DEFAULT, reason, by: person("ann") }
}

fn pages_cover_everything_once_newest_first_while_others_write(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=25 {
        test.enqueue(number, plain());
    }
    let mut found = Vec::new();
    let mut from = None;
    loop {
        let cursor = PageFrom { from, limit: 10 };
        let (page, next) = ids(&test, JobFilter::of(tenant()), cursor);
        found.extend(page);
        test.enqueue(1_000 + found.len() as u128, plain());
        from = next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(found, (1..=25).rev().collect::<Vec<u128>>());
}

fn pages_neither_miss_nor_repeat_while_many_write_at_once(backend: Backend) {
    let test = TestStore::new(backend);
    let stay: Vec<u128> = (1..=60).map(|number| number * 10).collect();
    for number in &stay {
        test.enqueue(*number, plain());
        // It leaves the list that is asked for, at any time.
        test.enqueue(number + 1, plain());
    }
    let writers: Vec<_> = (0..4u128)
        .map(|writer| {
            let store = test.store.clone();
            test.runtime.spawn(async move {
                for number in 0..60 {
                    let id = 10_000 * (writer + 1) + number;
                    let mut writes = vec![write(enqueue(id, plain()))];
                    if number % 4 == writer {
                        writes.push(write(cancel((number + 1) * 10 + 1)));
                    }
                    store.commit(writes.into()).await.unwrap();
                }
            })
        })
        .collect();
    let mut rounds = 0;
    loop {
        let is_over = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let filter = || JobFilter { states: vec![State::Queued], ..JobFilter::of(tenant()) };
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let (page, next) = ids(&test, filter(), PageFrom { from, limit: 7 });
            found.extend(page);
            from = next;
            if from.is_none() {
                break;
            }
        }
        let once: HashSet<u128> = found.iter().copied().collect();
        assert_eq!(once.len(), found.len(), "something was told twice");
        let old: Vec<u128> = found.iter().copied().filter(|id| stay.contains(id)).collect();
        assert_eq!(old, stay.iter().copied().rev().collect::<Vec<_>>());
        rounds += 1;
        if is_over {
            assert_eq!(
                found.len(),
                60 + 4 * 60,
                "what was cancelled is gone, what is new is there"
            );
            break;
        }
    }
    assert!(rounds > 1, "nobody wrote while the pages were read");
    writers.into_iter().for_each(|writer| test.runtime.block_on(writer).unwrap());
}

fn a_filter_takes_what_has_all_that_is_asked_for(backend: Backend) {
    let test = TestStore::new(backend);
    let tag = || Tag::new("vip").unwrap();
    let sms = || Kind::new("sms").unwrap();
    test.enqueue(1, plain());
    test.enqueue(2, NewJob { tags: vec![tag()], ..plain() });
    test.enqueue(3, NewJob { queue: queue("slow"), ..plain() });
    test.enqueue(4, NewJob { kind: sms(), ..plain() });
    test.op(cancel(1)).unwrap();
    let all = || JobFilter::of(tenant());
    let cursor = PageFrom { from: None, limit: 10 };
    let check = |filter, expected: &[u128]| assert_eq!(ids(&test, filter, cursor).0, expected);
    check(all(), &[4, 3, 2, 1]);
    check(JobFilter { states: vec![State::Cancelled], ..all() }, &[1]);
    check(JobFilter { tag: Some(tag()), ..all() }, &[2]);
    check(JobFilter { queue: Some(queue("slow")), ..all() }, &[3]);
    check(JobFilter { kind: Some(sms()), ..all() }, &[4]);
    let start = Timestamp::from_micros(START);
    check(JobFilter { created_before: Some(start), ..all() }, &[]);
    check(JobFilter { created_from: Some(start), ..all() }, &[4, 3, 2, 1]);
    check(JobFilter::of(TenantId::new("nobody").unwrap()), &[]);
}

/// Jobs of these numbers fail for good, all in one commit.
fn fail_together(test: &TestStore, numbers: std::ops::RangeInclusive<u128>) {
    test.commit(numbers.clone().map(|number| write(enqueue(number, plain()))).collect());
    let granted = test.claim("w1", *numbers.start(), 100);
    let failed =
        |it: &windlass_store::Granted| write(settle(it.job.id, it.job.epoch, failed_for_good()));
    let replies = test.commit(granted.iter().map(failed).collect());
    assert_eq!(replies.iter().filter(|it| it.is_ok()).count(), numbers.count());
}

/// The jobs of all letters in this state, page by page.
fn letters(test: &TestStore, state: Option<LetterState>, limit: usize) -> Vec<u128> {
    let (mut found, mut from) = (Vec::new(), None);
    loop {
        let filter = LetterFilter { state, ..LetterFilter::of(tenant()) };
        let page = test.wait(test.store.letters(filter, PageFrom { from, limit }));
        assert!(page.items.len() <= limit, "a page of {}", page.items.len());
        found.extend(page.items.iter().map(|letter| letter.job_id.as_u128()));
        from = page.next;
        if from.is_none() {
            return found;
        }
    }
}

fn letters_of_one_instant_are_all_told_whatever_the_page(backend: Backend) {
    let test = TestStore::new(backend);
    fail_together(&test, 1..=10);
    test.pass(Duration::from_secs(1));
    fail_together(&test, 11..=13);
    for number in [2, 3, 12] {
        let dlq_id = DlqId::of_job(JobId::from_u128(number));
        test.op(Discard { dlq_id, reason: "old".to_owned(), by: person("ann") }).unwrap();
    }
    let check = |state, expected: &[u128]| {
        for limit in 1..=14 {
            let mut found = letters(&test, state, limit);
            let is_newest_first = found.is_sorted_by_key(|number| *number <= 10);
            assert!(is_newest_first, "pages of {limit}: {found:?}");
            found.sort_unstable();
            assert_eq!(found, expected, "{state:?} in pages of {limit}");
        }
    };
    check(None, &(1..=13).collect::<Vec<_>>());
    check(Some(LetterState::Open), &[1, 4, 5, 6, 7, 8, 9, 10, 11, 13]);
    check(Some(LetterState::DiscardRequested), &[2, 3, 12]);
    check(Some(LetterState::Requeued), &[]);
}

fn the_oldest_ready_job_is_the_one_that_waits_longest_and_not_the_next(backend: Backend) {
    let test = TestStore::new(backend);
    let start = test.now();
    let oldest = || -> Vec<(String, Timestamp)> {
        let found = test.wait(test.store.oldest_ready(&tenant().into()));
        found.into_iter().map(|it| (it.queue.to_string(), it.since)).collect()
    };
    test.enqueue(1, plain());
    test.pass(Duration::from_secs(60));
    test.enqueue(2, NewJob { queue: queue("mail"), ..plain() });
    test.pass(Duration::from_secs(60));
    // It goes before all others, and has not waited at all.
    test.enqueue(3, NewJob { priority: Priority(-1000), ..plain() });
    let minute = start.plus(Duration::from_secs(60));
    assert_eq!(oldest(), [("default".to_owned(), start), ("mail".to_owned(), minute)]);
    let urgent = test.claim("w1", 1, 1);
    assert_eq!(urgent[0].job.id.as_u128(), 3);
    test.claim("w1", 2, 1);
    assert_eq!(oldest(), [("mail".to_owned(), minute)]);
}

fn counts_sessions_and_the_oldest_ready_job_are_told(backend: Backend) {
    let test = TestStore::new(backend);
    test.enqueue(1, plain());
    test.enqueue(2, plain());
    let oldest = test.wait(test.store.oldest_ready(&Scope::Every));
    assert_eq!((oldest.len(), oldest[0].since), (1, Timestamp::from_micros(START)));
    test.claim("w1", 1, 1);
    let counts = test.wait(test.store.counts(&Scope::Every));
    let count = |state: &str| ("default".to_owned(), state.to_owned(), 1);
    assert_eq!(counts, [count("queued"), count("running")]);
    let sessions = test.wait(test.store.sessions());
    assert_eq!((sessions[0].worker.as_str(), sessions[0].held), ("w1", 1));
}
