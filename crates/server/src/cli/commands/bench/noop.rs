//! The no-op job that is measured, and the writes that take it through its life.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use windlass::Ids;
use windlass_kernel::{
    Actor, By, Kind, LimitKey, Payload, Principal, TenantId,
    ops::{Enqueue, NewJob},
};
use windlass_store::Write;

/// What a small job carries. The rows of the yardstick have it too.
pub(super) const PAYLOAD: &str = r#"{"n":1,"to":"someone@example.com","template":"welcome-back"}"#;

/// Its kind.
pub(super) const KIND: &str = "noop";

pub(super) struct Noop {
    /// Jobs belong to them in turn.
    tenants: Vec<TenantId>,
    /// And have these keys in turn.
    keys: Vec<LimitKey>,
    made: AtomicUsize,
    kind: Kind,
    by: By,
    ids: Ids,
}

impl Noop {
    /// Jobs of so many tenants, with so many keys.
    pub(super) fn spread(tenants: u64, keys: u64) -> Self {
        let tenant = |number| match number {
            0 => TenantId::new("default"),
            number => TenantId::new(format!("tenant-{number}")),
        };
        let key = |number| LimitKey::new(format!("key-{number}")).expect("it is a name");
        Self {
            tenants: (0..tenants).map(|number| tenant(number).expect("it is a name")).collect(),
            keys: (0..keys).map(key).collect(),
            made: AtomicUsize::new(0),
            kind: Kind::new(KIND).expect("it is a name"),
            by: Actor::User(Principal::new("bench").expect("it is a name")).into(),
            ids: Ids::system(),
        }
    }

    /// Jobs that are in the way of others.
    pub(super) fn of_another_tenant() -> Self {
        let tenants = vec![TenantId::new("another").expect("it is a name")];
        Self { tenants, ..Self::spread(1, 0) }
    }

    /// A new job, made as a caller makes it: with ids of its own, and a payload that is parsed.
    pub(super) fn enqueue(&self) -> Enqueue {
        let payload = Payload::parse(PAYLOAD, PAYLOAD.len()).expect("it is JSON");
        let made = self.made.fetch_add(1, Relaxed);
        let mut new = NewJob::new(self.kind.clone(), payload);
        if !self.keys.is_empty() {
            new.limit_key = Some(self.keys[made % self.keys.len()].clone());
        }
        Enqueue {
            job_id: self.ids.job_id(),
            tenant: self.tenants[made % self.tenants.len()].clone(),
            new: Box::new(new),
            random: self.ids.random(),
            by: self.by.clone(),
        }
    }

    /// The same as a write.
    pub(super) fn write(op: Enqueue) -> Write {
        Write::Op { tenant: op.tenant.clone(), op: op.into() }
    }
}
