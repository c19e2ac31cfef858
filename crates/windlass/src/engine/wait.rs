//! Waiting for a job's end.
//!
//! Whoever waits is told by whatever in this process brings the job to its end. Another process may do that
//! too, so everyone who waits also looks by itself, less and less often.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::de::DeserializeOwned;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use windlass_kernel::{Job, JobId, State};
use windlass_store::read::Scope;

use super::Inner;
use crate::Error;

/// How a job ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The job as it stands for ever.
    pub job: Job,
    /// What its handler gave back, as JSON.
    pub result: Option<String>,
    /// What its handler says is left to do, as JSON, if it ended in part.
    pub remaining: Option<String>,
}

impl Ended {
    /// Did it do what it was to do?
    pub fn is_success(&self) -> bool {
        self.job.state == State::Succeeded
    }

    /// What its handler gave back. A handler that gives nothing back gives `()`.
    pub fn result<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let text = self.result.as_deref().unwrap_or("null");
        serde_json::from_str(text).map_err(|source| Error::Json { what: "the result", source })
    }
}

/// Those who wait, by job.
#[derive(Debug, Default)]
pub(super) struct Ends {
    waiting: Mutex<BTreeMap<JobId, Arc<Notify>>>,
    /// How many there are, so that those who bring jobs to their ends mostly need no lock.
    count: AtomicUsize,
}

impl Ends {
    /// A job came to its end.
    pub(super) fn tell(&self, job_id: JobId) {
        if self.count.load(Ordering::SeqCst) > 0
            && let Some(waiting) = self.waiting().get(&job_id)
        {
            waiting.notify_waiters();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<JobId, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits. Dropping it takes it off the list, if nobody else waits for the same job.
struct Waiting<'a> {
    ends: &'a Ends,
    job_id: JobId,
    notify: Arc<Notify>,
}

impl<'a> Waiting<'a> {
    fn new(ends: &'a Ends, job_id: JobId) -> Self {
        let mut waiting = ends.waiting();
        let notify = waiting.entry(job_id).or_default().clone();
        ends.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        Self { ends, job_id, notify }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.ends.waiting();
        // The list has one and this has one.
        if Arc::strong_count(&self.notify) <= 2 {
            waiting.remove(&self.job_id);
        }
        self.ends.count.store(waiting.len(), Ordering::SeqCst);
    }
}

/// How soon someone who waits looks by itself, at first and later.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_LATER: Duration = Duration::from_millis(500);

pub(super) async fn wait(inner: &Inner, scope: &Scope, id: JobId) -> Result<Ended, Error> {
    let waiting = Waiting::new(&inner.ends, id);
    let mut pause = LOOK_FIRST;
    loop {
        let told = waiting.notify.notified();
        tokio::pin!(told);
        // From here on it hears what is told, also while it looks.
        told.as_mut().enable();
        let job = match inner.store.job(scope, id).await {
            Ok(job) => job,
            // The store is away, and will be back.
            Err(error) if error.info().retryable => {
                sleep(pause).await;
                pause = (pause * 2).min(LOOK_LATER);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let job = job.ok_or(Error::NoJob(id))?;
        if job.state.is_end() {
            let last = inner.store.last_output(scope, id).await?;
            let last = last.filter(|output| output.attempt == job.attempt);
            let (result, remaining) = last.map_or((None, None), |it| (it.result, it.remaining));
            return Ok(Ended { job, result, remaining });
        }
        let _ = timeout(pause, told).await;
        pause = (pause * 2).min(LOOK_LATER);
    }
}
