//! The arguments of a command: what the config fixes, and the places that a job can fill.
//!
//! A place is a whole argument, so what is put there stays one argument, whatever is in it. There is no shell.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

/// One argument in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Fixed(String),
    /// `{name}`, or `{-name}` if its value may begin with a dash.
    Place {
        name: String,
        may_dash: bool,
    },
    /// `{*}` or `{-*}`: all values of a list, each an argument.
    Rest {
        may_dash: bool,
    },
}

/// The arguments of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

impl Template {
    /// The longest value of a place.
    const VALUE_BYTES_MAX: usize = 64 * 1024;
    /// The most values of a list.
    const VALUES_MAX: usize = 1_000;

    /// Reads the arguments of the config.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let parts: Vec<Part> = args.iter().map(|arg| part(arg)).collect::<Result<_, _>>()?;
        if parts.iter().filter(|part| matches!(part, Part::Rest { .. })).count() > 1 {
            return Err("{*} stands for all values, so it can be there once".to_owned());
        }
        Ok(Self { parts })
    }

    /// The arguments with the values of a job, or why they cannot be used.
    pub(crate) fn fill(&self, values: Option<&RawValue>) -> Result<Vec<String>, String> {
        let values = Values::parse(values)?;
        let mut used = BTreeSet::new();
        let mut filled = Vec::new();
        for part in &self.parts {
            match part {
                Part::Fixed(text) => filled.push(text.clone()),
                Part::Place { name, may_dash } => {
                    let value = values.0.get(name);
                    let value = value.ok_or_else(|| format!("args: {name} is missing"))?;
                    filled.push(checked(name, value, *may_dash)?);
                    used.insert(name.as_str());
                }
                Part::Rest { may_dash } => {
                    let named = |name: &str| {
                        self.parts.iter().any(
                            |part| matches!(part, Part::Place { name: place, .. } if place == name),
                        )
                    };
                    for index in 1..=values.0.len() {
                        let name = index.to_string();
                        let Some((name, value)) = values.0.get_key_value(&name) else { break };
                        if !named(name) {
                            filled.push(checked(name, value, *may_dash)?);
                            used.insert(name);
                        }
                    }
                }
            }
        }
        match values.0.keys().find(|name| !used.contains(name.as_str())) {
            Some(name) => Err(format!("args: the command has no place for {name}")),
            None => Ok(filled),
        }
    }
}

fn part(arg: &str) -> Result<Part, String> {
    let no_zero = "an argument has no zero byte";
    if arg.contains('\0') {
        return Err(no_zero.to_owned());
    }
    let is_name = |name: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !name.is_empty() && name.bytes().all(fits)
    };
    let is_place = |text: &str| {
        let name = text.strip_prefix('-').unwrap_or(text);
        name == "*" || is_name(name)
    };
    let whole = arg.strip_prefix('{').and_then(|arg| arg.strip_suffix('}'));
    if let Some(place) = whole.filter(|place| is_place(place)) {
        let (name, may_dash) = match place.strip_prefix('-') {
            Some(name) => (name, true),
            None => (place, false),
        };
        return Ok(match name {
            "*" => Part::Rest { may_dash },
            name => Part::Place { name: name.to_owned(), may_dash },
        });
    }
    // One that looks like a place and is none would be passed on as it stands, and nobody would know.
    let inner = arg.split('{').skip(1).filter_map(|after| after.split_once('}'));
    if let Some((place, _)) = inner.into_iter().find(|(place, _)| is_place(place)) {
        return Err(format!(
            "{{{place}}} in {arg:?} must be an argument of its own, such as \"--level\", \"{{{place}}}\""
        ));
    }
    Ok(Part::Fixed(arg.to_owned()))
}

fn checked(name: &str, value: &str, may_dash: bool) -> Result<String, String> {
    if value.contains('\0') {
        return Err(format!("args: {name} has a zero byte"));
    }
    if value.len() > Template::VALUE_BYTES_MAX {
        return Err(format!("args: {name} is longer than {} bytes", Template::VALUE_BYTES_MAX));
    }
    if value.starts_with('-') && !may_dash {
        return Err(format!("args: {name} begins with a dash, so it could be taken for an option"));
    }
    Ok(value.to_owned())
}

/// The values of a job, by name. Those of a list are called 1, 2, 3.
struct Values(BTreeMap<String, String>);

impl Values {
    fn parse(args: Option<&RawValue>) -> Result<Self, String> {
        let Some(text) = args.map(RawValue::get).filter(|text| *text != "null") else {
            return Ok(Self(BTreeMap::new()));
        };
        let unfit = || "args: it is an object or a list".to_owned();
        let named: Vec<(String, Box<RawValue>)> = match text.as_bytes().first() {
            Some(b'[') => {
                let list: Vec<Box<RawValue>> = serde_json::from_str(text).map_err(|_| unfit())?;
                let names = (1..).map(|index: usize| index.to_string());
                names.zip(list).collect()
            }
            Some(b'{') => {
                let map: BTreeMap<_, _> = serde_json::from_str(text).map_err(|_| unfit())?;
                map.into_iter().collect()
            }
            _ => return Err(unfit()),
        };
        if named.len() > Template::VALUES_MAX {
            return Err(format!("args: more than {} values", Template::VALUES_MAX));
        }
        let values = named.into_iter().map(|(name, value)| Ok((text_of(&name, &value)?, name)));
        let values: Vec<_> = values.collect::<Result<_, String>>()?;
        Ok(Self(values.into_iter().map(|(value, name)| (name, value)).collect()))
    }
}

