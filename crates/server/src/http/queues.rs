//! Queues, the rules that say who may run, and the workers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_kernel::{
    Actor, Kind, Queue, Refusal, Rule, RuleName, Says, Scope as RuleScope, TenantId, Timestamp,
    WorkerId,
    rule::{DropRule, PutRule, RuleOp},
};
use windlass_store::{
    Reply, Write,
    read::{Listens, Scope, SessionView},
};

use super::{
    bulk::RESERVED,
    document::List,
    problem::Problem,
    route::{Answer, Call},
    schedules::ReasonBody,
};

/// A queue.
#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueDocument {
    /// Its name.
    queue: String,
    /// How many jobs there are in each state.
    counts: BTreeMap<String, u64>,
    /// Since when the job waits that has been ready for longest.
    #[schemars(with = "Option<String>")]
    oldest_ready_at: Option<Timestamp>,
    /// Is nothing started?
    paused: bool,
    /// Is nothing new taken in?
    draining: bool,
}

/// `GET /api/v1/queues`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let (queues, _) = read(&call).await?;
    Ok(Answer::ok(&List { items: queues.into_values().collect(), next: None }))
}

/// `GET /api/v1/queues/{name}`
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    let queue = queue(&call)?;
    let found = read(&call).await?.0.remove(queue.as_str());
    Ok(Answer::ok(&found.ok_or_else(|| Problem::not_found("queue"))?))
}

/// The queues that have jobs or a rule of their own, by name, and when their jobs were counted.
pub(crate) async fn read(
    call: &Call,
) -> Result<(BTreeMap<String, QueueDocument>, Timestamp), Problem> {
    let store = call.engine().store();
    let mut queues: BTreeMap<String, QueueDocument> = BTreeMap::new();
    let rules = store.rules().await?;
    let says = |queue: &str, what: &Says| {
        let covers = |scope: &RuleScope| {
            scope.queue.as_ref().is_none_or(|only| only.as_str() == queue)
                && scope.tenant.as_ref().is_none_or(|only| call.scope().admits(only))
                && scope.kinds.is_empty()
        };
        rules.iter().any(|rule| rule.says == *what && covers(&rule.scope))
    };
    let empty = |queue: &str| QueueDocument {
        queue: queue.to_owned(),
        counts: BTreeMap::new(),
        oldest_ready_at: None,
        paused: says(queue, &Says::Pause),
        draining: says(queue, &Says::Drain),
    };
    let mine = rules.iter().filter(|rule| is_visible(call, rule));
    for queue in mine.filter_map(|rule| rule.scope.queue.as_ref()) {
        queues.entry(queue.to_string()).or_insert_with(|| empty(queue.as_str()));
    }
    let counted = call.app.counts.read(call.engine(), call.scope()).await?;
    for (queue, state, count) in counted.rows.iter().cloned() {
        let known = queues.entry(queue).or_insert_with_key(|queue| empty(queue));
        *known.counts.entry(state).or_default() += count;
    }
    for oldest in store.oldest_ready(call.scope()).await? {
        if let Some(queue) = queues.get_mut(oldest.queue.as_str()) {
            queue.oldest_ready_at = Some(oldest.since);
        }
    }
    Ok((queues, counted.at))
}

/// A rule that says who may run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RuleDocument {
    /// Its name.
    name: String,
    /// What it is about: a queue, a tenant, kinds.
    #[schemars(with = "serde_json::Value")]
    scope: RuleScope,
    /// What it says.
    #[schemars(with = "serde_json::Value")]
    says: Says,
    /// Who set it.
    #[schemars(with = "String")]
    by: Actor,
    /// Why.
    reason: Option<String>,
    /// Since when.
    #[schemars(with = "String")]
    since: Timestamp,
}

/// A rule that is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleBody {
    /// What it is about: `queue` and `kinds`; everything, if nothing is said.
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    scope: RuleScope,
    /// What it says: `"pause"`, `"drain"`, `{"concurrency": {"max": 5, "each": "together"}}`, `{"rate": …}`,
    /// `{"weight": …}`, `"turns_by_key"`, `{"breaker": …}` or `{"retry_budget": …}`.
    #[schemars(with = "serde_json::Value")]
    says: Says,
    /// Why.
    reason: Option<String>,
}

