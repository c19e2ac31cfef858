//! Waiting rooms: where calls wait that found nothing to claim.
//!
//! Those who want the same wait in one room. When something becomes ready, one of each room is told, the longest
//! first; whoever got something tells the next, because there may be more. So a job wakes as many callers as there
//! are jobs, and not all that wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use windlass::Engine;

/// Who wants the same: tenant, queues and kinds.
pub(crate) type Wants = (Option<String>, Vec<String>, Vec<String>);

/// All rooms of a server.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    rooms: Mutex<HashMap<Wants, Weak<Notify>>>,
}

impl Rooms {
    /// How long a room is silent at the most: the net below the bells.
    const POLL: Duration = Duration::from_secs(2);

    /// The room of those who want this. It is there as long as somebody has it.
    pub(crate) fn enter(&self, wants: Wants) -> Arc<Notify> {
        let mut rooms = self.rooms.lock().expect("nobody panics with it");
        if let Some(room) = rooms.get(&wants).and_then(Weak::upgrade) {
            return room;
        }
        let room = Arc::new(Notify::new());
        rooms.insert(wants, Arc::downgrade(&room));
        room
    }

    /// Tells one caller of each room that there may be something.
    fn tell_all(&self) {
        let mut rooms = self.rooms.lock().expect("nobody panics with it");
        rooms.retain(|_, room| match room.upgrade() {
            Some(room) => {
                room.notify_one();
                true
            }
            None => false,
        });
    }

    /// Tells whenever something may have become ready, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, engine: Engine) {
        let (mut ready, mut retry_due) = (engine.store().ready(), engine.retry_due());
        loop {
            let poll_at = Instant::now() + Self::POLL;
            tokio::select! {
                () = ready.rung() => ready.mark_heard(),
                () = retry_due.rung() => retry_due.mark_heard(),
                () = tokio::time::sleep_until(poll_at) => {}
            }
            self.tell_all();
        }
    }
}
