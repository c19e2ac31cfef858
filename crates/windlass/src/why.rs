//! Why a job is not running: an answer in words and as data.
//!
//! Every reason that holds is told, not only the first. What rules say is found by the same look that a claim has,
//! so the answer cannot differ from what happens.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_kernel::{
    Actor, Job, JobId, Kind, Queue, Rule, State, Timestamp, WorkerId,
    admit::Blocked,
    job::{Wait, WaitOn},
    plain::shown,
    time::{duration_ms, duration_ms_option},
};
use windlass_store::read::{Holder, ListeningWorker, Standing};

use crate::{Engine, Error};

/// Why a job is not running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The job.
    pub job_id: JobId,
    /// Where it is in its life.
    pub state: State,
    /// When this was found, by the store's clock.
    pub at: Timestamp,
    /// All that keeps it, or what becomes of it if nothing does.
    pub reasons: Vec<Reason>,
}

/// One thing that keeps a job from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// It is at its end.
    Ended {
        /// When it came there.
        at: Option<Timestamp>,
    },
    /// It runs.
    Running {
        /// Who runs it.
        worker: WorkerId,
        /// Since when.
        since: Option<Timestamp>,
    },
    /// A worker has it, and has not started it yet.
    Dispatched {
        /// That worker.
        worker: WorkerId,
    },
    /// Its time has not come.
    NotDue {
        /// When it comes.
        until: Timestamp,
    },
    /// It failed and waits before it is tried again.
    BackingOff {
        /// Until when.
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
        on: WaitOn,
        /// Until when at the latest.
        until: Option<Timestamp>,
    },
    /// A rule keeps it back.
    Rule {
        /// The rule and in which way.
        #[serde(flatten)]
        blocked: Blocked,
        /// Who set the rule.
        by: Actor,
        /// In their words.
        #[serde(skip_serializing_if = "Option::is_none")]
        because_of: Option<String>,
        /// Who holds its slots, if that is what it lacks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        holders: Vec<Holder>,
    },
    /// No worker listens to its queue.
    NoWorkerForQueue {
        /// The queue.
        queue: Queue,
        /// Queues that workers listen to and whose names come close.
        near: Vec<Queue>,
    },
    /// Workers listen to its queue, and none runs its kind.
    NoWorkerForKind {
        /// The kind.
        kind: Kind,
        /// Kinds that they run and whose names come close.
        near: Vec<Kind>,
    },
    /// Workers could run it, and none of them has been heard of for some seconds. A worker that waits for jobs in a call to
    /// a server is heard of as long as the call is open, and a busy one whenever it renews: so it has crashed, or it hangs.
    WorkersSilent {
        /// The kind.
        kind: Kind,
        /// The queue.
        queue: Queue,
        /// The one that was heard of last.
        worker: WorkerId,
        /// When that was.
        last_seen_at: Timestamp,
        /// How long ago.
        #[serde(rename = "silent_ms", with = "duration_ms")]
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
        starts_in: Option<Duration>,
    },
}

impl Engine {
    /// Why a job is not running: everything that keeps it, in words and as data.
    ///
    /// ```
    /// # async fn example(engine: windlass::Engine, id: windlass::JobId) -> Result<(), windlass::Error> {
    /// println!("{}", engine.why(id).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn why(&self, id: JobId) -> Result<Why, Error> {
        #[cfg(feature = "client")]
        if let Some(remote) = &self.inner().remote {
            return remote.why(id).await?.ok_or(Error::NoJob(id));
        }
        let standing = self.own_store()?.standing(&self.scope(), id).await?;
        Ok(Why::of(&standing.ok_or(Error::NoJob(id))?))
    }
}

impl Why {
    /// What a look at a job and at all that could keep it says.
    pub fn of(standing: &Standing) -> Self {
        let Standing { job, now, .. } = standing;
        let reasons = match job.state {
            State::Succeeded | State::Partial | State::Failed | State::Cancelled => {
                vec![Reason::Ended { at: job.finished_at }]
            }
            State::Running | State::Dispatched => held(job),
            State::Waiting => job.wait.iter().map(waits).collect(),
            State::Scheduled
            | State::Queued
            | State::RetryScheduled
            | State::Interrupted
            | State::DlqPending
            | State::DlqRecorded => not_claimed(standing),
        };
        Self { job_id: job.id, state: job.state, at: *now, reasons }
    }
}

fn held(job: &Job) -> Vec<Reason> {
    let Some(lease) = &job.lease else { return Vec::new() };
    let worker = lease.worker.clone();
    vec![match job.state {
        State::Running => Reason::Running { worker, since: job.execution_started_at },
        _ => Reason::Dispatched { worker },
    }]
}

