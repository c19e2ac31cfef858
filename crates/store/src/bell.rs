//! A bell: whoever listens hears that it was rung since it last heard it, however often.
//!
//! Those who wait are woken in the order in which they began to, always. (Tokio's `watch` wakes them in a random
//! order, and a simulation of several nodes in one thread could not be repeated.)

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

/// What is rung. Clones are the same bell.
#[derive(Clone, Debug, Default)]
pub struct Bell {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rings: AtomicU64,
    waiting: Notify,
}

impl Bell {
    /// Rings it.
    pub fn ring(&self) {
        self.inner.rings.fetch_add(1, Ordering::SeqCst);
        self.inner.waiting.notify_waiters();
    }

    /// How often it was rung.
    #[cfg(test)]
    pub(crate) fn rings(&self) -> u64 {
        self.inner.rings.load(Ordering::SeqCst)
    }

    /// Does anybody listen, or could anybody else ring it?
    pub fn is_heard(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// One who hears of what is rung from now on.
    pub fn listen(&self) -> Listener {
        let mut listener = Listener { bell: self.inner.clone(), heard: 0 };
        listener.mark_heard();
        listener
    }
}

/// One who listens to a bell.
#[derive(Debug)]
pub struct Listener {
    bell: Arc<Inner>,
    heard: u64,
}

impl Listener {
    /// Was it rung since it was last heard?
    pub fn is_rung(&self) -> bool {
        self.bell.rings.load(Ordering::SeqCst) != self.heard
    }

    /// What was rung so far is heard.
    pub fn mark_heard(&mut self) {
        self.heard = self.bell.rings.load(Ordering::SeqCst);
    }

    /// Waits until it is rung, unless it was since it was last heard.
    pub async fn rung(&mut self) {
        let bell = self.bell.clone();
        loop {
            let mut waiting = pin!(bell.waiting.notified());
            // From here on it hears; what was rung before is in the count.
            waiting.as_mut().enable();
            if self.is_rung() {
                return self.mark_heard();
            }
            waiting.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{runtime::Builder, task::yield_now};

    use super::*;

    #[test]
    fn what_was_rung_before_is_heard_once() {
        let bell = Bell::default();
        let mut listener = bell.listen();
        assert!(!listener.is_rung());
        bell.ring();
        bell.ring();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(listener.rung());
        assert!(!listener.is_rung());
        assert!(!bell.listen().is_rung(), "what was rung before it listened is not its concern");
    }

    #[test]
    fn those_who_wait_are_woken_in_the_order_in_which_they_began() {
        let runtime = Builder::new_current_thread().build().unwrap();
        for _ in 0..100 {
            let bell = Bell::default();
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            runtime.block_on(async {
                let waiting: Vec<_> = (0..9)
                    .map(|number| {
                        let (mut listener, order) = (bell.listen(), order.clone());
                        tokio::spawn(async move {
                            listener.rung().await;
                            order.lock().unwrap().push(number);
                        })
                    })
                    .collect();
                yield_now().await;
                bell.ring();
                for task in waiting {
                    task.await.unwrap();
                }
            });
            assert_eq!(*order.lock().unwrap(), (0..9).collect::<Vec<_>>());
        }
    }
}
