//! Deeds: the lines of a story that become one op each, as they were written.
//!
//! A deed keeps names as text and times as lengths. They become ids and instants when the story runs, so
//! that a name which the kernel refuses is refused then, like any other value.

use std::time::Duration;

use windlass_kernel::{
    job::ScheduleType,
    ledger::{Mode, RecordedBy},
};

use super::words::{Name, Result, Words, unknown};

/// Something that is done to a job.
#[derive(Debug)]
pub(super) struct Deed {
    /// The job that the line names first.
    pub(super) job: Name,
    /// What is done.
    pub(super) what: What,
}

/// What is done.
#[derive(Debug)]
pub(super) enum What {
    Enqueue(Box<Asked>),
    Claim { by: String, lease: Duration, alone: bool, start: bool, id: Option<String> },
    Start { held: Held },
    Renew { held: Held, lease: Duration, heartbeat: bool },
    Release { held: Held },
    Settle { held: Held, outcome: Ending, stats: Option<String>, jitter: Duration },
    Checkpoint { held: Held, state: String },
    Wait { held: Held, on: Awaited, limit: Option<Duration>, seen: Option<u32> },
    Wake { child: Name },
    Advance { held: Held, step: StepLine, happened: StepHappened },
    HandIn { held: Held, key: String, result: String },
    Signal { name: SignalName, content: SignalContent, expect_waiting: bool, by: String },
    Resolve { key: Option<String>, result: Option<String>, by: String, because: String },
    Cancel { force: bool, grace: Option<Duration>, by: String, because: Option<String> },
    RetryNow { by: String },
    RunNow { by: String },
    Bury { by: String, because: String },
    Requeue { new: Name, by: String, payload: Option<String> },
    Discard { by: String, because: String },
    Approve { by: String },
    Rerun { new: Name, by: String },
}

/// A step as a line names it.
#[derive(Debug)]
pub(super) struct StepLine {
    pub(super) key: String,
    pub(super) mode: Mode,
    pub(super) input: Option<String>,
}

/// What happens to a step.
#[derive(Debug)]
pub(super) enum StepHappened {
    Begun { call: u64 },
    TryFailed { code: String },
    Recorded { outcome: StepEnd, by: RecordedBy },
}

/// What came of a step: a result, or the code of a failure.
#[derive(Debug)]
pub(super) enum StepEnd {
    Result(String),
    Failed(String),
}

/// What a signal is known by.
#[derive(Debug)]
pub(super) enum SignalName {
    Signal { key: String },
    Message { channel: String, id: String },
    Child { job: Name },
}

/// What a signal brings.
#[derive(Debug)]
pub(super) enum SignalContent {
    Payload(String),
    Rejected(String),
}

/// All that an enqueue can say. What it does not say is as usual.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) by: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) payload: Option<String>,
    pub(super) priority: Option<i16>,
    pub(super) schedule: Option<ScheduleType>,
    /// Due this long after the story began.
    pub(super) at: Option<Duration>,
    /// Due this long from now.
    pub(super) after: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) heartbeat: Option<Duration>,
    pub(super) start_within: Option<Duration>,
    /// To be at an end this long from now.
    pub(super) deadline: Option<Duration>,
    /// To be at an end this long after the story began.
    pub(super) deadline_at: Option<Duration>,
    pub(super) retries: Option<u32>,
    pub(super) base: Option<Duration>,
    pub(super) cap: Option<Duration>,
    pub(super) max_interruptions: Option<u32>,
    pub(super) scope: Option<String>,
    pub(super) key: Option<String>,
    pub(super) run_key: Option<String>,
    /// The task, and whether it may have run before.
    pub(super) task: Option<(String, bool)>,
    pub(super) limit_key: Option<String>,
    pub(super) unique_key: Option<String>,
    pub(super) tags: Vec<String>,
    pub(super) trace: Option<String>,
    pub(super) parent: Option<Name>,
}

