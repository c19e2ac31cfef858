//! Which op comes next: mostly what a worker, a timer or a person would sensibly do, and some
//! mischief.

use std::time::Duration;

use windlass_kernel::{
    Actor, By, DlqId, Epoch, Failure, Jitter, Job, JobId, Kind, LetterState, Op, Payload,
    Principal, Queue, Refusal, RetryPolicy, State, TaskId, WorkerId,
    ids::{ClaimId, CorrelationKey, IdempotencyKey, IdempotencyScope},
    job::{Priority, Wait, WaitOn},
    ops::{
        ApproveDiscard, Bury, Cancel, Claim, Discard, Enqueue, Expire, Expiry, Idempotency, NewJob,
        NewTask, Outcome, Promote, PromoteWhen, Release, Renew, Requeue, Rerun, RetryNow, Settle,
        Start, WaitFor, Wake, WakeBy,
    },
    timer,
};

use super::{Chance, World, ledger::checkpoint};

impl World {
    pub(super) fn next_op(&mut self, chance: &mut Chance) -> Op {
        let op = match chance.below(100) {
            0..13 => self.enqueue(chance),
            13 => self.hand_in(chance).unwrap_or_else(|| self.enqueue(chance)),
            14..28 => self.after_the_end(chance),
            28..42 => self.mischief(chance),
            _ => self.next_of_a_live_job(chance),
        };
        self.remember(&op);
        op
    }

    fn remember(&mut self, op: &Op) {
        match op {
            Op::Enqueue(op) => self.enqueues.push(op.clone()),
            Op::Claim(op) => self.claims.push(op.clone()),
            Op::Settle(op) => self.settles.push(op.clone()),
            _ => {}
        }
    }

    // What is sensible.

    fn enqueue(&mut self, chance: &mut Chance) -> Op {
        let job_id = self.fresh_job_id();
        let tenant = self.tenant(chance);
        let new = Box::new(self.new_job(chance));
        let random = u128::from(chance.draw());
        Enqueue { job_id, tenant, new, random, by: user("ann") }.into()
    }

    fn new_job(&mut self, chance: &mut Chance) -> NewJob {
        let kind = chance.pick(&["mail", "report"]).expect("two");
        let scheduled_at = chance.maybe(25, |chance| self.now.plus(chance.ms(1, 60_000)));
        let due_at = scheduled_at.unwrap_or(self.now);
        let live = self.live_jobs();
        NewJob {
            queue: Queue::new(chance.pick(&["default", "slow"]).expect("two")).expect("a name"),
            priority: Priority(chance.weighted(&[(8, 0), (1, -5), (1, 1_000)])),
            scheduled_at,
            timeout: chance.maybe(40, |chance| chance.ms(1, 60_000)),
            heartbeat_timeout: chance.maybe(30, |chance| chance.ms(1, 30_000)),
            schedule_to_start: chance.maybe(20, |chance| chance.ms(1, 120_000)),
            deadline_at: chance.maybe(20, |chance| due_at.plus(chance.ms(1, 3_600_000))),
            max_retries: chance.weighted(&[(2, 0), (2, 1), (2, 2), (2, 3), (1, 20)]),
            retry: RetryPolicy { base: chance.ms(0, 2_000), max_backoff: chance.ms(0, 5_000) },
            max_interruptions: chance.weighted(&[(1, 1), (1, 2), (2, 3), (2, 5)]),
            idempotency: idempotency(chance),
            task: chance.maybe(30, new_task),
            limit_key: chance.maybe(30, |chance| key(chance, &["anna", "bert"])),
            unique_key: chance.maybe(15, |chance| key(chance, &["one", "two", "three"])),
            parent: chance.maybe(15, |chance| chance.pick(&live).map(|job| job.id)).flatten(),
            ..NewJob::new(Kind::new(kind).expect("a name"), payload(chance))
        }
    }

