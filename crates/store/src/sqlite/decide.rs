//! Decides a batch: loads what it needs, asks the rules, and makes a plan of all that changes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rusqlite::{Connection, OptionalExtension as _};
use windlass_kernel::{Answer, JobId, NewPayload, Op, Refusal, TenantId, Timestamp, WorkerId};

use super::{
    SqlResult, claim, granted, inbox, load,
    names::{Names, Unsaved},
    plan::{Numbers, Plan},
    read::read_payload,
    ready::Ready,
    retention,
    rules::Rules,
    schedules, tokens,
    work::{Held, Remembered, Work},
};
use crate::{
    ClaimMany, IdSet, Replies, Reply, Write,
    commit::{Grant, Granted, Grants, Needs, enqueues, jobs_of},
    read::Scope,
};

/// What the writer knows without a look: what is stored, and what is planned on top of it.
pub(super) struct Known {
    names: Names,
    ready: Ready,
    rules: Rules,
    pub(super) held: Held,
    pub(super) numbers: Numbers,
}

const NEWEST: &str = "SELECT coalesce(max(id), zeroblob(16)), coalesce(max(seq), 0) FROM jobs";
const LAST: &str = "SELECT id + count - 1 FROM log ORDER BY id DESC LIMIT 1";

impl Known {
    pub(super) fn load(connection: &Connection) -> SqlResult<Self> {
        let last = connection.query_row(LAST, [], |row| row.get(0)).optional()?;
        let (newest, seq) =
            connection.query_row(NEWEST, [], |row| Ok((load::u128_of(row, 0)?, row.get(1)?)))?;
        let (event, newest) = (last.unwrap_or(0), JobId::from_u128(newest));
        let numbers =
            Numbers { event, seq, newest, newest_claim: granted::load_newest(connection)? };
        let names = Names::load(connection)?;
        let held = Held::new(names.greatest_session());
        let rules = Rules::load(connection, &names)?;
        Ok(Self { names, ready: Ready::default(), rules, held, numbers })
    }

    /// A process vouches for a worker, or does so no more. It gives back what has to be saved.
    pub(super) fn vouch(&mut self, worker: &WorkerId, vouched: bool) -> Unsaved {
        self.names.vouch(worker, vouched);
        self.names.take_unsaved()
    }
}

/// A plan, and what is said once it is written.
pub(super) struct Planned {
    pub(super) plan: Arc<Plan>,
    pub(super) replies: Replies,
}

/// What came of an attempt to plan.
pub(super) enum Tried {
    Planned(Planned),
    /// It needs what a plan that is on its way may change.
    HasToWait,
    /// It was to take nothing from the inbox, and something waits there.
    InboxWaits,
    /// Something was refused, and what it lacks may be among the rows of the inbox that still wait.
    MayBeInInbox,
}

/// What a batch is decided upon, besides what is [`Known`].
pub(super) struct State<'a> {
    pub(super) snapshot: &'a Connection,
    /// Plans that are on their way, oldest first.
    pub(super) flying: &'a VecDeque<Arc<Plan>>,
    pub(super) last_pruned: Option<JobId>,
    pub(super) incarnation: u32,
}

