//! What to type next: for each error code, what a person at a terminal can do about it.
//!
//! Always true here: the last line has something to type, whatever the code. Where it is known what the call was about, the
//! line names it; else it stands for it, as in `windlass job show JOB`.

use clap::CommandFactory as _;

use super::{Cli, commands::explain};

/// What is known about the call that was refused.
#[derive(Clone, Copy, Default)]
pub(crate) struct About<'a> {
    /// The path that was called, such as `/api/v1/dlq/dlq_…/discard`.
    pub(crate) path: &'a str,
    /// What was said in answer.
    pub(crate) detail: &'a str,
    /// The job that the answer names.
    pub(crate) job: Option<&'a str>,
}

/// What a path can name.
const SORTS: [&str; 6] = ["jobs", "dlq", "queues", "rules", "schedules", "tokens"];

impl<'a> About<'a> {
    /// What stands in this place behind `/api/v1/`: first the sort of thing, then its name.
    fn part(self, place: usize) -> Option<&'a str> {
        let path = self.path.strip_prefix("/api/v1/")?;
        path.split('?').next()?.split('/').nth(place)
    }

    /// The name of the thing that was called, if it is of this sort.
    fn named(self, sort: &str) -> Option<String> {
        let name = (self.part(0) == Some(sort)).then(|| self.part(1)).flatten()?;
        form_urlencoded::parse(name.as_bytes()).next().map(|(name, _)| name.into_owned())
    }

    /// The name of the thing that was called, whatever it is.
    pub(crate) fn name(self) -> Option<String> {
        self.job.map(str::to_owned).or_else(|| SORTS.iter().find_map(|sort| self.named(sort)))
    }

    fn job(self) -> String {
        let job = self.job.map(str::to_owned).or_else(|| self.named("jobs"));
        job.unwrap_or_else(|| "JOB".to_owned())
    }

    fn letter(self) -> String {
        self.named("dlq").unwrap_or_else(|| "LETTER".to_owned())
    }
}

