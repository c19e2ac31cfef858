//! Traces: an engine without a server tells of each enqueue and each execution. Here they are printed; a program of your
//! own gives them to its exporter, which has fields of the same names.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass::{Config, Context, Engine, HandlerResult, Span, TraceContext, Work};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
}

impl Work for Order {
    const KIND: &str = "order";
}

#[derive(Serialize, Deserialize)]
struct Mail {
    order: u64,
}

impl Work for Mail {
    const KIND: &str = "mail";
}

async fn order(order: Order, context: Context) -> HandlerResult<windlass::JobId> {
    // What a handler calls goes on from its execution: context.trace_context() as text is the header traceparent.
    let mail = context.engine().enqueue(Mail { order: order.id }).await?;
    Ok(mail.id)
}

async fn mail(mail: Mail) -> HandlerResult {
    let _ = mail.order;
    Ok(())
}

/// Prints a span: what it is, its id, and the id of the one that it is part of.
fn print(span: &Span) {
    let of = span.parent.map_or("nothing".to_owned(), |parent| format!("{:016x}", parent.span));
    println!("{}: {:016x} is part of {of}", span.name(), span.at.span);
}

#[tokio::main]
async fn main() -> HandlerResult {
    let tracer = Arc::new(|span: Span| print(&span));
    let config = Config { tracer: Some(tracer), ..Config::default() };
    let engine = Engine::open_with("sqlite::memory:", &config).await?;
    let worker = engine.worker().handle(order).handle(mail).start().await?;

    // The span of the program that enqueues: often the header traceparent of a call.
    let caller: TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse()?;
    let placed = engine.in_span(caller).enqueue(Order { id: 17 }).await?;
    let mail = engine.wait(placed.id).await?.result()?;
    engine.wait(mail).await?;

    worker.shutdown().await?;
    engine.close().await;
    Ok(())
}
