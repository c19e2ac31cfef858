//! When a program is told to end.

/// Ready when the process is told to end: by Ctrl-C, or on Unix by `SIGTERM`.
///
/// ```no_run
/// # async fn example(worker: windlass::WorkerBuilder) -> Result<(), windlass::Error> {
/// worker.run_until(windlass::shutdown::signal()).await
/// # }
/// ```
pub async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                biased;
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
