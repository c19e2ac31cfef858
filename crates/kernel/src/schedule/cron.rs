//! Cron expressions: which times of a wall clock fit.
//!
//! The parser and the search are croner's. What a change of clocks does is not its to say: it is asked about a wall
//! clock that never changes, and `slots` finds the instants. Of its own accord it would take `30 1,13 * * *` for an
//! interval, and run it twice when 01:30 is shown twice.

use croner::{Cron as Pattern, parser::CronParser};
use jiff::civil::DateTime;

use crate::Refusal;

/// An expression that was understood.
#[derive(Debug)]
pub(super) struct Cron {
    pattern: Pattern,
    /// Does it run at every real slot, rather than once at each of its times?
    pub(super) is_interval: bool,
}

/// What each nickname stands for.
const NICKNAMES: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const FIELDS: [&str; 6] =
    ["seconds", "minutes", "hours", "the day of the month", "the month", "the day of the week"];

impl Cron {
    /// The longest expression, in bytes.
    const BYTES_MAX: usize = 200;

    /// Reads an expression. If it cannot be, the refusal names the field.
    pub(super) fn parse(expression: &str) -> Result<Self, Refusal> {
        if expression.len() > Self::BYTES_MAX {
            return Err(refused(format!("must be at most {} bytes long", Self::BYTES_MAX)));
        }
        let fields = fields(expression)?;
        let pattern = CronParser::new().parse(&fields.join(" "));
        let pattern = pattern.map_err(|why| refused(wrong_field(&fields, &why.to_string())))?;
        let is_interval = fields[..3].iter().any(|field| field.contains('*'));
        Ok(Self { pattern, is_interval })
    }

    /// Refuses an expression that fits no day.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        // In eight years every day of every month has come, 29 February included, wherever one begins.
        let start = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        match self.next_from(start) {
            Some(first) if first.year() < 2100 => Ok(()),
            _ => Err(refused("never fires: no day of any year fits".to_owned())),
        }
    }

    /// The first time at or after this one that fits, on a wall clock that never changes.
    pub(super) fn next_from(&self, from: DateTime) -> Option<DateTime> {
        self.pattern.find_next_occurrence(&from, true).ok()
    }
}

/// The six fields of an expression.
fn fields(expression: &str) -> Result<Vec<&str>, Refusal> {
    let trimmed = expression.trim();
    let text = match trimmed.strip_prefix('@') {
        None => trimmed,
        Some(_) => {
            let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(trimmed));
            let names: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
            let unknown = || refused(format!("{trimmed:?} is none of {}", names.join(", ")));
            known.ok_or_else(unknown)?.1
        }
    };
    let mut fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() == 5 {
        fields.insert(0, "0");
    }
    if fields.len() != 6 {
        let found = text.split_whitespace().count();
        return Err(refused(format!(
            "must have five fields (minute, hour, day of the month, month, day of the week), or six with \
             seconds first; it has {found}"
        )));
    }
    Ok(fields)
}

/// Which field cannot be, and why. Each is tried alone.
fn wrong_field(fields: &[&str], why: &str) -> String {
    for (place, name) in FIELDS.iter().enumerate() {
        let (mut alone, field) = (["*"; 6], fields[place]);
        alone[place] = field;
        if let Err(why) = CronParser::new().parse(&alone.join(" ")) {
            return format!("has {field:?} for {name}, which cannot be: {why}");
        }
    }
    format!("cannot be understood: {why}")
}

fn refused(why: String) -> Refusal {
    Refusal::invalid("cron", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(expression: &str) -> String {
        let parsed = Cron::parse(expression).and_then(|cron| cron.check());
        parsed.expect_err(expression).to_string()
    }

    #[test]
    fn an_expression_that_cannot_be_is_refused_and_its_field_is_named() {
        assert!(why("61 * * * *").starts_with("cron has \"61\" for minutes, which cannot be"));
        assert!(why("0 24 * * *").contains("\"24\" for hours"));
        assert!(why("0 0 32 * *").contains("for the day of the month"));
        assert!(why("0 0 * 13 *").contains("\"13\" for the month"));
        assert!(why("0 0 * * MOO").contains("\"MOO\" for the day of the week"));
        assert!(why("60 0 0 * * *").contains("\"60\" for seconds"));
        assert!(why("* * * *").ends_with("it has 4"));
        assert!(why("0 0 0 1 1 * 2030").ends_with("it has 7"));
        assert!(why("").ends_with("it has 0"));
        assert!(why("@reboot").starts_with("cron \"@reboot\" is none of @hourly, @daily"));
        assert!(why(&format!("{} * * * *", "1,".repeat(200))).contains("at most 200 bytes"));
        assert!(why("*/0 * * * *").contains("for minutes"));
    }

    #[test]
    fn what_never_fires_is_refused() {
        for never in ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            assert_eq!(why(never), "cron never fires: no day of any year fits", "{never}");
        }
        Cron::parse("0 0 29 2 *").unwrap().check().expect("it fires in some years");
    }

    #[test]
    fn nicknames_are_expressions_and_the_hourly_one_is_an_interval() {
        for (name, _) in NICKNAMES {
            let cron = Cron::parse(name).expect(name);
            assert_eq!(cron.is_interval, *name == "@hourly", "{name}");
        }
        assert!(Cron::parse(" @Daily ").is_ok());
        for (expression, is_interval) in [
            ("30 2 * * *", false),
            ("0,30 1-3 * * *", false),
            ("*/15 2 * * *", true),
            ("0 */2 * * *", true),
            ("* 0 0 * * *", true),
            ("5 0 0 * * 1-5", false),
        ] {
            assert_eq!(Cron::parse(expression).expect(expression).is_interval, is_interval);
        }
    }
}
