//! Why a job is not running, as the API tells it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use windlass::why::{Reason, Why};
use windlass_kernel::{
    Actor, JobId, Kind, Queue, RuleName, State, Timestamp, WorkerId,
    admit::{Because, Blocked},
    job::WaitOn,
    time::{duration_ms, duration_ms_option},
};
use windlass_store::read::Holder;

use crate::http::{
    api::queues::shown_rule,
    core::{
        problem::Problem,
        route::{Answer, Call},
    },
};

/// Why a job is not running.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WhyDocument {
    /// The job.
    #[schemars(with = "String")]
    job_id: JobId,
    /// Where it is in its life.
    #[schemars(with = "String")]
    state: State,
    /// When this was found, by the store's clock.
    #[schemars(with = "String")]
    at: Timestamp,
    /// All that keeps it, or what becomes of it if nothing does.
    reasons: Vec<ReasonDocument>,
    /// The same in words.
    text: String,
}

/// One thing that keeps a job from running.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
enum ReasonDocument {
    /// It is at its end.
    Ended {
        /// When it came there.
        #[schemars(with = "Option<String>")]
        at: Option<Timestamp>,
    },
    /// It runs.
    Running {
        /// Who runs it.
        #[schemars(with = "String")]
        worker: WorkerId,
        /// Since when.
        #[schemars(with = "Option<String>")]
        since: Option<Timestamp>,
    },
    /// A worker has it, and has not started it yet.
    Dispatched {
        /// That worker.
        #[schemars(with = "String")]
        worker: WorkerId,
    },
    /// Its time has not come.
    NotDue {
        /// When it comes.
        #[schemars(with = "String")]
        until: Timestamp,
    },
    /// It failed and waits before it is tried again.
    BackingOff {
        /// Until when.
        #[schemars(with = "String")]
        until: Timestamp,
        /// Which retry it is.
        retry: u32,
        /// How many there are.
        max_retries: u32,
        /// What it failed with.
        code: Option<String>,
    },
    /// Its handler parked it.
    Waiting {
        /// On what.
        on: WaitOnDocument,
        /// Until when at the latest.
        #[schemars(with = "Option<String>")]
        until: Option<Timestamp>,
    },
    /// A rule keeps it back.
    Rule {
        /// The rule.
        #[schemars(with = "String")]
        rule: RuleName,
        /// In which way.
        because: BecauseWord,
        /// How many slots there are, if it has none left.
        #[serde(skip_serializing_if = "Option::is_none")]
        max: Option<u32>,
        /// Failures in a row, if its breaker is open.
        #[serde(skip_serializing_if = "Option::is_none")]
        failures: Option<u32>,
        /// How many its breaker lets try.
        #[serde(skip_serializing_if = "Option::is_none")]
        allowed: Option<u32>,
        /// How many are held, of slots or of tries.
        #[serde(skip_serializing_if = "Option::is_none")]
        held: Option<usize>,
        /// When it lets the next one go, if time alone does that.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        until: Option<Timestamp>,
        /// Who set the rule.
        #[schemars(with = "String")]
        by: Actor,
        /// In their words.
        #[serde(skip_serializing_if = "Option::is_none")]
        because_of: Option<String>,
        /// Who holds its slots, if that is what it lacks.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(with = "Option<Vec<HolderDocument>>")]
        holders: Vec<HolderDocument>,
    },
    /// No worker listens to its queue.
    NoWorkerForQueue {
        /// The queue.
        #[schemars(with = "String")]
        queue: Queue,
        /// Queues that workers listen to and whose names come close.
        #[schemars(with = "Vec<String>")]
        near: Vec<Queue>,
    },
    /// Workers listen to its queue, and none runs its kind.
    NoWorkerForKind {
        /// The kind.
        #[schemars(with = "String")]
        kind: Kind,
        /// Kinds that they run and whose names come close.
        #[schemars(with = "Vec<String>")]
        near: Vec<Kind>,
    },
    /// Workers could run it, and none of them has been heard of for some seconds: they have crashed, or they hang. A worker
    /// that waits in a claim is heard of as long as the claim is open, and a busy one whenever it renews.
    WorkersSilent {
        /// The kind.
        #[schemars(with = "String")]
        kind: Kind,
        /// The queue.
        #[schemars(with = "String")]
        queue: Queue,
        /// The one that was heard of last.
        #[schemars(with = "String")]
        worker: WorkerId,
        /// When that was.
        #[schemars(with = "String")]
        last_seen_at: Timestamp,
        /// How long ago.
        #[serde(rename = "silent_ms", with = "duration_ms")]
        #[schemars(with = "u64")]
        silent_for: Duration,
        /// How many jobs it holds: with some in hand it may be busy, until their leases run out.
        holds: usize,
    },
    /// It was interrupted so often that it is run alone: it waits for a worker that has nothing else to do.
    MustBeAlone {
        /// How often.
        interruptions: u32,
    },
    /// Nothing keeps it: its turn comes.
    InLine {
        /// How many jobs of its queue come before it.
        before: u64,
        /// Were more not counted?
        at_least: bool,
        /// In how long it may start, as far as can be said from what runs now.
        #[serde(rename = "starts_in_ms", with = "duration_ms_option")]
        #[schemars(with = "Option<u64>")]
        starts_in: Option<Duration>,
    },
}

