//! Whose rule it is: a tenant's, or the caretaker's.
//!
//! All rules of a store have one list of names. What a tenant calls `cap` is called `tenant/cap` there, and only a rule
//! that is about this tenant alone is its own: another tenant can neither replace nor drop it, whatever the joined
//! names look like. All other rules are the caretaker's: whoever sees every tenant, or has the engine in its process.

use std::borrow::Cow;

use super::{PutRule, Rule, Says};
use crate::{Refusal, RuleName, TenantId, own_names::check_not_own, plain::check_plain};

impl RuleName {
    /// The name of a rule that this tenant calls so.
    pub fn of_tenant(tenant: &TenantId, name: &str) -> Result<Self, Refusal> {
        RuleName::new(format!("{}/{name}", joined(tenant)))
    }

    /// What the tenant calls it, if it is the name of a rule of this tenant.
    pub fn within(&self, tenant: &TenantId) -> Option<&str> {
        let strip = |owner: &str| self.as_str().strip_prefix(owner)?.strip_prefix('/');
        // Versions before joined the two as they are.
        strip(&joined(tenant)).or_else(|| strip(tenant.as_str()))
    }
}

/// A tenant as the beginning of a name: it ends at the first slash.
fn joined(tenant: &TenantId) -> Cow<'_, str> {
    match tenant.as_str().contains('/') {
        true => tenant.as_str().replace('/', "%2F").into(),
        false => tenant.as_str().into(),
    }
}

impl Rule {
    /// The tenant whose own rule it is; none for the caretaker's.
    pub fn owner(&self) -> Option<&TenantId> {
        self.scope.tenant.as_ref().filter(|tenant| self.name.within(tenant).is_some())
    }

    /// Does it stop a queue? It has room of its own, so that stopping one is always possible.
    fn is_stop(&self) -> bool {
        is_stop(&self.says)
    }
}

fn is_stop(says: &Says) -> bool {
    matches!(says, Says::Pause | Says::Drain)
}

impl PutRule {
    /// Refuses a name that is not for whoever sets the rule.
    pub(super) fn check_name(&self, known: Option<&Rule>) -> Result<(), Refusal> {
        let own = self.within.as_ref().and_then(|tenant| self.name.within(tenant));
        check_not_own("rule", own.unwrap_or(self.name.as_str()))?;
        check_plain("rule", self.name.as_str())?;
        if self.within.is_none() {
            return Ok(());
        }
        if own.is_none() || self.scope.tenant != self.within {
            return Err(Refusal::invalid("rule", "must be named after its tenant, and about it"));
        }
        if known.is_some_and(|known| known.owner() != self.within.as_ref()) {
            return Err(Refusal::invalid("rule", "has the name of a rule that is not yours"));
        }
        Ok(())
    }

