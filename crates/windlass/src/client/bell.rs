//! The server's bell, heard here: it rings when jobs may have become ready.
//!
//! A connection that breaks is made again, and then the bell rings once by itself: nobody knows what was missed. A
//! worker polls besides, so a server that has no bell is only slower.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use windlass_store::Bell;

use super::link::Link;

/// How long to wait before the next try, at first and later.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// A server says something more often than this, if only that it is quiet.
const SILENT_MAX: Duration = Duration::from_secs(50);

/// Rings whenever the server's bell does, until it is dropped.
pub(super) async fn follow(link: Arc<Link>, bell: Bell) {
    let mut again = AGAIN;
    loop {
        if hear(&link, &bell).await {
            again = AGAIN;
        }
        sleep(again).await;
        again = (again * 2).min(AGAIN_MAX);
    }
}

/// Listens until the connection ends. Was there one?
async fn hear(link: &Link, bell: &Bell) -> bool {
    let Ok(Ok(mut stream)) = timeout(SILENT_MAX, link.stream(&["ready"])).await else {
        return false;
    };
    // The clocks of two machines drift apart: each connection is a chance to hear of it.
    let _ = link.me().await;
    bell.ring();
    let mut line = Vec::new();
    while let Ok(Ok(Some(chunk))) = timeout(SILENT_MAX, stream.chunk()).await {
        for byte in chunk {
            match byte {
                b'\n' if line.starts_with(b"data:") => {
                    bell.ring();
                    line.clear();
                }
                b'\n' => line.clear(),
                _ if line.len() < 16 => line.push(byte),
                _ => {}
            }
        }
    }
    true
}
