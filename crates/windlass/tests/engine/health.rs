//! How an engine is: whoever runs one learns when its store has stopped, and what passes clears itself.

use std::{fs, time::Duration};

use tokio::time::timeout;
use windlass::{Engine, Error, HandlerResult};

use crate::common::{Do, act};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_whose_file_is_gone_says_so_at_each_call_and_to_whoever_waits() -> HandlerResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("w.db");
    let engine = Engine::open(&format!("sqlite:{}", path.display())).await?;
    let mut worker = engine.worker().handle(act).start().await?;
    engine.enqueue(Do::succeed()).await?;
    assert!(engine.health().is_well());
    let told = tokio::spawn({
        let engine = engine.clone();
        async move { engine.stopped().await }
    });
    fs::rename(&path, folder.path().join("away.db"))?;
    // The first hears it from the store, the others from an engine that knows.
    for _ in 0..3 {
        match engine.enqueue(Do::succeed()).await {
            Err(Error::Store(error)) => assert_eq!(error.code(), "STORE_STOPPED", "{error}"),
            other => panic!("{other:?}"),
        }
    }
    let why = timeout(PATIENCE, told).await??.to_string();
    assert!(why.contains("was removed or replaced"), "{why}");
    assert_eq!(engine.health().stopped.map(|error| error.to_string()), Some(why));
    assert!(timeout(PATIENCE, worker.ended()).await?.is_err(), "a worker ends with its store");
    timeout(PATIENCE, engine.close()).await?;
    Ok(())
}

/// Nobody writes, and somebody asks now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_asks_hears_that_a_store_has_stopped() -> HandlerResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("w.db");
    let engine = Engine::open(&format!("sqlite:{}", path.display())).await?;
    engine.check().await?;
    fs::rename(&path, folder.path().join("away.db"))?;
    assert_eq!(engine.check().await.unwrap_err().code(), "STORE_STOPPED");
    timeout(PATIENCE, engine.stopped()).await?;
    Ok(())
}

/// A table is away for a while: timers and workers go on when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_and_workers_outlive_what_passes() -> HandlerResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("w.db");
    let engine = Engine::open(&format!("sqlite:{}", path.display())).await?;
    let worker = engine.worker().handle(act).start().await?;
    engine.wait(engine.enqueue(Do::succeed()).await?.id).await?;
    let rename = |from: &str, to: &str| -> HandlerResult {
        let sql = rusqlite::Connection::open(&path)?;
        sql.busy_timeout(PATIENCE)?;
        sql.pragma_update(None, "legacy_alter_table", true)?;
        Ok(sql.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}"))?)
    };
    rename("sessions", "gone")?;
    let unwell = async {
        while engine.health().timers.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, unwell).await?;
    rename("gone", "sessions")?;
    let id = engine.enqueue(Do::SnoozeMs(50)).await?.id;
    assert!(timeout(PATIENCE, engine.wait(id)).await??.is_success());
    let well = async {
        while !engine.health().is_well() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, well).await?;
    worker.shutdown().await?;
    Ok(())
}
