//! Queues, the rules that say who may run, and the workers.

use std::collections::BTreeMap;

use windlass::wire::{List, QueueDocument, Queues, ReasonBody, RuleDocument, WorkerDocument};
use windlass_kernel::{
    Digest, Queue, Refusal, Rule, RuleName, Says, Scope as RuleScope, TenantId, Timestamp,
    WorkerId,
    holder::is_session_of,
    own_names::is_own,
    rule::{DropRule, PutRule, RuleOp},
};
use windlass_store::read::{ListeningWorker, Listens, Scope, SessionView};

use crate::http::{
    api::rule_body::RuleBody,
    core::{
        problem::Problem,
        route::{Answer, Call},
    },
};

/// `GET /api/v1/queues`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let limit = call.query.number("limit", QUEUES_MAX as u64)?.unwrap_or(QUEUES_MAX as u64);
    let limit = usize::try_from(limit.max(1)).expect("it is bounded");
    let (queues, counted_at) = read(&call).await?;
    let after = call.query.text("cursor");
    let later = |queue: &QueueDocument| after.is_none_or(|after| queue.queue.as_str() > after);
    let mut items: Vec<QueueDocument> = queues.into_values().filter(later).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|queue| queue.queue.clone());
    Ok(Answer::ok(&Queues { items, next, counted_at }))
}

/// How many queues are told at once.
pub(crate) const QUEUES_MAX: usize = 1_000;

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
    for oldest in counted.oldest.iter() {
        if let Some(queue) = queues.get_mut(oldest.queue.as_str()) {
            let known = queue.oldest_ready_at.get_or_insert(oldest.since);
            *known = oldest.since.min(*known);
        }
    }
    Ok((queues, counted.at))
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
    RuleDocument { name: shown_name(call, &rule.name), ..rule.into() }
}

/// Rules of all tenants have one list of names, so those of a tenant begin with its own.
async fn rule_name(call: &Call, name: &str) -> Result<RuleName, Problem> {
    let Scope::Of(tenant) = call.scope() else { return Ok(RuleName::new(name)?) };
    if tenant.as_str().contains('/') {
        // Its rules may have names of a version that joined the two as they are.
        let rules = call.engine().store().rules().await?;
        let is_known =
            |rule: &&Rule| rule.owner() == Some(tenant) && rule.name.within(tenant) == Some(name);
        if let Some(known) = rules.iter().find(is_known) {
            return Ok(known.name.clone());
        }
    }
    Ok(RuleName::of_tenant(tenant, name)?)
}

fn shown_name(call: &Call, name: &RuleName) -> String {
    let short = call.scope().tenant().and_then(|tenant| name.within(tenant));
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
    let rule = put(&call, &name, body.scope()?, body.says.into(), body.reason).await?;
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
    let (name, within) = (rule_name(call, name).await?, own.cloned());
    let op = PutRule { name, scope, says, within, by: call.by(), reason };
    send(call, RuleOp::Put(op)).await
}

async fn send(call: &Call, op: RuleOp) -> Result<Rule, Problem> {
    Ok(call.engine().submit(op).await?)
}

/// `DELETE /api/v1/rules/{name}`
pub(crate) async fn drop_rule(call: Call) -> Result<Answer, Problem> {
    let body: ReasonBody = call.body()?;
    let name = call.param("name").to_owned();
    let rule = take(&call, &name, body.reason).await?;
    Ok(Answer::ok(&document(&call, rule)))
}

async fn take(call: &Call, name: &str, reason: Option<String>) -> Result<Rule, Problem> {
    let (name, within) = (rule_name(call, name).await?, call.scope().tenant().cloned());
    let op = DropRule { name, within, by: call.by(), reason };
    send(call, RuleOp::Drop(op)).await
}

/// The rule that stops a queue. A queue whose name is too long to be part of another is known by its digest.
fn stop_name(call: &Call, word: &str, queue: &Queue) -> String {
    let name = format!("{word} {queue}");
    let is_short = match call.scope() {
        Scope::Every => RuleName::new(&name).is_ok(),
        Scope::Of(tenant) => RuleName::of_tenant(tenant, &name).is_ok(),
    };
    if is_short {
        return name;
    }
    let digest = Digest::of(queue.as_str()).to_string();
    format!("{word} ~{}", &digest[digest.len() - 32..])
}

