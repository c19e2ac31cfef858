//! `windlass dlq show`: a dead letter with its job.

use clap::Args;

use super::{Letter, letter_id, look};
use crate::cli::{
    api::{Api, ApiArgs, path},
    job::{Facts, block, error_block, one_line},
    prose,
    trouble::Trouble,
    view::{BOLD, View},
};

#[derive(Args)]
pub(crate) struct Show {
    /// The letter, dlq_…, or its job, job_…
    id: String,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &Show, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let document = api.get(&path(&["dlq", &letter_id(&command.id)])).await?;
    api.close().await;
    let letter: Letter = document.read()?;
    view.document(&document, || text(&letter, view));
    Ok(())
}

fn text(letter: &Letter, view: &View) -> String {
    let (shape, style) = look(&letter.state);
    let line = letter.sentence(view);
    let mut text = format!("{BOLD}{}{BOLD:#}\n{style}{shape} {line}{style:#}\n\n", letter.dlq_id);
    let mut facts = Facts::default();
    facts.add("job", &letter.job_id);
    if let Some(job) = &letter.job {
        facts.add("kind", &job.kind);
        facts.add("queue", &job.queue);
        facts.add_some("tags", (!job.tags.is_empty()).then(|| job.tags.join(", ")));
    }
    facts.add("given up for", letter.why.replace('_', " "));
    facts.add("tries", letter.attempt.to_string());
    facts.add("since", view.times.show(letter.created_at));
    facts.add_some("closed", letter.closed_at.map(|at| view.times.show(at)));
    text.push_str(&facts.fit(view.width));
    text.push_str(&format!("\n{}", error_block(&letter.error)));
    let payload = letter.job.as_ref().and_then(|job| job.payload.as_ref());
    if let Some(payload) = payload {
        text.push_str(&format!("\n{}", block("Payload", payload.get(), &letter.job_id)));
    }
    text.push_str(&says(letter, view));
    text.push_str(&next(letter, view.width));
    text
}

impl Letter {
    /// What became of it.
    pub(super) fn sentence(&self, view: &View) -> String {
        let who = self.discard_requested_by.as_deref().unwrap_or("somebody");
        let reason = self.discard_reason.as_deref().map(one_line).unwrap_or_default();
        match self.state.as_str() {
            "open" => format!("open: {}", self.error.sentence()),
            "discard_requested" => {
                format!("{who} asks to discard it: \"{reason}\"; a second person has to agree")
            }
            "discarded" => {
                let at = view.times.show_option(self.closed_at);
                format!("discarded {at}: \"{reason}\"")
            }
            "requeued" => {
                format!(
                    "requeued: {} took over",
                    self.requeued_as.as_deref().unwrap_or("a new job")
                )
            }
            other => other.to_owned(),
        }
    }
}

/// Who had a say.
fn says(letter: &Letter, view: &View) -> String {
    let said = letter.approvals.as_deref().unwrap_or_default();
    if said.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{BOLD}Who had a say{BOLD:#}\n");
    for say in said {
        let (at, reason) = (view.times.show(say.at), one_line(&say.reason));
        text.push_str(&format!("  {at}  {} {}: \"{reason}\"\n", say.principal, say.step));
    }
    text
}

/// What can be done next.
fn next(letter: &Letter, width: usize) -> String {
    let id = &letter.dlq_id;
    let commands = match letter.state.as_str() {
        "open" => vec![
            (format!("windlass dlq requeue {id}"), "let a new job take over"),
            (format!("windlass dlq requeue {id} --payload JSON"), "with another payload"),
            (format!("windlass dlq discard {id} --reason WHY"), "ask to throw it away"),
        ],
        "discard_requested" => {
            vec![(format!("windlass dlq approve {id} --as NAME"), "agree, as a second person")]
        }
        "requeued" => letter
            .requeued_as
            .iter()
            .map(|job| (format!("windlass job show {job}"), "look at the job that took over"))
            .collect(),
        _ => vec![(format!("windlass job show {}", letter.job_id), "look at the job that failed")],
    };
    format!("\n{BOLD}Next{BOLD:#}\n{}", prose::commands(&commands, width))
}
