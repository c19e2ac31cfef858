//! It works, or it ends, and says which: stores that go away for a while, disks that fail or are full, files that are gone,
//! and the end that is asked for.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use windlass_kernel::Timestamp;
use windlass_store::rusqlite::Connection;
use windlass_testkit::postgres::Cluster;

use crate::{
    client::{client, send},
    server::{Server, Store, block_on, windlass},
};

const CONFIG: &str = "[alerts]\nlook_every_ms = 100\n";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn is_alert(server: &Server, name: &str) -> bool {
    let alerts = server.get("/api/v1/alerts").await.ok().json();
    alerts["items"].as_array().expect("a list").iter().any(|alert| alert["name"] == name)
}

async fn is_ready(server: &Server) -> bool {
    server.get("/readyz").await.status == StatusCode::OK
}

fn path_of(store: &Store) -> PathBuf {
    store.url().strip_prefix("sqlite:").expect("a file").into()
}

/// Everything that was accepted is in the one file, whoever was connected.
#[test]
fn a_clean_stop_leaves_everything_in_the_file() {
    block_on(async {
        let store = Store::sqlite();
        let server = Server::start(&store);
        for _ in 0..20 {
            server.post("/api/v1/jobs", r#"{"queue": "late"}"#).await.ok();
        }
        // A worker that waits, one who follows, and one who says nothing.
        let wait = r#"{"worker_id": "w", "queues": ["other"], "wait_ms": 30000}"#;
        let claim = client().post(server.url("/api/v1/claims")).body(wait);
        let waiting = tokio::spawn(send(claim.header("content-type", "application/json")));
        let mut following = client().get(server.url("/api/v1/events/stream")).send().await.unwrap();
        let silent = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        following.chunk().await.expect("it tells something");
        let status = server.stop();
        assert!(status.success(), "{status}");
        let _ = waiting.await;
        drop(silent);
        let path = path_of(&store);
        let log = fs::metadata(path.with_extension("db-wal")).map_or(0, |it| it.len());
        assert_eq!(log, 0, "the write-ahead log is not folded");
        let elsewhere = tempfile::tempdir().unwrap();
        let copy = elsewhere.path().join("copy.db");
        fs::copy(&path, &copy).unwrap();
        let sql = Connection::open(&copy).unwrap();
        let jobs: u64 = sql.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).unwrap();
        assert_eq!(jobs, 20);
    });
}

/// The file of a server is moved away: nothing more is acknowledged, and the process ends, whether somebody calls or not.
#[test]
fn a_file_that_is_gone_ends_the_process() {
    for calls in [true, false] {
        block_on(async {
            let store = Store::sqlite();
            let binary = Command::new(env!("CARGO_BIN_EXE_windlass"));
            let mut server = Server::start_command(binary, &store, CONFIG);
            server.post("/api/v1/jobs", "{}").await.ok();
            let path = path_of(&store);
            fs::rename(&path, path.with_extension("away")).unwrap();
            if calls {
                let request = client().post(server.url("/api/v1/jobs")).body("{}");
                let request = request.header("content-type", "application/json");
                // If it has not ended already, it says why it will.
                if let Ok(answer) = send(request).await {
                    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
                    assert_eq!(answer.at("/code"), "STORE_STOPPED", "{}", answer.text);
                }
            }
            let (status, said) = server.ended();
            assert_eq!(status.code(), Some(1), "{status}: {said}");
            assert!(said.contains("was removed or replaced while it was in use"), "{said}");
            assert!(said.contains("the store has stopped, and the process ends"), "{said}");
        });
    }
}

