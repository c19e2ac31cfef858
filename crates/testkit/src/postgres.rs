//! A private PostgreSQL cluster for tests, on a free port and in a folder of its own.
//!
//! It always ends with the process that started it, also when that one is killed: a shell watches over it,
//! whose input is a pipe from the process, and when the pipe closes it stops the server and removes the folder.
//! All that is done with the server goes through that shell, one after the other, so nothing can be left behind
//! half done. Trust is the only way in, so it is for tests only.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{self, Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Does it wait for the disk? Without it is faster, and a machine that dies loses everything.
    pub fsync: bool,
    /// More settings of the server, by name and value. A value has no spaces.
    pub settings: Vec<(&'static str, String)>,
    /// Where it answers beside 127.0.0.1.
    pub doors: Vec<Door>,
}

/// An address of this machine at which a server answers, and the only one that may come in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// Where it answers.
    pub address: Ipv4Addr,
    /// Who may come in.
    pub guest: Ipv4Addr,
}

impl Default for Options {
    fn default() -> Self {
        Self { fsync: true, settings: Vec::new(), doors: Vec::new() }
    }
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It closes its connections and shuts down well.
    Fast,
    /// It dies at once, and has to recover when it starts again.
    Immediate,
}

impl Stop {
    const fn as_str(self) -> &'static str {
        match self {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        }
    }
}

/// A running cluster. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    watcher: Mutex<Watcher>,
}

/// How often a port is looked for. Another process may be faster to take one that was free.
const PORTS_MAX: u32 = 10;

/// Connections that a cluster takes: many tests run at the same time.
const CONNECTIONS_MAX: u32 = 300;

impl Cluster {
    /// The cluster of this process, started when it is first asked for. It does not wait for the disk.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&Options { fsync: false, ..Options::default() }))
    }

    /// A cluster of one's own.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    pub fn start(options: &Options) -> Self {
        let bin = find_bin(env::var_os("WINDLASS_PG_BIN").map(PathBuf::from));
        let bin = bin.unwrap_or_else(|why| panic!("{why}"));
        let folder = new_folder();
        let mut watcher = Watcher::start(&bin, &folder);
        let guests = options.doors.iter().map(|door| format!(" {}", door.guest));
        let init = format!("init{}", guests.collect::<String>());
        watcher.ask(&init).unwrap_or_else(|said| panic!("no cluster could be made:\n{said}"));
        for _ in 0..PORTS_MAX {
            let port = free_port();
            let settings = settings(options, &folder, port);
            match watcher.ask(&format!("start {settings}")) {
                Ok(()) => return Self { bin, folder, port, watcher: Mutex::new(watcher) },
                Err(said) if said.contains("Address already in use") => {}
                Err(said) => panic!("PostgreSQL did not start:\n{said}"),
            }
        }
        panic!("PostgreSQL found no free port in {PORTS_MAX} attempts")
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// A client of PostgreSQL: the one beside the server, or the one that is installed.
    pub fn client(&self, name: &str) -> Command {
        let beside = self.bin.join(name);
        Command::new(if beside.exists() { beside } else { name.into() })
    }

    /// The folder of its Unix socket.
    pub fn socket_dir(&self) -> &Path {
        &self.folder
    }

    /// How a client reaches a database of it. There is always one that is called `postgres`.
    pub fn connection_string(&self, database: &str) -> String {
        self.connection_string_at(Ipv4Addr::LOCALHOST, database)
    }

    /// The same, by one of its doors.
    pub fn connection_string_at(&self, address: Ipv4Addr, database: &str) -> String {
        format!("host={address} port={} user=postgres dbname={database}", self.port)
    }

    /// Stops the server. It can be started again.
    ///
    /// # Panics
    /// If it does not stop.
    pub fn stop(&self, mode: Stop) {
        self.ask(&format!("stop {}", mode.as_str()));
    }

    /// Stops the server, if it runs, and starts it on the same port.
    ///
    /// # Panics
    /// If it does not stop, or not start.
    pub fn restart(&self, mode: Stop) {
        self.ask(&format!("restart {}", mode.as_str()));
    }

    /// What `psql` prints for these statements, without decoration.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn psql(&self, sql: &str) -> String {
        self.try_psql(sql).unwrap_or_else(|said| panic!("{sql} failed: {said}"))
    }

    /// The same, or what `psql` says is wrong.
    ///
    /// # Errors
    /// If a statement fails, or if the server does not answer.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        let mut psql = self.client("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, "-d"]);
        let output = psql.arg(self.connection_string("postgres")).output();
        let output = output.map_err(|error| format!("psql cannot be run: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn ask(&self, command: &str) {
        let answer = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).ask(command);
        answer.unwrap_or_else(|said| panic!("PostgreSQL refused to {command}:\n{said}"));
    }
}

