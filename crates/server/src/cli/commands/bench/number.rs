//! Numbers as people type them: `1000000` or `1_000_000`, within bounds.

use std::ops::RangeInclusive;

/// Reads a whole number inside these bounds.
pub(super) fn within(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = parse(text).ok_or("a whole number is wanted, such as 5000 or 1_000_000")?;
        if bounds.contains(&number) {
            Ok(number)
        } else {
            Err(format!("it must lie between {} and {}", bounds.start(), bounds.end()))
        }
    }
}

/// Underscores may stand between digits, wherever they help the eye.
fn parse(text: &str) -> Option<u64> {
    let groups = || text.split('_');
    let is_plain = groups().all(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()));
    if is_plain { groups().collect::<String>().parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_stand_between_digits() {
        for (text, expected) in [
            ("7", Some(7)),
            ("1_000_000", Some(1_000_000)),
            ("007", Some(7)),
            ("", None),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1,000", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_the_bounds() {
        let number = within(1..=10);
        assert_eq!((number("1"), number("10")), (Ok(1), Ok(10)));
        for text in ["0", "11"] {
            assert_eq!(number(text), Err("it must lie between 1 and 10".to_owned()), "{text}");
        }
    }
}