/// Decides these rows of the inbox, and then these writes.
pub(super) fn decide(
    state: &State<'_>,
    known: &mut Known,
    inbox: inbox::Batch,
    writes: &[Write],
    now: Timestamp,
) -> SqlResult<Tried> {
    let snapshot = state.snapshot;
    let joined;
    let writes = if inbox.len() == 0 {
        writes
    } else {
        joined = inbox.before(writes);
        &joined
    };
    let needs = Needs::of(writes);
    let sets_rules = writes.iter().any(|write| matches!(write, Write::Rule(_)));
    if !state.flying.is_empty() && (needs.more_than_jobs() || sets_rules) {
        return Ok(Tried::HasToWait);
    }
    let Known { names, ready, rules, held, numbers } = known;
    let remembered = Remembered { names, held, ready, rules };
    let mut work = Work::new(state.incarnation, room(writes), remembered, state.flying, *numbers);
    load::load(snapshot, &needs, &mut work)?;
    tokens::load(snapshot, &needs, &mut work)?;
    let mut replies: Vec<Option<Result<Reply, Refusal>>> = vec![None; writes.len()];
    decide_schedules(state, &needs, writes, &mut work, &mut replies, now)?;
    for (write, reply) in writes.iter().zip(&mut replies) {
        match (write.check(), write) {
            (Err(refusal), _) => *reply = Some(Err(refusal)),
            (Ok(()), Write::Op { op, .. }) if is_forgotten(snapshot, op, state.last_pruned)? => {
                let job_id = op.new_job_id().expect("only a new id can be taken");
                *reply = Some(Err(Refusal::JobExists { job_id }));
            }
            (Ok(()), Write::Op { tenant, op }) => {
                *reply = Some(apply(tenant, op, &mut work, now));
            }
            (Ok(()), Write::FollowUpDone { id }) => {
                *reply = Some(Ok(work.set.follow_up_done(*id)));
            }
            (Ok(()), Write::Listens { worker, word, .. }) => {
                *reply = Some(work.names.hear(worker, word, now));
            }
            (Ok(()), Write::Rule(op)) => {
                *reply = Some(work.set.apply_rule(&mut work.rules.book, op, now));
            }
            (Ok(()), Write::Token(op)) => *reply = Some(work.set.apply_token(op, now)),
            (Ok(()), Write::Clock(op)) => {
                work.set.note(op.note());
                *reply = Some(Ok(Reply::Done));
            }
            (Ok(()), Write::Mark { name, number }) => {
                *reply = Some(Ok(work.set.mark(name, *number)));
            }
            (Ok(()), Write::Claim(_) | Write::RenewSession { .. } | Write::Schedule(_)) => {}
        }
    }
    if inbox.is_full() && replies[inbox.len()..].iter().any(is_refused) {
        return Ok(Tried::MayBeInInbox);
    }
    if sets_rules {
        work.rules.count_anew(snapshot, work.names)?;
    }
    work.rules.after_ops(&mut work.set, now);
    let mut granted = Vec::new();
    for (place, write) in writes.iter().enumerate() {
        if replies[place].is_some() {
            continue;
        }
        match write {
            Write::Op { .. } | Write::FollowUpDone { .. } | Write::Schedule(_) => {}
            Write::Rule(_) | Write::Listens { .. } => {}
            Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => {}
            Write::Claim(wanted) => {
                granted.push((place, claim_many(snapshot, wanted, &mut work, now)?));
            }
            Write::RenewSession { worker, lease } => {
                replies[place] = Some(renew(snapshot, worker, *lease, &mut work, now)?);
            }
        }
    }
    let Work { set, names, ready, rules, .. } = work;
    let mut plan = Plan::new(set, names, ready, numbers, now);
    plan.news.is_ready |= rules.lets_more_go(&plan.changes);
    for (place, Grants { jobs, again_at, repeated }) in granted {
        let grant = |(id, payload): Grant| {
            let job = plan.rows[&id].job.clone();
            let load = || payload_of(snapshot, id, &plan, state.flying);
            Ok(Granted { job, payload: payload.map_or_else(load, Ok)? })
        };
        let jobs: SqlResult<Vec<Granted>> = jobs.into_iter().map(grant).collect();
        replies[place] = Some(Ok(Reply::Granted { jobs: jobs?, again_at, repeated }));
    }
    let mut replies = replies.into_iter().map(|reply| reply.expect("each write was answered"));
    let promoted = replies.by_ref().take(inbox.len()).collect();
    plan.inbox = inbox::Promotion { batch: inbox, replies: promoted };
    Ok(Tried::Planned(Planned { plan: Arc::new(plan), replies: replies.collect() }))
}

