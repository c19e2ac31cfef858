//! What a start found of the last process: jobs that were cut off, and that run again.
//!
//! Only what was seen is told: a job counts as resumed when it was claimed anew, under an epoch of its own, and started.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use windlass::Engine;
use windlass_kernel::{Cause, Epoch, Event, JobId, Timestamp};
use windlass_store::read::Scope;

use crate::{
    cli::{commands::dev::line::Known, look::view::DIM},
    demo::{self, Done},
};

/// How long after its start a process looks.
const WINDOW: Duration = Duration::from_secs(30);
/// Whoever has not started by then is said to wait.
const PATIENCE: Duration = Duration::from_secs(3);
/// What comes together is told together.
const TOGETHER: Duration = Duration::from_millis(200);

/// What has been seen so far.
pub(super) struct Resumed {
    began_at: Timestamp,
    /// Cut off, and not running again.
    waiting: BTreeSet<JobId>,
    /// Running again, under this epoch.
    running: BTreeMap<JobId, Epoch>,
    changed: Instant,
    is_told: bool,
}

impl Resumed {
    pub(super) fn new(began_at: Timestamp) -> Self {
        Self {
            began_at,
            waiting: BTreeSet::new(),
            running: BTreeMap::new(),
            changed: Instant::now(),
            is_told: false,
        }
    }

    /// Looks at what happens.
    pub(super) fn see(&mut self, event: &Event) {
        if self.is_told || event.at.since(self.began_at) > WINDOW {
            return;
        }
        let id = event.job_id;
        let changes = match event.cause {
            Cause::ProcessRestart | Cause::RecoveryResume => self.waiting.insert(id),
            Cause::Started if self.waiting.remove(&id) => {
                self.running.insert(id, event.epoch);
                true
            }
            _ => false,
        };
        if changes {
            self.changed = Instant::now();
        }
    }

    /// Is it time to tell?
    pub(super) fn is_due(&self) -> bool {
        let quiet = self.changed.elapsed();
        let all = self.waiting.is_empty() && !self.running.is_empty() && quiet >= TOGETHER;
        !self.is_told && (all || !self.waiting.is_empty() && quiet >= PATIENCE)
    }

    /// What was seen, in a few lines.
    pub(super) async fn tell(
        &mut self,
        engine: &Engine,
        known: impl Fn(JobId) -> Option<Known>,
    ) -> Vec<String> {
        self.is_told = true;
        let (running, waiting) = (self.running.len(), self.waiting.len());
        let mut lines = Vec::new();
        for (id, epoch) in self.running.iter().take(5) {
            let kind = known(*id).map_or_else(|| "a job".to_owned(), |known| known.kind);
            let progress = engine.store().progress(&Scope::Every, *id).await.ok().flatten();
            let done = progress.and_then(|it| serde_json::from_str::<Done>(&it.value).ok());
            let place = match done.filter(|_| kind == demo::IMPORT) {
                Some(done) => format!("; its handler saved step {} of {}", done.step, done.of),
                None => String::new(),
            };
            lines.push(format!(
                "{DIM}  {kind} {id} was cut off, and runs again under epoch {epoch}{place}{DIM:#}"
            ));
        }
        let jobs =
            |count: usize| if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
        let wait = if waiting == 1 {
            "1 waits for a worker".to_owned()
        } else {
            format!("{waiting} wait for a worker")
        };
        let first = match (running, waiting) {
            (0, _) => format!("{} cut off when the last process ended: {wait}", jobs(waiting)),
            (_, 0) => format!("resumed {}", jobs(running)),
            (_, _) => format!("resumed {}; {wait}", jobs(running)),
        };
        lines.insert(0, format!("{}↻ {first}{:#}", super::log::LOUD, super::log::LOUD));
        lines
    }
}
