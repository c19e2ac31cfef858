//! Schedules: a report every night in Berlin, over the change of clocks, with one night held back and then filled in.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{CatchUp, HandlerResult, Timestamp, Work, job, testing};

#[derive(Serialize, Deserialize)]
struct Report {
    team: String,
}

impl Work for Report {
    const KIND: &str = "report";
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

// In a program of your own: #[tokio::main], and Engine::open("sqlite:windlass.db").
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> HandlerResult {
    let engine = testing::patient_engine()?;
    let schedules = engine.schedules();
    // A test begins on 1 January.
    let march: Timestamp = "2026-03-28T00:00:00Z".parse()?;
    tokio::time::sleep(86 * DAY).await;

    let nightly = engine.schedule("nightly", job(Report { team: "sales".to_owned() }));
    let nightly = nightly.cron("30 2 * * *", "Europe/Berlin");
    nightly.catch_up(CatchUp::Skip).put().await?;
    // 02:30 does not exist on 29 March: it runs once, when the clocks have been changed.
    for slot in schedules.preview("nightly", 3).await? {
        println!("{} is {}", slot.local, slot.at);
    }

    tokio::time::sleep(2 * DAY).await;
    schedules.pause("nightly", Some("the printer is broken".to_owned())).await?;
    tokio::time::sleep(DAY).await;
    schedules.resume("nightly").await?;
    let mut notes = schedules.history("nightly", None, 100).await?;
    notes.reverse();
    for note in notes {
        let note: serde_json::Value = serde_json::from_str(&note.line)?;
        let fields = [("slot", " for "), ("reason", ": "), ("next_at", ", next at ")];
        let told = |(field, word): (&str, &str)| {
            Some(format!("{word}{}", note["detail"][field].as_str()?))
        };
        let told = fields.into_iter().find_map(told).unwrap_or_default();
        println!("{}{told}", note["what"].as_str().unwrap_or_default());
    }

    // The night that was skipped is made up for. The others have their jobs already.
    let filled = schedules.backfill("nightly", march, march.plus(3 * DAY)).await?;
    println!("filled in: {} new, {} known", filled.made.len(), filled.known.len());
    let made = engine.job(filled.made[0]).await?;
    println!("{}: {}", made.spec.idempotency_key, made.state);
    Ok(())
}
