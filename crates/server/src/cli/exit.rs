//! Exit codes, the same on every command.

use std::{error::Error, process::ExitCode};

use super::look::terminal;

/// It did not go well.
pub(crate) const FAILED: u8 = 1;
/// The call itself is wrong.
pub(crate) const USAGE: u8 = 2;
/// There is no such thing.
pub(crate) const NOT_FOUND: u8 = 3;
/// Something is in the way.
pub(crate) const CONFLICT: u8 = 4;
/// Nobody answers, or not in time.
pub(crate) const UNREACHABLE: u8 = 5;
/// Whoever calls may not do it.
pub(crate) const DENIED: u8 = 6;
/// The job that was waited for did not succeed.
pub(crate) const AWAITED_FAILED: u8 = 10;
/// The person stopped it: 128 and the number of the signal, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Tells what went wrong and what to type next, on stderr.
pub(crate) fn fail(code: u8, message: &str) -> ExitCode {
    terminal::say(&format!("windlass: {message}"));
    ExitCode::from(code)
}

/// The error with its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
