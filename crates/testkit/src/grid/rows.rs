//! The rows of the grid: each op in each of its variants, aimed at the job of a sample.

use std::time::Duration;

use windlass_kernel::{
    Digest, DlqId, Jitter, JobId, Op,
    ids::{CorrelationKey, StepKey},
    ledger::{Mode, RecordedBy, Shape, Step, StepOutcome},
    ops::{
        Advance, ApproveDiscard, Bury, Checkpoint, Claim, Enqueue, Entry, Expire, Expiry, HandIn,
        Happened, Outcome, Promote, PromoteWhen, Release, Renew, Rerun, Resolve, RetryNow, Signal,
        Start, Wake, WakeBy,
    },
};

use super::sample::{
    Sample, awaited, by_worker, cancelled, json, last, partial, retryable, signal, succeeded, user,
};

/// One row: an op in one of its variants.
pub(super) struct Row {
    /// Its name.
    pub(super) name: &'static str,
    /// Makes the op, and may let time pass for it; none if there is nothing to repeat.
    pub(super) make: fn(&mut Sample) -> Option<Op>,
}

macro_rules! rows {
    ($($name:literal => $make:expr;)*) => {
        &[$(Row { name: $name, make: $make }),*]
    };
}

/// All rows.
pub(super) const ROWS: &[Row] = rows! {
    "enqueue, same fields" => |job| op(job.enqueue_op());
    "enqueue, other fields" => |job| op(enqueue_other(job));
    "enqueue, same fields, after its deadline" => |job| { long_after(job); op(job.enqueue_op()) };
    "promote" => |job| due(job, job.version());
    "promote, now" => |job| op(Promote { job_id: job.job_id, when: PromoteWhen::Now { by: user("ann") } });
    "claim" => |job| op(job.next_claim());
    "claim and start" => |job| op(Claim { start: true, ..job.next_claim() });
    "claim, the same again" => |job| op(job.claimed.clone()?);
    "start" => |job| op(Start { job_id: job.job_id, epoch: job.epoch, by: by_worker() });
    "renew" => |job| op(renew(job));
    "release" => |job| op(Release { job_id: job.job_id, epoch: job.epoch, by: by_worker() });
    "settle succeeded" => |job| settle(job, succeeded());
    "settle partial" => |job| settle(job, partial());
    "settle failed, retryable" => |job| settle(job, retryable());
    "settle failed, retryable, no retry left" => |job| {
        use_up_retries(job);
        settle(job, retryable())
    };
    "settle failed, final" => |job| settle(job, last());
    "settle cancelled" => |job| settle(job, cancelled());
    "settle, the same again" => |job| op(job.settled.clone()?);
    "checkpoint" => |job| op(checkpoint(job));
    "wait" => |job| op(job.wait_for());
    "advance, begin" => |job| op(advance(job, begun()));
    "advance, record" => |job| op(advance(job, recorded("1")));
    "advance, the same again" => |job| { let advance = advance(job, recorded("1")); again(job, advance) };
    "advance, record something else" => |job| {
        again(job, advance(job, recorded("1")))?;
        op(advance(job, recorded("2")))
    };
    "hand_in" => |job| { hand_over(job)?; op(hand_in(job)) };
    "signal that is awaited" => |job| op(signal(job.job_id, awaited()));
    "signal that is not awaited" => |job| op(signal(job.job_id, other_key()));
    "signal, expected to be awaited" => |job| {
        op(Signal { expect_waiting: true, ..signal(job.job_id, other_key()) })
    };
    "signal, the same again" => |job| { let signal = signal(job.job_id, other_key()); again(job, signal) };
    "resolve" => |job| op(resolve(job));
    "wake by a child" => |job| op(wake(job, WakeBy::Child { child: JobId::from_u128(9) }));
    "wake by time" => |job| { long_after(job); op(wake(job, time(job))) };
    "expire lease" => |job| expire(job, Expiry::Lease);
    "expire lease, once too often" => |job| { use_up_patience(job); expire(job, Expiry::Lease) };
    "expire lease of a dead session" => |job| op(expiry(job, Expiry::DeadSession));
    "expire start_to_close" => |job| expire(job, Expiry::StartToClose);
    "expire heartbeat" => |job| expire(job, Expiry::Heartbeat);
    "expire schedule_to_start" => |job| expire(job, Expiry::ScheduleToStart);
    "expire deadline" => |job| expire(job, Expiry::Deadline);
    "expire cancel_grace" => |job| expire(job, Expiry::CancelGrace);
    "promote of an old version" => |job| due(job, old(job));
    "wake by time of an old version" => |job| op(wake(job, WakeBy::Time { version: old(job) }));
    "expire of an old version" => |job| {
        op(Expire { version: old(job), ..expiry(job, Expiry::DeadSession) })
    };
    "cancel" => |job| op(job.cancel_op(false));
    "cancel, the same again" => |job| { let cancel = job.cancel_op(false); again(job, cancel) };
    "cancel, force" => |job| op(job.cancel_op(true));
    "retry_now" => |job| op(RetryNow { job_id: job.job_id, by: user("ann") });
    "bury" => |job| op(Bury { job_id: job.job_id, reason: "enough".to_owned(), by: user("ann") });
    "requeue" => |job| op(job.requeue_op(JobId::from_u128(3)));
    "requeue, the same again" => |job| {
        let requeue = job.requeue_op(JobId::from_u128(2));
        again(job, requeue)
    };
    "discard" => |job| op(job.discard_op());
    "approve_discard" => |job| op(approve(job, "bob"));
    "approve_discard by whoever asked" => |job| op(approve(job, "ann"));
    "rerun" => |job| op(rerun(job));
    "rerun, the same again" => |job| { let rerun = rerun(job); again(job, rerun) };
};

