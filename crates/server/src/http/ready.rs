//! A bell for workers elsewhere: it rings when jobs may have become ready.
//!
//! Whoever hears it claims, and may find nothing: somebody was faster, or a rule holds the jobs back. It says no more than
//! that something happened, and never that it happened to another tenant. A worker that cannot hear it polls.

use std::time::Duration;

use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use windlass_kernel::State;
use windlass_store::read::{Cursor, JobFilter};

use super::{
    feed::{HEARTBEAT, READER_MAX, event_stream, stopped},
    problem::Problem,
    route::{Answer, Call},
};

/// How far two rings lie apart at the least: what happens in between is one ring.
const APART: Duration = Duration::from_millis(2);

/// `GET /api/v1/ready`
pub(crate) async fn stream(call: Call) -> Result<Answer, Problem> {
    // One that waits is enough: a reader that is slow hears once of all that it missed.
    let (frames, body) = mpsc::channel(1);
    tokio::spawn(follow(call, frames));
    Ok(event_stream(body))
}

/// Rings, until the reader is gone, the server stops or the caller may no longer work.
async fn follow(call: Call, frames: mpsc::Sender<Bytes>) {
    let (mut ready, mut retry_due) = (call.engine().store().ready(), call.engine().retry_due());
    let mut stopping = call.app.stopping.clone();
    let send = async |text: &'static str| {
        let sent = timeout(READER_MAX, frames.send(Bytes::from_static(text.as_bytes()))).await;
        matches!(sent, Ok(Ok(())))
    };
    if !send("retry: 1000\n\n").await {
        return;
    }
    let (mut sent_at, mut allowed_at) = (Instant::now(), Instant::now());
    loop {
        let rung = async {
            tokio::select! {
                () = ready.rung() => Rung::Ready,
                () = retry_due.rung() => Rung::RetryDue,
            }
        };
        let rung = tokio::select! {
            biased;
            () = stopped(&mut stopping) => return,
            () = frames.closed() => return,
            waited = timeout_at(sent_at + HEARTBEAT, rung) => waited.ok(),
        };
        if allowed_at.elapsed() >= HEARTBEAT {
            if !call.still_allowed().await {
                return;
            }
            allowed_at = Instant::now();
        }
        let frame = match rung {
            None => ": quiet\n\n",
            Some(rung) if concerns(&call, rung).await => "data: ready\n\n",
            Some(_) => {
                tokio::time::sleep(APART).await;
                continue;
            }
        };
        if !send(frame).await {
            return;
        }
        sent_at = Instant::now();
        tokio::time::sleep(APART).await;
    }
}

/// What rang.
#[derive(Clone, Copy)]
enum Rung {
    Ready,
    RetryDue,
}

/// Bells ring for everybody. One that is for another tenant alone is not passed on: it would tell what they do.
async fn concerns(call: &Call, rung: Rung) -> bool {
    let (store, scope) = (call.engine().store(), call.scope());
    if scope.tenant().is_none() {
        return true;
    }
    let is_there = match rung {
        Rung::Ready => store.oldest_ready(scope).await.map(|queues| !queues.is_empty()),
        Rung::RetryDue => {
            let states = vec![State::RetryScheduled, State::Queued];
            let filter = JobFilter { states, ..JobFilter::of(scope.clone()) };
            let page = store.jobs(filter, Cursor { from: None, limit: 1 }).await;
            // A page that ends early has not seen everything.
            page.map(|page| !page.items.is_empty() || page.next.is_some())
        }
    };
    // A store that does not answer is no reason to leave somebody asleep.
    is_there.unwrap_or(true)
}
