//! Rules: limits, rates, pauses, turns, breakers and budgets, said while everything runs.
//!
//! A rule has a name, applies to what it names, and says one thing. Setting it again under the same name changes it.
//! The next claim obeys, on every node; what runs already is left alone.
//!
//! ```
//! # use std::time::Duration;
//! # use windlass::{Breaker, Each, Engine, rule};
//! # async fn example(engine: Engine) -> Result<(), windlass::Error> {
//! // No more than ten mails at once, wherever the workers are.
//! engine.put_rule(rule("mail at once").queue("mail").at_most(10)).await?;
//! // One job of each customer at a time: the key is the job's `limit_key`.
//! engine.put_rule(rule("one per customer").each(Each::Key).at_most(1)).await?;
//! // 100 in a minute, evenly.
//! engine.put_rule(rule("crm").kind("sync_crm").rate(100, Duration::from_secs(60))).await?;
//! // What depends on something outside has its name.
//! engine.put_rule(rule("stripe").kind("charge").kind("refund").breaker(Breaker::default())).await?;
//! engine.put_rule(rule("mail stop").queue("mail").reason("maintenance").pause()).await?;
//! engine.drop_rule("mail stop", None).await?;
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use windlass_kernel::{
    By, Kind, Queue, Refusal, Rule, RuleName, Says, Scope, TenantId,
    rule::{Breaker, Budget, DropRule, Each, PutRule, Rate, RuleOp},
};

use crate::{Engine, Error};

/// A rule of this name, which applies to everything until it is told what to, and has yet to say something.
pub fn rule(name: &str) -> RuleScope {
    RuleScope {
        name: RuleName::new(name),
        scope: Ok(Scope::default()),
        each: Each::Together,
        reason: None,
    }
}

/// What a rule applies to. It does nothing until it says something.
#[derive(Clone, Debug)]
#[must_use = "a rule has to say something, and then to be set"]
pub struct RuleScope {
    name: Result<RuleName, Refusal>,
    scope: Result<Scope, Refusal>,
    each: Each,
    reason: Option<String>,
}

impl RuleScope {
    /// This queue only.
    pub fn queue(self, queue: &str) -> Self {
        self.set(|scope| {
            scope.queue = Some(Queue::new(queue)?);
            Ok(())
        })
    }

    /// This tenant only.
    pub fn tenant(self, tenant: &str) -> Self {
        self.set(|scope| {
            scope.tenant = Some(TenantId::new(tenant)?);
            Ok(())
        })
    }

    /// This kind only. It can have several.
    pub fn kind(self, kind: &str) -> Self {
        self.set(|scope| {
            scope.kinds.push(Kind::new(kind)?);
            Ok(())
        })
    }

    /// Counts each tenant, queue, kind or key by itself. Without it all are counted together.
    pub fn each(self, each: Each) -> Self {
        Self { each, ..self }
    }

    /// Why it is set, for whoever asks.
    pub fn reason(self, reason: &str) -> Self {
        Self { reason: Some(reason.to_owned()), ..self }
    }

    /// So many may be held at once.
    pub fn at_most(self, max: u32) -> RuleRequest {
        let each = self.each;
        self.says(Says::Concurrency { max, each })
    }

    /// So many may begin in this time, evenly: after a pause as many at once as half a second brings, and at least
    /// one.
    pub fn rate(self, count: u32, per: Duration) -> RuleRequest {
        let rate = Rate { count, per, burst: None, each: self.each };
        self.says(Says::Rate(rate))
    }

    /// The same, with so many at once after a pause.
    pub fn rate_with_burst(self, count: u32, per: Duration, burst: u32) -> RuleRequest {
        let rate = Rate { count, per, burst: Some(burst), each: self.each };
        self.says(Says::Rate(rate))
    }

    /// Nothing is started. What runs goes on, and new jobs are taken in.
    pub fn pause(self) -> RuleRequest {
        self.says(Says::Pause)
    }

    /// Nothing new is taken in: it is refused with `DRAINING`. What is there runs to its end.
    pub fn drain(self) -> RuleRequest {
        self.says(Says::Drain)
    }

    /// The share of a tenant when tenants take turns: 1 is usual.
    pub fn weight(self, weight: u32) -> RuleRequest {
        self.says(Says::Weight { weight })
    }

    /// The keys of each tenant take turns in this queue.
    pub fn turns_by_key(self) -> RuleRequest {
        self.says(Says::TurnsByKey)
    }

    /// Stops after repeated failures, and begins again with a few.
    pub fn breaker(self, breaker: Breaker) -> RuleRequest {
        let each = self.each;
        self.says(Says::Breaker(Breaker { each, ..breaker }))
    }

    /// So many retries for each hundred first tries, and so many in a minute whatever happens.
    pub fn retry_budget(self, percent: u32, per_minute: u32) -> RuleRequest {
        self.says(Says::RetryBudget(Budget { percent, per_minute }))
    }

    fn set(mut self, change: impl FnOnce(&mut Scope) -> Result<(), Refusal>) -> Self {
        if let Ok(scope) = &mut self.scope
            && let Err(refusal) = change(scope)
        {
            self.scope = Err(refusal);
        }
        self
    }

    fn says(self, says: Says) -> RuleRequest {
        RuleRequest { scope: self, says }
    }
}

/// A rule that says something, to be set.
#[derive(Clone, Debug)]
#[must_use = "a rule does nothing until it is set"]
pub struct RuleRequest {
    scope: RuleScope,
    says: Says,
}

impl RuleRequest {
    fn into_op(self, by: By) -> Result<PutRule, Refusal> {
        let RuleScope { name, scope, reason, .. } = self.scope;
        let (name, scope) = (name?, scope?);
        Ok(PutRule { name, scope, says: self.says, within: None, by, reason })
    }
}

impl Engine {
    /// Sets a rule: a new one, or another in the place of the one with this name.
    pub async fn put_rule(&self, request: RuleRequest) -> Result<Rule, Error> {
        let put = request.into_op(self.by())?;
        self.change_rule(RuleOp::Put(put)).await
    }

    /// Takes a rule away, and gives back what it was.
    pub async fn drop_rule(&self, name: &str, reason: Option<String>) -> Result<Rule, Error> {
        let name = RuleName::new(name)?;
        let (within, by) = (None, self.by());
        self.change_rule(RuleOp::Drop(DropRule { name, within, by, reason })).await
    }

    /// Every rule, by name.
    pub async fn rules(&self) -> Result<Vec<Rule>, Error> {
        Ok(self.store().rules().await?)
    }

    async fn change_rule(&self, op: RuleOp) -> Result<Rule, Error> {
        Ok(self.inner().submit_known(op).await?)
    }
}
