//! A part of the screen that is drawn again and again. Off a terminal, what changed is printed below what was there.

use std::{
    env,
    io::{self, IsTerminal as _},
};

use anstream::{AutoStream, ColorChoice, adapter::strip_str};

use crate::cli::look::terminal::{self, print};

/// What is drawn in one place.
#[derive(Default)]
pub(crate) struct Screen {
    last: String,
}

impl Screen {
    /// Draws the text in the place of the one before.
    pub(crate) fn draw(&mut self, text: &str) {
        if text == self.last {
            return;
        }
        if io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb") {
            let text = cut(text, height());
            let up = self.last.lines().count();
            // The whole frame at once, so that it does not flicker: up, over what is there, and away with the rest.
            let back = if up > 0 { format!("\x1b[{up}A\r") } else { String::new() };
            let lines: Vec<&str> = text.lines().collect();
            let end = if lines.is_empty() { "\x1b[J" } else { "\x1b[K\n\x1b[J" };
            // Past what takes colours away: whoever wants none wants the cursor to move all the same.
            terminal::draw(&back, &lines, "\x1b[K\n", end);
            self.last = text;
        } else {
            let between = if self.last.is_empty() { "" } else { "\n" };
            print(&format!("{between}{text}"));
            self.last = text.to_owned();
        }
    }
}

/// As many lines as there is room for: what has left the screen could not be drawn again.
fn cut(text: &str, height: usize) -> String {
    let is_plain = AutoStream::choice(&io::stdout()) == ColorChoice::Never;
    let text = if is_plain { strip_str(text).to_string() } else { text.to_owned() };
    text.lines().take(height.saturating_sub(1).max(1)).map(|line| format!("{line}\n")).collect()
}

fn height() -> usize {
    terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_no_higher_than_the_screen() {
        assert_eq!(cut("a\nb\nc\n", 3), "a\nb\n");
        assert_eq!(cut("a\nb\n", 1), "a\n");
        assert_eq!(cut("", 24), "");
    }
}