/// Decides the ops on schedules, and makes their jobs.
fn decide_schedules(
    state: &State<'_>,
    needs: &Needs,
    writes: &[Write],
    work: &mut Work<'_>,
    replies: &mut [Option<Result<Reply, Refusal>>],
    now: Timestamp,
) -> SqlResult<()> {
    if needs.schedules.is_empty() {
        return Ok(());
    }
    schedules::load(state.snapshot, needs, work)?;
    let (decided, refused) = work.set.decide_schedules(writes, now);
    for (place, refusal) in refused {
        replies[place] = Some(Err(refusal));
    }
    let enqueues = enqueues(&decided);
    load::load(state.snapshot, &Needs::of(&enqueues), work)?;
    let mut forgotten = IdSet::default();
    for write in &enqueues {
        let Write::Op { op, .. } = write else { continue };
        if is_forgotten(state.snapshot, op, state.last_pruned)? {
            forgotten.extend(op.new_job_id());
        }
    }
    for decided in decided {
        let place = decided.place;
        replies[place] = Some(Ok(work.set.fire(decided, &|id| forgotten.contains(&id), now)));
    }
    Ok(())
}

/// The payload of a job that the same claim was granted before.
fn payload_of(
    connection: &Connection,
    id: JobId,
    plan: &Plan,
    flying: &VecDeque<Arc<Plan>>,
) -> SqlResult<String> {
    let plans = flying.iter().map(|plan| &**plan).chain([plan]);
    match plans.rev().find_map(|plan| plan.new_payload(id)) {
        Some(NewPayload::Given(payload)) => Ok(payload.as_str().to_owned()),
        Some(NewPayload::Of(other)) => payload_of(connection, *other, plan, flying),
        None => match plan.rows.get(&id) {
            Some(row) => load::load_payload(connection, row.place.seq),
            None => read_payload(connection, &Scope::Every, id)?
                .ok_or(rusqlite::Error::QueryReturnedNoRows),
        },
    }
}

/// How many jobs these writes may touch.
fn room(writes: &[Write]) -> usize {
    let jobs = |write: &Write| match write {
        Write::Op { .. } => 1,
        // Few ask for more than there is; if one does, the map grows.
        Write::Claim(wanted) => wanted.max.min(1_000),
        Write::RenewSession { .. } | Write::FollowUpDone { .. } => 0,
        Write::Rule(_) | Write::Listens { .. } => 0,
        Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => 0,
        Write::Schedule(op) => jobs_of(op),
    };
    writes.iter().map(jobs).sum()
}

fn is_refused(reply: &Option<Result<Reply, Refusal>>) -> bool {
    matches!(reply, Some(Err(_)))
}

/// Would the op give out the id of a job that was forgotten, while the log still speaks of that job?
fn is_forgotten(connection: &Connection, op: &Op, last: Option<JobId>) -> SqlResult<bool> {
    match op.new_job_id() {
        Some(id) if Some(id) <= last => retention::is_pruned(connection, id),
        _ => Ok(false),
    }
}

/// An op on one job. A claim by name begins a session like any other.
fn apply(
    tenant: &TenantId,
    op: &Op,
    work: &mut Work<'_>,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    let applied = work.set.apply(tenant, op, now);
    if let (Op::Claim(claim), Ok(Answer { recorded: false, .. })) = (op, &applied) {
        work.names.lease_session(&claim.worker, now.plus(claim.lease));
        let renewals = work.names().session_of(&claim.worker).map_or(0, |(_, it)| it.renewals);
        work.set.place_mut(claim.job_id).expect("its claim was granted").lease_seen = renewals;
    }
    applied.map(Reply::Answer)
}

/// Grants a claim, and keeps its session alive for as long as the leases last.
fn claim_many(
    connection: &Connection,
    wanted: &ClaimMany,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Grants> {
    let grants = claim::claim(connection, wanted, work, now)?;
    if !grants.jobs.is_empty() && !grants.repeated {
        work.names.lease_session(&wanted.worker, now.plus(wanted.lease));
    }
    Ok(grants)
}

fn renew(
    connection: &Connection,
    worker: &WorkerId,
    lease: Duration,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Result<Reply, Refusal>> {
    let Some(session) = work.names().begun_session_of(worker) else {
        return Ok(Err(Refusal::NotFound { what: "session" }));
    };
    let session = session.renewed(lease, now);
    let until = session.until;
    work.names.renew_session(session);
    let rows = work.held_by(connection, worker)?;
    let held = rows.iter().map(|row| row.id).collect();
    let unwanted = rows.iter().filter(|row| row.to_be_cancelled);
    let cancelled = unwanted.map(|row| row.id).collect();
    Ok(Ok(Reply::Renewed { until, cancelled, held }))
}
