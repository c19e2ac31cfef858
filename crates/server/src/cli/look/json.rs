//! JSON for people's eyes: laid out, and otherwise untouched.

/// JSON with a line for each member. Only white space is changed: a number stays as it was sent.
pub(crate) fn laid_out(json: &str) -> String {
    let (mut text, mut depth, mut in_string, mut escaped) = (String::new(), 0, false, false);
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
    };
    let mut rest = json.chars().peekable();
    while let Some(character) = rest.next() {
        if in_string {
            text.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match character {
            '{' | '[' => {
                text.push(character);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                if rest.peek().is_some_and(|next| matches!(next, '}' | ']')) {
                    text.extend(rest.next());
                } else {
                    depth += 1;
                    line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(character);
            }
            ',' => {
                text.push(character);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            _ if character.is_ascii_whitespace() => {}
            _ => {
                in_string = character == '"';
                text.push(character);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_as_it_was_sent() {
        let laid = laid_out("{\"a\":[1.50, { }, 12345678901234567890123],\"b\":\"{,\\\"\"}");
        let expected = "{\n  \"a\": [\n    1.50,\n    {},\n    12345678901234567890123\n  ],\n  \"b\": \"{,\\\"\"\n}";
        assert_eq!(laid, expected);
    }
}
