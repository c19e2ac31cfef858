//! The demo: a worker of `windlass dev` whose jobs show what the product does. It runs there and nowhere else.
//!
//! A mail that fails twice before it is sent, an invoice that cannot be right and ends in the dead letters, a report
//! that waits for its time, and an import that takes a while and goes on where it was if its process is killed.
//!
//! The import goes on where it was because its handler saves its place after each step. Always true here: whoever runs a
//! step writes a line in the ledger, blindly, so that a step that runs twice is there twice.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle, time::sleep};
use windlass::{Context, Engine, Enqueued, Error, HandlerResult, JobRequest, Outcome, Stop};

use crate::executors::look_after;

/// Where its jobs wait.
pub(crate) const QUEUE: &str = "demo";
pub(crate) const MAIL: &str = "demo.mail";
pub(crate) const INVOICE: &str = "demo.invoice";
pub(crate) const REPORT: &str = "demo.report";
pub(crate) const IMPORT: &str = "demo.import";
/// What the invoice should have had.
pub(crate) const INVOICE_MENDED: &str = r#"{"customer": "ann", "amount": 12.5}"#;

/// The four jobs, in the order in which they are enqueued.
fn requests() -> [JobRequest; 4] {
    let [mail, invoice, report, import] = [
        (MAIL, json!({"to": "ann@example.com"})),
        (INVOICE, json!({"customer": "ann", "amount": "12,50"})),
        (REPORT, json!({"of": "yesterday"})),
        (IMPORT, json!(Import { steps: 10, step_ms: 1_000, forget: false })),
    ]
    .map(|(kind, payload)| JobRequest::of(kind, &payload).queue(QUEUE).tag("demo"));
    [
        mail.backoff(Duration::from_secs(1), Duration::from_secs(4)),
        invoice,
        report.after(Duration::from_secs(5)),
        import,
    ]
}

/// Enqueues the four.
pub(crate) async fn enqueue(engine: &Engine) -> Result<Vec<Enqueued>, Error> {
    engine.enqueue_all(requests()).await.into_iter().collect()
}

/// Starts its worker, which ends by itself when the server stops.
pub(crate) async fn start(
    engine: &Engine,
    ledger: Option<PathBuf>,
    stopping: &watch::Receiver<bool>,
) -> Result<JoinHandle<()>, Error> {
    let worker = engine.worker().name("demo").queues([QUEUE]).state(Arc::new(Ledger::at(ledger)));
    // Whoever quits in the middle of it waits no longer than this.
    let worker = worker.grace(Duration::from_millis(500));
    let worker = worker
        .handle_kind(MAIL, send_mail)
        .handle_kind(INVOICE, send_invoice)
        .handle_kind(REPORT, write_report)
        .handle_kind(IMPORT, import);
    Ok(look_after("demo", worker.start().await?, stopping.clone()))
}

#[derive(Deserialize)]
struct Mail {
    to: String,
}

async fn send_mail(mail: Mail, context: Context) -> HandlerResult<String> {
    sleep(Duration::from_millis(300)).await;
    if context.retry_count() < 2 {
        return Err("the mail server is busy".into());
    }
    Ok(format!("sent to {}", mail.to))
}

#[derive(Deserialize)]
struct Invoice {
    customer: String,
    amount: f64,
}

async fn send_invoice(invoice: Invoice) -> HandlerResult<String> {
    sleep(Duration::from_millis(300)).await;
    Ok(format!("{} pays {:.2}", invoice.customer, invoice.amount))
}

#[derive(Deserialize)]
struct Report {
    of: String,
}

async fn write_report(
    report: Report,
    context: Context,
    ledger: Arc<Ledger>,
) -> HandlerResult<String> {
    sleep(Duration::from_millis(300)).await;
    ledger.note(&context, "report")?;
    Ok(format!("the report of {}", report.of))
}

/// What an import is to do.
#[derive(Serialize, Deserialize)]
pub(crate) struct Import {
    pub(crate) steps: u32,
    pub(crate) step_ms: u64,
    /// Does the handler begin anew each time, instead of where it was?
    #[serde(default)]
    pub(crate) forget: bool,
}

/// How far it has come.
#[derive(Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) step: u32,
    pub(crate) of: u32,
}

async fn import(import: Import, context: Context, ledger: Arc<Ledger>) -> HandlerResult<Outcome> {
    let known = match import.forget {
        true => None,
        false => context.engine().progress(context.job_id()).await?,
    };
    let done = known.and_then(|known| known.get::<Done>().ok()).map_or(0, |done| done.step);
    for step in done + 1..=import.steps {
        tokio::select! {
            () = sleep(Duration::from_millis(import.step_ms)) => {}
            stop = context.stopped() => match stop {
                Stop::Cancelled => return Ok(Outcome::cancelled(None)),
                // It is given back, and goes on after the next start.
                Stop::Shutdown | Stop::LeaseLost => std::future::pending().await,
            }
        }
        // A process that dies between these two lines has done the step, and the next one does it again.
        ledger.note(&context, &format!("step {step}"))?;
        context.progress(&Done { step, of: import.steps }).await?;
    }
    Ok(Outcome::done(&json!({"steps": import.steps})))
}

/// A file outside of the store, with a line for each effect: job, what, and by which epoch.
struct Ledger {
    file: Option<Mutex<PathBuf>>,
}

impl Ledger {
    fn at(file: Option<PathBuf>) -> Self {
        Self { file: file.map(Mutex::new) }
    }

    /// Adds a line, whatever is there already.
    fn note(&self, context: &Context, what: &str) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let file = file.lock().expect("nobody panics with it");
        let mut open = OpenOptions::new().create(true).append(true).open(&*file)?;
        let line = format!("{} {what} epoch {}\n", context.job_id(), context.epoch());
        open.write_all(line.as_bytes())?;
        open.sync_all()
    }
}
