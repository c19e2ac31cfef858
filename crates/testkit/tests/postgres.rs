//! The cluster for tests: it answers, it comes back as it was, and it never outlives its process.

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use windlass_testkit::postgres::{Cluster, Options, Stop};

#[test]
fn the_cluster_of_a_process_is_one_and_answers() {
    let cluster = Cluster::shared();
    assert_eq!(cluster.psql("SELECT 1 + 1; SELECT 'ä'"), "2\nä");
    assert_eq!(cluster.psql("SHOW fsync"), "off");
    assert_eq!(cluster.psql("SHOW port"), cluster.port().to_string());
    assert!(cluster.socket_dir().join(format!(".s.PGSQL.{}", cluster.port())).exists());
    assert_eq!(Cluster::shared().port(), cluster.port());
    let refused = cluster.try_psql("SELECT no_such_column").unwrap_err();
    assert!(refused.contains("no_such_column"), "{refused}");
}

#[test]
fn what_was_committed_is_there_after_each_kind_of_stop() {
    let settings = vec![("wal_level", "minimal".to_owned()), ("max_wal_senders", "0".to_owned())];
    let cluster = Cluster::start(&Options { settings, ..Options::default() });
    assert_eq!(cluster.psql("SHOW fsync; SHOW wal_level"), "on\nminimal");
    cluster.psql("CREATE TABLE kept (number int)");
    for (number, mode) in [(1, Stop::Immediate), (2, Stop::Fast)] {
        cluster.psql(&format!("INSERT INTO kept VALUES ({number})"));
        let began = cluster.psql("SELECT pg_postmaster_start_time()");
        cluster.restart(mode);
        assert_ne!(cluster.psql("SELECT pg_postmaster_start_time()"), began);
        assert_eq!(cluster.psql("SELECT count(*) FROM kept"), number.to_string());
    }
    cluster.stop(Stop::Fast);
    cluster.try_psql("SELECT 1").unwrap_err();
    cluster.restart(Stop::Fast);
    assert_eq!(cluster.psql("SHOW wal_level; SELECT count(*) FROM kept"), "minimal\n2");

    let (server, folder) = (server(&cluster), cluster.socket_dir().to_owned());
    assert!(is_alive(&server) && folder.exists());
    drop(cluster);
    wait_until_gone(&server, &folder);
}

const CHILD: &str = "WINDLASS_TEST_CHILD";

#[test]
fn a_cluster_ends_when_its_process_is_killed() {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["child_has_a_cluster_until_it_is_killed", "--exact", "--nocapture"]);
    let mut child = child.env(CHILD, "1").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find_map(|line| Some(line.split_once("ready ")?.1.to_owned()));
    let said = said.expect("it has started a cluster");
    let (server, folder) = said.split_once(' ').unwrap();
    assert!(is_alive(server) && Path::new(folder).join("data").exists());

    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(server, Path::new(folder));
}

#[test]
fn child_has_a_cluster_until_it_is_killed() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    let cluster = Cluster::shared();
    println!("ready {} {}", server(cluster), cluster.socket_dir().display());
    loop {
        thread::park();
    }
}

/// The process of the server, as it says itself.
fn server(cluster: &Cluster) -> String {
    let file = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)";
    cluster.psql(file)
}

/// Nothing is left of it, at the latest when the server has had the time to end.
fn wait_until_gone(server: &str, folder: &Path) {
    let since = Instant::now();
    while is_alive(server) || folder.exists() {
        let waited = since.elapsed();
        assert!(waited < Duration::from_secs(30), "{server} in {} goes on", folder.display());
        thread::sleep(Duration::from_millis(20));
    }
}

fn is_alive(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}