    fn live_jobs(&self) -> Vec<&Job> {
        self.store.jobs.values().filter(|job| !job.state.is_end()).collect()
    }

    /// Moves one job that is not at its end.
    fn next_of_a_live_job(&mut self, chance: &mut Chance) -> Op {
        let live = self.live_jobs();
        let Some(job) = chance.pick(&live).map(|job| (*job).clone()) else {
            return self.enqueue(chance);
        };
        if let Some(op) = self.ring(&job, chance) {
            return op;
        }
        match job.state {
            State::Scheduled => self.promote(&job),
            State::Queued | State::Interrupted => self.claim_or_end(&job, chance),
            State::RetryScheduled if chance.percent(25) => {
                RetryNow { job_id: job.id, by: user("ann") }.into()
            }
            State::RetryScheduled => self.claim_or_end(&job, chance),
            State::Dispatched => self.next_of_dispatched(&job, chance),
            State::Running => self.next_of_running(&job, chance),
            State::Waiting => self.next_of_waiting(&job, chance),
            ended => unreachable!("{ended} is an end, or is never seen"),
        }
    }

    /// An alarm of the job, when its time has come. Sometimes it is only set, and comes too late.
    fn ring(&mut self, job: &Job, chance: &mut Chance) -> Option<Op> {
        let set: Vec<_> = timer::Alarm::ALL
            .iter()
            .filter_map(|alarm| Some((timer::rings_at(job, *alarm)?, *alarm)))
            .collect();
        let (at, alarm) = *chance.pick(&set)?;
        let op = timer::op(job, alarm, jitter(chance));
        if chance.percent(15) {
            self.timers.push(op.clone());
        }
        // Long waits for a deadline would let every other alarm of the world run out.
        let soon = at <= self.now.plus(chance.ms(1, 60_000));
        if !soon || !chance.percent(12) {
            return None;
        }
        self.now = self.now.max(at);
        Some(op)
    }

    fn promote(&mut self, job: &Job) -> Op {
        self.now = self.now.max(job.spec.due_at);
        due(job)
    }

    fn claim_or_end(&mut self, job: &Job, chance: &mut Chance) -> Op {
        match chance.below(100) {
            0..5 => cancel(job, chance),
            5..8 if job.state == State::Interrupted => bury(job),
            _ => {
                if let Some(at) = job.claim_at() {
                    self.now = self.now.max(at);
                }
                self.claim(job, chance).into()
            }
        }
    }

    fn claim(&mut self, job: &Job, chance: &mut Chance) -> Claim {
        Claim {
            job_id: job.id,
            claim_id: ClaimId::from_u128(self.fresh_id()),
            worker: self.worker(chance),
            trace_id: None,
            lease: chance.ms(100, 60_000),
            start: chance.percent(50),
            alone: job.is_isolated() && chance.percent(80),
        }
    }

    fn worker(&self, chance: &mut Chance) -> WorkerId {
        let place = usize::try_from(chance.below(3)).expect("one of three");
        session(place, self.starts[place])
    }

    /// Is the process dead that holds the job's lease?
    fn is_orphan(&self, job: &Job) -> bool {
        let live = |worker| (0..3).any(|place| session(place, self.starts[place]) == worker);
        job.lease.as_ref().is_some_and(|lease| !live(lease.worker.clone()))
    }

    fn next_of_dispatched(&mut self, job: &Job, chance: &mut Chance) -> Op {
        if self.is_orphan(job) && chance.percent(70) {
            return expire(job, Expiry::DeadSession, chance);
        }
        match chance.below(100) {
            0..10 => renew(job, chance),
            10..18 => release(job),
            18..22 => cancel(job, chance),
            22..28 => self.expire_lease(job, chance),
            _ => start(job, job.epoch),
        }
    }

