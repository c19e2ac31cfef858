//! Check: what came is compared with what a line expects, and with its own history.

use serde_json::Value;
use windlass_kernel::{
    Answer, Attempt, Cause, DlqId, Event, Job, attempts, contract::jobs::Replay, fold,
};

use super::{
    contract,
    expect::{Expect, Seen},
    run::{Scene, Told},
    words::{Name, Result, parse_duration},
};

impl Scene<'_> {
    pub(super) fn check_expects(&mut self, expects: &[Expect], told: Option<&Told>) -> Result<()> {
        if let (Some(Err(refusal)), true) = (told, expects.is_empty()) {
            return Err(format!("it was refused with {}: {refusal}", refusal.code()));
        }
        for expect in expects {
            match (expect.job, told) {
                (None, Some(Err(refusal))) => expect.check_refusal(refusal)?,
                (None, Some(Ok(answer))) => {
                    let seen = self.see(Name::of(answer.job_id), Some(answer.clone()))?;
                    expect.check_job(&seen)?;
                }
                (job, _) => {
                    let job = job.or(self.last).ok_or("no job was mentioned so far")?;
                    let seen = self.see(job, None)?;
                    expect.check_job(&seen).map_err(|why| format!("{job}: {why}"))?;
                }
            }
        }
        Ok(())
    }

    fn see(&mut self, name: Name, answer: Option<Answer>) -> Result<Seen> {
        let dlq_id = DlqId::of_job(name.id());
        Ok(Seen {
            job: self.world.job(name.id()).ok_or_else(|| format!("there is no job {name}"))?,
            answer,
            letter: self.world.letter(dlq_id),
            approvals: self.world.approvals(dlq_id),
            attempts: self.world.attempts(name.id()),
            now: self.now,
        })
    }

    pub(super) fn check_events(&mut self, job: Name, expected: &[Cause]) -> Result<()> {
        let came: Vec<Cause> =
            self.world.events(job.id()).iter().map(|event| event.cause).collect();
        if came == expected {
            return Ok(());
        }
        Err(format!("expected {}, but it is {}", listed(expected), listed(&came)))
    }

    pub(super) fn check_event(
        &mut self,
        job: Name,
        contract: Option<&str>,
        fields: &Value,
    ) -> Result<()> {
        let events = self.world.events(job.id());
        let row = self.world.job(job.id()).ok_or_else(|| format!("there is no job {job}"))?;
        let (event, came) = contract::last_event(contract, &events, &row.spec)?;
        let expected = resolved(fields, event);
        if contains(&came, &expected) {
            return Ok(());
        }
        Err(format!("expected an event with {expected}, but it is {came}"))
    }

    pub(super) fn check_replay(&mut self, name: Name, expected: &[String]) -> Result<()> {
        let job = self.world.job(name.id()).ok_or_else(|| format!("there is no job {name}"))?;
        let Replay { trace_id, job_id, retry_count, status_transition: came, .. } =
            Replay::new(&job, &self.world.events(name.id()));
        self.shown.push(format!(
            "trace_id={trace_id} job_id={job_id} retry_count={retry_count} status_transition={}",
            came.join("->"),
        ));
        if came == expected {
            return Ok(());
        }
        Err(format!("expected {}, but it is {}", expected.join(" "), came.join(" ")))
    }

    /// The history has no gap, and it is the row and the attempts.
    pub(super) fn check_history(&mut self, name: Name) -> Result<()> {
        let events = self.world.events(name.id());
        for (event, number) in events.iter().zip(1..) {
            if event.number != number {
                return Err(format!("event {number} of {name} has the number {}", event.number));
            }
        }
        let row = self.world.job(name.id()).map(|job| Job { lease: None, lease_count: 0, ..job });
        let folded = fold(&events).map(|job| Job { lease: None, lease_count: 0, ..job });
        if row != folded {
            return Err(format!("the events of {name} make {folded:?}, but the row is {row:?}"));
        }
        let kept = self.world.attempts(name.id()).into_iter();
        let kept: Vec<_> = kept.map(|attempt| Attempt { stats: None, ..attempt }).collect();
        let told = attempts(&events);
        if kept == told {
            return Ok(());
        }
        Err(format!("the events of {name} tell of {told:?}, but it has {kept:?}"))
    }

    /// What happened so far to the job that was mentioned last.
    pub(super) fn history(&mut self) -> Vec<String> {
        let Some(name) = self.last else { return Vec::new() };
        let told = |event: &Event| {
            let Event { number, cause, to, attempt, epoch, .. } = event;
            let after = event.at.since(self.began).as_millis();
            format!(
                "{name} {number}: {cause} -> {to}, attempt {attempt}, epoch {epoch}, at {after}ms"
            )
        };
        self.world.events(name.id()).iter().map(told).collect()
    }
}

fn listed(causes: &[Cause]) -> String {
    causes.iter().map(|cause| cause.as_str()).collect::<Vec<_>>().join(" ")
}

/// The JSON of a story with its short forms written out: `"j1"` is the id of the job, `"letter of j1"`
/// that of its dead letter, and `"+10s"` is ten seconds after the event.
fn resolved(value: &Value, event: &Event) -> Value {
    match value {
        Value::String(text) => {
            let time = text.strip_prefix('+').and_then(parse_duration);
            let letter = text.strip_prefix("letter of ").and_then(|job| Name::parse(job).ok());
            let job = Name::parse(text).ok();
            let time = time.map(|time| event.at.plus(time).to_string());
            let letter = letter.map(|job| DlqId::of_job(job.id()).to_string());
            let job = job.map(|job| job.id().to_string());
            time.or(letter).or(job).map_or_else(|| value.clone(), Value::String)
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), resolved(value, event)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Does `came` have all that is expected? Objects may have more fields; all else is equal.
fn contains(came: &Value, expected: &Value) -> bool {
    match (came, expected) {
        (Value::Object(came), Value::Object(expected)) => expected
            .iter()
            .all(|(key, expected)| came.get(key).is_some_and(|came| contains(came, expected))),
        _ => came == expected,
    }
}
