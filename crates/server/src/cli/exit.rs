//! Exit codes, the same on every command.

use std::process::ExitCode;

/// There is no such thing.
pub(crate) const NOT_FOUND: u8 = 3;

/// Tells what went wrong and what to type next, on stderr.
pub(crate) fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("windlass: {message}");
    ExitCode::from(code)
}
