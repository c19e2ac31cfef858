//! The real Committer under thousands of random schedules.
//!
//! All tasks run on one thread, and shuttle picks who goes next at each wait and at each `race_point`. A
//! failure prints the schedule, which `shuttle::replay` runs again. A lost answer is a deadlock, and
//! shuttle finds those.

use std::{cell::Cell, collections::BTreeMap, sync::Arc};

use shuttle::future::{block_on, spawn, yield_now};
use tokio::sync::oneshot;
use windlass_store::{Error, Reply, Write};

use super::fake::*;
use crate::committer::{Committer, Config, Handle, SubmitError, pending::jobs_of};

thread_local! {
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// Lets shuttle put another task in between, if it is there.
pub(in crate::committer) fn race_point() {
    if EXPLORING.get() && !std::thread::panicking() {
        shuttle::thread::yield_now();
    }
}

/// Six thousand schedules. A third of them are not quite random: they hold one task back for long.
fn explore(test: fn()) {
    let test = move || {
        EXPLORING.set(true);
        test();
    };
    let times = if std::env::var_os("WINDLASS_DEEP").is_some() { 50 } else { 1 };
    shuttle::check_random(test, 4_000 * times);
    shuttle::check_pct(test, 2_000 * times, 3);
}

/// The mark that the store cannot digest.
const POISON: u32 = 101;

/// Each submitter has a hundred marks of its own. All write to the same two jobs, through both lanes.
fn writes(submitter: u32) -> Vec<Write> {
    let mark = submitter * 100;
    let write = |job: u32, mark: u32| {
        let job = u128::from(job % 2);
        if mark % 3 == submitter % 3 { settle(job, mark) } else { cancel(job, mark) }
    };
    vec![
        write(submitter, mark),
        write(submitter, mark + 1),
        requeue(0, 1, mark + 2),
        write(submitter, mark + 3),
    ]
}

/// What a submitter was told is true at the moment it is told.
fn check_answer(store: &Fake, mark: u32, answer: &Result<Reply, SubmitError>) {
    let is_durable = store.durable.lock().unwrap().contains(&mark);
    match answer {
        Ok(_) => assert!(is_durable, "{mark} was answered before it was durable"),
        Err(SubmitError::Store(error)) => {
            assert!(matches!(**error, Error::Contradiction(_)) && mark == POISON && !is_durable);
        }
        Err(SubmitError::Closed | SubmitError::Full) => assert!(!is_durable),
        Err(other) => panic!("{mark} was told {other}"),
    }
}

/// Sends everything at once, then waits. Gives back what was closed out.
async fn submit_together(store: Arc<Fake>, handle: Handle, submitter: u32) -> Vec<u32> {
    let writes = writes(submitter);
    let marks: Vec<u32> = writes.iter().map(mark_of).collect();
    let answers = handle.submit_many(writes).await;
    assert_eq!(answers.len(), marks.len());
    marks
        .into_iter()
        .zip(answers)
        .filter_map(|(mark, answer)| {
            check_answer(&store, mark, &answer);
            answer.is_err().then_some(mark)
        })
        .collect()
}

/// Sends one after the other, each as soon as there is room, and does not wait in between.
async fn submit_in_turn(store: Arc<Fake>, handle: Handle, submitter: u32) -> Vec<u32> {
    let (mut tickets, mut unwritten) = (Vec::new(), Vec::new());
    for write in writes(submitter) {
        let mark = mark_of(&write);
        match handle.try_submit(write.clone()) {
            Ok(ticket) => tickets.push((mark, ticket)),
            Err(_) => {
                let answer = handle.submit(write).await;
                check_answer(&store, mark, &answer);
                unwritten.extend(answer.is_err().then_some(mark));
            }
        }
        yield_now().await;
    }
    for (mark, ticket) in tickets {
        let answer = ticket.await;
        check_answer(&store, mark, &answer);
        unwritten.extend(answer.is_err().then_some(mark));
    }
    unwritten
}

/// Of each submitter and job, the marks that were written are in the order they were sent.
fn check_order(durable: &[u32]) {
    let jobs: BTreeMap<u32, _> =
        (0..3).flat_map(writes).map(|write| (mark_of(&write), jobs_of(&write))).collect();
    let mut last = BTreeMap::new();
    for mark in durable {
        for job in jobs[mark].into_iter().flatten() {
            let before = last.insert((mark / 100, job), *mark);
            assert!(before < Some(*mark), "{mark} after {before:?} in {durable:?}");
        }
    }
}

/// Three submitters, a store with one indigestible write, and a shutdown in the middle or at the end.
fn run(shutdown_early: bool) {
    let store = Fake::judging(|writes| {
        let poisoned = writes.iter().any(|write| mark_of(write) == POISON);
        if poisoned { Err(Error::Contradiction("poison".into())) } else { Ok(echo(writes)) }
    });
    let committer = Committer::new(store.clone(), Config { batch_max: 3, queue_max: 2 });
    let handle = committer.handle();
    let (shutdown, told) = oneshot::channel::<()>();
    let running = spawn(committer.run(async { told.await.unwrap_or(()) }));
    let submitters = [
        spawn(submit_together(store.clone(), handle.clone(), 0)),
        spawn(submit_in_turn(store.clone(), handle.clone(), 1)),
        spawn(submit_together(store.clone(), handle, 2)),
    ];
    block_on(async move {
        let shutdown = if shutdown_early {
            drop(shutdown);
            None
        } else {
            Some(shutdown)
        };
        let mut unwritten = Vec::new();
        for submitter in submitters {
            unwritten.extend(submitter.await.unwrap());
        }
        drop(shutdown);
        running.await.unwrap().unwrap();
        let durable = store.durable.lock().unwrap().clone();
        check_order(&durable);
        let mut all = [durable, unwritten.clone()].concat();
        all.sort_unstable();
        let mut sent: Vec<u32> = (0..3).flat_map(writes).map(|write| mark_of(&write)).collect();
        sent.sort_unstable();
        assert_eq!(all, sent, "each write is written once or told that it is not");
        if !shutdown_early {
            assert_eq!(unwritten, [POISON]);
        }
    });
}

#[test]
fn no_schedule_loses_an_answer_or_an_order() {
    explore(|| run(false));
}

#[test]
fn no_schedule_loses_an_answer_when_it_shuts_down() {
    explore(|| run(true));
}
