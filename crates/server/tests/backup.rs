//! `windlass backup` and `windlass restore`: what is said, while others write, and killed on the way.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use windlass_kernel::{
    Actor, JobId, Kind, Payload, Principal, TenantId, Timestamp,
    ops::{Enqueue, NewJob},
};
use windlass_store::{
    Commit as _, Write,
    sqlite::{Options, Sqlite, check},
};

/// A folder, and the path of a database in it that is not there yet.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("it is there").join("windlass.db");
    (folder, path)
}

fn open(path: &Path) -> Sqlite {
    let clock = Arc::new(|| Timestamp::from_micros(1_772_000_000_000_000));
    Sqlite::open(Options { path: path.to_owned(), clock, ticks: None, address: None })
        .expect("it opens")
}

/// Commits jobs with these numbers, with payloads of this size.
fn enqueue(store: &Sqlite, numbers: impl Iterator<Item = u128>, size: usize) {
    let tenant = TenantId::new("acme").unwrap();
    let by = Actor::User(Principal::new("ann").unwrap());
    let payload = Payload::parse(&format!("\"{}\"", "x".repeat(size)), 100_000).unwrap();
    let writes = numbers.map(|number| {
        let new = Box::new(NewJob::new(Kind::new("mail").unwrap(), payload.clone()));
        let (job_id, tenant) = (JobId::from_u128(number), tenant.clone());
        let by = by.clone().into();
        let op = Enqueue { job_id, tenant: tenant.clone(), new, random: number, by }.into();
        Write::Op { tenant, op }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.commit(writes.collect::<Vec<_>>().into())).expect("it is written");
}

/// Some megabytes, so that a copy takes a while.
fn fill(store: &Sqlite) {
    for part in 0..10 {
        enqueue(store, 1_000_000 + part * 10..1_000_010 + part * 10, 50_000);
    }
}

fn command(args: &[&str], store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(args).args(["--store", &format!("sqlite:{}", store.display())]);
    command
}

fn windlass(args: &[&str], store: &Path) -> Output {
    command(args, store).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints text")
}

/// It went well, and printed this document.
fn json(run: &Output) -> Value {
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    serde_json::from_slice(&run.stdout).expect("it prints JSON")
}

fn refused(run: &Output, code: i32, words: &str) {
    assert_eq!((run.status.code(), text(&run.stdout)), (Some(code), ""), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains(words), "{}", text(&run.stderr));
}

/// The database breaks no rule. It gives back how many jobs it has.
fn whole(path: &Path) -> u64 {
    let report = check(path).expect("it can be read");
    assert!(report.is_clean(), "{report}");
    report.jobs
}

#[test]
fn a_backup_says_what_it_holds_and_how_to_put_it_back() {
    let (_folder, path) = place();
    enqueue(&open(&path), 1..4, 10);
    let file = path.with_file_name("copy.db");
    let name = file.to_str().unwrap();
    let run = windlass(&["backup", name], &path);
    let size = fs::metadata(&file).unwrap().len();
    let expected = format!(
        "{name} is whole: {}.{} kB, up to event 3. It passed a quick check.\n\
         Put it back: windlass restore {name} --store sqlite:{} --force\n",
        size / 1000,
        size / 100 % 10,
        path.display()
    );
    assert_eq!((text(&run.stdout), text(&run.stderr)), (&*expected, ""));
    refused(&windlass(&["backup", name], &path), 4, "is there already\nName another file");
    let told = json(&windlass(&["backup", name, "--force", "--deep", "-o", "json"], &path));
    assert_eq!(told["file"], name);
    assert_eq!((&told["last_event"], &told["checked"]), (&3.into(), &"deep".into()));
    refused(&windlass(&["backup", name], &path.with_file_name("none.db")), 3, "no database file");
    let other = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["backup", name, "--store", "mysql://localhost"])
        .output();
    refused(&other.unwrap(), 2, "--store sqlite:FILE");
}

