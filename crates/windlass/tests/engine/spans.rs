//! A tracer hears of every job that is made and of every execution, as one trace.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use windlass::{
    Context, Engine, HandlerResult, JobId, JobRequest, Span, SpanOf, TraceContext, job, testing,
};

use crate::common::{Do, act};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What a tracer has heard of.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Span>>>);

impl Heard {
    /// An engine whose tracer this is.
    fn engine(&self) -> HandlerResult<Engine> {
        let (clock, heard) = (testing::clock(), self.0.clone());
        let mut config = testing::config(clock.clone(), testing::seeded(1));
        config.tracer = Some(Arc::new(move |span| heard.lock().unwrap().push(span)));
        Ok(Engine::on_sqlite(testing::store(clock)?, &config))
    }

    fn of(&self, id: JobId) -> Vec<Span> {
        self.0.lock().unwrap().iter().filter(|span| span.job_id == id).cloned().collect()
    }

    /// The one enqueue of a job.
    #[track_caller]
    fn enqueue(&self, id: JobId) -> Span {
        let mut spans = self.of(id);
        spans.retain(|span| span.of == SpanOf::Enqueue);
        assert_eq!(spans.len(), 1, "{spans:?}");
        spans.remove(0)
    }
}

#[tokio::test(start_paused = true)]
async fn an_enqueue_is_part_of_its_caller_and_an_execution_of_the_enqueue() -> HandlerResult {
    let heard = Heard::default();
    let engine = heard.engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let caller: TraceContext = CALLER.parse()?;
    let id = engine.in_span(caller).enqueue(job(Do::FailTimes(1)).max_retries(1)).await?.id;
    engine.wait(id).await?;
    worker.shutdown().await?;
    let [enqueue, failed, done] = <[Span; 3]>::try_from(heard.of(id)).unwrap();
    assert_eq!((enqueue.name().as_str(), enqueue.parent), ("enqueue do", Some(caller)));
    for (execution, number) in [(&failed, 1), (&done, 2)] {
        assert_eq!((execution.name().as_str(), execution.parent), ("execute do", Some(enqueue.at)));
        assert!(matches!(execution.of, SpanOf::Execution { attempt, .. } if attempt == number));
        assert_eq!(execution.at.trace, caller.trace);
    }
    assert_ne!(failed.at.span, done.at.span);
    assert!(failed.error.is_some() && done.error.is_none(), "{failed:?} {done:?}");
    // The same again makes nothing, and nothing is told.
    let keyed = || job(Do::succeed()).key("a");
    let first = engine.enqueue(keyed()).await?;
    assert!(engine.enqueue(keyed()).await?.idempotent_hit);
    assert_eq!(heard.enqueue(first.id).parent, None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_enqueues_is_part_of_its_execution() -> HandlerResult {
    async fn fan_out(_: (), context: Context) -> HandlerResult<[JobId; 2]> {
        let all = [job(Do::succeed()), job(Do::succeed()).trace("other")];
        let mut all = context.engine().enqueue_all(all).await.into_iter().flatten();
        Ok([(); 2].map(|()| all.next().unwrap().id))
    }
    let heard = Heard::default();
    let engine = heard.engine()?;
    let worker = engine.worker().handle_kind("fan_out", fan_out).start().await?;
    let id = engine.enqueue(JobRequest::of("fan_out", &())).await?.id;
    let [child, other] = engine.wait(id).await?.result::<[JobId; 2]>()?;
    worker.shutdown().await?;
    let execution = heard.of(id).pop().unwrap().at;
    assert_eq!(heard.enqueue(child).parent, Some(execution));
    // In another trace it cannot be a part.
    let other = heard.enqueue(other);
    assert_eq!((other.parent, other.links), (None, vec![execution]));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_again_is_part_of_the_first_enqueue() -> HandlerResult {
    let heard = Heard::default();
    let engine = heard.engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let caller: TraceContext = CALLER.parse()?;
    let first = engine.enqueue(job(Do::FailForGood).trace("order-17")).await?.id;
    let letter = engine.wait(first).await?.job.dlq_id.unwrap();
    let second = engine.in_span(caller).requeue(letter).await?.id;
    engine.wait(second).await?;
    let third = engine.rerun(second).await?.id;
    engine.wait(third).await?;
    worker.shutdown().await?;
    let [first, second, third] = [first, second, third].map(|id| heard.enqueue(id));
    assert_eq!((second.parent, second.links), (Some(first.at), vec![caller]));
    assert_eq!((third.parent, third.links), (Some(second.at), vec![]));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_firing_of_a_schedule_begins_a_trace() -> HandlerResult {
    let heard = Heard::default();
    let engine = heard.engine()?;
    let minute = Duration::from_secs(60);
    engine.schedule("often", job(Do::succeed())).every(minute).put().await?;
    tokio::time::sleep(2 * minute + minute / 2).await;
    let caller: TraceContext = CALLER.parse()?;
    let triggered = engine.in_span(caller).schedules().trigger("often").await?;
    let fired: Vec<Span> = heard.0.lock().unwrap().clone();
    assert!(fired.len() >= 3, "{fired:?}");
    for (place, span) in fired.iter().enumerate() {
        assert_eq!((span.name().as_str(), span.parent), ("enqueue do", None));
        assert!(fired[..place].iter().all(|other| other.at.trace != span.at.trace));
    }
    assert_eq!(heard.enqueue(triggered).links, [caller]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_is_dropped_is_told_of() -> HandlerResult {
    let heard = Heard::default();
    let engine = heard.engine()?;
    let worker = engine.worker().grace(Duration::from_secs(1)).handle(act).start().await?;
    let id = engine.enqueue(Do::Hang).await?.id;
    tokio::time::sleep(Duration::from_secs(5)).await;
    worker.shutdown().await?;
    let execution = heard.of(id).pop().unwrap();
    assert_eq!(execution.error.as_deref(), Some("DROPPED"));
    assert!(execution.ended_at >= execution.began_at.plus(Duration::from_secs(5)));
    Ok(())
}
