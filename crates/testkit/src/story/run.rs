//! Run: the lines of a story happen in a world, and each is compared with what it expects.
//!
//! After every line, for every job that it touched: the history has no gap, and folding it rebuilds the
//! row. A refusal changes nothing. Time stands still but for `pass`, which fires timers in their order.

use std::{collections::BTreeSet, fmt, time::Duration};

use serde_json::Value;
use windlass_kernel::{
    Answer, Cause, DlqId, Event, Jitter, Job, JobId, Op, Refusal, State, Timestamp, WorkerId, fold,
    ids::ClaimId,
    ops::{Claim, Expire, Expiry, Outcome, Promote, RetryNow, Settle},
    timer,
};

use super::{
    contract,
    deed::Deed,
    expect::{Expect, Seen},
    ops,
    parse::{Line, Story},
    step::{Action, RunEnding},
    words::{Name, Result, parse_duration},
};
use crate::World;

/// A line that did not go as the story says.
#[derive(Debug)]
pub struct Failure {
    /// The number of the line in its file.
    pub number: usize,
    /// The line.
    pub text: String,
    /// What was expected and what came.
    pub why: String,
    /// What had happened so far to the job that the line is about.
    pub history: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  {}", self.number, self.text, self.why)?;
        self.history.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Lives through a story in an empty world. Gives back what the story shows, line by line.
pub fn run(story: &Story, world: &mut dyn World) -> std::result::Result<Vec<String>, Failure> {
    let began = "2026-01-01T00:00:00Z".parse().expect("it is an instant");
    let mut scene = Scene { world, began, now: began, last: None, count: 0, shown: Vec::new() };
    for line in &story.lines {
        if let Err(why) = scene.play(line) {
            let (number, text) = (line.number, line.text.clone());
            return Err(Failure { number, text, why, history: scene.history() });
        }
    }
    Ok(scene.shown)
}

/// A story on its way.
struct Scene<'a> {
    world: &'a mut dyn World,
    began: Timestamp,
    now: Timestamp,
    /// The job that was mentioned last.
    last: Option<Name>,
    /// How many ops there were.
    count: u64,
    shown: Vec<String>,
}

impl Scene<'_> {
    fn play(&mut self, line: &Line) -> Result<()> {
        let jobs = line.step.jobs();
        self.last = jobs.last().copied().or(self.last);
        let before: Vec<_> = jobs.iter().map(|job| self.world.job(job.id())).collect();
        let mut touched: BTreeSet<Name> = jobs.iter().copied().collect();
        let answer = match &line.step.action {
            Action::Do(deed) => Some(self.do_deed(deed)),
            Action::Run { job, ending } => Some(self.run_job(job.id(), *ending)),
            Action::Pass { time, unnoticed } => {
                self.pass(*time, *unnoticed, &mut touched)?;
                None
            }
            Action::Die { worker } => {
                self.die(worker, &mut touched)?;
                None
            }
            Action::Restore => {
                self.world.restore();
                None
            }
            Action::Expect { .. } => None,
            Action::Events { job, causes } => {
                self.check_events(*job, causes)?;
                None
            }
            Action::Event { job, contract, fields } => {
                self.check_event(*job, contract.as_deref(), fields)?;
                None
            }
            Action::Replay { job, statuses } => {
                self.check_replay(*job, statuses)?;
                None
            }
        };
        if let Some(Ok(answer)) = &answer {
            self.last = Some(Name::of(answer.job_id));
        }
        self.check_expects(&line.step.expects, answer.as_ref())?;
        if let (Action::Do(_), Some(Err(_))) = (&line.step.action, &answer) {
            let after: Vec<_> = jobs.iter().map(|job| self.world.job(job.id())).collect();
            if before != after {
                return Err("it was refused, and yet something changed".to_owned());
            }
        }
        touched.into_iter().try_for_each(|job| self.check_history(job))
    }

    fn commit(&mut self, op: Op) -> std::result::Result<Answer, Refusal> {
        self.count += 1;
        self.world.commit(op, self.now)
    }

    fn do_deed(&mut self, deed: &Deed) -> std::result::Result<Answer, Refusal> {
        let job = self.world.job(deed.job.id());
        let (began, now, count) = (self.began, self.now, self.count);
        let op = ops::op(deed, &ops::Setting { job: job.as_ref(), began, now, count })?;
        self.commit(op)
    }

    /// Fires every timer that is due on the way, in the order of time.
    fn pass(
        &mut self,
        time: Duration,
        unnoticed: bool,
        touched: &mut BTreeSet<Name>,
    ) -> Result<()> {
        const ALARMS_MAX: usize = 1_000;
        let end = self.now.plus(time);
        for _ in 0..ALARMS_MAX {
            let jobs = if unnoticed { Vec::new() } else { self.world.open_jobs() };
            let alarms = jobs.iter().filter_map(|job| Some((timer::next(job)?, job)));
            let first = alarms.min_by_key(|((at, _), job)| (*at, job.id));
            let Some(((at, alarm), job)) = first.filter(|((at, _), _)| *at <= end) else {
                self.now = end;
                return Ok(());
            };
            self.now = self.now.max(at);
            let name = Name::of(job.id);
            touched.insert(name);
            self.commit(timer::op(job, alarm, Jitter::NONE))
                .map_err(|refusal| format!("the timer {alarm} of {name} was refused: {refusal}"))?;
        }
        Err(format!("{ALARMS_MAX} timers fired, and there is no end to it"))
    }

    /// Ends every lease of a worker session, for it is dead.
    fn die(&mut self, worker: &str, touched: &mut BTreeSet<Name>) -> Result<()> {
        for job in self.world.open_jobs() {
            if job.lease.is_none_or(|lease| lease.worker.as_str() != worker) {
                continue;
            }
            touched.insert(Name::of(job.id));
            let (job_id, version, what) = (job.id, job.version, Expiry::DeadSession);
            self.commit(Op::Expire(Expire { job_id, version, what, jitter: Jitter::NONE }))
                .map_err(|refusal| format!("its lease of {} stays: {refusal}", Name::of(job_id)))?;
        }
        Ok(())
    }

    /// Runs a job now, due or not, by the ordinary ops. One that runs already is only settled.
    fn run_job(
        &mut self,
        job_id: JobId,
        ending: RunEnding,
    ) -> std::result::Result<Answer, Refusal> {
        let worker = WorkerId::new("dev")?;
        let job = self.world.job(job_id);
        let state = job.as_ref().map(|job| job.state);
        if let (Some(State::Scheduled), Some(job)) = (state, &job) {
            self.commit(Op::Promote(Promote { job_id, version: job.version }))?;
        }
        if state == Some(State::RetryScheduled) {
            let by = windlass_kernel::Actor::Scheduler.into();
            self.commit(Op::RetryNow(RetryNow { job_id, by }))?;
        }
        let epoch = match job {
            Some(job) if job.state == State::Running => job.epoch,
            _ => {
                let claim_id = ClaimId::from_u128(self.count.into());
                let lease = Duration::from_secs(30);
                let worker = worker.clone();
                let claim = Claim { job_id, claim_id, worker, lease, start: true, alone: false };
                self.commit(Op::Claim(claim))?.epoch
            }
        };
        let outcome = match ending {
            RunEnding::Succeeded => Outcome::Succeeded { result: None },
            RunEnding::Failed => Outcome::Failed(windlass_kernel::Failure::permanent(
                "FORCED_FAILURE",
                "it was asked to fail",
            )),
            RunEnding::Transient => Outcome::Failed(windlass_kernel::Failure::transient(
                "TRANSIENT_FAILURE",
                "it was asked to fail, and may be tried again",
            )),
        };
        let jitter = Jitter::NONE;
        self.commit(Op::Settle(Settle { job_id, epoch, worker, outcome, stats: None, jitter }))
    }
}

