//! A process that commits is killed at any moment, again and again.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use windlass_kernel::{JobId, State};
use windlass_store::{Commit as _, Reply};
use windlass_testkit::random::{self, Chance};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::{judge, number_of},
    load::{Ledger, node},
};

#[test]
fn nothing_that_was_acknowledged_is_lost_with_its_process() {
    let mut chance = Chance::new(u64::from_be_bytes(random::seed()[..8].try_into().unwrap()));
    let home = SchemaHome::new();
    let mut ledger = Ledger::default();
    let kills = u128::from(count(6, 50));
    // On a busy machine a process may do little before it is killed: then there are more of them.
    for kill in 1..=kills * 10 {
        killed_after(chance.ms(0, 250), &home, kill, &mut ledger);
        // What was asked for and not acknowledged, nobody knows any more.
        let stored = home.sql().query("SELECT id::text FROM jobs", &[]);
        ledger.asked.extend(stored.iter().map(|row| number_of(row.get(0))));
        judge(&home, &ledger);
        goes_on(&home, kill);
        if kill >= kills && ledger.made.len() > 50 && ledger.settled.len() > 20 {
            break;
        }
    }
    let (jobs, ended) = (ledger.made.len(), ledger.settled.len());
    println!("{jobs} jobs and {ended} settles were acknowledged");
    assert!(jobs > 50 && ended > 20, "the process did too little to prove anything");
}

/// The next process claims what the last one left, and has it to itself.
fn goes_on(home: &SchemaHome, kill: u128) {
    let runtime = runtime(2);
    let store = node(&runtime, &home.options);
    let claim = claim_many("after", (1 << 100) + kill, 1);
    let told = runtime.block_on(store.commit(vec![claim].into())).unwrap();
    for granted in granted(told[0].as_ref().unwrap()) {
        let settle = write(settle(granted.job.id, granted.job.epoch, succeeded()));
        let told = runtime.block_on(store.commit(vec![settle].into())).unwrap().remove(0);
        assert_eq!(answer(&told.unwrap()).state, State::Succeeded);
    }
}

/// Runs the process until some time after its first acknowledgement, kills it, and notes all that it
/// acknowledged.
fn killed_after(time: Duration, home: &SchemaHome, number: u128, ledger: &mut Ledger) {
    let works = Works::start(child(WORKS, address_of(home).as_ref()), number);
    thread::sleep(time);
    works.kill(ledger);
    wait_for_the_server(home);
}

/// The address of a home for a process that works, whose connections can be told from those of others.
pub(crate) fn address_of(home: &SchemaHome) -> String {
    let address = home.address();
    let (server, schema) = address.split_once('|').unwrap();
    format!("{server} application_name=works_in_{schema}|{schema}")
}

/// The server still does what a process has sent before it was killed. When its connections are gone, all is done.
pub(crate) fn wait_for_the_server(home: &SchemaHome) {
    let (shell, begun) = (home.sql(), Instant::now());
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let name = format!("works_in_{}", home.options.schema);
    while shell.query(sql, &[&name])[0].get::<_, i64>(0) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the server does not notice");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The test that is a process which works without end.
pub(crate) const WORKS: &str = "crash::child_works_without_end";

/// A process that works until it is killed, and what it was told so far.
pub(crate) struct Works {
    child: Child,
    reader: Option<JoinHandle<Vec<Vec<String>>>>,
    number: u128,
}

impl Drop for Works {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Works {
    /// Starts it, and waits until something is acknowledged. No two have the same number.
    pub(crate) fn start(mut command: Command, number: u128) -> Self {
        command.env("WINDLASS_TEST_NUMBER", number.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (first, begun) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || {
            let mut told = Vec::new();
            for line in out.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                // The last line may be cut off by the kill: then it was not acknowledged.
                let said = line.strip_prefix("ack ").and_then(|it| it.strip_suffix('.'));
                let Some(said) = said else { continue };
                told.push(said.split(' ').map(str::to_owned).collect::<Vec<_>>());
                let _ = first.send(());
            }
            told
        });
        let works = Self { child, reader: Some(reader), number };
        begun.recv_timeout(Duration::from_secs(30)).expect("the process acknowledges something");
        works
    }

    /// Kills it, and notes all that it acknowledged.
    pub(crate) fn kill(mut self, ledger: &mut Ledger) {
        assert!(self.child.try_wait().unwrap().is_none(), "process {} gave up", self.number);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for said in self.reader.take().unwrap().join().unwrap() {
            let (id, epoch) = (said[1].parse().unwrap(), said[2].parse().unwrap());
            match &*said[0] {
                "made" => drop(ledger.made.insert(id)),
                "held" => {
                    let other = ledger.granted.insert((id, epoch), self.number);
                    assert_eq!(other, None, "job {id:x} was granted twice under epoch {epoch}");
                }
                _ => {
                    ledger.settled.insert((id, epoch), State::parse(&said[0]).unwrap());
                }
            }
        }
    }
}

/// In a process of its own: makes jobs, claims them and settles them, four at a time, and says what it was
/// told, after it was told.
#[test]
fn child_works_without_end() {
    let Some(address) = child_path() else { return };
    let number: u128 = std::env::var("WINDLASS_TEST_NUMBER").unwrap().parse().unwrap();
    let home = SchemaHome::at(address.to_str().unwrap());
    let runtime = runtime(2);
    let store = node(&runtime, &home.options);
    let tasks = (1..=4).map(|task| {
        let store = store.clone();
        runtime.spawn(async move {
            let first = (number << 64) + (task << 32);
            for round in (0..).step_by(8) {
                let ids = [first + round + 1, first + round + 2, first + round + 3];
                let writes = ids.iter().map(|id| write(enqueue(*id, plain()))).collect::<Vec<_>>();
                store.commit(writes.into()).await.unwrap();
                say(ids.iter().map(|id| ("made", *id, 0)));
                let claim = claim_many(&format!("w{number}"), first + round, 3);
                let told = store.commit(vec![claim].into()).await.unwrap();
                let held = granted(told[0].as_ref().unwrap());
                let held = held.iter().map(|it| (it.job.id, it.job.epoch)).collect::<Vec<_>>();
                say(held.iter().map(|(id, epoch)| ("held", id.as_u128(), epoch.get())));
                let outcome = |id: JobId| match id.as_u128() % 4 {
                    0 => failed_for_good(),
                    1 => failed_for_now(),
                    _ => succeeded(),
                };
                let settles = held.iter().map(|it| write(settle(it.0, it.1, outcome(it.0))));
                let told = store.commit(settles.collect::<Vec<_>>().into()).await.unwrap();
                say(held.iter().zip(&told).map(|((id, epoch), reply)| match reply {
                    Ok(Reply::Answer(answer, _)) => {
                        (answer.state.as_str(), id.as_u128(), epoch.get())
                    }
                    other => panic!("a settle was answered with {other:?}"),
                }));
            }
        })
    });
    tasks.collect::<Vec<_>>().into_iter().for_each(|task| runtime.block_on(task).unwrap());
}

/// One line for each job, written at once.
fn say(told: impl Iterator<Item = (&'static str, u128, u64)>) {
    let lines: String =
        told.map(|(what, id, epoch)| format!("ack {what} {id} {epoch}.\n")).collect();
    let mut out = std::io::stdout().lock();
    out.write_all(lines.as_bytes()).unwrap();
    out.flush().unwrap();
}
