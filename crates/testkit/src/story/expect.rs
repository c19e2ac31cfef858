//! Expectations: what stands after the arrow, and how it is compared with what came.
//!
//! An expectation is a state or a refusal, and then fields. Two tables say which fields there are, what
//! their values look like and where they are found. A field that is not set reads `none`.

use std::{fmt, time::Duration};

use windlass_kernel::{
    Answer, Approval, Attempt, Cause, DeadLetter, Job, LetterState, Payload, Refusal, State,
    Timestamp,
    contract::{jobs, runs, tasks},
    job::Origin,
    ledger::StepAnswer,
    transition::AttemptState,
};

use super::words::{Name, Result, Words, parse_duration, unknown};

/// What is expected of one job, or of the op.
#[derive(Debug)]
pub(super) struct Expect {
    /// The job that is named; if none is, the one that the step is about.
    pub(super) job: Option<Name>,
    /// The state or the refusal.
    pub(super) outcome: Outcome,
    fields: Vec<(&'static str, String)>,
}

/// A state or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    State(State),
    Refused(&'static str),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::State(state) => state.fmt(f),
            Outcome::Refused(code) => write!(f, "refused {code}"),
        }
    }
}

/// A job and all that belongs to it, at one moment.
pub(super) struct Seen {
    pub(super) job: Job,
    /// What the op was told, if the expectation is about an op.
    pub(super) answer: Option<Answer>,
    pub(super) letter: Option<DeadLetter>,
    pub(super) approvals: Vec<Approval>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) now: Timestamp,
}

/// What a value looks like.
#[derive(Clone, Copy)]
enum Kind {
    Number,
    Time,
    YesNo,
    Text,
    Job,
    Json,
    Cause,
    Letter,
    Attempt,
    Request,
}

