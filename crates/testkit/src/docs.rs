//! Pages that are written from the code, and compared with what is committed.
//!
//! `make bless` writes them anew; a test fails while a page and the code disagree.

use std::{env, fs, path::PathBuf};

use windlass_kernel::{
    Cause, Failure, Refusal, State,
    machine::{MOVES, NOTES, diagram},
    refusal::CodeInfo,
};

use crate::grid;

/// Compares a page under `docs/` with what the code says, or writes it if `WINDLASS_BLESS` is set.
///
/// # Panics
/// If they differ, or the page cannot be read.
pub fn compare_page(name: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if env::var_os("WINDLASS_BLESS").is_some() {
        fs::write(&path, expected).unwrap_or_else(|error| panic!("cannot write {name}: {error}"));
    }
    let found = fs::read_to_string(&path).unwrap_or_else(|error| panic!("docs/{name}: {error}"));
    let differs = found.lines().zip(expected.lines()).position(|(found, new)| found != new);
    if found != expected {
        let line = differs.unwrap_or_else(|| found.lines().count().min(expected.lines().count()));
        panic!("docs/{name} is out of date from line {}; run `make bless`", line + 1);
    }
}

/// The page on states: the diagram, every move, and what each op does in each state.
pub fn states_page() -> String {
    let mut page = String::from(
        "# States\n\nWritten from `crates/kernel/src/job/machine.rs` by a test; `make bless` renews it.\n\n\
         A job has one life cycle. Nothing leads out of an end, and nothing but these moves is legal: an\n\
         op that would need another one is refused with `INVALID_TRANSITION` and changes nothing.\n\n",
    );
    page.push_str(&format!("```mermaid\n{}```\n\n## The states\n\n", diagram()));
    page.push_str("| state | meaning |\n|---|---|\n");
    for state in State::ALL {
        page.push_str(&format!("| `{state}` | {} |\n", state.meaning()));
    }
    page.push_str("\n## The moves\n\n| from | cause | to | because |\n|---|---|---|---|\n");
    for step in MOVES {
        let from = step.from.map_or("new".to_owned(), |state| format!("`{state}`"));
        let because = step.cause.meaning();
        page.push_str(&format!("| {from} | `{}` | `{}` | {because} |\n", step.cause, step.to));
    }
    page.push_str("\nThese are only noted: the event says what happened, and the state stays.\n\n");
    page.push_str("| state | cause | because |\n|---|---|---|\n");
    for (state, cause) in NOTES {
        let because = Cause::meaning(*cause).trim_start_matches("Note: ");
        page.push_str(&format!("| `{state}` | `{cause}` | {because} |\n"));
    }
    page.push_str("\n## What each op does in each situation\n\n");
    page.push_str(&grid::markdown());
    page
}

/// The page on errors: each code with what to do next. `store` are the codes of the machinery, `http` those of the server.
pub fn errors_page(store: &[CodeInfo], http: &[CodeInfo]) -> String {
    let mut page = String::from(
        "# Errors\n\nWritten from `crates/kernel/src/refusal.rs`, `crates/kernel/src/failure.rs`,\n\
         `crates/store/src/error.rs` and `crates/server/src/http/core/problem.rs` by a test; `make bless` renews it.\n\
         `windlass explain CODE` says the same at the terminal.\n\n\
         ## Refusals\n\n\
         A refusal is a normal answer: the rules say no, and nothing changed. Contracts `tasks` and `jobs`\n\
         tell some of these in their own codes: see [contracts.md](contracts.md).\n\n",
    );
    page.push_str(&codes_table(Refusal::CODES));
    page.push_str(
        "\n## Failures\n\nAn execution did not succeed, or a job may not go on; it is kept with the job and its dead letter. \
         Handlers\nfail with codes of their own. These are the ones that Windlass gives.\n\n",
    );
    page.push_str(&codes_table(Failure::CODES));
    page.push_str(
        "\n## Errors of the store\n\nOur own machinery could not answer. What the code says tells what to do next.\n\n",
    );
    page.push_str(&codes_table(store));
    page.push_str(
        "\n## Problems of a call\n\nThe server could not even ask. Every answer that is not what was asked for is a problem \
         document, and its `code`\nis one of this page.\n\n",
    );
    page.push_str(&codes_table(http));
    page
}

fn codes_table(codes: &[CodeInfo]) -> String {
    let mut table = String::from(
        "| code | class | may succeed later | meaning | what to do |\n|---|---|---|---|---|\n",
    );
    for info in codes {
        let class = serde_json::to_string(&info.class).expect("a class is a word");
        let later = if info.retryable { "yes" } else { "no" };
        table.push_str(&format!(
            "| `{}` | {} | {later} | {} | {} |\n",
            info.code,
            class.trim_matches('"'),
            info.meaning,
            info.remedy
        ));
    }
    table
}