    fn next_of_running(&mut self, job: &Job, chance: &mut Chance) -> Op {
        if self.is_orphan(job) && chance.percent(70) {
            return expire(job, Expiry::DeadSession, chance);
        }
        match chance.below(100) {
            0..8 => renew(job, chance),
            8..14 => release(job),
            14..21 => cancel(job, chance),
            21..24 => bury(job),
            24..32 => self.expire_lease(job, chance),
            32..37 => checkpoint(job, job.epoch, chance),
            37..50 => self.advance(job, chance),
            50..54 => self.signal(job, chance),
            54..68 => self.wait(job, chance),
            _ => settle(job, job.epoch, chance).into(),
        }
    }

    fn expire_lease(&mut self, job: &Job, chance: &mut Chance) -> Op {
        if let Some(lease) = &job.lease {
            self.now = self.now.max(lease.until);
        }
        expire(job, Expiry::Lease, chance)
    }

    fn wait(&self, job: &Job, chance: &mut Chance) -> Op {
        let children: Vec<JobId> = self
            .live_jobs()
            .iter()
            .filter(|child| child.spec.parent == Some(job.id))
            .map(|child| child.id)
            .collect();
        let on = match chance.pick(&children) {
            Some(child) if chance.percent(60) => WaitOn::Child(*child),
            _ if chance.percent(30) => WaitOn::Time,
            _ if chance.percent(40) => self.ledger_wait(job, chance),
            _ => WaitOn::Signal(correlation_key(chance)),
        };
        let percent = if on == WaitOn::Time { 100 } else { 50 };
        let until = chance.maybe(percent, |chance| self.now.plus(chance.ms(0, 30_000)));
        let wait = Wait { on, until };
        let percent = if wait.on.has_message() { 100 } else { 50 };
        let unseen = u32::from(job.version.is_multiple_of(7));
        let mails_seen = chance.maybe(percent, |_| job.ledger.mails.saturating_sub(unseen));
        WaitFor { job_id: job.id, epoch: job.epoch, by: holder(job), wait, mails_seen }.into()
    }

    fn next_of_waiting(&mut self, job: &Job, chance: &mut Chance) -> Op {
        match chance.below(100) {
            0..8 => cancel(job, chance),
            8..12 => bury(job),
            12..16 => self.signal(job, chance),
            _ => self.end_wait(job),
        }
    }

    /// The op that ends a job's wait, at the time when it can.
    pub(super) fn end_wait(&mut self, job: &Job) -> Op {
        let wait = job.wait.as_ref().expect("a waiting job has a wait");
        if let Some(op) = Self::end_by_ledger(job, &wait.on) {
            return op;
        }
        let by = match &wait.on {
            WaitOn::Child(child) => WakeBy::Child { child: *child },
            _ => {
                self.now = self.now.max(wait.until.expect("a wait for a time has one"));
                WakeBy::Time { version: job.version }
            }
        };
        Wake { job_id: job.id, by }.into()
    }

    /// Something for a job at its end, or for its dead letter.
    fn after_the_end(&mut self, chance: &mut Chance) -> Op {
        let letters: Vec<_> = self.store.letters.values().collect();
        let open: Vec<_> = letters.iter().filter(|letter| !letter.state.is_closed()).collect();
        let among = if chance.percent(85) { open } else { letters.iter().collect() };
        let letter = chance.pick(&among).map(|letter| (letter.id, letter.state));
        match letter {
            Some((dlq_id, state)) if chance.percent(65) => {
                self.decide_letter(dlq_id, state, chance)
            }
            _ => self.rerun(chance),
        }
    }

    fn decide_letter(&mut self, dlq_id: DlqId, state: LetterState, chance: &mut Chance) -> Op {
        let by = person(chance);
        match (state, chance.below(100)) {
            (LetterState::DiscardRequested, 0..70) => ApproveDiscard { dlq_id, by }.into(),
            (_, 0..50) => {
                let payload = chance.maybe(30, payload);
                Requeue { dlq_id, new_job_id: self.fresh_job_id(), payload, by }.into()
            }
            (_, 50..95) => Discard { dlq_id, reason: "seen".to_owned(), by }.into(),
            _ => ApproveDiscard { dlq_id, by }.into(),
        }
    }