/// The store has stopped and the process is about to end: whoever called before that is told so. Nobody else comes in.
#[test]
fn healthz_tells_that_the_store_has_stopped_until_the_process_ends() {
    block_on(async {
        let store = Store::sqlite();
        let binary = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let config = format!("{CONFIG}[server]\nheader_timeout_ms = 120000\ngrace_ms = 120000\n");
        let mut server = Server::start_command(binary, &store, &config);
        assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
        // Two calls that have begun, and whose heads are not whole yet.
        let mut calls = Vec::new();
        for path in ["/healthz", "/readyz"] {
            let mut call = TcpStream::connect(server.address()).await.unwrap();
            call.write_all(format!("GET {path} HTTP/1.1\r\n").as_bytes()).await.unwrap();
            calls.push((path, call));
        }
        // The server has seen them when it has answered somebody who came after them.
        assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
        let path = path_of(&store);
        fs::rename(&path, path.with_extension("away")).unwrap();
        until("the end of new calls", async || TcpStream::connect(server.address()).await.is_err())
            .await;
        for (path, mut call) in calls {
            call.write_all(b"host: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            call.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
            assert!(answer.contains("was removed or replaced while it was in use"), "{answer}");
        }
        let (status, said) = server.ended();
        assert_eq!(status.code(), Some(1), "{status}: {said}");
    });
}

/// A disk that fails: a file may not grow beyond so many blocks, and whoever tries gets an error of the disk.
#[test]
fn a_disk_that_fails_ends_the_process_and_nothing_is_lost() {
    block_on(async {
        let store = Store::sqlite();
        let mut shell = Command::new("sh");
        let script = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\"";
        shell.args(["-ec", script, env!("CARGO_BIN_EXE_windlass")]);
        let mut server = Server::start_command(shell, &store, CONFIG);
        let body = format!(r#"{{"payload": "{}"}}"#, "x".repeat(20_000));
        let mut made = Vec::new();
        for _ in 0..1_000 {
            let request = client().post(server.url("/api/v1/jobs")).body(body.clone());
            match send(request.header("content-type", "application/json")).await {
                Ok(answer) if answer.status == StatusCode::CREATED => {
                    made.push(answer.at("/job/job_id"));
                }
                Ok(answer) => {
                    assert_eq!(answer.at("/code"), "STORE_STOPPED", "{}", answer.text);
                    break;
                }
                Err(_) => break,
            }
        }
        assert!(!made.is_empty() && made.len() < 1_000, "{} were acknowledged", made.len());
        let (status, said) = server.ended();
        assert_eq!(status.code(), Some(1), "{status}: {said}");
        assert!(said.contains("the disk failed"), "{said}");
        let server = Server::start(&store);
        for id in made {
            server.get(&format!("/api/v1/jobs/{id}")).await.ok();
        }
    });
}

/// A disk that is full makes nothing ready and is told; with room it passes, though nobody sends anything.
#[test]
fn a_full_disk_is_told_until_there_is_room() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(&format!("sqlite:{}", folder.path().join("w.db").display()));
        let mut shell = Command::new("unshare");
        let script = "mount -t tmpfs -o size=8m none \"$FOLDER\"; exec \"$0\" \"$@\"";
        shell.args(["--mount", "--map-root-user", "sh", "-ec", script]);
        shell.arg(env!("CARGO_BIN_EXE_windlass")).env("FOLDER", folder.path());
        let server = Server::start_command(shell, &store, CONFIG);
        assert!(is_ready(&server).await);
        // Only the process sees what is mounted there.
        let inside = PathBuf::from(format!("/proc/{}/root", server.id()));
        let ballast = inside.join(folder.path().strip_prefix("/").unwrap()).join("ballast");
        let _ = fs::write(&ballast, vec![0; 8 << 20]);
        let body = format!(r#"{{"payload": "{}"}}"#, "x".repeat(100_000));
        let answer = server.post("/api/v1/jobs", &body).await;
        assert_eq!(answer.at("/code"), "DISK_FULL", "{}", answer.text);
        let ready = server.get("/readyz").await;
        assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE, "{}", ready.text);
        assert!(ready.text.contains("the disk is full"), "{}", ready.text);
        assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
        until("the alert", async || is_alert(&server, "disk_full").await).await;
        fs::remove_file(&ballast).unwrap();
        until("room", async || is_ready(&server).await).await;
        until("the end of the alert", async || !is_alert(&server, "disk_full").await).await;
        server.post("/api/v1/jobs", &body).await.ok();
    });
}

/// What time brings, and what people asked for: a lease, a job for later, a schedule and an act on many.
struct Awaited {
    leased: String,
    later: String,
    operation: String,
}

