//! A child's end wakes the parent that waits for it, whatever happens in between.

use std::time::Duration;

use windlass::{Context, Engine, HandlerResult, JobId, State, Worker, job, testing};
use windlass_kernel::{
    By, Op,
    job::{Wait, WaitOn, Wakeup},
    ops::WaitFor,
};
use windlass_store::{Watch as _, Write};

use crate::common::{Do, act, path};

/// Makes a child and waits for its end. It runs again from the top when the wait is over.
async fn wait_for_child(child: Do, context: Context) -> HandlerResult<String> {
    if let Some(how) = context.woken() {
        return Ok(how.as_str().to_owned());
    }
    let request = job(child).parent(context.job_id());
    let child = context.engine().enqueue(request).await?.id;
    let wait = WaitFor {
        job_id: context.job_id(),
        epoch: context.epoch(),
        by: By::worker(context.worker().clone()),
        wait: Wait { on: WaitOn::Child(child), until: None },
        mails_seen: None,
    };
    let write = Write::Op { tenant: context.tenant().clone(), op: Op::Wait(wait) };
    context.engine().committer().submit(write).await?;
    // The lease is given up: whatever is returned from here on is not kept.
    std::future::pending().await
}

async fn family_worker(engine: &Engine) -> HandlerResult<Worker> {
    let worker = engine.worker().handle(act).handle_kind("parent", wait_for_child);
    Ok(worker.start().await?)
}

async fn enqueue_parent(engine: &Engine, child: Do) -> HandlerResult<JobId> {
    Ok(engine.enqueue(windlass::JobRequest::of("parent", &child)).await?.id)
}

const WOKEN: &str = "queued dispatched running waiting queued dispatched running succeeded";

#[tokio::test(start_paused = true)]
async fn a_parent_goes_on_when_its_child_has_ended_however_it_ended() -> HandlerResult {
    for child in [Do::SleepMs(60_000), Do::FailForGood, Do::succeed()] {
        let engine = testing::engine()?;
        let worker = family_worker(&engine).await?;
        let parent = enqueue_parent(&engine, child).await?;
        let ended = engine.wait(parent).await?;
        assert_eq!(ended.result::<String>()?, Wakeup::Child.as_str());
        assert_eq!(path(&engine, parent).await, WOKEN);
        assert!(engine.own_store().unwrap().follow_ups(10).await?.is_empty(), "it is struck off");
        worker.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_parent_goes_on_although_the_process_died_right_after_its_child_ended() -> HandlerResult {
    let clock = testing::clock();
    let store = testing::store(clock.clone())?;
    let config = testing::config(clock, testing::seeded(1));
    // The first process gets as far as the child's end: it has no timers that would carry out what follows.
    let first = Engine::on(store.clone(), &windlass::Config { timers: None, ..config.clone() });
    let worker = family_worker(&first).await?;
    let parent = enqueue_parent(&first, Do::SleepMs(1_000)).await?;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(first.job(parent).await?.state, State::Waiting);
    assert_eq!(store.follow_ups(10).await?.len(), 1, "the child has ended, and nobody was told");
    worker.kill();
    first.kill();

    let second = Engine::on(store.clone(), &config);
    let worker = family_worker(&second).await?;
    let ended = second.wait(parent).await?;
    assert_eq!(ended.result::<String>()?, Wakeup::Child.as_str());
    assert_eq!(path(&second, parent).await, WOKEN);
    assert!(store.follow_ups(10).await?.is_empty(), "it is struck off");
    worker.shutdown().await?;
    Ok(())
}
