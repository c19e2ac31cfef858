//! What a handler enqueues belongs to the trace of its job, from one job to the next.

use serde::{Deserialize, Serialize};
use windlass::{Context, Engine, HandlerResult, JobId, JobRequest, Work, job, rusqlite, testing};

use crate::common::Home;

/// Enqueues a job like itself, so many deep, and gives back its id.
#[derive(Serialize, Deserialize)]
struct Chain {
    deep: u32,
}

impl Work for Chain {
    const KIND: &str = "chain";
}

async fn link(chain: Chain, context: Context) -> HandlerResult<Option<JobId>> {
    match chain.deep.checked_sub(1) {
        None => Ok(None),
        Some(deep) => Ok(Some(context.engine().enqueue(Chain { deep }).await?.id)),
    }
}

async fn trace_of(engine: &Engine, id: JobId) -> HandlerResult<String> {
    Ok(engine.job(id).await?.spec.trace_id.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_jobs_has_one_trace() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(link).start().await?;
    // One trace that was made here, and one that was brought.
    for request in [job(Chain { deep: 3 }), job(Chain { deep: 3 }).trace("order-17")] {
        let mut id = engine.enqueue(request).await?.id;
        let trace = trace_of(&engine, id).await?;
        let mut links = 0;
        while let Some(next) = engine.wait(id).await?.result::<Option<JobId>>()? {
            (id, links) = (next, links + 1);
            assert_eq!(trace_of(&engine, id).await?, trace);
        }
        assert_eq!(links, 3);
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn many_at_once_inherit_too_and_each_may_name_another_trace() -> HandlerResult {
    async fn fan_out(_: (), context: Context) -> HandlerResult<Vec<JobId>> {
        let requests = [job(Chain { deep: 0 }), job(Chain { deep: 0 }).trace("other")];
        // Also for another tenant, or in another name.
        let engine = context.engine().tenant("acme")?.acting_as("ann")?;
        let enqueued = engine.enqueue_all(requests).await.into_iter();
        Ok(enqueued.map(|it| it.map(|it| it.id)).collect::<Result<_, _>>()?)
    }
    let engine = testing::engine()?;
    let worker = engine.worker().handle_kind("fan_out", fan_out).start().await?;
    let id = engine.enqueue(JobRequest::of("fan_out", &()).trace("order-17")).await?.id;
    let ids: Vec<JobId> = engine.wait(id).await?.result()?;
    let acme = engine.tenant("acme")?;
    assert_eq!(trace_of(&acme, ids[0]).await?, "order-17");
    assert_eq!(trace_of(&acme, ids[1]).await?, "other");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test]
async fn a_job_in_the_handlers_own_transaction_inherits_too() -> HandlerResult {
    async fn book(_: (), context: Context) -> HandlerResult<JobId> {
        let engine = context.engine();
        let mut connection: rusqlite::Connection = engine.sqlite().unwrap().connect()?;
        let transaction = connection.transaction()?;
        let id = engine.enqueue_in(&transaction, Chain { deep: 0 })?;
        transaction.commit()?;
        engine.wake();
        Ok(id)
    }
    let home = Home::sqlite();
    let engine = home.open().await;
    let worker = engine.worker().handle_kind("book", book).handle(link).start().await?;
    let id = engine.enqueue(JobRequest::of("book", &()).trace("order-17")).await?.id;
    let next: JobId = engine.wait(id).await?.result()?;
    assert!(engine.wait(next).await?.is_success());
    assert_eq!(trace_of(&engine, next).await?, "order-17");
    worker.shutdown().await?;
    engine.close().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_no_handler_enqueues_begins_a_trace_of_its_own() -> HandlerResult {
    let engine = testing::engine()?;
    let first = engine.enqueue(Chain { deep: 0 }).await?.id;
    let second = engine.enqueue(Chain { deep: 0 }).await?.id;
    assert_ne!(trace_of(&engine, first).await?, trace_of(&engine, second).await?);
    Ok(())
}