    /// Refuses a new rule if there are as many as there may be. No tenant takes the room of another, and none that of
    /// the caretaker.
    pub(super) fn check_room(&self, rules: &[Rule]) -> Result<(), Refusal> {
        let is_stop = is_stop(&self.says);
        let alike = rules.iter().filter(|rule| rule.is_stop() == is_stop);
        let mine = alike.clone().filter(|rule| rule.owner() == self.within.as_ref()).count();
        if mine >= Self::RULES_MAX {
            return Err(Refusal::invalid("rule", "there are 1000 rules: drop one first"));
        }
        let of_tenants = alike.filter(|rule| rule.owner().is_some()).count();
        if self.within.is_some() && !is_stop && of_tenants >= Self::RULES_OF_TENANTS_MAX {
            let why = "all tenants together have 5000 rules: ask whoever looks after the server";
            return Err(Refusal::invalid("rule", why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Actor, Principal, Queue, Refusal, Rule, RuleName, Says, Scope, TenantId, Timestamp,
        rule::{DropRule, Each, PutRule},
    };

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    /// A rule that the tenant calls so, or that the caretaker calls so.
    fn put(owner: Option<&str>, name: &str, says: Says) -> PutRule {
        let within = owner.map(tenant);
        let name = match &within {
            Some(tenant) => RuleName::of_tenant(tenant, name).unwrap(),
            None => RuleName::new(name).unwrap(),
        };
        let scope = Scope { tenant: within.clone(), ..Scope::default() };
        let by = Actor::User(Principal::new("ann").unwrap()).into();
        PutRule { name, scope, says, within, by, reason: None }
    }

    fn cap() -> Says {
        Says::Concurrency { max: 1, each: Each::Together }
    }

    fn made(put: &PutRule, rules: &[Rule]) -> Result<Rule, Refusal> {
        put.decide(rules, Timestamp::MIN)
    }

    fn drop(owner: Option<&str>, put: &PutRule) -> DropRule {
        let (name, by) = (put.name.clone(), put.by.clone());
        DropRule { name, within: owner.map(tenant), by, reason: None }
    }

    #[test]
    fn a_tenant_has_its_own_rules_and_no_others() {
        let theirs = put(Some("acme/eu"), "cap", cap());
        let rules = [made(&theirs, &[]).unwrap()];
        let near = put(Some("acme"), "eu/cap", cap());
        assert_ne!(near.name, theirs.name, "a slash joins nothing");
        // A version before wrote the joined name as it is.
        let former = Rule { name: RuleName::new("acme/eu/cap").unwrap(), ..rules[0].clone() };
        assert_eq!(former.owner(), Some(&tenant("acme/eu")));
        assert!(made(&near, std::slice::from_ref(&former)).is_err(), "it was replaced");
        for other in ["acme", "other"] {
            let refused = drop(Some(other), &theirs).decide(&rules).map(|_| ());
            assert_eq!(refused, Err(Refusal::NotFound { what: "rule" }));
        }
        let near = DropRule { name: former.name.clone(), ..drop(Some("acme"), &theirs) };
        assert!(near.decide(std::slice::from_ref(&former)).is_err(), "it was dropped");
        assert!(drop(Some("acme/eu"), &theirs).decide(&rules).is_ok());
        assert!(drop(None, &theirs).decide(&rules).is_ok(), "the caretaker may");
        let caretakers = made(&put(None, "acme/cap", cap()), &[]).unwrap();
        assert!(made(&put(Some("acme"), "cap", cap()), &[caretakers]).is_err());
    }

    #[test]
    fn rules_are_counted_by_tenant_and_stops_by_themselves() {
        let many = |owner: Option<&str>, count: usize, says: Says| -> Vec<Rule> {
            let rule = |number| made(&put(owner, &format!("r{number}"), says.clone()), &[]);
            (0..count).map(|number| rule(number).unwrap()).collect()
        };
        let mut rules = many(Some("greedy"), 1_000, cap());
        assert!(made(&put(Some("greedy"), "more", cap()), &rules).is_err());
        assert!(made(&put(Some("greedy"), "r7", cap()), &rules).is_ok(), "it is there");
        assert!(made(&put(Some("greedy"), "stop", Says::Pause), &rules).is_ok());
        assert!(made(&put(Some("other"), "more", cap()), &rules).is_ok());
        for name in ["b", "c", "d", "e"] {
            rules.extend(many(Some(name), 1_000, cap()));
        }
        assert!(made(&put(Some("other"), "more", cap()), &rules).is_err(), "in all");
        assert!(made(&put(Some("other"), "stop", Says::Pause), &rules).is_ok());
        assert!(made(&put(None, "stop", Says::Drain), &rules).is_ok());
        assert!(made(&put(None, "cap", cap()), &rules).is_ok(), "the caretaker has room");
        rules.extend(many(None, 1_000, cap()));
        assert!(made(&put(None, "more", cap()), &rules).is_err());
        rules.extend(many(Some("greedy"), 1_000, Says::Pause));
        assert!(made(&put(Some("greedy"), "stop", Says::Pause), &rules).is_err());
        assert!(made(&put(Some("other"), "stop", Says::Pause), &rules).is_ok());
    }

    #[test]
    fn a_name_of_the_servers_own_is_refused() {
        for owner in [Some("acme"), None] {
            assert!(made(&put(owner, "windlass.mine", cap()), &[]).is_err());
            let about = Scope::queue(Queue::new("windlass.webhooks").unwrap());
            let mut pause = put(owner, "pause windlass.webhooks", Says::Pause);
            pause.scope.queue = about.queue;
            assert!(made(&pause, &[]).is_ok(), "an operator may stop deliveries");
        }
    }
}
