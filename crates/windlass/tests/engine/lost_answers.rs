//! A job whose answer was lost on the way is sent again: its caller hears of it, and it is there once.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use windlass::{Engine, Enqueued, Error, HandlerResult, State, job, testing};
use windlass_store::{Inspect as _, sqlite::Sqlite};

use crate::{
    chance::Chance,
    common::{Do, act},
    line::{Line, Weather},
};

/// An engine whose store answers, and some answers do not arrive.
fn engine() -> HandlerResult<(Engine, Arc<Line>, Arc<Sqlite>)> {
    let clock = testing::clock();
    let store = testing::store(clock.clone())?;
    let line = Arc::new(Line::new(store.clone(), Chance::new(1), Arc::default()));
    line.set(Weather::LosesAnswers);
    let engine = Engine::on(line.clone(), &testing::config(clock, testing::seeded(1)));
    Ok((engine, line, store))
}

/// Each of these is a new job that is there, and nothing else is.
async fn check(enqueued: &[Enqueued], line: &Line, store: &Sqlite) -> HandlerResult {
    assert!(line.lost_answers() > 3, "{} answers were lost", line.lost_answers());
    assert!(enqueued.iter().all(|it| !it.idempotent_hit && it.state == State::Queued));
    let told: BTreeSet<_> = enqueued.iter().map(|it| it.id).collect();
    let there: BTreeSet<_> = store.open_jobs().await?.iter().map(|job| job.id).collect();
    assert_eq!((told.len(), told), (enqueued.len(), there));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_job_is_sent_again() -> HandlerResult {
    let (engine, line, store) = engine()?;
    let mut enqueued = Vec::new();
    for _ in 0..30 {
        enqueued.push(engine.enqueue(Do::succeed()).await?);
    }
    check(&enqueued, &line, &store).await
}

#[tokio::test(start_paused = true)]
async fn of_many_those_are_sent_again_that_were_lost() -> HandlerResult {
    let (engine, line, store) = engine()?;
    let mut enqueued = Vec::new();
    for _ in 0..30 {
        // One that is refused is not sent at all, and the others keep their places.
        let requests = [job(Do::succeed()), job(Do::succeed()).queue(""), job(Do::succeed())];
        let answers: [Result<Enqueued, Error>; 3] =
            engine.enqueue_all(requests).await.try_into().expect("each has its answer");
        let [first, refused, last] = answers;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        enqueued.extend([first?, last?]);
    }
    check(&enqueued, &line, &store).await
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_there_before_is_still_told_from_one_that_was_sent_again() -> HandlerResult {
    let (engine, line, _) = engine()?;
    for number in 0..30 {
        let request = || job(Do::succeed()).key(&format!("order-{number}"));
        let first = engine.enqueue(request()).await?;
        let again = engine.enqueue_all([request()]).await.remove(0)?;
        assert_eq!((first.idempotent_hit, again.idempotent_hit), (false, true));
        assert_eq!(first.id, again.id);
    }
    assert!(line.lost_answers() > 3);
    Ok(())
}

/// Whoever claims under another name would leave it to a lease that lasts for an hour.
#[tokio::test(start_paused = true)]
async fn what_a_claim_got_whose_answer_was_lost_runs_when_the_store_is_back() -> HandlerResult {
    let (engine, line, store) = engine()?;
    line.set(Weather::Fine);
    let worker = engine.worker().handle(act).lease(Duration::from_secs(3600)).start().await?;
    let caller = Engine::on(store, &testing::config(testing::clock(), testing::seeded(2)));
    for round in 0..30 {
        line.set(Weather::LosesAnswers);
        let before = line.lost_answers();
        let job = caller.enqueue(Do::succeed()).await?;
        while line.lost_answers() == before && !caller.job(job.id).await?.state.is_end() {
            sleep(Duration::from_millis(1)).await;
        }
        line.set(Weather::Cut);
        sleep(Duration::from_secs(5)).await;
        line.set(Weather::Fine);
        let ended = timeout(Duration::from_secs(60), caller.wait(job.id)).await;
        let ended = ended.unwrap_or_else(|_| panic!("nobody runs it in round {round}"))?;
        assert_eq!((ended.job.state, ended.job.interruptions), (State::Succeeded, 0));
    }
    assert!(line.lost_answers() > 3);
    worker.shutdown().await?;
    Ok(())
}

/// Sent again it gets nothing, for what it got is over. What there is now it has not looked for: the worker does at once.
#[tokio::test(start_paused = true)]
async fn after_a_claim_whose_leases_are_over_a_worker_asks_again_at_once() -> HandlerResult {
    let (engine, line, store) = engine()?;
    line.set(Weather::Fine);
    let worker = engine.worker().handle(act).concurrency(2).grace(Duration::ZERO);
    let hour = Duration::from_secs(3600);
    let worker = worker.lease(hour).poll(hour).start().await?;
    let caller = Engine::on(store, &testing::config(testing::clock(), testing::seeded(2)));
    // A worker that has nothing to do asks in any case.
    caller.enqueue(Do::Hang).await?;
    let mut was_taken = 0;
    for round in 0..60 {
        line.set(Weather::LosesAnswers);
        let before = line.lost_answers();
        let job = caller.enqueue(Do::succeed()).await?;
        while line.lost_answers() == before && !caller.job(job.id).await?.state.is_end() {
            sleep(Duration::from_millis(1)).await;
        }
        line.set(Weather::Cut);
        was_taken += u32::from(!caller.job(job.id).await?.state.is_end());
        let _ = caller.cancel_with(job.id, Duration::ZERO, None).await;
        let next = caller.enqueue(Do::succeed()).await?;
        sleep(Duration::from_secs(5)).await;
        line.set(Weather::Fine);
        let ended = timeout(Duration::from_secs(60), caller.wait(next.id)).await;
        let ended = ended.unwrap_or_else(|_| panic!("nobody runs it in round {round}"))?;
        assert_eq!(ended.job.state, State::Succeeded);
    }
    assert!(was_taken > 3, "{was_taken}");
    worker.shutdown().await?;
    Ok(())
}
