//! Power cuts: whatever a disk has made of what was not yet synced, all that was acknowledged is there,
//! nothing is half there, and the work goes on.
//!
//! Processes work on a store while a recorder notes what they really write, cut, create, remove and
//! sync, and what they were told, in order (`power/record.c`). The record is then played to a disk that
//! forgets (`power/disk.rs`): at any moment the power goes, and of all that was not synced some is there and
//! some is not, torn between sectors. Each such image is opened and judged (`power/judge.rs`). That the
//! judge can see a loss is proved with disks that say they have synced, and have not.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;
#[path = "power/disk.rs"]
mod disk;
#[path = "power/judge.rs"]
mod judge;
#[path = "power/record.rs"]
mod record;

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
};

use common::*;
use disk::{Cut, Disk, Image, Lie};
use judge::{Jobs, Wrong, judge, said};
use record::{Happened, TOLD};
use tempfile::TempDir;
use windlass_kernel::{Job, JobId, Timestamp};
use windlass_store::sqlite::enqueue_in;
use windlass_testkit::random::{self, Chance};

/// Images of an honest disk in the usual run.
const IMAGES: u32 = 240;
/// Images of each disk that lies.
const LIES: u32 = 30;

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let images = random::cases(IMAGES);
    let judged = judge_images(None, images);
    let wrong: Vec<_> = judged.iter().filter(|judged| judged.wrong.is_some()).collect();
    assert!(wrong.is_empty(), "{} of {images} images are wrong:\n{}", wrong.len(), tell(&wrong));
    let checkpoints = judged.iter().filter(|judged| judged.in_checkpoint).count();
    println!("{images} images, {checkpoints} of them in a checkpoint");
    assert!(checkpoints * 4 >= judged.len(), "too few cuts in a checkpoint: {checkpoints}");
}

#[test]
fn a_disk_that_lies_is_caught() {
    for lie in [Lie::Everything, Lie::Log, Lie::Database] {
        let judged = judge_images(Some(lie), LIES);
        let wrong: Vec<_> = judged.iter().filter_map(|judged| judged.wrong.as_ref()).collect();
        let told = wrong.iter().filter(|wrong| matches!(wrong, Wrong::Refused(_))).count();
        let found = wrong.len() - told;
        println!("{lie:?}: {LIES} images, {told} were refused, {found} were found by the judge");
        assert!(wrong.len() > 3, "{lie:?}: only {} losses were seen", wrong.len());
    }
}

#[test]
fn the_record_is_complete() {
    let run = recorded();
    let mut disk = Disk::new(None);
    run.happened.iter().for_each(|it| disk.happens(it));
    let played = disk.whole();
    assert!(played[""].len() > 100_000, "the database is small: {}", played[""].len());
    let lengths = |image: &Image| -> Vec<(String, usize)> {
        image.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect()
    };
    assert_eq!(lengths(&played), lengths(&run.left));
    assert!(played == run.left, "what was played is not what the processes have left");
    let count = |wanted: fn(&Happened) -> bool| run.happened.iter().filter(|it| wanted(it)).count();
    let writes = count(|it| matches!(it, Happened::Written { .. }));
    let syncs = count(|it| matches!(it, Happened::Synced { .. }));
    let told = count(|it| matches!(it, Happened::Told(_)));
    println!("{writes} writes, {syncs} syncs, {told} batches acknowledged");
    assert!(syncs > told, "less than one sync for each batch");
}

/// A run that was recorded, and the files that it has left.
struct Run {
    happened: Vec<Happened>,
    left: Image,
}

/// The one record that all tests look at: three processes in a row, of which the second ends without
/// closing its store.
fn recorded() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().canonicalize().unwrap().join("w.db");
        let notes = folder.path().join("notes");
        let recorder = record::build_recorder(folder.path());
        for process in ["child_works_and_closes", "child_works_and_dies", "child_works_and_closes"]
        {
            record::run_recorded(&recorder, process, &database, &notes);
        }
        let happened = record::read(&fs::read(notes).unwrap());
        let read = |name: &str| {
            let bytes = fs::read(format!("{}{name}", database.display())).ok()?;
            Some((name.to_owned(), bytes))
        };
        let left = ["", "-wal", "-journal", "-mark"].into_iter().filter_map(read).collect();
        Run { happened, left }
    })
}

/// One image, and what the judge says.
struct Judged {
    /// How it was made, in words.
    made: String,
    in_checkpoint: bool,
    wrong: Option<Wrong>,
}

fn tell(judged: &[&Judged]) -> String {
    let line = |it: &&Judged| Some(format!("{}: {}", it.made, it.wrong.as_ref()?));
    judged.iter().take(5).filter_map(line).collect::<Vec<_>>().join("\n")
}

