//! What a job carries and what came of it: JSON as it is, up to a bound, and the last error.

use windlass::wire::FailureDocument;

use crate::cli::{
    commands::explain,
    look::{
        json,
        progress::size,
        view::{BOLD, DIM},
    },
};

/// So much of a document is shown.
const SHOWN_BYTES: usize = 8 * 1024;

/// A document under its title, with its size. A number stays as it was sent.
pub(crate) fn block(title: &str, json: &str, job_id: &str) -> String {
    let mut cut = json.len().min(SHOWN_BYTES);
    while !json.is_char_boundary(cut) {
        cut -= 1;
    }
    let bytes = size(json.len() as u64);
    let mut text = format!("{BOLD}{title}{BOLD:#}  {DIM}{bytes}{DIM:#}\n");
    for line in json::laid_out(&json[..cut]).lines() {
        text.push_str(&format!("  {}\n", visible(line)));
    }
    if cut < json.len() {
        let rest = size((json.len() - cut) as u64);
        text.push_str(&format!(
            "  {DIM}… {rest} more: windlass job show {job_id} -o json{DIM:#}\n"
        ));
    }
    text
}

/// What went wrong, with what to do about it if it is one of our codes.
pub(crate) fn error(error: &FailureDocument) -> String {
    let again = if error.retryable { "may be tried again" } else { "trying again does not help" };
    let (code, class) = (&error.code, serde_json::json!(error.class));
    let class = class.as_str().unwrap_or_default();
    let mut text = format!("{BOLD}Last error{BOLD:#}  {code}  {DIM}{class}, {again}{DIM:#}\n");
    for line in error.message.lines().take(LINES) {
        text.push_str(&format!("  {}\n", visible(line)));
    }
    let more = error.message.lines().count().saturating_sub(LINES);
    if more > 0 {
        text.push_str(&format!("  {DIM}… {more} lines more{DIM:#}\n"));
    }
    if let Some(info) = explain::codes().find(|info| info.code == *code) {
        text.push_str(&format!("  {DIM}{}{DIM:#}\n", info.remedy));
    }
    text
}

/// How many lines of a message are shown.
const LINES: usize = 40;

/// A text that cannot move the cursor, nor change colours.
fn visible(line: &str) -> String {
    let mut text = String::new();
    for next in line.chars() {
        if next.is_control() {
            text.extend(next.escape_unicode());
        } else {
            text.push(next);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_document_is_cut_and_says_so() {
        let json = format!("[\"{}é\", 1]", "x".repeat(SHOWN_BYTES - 3));
        let text = block("Payload", &json, "job_1");
        assert!(text.contains("… 7 B more: windlass job show job_1 -o json"), "{text}");
    }

    #[test]
    fn a_document_cannot_command_the_terminal() {
        let text = block("Payload", "\"a\u{9b}31m\u{7f}\"", "job_1");
        assert!(text.contains("\"a\\u{9b}31m\\u{7f}\""), "{text}");
    }
}