/// Under which lease a worker writes: by default the one that is held now.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) epoch: Option<u64>,
    pub(super) by: Option<String>,
}

/// How an execution ended.
#[derive(Debug)]
pub(super) enum Ending {
    Succeeded { result: Option<String> },
    Partial { result: Option<String>, remaining: String },
    Failed { code: String, is_final: bool, retry_after: Option<Duration> },
    Cancelled { because: Option<String> },
}

/// What a job waits for.
#[derive(Debug)]
pub(super) enum Awaited {
    Time { after: Duration },
    Other(Waker),
}

/// What ends a wait, other than time.
#[derive(Debug)]
pub(super) enum Waker {
    Signal { key: String },
    Child { job: Name },
    Message { channel: String },
    Operator { code: String, step: Option<String> },
}

/// The lease of a claim or a renewal that names none.
const LEASE: Duration = Duration::from_secs(30);
/// The person who acts where a line names none.
const PERSON: &str = "ops";

impl Deed {
    /// The verbs that become one op.
    pub(super) const VERBS: &'static str = "enqueue claim start renew release settle checkpoint wait \
         begin try_failed record hand_in wake signal message resolve cancel retry_now run_now bury requeue \
         discard approve rerun";

    /// The jobs that it names, in order.
    pub(super) fn jobs(&self) -> Vec<Name> {
        match self.what {
            What::Requeue { new, .. } | What::Rerun { new, .. } => vec![self.job, new],
            _ => vec![self.job],
        }
    }

    /// Reads what is done; none if the verb is no deed.
    pub(super) fn read(verb: &str, words: &mut Words) -> Result<Option<Deed>> {
        if !Self::VERBS.split(' ').any(|known| known == verb) {
            return Ok(None);
        }
        let job = words.job("the job")?;
        let what = match verb {
            "enqueue" => What::Enqueue(Box::new(read_enqueue(words)?)),
            "claim" => read_claim(words)?,
            "start" | "renew" | "release" | "settle" | "checkpoint" | "wait" | "begin"
            | "try_failed" | "record" | "hand_in" => read_held(verb, words)?,
            "wake" => read_wake(words)?,
            "signal" | "message" => read_signal(verb, words)?,
            "resolve" => read_resolve(words)?,
            "cancel" => read_cancel(words)?,
            _ => read_by_person(verb, words)?,
        };
        words.end()?;
        Ok(Some(Deed { job, what }))
    }
}

fn read_enqueue(words: &mut Words) -> Result<Asked> {
    let mut asked = Asked::default();
    while let Some(key) = words.key()? {
        match key.as_str() {
            "by" => asked.by = Some(words.word("by")?),
            "tenant" => asked.tenant = Some(words.word("tenant")?),
            "queue" => asked.queue = Some(words.word("queue")?),
            "kind" => asked.kind = Some(words.word("kind")?),
            "payload" => asked.payload = Some(words.json("payload")?),
            "priority" => asked.priority = Some(words.number("priority")?),
            "schedule" => asked.schedule = Some(read_schedule(words)?),
            "at" => asked.at = Some(words.duration("at")?),
            "after" => asked.after = Some(words.duration("after")?),
            "timeout" => asked.timeout = Some(words.duration("timeout")?),
            "heartbeat" => asked.heartbeat = Some(words.duration("heartbeat")?),
            "start_within" => asked.start_within = Some(words.duration("start_within")?),
            "deadline" => asked.deadline = Some(words.duration("deadline")?),
            "deadline_at" => asked.deadline_at = Some(words.duration("deadline_at")?),
            "retries" => asked.retries = Some(words.number("retries")?),
            "base" => asked.base = Some(words.duration("base")?),
            "cap" => asked.cap = Some(words.duration("cap")?),
            "max_interruptions" => {
                asked.max_interruptions = Some(words.number("max_interruptions")?);
            }
            "scope" => asked.scope = Some(words.word("scope")?),
            "key" => asked.key = Some(words.word("key")?),
            "run_key" => asked.run_key = Some(words.word("run_key")?),
            "task" if asked.task.is_none() => asked.task = Some((words.word("task")?, true)),
            "task_new" if asked.task.is_none() => {
                asked.task = Some((words.word("task_new")?, false));
            }
            "limit_key" => asked.limit_key = Some(words.word("limit_key")?),
            "unique" => asked.unique_key = Some(words.word("unique")?),
            "tags" => asked.tags = words.word("tags")?.split(',').map(str::to_owned).collect(),
            "trace" => asked.trace = Some(words.word("trace")?),
            "parent" => asked.parent = Some(words.job("parent")?),
            _ => {
                let known = "by tenant queue kind payload priority schedule at after timeout \
                     heartbeat start_within deadline deadline_at retries base cap max_interruptions scope key \
                     run_key task task_new limit_key unique tags trace parent";
                return unknown("word for enqueue", &key, known);
            }
        }
    }
    let contradicts = [
        asked.at.is_some() && asked.after.is_some(),
        asked.deadline.is_some() && asked.deadline_at.is_some(),
        asked.run_key.is_some() && (asked.key.is_some() || asked.scope.is_some()),
        asked.scope.is_some() && asked.key.is_none(),
    ];
    if contradicts.contains(&true) {
        return Err("one of at and after, of deadline and deadline_at, of run_key and key; \
             and a scope has a key"
            .to_owned());
    }
    Ok(asked)
}

