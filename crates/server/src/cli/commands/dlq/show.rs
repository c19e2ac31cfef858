//! `windlass dlq show`: a dead letter with its job.

use clap::Args;
use windlass::wire::LetterDocument;
use windlass_kernel::LetterState;

use super::{letter_id, look};
use crate::cli::{
    api::{Api, ApiArgs, path},
    commands::job::{self, Facts, block, error_block, one_line},
    look::{
        prose,
        view::{BOLD, View},
    },
    trouble::Trouble,
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
    let letter: LetterDocument = document.read()?;
    view.document(&document, || text(&letter, view));
    Ok(())
}

fn text(letter: &LetterDocument, view: &View) -> String {
    let (shape, style) = look(letter.state);
    let line = sentence(letter, view);
    let mut text = format!("{BOLD}{}{BOLD:#}\n{style}{shape} {line}{style:#}\n\n", letter.dlq_id);
    let mut facts = Facts::default();
    let job_id = letter.job_id.to_string();
    facts.add("job", &job_id);
    if let Some(job) = &letter.job {
        facts.add("kind", &job.kind);
        facts.add("queue", &job.queue);
        facts.add_some("tags", (!job.tags.is_empty()).then(|| job.tags.join(", ")));
    }
    facts.add("given up for", letter.why.as_str().replace('_', " "));
    facts.add("tries", letter.attempt.to_string());
    facts.add("since", view.times.show(letter.created_at));
    facts.add_some("closed", letter.closed_at.map(|at| view.times.show(at)));
    text.push_str(&facts.fit(view.width));
    text.push_str(&format!("\n{}", error_block(&letter.error)));
    let payload = letter.job.as_ref().and_then(|job| job.payload.as_ref());
    if let Some(payload) = payload {
        text.push_str(&format!("\n{}", block("Payload", payload.get(), &job_id)));
    }
    text.push_str(&says(letter, view));
    text.push_str(&next(letter, view.width));
    text
}

/// What became of a letter.
pub(super) fn sentence(letter: &LetterDocument, view: &View) -> String {
    let who = letter.discard_requested_by.as_deref().unwrap_or("somebody");
    let reason = letter.discard_reason.as_deref().map(one_line).unwrap_or_default();
    match letter.state {
        LetterState::Open => format!("open: {}", job::sentence(&letter.error)),
        LetterState::DiscardRequested => {
            format!("{who} asks to discard it: \"{reason}\"; a second person has to agree")
        }
        LetterState::Discarded => {
            let at = view.times.show_option(letter.closed_at);
            format!("discarded {at}: \"{reason}\"")
        }
        LetterState::Requeued => {
            let job = letter.requeued_as.map(|job| job.to_string());
            format!("requeued: {} took over", job.as_deref().unwrap_or("a new job"))
        }
    }
}

/// Who had a say.
fn says(letter: &LetterDocument, view: &View) -> String {
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
fn next(letter: &LetterDocument, width: usize) -> String {
    let id = &letter.dlq_id;
    let commands = match letter.state {
        LetterState::Open => vec![
            (format!("windlass dlq requeue {id}"), "let a new job take over"),
            (format!("windlass dlq requeue {id} --payload JSON"), "with another payload"),
            (format!("windlass dlq discard {id} --reason WHY"), "ask to throw it away"),
        ],
        LetterState::DiscardRequested => {
            vec![(format!("windlass dlq approve {id} --as NAME"), "agree, as a second person")]
        }
        LetterState::Requeued => letter
            .requeued_as
            .iter()
            .map(|job| (format!("windlass job show {job}"), "look at the job that took over"))
            .collect(),
        LetterState::Discarded => {
            vec![(
                format!("windlass job show {job}", job = letter.job_id),
                "look at the job that failed",
            )]
        }
    };
    format!("\n{BOLD}Next{BOLD:#}\n{}", prose::commands(&commands, width))
}
