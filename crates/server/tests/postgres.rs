//! The command line with a store on PostgreSQL: measured, looked at, and not copied.

use std::process::{Command, Output};

use windlass_testkit::postgres::Cluster;

fn windlass(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.env_remove("WINDLASS_STORE").env_remove("WINDLASS_OUTPUT");
    command.args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints text")
}

fn url(rest: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres{rest}", Cluster::shared().port())
}

#[test]
fn every_workload_is_measured_and_nothing_is_left_behind() {
    for workload in ["enqueue", "enqueue-bulk", "drain", "latency"] {
        let args =
            ["bench", workload, "--jobs", "40", "--runs", "2", "--store", &url(""), "-o", "json"];
        let run = windlass(&args);
        assert_eq!(run.status.code(), Some(0), "{workload}: {}", text(&run.stderr));
        let found: serde_json::Value = serde_json::from_slice(&run.stdout).expect("it prints JSON");
        let first = &found[0];
        assert_eq!((&first["workload"], &first["jobs"]), (&workload.into(), &40.into()));
        assert_eq!(first["store"], "postgres");
        for figure in ["jobs_per_s", "p50_ms", "commits", "bytes_per_job"] {
            assert!(first[figure].as_f64().is_some_and(|it| it > 0.0), "{workload}: {figure}");
        }
    }
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'windlass_bench%'";
    assert_eq!(Cluster::shared().psql(left), "0");
}

#[test]
fn the_doctor_reads_a_whole_store() {
    let store = url("?schema=examined");
    let run = windlass(&["doctor", "--deep", "--store", &store]);
    assert_eq!(run.status.code(), Some(1), "nothing is there yet: {}", text(&run.stdout));
    assert!(text(&run.stderr).contains("no store in this schema"), "{}", text(&run.stderr));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let options = windlass_store::postgres::Options::parse(&store).expect("it is a URL");
    let opened = runtime.block_on(windlass_store::postgres::Postgres::open(options));
    drop(opened.expect("it can be opened"));
    Cluster::shared().psql("SELECT examined.enqueue('mail')");
    let run = windlass(&["doctor", "--deep", "--store", &store]);
    assert_eq!(run.status.code(), Some(0), "{}{}", text(&run.stdout), text(&run.stderr));
    assert!(text(&run.stdout).ends_with("Every rule holds.\n"), "{}", text(&run.stdout));
    // Whatever somebody put there to run with each write is found, and so is what somebody changes by hand.
    let trigger = "CREATE FUNCTION examined.steal() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'";
    Cluster::shared().psql(trigger);
    let trigger = "CREATE TRIGGER steal BEFORE INSERT ON examined.jobs FOR EACH ROW EXECUTE FUNCTION examined.steal()";
    Cluster::shared().psql(trigger);
    let run = windlass(&["doctor", "--store", &store]);
    let said = text(&run.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(said.contains("what Windlass did not make: trigger steal on jobs"), "{said}");
    Cluster::shared().psql("DROP TRIGGER steal ON examined.jobs");
    Cluster::shared().psql("INSERT INTO examined.feed SELECT 7, 7, 1, now()");
    let run = windlass(&["doctor", "--deep", "--store", &store]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stdout));
}

#[test]
fn files_are_not_made_of_a_server() {
    let run = windlass(&["backup", "copy.db", "--store", &url("")]);
    assert_eq!(run.status.code(), Some(2), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("pg_dump"), "{}", text(&run.stderr));
}
