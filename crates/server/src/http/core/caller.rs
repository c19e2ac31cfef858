//! Who calls: a principal with a role, for one tenant or for all.
//!
//! Everything that says who somebody is comes from here. Without tokens there is one caller, who may do everything:
//! that is for a server that only this machine can reach.

use windlass_kernel::{
    Actor, By, Principal, TenantId, Token, TraceId, holder::Holder, token::Role,
};
use windlass_store::read::Scope;

use crate::http::core::problem::Problem;

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    /// Whose things they can see.
    pub(crate) scope: Scope,
    /// What they may do.
    pub(crate) role: Role,
    /// Did they bring a token? Without one there is one caller, whatever it calls itself.
    pub(crate) has_token: bool,
}

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: anybody may call it, with a token or without.
    Open,
    /// To see.
    Read,
    /// To make jobs.
    Enqueue,
    /// To run them.
    Work,
    /// To act on what is there.
    Operate,
    /// To say who may do what.
    Admin,
}

impl Access {
    /// The roles that may call it.
    pub(crate) const fn roles(self) -> &'static [Role] {
        match self {
            Access::Open | Access::Read => {
                &[Role::Viewer, Role::Worker, Role::Operator, Role::Admin]
            }
            Access::Enqueue => &[Role::Worker, Role::Operator, Role::Admin],
            Access::Work => &[Role::Worker, Role::Admin],
            Access::Operate => &[Role::Operator, Role::Admin],
            Access::Admin => &[Role::Admin],
        }
    }
}

impl Caller {
    /// May they? If not, it says who may.
    pub(crate) fn check(&self, access: Access) -> Result<(), Problem> {
        let roles = access.roles();
        if roles.contains(&self.role) {
            return Ok(());
        }
        let names: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        let detail = format!("a {} may not do this; {} may", self.role.as_str(), names.join(", "));
        Err(Problem::forbidden(detail))
    }

    /// The tenant for which something new is made.
    pub(crate) fn tenant(&self) -> Result<&TenantId, Problem> {
        match &self.scope {
            Scope::Of(tenant) => Ok(tenant),
            Scope::Every => Err(Problem::forbidden(
                "a token for every tenant makes nothing new: use a token of the tenant that it is for",
            )),
        }
    }

    /// To whom the leases belong that they claim; to nobody, if they brought no token.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let tenant = self.scope.tenant().map_or(Token::EVERY_TENANT, TenantId::as_str);
        self.has_token.then(|| Holder::new(tenant, &self.principal))
    }

    /// They, as whoever writes about a lease without a word about which of their workers they are.
    pub(crate) fn as_worker(&self) -> Actor {
        match self.holder() {
            Some(holder) => Actor::Worker(holder.any_session()),
            None => Actor::User(self.principal.clone()),
        }
    }

    /// They, in a request with this trace.
    pub(crate) fn by(&self, trace: Option<&TraceId>) -> By {
        By { actor: Actor::User(self.principal.clone()), trace_id: trace.cloned() }
    }
}
