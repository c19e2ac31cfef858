//! Ops: a deed becomes the op that it stands for.
//!
//! Names are checked here as a caller's names are, so a bad one is refused like by the kernel itself.
//! Chance is none: ids come from names and counts, so a story is the same in every run.

use windlass_kernel::{
    Actor, By, Class, Digest, DlqId, Epoch, Failure, IdempotencyKey, IdempotencyScope, Jitter, Job,
    Kind, LimitKey, Op, Payload, Principal, Queue, Refusal, RetryPolicy, Tag, TaskId, TenantId,
    Timestamp, TraceId, UniqueKey, WorkerId,
    ids::{Channel, ClaimId, CorrelationKey, MessageId, StepKey},
    job::{Priority, ScheduleType, Wait, WaitOn},
    ledger::{MailContent, MailName, Shape, StepOutcome},
    ops::{
        Advance, ApproveDiscard, Bury, Cancel, Checkpoint, Claim, Discard, Enqueue, Entry, HandIn,
        Happened, Idempotency, NewJob, NewTask, Outcome, Promote, PromoteWhen, Release, Renew,
        Requeue, Rerun, Resolve, RetryNow, Settle, Signal, Start, Stated, Statement, WaitFor, Wake,
        WakeBy,
    },
};

use super::deed::{
    Asked, Awaited, Deed, Ending, Held, SignalContent, SignalName, StepEnd, StepHappened, StepLine,
    Waker, What,
};

/// What a deed does not say itself.
pub(super) struct Setting<'a> {
    /// The job as it stands.
    pub(super) job: Option<&'a Job>,
    /// When the story began.
    pub(super) began: Timestamp,
    /// What time it is.
    pub(super) now: Timestamp,
    /// How many ops there were before: it makes things unique.
    pub(super) count: u64,
}

/// The op that a deed stands for.
pub(super) fn op(deed: &Deed, setting: &Setting<'_>) -> Result<Op, Refusal> {
    let job_id = deed.job.id();
    let dlq_id = DlqId::of_job(job_id);
    Ok(match &deed.what {
        What::Enqueue(asked) => enqueue(deed, asked, setting)?.into(),
        What::Claim { by, lease, alone, start, id } => Op::Claim(Claim {
            job_id,
            claim_id: claim_id(id.as_deref(), setting.count),
            worker: WorkerId::new(by)?,
            trace_id: None,
            lease: *lease,
            start: *start,
            alone: *alone,
        }),
        What::Start { held } => {
            let (epoch, by) = lease(held, setting)?;
            Op::Start(Start { job_id, epoch, by })
        }
        What::Renew { held, lease: length, heartbeat } => {
            let (epoch, by) = lease(held, setting)?;
            let (lease, heartbeat) = (*length, *heartbeat);
            Op::Renew(Renew { job_id, epoch, by, lease, heartbeat, progress: None })
        }
        What::Release { held } => {
            let (epoch, by) = lease(held, setting)?;
            Op::Release(Release { job_id, epoch, by })
        }
        What::Settle { held, outcome, stats, jitter } => {
            let (epoch, by) = lease(held, setting)?;
            let (outcome, stats) = (ending(outcome)?, payload(stats.as_deref())?);
            let jitter_ms = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX);
            let jitter = Jitter::from_ms(jitter_ms)?;
            Op::Settle(Settle { job_id, epoch, by, outcome, stats, jitter })
        }
        What::Checkpoint { held, state } => {
            let (epoch, by) = lease(held, setting)?;
            let kept = payload(Some(state))?;
            Op::Checkpoint(Checkpoint { job_id, epoch, by, state: Digest::of(state), kept })
        }
        What::Advance { held, step, happened } => {
            let (epoch, by) = lease(held, setting)?;
            Op::Advance(Advance { job_id, epoch, by, entries: vec![entry(step, happened)?] })
        }
        What::HandIn { held, key, result } => {
            let (epoch, by) = lease(held, setting)?;
            let outcome = StepOutcome::Done(payload(Some(result))?.expect("it was given"));
            Op::HandIn(HandIn { job_id, key: StepKey::new(key)?, epoch, outcome, by })
        }
        What::Signal { name, content, expect_waiting, by } => Op::Signal(Signal {
            job_id,
            name: mail_name(name)?,
            content: match content {
                SignalContent::Payload(text) => {
                    MailContent::Payload(payload(Some(text))?.expect("it was given"))
                }
                SignalContent::Rejected(code) => MailContent::Rejected(failure(code, false)),
            },
            expect_waiting: *expect_waiting,
            by: actor(by)?,
        }),
        What::Resolve { key, result, by, because } => {
            let statement = match key {
                Some(key) => Some(Statement {
                    key: StepKey::new(key)?,
                    what: match payload(result.as_deref())? {
                        Some(result) => Stated::Happened(StepOutcome::Done(result)),
                        None => Stated::NotDone,
                    },
                }),
                None => None,
            };
            Op::Resolve(Resolve { job_id, statement, reason: because.clone(), by: actor(by)? })
        }
        What::Wait { held, on, limit, seen } => {
            let (epoch, by) = lease(held, setting)?;
            let mut until = limit.map(|limit| setting.now.plus(limit));
            let on = match on {
                Awaited::Other(Waker::Signal { key }) => WaitOn::Signal(CorrelationKey::new(key)?),
                Awaited::Other(Waker::Child { job }) => WaitOn::Child(job.id()),
                Awaited::Other(Waker::Message { channel }) => {
                    WaitOn::Message(Channel::new(channel)?)
                }
                Awaited::Other(Waker::Operator { code, step }) => WaitOn::Operator {
                    code: code.clone(),
                    step: step.as_ref().map(StepKey::new).transpose()?,
                    message: "as the story says".to_owned(),
                },
                Awaited::Time { after } => {
                    until = Some(setting.now.plus(*after));
                    WaitOn::Time
                }
            };
            let wait = Wait { on, until };
            Op::Wait(WaitFor { job_id, epoch, by, wait, mails_seen: *seen })
        }
        What::Wake { child } => Op::Wake(Wake { job_id, by: WakeBy::Child { child: child.id() } }),
        What::Cancel { force, grace, by, because } => Op::Cancel(Cancel {
            job_id,
            force: *force,
            grace: grace.unwrap_or(Cancel::GRACE_DEFAULT),
            reason: because.clone(),
            by: actor(by)?,
        }),
        What::RetryNow { by } => Op::RetryNow(RetryNow { job_id, by: actor(by)? }),
        What::RunNow { by } => {
            let when = PromoteWhen::Now { by: actor(by)? };
            Op::Promote(Promote { job_id, when })
        }
        What::Bury { by, because } => {
            Op::Bury(Bury { job_id, reason: because.clone(), by: actor(by)? })
        }
        What::Requeue { new, by, payload: edited } => Op::Requeue(Requeue {
            dlq_id,
            new_job_id: new.id(),
            payload: payload(edited.as_deref())?,
            by: actor(by)?,
        }),
        What::Discard { by, because } => {
            Op::Discard(Discard { dlq_id, reason: because.clone(), by: actor(by)? })
        }
        What::Approve { by } => Op::ApproveDiscard(ApproveDiscard { dlq_id, by: actor(by)? }),
        What::Rerun { new, by } => {
            Op::Rerun(Rerun { job_id, new_job_id: new.id(), by: actor(by)? })
        }
    })
}

