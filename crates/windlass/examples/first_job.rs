//! The first job: a program that enqueues one, runs it, and prints what came out.

use serde::{Deserialize, Serialize};
use windlass::{Engine, HandlerResult, Work};

#[derive(Serialize, Deserialize)]
struct SendMail {
    to: String,
}

impl Work for SendMail {
    const KIND: &str = "send_mail";
}

async fn send(mail: SendMail) -> HandlerResult<String> {
    Ok(format!("sent to {}", mail.to))
}

#[tokio::main]
async fn main() -> HandlerResult {
    let engine = Engine::open("sqlite:jobs.db").await?;
    let worker = engine.worker().handle(send).start().await?;

    let job = engine.enqueue(SendMail { to: "ann@example.com".to_owned() }).await?;
    let answer: String = engine.wait(job.id).await?.result()?;
    println!("{answer}");

    worker.shutdown().await?;
    Ok(())
}
