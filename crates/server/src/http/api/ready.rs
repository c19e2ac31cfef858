//! A bell for workers elsewhere: it rings when jobs may have become ready.
//!
//! Whoever hears it claims, and may find nothing: somebody was faster, or a rule holds the jobs back. It says no more than
//! that something happened, and never that it happened to another tenant. A worker that cannot hear it polls.

use std::time::Duration;

use crate::http::{
    api::feed::{HEARTBEAT, READER_MAX, event_stream, stopped},
    core::{
        problem::Problem,
        route::{Answer, Call},
        streams::StreamPlace,
    },
};
use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

/// How far two rings lie apart at the least for those who work for every tenant.
const APART: Duration = Duration::from_millis(2);

/// `GET /api/v1/ready`
pub(crate) async fn stream(call: Call) -> Result<Answer, Problem> {
    let place = call.app.streams.enter(call.scope())?;
    // One that waits is enough: a reader that is slow hears once of all that it missed.
    let (frames, body) = mpsc::channel(1);
    tokio::spawn(follow(call, place, frames));
    Ok(event_stream(body))
}

/// Rings, until the reader is gone, the server stops or the caller may no longer work.
async fn follow(call: Call, place: StreamPlace, frames: mpsc::Sender<Bytes>) {
    let _place = place;
    let tenant = call.scope().tenant();
    let bell = tenant.map(|tenant| call.app.bells.of(call.engine(), tenant));
    let _stream = bell.as_ref().map(|bell| bell.stream());
    let mut ready = match &bell {
        Some(bell) => bell.listen(),
        // Whoever works for every tenant hears everything.
        None => call.engine().store().ready(),
    };
    let mut retry_due = bell.is_none().then(|| call.engine().retry_due());
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
        let retry = async {
            match &mut retry_due {
                Some(retry_due) => retry_due.rung().await,
                None => std::future::pending().await,
            }
        };
        let rung = async {
            tokio::select! {
                () = ready.rung() => {}
                () = retry => {}
            }
        };
        let is_rung = tokio::select! {
            biased;
            () = stopped(&mut stopping) => return,
            () = frames.closed() => return,
            waited = timeout_at(sent_at + HEARTBEAT, rung) => waited.is_ok(),
        };
        if allowed_at.elapsed() >= HEARTBEAT {
            if !call.still_allowed().await {
                return;
            }
            allowed_at = Instant::now();
        }
        if !send(if is_rung { "data: ready\n\n" } else { ": quiet\n\n" }).await {
            return;
        }
        sent_at = Instant::now();
        // What happens in between is one ring.
        tokio::time::sleep(bell.as_ref().map_or(APART, |bell| bell.apart())).await;
    }
}
