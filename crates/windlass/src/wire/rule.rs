//! Rules that say who may run.

use serde::{Deserialize, Serialize};
use windlass_kernel::{Actor, Refusal, Rule, Says, Scope, Timestamp};

/// A rule that says who may run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleDocument {
    /// Its name.
    pub name: String,
    /// What it is about: a queue, a tenant, kinds.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub scope: Scope,
    /// What it says.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub says: Says,
    /// Who set it.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub by: Actor,
    /// Why.
    pub reason: Option<String>,
    /// Since when.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub since: Timestamp,
}

impl TryFrom<RuleDocument> for Rule {
    type Error = Refusal;

    fn try_from(told: RuleDocument) -> Result<Self, Refusal> {
        let RuleDocument { name, scope, says, by, reason, since } = told;
        Ok(Self { name: name.try_into()?, scope, says, by, reason, since })
    }
}

impl From<Rule> for RuleDocument {
    fn from(Rule { name, scope, says, by, reason, since }: Rule) -> Self {
        Self { name: name.to_string(), scope, says, by, reason, since }
    }
}
