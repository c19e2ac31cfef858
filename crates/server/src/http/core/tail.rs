//! The end of the feed: one look for all who follow it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use windlass::Engine;

use crate::http::core::pages::Pages;

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

    /// Looks, until it is dropped. What it costs does not grow with those who follow. A feed that ends before where it was
    /// seen to end is another one, after a failover that lost commits: what was read of the old one is not told any more.
    pub(crate) async fn run(self: Arc<Self>, engine: Engine, pages: Arc<Pages>) {
        let mut upto = 0;
        loop {
            if self.upto.receiver_count() > 0 {
                let end = async { engine.own_store()?.feed_end().await };
                let found = end.await.unwrap_or(upto);
                if found < upto {
                    pages.clear();
                }
                if found != upto {
                    upto = found;
                    self.upto.send_replace(upto);
                }
            }
            tokio::time::sleep(Self::LOOK).await;
        }
    }
}