fn waits(wait: &Wait) -> Reason {
    Reason::Waiting { on: wait.on.clone(), until: wait.until }
}

fn not_claimed(standing: &Standing) -> Vec<Reason> {
    let Standing { job, now, .. } = standing;
    let mut reasons = Vec::new();
    if job.state == State::Scheduled {
        reasons.push(Reason::NotDue { until: job.spec.due_at });
    }
    if let Some(until) = job.next_retry_at.filter(|at| at > now) {
        let code = job.error.as_ref().map(|error| error.code.clone());
        let (retry, max_retries) = (job.retry_count, job.spec.max_retries);
        reasons.push(Reason::BackingOff { until, retry, max_retries, code });
    }
    reasons.extend(standing.blocked.iter().map(|blocked| of_rule(standing, blocked)));
    reasons.extend(nobody_listens(job, &standing.listening, *now));
    if job.is_isolated() {
        reasons.push(Reason::MustBeAlone { interruptions: job.interruptions });
    }
    // Whoever may be busy may go on: then it is worth knowing who comes first, though not that this one is next.
    let may_be_busy = |it: &Reason| matches!(it, Reason::WorkersSilent { holds: 1.., .. });
    let may_go_on = standing.before > 0 && reasons.iter().all(may_be_busy);
    if reasons.is_empty() || may_go_on {
        reasons.push(in_line(standing));
    }
    reasons
}

fn of_rule(standing: &Standing, blocked: &Blocked) -> Reason {
    let rule = standing.rules.iter().find(|rule: &&Rule| rule.name == blocked.rule);
    let holders = standing.holders.iter().filter(|holder| holder.rule == blocked.rule);
    Reason::Rule {
        blocked: blocked.clone(),
        by: rule.map_or(Actor::Scheduler, |rule| rule.by.clone()),
        because_of: rule.and_then(|rule| rule.reason.clone()),
        holders: holders.cloned().collect(),
    }
}

/// Which workers are missing or silent, if some are.
fn nobody_listens(job: &Job, listening: &[ListeningWorker], now: Timestamp) -> Option<Reason> {
    let spec = &job.spec;
    let mine = |it: &&ListeningWorker| {
        it.listens.tenant.as_ref().is_none_or(|tenant| *tenant == spec.tenant)
    };
    let all: Vec<&ListeningWorker> = listening.iter().filter(mine).collect();
    let there: Vec<&&ListeningWorker> =
        all.iter().filter(|it| it.listens.queues.contains(&spec.queue)).collect();
    if there.is_empty() {
        let queues = all.iter().flat_map(|it| &it.listens.queues);
        let near = near(spec.queue.as_str(), queues, Queue::as_str);
        return Some(Reason::NoWorkerForQueue { queue: spec.queue.clone(), near });
    }
    let runs = |it: &&&&ListeningWorker| {
        it.listens.kinds.is_empty() || it.listens.kinds.contains(&spec.kind)
    };
    let able: Vec<&&&ListeningWorker> = there.iter().filter(runs).collect();
    if able.is_empty() {
        let kinds = there.iter().flat_map(|it| &it.listens.kinds);
        let near = near(spec.kind.as_str(), kinds, Kind::as_str);
        return Some(Reason::NoWorkerForKind { kind: spec.kind.clone(), near });
    }
    if !able.iter().all(|it| is_silent(it, now)) {
        return None;
    }
    let last = able.iter().max_by_key(|it| it.last_seen_at)?;
    let last_seen_at = last.last_seen_at?;
    Some(Reason::WorkersSilent {
        kind: spec.kind.clone(),
        queue: spec.queue.clone(),
        worker: last.worker.clone(),
        last_seen_at,
        silent_for: now.since(last_seen_at),
        holds: last.holds,
    })
}

/// A worker that is idle asks for jobs again as soon as it was answered.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// One that is busy renews, mostly three times in a lease of 30 seconds.
const SILENT_AFTER_BUSY: Duration = Duration::from_secs(15);

/// Was the worker not heard of for longer than it is silent when it is well?
fn is_silent(worker: &ListeningWorker, now: Timestamp) -> bool {
    let well = if worker.holds > 0 { SILENT_AFTER_BUSY } else { SILENT_AFTER };
    let last = worker.last_seen_at;
    last.is_some_and(|at| now.since(at) > well.saturating_add(worker.unsure_for))
}

/// How many names that come close are told.
const NEAR_MAX: usize = 3;