/// The shell that watches over a server.
#[derive(Debug)]
struct Watcher {
    shell: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Watcher {
    fn start(bin: &Path, folder: &Path) -> Self {
        let mut shell = unprivileged("sh");
        shell.args(["-c", include_str!("postgres/watch.sh"), "watch"]).arg(bin).arg(folder);
        // In a group of its own, so that what ends the tests by their group does not end it before it is done.
        shell.process_group(0).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("a shell can be run, as root by setpriv");
        let commands = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("it was asked for"));
        Self { shell, commands, answers }
    }

    /// Has a command carried out. If it fails, all that was said about it is the error.
    fn ask(&mut self, command: &str) -> Result<(), String> {
        let lost = |error: io::Error| format!("the shell that watches over it is gone: {error}");
        let commands = self.commands.as_mut().expect("it is there until this is dropped");
        writeln!(commands, "{command}").map_err(lost)?;
        let mut said = String::new();
        loop {
            let mut line = String::new();
            self.answers.read_line(&mut line).map_err(lost)?;
            match line.trim_end() {
                "done" => return Ok(()),
                "failed" => return Err(said),
                _ if line.is_empty() => return Err(format!("{said}the shell has ended")),
                _ => said.push_str(&line),
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.shell.wait();
    }
}

/// PostgreSQL does not run as root. Then it runs as the user that its package has made for it.
fn unprivileged(program: &str) -> Command {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", program]);
    command
}

fn settings(options: &Options, folder: &Path, port: u16) -> String {
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let doors = options.doors.iter().map(|door| format!(",{}", door.address));
    let own = [
        ("listen_addresses", format!("127.0.0.1{}", doors.collect::<String>())),
        ("port", port.to_string()),
        ("unix_socket_directories", folder.display().to_string()),
        ("max_connections", CONNECTIONS_MAX.to_string()),
        ("fsync", switch(options.fsync)),
        ("full_page_writes", switch(options.fsync)),
    ];
    let all = own.iter().chain(&options.settings);
    all.map(|(name, value)| format!("-c {name}={value}")).collect::<Vec<_>>().join(" ")
}

/// A path that nobody else uses. The shell makes the folder, so that it belongs to the server's user.
fn new_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("windlass-pg-{}-{number}", process::id()));
        // An earlier process may have had the same number, and its shell may have been killed, too.
        if !folder.exists() {
            return folder;
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}

/// The folder of the programs: the one that was given, or the newest that is installed.
fn find_bin(given: Option<PathBuf>) -> Result<PathBuf, String> {
    let has_server = |bin: &PathBuf| bin.join("postgres").exists() && bin.join("initdb").exists();
    let found = match given {
        Some(bin) => Some(bin),
        None => newest(Path::new("/usr/lib/postgresql")).or_else(configured),
    };
    found.filter(has_server).ok_or_else(|| {
        "PostgreSQL is not installed: run `make test`, which installs it, or set WINDLASS_PG_BIN \
         to the folder of `postgres` and `initdb`"
            .to_owned()
    })
}

/// Of the versions in this folder, each with its programs in `bin`, the newest.
fn newest(versions: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(versions).ok()?.filter_map(Result::ok);
    let numbers = |name: &str| name.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>();
    let version = |path: &PathBuf| numbers(path.file_name()?.to_str()?).ok();
    let with_server = entries.map(|it| it.path()).filter(|it| it.join("bin/postgres").exists());
    with_server.max_by_key(version).map(|path| path.join("bin"))
}

fn configured() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let bin = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(bin.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_has_a_server_is_taken() {
        let folder = new_folder();
        for version in ["9.6", "15", "8.4", "common"] {
            let bin = folder.join(version).join("bin");
            fs::create_dir_all(&bin).expect("a folder");
            fs::write(bin.join("postgres"), "").expect("a file");
        }
        // Only its clients are installed.
        fs::create_dir_all(folder.join("17/bin")).expect("a folder");
        let found = newest(&folder);
        fs::remove_dir_all(&folder).expect("it is there");
        assert_eq!(found, Some(folder.join("15/bin")));
        assert_eq!(newest(&folder), None);
    }

    #[test]
    fn who_has_no_server_is_told_what_to_do() {
        let told = find_bin(Some(PathBuf::from("/nowhere"))).expect_err("there is none");
        assert!(told.contains("make test") && told.contains("WINDLASS_PG_BIN"), "{told}");
    }
}