/// What ends a wait.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WaitOnDocument {
    /// A signal with this key.
    Signal(String),
    /// The time alone.
    Time,
    /// The end of this child.
    Child(String),
    /// The next message of this channel.
    Message(String),
    /// Any of these.
    Any(Vec<WaitOnDocument>),
    /// A person, who has to state something or let the job go on.
    Operator {
        /// Why.
        code: String,
        /// The step in question, if its result is to be stated.
        #[serde(skip_serializing_if = "Option::is_none")]
        step: Option<String>,
        /// The same for people.
        message: String,
    },
}

/// In which way a rule keeps a job back.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum BecauseWord {
    Paused,
    NoSlot,
    RateReached,
    BreakerOpen,
    BreakerProbes,
    RetryBudgetSpent,
}

/// A job that holds a slot that another waits for.
#[derive(Serialize, JsonSchema)]
struct HolderDocument {
    /// The rule.
    #[schemars(with = "String")]
    rule: RuleName,
    /// The job.
    #[schemars(with = "String")]
    job_id: JobId,
    /// Who runs it.
    #[schemars(with = "String")]
    worker: WorkerId,
}

/// `GET /api/v1/jobs/{id}/why`
pub(crate) async fn why(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    call.app.job(&call, id).await?;
    let standing = call.engine().own_store()?.standing(call.scope(), id).await?;
    let mut standing = standing.ok_or_else(|| Problem::not_found("job").of_job(id))?;
    call.app.listening.add_sightings(&mut standing.listening, standing.now);
    let mut why = Why::of(&standing);
    for reason in &mut why.reasons {
        if let Reason::Rule { blocked, holders, .. } = reason {
            blocked.rule = shown_rule(&call, &blocked.rule)?;
            holders.iter_mut().for_each(|holder| holder.rule = blocked.rule.clone());
        }
    }
    Ok(Answer::ok(&WhyDocument::from(why)))
}

impl From<Why> for WhyDocument {
    fn from(why: Why) -> Self {
        let (text, Why { job_id, state, at, reasons }) = (why.to_string(), why);
        Self { job_id, state, at, reasons: reasons.into_iter().map(Into::into).collect(), text }
    }
}

impl From<Reason> for ReasonDocument {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Ended { at } => Self::Ended { at },
            Reason::Running { worker, since } => Self::Running { worker, since },
            Reason::Dispatched { worker } => Self::Dispatched { worker },
            Reason::NotDue { until } => Self::NotDue { until },
            Reason::BackingOff { until, retry, max_retries, code } => {
                Self::BackingOff { until, retry, max_retries, code }
            }
            Reason::Waiting { on, until } => Self::Waiting { on: on.into(), until },
            Reason::Rule { blocked, by, because_of, holders } => {
                let Blocked { rule, because, until } = blocked;
                let Numbers { word, max, failures, allowed, held } = because.into();
                let holders = holders.into_iter().map(Into::into).collect();
                Self::Rule {
                    rule,
                    because: word,
                    max,
                    failures,
                    allowed,
                    held,
                    until,
                    by,
                    because_of,
                    holders,
                }
            }
            Reason::NoWorkerForQueue { queue, near } => Self::NoWorkerForQueue { queue, near },
            Reason::NoWorkerForKind { kind, near } => Self::NoWorkerForKind { kind, near },
            Reason::WorkersSilent { kind, queue, worker, last_seen_at, silent_for, holds } => {
                Self::WorkersSilent { kind, queue, worker, last_seen_at, silent_for, holds }
            }
            Reason::MustBeAlone { interruptions } => Self::MustBeAlone { interruptions },
            Reason::InLine { before, at_least, starts_in } => {
                Self::InLine { before, at_least, starts_in }
            }
        }
    }
}

