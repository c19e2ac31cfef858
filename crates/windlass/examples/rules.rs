//! Who runs next, and why not: limits, a pause, a breaker, and the answer to "why is it not running?"
//!
//! ```sh
//! cargo run --example rules
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Breaker, Each, Engine, Failure, HandlerResult, Work, job, rule};

#[derive(Serialize, Deserialize)]
struct Sync {
    customer: String,
}

impl Work for Sync {
    const KIND: &str = "sync";

    // Limits and turns can be by customer.
    fn limit_key(&self) -> Option<String> {
        Some(self.customer.clone())
    }
}

async fn sync(job: Sync) -> HandlerResult {
    println!("begins  {}", job.customer);
    if job.customer == "nobody" {
        return Err(Failure::permanent("CRM_DOWN", "the customer database does not answer").into());
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    println!("is done {}", job.customer);
    Ok(())
}

#[tokio::main]
async fn main() -> HandlerResult {
    let engine = Engine::open("sqlite::memory:").await?;

    // One job of each customer at a time, and no more than two in all, on however many machines.
    engine.put_rule(rule("one per customer").kind("sync").each(Each::Key).at_most(1)).await?;
    engine.put_rule(rule("gentle").kind("sync").at_most(2)).await?;
    let worker = engine.worker().handle(sync).start().await?;

    let mut jobs = Vec::new();
    for customer in ["ann", "ann", "bob", "cleo"] {
        jobs.push(engine.enqueue(Sync { customer: customer.to_owned() }).await?.id);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("{}", engine.why(jobs[1]).await?);
    for id in jobs {
        engine.wait(id).await?;
    }

    // A pause holds new jobs back, and lets those go on that run.
    engine.put_rule(rule("night").kind("sync").reason("maintenance").pause()).await?;
    let waits = engine.enqueue(job(Sync { customer: "ann".to_owned() })).await?.id;
    println!("{}", engine.why(waits).await?);
    engine.drop_rule("night", Some("done".to_owned())).await?;
    engine.wait(waits).await?;
    println!("{}", engine.why(waits).await?);

    // What several kinds depend on has a name of its own. Three failures of this sort with no success in between, and
    // nothing of these kinds begins for a minute; jobs wait, and use no retries up.
    let crm = Breaker {
        failures: 3,
        codes: vec!["CRM_DOWN".to_owned()],
        open_for: Duration::from_secs(60),
        ..Breaker::default()
    };
    engine.put_rule(rule("crm").kind("sync").kind("import").breaker(crm)).await?;
    for _ in 0..3 {
        let fails = engine.enqueue(Sync { customer: "nobody".to_owned() }).await?.id;
        engine.wait(fails).await?;
    }
    let waits = engine.enqueue(Sync { customer: "ann".to_owned() }).await?.id;
    println!("{}", engine.why(waits).await?);
    worker.shutdown().await?;
    Ok(())
}
