//! Output: data goes to stdout, and a reader that has seen enough may leave.

use serde::Serialize;

use crate::cli::Output;
pub(crate) use crate::cli::look::terminal::print;

/// Prints a result: the text for people, or the value for programs.
pub(crate) fn show(format: Output, text: &str, value: &impl Serialize) {
    let expected = "results are plain data";
    match format {
        Output::Table => print(text),
        Output::Json => print(&(serde_json::to_string_pretty(value).expect(expected) + "\n")),
        Output::Jsonl => print(&(serde_json::to_string(value).expect(expected) + "\n")),
    }
}
