//! The one way to the terminal: everything that the command line prints goes through here.
//!
//! Never true here: that text of somebody else moves the cursor, changes the title or the colours, or turns the order
//! of what is read. A character that is not plain is written out, such as `\u001b`, which is what JSON has for it, too.
//! The colours of our own are let through, and what callers of the API have said is written out as soon as it is read
//! ([`for_people`]), so that it has no colours either.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write as _},
};

use windlass_kernel::plain::is_plain;

/// Prints data. Whoever closes the pipe early (`| head`) has what they want: that is no error.
pub(crate) fn print(text: &str) {
    let mut stdout = anstream::stdout().lock();
    let printed = stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush());
    if let Err(error) = printed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        say(&format!("windlass: cannot write the result: {error}"));
    }
}

/// Says something that is no data, in lines of its own.
pub(crate) fn say(text: &str) {
    anstream::eprintln!("{}", printable(text));
}

/// Asks something, in a line that goes on.
pub(crate) fn ask(question: &str) {
    anstream::eprint!("{}", printable(question));
    let _ = io::stderr().flush();
}

/// Draws a frame: what moves the cursor stands before, after each line, and at the end. Nobody minds if a terminal is
/// gone.
pub(crate) fn draw(before: &str, lines: &[&str], between: &str, end: &str) {
    let lines: Vec<_> = lines.iter().map(|line| printable(line)).collect();
    let frame = format!("{before}{}{end}", lines.join(between));
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(frame.as_bytes()).and_then(|()| stdout.flush());
}

/// The text with everything written out that is neither plain, nor the end of a line, nor a colour.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_kept = |each: char| is_plain(each) || each == '\n' || each == '\t';
    if text.chars().all(is_kept) {
        return text.into();
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(each) = rest.chars().next() {
        let length = colour(rest).unwrap_or(each.len_utf8());
        if length > each.len_utf8() || is_kept(each) {
            shown.push_str(&rest[..length]);
        } else {
            write_out(&mut shown, each);
        }
        rest = &rest[length..];
    }
    shown.into()
}

/// How long the sequence is that the text begins with, if it says how the following looks.
fn colour(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("\x1b[")?;
    let end = inside.find(|each: char| !each.is_ascii_digit() && each != ';')?;
    inside[end..].starts_with('m').then_some("\x1b[".len() + end + 1)
}

fn write_out(text: &mut String, each: char) {
    let _ = write!(text, "\\u{:04x}", u32::from(each));
}

/// JSON whose text can be shown when it is read: what is not plain in it is written out, but for ends of lines and tabs.
pub(crate) fn for_people(json: &str) -> Cow<'_, str> {
    if !json.contains('\\') && json.chars().all(|each| is_plain(each) || each == '\n') {
        return json.into();
    }
    let (mut text, mut rest) = (String::with_capacity(json.len() + 16), json);
    while let Some(each) = rest.chars().next() {
        let length = match (each, rest.as_bytes().get(1)) {
            ('\\', Some(b'u')) => 6.min(rest.len()),
            ('\\', Some(_)) => 2,
            _ => each.len_utf8(),
        };
        let Some(part) = rest.get(..length) else { break };
        match part {
            "\\b" | "\\f" | "\\r" => text.extend(["\\", part]),
            _ if length == 6 && is_odd(part) => text.extend(["\\", part]),
            "\n" | "\t" | "\r" => text.push_str(part),
            _ if part.len() == each.len_utf8() && !is_plain(each) => {
                text.push('\\');
                write_out(&mut text, each);
            }
            _ => text.push_str(part),
        }
        rest = &rest[length..];
    }
    (text + rest).into()
}

/// Is it an escape such as `\u001b`, of a character that is not plain?
fn is_odd(escape: &str) -> bool {
    let code = escape.get(2..).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let each = code.and_then(char::from_u32);
    each.is_some_and(|each| !is_plain(each) && each != '\n' && each != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_written_out() {
        let odd = "\u{1b}]0;PWNED\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r\u{2028}";
        let shown = printable(odd);
        assert_eq!(shown, "\\u001b]0;PWNED\\u0007\\u001b[2J\\u009b31m\\u202e\\u000d\\u2028");
        assert_eq!(printable("\u{1b}[1;31mred\u{1b}[0m\n"), "\u{1b}[1;31mred\u{1b}[0m\n");
        assert_eq!(printable("\u{1b}"), "\\u001b");
        assert_eq!(printable("a ✓ é\tb\n"), "a ✓ é\tb\n");
    }

    #[test]
    fn what_callers_said_has_no_colours_when_it_is_read() {
        for said in
            ["\u{1b}[31mRED", "\u{202e}x", "a\u{9b}b", "\u{8}\u{c}\r", "back\\slash \"é\" ✓"]
        {
            let json = serde_json::to_string(said).unwrap();
            let read: String = serde_json::from_str(&for_people(&json)).unwrap();
            assert!(read.chars().all(is_plain), "{read:?}");
            let raw = format!("\"{}\"", said.replace('\\', "").replace(['"', '\u{1b}'], ""));
            if let Ok(kept) = serde_json::from_str::<String>(&for_people(&raw)) {
                assert!(kept.chars().all(is_plain), "{kept:?}");
            }
        }
        let usual = "{\"a\": \"x\\ny\\t\\\\u001b\\u00e9\\ud83d\\ude00\", \"n\": 1.50}";
        assert_eq!(for_people(usual), usual);
        let read: String = serde_json::from_str(&for_people("\"\\u001b[0m\"")).unwrap();
        assert_eq!(read, "\\u001b[0m");
    }
}
