//! A synchronous standby: what was acknowledged survives the primary.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;
use windlass_kernel::{JobId, Refusal, State};
use windlass_store::{Commit as _, ReadJobs as _, postgres::Postgres, read::Scope};
use windlass_testkit::postgres::{Cluster, Options, Stop};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::judge,
    load::{Load, node},
};

/// A primary and a standby that confirms each of its commits.
struct Pair {
    /// Its files are inside the folder of the primary, and go with it.
    standby: Standby,
    primary: Cluster,
}

struct Standby {
    bin: PathBuf,
    data: PathBuf,
    socket_dir: PathBuf,
    port: u16,
}

impl Pair {
    fn start() -> Self {
        let primary = Cluster::start(&Options::default());
        let bin = primary.bin().to_owned();
        let socket_dir = primary.socket_dir().to_owned();
        let data = socket_dir.join("standby");
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let standby = Standby { bin, data, socket_dir, port };
        // A copy of a server that is down: unlike a backup it needs no program of the same version.
        primary.stop(Stop::Fast);
        standby.copy(&primary);
        primary.restart(Stop::Fast);
        standby.start();
        primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        primary.psql("SELECT pg_reload_conf()");
        let pair = Self { standby, primary };
        pair.wait_until_synchronous();
        pair
    }

