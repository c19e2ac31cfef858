//! A worker elsewhere: the same program as the first job, on a server.
//!
//! Start one with `windlass serve --dev --store sqlite:jobs.db`, then run this with the feature `client`. Only the address
//! says that the jobs are kept by a server; any number of such programs share its work.

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
    // A server that is not for development wants a token: Config.token, or WINDLASS_TOKEN.
    let engine = Engine::open("http://127.0.0.1:7117").await?;
    let worker = engine.worker().handle(send).start().await?;

    let job = engine.enqueue(SendMail { to: "ann@example.com".to_owned() }).await?;
    let answer: String = engine.wait(job.id).await?.result()?;
    println!("{answer}");

    worker.shutdown().await?;
    Ok(())
}