fn op(op: impl Into<Op>) -> Option<Op> {
    Some(op.into())
}

/// The same op a second time; none if the first was refused.
fn again(job: &mut Sample, op: impl Into<Op>) -> Option<Op> {
    let op = op.into();
    job.store.commit(&op, job.now).ok()?;
    Some(op)
}

/// Lets everything run out that can.
fn long_after(job: &mut Sample) {
    job.now = job.now.plus(Duration::from_secs(100 * 24 * 3_600));
}

/// The version that a timer saw that comes too late.
fn old(job: &Sample) -> u64 {
    job.version().saturating_sub(1)
}

fn use_up_retries(job: &mut Sample) {
    job.edit_spec(|job, spec| spec.max_retries = job.retry_count);
}

fn use_up_patience(job: &mut Sample) {
    job.edit_spec(|job, spec| spec.max_interruptions = job.interruptions + 1);
}

fn enqueue_other(job: &Sample) -> Enqueue {
    let mut enqueue = job.enqueue_op();
    enqueue.new.payload = json("{\"other\":true}");
    enqueue
}

fn renew(job: &Sample) -> Renew {
    let lease = Duration::from_secs(60);
    let by = by_worker();
    Renew { job_id: job.job_id, epoch: job.epoch, by, lease, heartbeat: true, progress: None }
}

fn settle(job: &Sample, outcome: Outcome) -> Option<Op> {
    op(job.settle_as(distinct(job, outcome)))
}

/// The outcome, told apart from one that was settled before.
fn distinct(job: &Sample, outcome: Outcome) -> Outcome {
    if job.settled.as_ref().is_none_or(|settled| settled.outcome != outcome) {
        return outcome;
    }
    match outcome {
        Outcome::Succeeded { .. } => Outcome::Succeeded { result: Some(json("1")) },
        Outcome::Partial { remaining, .. } => {
            Outcome::Partial { result: Some(json("1")), remaining }
        }
        Outcome::Failed(mut failure) => {
            failure.message.push_str(", really");
            Outcome::Failed(failure)
        }
        Outcome::Cancelled { .. } => Outcome::Cancelled { reason: Some("really".to_owned()) },
    }
}

fn due(job: &Sample, version: u64) -> Option<Op> {
    op(Promote { job_id: job.job_id, when: PromoteWhen::Due { version } })
}

fn checkpoint(job: &Sample) -> Checkpoint {
    let state = Digest::of("half way");
    let (job_id, epoch, by) = (job.job_id, job.epoch, by_worker());
    Checkpoint { job_id, epoch, by, state, kept: Some(json("\"half way\"")) }
}

fn wake(job: &Sample, by: WakeBy) -> Wake {
    Wake { job_id: job.job_id, by }
}

fn other_key() -> CorrelationKey {
    CorrelationKey::new("x").expect("a key")
}

fn step_key() -> StepKey {
    StepKey::of_step("charge", 1).expect("a key")
}

fn advance(job: &Sample, what: Happened) -> Advance {
    let shape = Shape::step(Mode::Idempotent, None);
    let entries = vec![Entry { key: step_key(), shape, location: None, what }];
    Advance { job_id: job.job_id, epoch: job.epoch, by: by_worker(), entries }
}

fn begun() -> Happened {
    Happened::Begun { call_id: 1, until: None }
}

fn recorded(result: &str) -> Happened {
    let outcome = StepOutcome::Done(json(result));
    Happened::Recorded { outcome, by: RecordedBy::Executed, mail: None }
}

/// The step was begun under the epoch of the caller, whoever has the job now.
fn hand_over(job: &mut Sample) -> Option<()> {
    let row = job.store.jobs.get(&job.job_id)?;
    let step = Step {
        job_id: row.id,
        key: step_key(),
        shape: Shape::step(Mode::Once, None),
        epoch: job.epoch,
        call_id: 1,
        begun_at: row.updated_at,
        until: None,
        location: None,
        tries: 0,
        failure: None,
        next_try_at: None,
        not_done: false,
        record: None,
    };
    job.store.steps.insert((row.id, step_key()), step);
    Some(())
}

fn hand_in(job: &Sample) -> HandIn {
    let (job_id, epoch, by) = (job.job_id, job.epoch, by_worker());
    HandIn { job_id, key: step_key(), epoch, outcome: StepOutcome::Done(json("1")), by }
}

fn resolve(job: &Sample) -> Resolve {
    let (job_id, reason, by) = (job.job_id, "it was looked up".to_owned(), user("ann"));
    Resolve { job_id, statement: None, reason, by }
}

fn time(job: &Sample) -> WakeBy {
    WakeBy::Time { version: job.version() }
}

/// The expiry, when its time has come for sure.
fn expire(job: &mut Sample, what: Expiry) -> Option<Op> {
    long_after(job);
    op(expiry(job, what))
}

fn expiry(job: &Sample, what: Expiry) -> Expire {
    Expire { job_id: job.job_id, version: job.version(), what, jitter: Jitter::NONE }
}

fn approve(job: &Sample, name: &str) -> ApproveDiscard {
    ApproveDiscard { dlq_id: DlqId::of_job(job.job_id), by: user(name) }
}

fn rerun(job: &Sample) -> Rerun {
    Rerun { job_id: job.job_id, new_job_id: JobId::from_u128(4), by: user("ann") }
}