#[test]
fn a_restore_says_what_is_there_now_and_what_to_do_next() {
    let (_folder, path) = place();
    enqueue(&open(&path), 1..4, 10);
    let file = path.with_file_name("copy.db");
    let name = file.to_str().unwrap();
    json(&windlass(&["backup", name, "-o", "json"], &path));
    enqueue(&open(&path), 4..6, 10);
    refused(&windlass(&["restore", name], &path), 4, "add --force");
    let serving = open(&path);
    let in_use = windlass(&["restore", name, "--force"], &path);
    refused(&in_use, 4, &format!("in use by process {}", std::process::id()));
    drop(serving);
    let run = windlass(&["restore", name, "--force"], &path);
    let said = text(&run.stdout);
    let aside = format!("What stood there is kept as {}.old-1.\n", path.display());
    for words in ["up to event 3", &aside, "STALE_ATTEMPT", "under the same keys"] {
        assert!(said.contains(words), "{words:?} is missing: {said}");
    }
    assert_eq!((whole(&path), whole(&path.with_file_name("windlass.db.old-1"))), (3, 5));
    drop(open(&path));
    let told = json(&windlass(&["restore", name, "--force", "-o", "json"], &path));
    assert_eq!((&told["last_event"], &told["kept_aside"].is_string()), (&3.into(), &true));
    refused(&windlass(&["restore", "none.db"], &path), 3, "there is no backup");
    let text = path.with_file_name("text.db");
    fs::write(&text, "no database\n".repeat(100)).unwrap();
    refused(&windlass(&["restore", text.to_str().unwrap(), "--force"], &path), 1, "not a database");
    assert_eq!(whole(&path), 3);
}

const CHILD: &str = "WINDLASS_TEST_CHILD";

/// A process of its own that serves the file and commits until it is killed.
struct Owner(Child);

impl Owner {
    fn start(path: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["child_commits_without_end", "--exact", "--nocapture"]).env(CHILD, path);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().unwrap());
        assert!(out.lines().map_while(Result::ok).any(|line| line.ends_with("ready")));
        Self(child)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn child_commits_without_end() {
    let Some(path) = env::var_os(CHILD).map(PathBuf::from) else { return };
    let store = open(&path);
    fill(&store);
    println!("ready");
    for number in 1.. {
        enqueue(&store, number..number + 1, 10);
    }
}

#[test]
fn a_store_that_is_served_and_written_to_is_backed_up() {
    let (_folder, path) = place();
    let owner = Owner::start(&path);
    let mut last = 0;
    for round in 0..3 {
        let file = path.with_file_name(format!("copy-{round}.db"));
        let told =
            json(&windlass(&["backup", file.to_str().unwrap(), "--deep", "-o", "json"], &path));
        let event = told["last_event"].as_u64().unwrap();
        assert!(event >= 100 && event > last, "{event} after {last}");
        last = event;
        assert_eq!(whole(&file), event);
    }
    drop(owner);
}

/// Runs a command and kills it after this time. It says whether it was killed on the way.
fn killed(mut command: Command, after: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    thread::sleep(after);
    child.kill().expect("it can be killed");
    child.wait().expect("it ends").code().is_none()
}

/// Moments to kill at: close together in the beginning, until one comes too late.
fn moments() -> impl Iterator<Item = Duration> {
    (0..60).map(|number| Duration::from_millis(1 + number * 3))
}

#[test]
fn a_backup_that_is_killed_leaves_nothing_or_a_whole_one() {
    let (_folder, path) = place();
    fill(&open(&path));
    let file = path.with_file_name("copy.db");
    let (mut early, mut late) = (0, 0);
    for after in moments() {
        let was_killed = killed(command(&["backup", file.to_str().unwrap()], &path), after);
        early += u32::from(was_killed);
        if file.exists() {
            assert_eq!(whole(&file), 100);
            late += 1;
            fs::remove_file(&file).unwrap();
        }
        if late >= 3 {
            break;
        }
    }
    assert!(early >= 3 && late > 0, "killed {early} times, too late {late} times");
    assert!(windlass(&["backup", file.to_str().unwrap()], &path).status.success());
    assert!(!path.with_file_name("copy.db.part").exists(), "what was left was cleared away");
    drop(open(&path));
}

#[test]
fn a_restore_that_is_killed_leaves_the_old_store_or_the_new_one() {
    let (_folder, path) = place();
    let file = path.with_file_name("copy.db");
    let name = file.to_str().unwrap();
    fill(&open(&path));
    json(&windlass(&["backup", name, "-o", "json"], &path));
    let (mut early, mut late) = (0, 0);
    for (round, after) in moments().enumerate() {
        // Something that is only in the store that will be replaced.
        enqueue(&open(&path), [round as u128 + 1].into_iter(), 10);
        let asides = asides(&path);
        let was_killed = killed(command(&["restore", name, "--force"], &path), after);
        early += u32::from(was_killed);
        if !path.exists() {
            // Between the two names: the old one is kept, whole.
            let aside = asides_since(&path, &asides).expect("the old one is kept aside");
            assert!(whole(&aside) > 100);
            json(&windlass(&["restore", aside.to_str().unwrap(), "-o", "json"], &path));
        }
        // The backup has a hundred, and the store that it replaces has more.
        if whole(&path) == 100 {
            late += 1;
            let aside = asides_since(&path, &asides).expect("the old one is kept aside");
            assert!(whole(&aside) > 100);
        }
        drop(open(&path));
        if late >= 3 {
            break;
        }
    }
    assert!(early >= 3 && late > 0, "killed {early} times, too late {late} times");
}