fn queue(call: &Call) -> Result<Queue, Problem> {
    Ok(Queue::new(call.param("name"))?)
}

/// `POST /api/v1/queues/{name}/pause`
pub(crate) async fn pause(call: Call) -> Result<Answer, Problem> {
    let (body, queue): (ReasonBody, _) = (call.body()?, queue(&call)?);
    let (name, scope) = (stop_name(&call, "pause", &queue), RuleScope::queue(queue));
    let rule = put(&call, &name, scope, Says::Pause, body.reason).await?;
    Ok(Answer::ok(&document(&call, rule)))
}

/// `POST /api/v1/queues/{name}/drain`
pub(crate) async fn drain(call: Call) -> Result<Answer, Problem> {
    let (body, queue): (ReasonBody, _) = (call.body()?, queue(&call)?);
    let (name, scope) = (stop_name(&call, "drain", &queue), RuleScope::queue(queue));
    let rule = put(&call, &name, scope, Says::Drain, body.reason).await?;
    Ok(Answer::ok(&document(&call, rule)))
}

/// `POST /api/v1/queues/{name}/resume`: it is neither paused nor drained from now on.
pub(crate) async fn resume(call: Call) -> Result<Answer, Problem> {
    let (body, queue): (ReasonBody, _) = (call.body()?, queue(&call)?);
    let mut dropped = Vec::new();
    for name in ["pause", "drain"].map(|word| stop_name(&call, word, &queue)) {
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

/// Is it a worker that this tenant may see? Those without a token, in an engine or in development, work for the usual
/// tenant. The server's own work for all, and only who sees all tenants sees them.
pub(crate) fn is_worker_of(scope: &Scope, worker: &WorkerId) -> bool {
    let Scope::Of(tenant) = scope else { return true };
    let is_default = tenant.as_str() == windlass::Engine::TENANT_DEFAULT;
    let is_plain = !worker.as_str().contains('/') && !is_own(worker.as_str());
    is_session_of(tenant.as_str(), worker) || (is_default && is_plain)
}

/// `GET /api/v1/workers`
pub(crate) async fn workers(call: Call) -> Result<Answer, Problem> {
    let limit = call.query.number("limit", 1_000)?.unwrap_or(100).max(1);
    let limit = usize::try_from(limit).expect("it is bounded");
    let after = call.query.text("cursor").unwrap_or("");
    let workers = read_workers(&call).await?.into_iter();
    let rest = workers.skip_while(|worker| worker.worker_id.as_str() <= after);
    Ok(Answer::ok(&page_of_workers(rest, limit)))
}

/// The most bytes of names in one page of workers. One worker may name two thousand.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// As many workers as one answer holds, in number and in bytes. One is there at any size.
pub(crate) fn page_of_workers(
    workers: impl Iterator<Item = WorkerDocument>,
    limit: usize,
) -> List<WorkerDocument> {
    let (mut items, mut bytes) = (Vec::<WorkerDocument>::new(), 0);
    for worker in workers {
        bytes += worker.bytes();
        if items.len() == limit || (bytes > PAGE_BYTES_MAX && !items.is_empty()) {
            let next = items.last().map(|last| last.worker_id.clone());
            return List { items, next };
        }
        items.push(worker);
    }
    List { items, next: None }
}

/// The workers that the caller may see: those that hold something or did, and those that only wait. What the server does
/// for itself is left out while it has nothing to do.
pub(crate) async fn read_workers(call: &Call) -> Result<Vec<WorkerDocument>, Problem> {
    let store = call.engine().own_store()?;
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
    for ListeningWorker { worker, listens, .. } in store.listening(call.scope()).await? {
        let Listens { queues, kinds, .. } = listens;
        let is_our_own = |queue: &Queue| is_own(queue.as_str());
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
    let is_mine = |worker: &WorkerId| {
        is_worker_of(call.scope(), worker) || (!call.caller.has_token && is_own(worker.as_str()))
    };
    let mine = workers.into_iter().filter(|(worker, _)| is_mine(worker));
    Ok(mine.map(|(_, document)| document).collect())
}
