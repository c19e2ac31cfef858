//! Output: data goes to stdout, and a reader that has seen enough may leave.

use std::io::{self, Write as _};

use serde::Serialize;

use super::Output;

/// Prints a result: the text for people, or the value for programs.
pub(crate) fn show(format: Output, text: &str, value: &impl Serialize) {
    let expected = "results are plain data";
    match format {
        Output::Table => print(text),
        Output::Json => print(&(serde_json::to_string_pretty(value).expect(expected) + "\n")),
        Output::Jsonl => print(&(serde_json::to_string(value).expect(expected) + "\n")),
    }
}

/// Prints a text. Whoever closes the pipe early (`| head`) has what they want: that is no error.
pub(crate) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if let Err(error) = printed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("windlass: cannot write the result: {error}");
    }
}