/// `GET /api/v1/rules`
pub(crate) async fn rules(call: Call) -> Result<Answer, Problem> {
    let rules = call.engine().store().rules().await?;
    let mine = rules.into_iter().filter(|rule| is_visible(&call, rule));
    let items = mine.map(|rule| document(&call, rule)).collect();
    Ok(Answer::ok(&List { items, next: None }))
}

/// A tenant sees its own rules, and those that are about everybody.
fn is_visible(call: &Call, rule: &Rule) -> bool {
    rule.scope.tenant.as_ref().is_none_or(|tenant| call.scope().admits(tenant))
}

fn document(call: &Call, rule: Rule) -> RuleDocument {
    RuleDocument {
        name: shown_name(call, &rule.name),
        scope: rule.scope,
        says: rule.says,
        by: rule.by,
        reason: rule.reason,
        since: rule.since,
    }
}

/// Rules of all tenants have one list of names, so those of a tenant begin with its own.
fn rule_name(call: &Call, name: &str) -> Result<RuleName, Problem> {
    match call.scope() {
        Scope::Every => Ok(RuleName::new(name)?),
        Scope::Of(tenant) => Ok(RuleName::new(format!("{tenant}/{name}"))?),
    }
}

fn shown_name(call: &Call, name: &RuleName) -> String {
    let own = call.scope().tenant().map(|tenant| format!("{tenant}/"));
    let short = own.and_then(|own| name.as_str().strip_prefix(own.as_str()));
    short.unwrap_or(name.as_str()).to_owned()
}

/// The same as a name.
pub(crate) fn shown_rule(call: &Call, name: &RuleName) -> Result<RuleName, Problem> {
    Ok(RuleName::new(shown_name(call, name))?)
}

/// `PUT /api/v1/rules/{name}`
pub(crate) async fn put_rule(call: Call) -> Result<Answer, Problem> {
    let body: RuleBody = call.body()?;
    let name = call.param("name").to_owned();
    let rule = put(&call, &name, body.scope, body.says, body.reason).await?;
    Ok(Answer::ok(&document(&call, rule)))
}

async fn put(
    call: &Call,
    name: &str,
    scope: RuleScope,
    says: Says,
    reason: Option<String>,
) -> Result<Rule, Problem> {
    let own: Option<&TenantId> = call.scope().tenant();
    if let (Some(own), Some(other)) = (own, &scope.tenant)
        && own != other
    {
        return Err(Refusal::NotFound { what: "tenant" }.into());
    }
    let scope = RuleScope { tenant: own.cloned().or(scope.tenant), ..scope };
    let op = PutRule { name: rule_name(call, name)?, scope, says, by: call.by(), reason };
    send(call, RuleOp::Put(op)).await
}

async fn send(call: &Call, op: RuleOp) -> Result<Rule, Problem> {
    match call.engine().submit(Write::Rule(op)).await? {
        Reply::Rule(rule) => Ok(rule),
        _ => unreachable!("an op on a rule is answered by the rule"),
    }
}

/// `DELETE /api/v1/rules/{name}`
pub(crate) async fn drop_rule(call: Call) -> Result<Answer, Problem> {
    let body: ReasonBody = call.body()?;
    let name = call.param("name").to_owned();
    let rule = take(&call, &name, body.reason).await?;
    Ok(Answer::ok(&document(&call, rule)))
}

async fn take(call: &Call, name: &str, reason: Option<String>) -> Result<Rule, Problem> {
    let op = DropRule { name: rule_name(call, name)?, by: call.by(), reason };
    send(call, RuleOp::Drop(op)).await
}

fn queue(call: &Call) -> Result<Queue, Problem> {
    Ok(Queue::new(call.param("name"))?)
}

/// `POST /api/v1/queues/{name}/pause`
pub(crate) async fn pause(call: Call) -> Result<Answer, Problem> {
    let (body, queue): (ReasonBody, _) = (call.body()?, queue(&call)?);
    let (name, scope) = (format!("pause {queue}"), RuleScope::queue(queue));
    let rule = put(&call, &name, scope, Says::Pause, body.reason).await?;
    Ok(Answer::ok(&document(&call, rule)))
}