/// Databases that were kept aside. A number can be missing: of some only the log was left to keep.
fn asides(path: &Path) -> Vec<PathBuf> {
    let name = |number: u32| PathBuf::from(format!("{}.old-{number}", path.display()));
    (1..200).map(name).filter(|aside| aside.exists()).collect()
}

fn asides_since(path: &Path, before: &[PathBuf]) -> Option<PathBuf> {
    asides(path).into_iter().find(|aside| !before.contains(aside))
}

/// The binary, with a mask that lets new files be read by everybody.
#[cfg(unix)]
fn unmasked(args: &[&str], store: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-ec", "umask 022; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_windlass")]);
    shell.args(args).args(["--store", &format!("sqlite:{}", store.display())]);
    shell
}

/// What a database holds is its owner's to read, whatever the process lets new files be: the database, what stands beside
/// it while it is served, its backups, and what a restore keeps aside.
#[cfg(unix)]
#[test]
fn every_file_is_its_owners_alone_under_a_mask_that_would_let_others_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, path) = place();
    let at = path.parent().unwrap();
    let modes = |wanted: &[&str]| {
        let found: Vec<_> = fs::read_dir(at).unwrap().map(|it| it.unwrap()).collect();
        for file in &found {
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?} has mode {mode:o}", file.file_name());
        }
        let names: Vec<_> = found.iter().map(std::fs::DirEntry::file_name).collect();
        for name in wanted {
            assert!(names.iter().any(|it| it == name), "{name} is not in {names:?}");
        }
    };
    let issued = unmasked(&["token", "add", "ann", "--role", "admin"], &path).output().unwrap();
    assert!(issued.status.success(), "{}", text(&issued.stderr));
    modes(&["windlass.db"]);
    let mut serving = unmasked(&["serve", "--listen", "127.0.0.1:0"], &path);
    let mut serving = serving.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(serving.stdout.take().unwrap()).read_line(&mut line).unwrap();
    modes(&["windlass.db", "windlass.db-wal", "windlass.db-shm", "windlass.db-lock"]);
    let copy = at.join("copy.db");
    let name = copy.to_str().unwrap();
    let copied = unmasked(&["backup", name], &path).output().unwrap();
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    modes(&["copy.db"]);
    // It is killed, and leaves everything where it is.
    serving.kill().unwrap();
    serving.wait().unwrap();
    modes(&["windlass.db-wal"]);
    let restored = unmasked(&["restore", name, "--force"], &path).output().unwrap();
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    modes(&["windlass.db", "windlass.db-mark", "windlass.db.old-1"]);
}

/// Whoever hands you a backup can have put something into it, which would run with each write.
#[test]
fn a_trigger_that_is_not_ours_is_told_by_restore_and_by_the_doctor() {
    let (_folder, path) = place();
    enqueue(&open(&path), 1..4, 10);
    let copy = path.with_file_name("copy.db");
    let name = copy.to_str().unwrap();
    json(&windlass(&["backup", name, "-o", "json"], &path));
    let doctor = || windlass(&["doctor"], &path);
    let whole = doctor();
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stdout));
    let trojan = "CREATE TRIGGER steal AFTER INSERT ON jobs BEGIN UPDATE meta SET value = 'x'; END";
    let shell = windlass_store::rusqlite::Connection::open(&copy).unwrap();
    shell.execute_batch(trojan).unwrap();
    drop(shell);
    let run = windlass(&["restore", name, "--force"], &path);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let said = text(&run.stderr);
    assert!(said.contains("trigger steal on jobs") && said.contains("Look at it"), "{said}");
    let told = doctor();
    let said = text(&told.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(told.status.code(), Some(1), "{said}");
    assert!(said.contains("what Windlass did not make: trigger steal on jobs"), "{said}");
}
