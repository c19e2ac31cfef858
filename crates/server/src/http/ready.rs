//! A bell for workers elsewhere: it rings when jobs may have become ready.
//!
//! Whoever hears it claims, and may find nothing: the jobs may be another tenant's, or somebody was faster. It says no
//! more than that something happened. A worker that cannot hear it polls.

use std::time::Duration;

use bytes::Bytes;
use tokio::{sync::mpsc, time::timeout};

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
    loop {
        let rung = async {
            tokio::select! {
                () = ready.rung() => {}
                () = retry_due.rung() => {}
            }
        };
        let is_quiet = tokio::select! {
            biased;
            () = stopped(&mut stopping) => return,
            () = frames.closed() => return,
            waited = timeout(HEARTBEAT, rung) => waited.is_err(),
        };
        if is_quiet && !call.still_allowed().await {
            return;
        }
        if !send(if is_quiet { ": quiet\n\n" } else { "data: ready\n\n" }).await {
            return;
        }
        tokio::time::sleep(APART).await;
    }
}