/// What to do about an answer with this code, line by line. The last one has something to type.
pub(crate) fn lines(code: &str, about: About<'_>) -> Vec<String> {
    let remedy = || {
        let info = explain::codes().find(|info| info.code == code);
        info.map_or_else(String::new, |info| info.remedy.to_owned())
    };
    let (job, letter) = (about.job(), about.letter());
    let show = || format!("Look at it: windlass job show {job}");
    let again = || format!("Let it run again: windlass dlq requeue {letter}");
    let told = |next: String| vec![remedy(), next];
    match code {
        "NOT_FOUND" => not_found(about),
        "APPROVAL_REQUIRED" => approval(about),
        "INVALID_TRANSITION" | "JOB_EXISTS" | "OUTDATED" => vec![show()],
        "STALE_ATTEMPT"
        | "IDEMPOTENCY_CONFLICT"
        | "CANCEL_REQUESTED"
        | "CLAIM_ALONE"
        | "STEP_RECORDED"
        | "STEP_NOT_BEGUN"
        | "BARRIER"
        | "HISTORY_LIMIT"
        | "SIGNAL_CONFLICT"
        | "TRANSIENT_ERROR" => told(show()),
        "NOT_DUE" => vec![format!("Make it due now: windlass job retry {job}")],
        "INVALID_INPUT" | "MALFORMED_REQUEST" | "HEAD_TOO_LARGE" => {
            vec![format!("See what it takes: {}", help())]
        }
        "TASK_ACTIVE" => vec![
            format!("Wait for it: windlass job watch {job}"),
            format!("Or stop it: windlass job cancel {job}"),
        ],
        "TASK_DUPLICATE" => told("Look for it: windlass job list".to_owned()),
        "DLQ_REQUEUE_CONFLICT" | "DLQ_CLOSED" => {
            vec![format!("See what became of it: windlass dlq show {letter}")]
        }
        "LAST_ADMIN" => vec![
            "Issue another one first: windlass token add NAME --role admin".to_owned(),
            "Or revoke it all the same: windlass token revoke TOKEN --force".to_owned(),
        ],
        "NOT_WAITING_FOR" => vec![format!("See what it waits for: windlass job why {job}")],
        // Such a job is parked: it waits for a person.
        "NONDETERMINISTIC" => told(format!("See what it waits for: windlass job why {job}")),
        "EFFECT_UNKNOWN" => told(format!("See which step it is: windlass dlq show {letter}")),
        "DRAINING" => vec![
            "Name another queue, or take things in again: windlass queue resume QUEUE".to_owned(),
            "See every rule: windlass queue rules".to_owned(),
        ],
        "PAYLOAD_UNFIT" => {
            let next = format!("windlass dlq requeue {letter} --payload JSON");
            told(format!("With another payload: {next}"))
        }
        "HANDLER_FAILED"
        | "HANDLER_PANICKED"
        | "TASK_TIMEOUT"
        | "HEARTBEAT_TIMEOUT"
        | "DEADLINE_EXCEEDED"
        | "INTERRUPTED_TOO_OFTEN"
        | "GIVEN_UP"
        | "STEP_TIMEOUT"
        | "STEP_FAILED"
        | "STEP_NESTED"
        | "STEP_UNFIT"
        | "WAIT_TIMED_OUT"
        | "CHILD_FAILED"
        | "CHILD_CANCELLED"
        | "LEDGER_FULL"
        | "HTTP_UNREACHABLE"
        | "HTTP_TIMEOUT"
        | "HTTP_UNAVAILABLE"
        | "HTTP_REJECTED"
        | "COMMAND_FAILED"
        | "COMMAND_UNAVAILABLE"
        | "WEBHOOK_UNKNOWN" => told(again()),
        "RESULT_UNFIT" => told(show()),
        "SCHEDULE_TO_START_TIMEOUT" => told("See who works: windlass top".to_owned()),
        "ADDRESS_NOT_ALLOWED" | "COMMAND_NOT_ALLOWED" | "COMMAND_NOT_STARTED" => {
            told("See what the config says: windlass config show --config FILE".to_owned())
        }
        "UNAVAILABLE" | "DISK_FULL" | "STORE_STOPPED" | "STORE_IN_USE" => {
            told("See how the store is: windlass doctor".to_owned())
        }
        "AMBIGUOUS" => told("Look whether it is there: windlass job list".to_owned()),
        "STORE_CONTRADICTION" | "INTERNAL" => {
            told("See whether all that is stored holds: windlass doctor --deep".to_owned())
        }
        "STORE_NEWER" => told("See which one this is: windlass --version".to_owned()),
        "STORE_DAMAGED" => {
            told("Put a backup in its place: windlass restore BACKUP --force".to_owned())
        }
        "STORE_CANNOT_OPEN" => vec![
            "Name another one: --store sqlite:FILE or --store postgres://HOST/DATABASE".to_owned(),
            "Or put a backup in the place of a file: windlass restore BACKUP --force".to_owned(),
        ],
        "FEED_GONE" => told("See the jobs: windlass job list".to_owned()),
        "FILE_EXISTS" => vec![remedy()],
        // At a terminal nobody writes headers.
        "UNAUTHORIZED" => vec![
            "Put a token into WINDLASS_TOKEN, or say --token. An admin makes one:".to_owned(),
            "windlass token add NAME --role operator".to_owned(),
        ],
        "FORBIDDEN" | "DENIED" => {
            told("An admin makes a token: windlass token add NAME --role ROLE".to_owned())
        }
        "NO_ROUTE" | "METHOD_NOT_ALLOWED" | "NOT_JSON" => {
            vec!["Are server and command line of the same version? windlass --version".to_owned()]
        }
        "TOO_LARGE" | "TOO_MANY_REQUESTS" => {
            let bound = if code == "TOO_LARGE" { "body_bytes_max" } else { "calls_per_second" };
            vec![
                "Send less at once, or wait a moment and type it again.".to_owned(),
                format!("The bound is {bound} of the server: windlass config show --origins"),
            ]
        }
        "TOO_SLOW" | "OVERLOADED" => {
            vec!["Wait a moment and type it again. See how it is: windlass top".to_owned()]
        }
        "STOPPING" => vec!["Type it again in a moment, or start it: windlass serve".to_owned()],
        other => vec![format!("See what that means: windlass explain {other}")],
    }
}