impl Awaited {
    async fn new(server: &Server) -> Self {
        let job = |queue: &str| format!(r#"{{"queue": "{queue}"}}"#);
        let leased = server.post("/api/v1/jobs", &job("leased")).await.ok().at("/job/job_id");
        let claim = r#"{"worker_id": "w", "queues": ["leased"], "lease_ms": 500, "start": true}"#;
        server.post("/api/v1/claims", claim).await.ok();
        let now: Timestamp =
            server.get("/api/v1/me").await.ok().at("/now").parse().expect("a time");
        let soon = now.plus(Duration::from_secs(1));
        let soon = format!(r#"{{"queue": "later", "scheduled_at": "{soon}"}}"#);
        let later = server.post("/api/v1/jobs", &soon).await.ok();
        assert_eq!(later.at("/job/state"), "scheduled");
        let later = later.at("/job/job_id");
        let every = r#"{"name": "often", "every_ms": 1000, "job": {"queue": "often"}}"#;
        server.post("/api/v1/schedules", every).await.ok();
        for _ in 0..5 {
            server.post("/api/v1/jobs", &job("many")).await.ok();
        }
        let many = r#"{"act": "cancel", "filter": {"queue": "many"}, "per_second": 2}"#;
        let operation = server.post("/api/v1/operations", many).await.ok().at("/operation_id");
        Self { leased, later, operation }
    }

    async fn all_come(&self, server: &Server) {
        let state =
            async |id: &str| server.get(&format!("/api/v1/jobs/{id}")).await.ok().at("/state");
        until("the lease", async || state(&self.leased).await == "interrupted").await;
        until("the job for later", async || state(&self.later).await == "queued").await;
        until("the act on many", async || state(&self.operation).await == "succeeded").await;
        let count = async || {
            let jobs = server.get("/api/v1/jobs?queue=often&limit=1000").await.ok().json();
            jobs["items"].as_array().map_or(0, Vec::len)
        };
        let before = count().await;
        until("the schedule", async || count().await > before).await;
    }
}

/// Part of the store is away for a while. It is told, and everything goes on when it is back.
async fn goes_on_after(store: &Store, away: impl Fn(), back: impl Fn()) {
    let server = Server::start_with_config(store, CONFIG);
    let awaited = Awaited::new(&server).await;
    away();
    until("the server's word", async || !is_ready(&server).await).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!is_ready(&server).await);
    back();
    until("the end of that", async || is_ready(&server).await).await;
    awaited.all_come(&server).await;
    until("the end of alerts", async || {
        !is_alert(&server, "timers_stopped").await && !is_alert(&server, "store_damaged").await
    })
    .await;
    assert!(server.stop().success());
}

#[test]
fn a_schema_that_is_renamed_for_a_while_ends_nothing() {
    block_on(async {
        let store = Store::postgres();
        let schema = store.url().rsplit('=').next().expect("it names one").to_owned();
        let rename = |from: &str, to: &str| {
            let sql = format!("ALTER SCHEMA {from} RENAME TO {to}");
            Cluster::shared().psql(&sql);
        };
        let gone = format!("{schema}_gone");
        goes_on_after(&store, || rename(&schema, &gone), || rename(&gone, &schema)).await;
        store.check();
    });
}

#[test]
fn a_table_that_is_renamed_for_a_while_ends_nothing() {
    block_on(async {
        let store = Store::sqlite();
        let rename = |from: &str, to: &str| {
            let sql = Connection::open(path_of(&store)).unwrap();
            sql.busy_timeout(Duration::from_secs(10)).unwrap();
            // As old tools do it: what refers to it stays as it is.
            sql.pragma_update(None, "legacy_alter_table", true).unwrap();
            sql.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).unwrap();
        };
        let (away, back) = (|| rename("schedules", "gone"), || rename("gone", "schedules"));
        goes_on_after(&store, away, back).await;
        store.check();
    });
}

