//! The order of a commit, told once for every database.
//!
//! Schedules come first, so that the jobs which they make are there for whatever names them. Then the ops, in the order
//! in which they came; then claims and renewals, which see all that the ops have done. A backend loads the rows that the
//! writes name before it, and saves what the set holds after it; what it is asked for in between stands in [`Backend`].
//!
//! The driver is async because PostgreSQL has to be waited for. A backend that never waits takes its answer with
//! [`at_once`].

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use windlass_kernel::{Answer, JobId, Op, Refusal, TenantId, Timestamp, WorkerId};

use super::{
    ClaimMany, Grant, Granted, Grants, Needs, Reply, WorkingSet, Write,
    schedules::{enqueues, jobs_of},
};
use crate::{IdMap, IdSet, read::Word, rules::Rulebook};

/// What each write is told, in the order of the writes.
pub(crate) type Answers = Vec<Result<Reply, Refusal>>;

/// What the writes are told so far: claims and renewals are answered last.
pub(crate) type AnswersSoFar = Vec<Option<Result<Reply, Refusal>>>;

/// What a database does for a commit while it is decided.
pub(crate) trait Backend {
    /// What it keeps beside a job.
    type Place: Default;
    /// Why it could not read.
    type Error;
    /// Why the commit has to be tried in another way, though nothing failed.
    type Retry;

    /// The rows of the commit, and the rules that it goes by.
    fn parts(&mut self) -> (&mut WorkingSet<Self::Place>, &mut Rulebook);

    /// Loads the schedules that these writes name, and whether their last jobs are at their end.
    async fn load_schedules(&mut self, needs: &Needs) -> Result<(), Self::Error>;

    /// Loads what these enqueues need, which nobody knew of before.
    async fn load_enqueues(&mut self, enqueues: &[Write]) -> Result<(), Self::Error>;

    /// Was a job of this id forgotten while the log still speaks of it?
    async fn is_forgotten(&mut self, id: JobId) -> Result<bool, Self::Error>;

    /// A worker says something of itself.
    fn hear(&mut self, worker: &WorkerId, word: &Word, now: Timestamp) -> Result<Reply, Refusal>;

    /// Notes in the row of a job that was claimed how often its worker's session was renewed.
    fn note_lease(&mut self, job: JobId, worker: &WorkerId);

    /// A worker has leases until then: its session begins, or lasts longer.
    fn extend_session(&mut self, worker: &WorkerId, until: Timestamp);

    /// The ops are decided. Is there a reason to do it all again in another way?
    fn retry(&self, writes: &[Write], answers: &AnswersSoFar) -> Option<Self::Retry>;

    /// The ops are decided, and claims come next: breakers hear what became of executions, and what claims need is
    /// locked or counted.
    async fn before_claims(&mut self, sets_rules: bool, now: Timestamp) -> Result<(), Self::Error>;

    /// Grants what a claim may have.
    async fn claim(&mut self, wanted: &ClaimMany, now: Timestamp) -> Result<Grants, Self::Error>;

    /// Renews the session of a worker. None, if it never had a lease.
    async fn renew(
        &mut self,
        worker: &WorkerId,
        lease: Duration,
        now: Timestamp,
    ) -> Result<Option<Reply>, Self::Error>;

    /// The payloads of jobs that are told to a claim once more.
    async fn payloads(&mut self, jobs: &[JobId]) -> Result<IdMap<String>, Self::Error>;
}

/// How a commit was decided.
pub(crate) enum Decided<R> {
    /// What is to be saved stands in the set.
    Answers(Answers),
    /// Nothing is to be saved.
    Retry(R),
}

/// Decides these writes over the rows that were loaded for them.
pub(crate) async fn decide<B: Backend>(
    backend: &mut B,
    writes: &[Write],
    now: Timestamp,
) -> Result<Decided<B::Retry>, B::Error> {
    let mut answers: AnswersSoFar = vec![None; writes.len()];
    decide_schedules(backend, writes, &mut answers, now).await?;
    let mut sets_rules = false;
    for (write, answer) in writes.iter().zip(&mut answers) {
        sets_rules |= matches!(write, Write::Rule(_));
        match write.check() {
            Err(refusal) => *answer = Some(Err(refusal)),
            Ok(()) if answer.is_some() => {}
            Ok(()) => *answer = decide_op(backend, write, now).await?,
        }
    }
    if let Some(retry) = backend.retry(writes, &answers) {
        return Ok(Decided::Retry(retry));
    }
    backend.before_claims(sets_rules, now).await?;
    let mut grants = Vec::new();
    for (place, write) in writes.iter().enumerate() {
        match write {
            _ if answers[place].is_some() => {}
            Write::Claim(wanted) => grants.push((place, claim(backend, wanted, now).await?)),
            Write::RenewSession { worker, lease } => {
                let renewed = backend.renew(worker, *lease, now).await?;
                answers[place] = Some(renewed.ok_or(Refusal::NotFound { what: "session" }));
            }
            _ => unreachable!("whatever is neither a claim nor a renewal is answered"),
        }
    }
    for (place, Grants { jobs, again_at, repeated }) in grants {
        let jobs = granted(backend, jobs).await?;
        answers[place] = Some(Ok(Reply::Granted { jobs, again_at, repeated }));
    }
    let answers = answers.into_iter().map(|answer| answer.expect("each write is answered"));
    Ok(Decided::Answers(answers.collect()))
}