type FieldOf<T> = (&'static str, Kind, fn(&T) -> Option<String>);

/// The fields of a job. Where an op has an answer, its part of them is taken from the answer.
const FIELDS: &[FieldOf<Seen>] = &[
    ("job", Kind::Job, |seen| Some(Name::of(seen.job.id).to_string())),
    ("recorded", Kind::YesNo, |seen| Some(yes_no(seen.answer.as_ref()?.recorded))),
    ("answer", Kind::Text, |seen| seen.answer().steps.last().map(step_answer)),
    ("steps", Kind::Number, |seen| Some(seen.job.ledger.steps.to_string())),
    ("records", Kind::Number, |seen| Some(seen.job.ledger.recorded.to_string())),
    ("mails", Kind::Number, |seen| Some(seen.job.ledger.mails.to_string())),
    ("taken", Kind::Number, |seen| Some(seen.job.ledger.taken.to_string())),
    ("delivered", Kind::YesNo, |seen| Some(yes_no(seen.answer.as_ref()?.delivered))),
    ("epoch", Kind::Number, |seen| Some(seen.answer().epoch.to_string())),
    ("lease_in", Kind::Time, |seen| seen.until(seen.answer().leased_until)),
    ("next_retry_in", Kind::Time, |seen| seen.until(seen.answer().next_retry_at)),
    ("cancel", Kind::Request, |seen| {
        seen.answer().cancel_requested.then(|| "requested".to_owned())
    }),
    ("attempt", Kind::Number, |seen| Some(seen.job.attempt.to_string())),
    ("retry_count", Kind::Number, |seen| Some(seen.job.retry_count.to_string())),
    ("interruptions", Kind::Number, |seen| Some(seen.job.interruptions.to_string())),
    ("version", Kind::Number, |seen| Some(seen.job.version.to_string())),
    ("lease_count", Kind::Number, |seen| Some(seen.job.lease_count.to_string())),
    ("owner", Kind::Text, |seen| Some(seen.job.lease.as_ref()?.worker.to_string())),
    ("isolated", Kind::YesNo, |seen| Some(yes_no(seen.job.is_isolated()))),
    ("started", Kind::YesNo, |seen| Some(yes_no(seen.job.has_started()))),
    ("due_in", Kind::Time, |seen| seen.until(Some(seen.job.spec.due_at))),
    ("grace_in", Kind::Time, |seen| seen.until(Some(seen.job.cancel.as_ref()?.grace_until))),
    ("wait_in", Kind::Time, |seen| seen.until(seen.job.wait.as_ref()?.until)),
    ("waits_for", Kind::Text, |seen| Some(seen.job.wait.as_ref()?.on.to_string())),
    ("woken", Kind::Text, |seen| seen.job.woken.map(|how| how.to_string())),
    ("ended_by", Kind::Cause, |seen| seen.job.ended_by.map(|cause| cause.to_string())),
    ("error", Kind::Text, |seen| Some(seen.job.error.as_ref()?.code.clone())),
    ("task", Kind::Text, |seen| Some(named(seen.job.spec.task_id.as_str()))),
    ("tenant", Kind::Text, |seen| Some(seen.job.spec.tenant.to_string())),
    ("trace", Kind::Text, |seen| Some(seen.job.spec.trace_id.to_string())),
    ("payload", Kind::Json, |seen| Some(seen.job.spec.payload_digest.to_string())),
    ("result", Kind::Json, |seen| Some(seen.job.result?.to_string())),
    ("remaining", Kind::Json, |seen| Some(seen.job.remaining?.to_string())),
    ("execution_key", Kind::Text, |seen| Some(named(&seen.job.execution_key()))),
    ("attempt_id", Kind::Text, |seen| Some(named(&seen.job.attempt_id()))),
    ("requeued_from", Kind::Job, Seen::requeued_from),
    ("rerun_of", Kind::Job, Seen::rerun_of),
    ("attempts", Kind::Number, |seen| Some(seen.attempts.len().to_string())),
    ("attempt_state", Kind::Attempt, |seen| Some(seen.attempts.last()?.state.to_string())),
    ("attempt_error", Kind::Text, |seen| {
        Some(seen.attempts.last()?.failure.as_ref()?.code.clone())
    }),
    ("stats", Kind::Json, |seen| Some(seen.attempts.last()?.stats.as_ref()?.digest().to_string())),
    ("dlq", Kind::Letter, |seen| Some(seen.letter.as_ref()?.state.to_string())),
    ("dlq_why", Kind::Cause, |seen| Some(seen.letter.as_ref()?.why.to_string())),
    ("dlq_error", Kind::Text, |seen| Some(seen.letter.as_ref()?.failure.code.clone())),
    ("dlq_began_in", Kind::Text, |seen| Some(seen.letter.as_ref()?.began_in.to_string())),
    ("requeued_as", Kind::Job, |seen| {
        Some(Name::of(seen.letter.as_ref()?.requeued_as?).to_string())
    }),
    ("approvals", Kind::Number, |seen| Some(seen.approvals.len().to_string())),
];

/// The fields of a refusal.
const REFUSAL_FIELDS: &[FieldOf<Refusal>] = &[
    ("fields", Kind::Text, |refusal| match refusal {
        Refusal::IdempotencyConflict { fields, .. } => Some(fields.join(",")),
        _ => None,
    }),
    ("field", Kind::Text, |refusal| match refusal {
        Refusal::Invalid { field, .. } => Some((*field).to_owned()),
        _ => None,
    }),
    ("job", Kind::Job, |refusal| match refusal {
        Refusal::IdempotencyConflict { job_id, .. }
        | Refusal::JobExists { job_id }
        | Refusal::TaskActive { job_id, .. } => Some(Name::of(*job_id).to_string()),
        _ => None,
    }),
    ("in_runs", Kind::Text, |refusal| Some(runs::CONTRACT.code(refusal).to_owned())),
    ("in_tasks", Kind::Text, |refusal| Some(tasks::CONTRACT.code(refusal).to_owned())),
    ("in_jobs", Kind::Text, |refusal| Some(jobs::CONTRACT.code(refusal).to_owned())),
];

impl Expect {
    /// Reads all that stands after an arrow: each name of a job begins another expectation.
    pub(super) fn read_all(words: Option<Words>) -> Result<Vec<Expect>> {
        let Some(mut words) = words else { return Ok(Vec::new()) };
        let mut expects: Vec<Expect> = Vec::new();
        let mut job = words.take_job();
        let mut next = Some(words.word("the state")?);
        while let Some(word) = next {
            let mut expect =
                Expect { job, outcome: read_outcome(&word, &mut words)?, fields: vec![] };
            (job, next) = expect.read_fields(&mut words)?;
            expects.push(expect);
        }
        Ok(expects)
    }

    /// Reads fields until the line ends or another job is named.
    fn read_fields(&mut self, words: &mut Words) -> Result<(Option<Name>, Option<String>)> {
        loop {
            if let Some(job) = words.take_job() {
                return Ok((Some(job), Some(words.word("the state")?)));
            }
            let Some(key) = words.next() else { return Ok((None, None)) };
            let (key, kind) = match self.outcome {
                Outcome::State(_) => known_field(FIELDS, &key)?,
                Outcome::Refused(_) => known_field(REFUSAL_FIELDS, &key)?,
            };
            if self.fields.iter().any(|(known, _)| *known == key) {
                return Err(format!("{key} is said twice"));
            }
            self.fields.push((key, kind.read(key, &words.word(key)?)?));
        }
    }

    /// Compares with a job, and says what differs.
    pub(super) fn check_job(&self, seen: &Seen) -> Result<()> {
        let came = Outcome::State(seen.answer().state);
        self.check_outcome(&came)?;
        check_fields(&self.fields, FIELDS, seen)
    }

    /// Compares with a refusal, and says what differs.
    pub(super) fn check_refusal(&self, refusal: &Refusal) -> Result<()> {
        let came = Outcome::Refused(refusal.code());
        self.check_outcome(&came).map_err(|why| format!("{why} ({refusal})"))?;
        check_fields(&self.fields, REFUSAL_FIELDS, refusal)
    }

    fn check_outcome(&self, came: &Outcome) -> Result<()> {
        if self.outcome == *came {
            return Ok(());
        }
        Err(format!("expected {}, but it is {came}", self.outcome))
    }
}

fn read_outcome(word: &str, words: &mut Words) -> Result<Outcome> {
    if word == "refused" {
        let code = words.word("the code")?;
        let known = Refusal::CODES.iter().find(|info| info.code == code);
        let info = known.ok_or_else(|| format!("there is no code {code:?}"))?;
        return Ok(Outcome::Refused(info.code));
    }
    match State::parse(word) {
        Some(state) => Ok(Outcome::State(state)),
        None => Err(format!("there is no state {word:?}")),
    }
}

fn known_field<T>(table: &[FieldOf<T>], key: &str) -> Result<(&'static str, Kind)> {
    match table.iter().find(|(known, ..)| *known == key) {
        Some((known, kind, _)) => Ok((known, *kind)),
        None => {
            let known: Vec<_> = table.iter().map(|(known, ..)| *known).collect();
            unknown("field", key, &known.join(" "))
        }
    }
}

fn check_fields<T>(
    expected: &[(&'static str, String)],
    table: &[FieldOf<T>],
    seen: &T,
) -> Result<()> {
    for (key, expected) in expected {
        let (.., find) = table.iter().find(|(known, ..)| known == key).expect("it was read");
        let came = find(seen).unwrap_or_else(|| "none".to_owned());
        if came != *expected {
            return Err(format!("expected {key} {expected}, but it is {came}"));
        }
    }
    Ok(())
}

impl Kind {
    /// Checks a value and writes it the one way in which it is compared.
    fn read(self, key: &str, word: &str) -> Result<String> {
        if word == "none" {
            return Ok(word.to_owned());
        }
        let fits = match self {
            Kind::Number if word.parse::<i64>().is_err() => {
                return Err(format!("{key} must be a number, not {word:?}"));
            }
            Kind::Time => {
                let time = parse_duration(word)
                    .ok_or_else(|| format!("{key} must be a time like 10s, not {word:?}"))?;
                return Ok(in_ms(time));
            }
            Kind::Json => {
                let payload = Payload::parse(word, Payload::MAX_BYTES_DEFAULT)
                    .map_err(|_| format!("{key} must be JSON, not {word:?}"))?;
                return Ok(payload.digest().to_string());
            }
            Kind::Job => return Name::parse(word).map(|name| name.to_string()),
            Kind::YesNo if !matches!(word, "yes" | "no") => {
                return Err(format!("{key} must be yes or no, not {word:?}"));
            }
            Kind::Cause => Cause::parse(word).is_some(),
            Kind::Letter => LetterState::parse(word).is_some(),
            Kind::Attempt => AttemptState::parse(word).is_some(),
            Kind::Request => word == "requested",
            Kind::Number | Kind::YesNo | Kind::Text => true,
        };
        if fits { Ok(word.to_owned()) } else { Err(format!("{key} is never {word:?}")) }
    }
}

impl Seen {
    /// What the op was told; else what it would be told of the job as it stands.
    fn answer(&self) -> Answer {
        self.answer.clone().unwrap_or_else(|| Answer {
            job_id: self.job.id,
            state: self.job.state,
            recorded: false,
            epoch: self.job.epoch,
            leased_until: self.job.lease.as_ref().map(|lease| lease.until),
            next_retry_at: self.job.next_retry_at,
            dlq_id: self.job.dlq_id,
            cancel_requested: self.job.cancel.is_some(),
            steps: Vec::new(),
            delivered: false,
        })
    }

    /// How long it is until then.
    fn until(&self, at: Option<Timestamp>) -> Option<String> {
        at.map(|at| in_ms(at.since(self.now)))
    }

    fn requeued_from(&self) -> Option<String> {
        match self.job.spec.origin {
            // A letter has the id of its job.
            Origin::Requeued(letter) => Some(Name::of(letter.job_id()).to_string()),
            Origin::Enqueued | Origin::Rerun(_) => None,
        }
    }

    fn rerun_of(&self) -> Option<String> {
        match self.job.spec.origin {
            Origin::Rerun(job_id) => Some(Name::of(job_id).to_string()),
            Origin::Requeued(letter) => Some(Name::of(letter.job_id()).to_string()),
            Origin::Enqueued => None,
        }
    }
}

/// The text with the name of a job in place of the id that it begins with.
fn named(text: &str) -> String {
    let (id, rest) = text.split_at(text.find(['+', ':']).unwrap_or(text.len()));
    match id.parse() {
        Ok(id) => format!("{}{rest}", Name::of(id)),
        Err(_) => text.to_owned(),
    }
}

/// What is said of an entry of a ledger, in a word: a number says which record it is.
fn step_answer(answer: &StepAnswer) -> String {
    match answer {
        StepAnswer::Execute { .. } => "execute".to_owned(),
        StepAnswer::Recorded(record) => format!("recorded:{}", record.number),
        StepAnswer::Wait => "wait".to_owned(),
        StepAnswer::Barrier { .. } => "barrier".to_owned(),
        StepAnswer::Done { number } => format!("done:{number}"),
        StepAnswer::Noted => "noted".to_owned(),
    }
}

fn in_ms(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn yes_no(fact: bool) -> String {
    if fact { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::deed::Deed;

    #[test]
    fn the_readme_names_every_field_and_verb() {
        let readme = include_str!("../../stories/README.md");
        let named: Vec<&str> = readme.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let fields = FIELDS.iter().map(|(key, ..)| *key);
        let refusal_fields = REFUSAL_FIELDS.iter().map(|(key, ..)| *key);
        let verbs = Deed::VERBS.split(' ');
        for word in fields.chain(refusal_fields).chain(verbs) {
            assert!(named.contains(&word), "{word} is not in stories/README.md");
        }
    }
}
