//! Operators' rules and what they remember: their rows.

use std::{collections::BTreeMap, sync::Arc};

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{
    Rule, RuleName, Timestamp,
    rule::{Part, RuleState},
};

use crate::{
    RuleChange,
    commit::Changes,
    job_row::json,
    postgres::{
        Failure, PgResult,
        claim::rules::{CommitRules, Edition},
        link::{
            pipeline::{Ask, run_one},
            types::Time,
        },
    },
    rules::Rulebook,
};

const EDITION: &str = "
    SELECT (SELECT value::bigint FROM meta WHERE name = 'rules_version'),
        ARRAY(SELECT rule FROM rules)";

/// What rules say now.
pub(crate) async fn load_edition(client: &ClientWrapper) -> PgResult<Edition> {
    let rows = run_one(client, Ask::new(EDITION)).await?;
    let row = rows.first().ok_or_else(|| Failure::damaged("there are no rules"))?;
    let version: Option<i64> = row.try_get(0)?;
    let version = version.ok_or_else(|| Failure::damaged("the rules have no version"))?;
    let texts: Vec<&str> = row.try_get(1)?;
    let parse = |text: &&str| serde_json::from_str::<Rule>(text);
    let rules: Result<Vec<Rule>, _> = texts.iter().map(parse).collect();
    let mut rules = rules.map_err(|error| Failure::damaged(error.to_string()))?;
    rules.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Edition { version, rules: Arc::new(rules) })
}

const PUT: &str = "
    INSERT INTO rules (name, rule) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET rule = excluded.rule";

const DROP: &str = "DELETE FROM rules WHERE name = $1";

const FORGET: &str = "DELETE FROM rule_states WHERE rule = $1";

const NEXT_VERSION: &str = "UPDATE meta SET value = value::bigint + 1 WHERE name = 'rules_version'";

const REMEMBER: &str = "
    INSERT INTO rule_states (rule, part, state, forget_at)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[])
    ON CONFLICT (rule, part) DO UPDATE SET state = excluded.state, forget_at = excluded.forget_at";

const FORGET_PARTS: &str = "
    DELETE FROM rule_states s USING unnest($1::text[], $2::text[]) AS v (rule, part)
    WHERE s.rule = v.rule AND s.part = v.part";

/// The statements that write what became of rules, which are locked, and what they remember.
pub(crate) fn save(changes: &Changes, now: Timestamp, asks: &mut Vec<Ask>) {
    for change in &changes.rules {
        match change {
            RuleChange::Put { rule, forgets } => {
                let name = rule.name.as_str().to_owned();
                asks.push(Ask::new(PUT).with(name.clone()).with(json(rule)));
                asks.extend(forgets.then(|| Ask::new(FORGET).with(name)));
            }
            RuleChange::Drop(name) => asks.push(Ask::new(DROP).with(name.as_str().to_owned())),
        }
    }
    if !changes.rules.is_empty() {
        asks.push(Ask::new(NEXT_VERSION));
    }
    save_states(&changes.rule_states, now, asks);
}

fn save_states(
    states: &BTreeMap<(RuleName, Part), RuleState>,
    now: Timestamp,
    asks: &mut Vec<Ask>,
) {
    let columns = |states: &[(&(RuleName, Part), &RuleState)]| -> (Vec<String>, Vec<String>) {
        let names = states.iter().map(|((rule, part), _)| (rule.to_string(), part.as_text()));
        names.unzip()
    };
    let (gone, kept): (Vec<_>, Vec<_>) =
        states.iter().partition(|(_, state)| state.is_forgotten(now));
    if !gone.is_empty() {
        let (rules, parts) = columns(&gone);
        asks.push(Ask::new(FORGET_PARTS).with(rules).with(parts));
    }
    if !kept.is_empty() {
        let (rules, parts) = columns(&kept);
        let texts: Vec<String> = kept.iter().map(|(_, state)| json(state)).collect();
        let forget_at = kept.iter().map(|(_, state)| state.forget_at().map(Time));
        let ask = Ask::new(REMEMBER).with(rules).with(parts).with(texts);
        asks.push(ask.with(forget_at.collect::<Vec<Option<Time>>>()));
    }
}

/// `SKIP LOCKED`: a state that a commit is just changing is left for the next sweep.
const SWEEP: &str = "
    DELETE FROM rule_states WHERE (rule, part) IN (
        SELECT rule, part FROM rule_states WHERE forget_at <= $1 LIMIT 1000 FOR UPDATE SKIP LOCKED)";

/// Deletes states that have become equal to having no state, such as a rate whose bucket is full
/// again.
pub(crate) async fn sweep(client: &ClientWrapper, now: Timestamp) -> PgResult<()> {
    Ok(run_one(client, Ask::new(SWEEP).with(Time(now))).await.map(drop)?)
}

/// Everything that rules remember.
const ALL_STATES: &str = "SELECT rule, part, state FROM rule_states";

/// The rules, and all that they remember.
pub(crate) async fn load_book(client: &ClientWrapper) -> PgResult<Rulebook> {
    let mut rules = CommitRules::new(load_edition(client).await?);
    rules.take_states(&run_one(client, Ask::new(ALL_STATES)).await?)?;
    Ok(rules.book)
}
