//! `windlass explain`: data on stdout, all else on stderr, and an exit code that says how it went.

use std::process::{Command, Output};

use windlass_kernel::{Failure, Refusal};

fn windlass(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass")).args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints text")
}

#[test]
fn a_word_that_is_nearly_right_is_suggested() {
    let run = windlass(&["explain", "runing"]);
    assert_eq!(run.status.code(), Some(3));
    assert_eq!(text(&run.stdout), "");
    let expected = "windlass: nothing in Windlass is called \"runing\".\nDid you mean running?\n";
    assert_eq!(text(&run.stderr), expected);
}

#[test]
fn a_word_that_is_far_off_leads_to_the_list() {
    let run = windlass(&["explain", "zzz"]);
    assert_eq!(run.status.code(), Some(3));
    assert!(text(&run.stderr).contains("Type `windlass explain` to list every word."));
}

#[test]
fn case_does_not_matter_and_every_meaning_is_shown() {
    let run = windlass(&["explain", "SCHEDULED"]);
    assert!(run.status.success());
    let lines: Vec<&str> = text(&run.stdout).lines().collect();
    assert!(lines.contains(&"scheduled (state): Created with a time in the future."));
    assert!(lines.contains(&"scheduled (cause): Created, due later."));
}

#[test]
fn the_list_names_every_word_once_for_each_sense() {
    let run = windlass(&["explain", "-o", "jsonl"]);
    assert!(run.status.success());
    let words: Vec<serde_json::Value> =
        text(&run.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes = [Refusal::CODES, Failure::CODES, windlass_store::Error::CODES];
    let codes = codes.into_iter().flatten().map(|info| info.code);
    for word in ["running", "lease_expired", "settle"].into_iter().chain(codes) {
        assert_eq!(words.iter().filter(|known| known["word"] == word).count(), 1, "{word}");
    }
}

#[test]
fn a_code_says_what_happened_and_what_to_do() {
    let run = windlass(&["explain", "handler_panicked"]);
    let expected = "HANDLER_PANICKED (error code): The handler panicked. Its worker goes on.\n  \
        What to do: The message is that of the panic. Mend the handler; a job that failed for good can be requeued \
        or run again.\n  Let it run again: windlass dlq requeue LETTER\n";
    assert_eq!(text(&run.stdout), expected);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let pipe = format!("{} explain | head -n 1", env!("CARGO_BIN_EXE_windlass"));
    let run = Command::new("sh").args(["-c", &pipe]).output().unwrap();
    assert_eq!(text(&run.stderr), "");
}

#[test]
fn a_command_that_does_not_exist_is_a_usage_error() {
    let run = windlass(&["explode"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("explain"), "{}", text(&run.stderr));
}
