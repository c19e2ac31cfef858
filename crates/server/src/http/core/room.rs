//! Waiting rooms: where calls wait that found nothing to claim.
//!
//! Those who want the same wait in one room. When something of a tenant becomes ready, one of each of its rooms is told,
//! the longest first; whoever got something tells the next, because there may be more. So a job wakes as many callers
//! as there are jobs, and not all that wait, and nobody who waits for another tenant's.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use windlass::Engine;
use windlass_kernel::{Kind, Queue, TenantId};

/// Who wants the same of a tenant, or of all: queues and kinds.
pub(crate) type Wants = (Vec<Queue>, Vec<Kind>);

/// The rooms of a tenant.
type OfTenant = HashMap<Wants, Weak<Notify>>;

/// All rooms of a server.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    rooms: Mutex<HashMap<Option<TenantId>, OfTenant>>,
}

impl Rooms {
    /// How long a room is silent at the most: the net below the bells.
    const POLL: Duration = Duration::from_secs(2);

    /// The room of those who want this of a tenant, or of all. It is there as long as somebody has it.
    pub(crate) fn enter(&self, tenant: Option<&TenantId>, wants: Wants) -> Arc<Notify> {
        let mut rooms = self.rooms.lock().expect("nobody panics with it");
        let rooms = rooms.entry(tenant.cloned()).or_default();
        if let Some(room) = rooms.get(&wants).and_then(Weak::upgrade) {
            return room;
        }
        let room = Arc::new(Notify::new());
        rooms.insert(wants, Arc::downgrade(&room));
        room
    }

    /// Tells one caller of each room of a tenant that there may be something.
    pub(crate) fn tell(&self, tenant: &TenantId) {
        self.tell_if(|of| of == Some(tenant));
    }

    fn tell_if(&self, is_meant: impl Fn(Option<&TenantId>) -> bool) {
        let mut rooms = self.rooms.lock().expect("nobody panics with it");
        rooms.retain(|tenant, rooms| {
            if is_meant(tenant.as_ref()) {
                rooms.retain(|_, room| match room.upgrade() {
                    Some(room) => {
                        room.notify_one();
                        true
                    }
                    None => false,
                });
            }
            !rooms.is_empty()
        });
    }

    /// Tells those who wait for the jobs of every tenant whenever something may have become ready, and all of them now
    /// and then, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, engine: Engine) {
        let (mut ready, mut retry_due) = (engine.store().ready(), engine.retry_due());
        let mut poll_at = Instant::now() + Self::POLL;
        loop {
            tokio::select! {
                () = ready.rung() => self.tell_if(|tenant| tenant.is_none()),
                () = retry_due.rung() => self.tell_if(|tenant| tenant.is_none()),
                () = tokio::time::sleep_until(poll_at) => {
                    self.tell_if(|_| true);
                    poll_at = Instant::now() + Self::POLL;
                }
            }
        }
    }
}
