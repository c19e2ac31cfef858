//! Short ways to say ops, and what they are answered with.

use std::time::Duration;

use windlass_kernel::{
    Actor, Answer, By, Epoch, Failure, Jitter, JobId, Kind, Op, Payload, Principal, Queue,
    TenantId, WorkerId,
    ids::{ClaimId, CorrelationKey, StepKey},
    ledger::{MailContent, MailName, Mode, RecordedBy, Shape, StepOutcome},
    ops::{Advance, Enqueue, Entry, HandIn, Happened, NewJob, Outcome, Settle, Signal},
};
use windlass_store::{ClaimMany, Granted, Reply, Write};

/// Long enough for every test that does not speak of leases.
pub const LEASE: Duration = Duration::from_secs(60);

pub fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub fn write(op: impl Into<Op>) -> Write {
    Write::Op { tenant: tenant(), op: op.into() }
}

pub fn answer(reply: &Reply) -> Answer {
    match reply {
        Reply::Answer(answer, _) => answer.clone(),
        other => panic!("an op was answered with {other:?}"),
    }
}

pub fn granted(reply: &Reply) -> Vec<Granted> {
    match reply {
        Reply::Granted { jobs, .. } => jobs.clone(),
        other => panic!("a claim was answered with {other:?}"),
    }
}

pub fn person(name: &str) -> By {
    Actor::User(Principal::new(name).unwrap()).into()
}

pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub fn queue(name: &str) -> Queue {
    Queue::new(name).unwrap()
}

pub fn payload(text: &str) -> Payload {
    Payload::parse(text, Payload::MAX_BYTES_DEFAULT).unwrap()
}

/// A job with nothing special about it.
pub fn plain() -> NewJob {
    with_payload("{}")
}

pub fn with_payload(text: &str) -> NewJob {
    NewJob::new(Kind::new("mail").unwrap(), payload(text))
}

pub fn enqueue(number: u128, new: NewJob) -> Enqueue {
    Enqueue {
        job_id: JobId::from_u128(number),
        tenant: tenant(),
        new: Box::new(new),
        random: number,
        by: person("ann"),
    }
}

/// A claim on the default queue that starts what it gets.
pub fn claim_many(by: &str, claim: u128, max: usize) -> Write {
    Write::Claim(wanted(by, claim, max))
}

pub fn wanted(by: &str, claim: u128, max: usize) -> ClaimMany {
    ClaimMany {
        claim_id: ClaimId::from_u128(claim),
        worker: worker(by),
        trace_id: None,
        tenant: None,
        except: Vec::new(),
        queues: vec![queue(NewJob::DEFAULT_NAME)],
        kinds: Vec::new(),
        max,
        lease: LEASE,
        start: true,
        neighbours: Vec::new(),
    }
}

pub fn settle(job_id: JobId, epoch: Epoch, outcome: Outcome) -> Settle {
    let by = By::worker(worker("w1"));
    Settle { job_id, epoch, by, outcome, stats: None, jitter: Jitter::NONE }
}

pub fn succeeded() -> Outcome {
    Outcome::Succeeded { result: None }
}

pub fn failed_for_good() -> Outcome {
    Outcome::Failed(Failure::permanent("NO_SUCH_USER", "there is no such user"))
}

pub fn failed_for_now() -> Outcome {
    Outcome::Failed(Failure::transient("BUSY", "try later"))
}

/// JSON texts that a careless store would change.
pub fn texts() -> Vec<String> {
    let string = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    let mut texts: Vec<String> = [
        "null",
        "0",
        "-0",
        "1.0",
        "1e2",
        "1E+400",
        "3544790567247868102",
        "0.1000000000000000055511151231257827021181583404541015625",
        "340282366920938463463374607431768211457",
        "{\"b\":1,\"a\":2}",
        "{\"a\":1,\"a\":2}",
        "{ \"spaced\" :\t[ 1 ,\n2 ] }",
        "  [] ",
        "\"\\u0041\\/\\n\"",
        "\"\\u0000\"",
        "\"ä ß 漢字 🦀 \u{2028} \u{200b}\"",
        "\"\\ud83e\\udd80\"",
        "\"it's; DROP TABLE jobs; --\"",
        "{\"\":\"\"}",
    ]
    .map(str::to_owned)
    .to_vec();
    // Around the size up to which a payload stands in the job's row.
    texts.extend([255, 256, 257].map(string));
    // Bytes, not letters, are counted.
    texts.push(format!("\"{}\"", "ä".repeat(127)));
    texts.push(format!("\"{}\"", "ä".repeat(128)));
    texts.push(string(Payload::MAX_BYTES_DEFAULT));
    let depth = Payload::MAX_DEPTH;
    texts.push(format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    texts
}

/// A signal that brings nothing.
pub fn signal(job_id: JobId, key: CorrelationKey) -> Signal {
    let content = MailContent::Payload(payload("null"));
    let (name, by) = (MailName::Signal(key), person("ann"));
    Signal { job_id, name, content, expect_waiting: false, by }
}

/// A step that ran and gave 1.
pub fn advance(job_id: JobId, epoch: Epoch) -> Advance {
    let outcome = StepOutcome::Done(payload("1"));
    let what = Happened::Recorded { outcome, by: RecordedBy::Executed, mail: None };
    let (key, shape) = (step_key("price"), Shape::step(Mode::Pure, None));
    let entries = vec![Entry { key, shape, location: None, what }];
    Advance { job_id, epoch, by: By::worker(worker("w1")), entries }
}

/// What came of another step, handed in late.
pub fn hand_in(job_id: JobId, epoch: Epoch) -> HandIn {
    let (key, outcome) = (step_key("charge"), StepOutcome::Done(payload("2")));
    HandIn { job_id, key, epoch, outcome, by: By::worker(worker("w1")) }
}

pub fn step_key(name: &str) -> StepKey {
    StepKey::of_step(name, 1).unwrap()
}