    fn wait_until_synchronous(&self) {
        let begun = Instant::now();
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
        while self.primary.psql(sql) != "1" {
            assert!(begun.elapsed() < Duration::from_secs(30), "the standby does not follow");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A home that is found on whichever of the two can be written to.
    fn home(&self) -> SchemaHome {
        let mut home = SchemaHome::new_in(&self.primary);
        let ports = format!("{},{}", self.primary.port(), self.standby.port);
        let config = format!("host=127.0.0.1,127.0.0.1 port={ports} user=postgres dbname=postgres");
        home.options.config =
            windlass_store::postgres::Options::new(config.parse().unwrap()).config;
        home
    }

    /// The primary dies, and the standby takes its place.
    fn fail_over(&self) {
        self.primary.stop(Stop::Immediate);
        self.standby.pg_ctl(&["-w", "promote"]);
    }
}

impl Standby {
    /// Makes its files from those of the primary.
    fn copy(&self, primary: &Cluster) {
        let script = "
            cp -a \"$1/data\" \"$2\"
            echo \"primary_conninfo = '$3'\" >>\"$2/postgresql.auto.conf\"
            : >\"$2/standby.signal\"";
        let mut shell = as_its_user("sh".into());
        shell.args(["-ec", script, "copy"]).arg(&self.socket_dir).arg(&self.data);
        self.run(shell.arg(primary.connection_string("postgres")));
    }

    fn run(&self, command: &mut Command) {
        // A server that is started keeps what it is given, so it is given no pipe.
        let log = self.socket_dir.join("standby.said");
        let said = fs::File::create(&log).unwrap();
        let command = command.current_dir("/").stdout(said.try_clone().unwrap()).stderr(said);
        let status = command.status().unwrap();
        assert!(status.success(), "{command:?}: {}", fs::read_to_string(&log).unwrap());
    }

    fn pg_ctl(&self, arguments: &[&str]) {
        let mut command = as_its_user(self.bin.join("pg_ctl"));
        self.run(command.arg("-D").arg(&self.data).args(arguments));
    }

    fn start(&self) {
        let (port, folder) = (self.port, self.socket_dir.display());
        let settings = format!(
            "-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} \
             -c max_connections=300"
        );
        let log = self.socket_dir.join("standby.log").display().to_string();
        self.pg_ctl(&["-w", "-l", &log, "-o", &settings, "start"]);
    }

    fn stop(&self) {
        self.pg_ctl(&["-w", "-m", "immediate", "stop"]);
    }
}

/// A program as a user that PostgreSQL runs as.
fn as_its_user(program: PathBuf) -> Command {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
    command
}

impl Drop for Standby {
    fn drop(&mut self) {
        if self.data.join("postmaster.pid").exists() {
            self.stop();
        }
    }
}

#[test]
fn what_was_acknowledged_survives_the_primary() {
    for _ in 0..count(1, 8) {
        let pair = Pair::start();
        let home = pair.home();
        let runtime = runtime(2);
        let nodes = [node(&runtime, &home.options), node(&runtime, &home.options)];
        let tell = |store: &Arc<Postgres>, write| {
            runtime.block_on(store.commit(vec![write].into())).unwrap().remove(0)
        };
        let old = {
            let mut new = plain();
            new.queue = queue("old");
            tell(&nodes[0], write(enqueue(1, new))).unwrap();
            let mut wanted = wanted("old", 1, 1);
            wanted.queues = vec![queue("old")];
            granted(&tell(&nodes[0], windlass_store::Write::Claim(wanted)).unwrap()).remove(0).job
        };
        let load = Load::start(&runtime, &nodes, 8);
        load.wait_for(100);
        let begun = Instant::now();
        pair.fail_over();
        let promoted = begun.elapsed();
        let recovery = load.wait_for(1);
        load.wait_for(100);
        let mut ledger = load.stop(&runtime);
        ledger.asked.insert(1);
        let jobs = judge(&home, &ledger);
        println!(
            "{jobs} jobs, errors {:?}, promoted in {promoted:?}, went on {recovery:?} after that",
            ledger.errors
        );
        assert!(recovery < Duration::from_secs(10), "{recovery:?}");
        // Whoever held a job under the old primary holds it no more.
        let told = tell(&nodes[1], write(settle(old.id, old.epoch, succeeded())));
        assert_eq!(told.unwrap_err(), Refusal::StaleAttempt);
        assert_eq!(
            runtime.block_on(nodes[0].job(&Scope::Every, old.id)).unwrap().unwrap().state,
            State::Interrupted
        );
        let sql = "
            SELECT (SELECT value::bigint FROM meta WHERE name = 'incarnation'),
                (SELECT count(*) FROM jobs WHERE lease_session IS NOT NULL AND epoch < 4294967296)";
        let found = home.sql().query(sql, &[]);
        assert_eq!((found[0].get::<_, i64>(0), found[0].get::<_, i64>(1)), (1, 0));
        drop(nodes);
        drop(home);
    }
}

/// A commit that waits for a standby which does not answer.
struct Waiting {
    pair: Pair,
    home: SchemaHome,
    commit: tokio::task::JoinHandle<Result<windlass_store::Replies, windlass_store::Error>>,
    store: Arc<Postgres>,
    runtime: Runtime,
}

impl Waiting {
    fn start() -> Self {
        let pair = Pair::start();
        let home = pair.home();
        let runtime = runtime(2);
        let store = node(&runtime, &home.options);
        pair.standby.stop();
        let committing = store.clone();
        let commit = runtime
            .spawn(async move { committing.commit(vec![write(enqueue(1, plain()))].into()).await });
        Self { pair, home, commit, store, runtime }
    }

    /// Does this to the connection that waits, and expects that nobody is told that the job is safe.
    fn disturb(self, how: &str) {
        let begun = Instant::now();
        let sql = format!(
            "
            SELECT count({how}(pid)) FROM pg_stat_activity
            WHERE wait_event = 'SyncRep' AND application_name = 'psql' IS FALSE"
        );
        while self.pair.primary.psql(&sql) != "1" {
            assert!(begun.elapsed() < Duration::from_secs(5), "no commit waits for the standby");
        }
        std::thread::sleep(Duration::from_secs(1));
        assert!(!self.commit.is_finished(), "it was acknowledged, and the standby has not seen it");
        self.pair.standby.start();
        let told = self.runtime.block_on(self.commit).unwrap().unwrap().remove(0).unwrap();
        assert_eq!(answer(&told).job_id, JobId::from_u128(1));
        self.pair.fail_over();
        let begun = Instant::now();
        let job = loop {
            match self.runtime.block_on(self.store.job(&Scope::Every, JobId::from_u128(1))) {
                Ok(job) => break job,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error:?}"),
            }
        };
        assert!(job.is_some(), "it was acknowledged, and is lost with the primary");
        drop(self.home);
    }
}

#[test]
fn a_wait_for_the_standby_that_is_cancelled_is_not_an_answer() {
    Waiting::start().disturb("pg_cancel_backend");
}

#[test]
fn a_wait_for_the_standby_that_is_ended_is_not_an_answer() {
    Waiting::start().disturb("pg_terminate_backend");
}
