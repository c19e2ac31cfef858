//! Filters: one set for every command that lists jobs or dead letters, or acts on all that fit.

use clap::Args;
use windlass_kernel::Timestamp;

use super::{
    look::{times, view::View},
    trouble::Trouble,
};

/// Which ones.
#[derive(Args, Default)]
pub(crate) struct FilterArgs {
    /// Only those of this queue.
    #[arg(short, long)]
    queue: Option<String>,
    /// Only those of this kind.
    #[arg(short, long)]
    kind: Option<String>,
    /// Only those with this tag.
    #[arg(short, long)]
    tag: Option<String>,
    /// Only those whose last failure has this code.
    #[arg(short, long)]
    code: Option<String>,
    /// Only those with this limit key.
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// Only those created since then: a time, or how long ago, such as 2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Only those created before: a time, or how long ago, such as 2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// Only those that failed for good since then: a time, or how long ago, such as 2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    failed_since: Option<String>,
    /// Only those that failed for good before: a time, or how long ago, such as 2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    failed_until: Option<String>,
}

impl FilterArgs {
    /// Was nothing said?
    pub(crate) fn is_empty(&self) -> bool {
        let Self { queue, kind, tag, code, limit_key, since, until, failed_since, failed_until } =
            self;
        [queue, kind, tag, code, limit_key, since, until, failed_since, failed_until]
            .iter()
            .all(|value| value.is_none())
    }

    /// What was said, under the names that the API has for it.
    pub(crate) fn named(
        &self,
        view: &View,
    ) -> Result<Vec<(&'static str, Option<String>)>, Trouble> {
        let time = |text: &Option<String>,
                    parse: fn(&str, Timestamp) -> Result<Timestamp, String>| {
            let at = text.as_deref().map(|text| parse(text, view.times.now()));
            at.transpose().map(|at| at.map(|at| at.to_string())).map_err(Trouble::usage)
        };
        Ok(vec![
            ("queue", self.queue.clone()),
            ("kind", self.kind.clone()),
            ("tag", self.tag.clone()),
            ("code", self.code.clone()),
            ("limit_key", self.limit_key.clone()),
            ("created_from", time(&self.since, times::parse_since)?),
            ("created_before", time(&self.until, times::parse_past)?),
            ("failed_from", time(&self.failed_since, times::parse_since)?),
            ("failed_before", time(&self.failed_until, times::parse_past)?),
        ])
    }
}