fn read_schedule(words: &mut Words) -> Result<ScheduleType> {
    let word = words.word("schedule")?;
    ScheduleType::parse(&word).map_or_else(|| unknown("schedule", &word, "at cron every"), Ok)
}

fn read_claim(words: &mut Words) -> Result<What> {
    let (mut by, mut lease, mut id) = ("w1".to_owned(), LEASE, None);
    let (mut alone, mut start) = (false, false);
    while let Some(key) = words.key()? {
        match key.as_str() {
            "by" => by = words.word("by")?,
            "lease" => lease = words.duration("lease")?,
            "id" => id = Some(words.word("id")?),
            "alone" => alone = true,
            "start" => start = true,
            _ => return unknown("word for claim", &key, "by lease id alone start"),
        }
    }
    Ok(What::Claim { by, lease, alone, start, id })
}

/// The deeds of a worker that holds a lease: first which epoch and who, then what is particular to each.
fn read_held(verb: &str, words: &mut Words) -> Result<What> {
    let mut held = Held::default();
    read_epoch(&mut held, words)?;
    Ok(match verb {
        "start" => What::Start { held },
        "release" => What::Release { held },
        "renew" => {
            let (mut lease, mut heartbeat) = (LEASE, false);
            while let Some(key) = words.key()? {
                match key.as_str() {
                    "lease" => lease = words.duration("lease")?,
                    "heartbeat" => heartbeat = true,
                    _ => return unknown("word for renew", &key, "epoch by lease heartbeat"),
                }
            }
            What::Renew { held, lease, heartbeat }
        }
        "checkpoint" => What::Checkpoint { held, state: words.json("the state")? },
        "wait" => {
            let on = read_awaited(words)?;
            let has_limit = matches!(on, Awaited::Other(_)) && words.take("for");
            let limit = if has_limit { Some(words.duration("for")?) } else { None };
            let seen = if words.take("seen") { Some(words.number("seen")?) } else { None };
            What::Wait { held, on, limit, seen }
        }
        "begin" | "try_failed" | "record" => read_step(verb, held, words)?,
        "hand_in" => {
            let key = words.word("the step")?;
            What::HandIn { held, key, result: words.json("the result")? }
        }
        _ => read_settle(held, words)?,
    })
}

fn read_epoch(held: &mut Held, words: &mut Words) -> Result<()> {
    loop {
        if words.take("epoch") {
            held.epoch = Some(words.number("epoch")?);
        } else if words.take("by") {
            held.by = Some(words.word("by")?);
        } else {
            return Ok(());
        }
    }
}

