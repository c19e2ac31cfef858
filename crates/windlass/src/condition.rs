//! How an engine is: does its store live, can it be written to, and do its timers go on?
//!
//! Whoever runs an engine as a service has to know, and so does whoever sends it work: an engine that takes jobs and never
//! fires a timer looks well from outside. Whatever passes clears itself; that a store has stopped never passes.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use windlass_store::Error;

/// How an engine is, at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// The store has stopped for good: this process has to open it again, or to end.
    pub stopped: Option<Arc<Error>>,
    /// A commit failed because the disk is full or what is stored cannot be right. One that succeeds clears it, but not
    /// within five seconds: on a full disk a small one may succeed where most fail.
    pub writes: Option<Arc<Error>>,
    /// Timers and recovery cannot look: nothing comes due. They try again until they can, which clears it.
    pub timers: Option<Arc<Error>>,
}

impl Health {
    /// Is there nothing to tell?
    pub fn is_well(&self) -> bool {
        self.stopped.is_none() && self.writes.is_none() && self.timers.is_none()
    }
}

/// A commit that succeeds so soon after one that found the disk full proves nothing.
const SURE_AFTER: Duration = Duration::from_secs(5);

/// What the parts of an engine note about it.
#[derive(Debug)]
pub(crate) struct Condition {
    stopped: watch::Sender<Option<Arc<Error>>>,
    writes: Note,
    timers: Note,
}

/// Something that holds until it does not. Looking whether it is clear takes no lock.
#[derive(Debug, Default)]
struct Note {
    is_set: AtomicBool,
    error: Mutex<Option<(Arc<Error>, Instant)>>,
}

impl Note {
    fn set(&self, error: Arc<Error>) {
        *self.lock() = Some((error, Instant::now()));
        self.is_set.store(true, Ordering::SeqCst);
    }

    fn clear(&self) {
        if self.is_set.swap(false, Ordering::SeqCst) {
            *self.lock() = None;
        }
    }

    /// The same, unless it was set less than so long ago.
    fn clear_after(&self, least: Duration) {
        if !self.is_set.load(Ordering::SeqCst) {
            return;
        }
        let mut error = self.lock();
        if error.as_ref().is_none_or(|(_, since)| since.elapsed() >= least) {
            self.is_set.store(false, Ordering::SeqCst);
            *error = None;
        }
    }

    fn get(&self) -> Option<Arc<Error>> {
        if !self.is_set.load(Ordering::SeqCst) {
            return None;
        }
        self.lock().as_ref().map(|(error, _)| error.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<Error>, Instant)>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Condition {
    fn default() -> Self {
        let (stopped, _) = watch::channel(None);
        Self { stopped, writes: Note::default(), timers: Note::default() }
    }
}

impl Condition {
    pub(crate) fn health(&self) -> Health {
        let stopped = self.stopped.borrow().clone();
        Health { stopped, writes: self.writes.get(), timers: self.timers.get() }
    }

    /// Ready when the store has stopped, and never if it does not.
    pub(crate) async fn stopped(&self) -> Arc<Error> {
        let mut told = self.stopped.subscribe();
        let found = told.wait_for(Option::is_some).await;
        found
            .ok()
            .and_then(|error| error.clone())
            .expect("it waits for one, and we hold the sender")
    }

    /// Whoever asked the store heard this.
    pub(crate) fn heard(&self, error: &Error) {
        match error {
            Error::Stopped(why) => self.stop(Arc::new(Error::Stopped(why.clone()))),
            Error::Damaged(why) => self.not_written(&Arc::new(Error::Damaged(why.clone()))),
            _ => {}
        }
    }

    /// The store has stopped. The first reason counts, and damage that was seen before is the better one.
    pub(crate) fn stop(&self, error: Arc<Error>) {
        let damage = self.writes.get().filter(|error| matches!(**error, Error::Damaged(_)));
        let error = damage.unwrap_or(error);
        self.stopped.send_if_modified(|stopped| {
            let is_first = stopped.is_none();
            stopped.get_or_insert(error);
            is_first
        });
    }

    /// A commit was written.
    pub(crate) fn written(&self) {
        self.writes.clear_after(SURE_AFTER);
    }

    /// A commit failed. What only concerns what it said, or passes by itself, is no matter.
    pub(crate) fn not_written(&self, error: &Arc<Error>) {
        if matches!(**error, Error::DiskFull(_) | Error::Damaged(_)) {
            self.writes.set(error.clone());
        }
    }

    /// The timers have looked.
    pub(crate) fn looked(&self) {
        self.timers.clear();
    }

    /// The timers could not look.
    pub(crate) fn not_looked(&self, error: Arc<Error>) {
        self.timers.set(error);
    }
}

/// Says that the store has stopped if the Committer goes without a word: it panicked.
pub(crate) struct Watch(Option<Arc<Condition>>);

impl Watch {
    pub(crate) fn over(condition: Arc<Condition>) -> Self {
        Self(Some(condition))
    }

    /// It ended, and said how.
    pub(crate) fn ended(mut self, ended: Result<(), Arc<Error>>) {
        if let (Some(condition), Err(error)) = (self.0.take(), ended) {
            condition.stop(error);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(condition) = self.0.take().filter(|_| std::thread::panicking()) {
            condition.stop(Arc::new(Error::Stopped("the committer panicked".to_owned())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(error: Error) -> Arc<Error> {
        Arc::new(error)
    }

    #[tokio::test]
    async fn a_store_stops_once_and_everybody_hears_it() {
        let condition = Arc::new(Condition::default());
        let waiting = tokio::spawn({
            let condition = condition.clone();
            async move { condition.stopped().await }
        });
        tokio::task::yield_now().await;
        condition.stop(error(Error::Stopped("the disk failed".to_owned())));
        condition.stop(error(Error::Stopped("something else".to_owned())));
        let told = waiting.await.unwrap().to_string();
        assert_eq!(told, "the store has stopped: the disk failed");
        assert_eq!(condition.stopped().await.to_string(), told, "also who asks later");
        assert!(!condition.health().is_well());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_disk_is_told_until_something_was_written() {
        let condition = Condition::default();
        condition.not_written(&error(Error::Unavailable("away".into())));
        condition.not_written(&error(Error::Contradiction("one row".into())));
        assert!(condition.health().is_well());
        condition.not_written(&error(Error::DiskFull("full".into())));
        assert_eq!(condition.health().writes.unwrap().code(), "DISK_FULL");
        condition.written();
        assert!(condition.health().writes.is_some(), "one that is small may fit");
        tokio::time::sleep(SURE_AFTER).await;
        condition.written();
        assert!(condition.health().is_well());
    }

    #[test]
    fn a_committer_that_panics_has_stopped_the_store() {
        let condition = Arc::new(Condition::default());
        let watch = Watch::over(condition.clone());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _watch = watch;
            panic!("a defect");
        }));
        assert!(panicked.is_err());
        assert!(condition.health().stopped.is_some());
        // One that is dropped on purpose has not.
        let condition = Arc::new(Condition::default());
        drop(Watch::over(condition.clone()));
        Watch::over(condition.clone()).ended(Ok(()));
        assert!(condition.health().is_well());
    }
}