    fn rerun(&mut self, chance: &mut Chance) -> Op {
        let ended = |job: &&Job| matches!(job.state, State::Failed | State::Cancelled);
        let ended: Vec<JobId> = self.store.jobs.values().filter(ended).map(|job| job.id).collect();
        match chance.pick(&ended) {
            Some(job_id) if chance.percent(40) => {
                Rerun { job_id: *job_id, new_job_id: self.fresh_job_id(), by: user("ann") }.into()
            }
            _ => self.next_of_a_live_job(chance),
        }
    }

    // What is not.

    fn mischief(&mut self, chance: &mut Chance) -> Op {
        let jobs: Vec<&Job> = self.store.jobs.values().collect();
        let Some(job) = chance.pick(&jobs).map(|job| (*job).clone()) else {
            return unknown_job(chance);
        };
        let op = match chance.below(13) {
            0 | 1 => Some(write_under(&job, stale_epoch(&job, chance), chance)),
            2 => chance.pick(&self.settles).cloned().map(Op::from),
            3 => chance.pick(&self.claims).cloned().map(Op::from),
            4 => chance.pick(&self.timers).cloned(),
            5 => chance.pick(&self.enqueues).cloned().map(Op::from),
            6 => self.same_key_other_fields(chance),
            7 => Some(self.taken_id(&job, chance)),
            8 => Some(self.invalid(&job, chance)),
            9 => Some(unknown_job(chance)),
            10 => self.wrong_wake(chance),
            11 => self.too_early(chance),
            _ => Some(self.anything(&job, chance)),
        };
        op.unwrap_or_else(|| self.next_of_a_live_job(chance))
    }

    fn same_key_other_fields(&mut self, chance: &mut Chance) -> Option<Op> {
        let mut enqueue = chance.pick(&self.enqueues)?.clone();
        enqueue.new.payload = payload(chance);
        enqueue.new.deadline_at = None;
        Some(enqueue.into())
    }

    fn taken_id(&mut self, job: &Job, chance: &mut Chance) -> Op {
        let mut new = self.new_job(chance);
        let key = IdempotencyKey::new(format!("fresh {}", self.fresh_id())).expect("a key");
        new.idempotency = Idempotency::Key { scope: IdempotencyScope::default_scope(), key };
        new.task = None;
        let (job_id, tenant) = (job.id, job.spec.tenant.clone());
        Enqueue { job_id, tenant, new: Box::new(new), random: 0, by: user("ann") }.into()
    }

    fn wrong_wake(&self, chance: &mut Chance) -> Option<Op> {
        let live = self.live_jobs();
        let waiting = live.into_iter().filter(|job| job.state == State::Waiting);
        let job = *chance.pick(&waiting.collect::<Vec<_>>())?;
        let by = if chance.percent(50) {
            WakeBy::Child { child: JobId::from_u128(u128::MAX) }
        } else {
            WakeBy::Time { version: job.version }
        };
        Some(Wake { job_id: job.id, by }.into())
    }

    /// What will be right later.
    fn too_early(&mut self, chance: &mut Chance) -> Option<Op> {
        let early = |job: &&Job| matches!(job.state, State::Scheduled | State::RetryScheduled);
        let early: Vec<&Job> = self.store.jobs.values().filter(early).collect();
        let job = (*chance.pick(&early)?).clone();
        Some(match job.state {
            State::Scheduled if chance.percent(50) => run_now(&job),
            State::Scheduled => due(&job),
            _ => self.claim(&job, chance).into(),
        })
    }