fn read_settle(held: Held, words: &mut Words) -> Result<What> {
    let outcome = words.word("the outcome")?;
    let code = if outcome == "failed" { words.word("the code")? } else { String::new() };
    let (mut result, mut remaining, mut stats, mut because) = (None, None, None, None);
    let (mut is_final, mut retry_after, mut jitter) = (false, None, Duration::ZERO);
    while let Some(key) = words.key()? {
        match (key.as_str(), outcome.as_str()) {
            ("result", "succeeded" | "partial") => result = Some(words.json("result")?),
            ("remaining", "partial") => remaining = Some(words.json("remaining")?),
            ("final", "failed") => is_final = true,
            ("retry_after", "failed") => retry_after = Some(words.duration("retry_after")?),
            ("jitter", "failed") => jitter = words.duration("jitter")?,
            ("because", "cancelled") => because = Some(words.rest()),
            ("stats", _) => stats = Some(words.json("stats")?),
            _ => {
                let known = "stats, and for succeeded and partial: result, for partial: remaining, \
                     for failed: final retry_after jitter, for cancelled: because";
                return unknown(&format!("word for {outcome}"), &key, known);
            }
        }
    }
    let outcome = match outcome.as_str() {
        "succeeded" => Ending::Succeeded { result },
        "partial" => Ending::Partial { result, remaining: remaining.unwrap_or("{}".to_owned()) },
        "failed" => Ending::Failed { code, is_final, retry_after },
        "cancelled" => Ending::Cancelled { because },
        _ => return unknown("outcome", &outcome, "succeeded partial failed cancelled"),
    };
    Ok(What::Settle { held, outcome, stats, jitter })
}

fn read_awaited(words: &mut Words) -> Result<Awaited> {
    if words.take("time") {
        return Ok(Awaited::Time { after: words.duration("time")? });
    }
    read_waker(words).map(Awaited::Other)
}

/// A step, and what happens to it.
fn read_step(verb: &str, held: Held, words: &mut Words) -> Result<What> {
    let key = words.word("the step")?;
    let mode = words.word("the mode")?;
    let Some(mode) = Mode::parse(&mode) else {
        return unknown("mode", &mode, "once idempotent pure");
    };
    let mut step = StepLine { key, mode, input: None };
    let (mut call, mut by) = (1, RecordedBy::Executed);
    let mut end = StepEnd::Result("null".to_owned());
    let code = if verb == "try_failed" { words.word("the code")? } else { String::new() };
    while let Some(key) = words.key()? {
        match (key.as_str(), verb) {
            ("input", _) => step.input = Some(words.json("input")?),
            ("call", "begin") => call = words.number("call")?,
            ("result", "record") => end = StepEnd::Result(words.json("result")?),
            ("failed", "record") => end = StepEnd::Failed(words.word("failed")?),
            ("as", "record") => {
                let word = words.word("as")?;
                let Some(how) = RecordedBy::parse(&word) else {
                    return unknown("way to know", &word, "executed late_effect reconciled stated");
                };
                by = how;
            }
            _ => {
                let known = "input, for begin: call, for record: result failed as";
                return unknown(&format!("word for {verb}"), &key, known);
            }
        }
    }
    let happened = match verb {
        "begin" => StepHappened::Begun { call },
        "try_failed" => StepHappened::TryFailed { code },
        _ => StepHappened::Recorded { outcome: end, by },
    };
    Ok(What::Advance { held, step, happened })
}