fn enqueue(deed: &Deed, asked: &Asked, setting: &Setting<'_>) -> Result<Enqueue, Refusal> {
    let name = |given: &Option<String>, usual: &str| given.clone().unwrap_or(usual.to_owned());
    let kind = Kind::new(name(&asked.kind, NewJob::DEFAULT_NAME))?;
    let given = payload(Some(asked.payload.as_deref().unwrap_or("{}")))?;
    let usual = NewJob::new(kind, given.expect("it was given"));
    let at = asked.at.map(|at| setting.began.plus(at));
    let after = asked.after.map(|after| setting.now.plus(after));
    let deadline_at = asked.deadline_at.map(|at| setting.began.plus(at));
    let deadline = asked.deadline.map(|after| setting.now.plus(after));
    let tags = asked.tags.iter().map(Tag::new).collect::<Result<_, _>>()?;
    let new = NewJob {
        queue: Queue::new(name(&asked.queue, NewJob::DEFAULT_NAME))?,
        priority: Priority(asked.priority.unwrap_or_default()),
        schedule_type: asked.schedule.unwrap_or(ScheduleType::At),
        scheduled_at: at.or(after),
        timeout: asked.timeout,
        heartbeat_timeout: asked.heartbeat,
        schedule_to_start: asked.start_within,
        deadline_at: deadline_at.or(deadline),
        max_retries: asked.retries.unwrap_or(usual.max_retries),
        retry: RetryPolicy {
            base: asked.base.unwrap_or(usual.retry.base),
            max_backoff: asked.cap.unwrap_or(usual.retry.max_backoff),
        },
        max_interruptions: asked.max_interruptions.unwrap_or(usual.max_interruptions),
        idempotency: idempotency(asked)?,
        task: match &asked.task {
            Some((id, may_rerun)) => {
                Some(NewTask { task_id: TaskId::new(id)?, may_rerun: *may_rerun })
            }
            None => None,
        },
        limit_key: asked.limit_key.as_ref().map(LimitKey::new).transpose()?,
        unique_key: asked.unique_key.as_ref().map(UniqueKey::new).transpose()?,
        tags,
        trace_id: asked.trace.as_ref().map(TraceId::new).transpose()?,
        parent: asked.parent.map(super::words::Name::id),
        ..usual
    };
    Ok(Enqueue {
        job_id: deed.job.id(),
        tenant: TenantId::new(name(&asked.tenant, "acme"))?,
        new: Box::new(new),
        random: setting.count.into(),
        by: actor(&name(&asked.by, "ops"))?,
    })
}

