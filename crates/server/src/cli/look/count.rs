//! Counts as people read them.

/// A count with a comma for each thousand.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        for (count, text) in [(0, "0"), (999, "999"), (3_210, "3,210"), (1_000_000, "1,000,000")] {
            assert_eq!(grouped(count), text);
        }
    }
}
