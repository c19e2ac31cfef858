//! Scope: what a rule applies to, and which part of it each job belongs to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Kind, Lane, Queue, TenantId, admit::Head, machine::words};

/// What a rule applies to: everything that agrees with all that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// This queue only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// This tenant only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// These kinds only; all, if none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
}

impl Scope {
    /// The most kinds that it can name.
    pub const KINDS_MAX: usize = 100;

    /// Everything in one queue.
    pub fn queue(queue: Queue) -> Self {
        Self { queue: Some(queue), ..Self::default() }
    }

    /// Everything of one tenant.
    pub fn tenant(tenant: TenantId) -> Self {
        Self { tenant: Some(tenant), ..Self::default() }
    }

    /// Everything of one kind.
    pub fn kind(kind: Kind) -> Self {
        Self { kinds: vec![kind], ..Self::default() }
    }

    /// Does it apply to jobs of this queue, tenant and kind?
    pub fn covers(&self, queue: &Queue, tenant: &TenantId, kind: &Kind) -> bool {
        self.queue.as_ref().is_none_or(|named| named == queue)
            && self.tenant.as_ref().is_none_or(|named| named == tenant)
            && (self.kinds.is_empty() || self.kinds.contains(kind))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.queue.as_ref().map(|queue| format!("queue {queue}")));
        parts.extend(self.tenant.as_ref().map(|tenant| format!("tenant {tenant}")));
        parts.extend(self.kinds.iter().map(|kind| format!("kind {kind}")));
        f.write_str(if parts.is_empty() { "everything" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

words!(
    /// Whether a rule counts all that it covers together, or each part by itself.
    Each {
        /// All together.
        Together = "together",
        /// Each tenant by itself.
        Tenant = "tenant",
        /// Each queue by itself.
        Queue = "queue",
        /// Each kind by itself.
        Kind = "kind",
        /// Each key of a tenant by itself. A job without a key is not covered.
        Key = "key",
    }
);

/// One part of what a rule covers, which it counts by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All of it.
    All,
    /// This tenant.
    Tenant(TenantId),
    /// This queue.
    Queue(Queue),
    /// This kind.
    Kind(Kind),
    /// This key.
    Key(Lane),
}

impl Part {
    /// The part that jobs like this belong to; none, if the rule does not cover them.
    pub fn of(
        each: Each,
        queue: &Queue,
        tenant: &TenantId,
        kind: &Kind,
        lane: Lane,
    ) -> Option<Self> {
        Some(match each {
            Each::Together => Part::All,
            Each::Tenant => Part::Tenant(tenant.clone()),
            Each::Queue => Part::Queue(queue.clone()),
            Each::Kind => Part::Kind(kind.clone()),
            Each::Key if lane == Lane::NONE => return None,
            Each::Key => Part::Key(lane),
        })
    }

    /// The part that a head belongs to.
    pub(crate) fn of_head(each: Each, head: &Head<'_>) -> Option<Self> {
        Self::of(each, head.queue, head.tenant, head.kind, head.lane)
    }

    /// How it stands in a row.
    pub fn as_text(&self) -> String {
        match self {
            Part::All => String::new(),
            Part::Tenant(tenant) => tenant.to_string(),
            Part::Queue(queue) => queue.to_string(),
            Part::Kind(kind) => kind.to_string(),
            Part::Key(lane) => lane.get().to_string(),
        }
    }

    /// Reads it back.
    pub fn parse(each: Each, text: &str) -> Option<Self> {
        Some(match each {
            Each::Together => Part::All,
            Each::Tenant => Part::Tenant(text.parse().ok()?),
            Each::Queue => Part::Queue(text.parse().ok()?),
            Each::Kind => Part::Kind(text.parse().ok()?),
            Each::Key => Part::Key(Lane::new(text.parse().ok()?)),
        })
    }
}
