//! Schedules make jobs at their times, and everything that can be done with one can be done.

use std::time::Duration;

use windlass::{
    CatchUp, Engine, Error, HandlerResult, Overlap, Refusal, State, Timestamp, job,
    testing::{self, BEGINS_AT},
};
use windlass_kernel::{job::ScheduleType, schedule::When};
use windlass_store::read::{JobFilter, PageFrom};

use crate::common::{Do, act};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn after_start(wait: Duration) -> Timestamp {
    BEGINS_AT.parse::<Timestamp>().unwrap().plus(wait)
}

/// The slots for which there is a job, in order.
async fn slots(engine: &Engine) -> Vec<Timestamp> {
    let tenant: windlass_kernel::TenantId = Engine::TENANT_DEFAULT.parse().unwrap();
    let cursor = PageFrom { from: None, limit: 1_000 };
    let page = engine.store().jobs(JobFilter::of(tenant), cursor).await.unwrap();
    let mut slots: Vec<_> = page.items.iter().filter_map(|job| job.spec.scheduled_at).collect();
    slots.sort_unstable();
    slots
}

/// What was noted, oldest first.
async fn words(engine: &Engine, name: &str) -> Vec<String> {
    let mut notes = engine.schedules().history(name, None, 1_000).await.unwrap();
    notes.reverse();
    let what = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
    notes.iter().map(|note| what(&note.line)["what"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_clock_skips_forward_from_slot_to_slot_for_three_weeks() -> HandlerResult {
    let engine = testing::patient_engine()?;
    let nightly = engine.schedule("nightly", job(Do::succeed()).max_retries(1));
    let put = nightly.cron("0 3 * * *", "Europe/Berlin").put().await?;
    assert_eq!(put.next_at, Some(after_start(2 * HOUR)));
    tokio::time::sleep(21 * DAY).await;
    let expected: Vec<_> = (0..21).map(|day| after_start(2 * HOUR + day * DAY)).collect();
    assert_eq!(slots(&engine).await, expected);
    let worker = engine.worker().handle(act).start().await?;
    let last = engine.schedules().get("nightly").await?.last_job.unwrap();
    let ended = engine.wait(last).await?.job;
    assert_eq!((ended.state, ended.spec.schedule_type), (State::Succeeded, ScheduleType::Cron));
    let late = ended.spec.created_at.since(ended.spec.scheduled_at.unwrap());
    assert!(late < Duration::from_millis(50), "late by {late:?}");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_paused_resumed_triggered_and_deleted() -> HandlerResult {
    let engine = testing::engine()?.acting_as("ann")?;
    let schedules = engine.schedules();
    engine.schedule("hourly", Do::succeed()).every(HOUR).catch_up(CatchUp::Skip).put().await?;
    tokio::time::sleep(HOUR + 2 * MINUTE).await;
    schedules.pause("hourly", Some("moving house".to_owned())).await?;
    let pause = schedules.get("hourly").await?.pause.unwrap();
    assert_eq!(
        (pause.by.to_string().as_str(), pause.reason.as_deref()),
        ("user:ann", Some("moving house"))
    );
    let now = schedules.trigger("hourly").await?;
    assert_eq!(engine.job(now).await?.spec.schedule_type, ScheduleType::Every);
    tokio::time::sleep(3 * HOUR).await;
    schedules.resume("hourly").await?;
    tokio::time::sleep(HOUR).await;
    let expected = [0, 1, 5].map(|hours| after_start(hours * HOUR));
    assert_eq!(slots(&engine).await, expected);
    schedules.delete("hourly").await?;
    tokio::time::sleep(3 * HOUR).await;
    assert_eq!(slots(&engine).await.len(), 3);
    let told = "created fired fired paused fired resumed skipped fired deleted";
    assert_eq!(words(&engine, "hourly").await.join(" "), told);
    assert!(matches!(
        schedules.get("hourly").await,
        Err(Error::Refused(Refusal::NotFound { what: "schedule" }))
    ));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_range_is_filled_in_step_by_step() -> HandlerResult {
    let engine = testing::engine()?;
    engine.schedule("minutes", Do::succeed()).every(MINUTE).put().await?;
    tokio::time::sleep(10 * MINUTE).await;
    let (from, to) = (BEGINS_AT.parse::<Timestamp>()?.minus(DAY), after_start(5 * MINUTE));
    let filled = engine.schedules().backfill("minutes", from, to).await?;
    // Those of its own time were there, and the others took two steps.
    assert_eq!((filled.made.len(), filled.known.len()), (24 * 60, 5));
    let again = engine.schedules().backfill("minutes", from, to).await?;
    assert_eq!((again.made.len(), again.known.len()), (0, 24 * 60 + 5));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_long_holds_back_the_next_or_lets_it_go() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let long = || job(Do::SleepMs(150_000)).timeout(HOUR);
    for (name, overlap) in
        [("allow", Overlap::Allow), ("skip", Overlap::Skip), ("queue", Overlap::Queue)]
    {
        let schedule = engine.schedule(name, long()).every(MINUTE).overlap(overlap);
        schedule.end_at(after_start(6 * MINUTE)).put().await?;
    }
    tokio::time::sleep(HOUR).await;
    let words = async |name: &str| words(&engine, name).await;
    let fired = |words: &[String]| words.iter().filter(|word| *word == "fired").count();
    assert_eq!(fired(&words("allow").await), 6);
    // 0, 3: a job takes two minutes and a half.
    assert_eq!(fired(&words("skip").await), 2);
    let queue = words("queue").await;
    assert_eq!(fired(&queue), 6, "{queue:?}");
    assert!(!queue.contains(&"skipped".to_owned()));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_comes_next_is_shown_in_both_zones_before_and_after_it_is_put() -> HandlerResult {
    let engine = testing::engine()?;
    let asked = || engine.schedule("nightly", Do::succeed()).cron("30 2 * * *", "America/New_York");
    let next = asked().preview(2)?;
    assert_eq!(next[0].local, "2026-01-01T02:30:00-05:00[America/New_York]");
    assert_eq!(next[0].at.to_string(), "2026-01-01T07:30:00Z");
    asked().put().await?;
    assert_eq!(engine.schedules().preview("nightly", 2).await?, next);
    let listed = engine.schedules().list(None, 10).await?;
    assert!(matches!(&listed[0].spec.when, When::Cron { zone, .. } if zone == "America/New_York"));
    assert!(engine.schedules().list(Some("nightly"), 10).await?.is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_by_its_field() -> HandlerResult {
    let engine = testing::engine()?;
    let ask = |name: &str| engine.schedule(name, Do::succeed());
    let why =
        |error: Result<_, Error>| error.map(|_: std::sync::Arc<_>| ()).unwrap_err().to_string();
    assert_eq!(why(ask("").every(HOUR).put().await), "schedule must not be empty");
    assert_eq!(why(ask("x").put().await), "when must be said: cron, every or at");
    let zone = why(ask("x").cron("@daily", "Europe/Berln").put().await);
    assert_eq!(
        zone,
        "zone \"Europe/Berln\" is no name of a time zone; did you mean Europe/Berlin?"
    );
    let seven = why(ask("x").cron("0 0 0 1 1 * 2030", "UTC").put().await);
    assert!(seven.ends_with("it has 7"), "{seven}");
    let zero = why(ask("x").every(Duration::ZERO).put().await);
    assert!(zero.starts_with("every must be"), "{zero}");
    let large = engine.schedule("x", Do::Succeed("x".repeat(2_000_000)));
    let large = why(large.every(HOUR).put().await);
    assert!(large.contains("payload"), "{large}");
    let keyed = engine.schedule("x", job(Do::succeed()).key("order-1")).every(HOUR);
    assert!(why(keyed.put().await).starts_with("idempotency_key cannot be given"));
    assert!(engine.schedules().list(None, 10).await?.is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn tenants_do_not_see_each_others_schedules() -> HandlerResult {
    let engine = testing::engine()?;
    let other = engine.tenant("other")?;
    engine.schedule("nightly", Do::succeed()).every(HOUR).put().await?;
    other.schedule("nightly", Do::succeed()).every(2 * HOUR).put().await?;
    other.schedules().delete("nightly").await?;
    assert!(engine.schedules().get("nightly").await.is_ok());
    assert!(other.schedules().trigger("nightly").await.is_err());
    Ok(())
}
