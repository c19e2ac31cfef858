//! The README shows what the binary really prints.

use std::{fs, path::Path, process::Command};

/// Each `$ cargo run …` of the README, with the lines that it shows below.
fn shown() -> Vec<(String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).expect("the README is there");
    let blocks = text.split("```").filter_map(|block| block.strip_prefix("console\n"));
    let mut shown: Vec<(String, Vec<String>)> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match line.strip_prefix("$ cargo run --release -- ") {
            Some(args) => shown.push((args.to_owned(), Vec::new())),
            None if line.is_empty() => {}
            None => shown.last_mut().expect("a command comes first").1.push(line.to_owned()),
        }
    }
    shown
}

#[test]
fn the_readme_shows_what_the_binary_prints() {
    let shown = shown();
    assert!(!shown.is_empty(), "the README shows no command");
    for (args, expected) in shown {
        let run =
            Command::new(env!("CARGO_BIN_EXE_windlass")).args(args.split(' ')).output().unwrap();
        assert!(run.status.success(), "windlass {args} failed");
        let printed = String::from_utf8(run.stdout).unwrap();
        assert_eq!(printed.lines().collect::<Vec<_>>(), expected, "windlass {args}");
    }
}