fn read_signal(verb: &str, words: &mut Words) -> Result<What> {
    let name = if verb == "message" {
        let channel = words.word("the channel")?;
        SignalName::Message { channel, id: words.word("the id")? }
    } else if words.take("child") {
        SignalName::Child { job: words.job("child")? }
    } else {
        SignalName::Signal { key: words.word("the key")? }
    };
    let mut content = SignalContent::Payload("null".to_owned());
    let (mut expect_waiting, mut by) = (false, PERSON.to_owned());
    while let Some(key) = words.key()? {
        match key.as_str() {
            "payload" => content = SignalContent::Payload(words.json("payload")?),
            "reject" => content = SignalContent::Rejected(words.word("reject")?),
            "expect_waiting" => expect_waiting = true,
            "by" => by = words.word("by")?,
            _ => return unknown("word for a signal", &key, "payload reject expect_waiting by"),
        }
    }
    Ok(What::Signal { name, content, expect_waiting, by })
}

fn read_resolve(words: &mut Words) -> Result<What> {
    let (mut key, mut result, mut by, mut because) = (None, None, PERSON.to_owned(), None);
    while let Some(word) = words.key()? {
        match word.as_str() {
            "step" => key = Some(words.word("step")?),
            "result" => result = Some(words.json("result")?),
            "by" => by = words.word("by")?,
            "because" => because = Some(words.rest()),
            _ => return unknown("word for resolve", &word, "step result by because"),
        }
    }
    let because = because.unwrap_or_default();
    Ok(What::Resolve { key, result, by, because })
}

fn read_wake(words: &mut Words) -> Result<What> {
    if words.take("child") {
        return Ok(What::Wake { child: words.job("child")? });
    }
    unknown("waker", &words.word("what wakes it")?, "child")
}

fn read_waker(words: &mut Words) -> Result<Waker> {
    let word = words.word("what is waited for")?;
    match word.as_str() {
        "signal" => Ok(Waker::Signal { key: words.word("signal")? }),
        "child" => Ok(Waker::Child { job: words.job("child")? }),
        "message" => Ok(Waker::Message { channel: words.word("message")? }),
        "operator" => {
            let code = words.word("operator")?;
            let step = if words.take("step") { Some(words.word("step")?) } else { None };
            Ok(Waker::Operator { code, step })
        }
        _ => unknown("wait", &word, "signal time child message operator"),
    }
}

fn read_cancel(words: &mut Words) -> Result<What> {
    let (mut force, mut grace, mut by, mut because) = (false, None, PERSON.to_owned(), None);
    while let Some(key) = words.key()? {
        match key.as_str() {
            "force" => force = true,
            "grace" => grace = Some(words.duration("grace")?),
            "by" => by = words.word("by")?,
            "because" => because = Some(words.rest()),
            _ => return unknown("word for cancel", &key, "force grace by because"),
        }
    }
    Ok(What::Cancel { force, grace, by, because })
}

/// The deeds of people: who, and as far as the verb has them a new job, a payload and a reason.
fn read_by_person(verb: &str, words: &mut Words) -> Result<What> {
    let (mut by, mut new, mut payload, mut because) = (PERSON.to_owned(), None, None, None);
    while let Some(key) = words.key()? {
        match (key.as_str(), verb) {
            ("by", _) => by = words.word("by")?,
            ("as", "requeue" | "rerun") => new = Some(words.job("as")?),
            ("payload", "requeue") => payload = Some(words.json("payload")?),
            ("because", "bury" | "discard") => because = Some(words.rest()),
            _ => {
                let known = "by, for requeue and rerun: as, for requeue: payload, \
                     for bury and discard: because";
                return unknown(&format!("word for {verb}"), &key, known);
            }
        }
    }
    let missing = |what: &str| format!("{what} is missing");
    Ok(match verb {
        "retry_now" => What::RetryNow { by },
        "run_now" => What::RunNow { by },
        "bury" => What::Bury { by, because: because.ok_or_else(|| missing("because"))? },
        "discard" => What::Discard { by, because: because.ok_or_else(|| missing("because"))? },
        "approve" => What::Approve { by },
        "requeue" => What::Requeue { new: new.ok_or_else(|| missing("as"))?, by, payload },
        _ => What::Rerun { new: new.ok_or_else(|| missing("as"))?, by },
    })
}