/// The names that come close to this one, closest first.
fn near<'a, T: Clone + Ord + 'a>(
    name: &str,
    others: impl Iterator<Item = &'a T>,
    text: fn(&T) -> &str,
) -> Vec<T> {
    let mut others: Vec<&T> = others.collect();
    others.sort();
    others.dedup();
    let likeness = |other: &T| strsim::jaro_winkler(name, text(other));
    let mut close: Vec<(f64, &T)> =
        others.into_iter().map(|other| (likeness(other), other)).filter(|it| it.0 > 0.8).collect();
    close.sort_by(|one, other| other.0.total_cmp(&one.0));
    close.into_iter().take(NEAR_MAX).map(|(_, other)| other.clone()).collect()
}

/// Little's law: so many are held, each for so long, so one starts every so often.
fn in_line(standing: &Standing) -> Reason {
    let before = standing.before;
    let starts_in = standing.running.filter(|(held, _)| *held > 0).map(|(held, age)| {
        let each = age.div_f64(held as f64);
        each.mul_f64(before as f64 + 1.0)
    });
    let at_least = before >= Standing::BEFORE_MAX;
    Reason::InLine { before, at_least, starts_in: starts_in.filter(|_| before > 0) }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.job_id, self.state)?;
        for reason in &self.reasons {
            write!(f, "\n- {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Ended { at: Some(at) } => write!(f, "it came to its end at {at}"),
            Reason::Ended { at: None } => f.write_str("it is at its end"),
            Reason::Running { worker, since: Some(since) } => {
                write!(f, "it runs: {worker} has run it since {since}")
            }
            Reason::Running { worker, since: None } => write!(f, "it runs: {worker} runs it"),
            Reason::Dispatched { worker } => {
                write!(f, "{worker} has claimed it and will start it when it has room")
            }
            Reason::NotDue { until } => write!(f, "it is not due until {until}"),
            Reason::BackingOff { until, retry, max_retries, code } => {
                let code = code.as_deref().unwrap_or("a failure");
                write!(f, "after {code} it waits until {until} for retry {retry} of {max_retries}")
            }
            Reason::Waiting { on, until } => {
                write!(f, "its handler waits for {on}")?;
                until.map_or(Ok(()), |until| write!(f, ", until {until} at the latest"))
            }
            Reason::Rule { blocked, by, because_of, holders } => {
                write!(f, "rule {} of {by} keeps it: {}", blocked.rule, blocked.because)?;
                blocked.until.map_or(Ok(()), |until| write!(f, ", until {until}"))?;
                because_of.as_ref().map_or(Ok(()), |words| write!(f, " ({})", shown(words)))?;
                let holders: Vec<String> = holders.iter().map(|it| it.job_id.to_string()).collect();
                if holders.is_empty() { Ok(()) } else { write!(f, ": {}", holders.join(", ")) }
            }
            Reason::NoWorkerForQueue { queue, near } => {
                write!(f, "no worker listens to queue {queue}")?;
                did_you_mean(f, near)
            }
            Reason::NoWorkerForKind { kind, near } => {
                write!(f, "workers listen to its queue, and none of them runs kind {kind}")?;
                did_you_mean(f, near)
            }
            Reason::WorkersSilent { kind, queue, worker, silent_for, holds, .. } => {
                let seconds = silent_for.as_secs();
                write!(f, "the last worker that runs kind {kind} in queue {queue}, {worker}, ")?;
                write!(f, "was seen {seconds} s ago")?;
                match holds {
                    0 => Ok(()),
                    1 => f.write_str("; it holds a job and may be busy with it"),
                    jobs => write!(f, "; it holds {jobs} jobs and may be busy with them"),
                }
            }
            Reason::MustBeAlone { interruptions } => write!(
                f,
                "it was interrupted {interruptions} times and has to be alone: it waits for a worker with \
                 nothing else to do"
            ),
            Reason::InLine { before: 0, .. } => {
                f.write_str("nothing keeps it: it is next, and starts when a worker has room")
            }
            Reason::InLine { before, at_least, starts_in } => {
                let at_least = if *at_least { "at least " } else { "" };
                write!(f, "nothing keeps it: {at_least}{before} jobs of its queue come first")?;
                starts_in.map_or(Ok(()), |time| write!(f, ", it may start in {time:.1?}"))
            }
        }
    }
}

fn did_you_mean<T: fmt::Display>(f: &mut fmt::Formatter<'_>, near: &[T]) -> fmt::Result {
    let near: Vec<String> = near.iter().map(ToString::to_string).collect();
    if near.is_empty() { Ok(()) } else { write!(f, "; there are some for {}", near.join(", ")) }
}