/// Cuts the power so many times and judges each image. Half of the cuts are in a checkpoint, if the disk is
/// honest.
fn judge_images(lie: Option<Lie>, images: u32) -> Vec<Judged> {
    let seed = u64::from_be_bytes(random::seed()[..8].try_into().unwrap());
    let run = recorded();
    let half = images / 2;
    thread::scope(|scope| {
        let parts = [(0, half), (1, images - half)].map(|(part, images)| {
            let judge = move || Play::new(run, lie, seed + part).judge(images);
            scope.spawn(judge)
        });
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

/// A record that is played.
struct Play {
    run: &'static Run,
    lie: Option<Lie>,
    chance: Chance,
    states: Vec<Jobs>,
}

impl Play {
    fn new(run: &'static Run, lie: Option<Lie>, seed: u64) -> Self {
        Self { run, lie, chance: Chance::new(seed), states: states(&run.happened) }
    }

    fn judge(mut self, images: u32) -> Vec<Judged> {
        let cuts = self.cuts(images);
        let mut disk = Disk::new(self.lie);
        let (mut told, mut judged) = (0, Vec::new());
        for (place, happened) in self.run.happened.iter().enumerate() {
            disk.happens(happened);
            told += usize::from(matches!(happened, Happened::Told(_)));
            for _ in cuts.iter().filter(|cut| **cut == place) {
                let cut = Cut::random(&mut self.chance);
                let image = disk.cut(cut, &mut self.chance);
                let in_checkpoint = disk.is_checkpointing();
                let (path, wrong) = self.look_at(&image, told);
                let made = format!("{path:?}: cut after note {place}, batch {told}, {cut:?}");
                judged.push(Judged { made, in_checkpoint, wrong });
            }
        }
        judged
    }

    /// Where the power goes: half of the time anywhere, half of the time in a checkpoint.
    fn cuts(&mut self, images: u32) -> Vec<usize> {
        let mut disk = Disk::new(None);
        let all = 0..self.run.happened.len();
        let in_checkpoint: Vec<usize> = all
            .clone()
            .filter(|place| {
                disk.happens(&self.run.happened[*place]);
                disk.is_checkpointing()
            })
            .collect();
        let all: Vec<usize> = all.collect();
        let mut draw = |number| {
            let among = if number % 2 == 0 { &all } else { &in_checkpoint };
            *self.chance.pick(among).unwrap()
        };
        (0..images).map(&mut draw).collect()
    }

    fn look_at(&self, image: &Image, told: usize) -> (PathBuf, Option<Wrong>) {
        let mut folder = folder_in_memory();
        let path = folder.path().join("w.db");
        let after = self.states.get(told + 1).unwrap_or(&self.states[told]);
        let wrong = judge(image, &path, &self.states[told], after).err();
        // What an honest disk must not leave is kept for whoever looks into it.
        folder.disable_cleanup(wrong.is_some() && self.lie.is_none());
        (path, wrong)
    }
}

/// A folder in memory, where there is one: an image that is judged need not outlive anything.
fn folder_in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// All jobs, after each batch that was acknowledged, and before the first.
fn states(happened: &[Happened]) -> Vec<Jobs> {
    let mut states = vec![Jobs::new()];
    for told in happened {
        let Happened::Told(line) = told else { continue };
        let mut jobs = states[states.len() - 1].clone();
        for job in line.split_whitespace() {
            let (number, said) = job.split_once('=').unwrap();
            jobs.insert(number.parse().unwrap(), said.to_owned());
        }
        states.push(jobs);
    }
    states
}

#[test]
fn child_works_and_closes() {
    let Some(path) = child_path() else { return };
    work(&path);
    println!("the work is done");
}

#[test]
fn child_works_and_dies() {
    let Some(path) = child_path() else { return };
    let _open = work(&path);
    println!("the work is done");
    std::process::exit(0);
}

/// Makes jobs, claims and settles them, batch by batch, and writes down what it was told when it was told.
fn work(path: &Path) -> FileStore {
    let test = FileStore::open(path).unwrap();
    let told =
        OpenOptions::new().append(true).create(true).open(format!("{}{TOLD}", path.display()));
    let mut told = told.unwrap();
    let mut tell = |jobs: Vec<Job>| {
        let line: Vec<String> =
            jobs.iter().map(|job| format!("{}={}", job.id.as_u128(), said(job))).collect();
        told.write_all(format!("{}\n", line.join(" ")).as_bytes()).unwrap();
    };
    let process = u128::from(std::process::id()) << 32;
    let read = |ids: &[u128]| ids.iter().map(|id| test.job(JobId::from_u128(*id))).collect();
    for round in 1..=ROUNDS {
        let first = process + round * 10;
        let ids = [first, first + 1];
        let size = usize::try_from(round * 977 % 8_000).unwrap();
        let new = || with_payload(&format!("\"{}\"", "x".repeat(size)));
        test.commit(ids.iter().map(|id| write(enqueue(*id, new()))).collect());
        tell(read(&ids));
        if round % 7 == 0 {
            let mut user = test.sql();
            let transaction = user.transaction().unwrap();
            let op = enqueue(first + 2, new());
            enqueue_in(&transaction, &op, Timestamp::from_micros(START)).unwrap();
            transaction.commit().unwrap();
            // It is acknowledged as it will be once it is promoted, which is soon, and never another way.
            tell(read(&[first + 2]));
        }
        let granted = test.claim("w1", first, 2);
        tell(granted.iter().map(|granted| (*granted.job).clone()).collect());
        let settle = |job: &Job| {
            let outcome = [succeeded(), failed_for_good(), failed_for_now(), succeeded()];
            let [outcome, ..] = &outcome[usize::try_from(round % 3).unwrap()..] else { panic!() };
            write(settle(job.id, job.epoch, outcome.clone()))
        };
        test.commit(granted.iter().map(|granted| settle(&granted.job)).collect());
        let ids: Vec<u128> = granted.iter().map(|granted| granted.job.id.as_u128()).collect();
        tell(read(&ids));
    }
    test
}

/// How long one process works: long enough for two checkpoints.
const ROUNDS: u128 = 40;