impl From<WaitOn> for WaitOnDocument {
    fn from(on: WaitOn) -> Self {
        match on {
            WaitOn::Signal(key) => Self::Signal(key.to_string()),
            WaitOn::Time => Self::Time,
            WaitOn::Child(job_id) => Self::Child(job_id.to_string()),
            WaitOn::Message(channel) => Self::Message(channel.to_string()),
            WaitOn::Any(all) => Self::Any(all.into_iter().map(Self::from).collect()),
            WaitOn::Operator { code, step, message } => {
                Self::Operator { code, step: step.map(|step| step.to_string()), message }
            }
        }
    }
}

/// A word, and the numbers that belong to it.
struct Numbers {
    word: BecauseWord,
    max: Option<u32>,
    failures: Option<u32>,
    allowed: Option<u32>,
    held: Option<usize>,
}

impl From<Because> for Numbers {
    fn from(because: Because) -> Self {
        let of = |word| Self { word, max: None, failures: None, allowed: None, held: None };
        match because {
            Because::Paused => of(BecauseWord::Paused),
            Because::NoSlot { max, held } => {
                Self { max: Some(max), held: Some(held), ..of(BecauseWord::NoSlot) }
            }
            Because::RateReached => of(BecauseWord::RateReached),
            Because::BreakerOpen { failures } => {
                Self { failures: Some(failures), ..of(BecauseWord::BreakerOpen) }
            }
            Because::BreakerProbes { allowed, held } => {
                let (allowed, held) = (Some(allowed), Some(held));
                Self { allowed, held, ..of(BecauseWord::BreakerProbes) }
            }
            Because::RetryBudgetSpent => of(BecauseWord::RetryBudgetSpent),
        }
    }
}

impl From<Holder> for HolderDocument {
    fn from(Holder { rule, job_id, worker }: Holder) -> Self {
        Self { rule, job_id, worker }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the library tells and reads is what the API tells.
    #[test]
    fn every_reason_is_told_as_the_library_tells_it() {
        let (at, job_id) = (Timestamp::MIN, JobId::from_u128(7));
        let (worker, rule) = (WorkerId::new("w1").unwrap(), RuleName::new("few").unwrap());
        let (queue, kind) = (Queue::new("mail").unwrap(), Kind::new("mail").unwrap());
        let of_rule = |because, until, holders| Reason::Rule {
            blocked: Blocked { rule: rule.clone(), because, until },
            by: Actor::Scheduler,
            because_of: until.map(|_| "night".to_owned()),
            holders,
        };
        let holder = Holder { rule: rule.clone(), job_id, worker: worker.clone() };
        let key = windlass_kernel::ids::CorrelationKey::new("paid").unwrap();
        let waiting = |on| Reason::Waiting { on, until: Some(at) };
        let reasons = vec![
            Reason::Ended { at: None },
            Reason::Running { worker: worker.clone(), since: Some(at) },
            Reason::Dispatched { worker },
            Reason::NotDue { until: at },
            Reason::BackingOff { until: at, retry: 1, max_retries: 3, code: None },
            waiting(WaitOn::Signal(key)),
            waiting(WaitOn::Time),
            waiting(WaitOn::Child(job_id)),
            of_rule(Because::Paused, Some(at), vec![]),
            of_rule(Because::NoSlot { max: 2, held: 2 }, None, vec![holder.clone()]),
            of_rule(Because::RateReached, None, vec![]),
            of_rule(Because::BreakerOpen { failures: 5 }, None, vec![]),
            of_rule(Because::BreakerProbes { allowed: 1, held: 1 }, None, vec![]),
            of_rule(Because::RetryBudgetSpent, None, vec![]),
            Reason::NoWorkerForQueue { queue: queue.clone(), near: vec![queue.clone()] },
            Reason::NoWorkerForKind { kind: kind.clone(), near: vec![kind.clone()] },
            Reason::WorkersSilent {
                kind,
                queue: queue.clone(),
                worker: holder.worker.clone(),
                last_seen_at: at,
                silent_for: Duration::from_millis(41_500),
                holds: 1,
            },
            Reason::MustBeAlone { interruptions: 3 },
            Reason::InLine { before: 1, at_least: true, starts_in: Some(Duration::from_secs(1)) },
        ];
        let why = Why { job_id, state: State::Queued, at, reasons };
        let mut expected = serde_json::to_value(&why).unwrap();
        expected["text"] = why.to_string().into();
        let document = serde_json::to_value(WhyDocument::from(why)).unwrap();
        assert_eq!(document, expected);
    }
}
