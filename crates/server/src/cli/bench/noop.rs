//! The no-op job that is measured, and the writes that take it through its life.

use windlass::Ids;
use windlass_kernel::{
    Actor, By, Kind, Payload, Principal, TenantId,
    ops::{Enqueue, NewJob},
};
use windlass_store::Write;

/// What a small job carries. The rows of the yardstick have it too.
pub(super) const PAYLOAD: &str = r#"{"n":1,"to":"someone@example.com","template":"welcome-back"}"#;

/// Its kind.
pub(super) const KIND: &str = "noop";

pub(super) struct Noop {
    tenant: TenantId,
    kind: Kind,
    by: By,
    ids: Ids,
}

impl Noop {
    pub(super) fn new() -> Self {
        Self {
            tenant: TenantId::new("default").expect("it is a name"),
            kind: Kind::new(KIND).expect("it is a name"),
            by: Actor::User(Principal::new("bench").expect("it is a name")).into(),
            ids: Ids::system(),
        }
    }

    /// A new job, made as a caller makes it: with ids of its own, and a payload that is parsed.
    pub(super) fn enqueue(&self) -> Enqueue {
        let payload = Payload::parse(PAYLOAD, PAYLOAD.len()).expect("it is JSON");
        Enqueue {
            job_id: self.ids.job_id(),
            tenant: self.tenant.clone(),
            new: Box::new(NewJob::new(self.kind.clone(), payload)),
            random: self.ids.random(),
            by: self.by.clone(),
        }
    }

    pub(super) fn op(&self, op: impl Into<windlass_kernel::Op>) -> Write {
        Write::Op { tenant: self.tenant.clone(), op: op.into() }
    }
}