fn idempotency(asked: &Asked) -> Result<Idempotency, Refusal> {
    Ok(match (&asked.key, &asked.run_key) {
        (_, Some(key)) => Idempotency::Run { key: IdempotencyKey::new(key)? },
        (Some(key), None) => {
            let scope = match &asked.scope {
                Some(scope) => IdempotencyScope::new(scope)?,
                None => IdempotencyScope::default_scope(),
            };
            Idempotency::Key { scope, key: IdempotencyKey::new(key)? }
        }
        (None, None) => Idempotency::OwnId,
    })
}

/// A claim has the identity that the story gives it, or one of its own.
fn claim_id(id: Option<&str>, count: u64) -> ClaimId {
    let named =
        id.map(|id| id.bytes().fold(1 << 64, |bits: u128, byte| bits * 256 + u128::from(byte)));
    ClaimId::from_u128(named.unwrap_or(count.into()))
}

/// The epoch and the worker of a lease: as the line says, else as the job has it now.
fn lease(held: &Held, setting: &Setting<'_>) -> Result<(Epoch, By), Refusal> {
    let now = setting.job.and_then(|job| Some((job.epoch, job.lease.as_ref()?.worker.clone())));
    let epoch = held.epoch.map(Epoch::new).or(setting.job.map(|job| job.epoch));
    let epoch = epoch.unwrap_or(Epoch::ZERO);
    let worker = match (&held.by, now) {
        (Some(by), _) => WorkerId::new(by)?,
        (None, Some((current, worker))) if current == epoch => worker,
        _ => WorkerId::new("somebody")?,
    };
    Ok((epoch, By::worker(worker)))
}

fn ending(ending: &Ending) -> Result<Outcome, Refusal> {
    Ok(match ending {
        Ending::Succeeded { result } => Outcome::Succeeded { result: payload(result.as_deref())? },
        Ending::Partial { result, remaining } => Outcome::Partial {
            result: payload(result.as_deref())?,
            remaining: payload(Some(remaining))?.expect("it was given"),
        },
        Ending::Failed { code, is_final, retry_after } => Outcome::Failed(Failure {
            code: code.clone(),
            message: "as the story says".to_owned(),
            class: if *is_final { Class::Permanent } else { Class::Transient },
            retryable: !is_final,
            retry_after: *retry_after,
        }),
        Ending::Cancelled { because } => Outcome::Cancelled { reason: because.clone() },
    })
}

fn entry(step: &StepLine, happened: &StepHappened) -> Result<Entry, Refusal> {
    let input = payload(step.input.as_deref())?.map(|input| input.digest());
    let what = match happened {
        StepHappened::Begun { call } => Happened::Begun { call_id: *call, until: None },
        StepHappened::TryFailed { code } => {
            Happened::TryFailed { failure: failure(code, true), next_try_at: None }
        }
        StepHappened::Recorded { outcome, by } => {
            let outcome = match outcome {
                StepEnd::Result(text) => {
                    StepOutcome::Done(payload(Some(text))?.expect("it was given"))
                }
                StepEnd::Failed(code) => StepOutcome::Failed(failure(code, false)),
            };
            Happened::Recorded { outcome, by: *by, mail: None }
        }
    };
    let shape = Shape::step(step.mode, input);
    Ok(Entry { key: StepKey::new(&step.key)?, shape, location: None, what })
}

fn mail_name(name: &SignalName) -> Result<MailName, Refusal> {
    Ok(match name {
        SignalName::Signal { key } => MailName::Signal(CorrelationKey::new(key)?),
        SignalName::Message { channel, id } => {
            MailName::Message { channel: Channel::new(channel)?, id: MessageId::new(id)? }
        }
        SignalName::Child { job } => MailName::Child(job.id()),
    })
}

fn failure(code: &str, retryable: bool) -> Failure {
    match retryable {
        true => Failure::transient(code, "as the story says"),
        false => Failure::permanent(code, "as the story says"),
    }
}

fn payload(text: Option<&str>) -> Result<Option<Payload>, Refusal> {
    text.map(|text| Payload::parse(text, Payload::MAX_BYTES_DEFAULT)).transpose()
}

/// Who acts: a person by name, or `worker:w1`, `recovery`, `scheduler` as events write them.
fn actor(text: &str) -> Result<By, Refusal> {
    let actor = Actor::try_from(text.to_owned());
    Ok(By::from(match actor {
        Ok(actor) => actor,
        Err(_) => Actor::User(Principal::new(text)?),
    }))
}