/// A store whose last commit is of tomorrow, as a clock that was ahead leaves it: told, and nothing waits for tomorrow.
#[test]
fn a_clock_that_was_ahead_stops_nothing() {
    block_on(async {
        let store = Store::sqlite();
        write_tomorrow(&path_of(&store)).await;
        let server = Server::start_with_config(&store, CONFIG);
        Awaited::new(&server).await.all_come(&server).await;
        until("the alert", async || is_alert(&server, "clock_went_back").await).await;
        let clock = server.get("/api/v1/clock").await.ok();
        assert_eq!(clock.at("/clock"), "went_back");
        assert!(is_ready(&server).await);
        let doctor = windlass(&["doctor", "--store", store.url()]).output().unwrap();
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(doctor.status.success(), "{said}");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("goes on a tenth slower until they meet"), "{said}");
        assert!(server.stop().success());
        store.check();
    });
}

/// One job, by a clock that is a day ahead.
async fn write_tomorrow(path: &Path) {
    use windlass::{Config, Engine, JobRequest, clock};

    let right = clock::system();
    let ahead: windlass::Clock =
        std::sync::Arc::new(move || right().plus(Duration::from_secs(24 * 60 * 60)));
    let url = format!("sqlite:{}", path.display());
    let config = Config { clock: ahead, timers: None, ..Config::default() };
    let engine = Engine::open_with(&url, &config).await.expect("it opens");
    engine.enqueue(JobRequest::of("tomorrow", &())).await.expect("it is enqueued");
    engine.close().await;
}

/// The clock of a real server is set while it runs, by libfaketime: `scripts/faketime` installs it.
#[cfg(target_os = "linux")]
#[test]
fn a_clock_that_is_set_under_a_running_server_is_told_and_stops_nothing() {
    block_on(async {
        let store = Store::sqlite();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("clock");
        let set = |offset: &str| fs::write(&file, offset).unwrap();
        set("+0");
        let mut binary = Command::new("env");
        binary
            .args([format!("LD_PRELOAD={}", faketime().display())])
            .args([format!("FAKETIME_TIMESTAMP_FILE={}", file.display())])
            .args([
                "FAKETIME_NO_CACHE=1",
                "FAKETIME_DONT_FAKE_MONOTONIC=1",
                "DONT_FAKE_MONOTONIC=1",
            ])
            .arg(env!("CARGO_BIN_EXE_windlass"));
        let server = Server::start_command(binary, &store, CONFIG);
        let stands = async |how: &str| server.get("/api/v1/clock").await.ok().at("/clock") == how;
        assert!(stands("agrees").await);
        // A day back, and ahead again: nothing waits for tomorrow.
        set("-86400");
        Awaited::new(&server).await.all_come(&server).await;
        until("the alert", async || is_alert(&server, "clock_went_back").await).await;
        set("+0");
        until("the end of that", async || stands("agrees").await).await;
        // A day ahead: nothing is due early, until somebody says that the clock is right.
        let before: Timestamp = server.get("/api/v1/me").await.ok().at("/now").parse().unwrap();
        set("+86400");
        until("the alert", async || is_alert(&server, "clock_jumped_ahead").await).await;
        let now: Timestamp = server.get("/api/v1/me").await.ok().at("/now").parse().unwrap();
        assert!(now.since(before) < Duration::from_secs(60 * 60), "{now} after {before}");
        let url = server.url("");
        let args = ["doctor", "--mend", "clock", "--reason", "it was late", "--server", &url];
        let doctor = windlass(&args).output().unwrap();
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(doctor.status.success() && said.contains("The store follows the clock"), "{said}");
        assert!(stands("agrees").await);
        let audit = server.get("/api/v1/audit").await.ok().text;
        assert!(audit.contains("it was late"), "{audit}");
        until("the end of the alert", async || !is_alert(&server, "clock_jumped_ahead").await)
            .await;
        assert!(server.stop().success());
    });
}

/// Where the library is that `faketime` loads.
#[cfg(target_os = "linux")]
fn faketime() -> PathBuf {
    let found = fs::read_dir("/usr/lib").expect("a folder").flatten().map(|it| it.path());
    let folders = found.chain(["/usr/lib".into(), "/usr/local/lib".into()]);
    let mut libraries = folders.map(|it| it.join("faketime/libfaketimeMT.so.1"));
    libraries.find(|it| it.exists()).expect("libfaketime is missing: run scripts/faketime")
}