/// Looking at what came.
impl Scene<'_> {
    fn check_expects(
        &mut self,
        expects: &[Expect],
        answer: Option<&std::result::Result<Answer, Refusal>>,
    ) -> Result<()> {
        if let (Some(Err(refusal)), true) = (answer, expects.is_empty()) {
            return Err(format!("it was refused with {}: {refusal}", refusal.code()));
        }
        for expect in expects {
            match (expect.job, answer) {
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

    fn check_events(&mut self, job: Name, expected: &[Cause]) -> Result<()> {
        let came: Vec<Cause> =
            self.world.events(job.id()).iter().map(|event| event.cause).collect();
        if came == expected {
            return Ok(());
        }
        Err(format!("expected {}, but it is {}", listed(expected), listed(&came)))
    }

    fn check_event(&mut self, job: Name, contract: Option<&str>, fields: &Value) -> Result<()> {
        let events = self.world.events(job.id());
        let last = events.last().ok_or_else(|| format!("{job} has no events"))?;
        let came = contract::event(contract, last)?;
        let expected = resolved(fields, last);
        if contains(&came, &expected) {
            return Ok(());
        }
        Err(format!("expected an event with {expected}, but it is {came}"))
    }

    fn check_replay(&mut self, name: Name, expected: &[String]) -> Result<()> {
        let job = self.world.job(name.id()).ok_or_else(|| format!("there is no job {name}"))?;
        let came = contract::status_transition(&self.world.events(name.id()));
        let Job { id, retry_count, spec, .. } = job;
        self.shown.push(format!(
            "trace_id={} job_id={id} retry_count={retry_count} status_transition={}",
            spec.trace_id,
            came.join("->"),
        ));
        if came == expected {
            return Ok(());
        }
        Err(format!("expected {}, but it is {}", expected.join(" "), came.join(" ")))
    }

    /// The history has no gap, and it is the row.
    fn check_history(&mut self, name: Name) -> Result<()> {
        let events = self.world.events(name.id());
        for (event, number) in events.iter().zip(1..) {
            if event.number != number {
                return Err(format!("event {number} of {name} has the number {}", event.number));
            }
        }
        let row = self.world.job(name.id()).map(|job| Job { lease: None, lease_count: 0, ..job });
        let folded = fold(&events).map(|job| Job { lease: None, lease_count: 0, ..job });
        if row == folded {
            return Ok(());
        }
        Err(format!("the events of {name} make {folded:?}, but the row is {row:?}"))
    }

    /// What happened so far to the job that was mentioned last.
    fn history(&mut self) -> Vec<String> {
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