    fn invalid(&mut self, job: &Job, chance: &mut Chance) -> Op {
        match chance.below(4) {
            0 => Bury { job_id: job.id, reason: "  ".to_owned(), by: user("ann") }.into(),
            1 => {
                let grace = 2 * Cancel::GRACE_MAX;
                Cancel { job_id: job.id, force: true, grace, reason: None, by: user("ann") }.into()
            }
            2 => Claim { lease: Claim::LEASE_MAX * 2, ..self.claim(job, chance) }.into(),
            _ => {
                let mut op = self.enqueue(chance);
                if let Op::Enqueue(enqueue) = &mut op {
                    enqueue.new.max_interruptions = 0;
                }
                op
            }
        }
    }

    /// Any op on any job, whatever its state.
    fn anything(&mut self, job: &Job, chance: &mut Chance) -> Op {
        match chance.below(8) {
            0 => self.claim(job, chance).into(),
            1 => write_under(job, job.epoch, chance),
            2 => cancel(job, chance),
            3 => bury(job),
            4 => RetryNow { job_id: job.id, by: user("ann") }.into(),
            5 if chance.percent(50) => run_now(job),
            5 => due(job),
            6 => Rerun { job_id: job.id, new_job_id: self.fresh_job_id(), by: user("ann") }.into(),
            _ => {
                let expiries = [
                    Expiry::Lease,
                    Expiry::StartToClose,
                    Expiry::Heartbeat,
                    Expiry::ScheduleToStart,
                    Expiry::Deadline,
                    Expiry::CancelGrace,
                ];
                expire(job, *chance.pick(&expiries).expect("six"), chance)
            }
        }
    }
}

/// A write of the worker that holds, or once held, this epoch.
fn write_under(job: &Job, epoch: Epoch, chance: &mut Chance) -> Op {
    match chance.below(6) {
        0 => start(job, epoch),
        1 => {
            let lease = chance.ms(100, 60_000);
            let (by, progress) = (holder(job), progress(lease));
            Renew { job_id: job.id, epoch, by, lease, heartbeat: true, progress }.into()
        }
        2 => Release { job_id: job.id, epoch, by: holder(job) }.into(),
        3 => checkpoint(job, epoch, chance),
        4 => {
            let wait = Wait { on: WaitOn::Signal(correlation_key(chance)), until: None };
            let by = holder(job);
            WaitFor { job_id: job.id, epoch, by, wait, mails_seen: None }.into()
        }
        _ => settle(job, epoch, chance).into(),
    }
}

/// An epoch that was never granted, was lost, or has no lease any more.
fn stale_epoch(job: &Job, chance: &mut Chance) -> Epoch {
    let last = job.epoch.get();
    match chance.below(4) {
        0 => Epoch::new(last + 1),
        1 | 2 if job.state.is_leased() => Epoch::new(last.saturating_sub(1)),
        _ => Epoch::new(chance.below(last + 1)),
    }
}

fn unknown_job(chance: &mut Chance) -> Op {
    let unknown = 1 << 100;
    if chance.percent(50) {
        Discard { dlq_id: DlqId::from_u128(unknown), reason: "?".to_owned(), by: user("ann") }
            .into()
    } else {
        RetryNow { job_id: JobId::from_u128(unknown), by: user("ann") }.into()
    }
}

fn start(job: &Job, epoch: Epoch) -> Op {
    Start { job_id: job.id, epoch, by: holder(job) }.into()
}

fn renew(job: &Job, chance: &mut Chance) -> Op {
    let (lease, heartbeat) = (chance.ms(100, 60_000), chance.percent(50));
    let progress = progress(lease);
    Renew { job_id: job.id, epoch: job.epoch, by: holder(job), lease, heartbeat, progress }.into()
}

/// Half of the renewals say how far the handler has come.
fn progress(lease: Duration) -> Option<Payload> {
    let text = format!("{{ \"ms\":{} }}", lease.as_millis());
    lease.as_millis().is_multiple_of(2).then(|| Payload::parse(&text, 100).expect("it is JSON"))
}

fn release(job: &Job) -> Op {
    Release { job_id: job.id, epoch: job.epoch, by: holder(job) }.into()
}

