//! A rule as a request asks for it.
//!
//! These are not the types that stores keep: a request with a field that nobody knows is refused, because a slip in the
//! name of a scope's field would else make a rule about everything.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use windlass_kernel::{
    Kind, Queue, Refusal, Says, Scope, TenantId,
    rule::{Breaker, Budget, Each, Rate},
};

/// A rule that is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleBody {
    /// What it applies to. Optional: without it, the rule applies to everything of the tenant.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "ScopeBody")]
    scope: Option<ScopeBody>,
    /// What it says: `"pause"`, `"drain"`, `"turns_by_key"`, or an object with one field, such as
    /// `{"concurrency": {"max": 5, "each": "together"}}`.
    pub(crate) says: SaysBody,
    /// Why.
    pub(crate) reason: Option<String>,
}

/// What a rule applies to: jobs that agree with all that is named. At least one has to be named.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScopeBody {
    /// This queue only.
    #[schemars(with = "Option<String>")]
    queue: Option<Queue>,
    /// This tenant only.
    #[schemars(with = "Option<String>")]
    tenant: Option<TenantId>,
    /// These kinds only.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    kinds: Vec<Kind>,
}

/// What a rule says about what it applies to.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SaysBody {
    /// Nothing is started. What runs goes on, and new jobs are taken in.
    Pause,
    /// Nothing new is taken in. What is there runs to its end.
    Drain,
    /// At most so many run at once.
    Concurrency(ConcurrencyBody),
    /// At most so many start in a time.
    Rate(RateBody),
    /// The share of a tenant, when tenants take turns.
    Weight(WeightBody),
    /// The limit keys of each tenant take turns too.
    TurnsByKey,
    /// A circuit breaker: stop after repeated failures, and begin again with a few.
    Breaker(BreakerBody),
    /// Bounds retries as a share of first tries.
    RetryBudget(BudgetBody),
}

/// At most so many run at once.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConcurrencyBody {
    /// How many.
    max: u32,
    /// What is counted by itself: together, tenant, queue, kind or key.
    #[schemars(with = "String")]
    each: Each,
}

/// At most so many start in a time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateBody {
    /// How many.
    count: u32,
    /// In what time.
    per_ms: u64,
    /// How many may start at once after a pause [default: what half a second brings, and at least 1].
    burst: Option<u32>,
    /// What is counted by itself: together, tenant, queue, kind or key.
    #[schemars(with = "String")]
    each: Each,
}

/// The share of a tenant.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightBody {
    /// How many turns it has where a tenant without such a rule has one.
    weight: u32,
}

/// A circuit breaker.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BreakerBody {
    /// It opens after so many failures with no success in between.
    failures: u32,
    /// For how long it is open the first time.
    open_ms: u64,
    /// For how long at the most.
    open_ms_max: u64,
    /// How many jobs are tried at once when that is over.
    probes: u32,
    /// Only failures with one of these codes count [default: all].
    #[serde(default)]
    codes: Vec<String>,
    /// What is counted by itself: together, tenant, queue, kind or key.
    #[schemars(with = "String")]
    each: Each,
}

/// How many retries there may be.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetBody {
    /// Retries for each hundred first tries.
    percent: u32,
    /// Retries that are allowed in a minute in any case.
    per_minute: u32,
}

impl RuleBody {
    /// The scope that is asked for. One that was sent and names nothing is refused: it would be about everything.
    pub(crate) fn scope(&self) -> Result<Scope, Refusal> {
        let Some(ScopeBody { queue, tenant, kinds }) = &self.scope else {
            return Ok(Scope::default());
        };
        if queue.is_none() && tenant.is_none() && kinds.is_empty() {
            let why = "names nothing: name a queue, a tenant or kinds, or leave it out if everything is meant";
            return Err(Refusal::invalid("scope", why));
        }
        Ok(Scope { queue: queue.clone(), tenant: tenant.clone(), kinds: kinds.clone() })
    }
}

impl From<SaysBody> for Says {
    fn from(body: SaysBody) -> Self {
        let ms = Duration::from_millis;
        match body {
            SaysBody::Pause => Says::Pause,
            SaysBody::Drain => Says::Drain,
            SaysBody::Concurrency(ConcurrencyBody { max, each }) => Says::Concurrency { max, each },
            SaysBody::Rate(RateBody { count, per_ms, burst, each }) => {
                Says::Rate(Rate { count, per: ms(per_ms), burst, each })
            }
            SaysBody::Weight(WeightBody { weight }) => Says::Weight { weight },
            SaysBody::TurnsByKey => Says::TurnsByKey,
            SaysBody::Breaker(body) => Says::Breaker(Breaker {
                failures: body.failures,
                open_for: ms(body.open_ms),
                open_for_max: ms(body.open_ms_max),
                probes: body.probes,
                codes: body.codes,
                each: body.each,
            }),
            SaysBody::RetryBudget(BudgetBody { percent, per_minute }) => {
                Says::RetryBudget(Budget { percent, per_minute })
            }
        }
    }
}

/// A field that may be left out, and may not be null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
