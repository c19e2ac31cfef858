//! Text that shows what it is: no control characters, no marks that reorder what is written, no hidden ends of lines.
//!
//! A name with such characters can pass for another one, on a terminal, in a log or in a list. New names are refused
//! here. Names that are stored already are read as they are, and whoever shows text shows it with [`shown`].

use std::borrow::Cow;

use crate::Refusal;

/// May the character stand in text as it is? Controls, marks of writing direction, and the separators of lines and
/// paragraphs may not.
pub fn is_plain(each: char) -> bool {
    !each.is_control()
        && !matches!(
            each,
            '\u{61C}'
                | '\u{200E}'
                | '\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2066}'..='\u{2069}'
                | '\u{FEFF}'
        )
}

/// Refuses a name that a caller gave to something new, if it does not show what it is.
pub fn check_plain(field: &'static str, name: &str) -> Result<(), Refusal> {
    if name.chars().all(is_plain) {
        return Ok(());
    }
    let why = "must not contain marks of writing direction or separators of lines and paragraphs";
    Err(Refusal::invalid(field, why))
}

/// The text with every character that is not plain written out, such as `\u{202e}`. Ends of lines and tabs are, too.
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for each in text.chars() {
        match is_plain(each) {
            true => shown.push(each),
            false => shown.extend(each.escape_default()),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_plain_is_written_out_and_refused_in_names() {
        let odd = ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{2028}', '\u{200f}'];
        for each in odd {
            let text = format!("a{each}b");
            assert!(check_plain("kind", &text).is_err(), "{each:?}");
            assert!(shown(&text).chars().all(is_plain), "{each:?}");
        }
        for text in ["mail", "Grüße, 世界 🎉", "a\u{300}", "עברית", "x\u{200d}y"] {
            assert!(check_plain("kind", text).is_ok(), "{text}");
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
    }
}
