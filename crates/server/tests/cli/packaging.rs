//! What the files in `packaging/` name is there, and the line of the unit starts a server.

use std::{fs, path::Path, process::Command};

use crate::{config::Logged, serving::until, shell::Shell};

fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// The value of a line of the unit.
fn line(unit: &str, name: &str) -> String {
    let found = unit.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    found.unwrap_or_else(|| panic!("the unit has no {name}")).to_owned()
}

#[test]
fn the_line_of_the_unit_starts_a_server_that_reloads() {
    let unit = packaged("windlass.service");
    let shell = Shell::new();
    let folder = shell.folder().display().to_string();
    let ran = shell.quiet("windlass config init windlass.toml");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let start = line(&unit, "ExecStart");
    let own = start.replace("/etc/windlass", &folder).replace("/var/lib/windlass", &folder);
    let mut words = own.split(' ').skip(1);
    assert_eq!(words.next(), Some("serve"));
    let server = Logged::start(shell.folder(), &words.collect::<Vec<_>>());
    assert!(shell.folder().join("windlass.db").is_file(), "the store is where the unit says");
    assert_eq!(line(&unit, "ExecReload"), "/bin/kill -HUP $MAINPID");
    server.hang_up();
    let log = || fs::read_to_string(shell.folder().join("log")).unwrap_or_default();
    until("the reload", || log().contains("the config was read again"));
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("windlass.service");
    fs::write(&file, packaged("windlass.service").replace("/usr/local/bin/windlass", "/bin/true"))
        .unwrap();
    let ran =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !said.contains("Unknown"), "{said}");
}

#[test]
fn the_container_names_what_is_there() {
    let file = packaged("Containerfile");
    let shell = Shell::new();
    let help = shell.quiet("windlass serve --help").stdout;
    for variable in file.split([' ', '\n']).filter(|word| word.starts_with("WINDLASS_")) {
        let (name, _) = variable.split_once('=').expect("it has a value");
        let is_known = help.contains(&format!("[env: {name}")) || name == "WINDLASS_LOG_FORMAT";
        assert!(is_known, "{name} is no variable of the server");
    }
    let commands = file.lines().filter_map(|line| line.split_once("CMD [")).map(|it| it.1);
    let words = commands.map(|rest| rest.trim_end_matches(']').replace(['"', ','], ""));
    let words: Vec<String> = words.collect();
    assert_eq!(words, ["windlass doctor", "serve"]);
    for command in &words {
        let command = command.trim_start_matches("windlass ");
        let ran = shell.quiet(&format!("windlass {command} --help"));
        assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
    }
    // Everything that is copied is there, and the image is no older than the toolchain.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for line in file.lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from")) {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        for from in &words[..words.len() - 1] {
            assert!(root.join(from).exists(), "{from}");
        }
    }
    let toolchain = fs::read_to_string(root.join("rust-toolchain.toml")).unwrap();
    let image = file.split("FROM rust:").nth(1).and_then(|rest| rest.split('-').next()).unwrap();
    assert!(toolchain.contains(&format!("channel = \"{image}")), "{toolchain}");
}

/// Every `windlass` command of the page can be typed.
#[test]
fn the_page_names_commands_that_are_there() {
    let shell = Shell::new();
    let page = packaged("README.md");
    let typed = page.lines().filter_map(|line| line.strip_prefix("windlass "));
    let mut count = 0;
    for line in typed
        .chain(page.lines().filter_map(|line| line.split_once("/data windlass ").map(|it| it.1)))
    {
        let line = line.split(" && ").next().expect("there is a first part");
        let line = line.replace("/etc/windlass", &shell.folder().display().to_string());
        let ran = shell.quiet(&format!("windlass {line}"));
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
        count += 1;
    }
    assert_eq!(count, 2);
}
