//! `windlass queue limit`: how many jobs of a queue may run at once, or begin in a time.

use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use serde_json::{Value, json};

use super::rules::Rule;
use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{times, view::View},
    trouble::Trouble,
};

#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["concurrency", "rate"]))]
pub(crate) struct Limit {
    /// The name of the queue.
    queue: String,
    /// So many may run at once.
    #[arg(short, long, value_name = "N")]
    concurrency: Option<u32>,
    /// So many may begin in a time, such as 100/1m or 5/1s.
    #[arg(short, long, value_name = "N/TIME", value_parser = rate)]
    rate: Option<(u32, Duration)>,
    /// What the limit counts by itself.
    #[arg(long, value_enum, default_value_t)]
    per: Per,
    /// How many may begin at once after a pause, with --rate.
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u32>,
    /// Only jobs of this kind; may be said several times.
    #[arg(short, long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// The name of the rule, if the queue is to have several of a sort.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Why, for those who will ask.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// What a limit counts by itself.
#[derive(Clone, Copy, Default, ValueEnum)]
enum Per {
    /// All jobs of the queue together.
    #[default]
    Together,
    /// The jobs of each limit key.
    Key,
    /// The jobs of each tenant.
    Tenant,
    /// The jobs of each kind.
    Kind,
}

impl Per {
    fn word(self) -> &'static str {
        match self {
            Per::Together => "together",
            Per::Key => "key",
            Per::Tenant => "tenant",
            Per::Kind => "kind",
        }
    }
}

pub(super) async fn run(command: &Limit, view: &View) -> Result<(), Trouble> {
    if command.concurrency == Some(0) {
        let what = "with --concurrency 0 nothing of the queue would ever run";
        return Err(Trouble::usage(what).then(format!(
            "Hold it back until you let it go on: windlass queue pause {}",
            command.queue
        )));
    }
    let api = Api::open(&command.api).await?;
    let (name, body) = (name(command), body(command).to_string());
    let path = path(&["rules", &name]);
    let document = api.call(axum::http::Method::PUT, &path, Some(body)).await?;
    let rule: Rule = document.read()?;
    view.document(&document, || format!("{}: {}\n", rule.name, rule.sentence()));
    view.say(&format!("Take it away with: windlass queue rules --remove '{name}'"));
    api.close().await;
    Ok(())
}

/// A name for each sort of limit, so that the same command changes what it set.
fn name(command: &Limit) -> String {
    if let Some(name) = &command.name {
        return name.clone();
    }
    let sort = if command.concurrency.is_some() { "concurrency" } else { "rate" };
    match command.per {
        Per::Together => format!("{sort} {}", command.queue),
        per => format!("{sort} {} per {}", command.queue, per.word()),
    }
}

fn body(command: &Limit) -> Value {
    let each = command.per.word();
    let says = match (command.concurrency, command.rate) {
        (_, Some((count, per))) => {
            let per_ms = u64::try_from(per.as_millis()).unwrap_or(u64::MAX);
            let mut rate = json!({"count": count, "per_ms": per_ms, "each": each});
            if let Some(burst) = command.burst {
                rate["burst"] = json!(burst);
            }
            json!({"rate": rate})
        }
        (max, None) => json!({"concurrency": {"max": max, "each": each}}),
    };
    let mut scope = json!({"queue": command.queue});
    if !command.kinds.is_empty() {
        scope["kinds"] = json!(command.kinds);
    }
    json!({"scope": scope, "says": says, "reason": command.reason})
}

/// Reads `100/1m`; `5/s` is five in a second.
fn rate(text: &str) -> Result<(u32, Duration), String> {
    let why = || format!("{text:?} is no rate; write it as 100/1m or 5/1s");
    let (count, per) = text.split_once('/').ok_or_else(why)?;
    let count = count.trim().parse().map_err(|_| why())?;
    let per = per.trim();
    let is_unit = per.starts_with(|first: char| first.is_ascii_alphabetic());
    let per = times::parse(&if is_unit { format!("1{per}") } else { per.to_owned() });
    Ok((count, per.map_err(|_| why())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_so_many_in_a_time() {
        assert_eq!(rate("100/1m"), Ok((100, Duration::from_secs(60))));
        assert_eq!(rate("5/s"), Ok((5, Duration::from_secs(1))));
        for bad in ["5", "/s", "x/s", "5/", "5/x", "-1/s"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
