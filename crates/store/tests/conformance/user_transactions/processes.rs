//! Users in other processes, and processes that are killed.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    process::{self, Stdio},
    thread,
    time::Duration,
};

use windlass_testkit::random;

use super::{find, put, result, shop, wait_for_jobs, with_key};
use crate::common::*;

for_each_lasting_backend!(
    another_process_may_put_jobs_into_the_inbox,
    child_puts_a_job,
    what_was_committed_while_nobody_served_the_store_is_promoted_at_open,
    what_a_user_committed_is_there_after_any_kill,
    child_enqueues_without_end,
);

fn another_process_may_put_jobs_into_the_inbox(backend: Backend) {
    let test = shop(backend);
    run(child_of(backend, "user_transactions::processes::child_puts_a_job", &*test.home));
    wait_for_jobs(&test, 1);
    assert!(find(&test, 1).is_some());
}

fn child_puts_a_job(backend: Backend) {
    let Some(home) = child_home(backend) else { return };
    let mut user = home.user();
    user.begin();
    put(&mut *user, 1, plain()).unwrap();
    user.sql("COMMIT");
}

fn what_was_committed_while_nobody_served_the_store_is_promoted_at_open(backend: Backend) {
    let home = shop(backend).close();
    run(child_of(backend, "user_transactions::processes::child_puts_a_job", &*home));
    let test = TestStore::open(home).unwrap();
    wait_for_jobs(&test, 1);
}

/// How often the process that enqueues is killed.
const KILLS: u32 = 8;

fn what_a_user_committed_is_there_after_any_kill(backend: Backend) {
    let home = shop(backend).close();
    let chance = random::seed();
    let mut committed = BTreeSet::new();
    for kill in 0..random::cases(KILLS) {
        let chance = u64::from(chance[kill as usize % 8]) + u64::from(kill) * 37;
        committed.extend(killed_after(Duration::from_millis(chance % 120), backend, &*home));
        let test = TestStore::open(home.clone()).unwrap();
        for number in &committed {
            let (job, result) = (find(&test, *number), result(&test, *number));
            assert!(job.is_some() != result.is_some(), "{number} leads to {job:?} and {result:?}");
        }
        drop(test);
        let report = home.check();
        assert!(report.is_clean(), "after kill {kill}: {report}");
    }
    assert!(committed.len() > 20, "the process did too little to prove anything");
}

/// Runs the process until some time after its first commit, kills it, and gives back what it committed.
fn killed_after(time: Duration, backend: Backend, home: &dyn Home) -> Vec<u128> {
    let mut child =
        child_of(backend, "user_transactions::processes::child_enqueues_without_end", home)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let (first, begun) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let lines = out.lines().map_while(Result::ok);
        // The last line may be cut off by the kill: then it was not said.
        let said =
            lines.filter_map(|line| line.strip_prefix("ack ")?.strip_suffix('.')?.parse().ok());
        said.inspect(|_| first.send(()).unwrap_or(())).collect()
    });
    begun.recv_timeout(Duration::from_secs(30)).expect("the process commits something");
    thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// In a process of its own: a user enqueues under few keys, while the store has other things to do.
fn child_enqueues_without_end(backend: Backend) {
    let Some(home) = child_home(backend) else { return };
    let test = TestStore::open(home).unwrap();
    let mut user = test.home.user();
    let base = u128::from(process::id()) << 64;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                let new = with_key(&format!("k{number}"), plain());
                let _ = test.op(enqueue(base + (1 << 63) + number, new));
            }
        });
        for number in (1..).step_by(2) {
            user.begin();
            for number in [number, number + 1] {
                let text = format!("{}", number % 3 / 2);
                let new = with_key(&format!("k{}", number / 2), with_payload(&text));
                put(&mut *user, base + number, new).unwrap();
            }
            user.sql("COMMIT");
            println!("ack {}.\nack {}.", base + number, base + number + 1);
        }
    });
}
