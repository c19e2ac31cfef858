//! Fencing an external write: a system that remembers the greatest epoch of each job cannot be changed by an
//! execution that has lost its lease.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::sleep,
};
use windlass::{Context, Engine, Epoch, HandlerResult, JobId, Work};

#[derive(Serialize, Deserialize)]
struct Publish {
    text: String,
}

impl Work for Publish {
    const KIND: &str = "publish";
}

/// A system outside: it takes a write only if its token is not older than the last it saw of that job.
struct Website {
    pages: Mutex<BTreeMap<JobId, (Epoch, String)>>,
    log: UnboundedSender<String>,
}

impl Website {
    fn has(&self, job_id: JobId) -> bool {
        self.pages.lock().expect("nobody panics with it").contains_key(&job_id)
    }

    fn write(&self, job_id: JobId, epoch: Epoch, text: &str) -> Result<(), String> {
        let mut pages = self.pages.lock().expect("nobody panics with it");
        match pages.get(&job_id) {
            Some((last, _)) if *last > epoch => Err(format!("epoch {epoch} is older than {last}")),
            _ => {
                pages.insert(job_id, (epoch, text.to_owned()));
                Ok(())
            }
        }
    }
}

async fn publish(page: Publish, context: Context, site: Arc<Website>) -> HandlerResult {
    let fence = context.fence();
    if context.interruptions() == 0 {
        // This execution loses its lease, like one whose machine stands still for a while, and comes back late.
        site.log.send("epoch 1 stands still".to_owned())?;
        tokio::spawn(async move {
            while !site.has(fence.job_id) {
                sleep(Duration::from_millis(10)).await;
            }
            let late = site.write(fence.job_id, fence.epoch, "from the past");
            site.log.send(format!("the late write: {}", late.expect_err("it is refused")))
        });
        std::future::pending::<()>().await;
        return Ok(());
    }
    site.write(fence.job_id, fence.epoch, &page.text)?;
    Ok(())
}

#[tokio::main]
async fn main() -> HandlerResult {
    let engine = Engine::open("sqlite::memory:").await?;
    let (log, mut lines) = unbounded_channel();
    let site = Arc::new(Website { pages: Mutex::default(), log });
    let worker = || engine.worker().state(site.clone()).lease(Duration::from_millis(200));

    let frozen = worker().handle(publish).start().await?;
    let job = engine.enqueue(Publish { text: "news".to_owned() }).await?;
    println!("{}", lines.recv().await.expect("the site keeps its log open"));
    // Its worker renews nothing any more: from now on the lease runs out.
    frozen.kill();
    let healthy = worker().handle(publish).start().await?;
    println!("{}", engine.wait(job.id).await?.job.state);

    println!("{}", lines.recv().await.expect("the site keeps its log open"));
    let (epoch, text) = site.pages.lock().expect("nobody panics with it")[&job.id].clone();
    println!("the page of epoch {epoch} says {text:?}");
    healthy.shutdown().await?;
    Ok(())
}
