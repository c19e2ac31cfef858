//! The whole terminal, for as long as this value lives. What was on it before is back afterwards.

use std::env;

use crate::cli::look::terminal;

/// A terminal that is ours.
pub(super) struct Screen(());

impl Screen {
    /// Takes it: another page, and no cursor.
    pub(super) fn open() -> Self {
        terminal::draw("\x1b[?1049h\x1b[?25l", &[], "", "");
        Self(())
    }

    /// Shows this, as far as there are lines for it. Nothing flickers: what is there is written over.
    pub(super) fn show(&self, text: &str) {
        let height = height();
        // Colours go where they are not wanted; what moves the cursor stays.
        let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let text = if is_plain { without_colours(text) } else { text.to_owned() };
        let mut lines: Vec<&str> = text.lines().collect();
        let more = lines.len().saturating_sub(height);
        let rest = format!("… and {} more lines", more + 1);
        if more > 0 {
            lines.truncate(height - 1);
            lines.push(&rest);
        }
        terminal::draw("\x1b[H", &lines, "\x1b[K\r\n", "\x1b[K\x1b[J");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        terminal::draw("\x1b[?25h\x1b[?1049l", &[], "", "");
    }
}

/// The text without what ends with `m` after an escape.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|it: char| !matches!(it, '0'..='9' | ';')).unwrap_or(part.len());
        match part[end..].strip_prefix('m') {
            Some(rest) => plain.push_str(rest),
            None => plain.push_str(&format!("\x1b[{part}")),
        }
    }
    plain
}

/// How many lines there are.
fn height() -> usize {
    let seen = terminal_size::terminal_size().map(|(_, height)| usize::from(height.0));
    seen.filter(|height| *height > 2).unwrap_or(24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_can_be_taken_out() {
        assert_eq!(without_colours("\x1b[Ha\x1b[1;31mred\x1b[0m\x1b[K"), "\x1b[Hared\x1b[K");
    }
}
