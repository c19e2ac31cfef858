//! Crashes: a process that commits is killed at any moment, again and again, and nothing that it
//! acknowledged is lost, nothing is half written, and the history breaks no rule.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
    thread,
    time::Duration,
};

use common::*;
use windlass_kernel::{JobId, State};
use windlass_store::{Reply, sqlite::check};
use windlass_testkit::random::{self, Chance};

/// How often the process is killed with one store. All of a store is looked at after each kill, so a long
/// run takes many stores.
const KILLS: u64 = 20;

#[test]
fn nothing_that_was_acknowledged_is_lost() {
    let mut chance = Chance::new(u64::from_be_bytes(random::seed()[..8].try_into().unwrap()));
    let stores = random::cases(1);
    let acknowledged: usize = (0..stores).map(|_| kill_again_and_again(&mut chance)).sum();
    println!("{stores} stores, {KILLS} kills of each, {acknowledged} jobs acknowledged");
}

/// Kills the process that has one store, and gives back how many jobs were acknowledged.
fn kill_again_and_again(chance: &mut Chance) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("w.db");
    let mut acknowledged: BTreeMap<u128, State> = BTreeMap::new();
    for kill in 1..=KILLS {
        acknowledged.extend(killed_after(chance.ms(0, 150), &path));
        let test = FileStore::open(&path).unwrap();
        acknowledged.iter().for_each(|(number, state)| check_kept(&test, *number, *state));
        drop(test);
        let report = check(&path).unwrap();
        assert!(report.is_clean(), "after kill {kill}: {report}");
    }
    assert!(acknowledged.len() > 100, "the process did too little to prove anything");
    let ended = acknowledged.values().filter(|state| state.is_end()).count();
    assert!(ended > 50, "too few jobs came to their end");
    acknowledged.len()
}

/// The job is where it was said to be, or went on from there in a commit whose answer was lost.
fn check_kept(test: &FileStore, number: u128, state: State) {
    let job = test.job(JobId::from_u128(number));
    if job.state != state {
        assert!(!state.is_end(), "job {number} was {state}, and is {}", job.state);
        let events = test.wait(test.store.events(&Scope::Every, job.id));
        let was_there = events.iter().any(|event| event.to == state);
        assert!(was_there, "job {number} was never {state}, and is {}", job.state);
    }
}

/// Runs the process until some time after its first acknowledgement, kills it, and gives back all that it
/// acknowledged: the last state that it was told of each job.
fn killed_after(time: Duration, path: &Path) -> BTreeMap<u128, State> {
    let mut child = child("child_works_without_end", path).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let (first, begun) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let mut told = BTreeMap::new();
        // The last line may be cut off by the kill: then it was not acknowledged.
        for line in out.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let Some(("ack", rest)) = line.split_once(' ') else { continue };
            let Some((number, state)) = rest.strip_suffix('.').and_then(|it| it.split_once(' '))
            else {
                continue;
            };
            told.insert(number.parse().unwrap(), State::parse(state).unwrap());
            let _ = first.send(());
        }
        told
    });
    begun.recv_timeout(Duration::from_secs(30)).expect("the process acknowledges something");
    thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// In a process of its own: makes jobs, claims them and settles them, and says what it was told, after it
/// was told.
#[test]
fn child_works_without_end() {
    let Some(path) = child_path() else { return };
    let test = FileStore::open(&path).unwrap();
    let sql = "SELECT coalesce(max(seq), 0) FROM jobs";
    let mut number: u128 =
        test.sql().query_row(sql, [], |row| row.get::<_, u64>(0)).unwrap().into();
    let worker = format!("w{}", std::process::id());
    for claim in 1.. {
        let made: Vec<u128> = (1..=4).map(|next| number + next).collect();
        number += 4;
        let writes = made.iter().map(|number| write(enqueue(*number, plain()))).collect();
        let replies = test.commit(writes);
        say(made.iter().zip(&replies).map(|(number, _)| (*number, State::Queued)));
        let claim = (u128::from(std::process::id()) << 32) + claim;
        let granted = test.claim(&worker, claim, 3);
        say(granted.iter().map(|granted| (granted.job.id.as_u128(), granted.job.state)));
        let outcome = |number: u128| match number % 4 {
            0 => failed_for_good(),
            1 => failed_for_now(),
            _ => succeeded(),
        };
        let settle = |job: &windlass_kernel::Job| {
            write(settle(job.id, job.epoch, outcome(job.id.as_u128())))
        };
        let replies = test.commit(granted.iter().map(|granted| settle(&granted.job)).collect());
        say(replies.iter().map(|reply| match reply {
            Ok(Reply::Answer(answer, _)) => (answer.job_id.as_u128(), answer.state),
            other => panic!("a settle was answered with {other:?}"),
        }));
    }
}

/// One line for each job, written at once.
fn say(told: impl Iterator<Item = (u128, State)>) {
    let lines: String = told.map(|(number, state)| format!("ack {number} {state}.\n")).collect();
    let mut out = std::io::stdout().lock();
    out.write_all(lines.as_bytes()).unwrap();
    out.flush().unwrap();
}