/// A value as an argument: a number is never rounded.
fn text_of(name: &str, value: &RawValue) -> Result<String, String> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text).map_err(|error| format!("args: {name}: {error}")),
        Some(b'{' | b'[') | None => {
            Err(format!("args: {name} is neither a text nor a number nor true or false"))
        }
        Some(_) if text == "null" => Err(format!("args: {name} is null")),
        Some(_) => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(args: &[&str], values: &str) -> Result<Vec<String>, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let values = RawValue::from_string(values.to_owned()).unwrap();
        Template::parse(&args)?.fill(Some(&values))
    }

    #[test]
    fn what_would_break_out_of_a_shell_stays_one_argument() {
        let nasty = [
            "; rm -rf /",
            "$(id)",
            "`id`",
            "a b\tc",
            "a\nb",
            "| cat",
            "&& true",
            "> /tmp/x",
            "*",
            "?",
            "~",
            "$HOME",
            "${IFS}",
            "'",
            "\"",
            "\\",
            "#",
            "!!",
            "{file}",
            "{*}",
            "%s",
            "\u{202e}",
            "",
            "../../etc/passwd",
            "\r\n",
            "é",
            "a=b",
            "@file",
            "+x",
            "/dev/null",
        ];
        for value in nasty {
            let values = serde_json::json!({ "file": value }).to_string();
            let filled = fill(&["--", "{file}", "end"], &values).unwrap();
            assert_eq!(filled, ["--", value, "end"]);
        }
    }

    #[test]
    fn what_could_be_an_option_is_refused_unless_the_config_says_otherwise() {
        for value in ["-", "-x", "--output=/etc/passwd", "-o/etc/passwd", "--"] {
            let values = serde_json::json!({ "file": value }).to_string();
            assert!(fill(&["{file}"], &values).unwrap_err().contains("dash"), "{value}");
            assert_eq!(fill(&["{-file}"], &values).unwrap(), [value]);
            let list = serde_json::json!([value]).to_string();
            assert!(fill(&["{*}"], &list).unwrap_err().contains("dash"), "{value}");
            assert_eq!(fill(&["{-*}"], &list).unwrap(), [value]);
        }
        assert!(fill(&["{n}"], r#"{"n": -5}"#).unwrap_err().contains("dash"));
    }

    #[test]
    fn every_place_is_filled_and_every_value_used() {
        assert_eq!(fill(&["{a}"], "{}").unwrap_err(), "args: a is missing");
        assert!(fill(&["{a}"], r#"{"a": 1, "b": 2}"#).unwrap_err().contains("no place for b"));
        assert!(fill(&[], r#"["x"]"#).unwrap_err().contains("no place for 1"));
        assert!(fill(&["{1}"], r#"["x", "y"]"#).unwrap_err().contains("no place for 2"));
        assert_eq!(fill(&["{2}", "{1}"], r#"["x", "y"]"#).unwrap(), ["y", "x"]);
        assert_eq!(
            fill(&["{1}", "-v", "{*}"], r#"["x", "y", "z"]"#).unwrap(),
            ["x", "-v", "y", "z"]
        );
        assert_eq!(fill(&["{*}"], "[]").unwrap(), [""; 0]);
    }

    #[test]
    fn a_value_is_a_text_a_number_or_a_truth_as_it_was_written() {
        let filled = fill(&["{a}", "{b}"], r#"{"a": 12345678901234567890.10, "b": true}"#).unwrap();
        assert_eq!(filled, ["12345678901234567890.10", "true"]);
        for bad in
            [r#"{"a": null}"#, r#"{"a": {}}"#, r#"{"a": ["x"]}"#, r#"{"a": "x\u0000y"}"#, "7"]
        {
            assert!(fill(&["{a}"], bad).is_err(), "{bad}");
        }
        let long =
            serde_json::json!({ "a": "x".repeat(Template::VALUE_BYTES_MAX + 1) }).to_string();
        assert!(fill(&["{a}"], &long).unwrap_err().contains("longer"));
    }

    #[test]
    fn a_place_that_is_no_whole_argument_is_refused() {
        assert!(fill(&["--level={level}"], "{}").unwrap_err().contains("argument of its own"));
        assert!(fill(&["{*}", "{*}"], "[]").is_err());
        assert!(fill(&["a\0b"], "{}").is_err());
        assert_eq!(fill(&["{print $1}", "{}", "{\"a\": 1}"], "{}").unwrap().len(), 3);
    }
}
