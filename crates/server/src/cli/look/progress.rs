//! A progress bar for people: on stderr, and only if somebody looks at it.

use std::env;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use windlass_store::sqlite::Copied;

/// A bar that is written like this. When the last clone goes, nothing is left on the screen.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let target = if is_plain() {
        ProgressDrawTarget::hidden()
    } else {
        // It hides itself where there is no terminal.
        ProgressDrawTarget::stderr()
    };
    let style = ProgressStyle::with_template(template)
        .expect("the template is well-formed")
        .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(0), target).with_style(style)
}

/// Does the person, or the terminal, want plain text only?
fn is_plain() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("NO_COLOR") || env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// A bar for a copy.
pub(crate) fn copy_bar() -> ProgressBar {
    bar("[{bar:40}] {percent:>3}%  {decimal_bytes} of {decimal_total_bytes}")
}

/// Shows how far a copy came.
pub(crate) fn show(bar: &ProgressBar, copied: Copied) {
    bar.set_length(copied.of);
    bar.set_position(copied.bytes);
}

/// A size as people write it.
pub(crate) fn size(bytes: u64) -> String {
    let mut tenths = bytes.saturating_mul(10);
    for unit in ["B", "kB", "MB", "GB"] {
        if tenths < 10_000 {
            let (whole, rest) = (tenths / 10, tenths % 10);
            return if unit == "B" {
                format!("{whole} B")
            } else {
                format!("{whole}.{rest} {unit}")
            };
        }
        tenths /= 1000;
    }
    format!("{}.{} TB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (1_250_000, "1.2 MB"),
            (9_999_999_999, "9.9 GB"),
            (12_300_000_000_000, "12.3 TB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
