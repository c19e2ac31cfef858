//! Help, completions and manual pages: what is told of the commands themselves.

use std::{fs, process::Command};

use crate::shell::Shell;

#[test]
fn every_command_stands_on_one_page() {
    let mut shell = Shell::new();
    shell.run("windlass --help");
    shell.run("windlass help job");
    shell.run("windlass help queue limit");
    shell.run("windlass jbo");
    shell.finish("help");
}

/// Each shell that is here reads its own completions.
#[test]
fn shells_read_their_completions() {
    let shell = Shell::new();
    for (name, has) in
        [("bash", "complete -F"), ("zsh", "#compdef windlass"), ("fish", "complete -c windlass")]
    {
        let ran =
            shell.quiet(&format!("windlass completions {name} > {name}.txt && cat {name}.txt"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.contains(has) && ran.stdout.contains("backfill"), "{name}");
        if Command::new(name).arg("-c").arg("true").output().is_ok() {
            let read = shell.quiet(&format!("{name} -n {name}.txt"));
            assert_eq!(read.code, 0, "{name}: {}", read.stderr);
        }
    }
    // What bash offers after a few letters.
    let ask = "source bash.txt; COMP_WORDS=(windlass sched); COMP_CWORD=1; _windlass windlass sched windlass; echo ${COMPREPLY[*]}";
    fs::write(shell.folder().join("ask.sh"), ask).unwrap();
    let offered = shell.quiet("bash ask.sh");
    assert!(offered.stdout.contains("schedule"), "{}{}", offered.stdout, offered.stderr);
}

#[test]
fn each_command_has_a_manual_page() {
    let shell = Shell::new();
    let ran = shell.quiet("windlass man pages/man1");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for name in ["windlass", "windlass-job", "windlass-job-add", "windlass-schedule-backfill"] {
        let page = fs::read_to_string(shell.folder().join(format!("pages/man1/{name}.1")));
        let page = page.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(page.contains(".TH") && page.contains(".SH NAME"), "{page}");
    }
    fs::write(shell.folder().join("file"), "").unwrap();
    assert_eq!(shell.quiet("windlass man file/below").code, 1);
}
