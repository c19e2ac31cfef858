//! Exit codes, the same on every command.

use std::process::ExitCode;

/// It did not go well.
pub(crate) const FAILED: u8 = 1;
/// The call itself is wrong.
pub(crate) const USAGE: u8 = 2;
/// There is no such thing.
pub(crate) const NOT_FOUND: u8 = 3;

/// Tells what went wrong and what to type next, on stderr.
pub(crate) fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("windlass: {message}");
    ExitCode::from(code)
}