fn settle(job: &Job, epoch: Epoch, chance: &mut Chance) -> Settle {
    let outcome = match chance.below(100) {
        0..30 => Outcome::Succeeded { result: chance.maybe(50, payload) },
        30..38 => Outcome::Partial { result: None, remaining: payload(chance) },
        38..75 => Outcome::Failed(Failure {
            retry_after: chance.maybe(20, |chance| chance.ms(0, 3_000)),
            ..Failure::transient("BUSY", "try again")
        }),
        75..92 => Outcome::Failed(Failure::permanent("BROKEN", "do not try again")),
        _ => Outcome::Cancelled { reason: None },
    };
    let (stats, jitter) = (chance.maybe(20, payload), jitter(chance));
    Settle { job_id: job.id, epoch, by: holder(job), outcome, stats, jitter }
}

fn expire(job: &Job, what: Expiry, chance: &mut Chance) -> Op {
    let jitter = jitter(chance);
    Expire { job_id: job.id, version: job.version, what, jitter }.into()
}

fn cancel(job: &Job, chance: &mut Chance) -> Op {
    let (force, grace) = (chance.percent(20), chance.ms(0, 60_000));
    let reason = chance.maybe(50, |_| "not wanted".to_owned());
    Cancel { job_id: job.id, force, grace, reason, by: user("ann") }.into()
}

fn bury(job: &Job) -> Op {
    Bury { job_id: job.id, reason: "enough".to_owned(), by: user("ann") }.into()
}

/// Whoever holds the job, or would say so.
pub(super) fn holder(job: &Job) -> By {
    By::worker(job.lease.as_ref().map_or_else(|| session(0, 0), |lease| lease.worker.clone()))
}

/// The op of a timer that a scheduled job is due.
fn due(job: &Job) -> Op {
    Promote { job_id: job.id, when: PromoteWhen::Due { version: job.version } }.into()
}

/// A person makes a scheduled job due at once.
fn run_now(job: &Job) -> Op {
    Promote { job_id: job.id, when: PromoteWhen::Now { by: user("ann") } }.into()
}

/// The worker session of one start of one process.
fn session(place: usize, start: u64) -> WorkerId {
    WorkerId::new(format!("w{place}:{start}")).expect("a name")
}

/// A user by name.
pub(super) fn user(name: &str) -> By {
    Actor::User(Principal::new(name).expect("a name")).into()
}

/// One of two people, or a program that has no say.
fn person(chance: &mut Chance) -> By {
    match chance.below(20) {
        0 => Actor::Scheduler.into(),
        1..11 => user("ann"),
        _ => user("bob"),
    }
}

fn key<T: std::str::FromStr<Err = Refusal>>(chance: &mut Chance, names: &[&str]) -> T {
    chance.pick(names).expect("there are some").parse().expect("a name")
}

fn idempotency(chance: &mut Chance) -> Idempotency {
    let key = IdempotencyKey::new(format!("k{}", chance.below(60))).expect("a key");
    match chance.below(100) {
        0..55 => Idempotency::OwnId,
        55..85 => {
            let scope = chance.pick(&["default", "import"]).expect("two");
            Idempotency::Key { scope: IdempotencyScope::new(scope).expect("a name"), key }
        }
        _ => Idempotency::Run { key },
    }
}

fn new_task(chance: &mut Chance) -> NewTask {
    let task_id = TaskId::new(format!("t{}", chance.below(12))).expect("a name");
    NewTask { task_id, may_rerun: chance.percent(80) }
}

fn payload(chance: &mut Chance) -> Payload {
    Payload::parse(&format!("{{\"n\":{}}}", chance.below(4)), 100).expect("JSON")
}

pub(super) fn correlation_key(chance: &mut Chance) -> CorrelationKey {
    CorrelationKey::new(format!("s{}", chance.below(4))).expect("a key")
}

fn jitter(chance: &mut Chance) -> Jitter {
    Jitter::from_ms(chance.below(Jitter::MAX_MS + 1)).expect("inside the range")
}