/// Decides the ops on schedules, and makes their jobs.
async fn decide_schedules<B: Backend>(
    backend: &mut B,
    writes: &[Write],
    answers: &mut AnswersSoFar,
    now: Timestamp,
) -> Result<(), B::Error> {
    if !writes.iter().any(|write| matches!(write, Write::Schedule(_))) {
        return Ok(());
    }
    backend.load_schedules(&Needs::of(writes)).await?;
    let (decided, refused) = backend.parts().0.decide_schedules(writes, now);
    for (place, refusal) in refused {
        answers[place] = Some(Err(refusal));
    }
    let enqueues = enqueues(&decided);
    backend.load_enqueues(&enqueues).await?;
    let mut forgotten = IdSet::default();
    for firing in decided.iter().flat_map(|decided| &decided.firings) {
        let id = firing.enqueue.job_id;
        if backend.is_forgotten(id).await? {
            forgotten.insert(id);
        }
    }
    for decided in decided {
        let place = decided.place;
        let reply = backend.parts().0.fire(decided, &|id| forgotten.contains(&id), now);
        answers[place] = Some(Ok(reply));
    }
    Ok(())
}

/// Decides a write that names what it is about. None, if it is a claim or a renewal.
async fn decide_op<B: Backend>(
    backend: &mut B,
    write: &Write,
    now: Timestamp,
) -> Result<Option<Result<Reply, Refusal>>, B::Error> {
    if let Write::Op { op, .. } = write
        && let Some(job_id) = op.new_job_id()
        && backend.is_forgotten(job_id).await?
    {
        return Ok(Some(Err(Refusal::JobExists { job_id })));
    }
    let (set, book) = backend.parts();
    Ok(Some(match write {
        Write::Op { tenant, op } => apply(backend, tenant, op, now),
        Write::FollowUpDone { id } => Ok(set.follow_up_done(*id)),
        Write::Listens { worker, word, .. } => backend.hear(worker, word, now),
        Write::Rule(op) => set.apply_rule(book, op, now),
        Write::Token(op) => set.apply_token(op, now),
        Write::Mark { name, number } => Ok(set.mark(name, *number)),
        Write::Clock(op) => {
            set.note(op.note());
            Ok(Reply::Done)
        }
        Write::Schedule(_) => unreachable!("schedules are decided before everything else"),
        Write::Claim(_) | Write::RenewSession { .. } => return Ok(None),
    }))
}

/// An op on one job. A claim by name begins a session like any other.
fn apply<B: Backend>(
    backend: &mut B,
    tenant: &TenantId,
    op: &Op,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    let applied = backend.parts().0.apply(tenant, op, now);
    if let (Op::Claim(claim), Ok(Answer { recorded: false, .. })) = (op, &applied) {
        backend.note_lease(claim.job_id, &claim.worker);
        backend.extend_session(&claim.worker, now.plus(claim.lease));
    }
    applied.map(|answer| backend.parts().0.reply(answer))
}

/// Grants a claim, and keeps its session alive for as long as the leases last.
async fn claim<B: Backend>(
    backend: &mut B,
    wanted: &ClaimMany,
    now: Timestamp,
) -> Result<Grants, B::Error> {
    let grants = backend.claim(wanted, now).await?;
    if !grants.jobs.is_empty() && !grants.repeated {
        backend.parts().0.note_grants(wanted.claim_id, &grants.jobs);
        backend.extend_session(&wanted.worker, now.plus(wanted.lease));
    }
    Ok(grants)
}

/// The jobs that a claim got, with their payloads.
async fn granted<B: Backend>(
    backend: &mut B,
    grants: Vec<Grant>,
) -> Result<Vec<Granted>, B::Error> {
    let unknown = grants.iter().filter(|(_, payload)| payload.is_none());
    let unknown: Vec<JobId> = unknown.map(|(id, _)| *id).collect();
    let mut loaded = match unknown.is_empty() {
        true => IdMap::default(),
        false => backend.payloads(&unknown).await?,
    };
    let set = &backend.parts().0;
    let granted = grants.into_iter().map(|(id, payload)| {
        let payload = payload.or_else(|| loaded.remove(&id));
        let job = set.shared(id).expect("a job that was granted is part of the commit");
        Granted { job, payload: payload.expect("a backend finds the payload of each job") }
    });
    Ok(granted.collect())
}

/// How many jobs these writes may touch.
pub(crate) fn room(writes: &[Write]) -> usize {
    let jobs = |write: &Write| match write {
        Write::Op { .. } => 1,
        // Few ask for more than there is; if one does, the map grows.
        Write::Claim(wanted) => wanted.max.min(1_000),
        Write::Schedule(op) => jobs_of(op),
        Write::RenewSession { .. } | Write::FollowUpDone { .. } => 0,
        Write::Rule(_) | Write::Listens { .. } => 0,
        Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => 0,
    };
    writes.iter().map(jobs).sum()
}

/// Is any of these refused?
pub(crate) fn refuses_any(answers: &[Option<Result<Reply, Refusal>>]) -> bool {
    answers.iter().any(|answer| matches!(answer, Some(Err(_))))
}

/// What a future that never waits gives.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("this backend never waits"),
    }
}
