//! The end of the feed: one look for all who follow it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use windlass::Engine;

/// How far the feed goes, as far as is known.
#[derive(Debug)]
pub(crate) struct Tail {
    upto: watch::Sender<u64>,
}

impl Default for Tail {
    fn default() -> Self {
        Self { upto: watch::channel(0).0 }
    }
}

impl Tail {
    /// How often it looks while somebody follows.
    const LOOK: Duration = Duration::from_millis(50);

    /// Changes whenever there is more.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.upto.subscribe()
    }

    /// Looks, until it is dropped. What it costs does not grow with those who follow.
    pub(crate) async fn run(self: Arc<Self>, engine: Engine) {
        let mut upto = 0;
        loop {
            if self.upto.receiver_count() > 0 {
                let found = engine.store().feed_end().await.unwrap_or(upto);
                if found > upto {
                    upto = found;
                    self.upto.send_replace(upto);
                }
            }
            tokio::time::sleep(Self::LOOK).await;
        }
    }
}
