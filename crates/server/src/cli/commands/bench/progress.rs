//! How far a benchmark is: a bar for people, and the place where an interrupt stops it.
//!
//! Every loop passes through [`Progress::add`], so every loop ends soon after Ctrl-C, by the way of errors:
//! stores are closed and temporary files deleted as at any other end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use indicatif::ProgressBar;
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

use super::error::Error;
use crate::cli::look::progress;

/// Clones show and stop the same work. When the last one goes, nothing is left on the screen.
#[derive(Clone)]
pub(super) struct Progress {
    bar: ProgressBar,
    stopped: Arc<AtomicBool>,
}

impl Progress {
    /// A bar on stderr, if a person looks at it.
    pub(super) fn new() -> Self {
        let bar = progress::bar("{msg:>24} [{bar:40}] {human_pos} of {human_len}");
        Self { bar, stopped: Arc::default() }
    }

    /// Begins something that takes so many steps.
    pub(super) fn begin(&self, what: &'static str, steps: u64) {
        self.bar.reset();
        self.bar.set_length(steps);
        self.bar.set_message(what);
    }

    /// So many steps were done. Fails if the person wants no more.
    pub(super) fn add(&self, steps: u64) -> Result<(), Error> {
        self.bar.inc(steps);
        if self.stopped.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Ctrl-C, or a polite kill, stops the work from now on.
    pub(super) fn stop_on_signal(&self, runtime: &Runtime) -> Result<(), Error> {
        let _inside = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Runtime)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Runtime)?;
        let stopped = self.stopped.clone();
        runtime.spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            stopped.store(true, Ordering::Relaxed);
        });
        Ok(())
    }
}
