//! `windlass queue rules`: the rules that say who may run.

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use windlass_kernel::{Says, Scope, TenantId, Timestamp, rule::Each};

use crate::cli::{
    api::{Api, ApiArgs, Page, path},
    look::{
        table::{Room, Table},
        times,
        view::View,
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Rules {
    /// Only those that hold for this queue.
    queue: Option<String>,
    /// Take this rule away.
    #[arg(long, value_name = "NAME", conflicts_with = "queue")]
    remove: Option<String>,
    /// Why it is taken away.
    #[arg(long, value_name = "TEXT", requires = "remove")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of a rule.
#[derive(Deserialize)]
pub(super) struct Rule {
    pub(super) name: String,
    scope: Scope,
    says: Says,
    by: String,
    reason: Option<String>,
    since: Timestamp,
}

impl Rule {
    /// Does it say something about jobs of this queue?
    pub(super) fn holds_for(&self, queue: &str) -> bool {
        self.scope.queue.as_ref().is_none_or(|only| only.as_str() == queue)
    }

    /// What it is about. Whoever has one tenant need not read its name.
    fn about(&self) -> String {
        let is_usual = |it: &TenantId| it.as_str() == windlass::Engine::TENANT_DEFAULT;
        let tenant = self.scope.tenant.clone().filter(|it| !is_usual(it));
        Scope { tenant, ..self.scope.clone() }.to_string()
    }

    /// What it says, in words.
    pub(super) fn sentence(&self) -> String {
        let each = match self.says.each() {
            Each::Together => String::new(),
            part => format!(" of each {part}"),
        };
        match &self.says {
            Says::Pause => "nothing is started".to_owned(),
            Says::Drain => "nothing new is taken in".to_owned(),
            Says::Concurrency { max, .. } => format!("at most {max} at once{each}"),
            Says::Rate(rate) => {
                let burst = rate.burst.map(|burst| format!(", {burst} at once"));
                let per = times::written(rate.per);
                format!("at most {} begin in {per}{each}{}", rate.count, burst.unwrap_or_default())
            }
            Says::Weight { weight } => format!("has {weight} turns where others have one"),
            Says::TurnsByKey => "keys take turns".to_owned(),
            Says::Breaker(breaker) => {
                let open = times::written(breaker.open_for);
                format!("stops for {open} after {} failures{each}", breaker.failures)
            }
            Says::RetryBudget(budget) => format!(
                "{} retries for 100 first tries, and {} a minute",
                budget.percent, budget.per_minute
            ),
        }
    }
}

pub(super) async fn run(command: &Rules, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    match &command.remove {
        Some(name) => remove(&api, name, command.reason.as_deref(), view).await?,
        None => list(&api, command.queue.as_deref(), view).await?,
    }
    api.close().await;
    Ok(())
}

async fn remove(api: &Api, name: &str, reason: Option<&str>, view: &View) -> Result<(), Trouble> {
    let body = json!({"reason": reason}).to_string();
    let method = axum::http::Method::DELETE;
    let document = api.call(method, &path(&["rules", name]), Some(body)).await?;
    let rule: Rule = document.read()?;
    view.document(&document, || format!("{} is gone; it said: {}\n", rule.name, rule.sentence()));
    Ok(())
}

async fn list(api: &Api, queue: Option<&str>, view: &View) -> Result<(), Trouble> {
    let page = api.page(&path(&["rules"])).await?;
    let all: Vec<Rule> = page.read()?;
    let fits = |rule: &Rule| queue.is_none_or(|queue| rule.holds_for(queue));
    let items = page.items.into_iter().zip(&all).filter(|(_, rule)| fits(rule));
    let page =
        Page { items: items.map(|(item, _)| item).collect(), next: page.next, counted_at: None };
    let rules: Vec<Rule> = all.into_iter().filter(fits).collect();
    let none = "No rule says who may run. Set one: windlass queue limit default --concurrency 10";
    view.list(&page, || table(&rules, none, view));
    Ok(())
}

/// Where there is less room than this, what a rule is about goes before what it says is cut.
const NARROW: usize = 80;

/// Rules on lines, or a sentence if there are none.
pub(super) fn table(rules: &[Rule], none: &str, view: &View) -> Table {
    let (says, about) = match view.width < NARROW {
        true => (Room::Shorten(20), Room::Spare(0)),
        false => (Room::Needed, Room::Shorten(12)),
    };
    let mut table = Table::new(none)
        .column("RULE", Room::Needed)
        .column("SAYS", says)
        .column("ABOUT", about)
        .column("BY", Room::Spare(3))
        .column("SINCE", Room::Spare(2))
        .column("REASON", Room::Spare(1));
    for rule in rules {
        table.row([
            rule.name.as_str().into(),
            rule.sentence().into(),
            rule.about().into(),
            rule.by.as_str().into(),
            view.times.show(rule.since).into(),
            rule.reason.as_deref().unwrap_or("-").into(),
        ]);
    }
    table
}