/// Where to look for what was not found, by what it is.
fn not_found(about: About<'_>) -> Vec<String> {
    let list = |what: &str| vec![format!("See what there is: windlass {what}")];
    match about.part(0).unwrap_or_default() {
        "dlq" => list("dlq list"),
        "queues" if about.part(2).is_some() => {
            list(&format!("queue rules {}", about.named("queues").unwrap_or_default()))
        }
        "queues" => list("queue list"),
        "rules" => list("queue rules"),
        "schedules" => list("schedule list"),
        "tokens" => list("token list"),
        _ => vec![
            "Check the id. A job that ended long ago may have been pruned by retention.".to_owned(),
            "See what there is: windlass job list".to_owned(),
        ],
    }
}

/// Whose turn it is with a dead letter that is to be thrown away.
fn approval(about: About<'_>) -> Vec<String> {
    let letter = about.letter();
    let is_first = about.path.ends_with("/approve") && about.detail.contains("ask for it first");
    vec![match is_first {
        true => format!("Ask for it: windlass dlq discard {letter} --reason WHY"),
        false => format!("Somebody else types: windlass dlq approve {letter} --as NAME"),
    }]
}

/// The help of the command that was typed.
fn help() -> String {
    let mut words = vec!["windlass".to_owned()];
    let mut command = Cli::command();
    for word in std::env::args().skip(1) {
        let Some(below) = command.find_subcommand(&word) else { continue };
        words.push(below.get_name().to_owned());
        command = below.clone();
        if !command.has_subcommands() {
            break;
        }
    }
    format!("{} --help", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_ends_with_something_to_type() {
        for info in explain::codes() {
            let lines = lines(info.code, About::default());
            let last = lines.last().expect("there is something");
            assert!(
                last.contains("windlass ") || last.contains("--force"),
                "{}: {last}",
                info.code
            );
            assert!(!last.contains("windlass explain"), "{} has nothing of its own", info.code);
            assert!(lines.iter().all(|line| !line.is_empty()), "{}: {lines:?}", info.code);
        }
    }

    fn check(code: &str, path: &str, detail: &str, expected: &str) {
        let lines = lines(code, About { path, detail, job: None });
        assert_eq!(lines.last().map(String::as_str), Some(expected), "{path}");
    }

    #[test]
    fn what_was_not_found_leads_to_its_list() {
        for (path, expected) in [
            ("/api/v1/jobs/job_1", "See what there is: windlass job list"),
            ("/api/v1/dlq/dlq_1/requeue", "See what there is: windlass dlq list"),
            ("/api/v1/queues/mail", "See what there is: windlass queue list"),
            ("/api/v1/queues/mail/resume", "See what there is: windlass queue rules mail"),
            ("/api/v1/rules/few", "See what there is: windlass queue rules"),
            ("/api/v1/schedules/nightly?limit=1", "See what there is: windlass schedule list"),
            ("/api/v1/tokens/tok_1", "See what there is: windlass token list"),
        ] {
            check("NOT_FOUND", path, "", expected);
        }
    }

    #[test]
    fn whoever_has_the_next_say_is_told_what_to_type() {
        let other = "Somebody else types: windlass dlq approve dlq_1 --as NAME";
        let (ask, agree) = ("/api/v1/dlq/dlq_1/discard", "/api/v1/dlq/dlq_1/discard/approve");
        check("APPROVAL_REQUIRED", ask, "it was asked for before", other);
        check("APPROVAL_REQUIRED", agree, "whoever asked cannot approve", other);
        let first = "Ask for it: windlass dlq discard dlq_1 --reason WHY";
        check("APPROVAL_REQUIRED", agree, "someone else has to ask for it first", first);
    }
}