/// `POST /api/v1/queues/{name}/drain`
pub(crate) async fn drain(call: Call) -> Result<Answer, Problem> {
    let (body, queue): (ReasonBody, _) = (call.body()?, queue(&call)?);
    let (name, scope) = (format!("drain {queue}"), RuleScope::queue(queue));
    let rule = put(&call, &name, scope, Says::Drain, body.reason).await?;
    Ok(Answer::ok(&document(&call, rule)))
}

/// `POST /api/v1/queues/{name}/resume`: it is neither paused nor drained from now on.
pub(crate) async fn resume(call: Call) -> Result<Answer, Problem> {
    let (body, queue): (ReasonBody, _) = (call.body()?, queue(&call)?);
    let mut dropped = Vec::new();
    for name in [format!("pause {queue}"), format!("drain {queue}")] {
        match take(&call, &name, body.reason.clone()).await {
            Ok(rule) => dropped.push(document(&call, rule)),
            Err(problem) if problem.code == "NOT_FOUND" => {}
            Err(problem) => return Err(problem),
        }
    }
    if dropped.is_empty() {
        return Err(Problem::not_found("pause or drain of the queue"));
    }
    Ok(Answer::ok(&List { items: dropped, next: None }))
}

/// A worker.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WorkerDocument {
    /// Its name, as its events have it.
    worker_id: String,
    /// When the last of its leases runs out; none, if it never had one.
    #[schemars(with = "Option<String>")]
    leased_until: Option<Timestamp>,
    /// How often it kept its leases.
    renewals: u64,
    /// How many jobs it holds.
    held: u64,
    /// The queues that it listens to; none, if it is not there any more.
    #[schemars(with = "Vec<String>")]
    queues: Vec<Queue>,
    /// The kinds that it runs; all, if none is named.
    #[schemars(with = "Vec<String>")]
    kinds: Vec<Kind>,
}

/// Workers that come over HTTP have the name of their tenant before their own, unless it is the usual one.
pub(crate) fn is_worker_of(scope: &Scope, worker: &WorkerId) -> bool {
    let worker = worker.as_str();
    match scope {
        Scope::Every => true,
        Scope::Of(tenant) if tenant.as_str() == windlass::Engine::TENANT_DEFAULT => {
            !worker.contains('/')
        }
        Scope::Of(tenant) => {
            worker.strip_prefix(tenant.as_str()).is_some_and(|rest| rest.starts_with('/'))
        }
    }
}

/// `GET /api/v1/workers`
pub(crate) async fn workers(call: Call) -> Result<Answer, Problem> {
    Ok(Answer::ok(&List { items: read_workers(&call).await?, next: None }))
}

/// The workers that the caller may see: those that hold something or did, and those that only wait. What the server does
/// for itself is left out while it has nothing to do.
pub(crate) async fn read_workers(call: &Call) -> Result<Vec<WorkerDocument>, Problem> {
    let store = call.engine().store();
    let mut workers = BTreeMap::new();
    for session in store.sessions().await? {
        let SessionView { worker, lapses_at, renewals, held } = session;
        let document = WorkerDocument {
            worker_id: worker.to_string(),
            leased_until: Some(lapses_at),
            renewals,
            held,
            queues: Vec::new(),
            kinds: Vec::new(),
        };
        workers.insert(worker, document);
    }
    for (worker, Listens { queues, kinds, .. }) in store.listening(call.scope()).await? {
        let is_our_own = |queue: &Queue| queue.as_str().starts_with(RESERVED);
        match workers.get_mut(&worker) {
            Some(known) => (known.queues, known.kinds) = (queues, kinds),
            None if queues.iter().all(is_our_own) => {}
            None => {
                let (worker_id, leased_until) = (worker.to_string(), None);
                let (renewals, held) = (0, 0);
                let document =
                    WorkerDocument { worker_id, leased_until, renewals, held, queues, kinds };
                workers.insert(worker, document);
            }
        }
    }
    let mine = workers.into_iter().filter(|(worker, _)| is_worker_of(call.scope(), worker));
    Ok(mine.map(|(_, document)| document).collect())
}
