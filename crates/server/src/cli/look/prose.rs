//! Sentences on lines that are no longer than the terminal is wide.
//!
//! On a pipe a line is as long as it likes.

use unicode_width::UnicodeWidthStr as _;

use crate::cli::look::view::DIM;

/// Less room than this is not worth a line: then the terminal breaks it where it likes.
const LEAST: usize = 20;

/// The text, broken between words. Its first line begins at column `indent`, and so do those below.
pub(crate) fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(LEAST);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.width() + 1 + word.width() > room {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// Commands to type, each with what it does: beside it, or below where there is no room. A command stays on one line.
pub(crate) fn commands(commands: &[(String, &str)], width: usize) -> String {
    let wide = commands.iter().map(|(command, _)| command.width()).max().unwrap_or(0);
    let fits = |(_, what): &(String, &str)| 2 + wide + 2 + what.width() <= width;
    let has_room = commands.iter().all(fits);
    let line = |(command, what): &(String, &str)| match has_room {
        true => format!("  {command:<wide$}  {DIM}{what}{DIM:#}\n"),
        false => format!("  {command}\n    {DIM}{what}{DIM:#}\n"),
    };
    commands.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let text = "one word after another, and then a-word-that-does-not-fit.";
        let expected = "one word after another,\n  and then\n  a-word-that-does-not-fit.";
        assert_eq!(wrapped(text, 2, 26), expected);
        assert_eq!(wrapped(text, 2, usize::MAX), text);
        assert_eq!(wrapped("a b", 30, 10), "a b", "there is always a little room");
    }

    #[test]
    fn what_a_command_does_stands_beside_it_or_below() {
        let some = [("windlass a".to_owned(), "do a"), ("windlass bb".to_owned(), "do b")];
        let plain = |width| anstream::adapter::strip_str(&commands(&some, width)).to_string();
        assert_eq!(plain(19), "  windlass a   do a\n  windlass bb  do b\n");
        assert_eq!(plain(18), "  windlass a\n    do a\n  windlass bb\n    do b\n");
    }
}
