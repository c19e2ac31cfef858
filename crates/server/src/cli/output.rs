//! Output: data goes to stdout, and a reader that has seen enough may leave.

use std::io::{self, Write as _};

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
