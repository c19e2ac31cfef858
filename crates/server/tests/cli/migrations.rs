//! `windlass migrate`.

use std::{fs, path::Path, process::Command};

use windlass_testkit::postgres::Cluster;

use crate::shell::Shell;

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/golden")
}

#[test]
fn a_file_is_brought_up_to_date() {
    let mut shell = Shell::new();
    shell.about("Nothing yet.");
    shell.run("windlass migrate status");
    shell.run("windlass migrate plan");
    shell.run("windlass migrate up");
    shell.run("windlass migrate status");
    shell.run("windlass migrate plan");
    shell.run("windlass migrate up");
    shell.about("A database that an older version made.");
    for ending in ["", "-mark"] {
        let from = golden().join(format!("v3.db{ending}"));
        fs::copy(from, shell.folder().join(format!("old.db{ending}"))).unwrap();
    }
    shell.run("windlass migrate status --store sqlite:old.db");
    shell.run("windlass migrate plan --store sqlite:old.db");
    shell.run("windlass migrate plan --store sqlite:old.db --show-sql | head -n 6");
    shell.about("It is not done by accident.");
    shell.run("windlass migrate up --store sqlite:old.db");
    shell.run("windlass migrate up --store sqlite:old.db --yes");
    shell.about("Everything is there, also what a worker held when it was last open.");
    shell.run("windlass doctor --deep --store sqlite:old.db | tail -n 1");
    shell.about("A narrow terminal.");
    shell.columns(44);
    shell.run("windlass migrate status");
    shell.columns(100);
    shell.about("For programs.");
    shell.run("windlass migrate status -o jsonl");
    shell.run("windlass migrate plan -o json");
    shell.finish("migrations");
}

#[test]
fn a_schema_of_a_server_is_brought_up_to_date() {
    let shell = Shell::new();
    let cluster = Cluster::shared();
    let store = |schema: &str| {
        let port = cluster.port();
        format!("--store 'postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}'")
    };
    let numbers = |line: &str| {
        let told =
            shell.quiet(&format!("windlass migrate {line} -o json {}", store("migrated"))).json();
        let steps = told["steps"].as_array().expect("a list").clone();
        (told["schema"].as_u64().expect("a number"), steps.len())
    };
    assert_eq!(numbers("plan"), (0, 11));
    assert_eq!(numbers("up"), (11, 11));
    assert_eq!(numbers("plan"), (11, 0));
    assert_eq!(numbers("status"), (11, 11));
    // One that an older version made.
    let file = golden().join("v3.postgres.sql");
    let sql = fs::read_to_string(file).unwrap();
    assert!(sql.contains("CREATE SCHEMA"), "it makes its own schema");
    let loaded = load(cluster, &sql);
    assert!(loaded.is_ok(), "{loaded:?}");
    let schema =
        sql.split("CREATE SCHEMA ").nth(1).and_then(|it| it.split([';', ' ']).next()).unwrap();
    let plan = shell.quiet(&format!("windlass migrate plan --show-sql {}", store(schema)));
    assert!(
        plan.stdout.contains("-- step 4") && !plan.stdout.contains("-- step 3"),
        "{}",
        plan.stdout
    );
    let up = shell.quiet(&format!("windlass migrate up {}", store(schema)));
    assert_eq!(up.code, 2, "nobody confirmed: {}", up.stderr);
    let up = shell.quiet(&format!("windlass migrate up --yes {}", store(schema)));
    assert_eq!(up.code, 0, "{}", up.stderr);
    let status = shell.quiet(&format!("windlass migrate status {}", store(schema)));
    assert!(status.stderr.contains("up to date"), "{}{}", status.stdout, status.stderr);
}

fn load(cluster: &Cluster, sql: &str) -> Result<(), String> {
    let port = cluster.port().to_string();
    let file = tempfile::NamedTempFile::new().map_err(|why| why.to_string())?;
    fs::write(file.path(), sql).map_err(|why| why.to_string())?;
    let mut psql = Command::new(cluster.bin().join("psql"));
    psql.args([
        "-h",
        "127.0.0.1",
        "-U",
        "postgres",
        "-p",
        &port,
        "-d",
        "postgres",
        "-v",
        "ON_ERROR_STOP=1",
        "-qf",
    ]);
    let ran = psql.arg(file.path()).output().map_err(|why| why.to_string())?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
    }
}
