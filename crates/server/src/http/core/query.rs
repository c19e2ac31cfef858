//! What stands behind the question mark: parameters that the route knows, each at most once.

use windlass_kernel::{Timestamp, contract::Contract};

use crate::http::core::problem::Problem;

/// A parameter of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
}

/// The parameters of a call.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// The most parameters of a call.
    const PAIRS_MAX: usize = 32;

    /// Reads them. What the route does not know is refused, by name.
    pub(crate) fn parse(text: &str, known: &[Param]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()).take(Self::PAIRS_MAX) {
            if !known.iter().any(|param| param.name == name) {
                let names: Vec<&str> = known.iter().map(|param| param.name).collect();
                let all = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                let detail = format!("there is no parameter {name:?} here; there is: {all}");
                return Err(Problem::malformed(detail));
            }
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                let detail = format!("{name} is given twice: put all values into one, with commas");
                return Err(Problem::malformed(detail));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self { pairs })
    }

    /// Says what a parameter is, whatever was given.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.pairs.retain(|(known, _)| known != name);
        self.pairs.push((name.to_owned(), value.to_owned()));
    }

    /// The value of a parameter, if it is given and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A value of a type that can be read from text.
    pub(crate) fn get<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let value = text.parse().map_err(|why| Problem::malformed(format!("{name}: {why}")))?;
        Ok(Some(value))
    }

    /// A number up to a bound.
    pub(crate) fn number(&self, name: &str, max: u64) -> Result<Option<u64>, Problem> {
        let Some(number) = self.get::<u64>(name)? else { return Ok(None) };
        if number > max {
            return Err(Problem::malformed(format!("{name} must be at most {max}")));
        }
        Ok(Some(number))
    }

    /// A time.
    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let quoted = serde_json::Value::String(text.to_owned());
        let time = serde_json::from_value(quoted);
        time.map(Some).map_err(|why| Problem::malformed(format!("{name}: {why}")))
    }

    /// Yes or no; no, if it is not given.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::malformed(format!("{name} must be true or false"))),
        }
    }

    /// The contract in whose words the answer is wanted.
    pub(crate) fn contract(&self) -> Result<Option<&'static Contract>, Problem> {
        let Some(name) = self.text("contract") else { return Ok(None) };
        let unknown = || Problem::malformed("contract must be runs, tasks, jobs or ingest");
        Contract::named(name).map(Some).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Param] = &[Param { name: "limit", doc: "" }, Param { name: "state", doc: "" }];

    #[test]
    fn what_a_route_does_not_know_is_refused_by_name() {
        let problem = Query::parse("limt=3", KNOWN).unwrap_err();
        assert_eq!(problem.detail, "there is no parameter \"limt\" here; there is: limit, state");
        let problem = Query::parse("state=a&state=b", KNOWN).unwrap_err();
        assert!(problem.detail.contains("twice"), "{}", problem.detail);
    }

    #[test]
    fn values_are_read_with_their_bounds() {
        let query = Query::parse("limit=1001&state=", KNOWN).unwrap();
        assert_eq!(query.number("limit", 2_000).unwrap(), Some(1_001));
        assert_eq!(query.number("limit", 1_000).unwrap_err().detail, "limit must be at most 1000");
        assert_eq!(query.text("state"), None);
    }
}
