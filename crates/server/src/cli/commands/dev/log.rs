//! What happens, line by line, from the feed of this process.
//!
//! Always true here: no more than some tens of lines a second for people, however much happens. What is passed over is
//! counted and said, and costs nothing: the log goes on at the end of the feed. A program is given every event.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anstyle::{AnsiColor, Style};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use windlass::Engine;
use windlass_kernel::{JobId, Timestamp};
use windlass_store::{
    Error,
    read::{FeedEvent, Scope},
};

use super::{
    line::{self, Known},
    resumed::Resumed,
};
use crate::{
    cli::{
        Output,
        look::{
            count::grouped,
            terminal::print,
            view::{DIM, View},
        },
        serving::Serving,
    },
    executors::stopped,
    http::{self, App},
};

/// What should not be overlooked.
pub(super) const LOUD: Style =
    Style::new().bold().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));

/// The most lines of a second.
const LINES_MAX: u32 = 40;
/// How many rows of the feed are read at once: each may hold many events.
const ROWS: u32 = 2;
/// How many events before the end of the feed it begins: what a start brings may be there before the log is.
const BEFORE: u64 = 500;
/// How many jobs are remembered.
const KNOWN_MAX: usize = 2_000;

/// Follows the feed.
pub(super) struct Log {
    app: Arc<App>,
    view: View,
    began_at: Timestamp,
    known: HashMap<JobId, Known>,
    workers: Vec<String>,
    resumed: Resumed,
    /// Lines that this second still has.
    left: u32,
    second: Instant,
}

impl Log {
    pub(super) fn new(serving: &Serving, view: View, began_at: Timestamp) -> Self {
        Self {
            app: serving.app.clone(),
            view,
            began_at,
            known: HashMap::new(),
            workers: Vec::new(),
            resumed: Resumed::new(began_at),
            left: LINES_MAX,
            second: Instant::now(),
        }
    }

    fn engine(&self) -> &Engine {
        &self.app.engine
    }

    /// The number of the newest event.
    async fn feed_end(&self) -> Result<u64, Error> {
        self.engine().own_store()?.feed_end().await
    }

    /// Follows until the last worker has ended, and tells what that brought.
    pub(super) async fn run(mut self, mut closing: watch::Receiver<bool>) {
        let mut tail = self.app.tail.follow();
        let mut after = match self.feed_end().await {
            Ok(end) => end.saturating_sub(BEFORE),
            Err(_) => return,
        };
        loop {
            tail.mark_unchanged();
            after = self.step(after).await;
            tokio::select! {
                biased;
                () = stopped(&mut closing) => break,
                _ = timeout(Duration::from_millis(100), tail.changed()) => {}
            }
        }
        self.step(after).await;
    }

    /// Tells what is new, and says how far it came.
    async fn step(&mut self, after: u64) -> u64 {
        if self.second.elapsed() >= Duration::from_secs(1) {
            (self.second, self.left) = (Instant::now(), LINES_MAX);
            self.greet();
        }
        let (mut after, began_at) = (after, self.began_at);
        while self.left > 0 {
            let feed = async { self.engine().own_store()?.feed(&Scope::Every, after, ROWS).await };
            let feed = match feed.await {
                Ok(feed) => feed,
                Err(Error::FeedGone { from }) => {
                    after = from.saturating_sub(1);
                    continue;
                }
                Err(_) => break,
            };
            for told in feed.events.iter().filter(|told| told.at >= began_at) {
                self.tell(told).await;
                if self.left == 0 {
                    return self.pass_over(told.number).await;
                }
            }
            if feed.upto <= after {
                break;
            }
            after = feed.upto;
        }
        if self.resumed.is_due() {
            let engine = self.engine().clone();
            let known = self.known.clone();
            for line in self.resumed.tell(&engine, |id| known.get(&id).cloned()).await {
                self.print(&line);
            }
        }
        after
    }

    /// Waits until this second is over, says how many were not told, and goes on at the end.
    async fn pass_over(&mut self, after: u64) -> u64 {
        tokio::time::sleep_until(self.second + Duration::from_secs(1)).await;
        let end = self.feed_end().await.unwrap_or(after);
        if end > after {
            print(&format!("{DIM}… and {} more events{DIM:#}\n", grouped(end - after)));
        }
        end.max(after)
    }

    async fn tell(&mut self, told: &FeedEvent) {
        if !matches!(self.view.output, Output::Table) {
            // A program is given everything.
            let spec = match told.event() {
                Some(event) => self.engine().store().job(&Scope::Every, event.job_id).await.ok(),
                None => None,
            };
            let spec = spec.flatten().map(|job| job.spec);
            if let Some(document) = http::tell(told, None, spec.as_deref()) {
                print(&format!("{document}\n"));
            }
            return;
        }
        let line = match told.event() {
            Some(event) => {
                self.resumed.see(&event);
                let known = self.known(event.job_id).await;
                line::of_event(&event, known.as_ref(), &self.view)
            }
            None => line::of_note(told, &self.view),
        };
        if let Some(line) = line {
            self.print(&line);
        }
    }

    fn print(&mut self, line: &str) {
        self.left = self.left.saturating_sub(1);
        print(&format!("{line}\n"));
    }

    /// What the events of a job do not say.
    async fn known(&mut self, id: JobId) -> Option<Known> {
        if let Some(known) = self.known.get(&id) {
            return Some(known.clone());
        }
        let job = self.engine().store().job(&Scope::Every, id).await.ok().flatten()?;
        let spec = &job.spec;
        let (kind, queue) = (spec.kind.to_string(), spec.queue.to_string());
        let known = Known { kind, queue, due_at: spec.due_at };
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(id, known.clone());
        Some(known)
    }

    /// Says which workers have come from outside.
    fn greet(&mut self) {
        if !self.view.is_for_people() {
            return;
        }
        for (worker, queues) in self.app.listening.workers() {
            if !self.workers.contains(&worker) && self.left > 0 {
                self.print(&format!("{LOUD}+ worker {worker} is connected: {queues}{LOUD:#}"));
                self.workers.push(worker);
            }
        }
    }
}
