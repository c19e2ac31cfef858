//! Writes as calls: each goes to its endpoint, and those that can go together do.
//!
//! A server puts each call into transactions of its own, so a commit here is not one transaction. Writes of one job keep
//! their order; all else goes at the same time. If some calls are answered and others are not, the whole is ambiguous:
//! whoever sends it again is answered from the record.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use windlass_kernel::{
    Actor, Answer, DlqId, Epoch, JobId, Op, Refusal, State, TenantId, ops::Renew,
};
use windlass_store::{Error, Replies, Reply, Write, read::Word};

use super::{
    alone::send_alone,
    link::{Failed, Link, unfit},
    problem::Problem,
};
use crate::wire::{
    BatchBody, LeaseBody, LeasesBody, NewJobBody, OpResult, RenewBody, RenewEntry, Results,
    SettleEntry, WaitEntry, raw_payload,
};

/// The most entries and bytes of one call. A server takes 1,000 entries and twice the bytes.
const ENTRIES_MAX: usize = 1_000;
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a write is told, or why it is not known.
type Told = Result<Reply, Refusal>;

/// Which writes go together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Road {
    Enqueue(Actor),
    Start(Actor),
    Release(Actor),
    Settle(Actor),
    Wait(Actor),
    Renew(Duration),
    /// It has a call of its own.
    Alone(usize),
}

/// Writes that go together, by their places.
struct Group {
    road: Road,
    places: Vec<usize>,
}

/// Sends a batch. `own` is the tenant that the server takes us for; none, if it is every one.
pub(super) async fn commit(
    link: &Arc<Link>,
    own: Option<&TenantId>,
    writes: &Arc<Vec<Write>>,
) -> Result<Replies, Error> {
    let mut told: Vec<Option<Told>> = writes.iter().map(|write| refused(own, write)).collect();
    for round in rounds(writes, &told) {
        if let Some(error) = send_round(link, writes, round, &mut told).await {
            return Err(whole(error, told.iter().any(Option::is_some)));
        }
    }
    let told = told.into_iter().map(|told| told.expect("each write is in a round"));
    Ok(told.collect())
}

/// What an error of one call says about the whole batch.
fn whole(error: Error, is_told: bool) -> Error {
    match error {
        error if !is_told => error,
        error @ Error::Ambiguous(_) => error,
        error => Error::Ambiguous(error.into()),
    }
}

/// Writes that no call is made for.
fn refused(own: Option<&TenantId>, write: &Write) -> Option<Told> {
    let tenant = match write {
        Write::Op { tenant, .. } => Some(tenant),
        Write::Schedule(op) => Some(&op.tenant),
        // Each claim and each renewal says it.
        Write::Listens { word: Word::To(_) | Word::Still, .. } => return Some(Ok(Reply::Done)),
        Write::Listens { word: Word::Goodbye, .. } => None,
        Write::FollowUpDone { .. } | Write::Token(_) | Write::Clock(_) | Write::Mark { .. } => {
            return Some(Err(Refusal::invalid("op", "is the server's own")));
        }
        Write::Claim(_) | Write::RenewSession { .. } | Write::Rule(_) => None,
    };
    let is_foreign = tenant.zip(own).is_some_and(|(tenant, own)| tenant != own);
    is_foreign.then_some(Err(Refusal::NotFound { what: "tenant" }))
}

/// The writes, in rounds: what is in one round can go at the same time.
fn rounds(writes: &[Write], told: &[Option<Told>]) -> Vec<Vec<Group>> {
    let mut rounds: Vec<Vec<Group>> = Vec::new();
    let mut last: BTreeMap<JobId, (usize, Road)> = BTreeMap::new();
    for (place, write) in writes.iter().enumerate().filter(|(place, _)| told[*place].is_none()) {
        let road = road(place, write);
        let jobs = jobs(write);
        // Within a call the order is kept, so the same road again can go along.
        let after = |job: &JobId| match last.get(job) {
            Some((round, known)) if *known == road => *round,
            Some((round, _)) => round + 1,
            None => 0,
        };
        let round = jobs.iter().map(after).max().unwrap_or(0);
        for job in jobs {
            last.insert(job, (round, road.clone()));
        }
        rounds.resize_with(rounds.len().max(round + 1), Vec::new);
        match rounds[round].iter_mut().find(|group| group.road == road) {
            Some(group) => group.places.push(place),
            None => rounds[round].push(Group { road, places: vec![place] }),
        }
    }
    rounds
}

/// The jobs that a write names. A letter has the id of its job.
fn jobs(write: &Write) -> Vec<JobId> {
    let Write::Op { op, .. } = write else { return Vec::new() };
    let of_letter = op.dlq_id().map(DlqId::job_id);
    [op.job_id(), of_letter, op.new_job_id()].into_iter().flatten().collect()
}

fn road(place: usize, write: &Write) -> Road {
    let Write::Op { op, .. } = write else { return Road::Alone(place) };
    match op {
        Op::Enqueue(op) => Road::Enqueue(op.by.actor.clone()),
        Op::Start(op) => Road::Start(op.by.actor.clone()),
        Op::Release(op) => Road::Release(op.by.actor.clone()),
        Op::Settle(op) => Road::Settle(op.by.actor.clone()),
        Op::Wait(op) => Road::Wait(op.by.actor.clone()),
        Op::Renew(op) => Road::Renew(op.lease),
        _ => Road::Alone(place),
    }
}

/// Sends the groups of a round at the same time. What is told stays told if one of them fails.
async fn send_round(
    link: &Arc<Link>,
    writes: &Arc<Vec<Write>>,
    mut round: Vec<Group>,
    told: &mut [Option<Told>],
) -> Option<Error> {
    let mut failed = None;
    let mut take = |(answers, error): (Vec<(usize, Told)>, Option<Error>)| {
        for (place, answer) in answers {
            told[place] = Some(answer);
        }
        // If one may have been written, that is what counts.
        match (&failed, error) {
            (Some(Error::Ambiguous(_)), _) | (_, None) => {}
            (_, Some(error)) => failed = Some(error),
        }
    };
    // The last one needs no task of its own, and mostly it is the only one.
    let last = round.pop();
    let mut tasks = JoinSet::new();
    for group in round {
        let (link, writes) = (link.clone(), writes.clone());
        tasks.spawn(async move { send_group(&link, &writes, group).await });
    }
    if let Some(group) = last {
        take(send_group(link, writes, group).await);
    }
    while let Some(ended) = tasks.join_next().await {
        take(ended.unwrap_or_else(|why| (Vec::new(), Some(Error::Ambiguous(why.into())))));
    }
    failed
}

/// Sends a group, in as few calls as it takes, one after the other.
async fn send_group(
    link: &Link,
    writes: &[Write],
    group: Group,
) -> (Vec<(usize, Told)>, Option<Error>) {
    let mut told = Vec::new();
    if let Road::Alone(place) = group.road {
        let error = match send_alone(link, &writes[place]).await {
            Ok(reply) => {
                told.push((place, Ok(reply)));
                None
            }
            Err(failed) => refuse_all(failed, [place], &mut told),
        };
        return (told, error);
    }
    let mut entries = Vec::new();
    for place in group.places {
        let Write::Op { op, .. } = &writes[place] else { continue };
        match entry(op) {
            Ok(text) => entries.push((place, op, text)),
            Err(refusal) => told.push((place, Err(refusal))),
        }
    }
    let mut rest = entries.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(ENTRIES_MAX).take_while(|(_, _, text)| {
            bytes += text.get().len() + 1;
            bytes <= BYTES_MAX
        });
        let (chunk, later) = rest.split_at(fits.count().max(1));
        rest = later;
        if let Some(error) = send_chunk(link, &group.road, chunk, &mut told).await {
            return (told, Some(error));
        }
    }
    (told, None)
}

/// Sends entries in one call.
async fn send_chunk(
    link: &Link,
    road: &Road,
    chunk: &[(usize, &Op, Box<RawValue>)],
    told: &mut Vec<(usize, Told)>,
) -> Option<Error> {
    let entries: Vec<&RawValue> = chunk.iter().map(|(_, _, entry)| &**entry).collect();
    let (path, actor, body) = match road {
        Road::Enqueue(actor) => {
            (["jobs", "batch"], Some(actor), json(&BatchBody { jobs: entries }))
        }
        Road::Start(actor) => (["leases", "start"], Some(actor), leases(actor, entries)),
        Road::Release(actor) => (["leases", "release"], Some(actor), leases(actor, entries)),
        Road::Settle(actor) => (["leases", "settle"], Some(actor), leases(actor, entries)),
        Road::Wait(actor) => (["leases", "wait"], Some(actor), leases(actor, entries)),
        Road::Renew(lease) => {
            let (lease, leases) = (Some(*lease), Some(entries));
            (["leases", "renew"], None, json(&RenewBody { worker_id: None, lease, leases }))
        }
        Road::Alone(_) => unreachable!("it has a call of its own"),
    };
    let results = match link.send::<Results<OpResult>>(Method::POST, &path, actor, body).await {
        Ok(Results { results }) if results.len() == chunk.len() => results,
        Ok(_) => return Some(Error::Ambiguous("the server did not answer each entry".into())),
        Err(failed) => return refuse_all(failed, chunk.iter().map(|(place, ..)| *place), told),
    };
    let mut error = None;
    for ((place, op, _), result) in chunk.iter().zip(results) {
        match answer(op, result) {
            Ok(answer) => told.push((*place, answer)),
            Err(failed) => error = error.or(Some(failed)),
        }
    }
    error
}

/// A body that names the worker.
fn leases(actor: &Actor, leases: Vec<&RawValue>) -> String {
    let worker_id = match actor {
        Actor::Worker(id) => Some(id.clone()),
        Actor::User(_) | Actor::Recovery | Actor::Scheduler => None,
    };
    json(&LeasesBody { worker_id, leases })
}

/// A call failed: all that it was about hear it, unless nobody knows.
fn refuse_all(
    failed: Failed,
    places: impl IntoIterator<Item = usize>,
    told: &mut Vec<(usize, Told)>,
) -> Option<Error> {
    let refusal = match failed {
        Failed::Problem(problem) => problem.into_refusal(),
        Failed::Store(error) => Err(error),
    };
    match refusal {
        Ok(refusal) => {
            told.extend(places.into_iter().map(|place| (place, Err(refusal.clone()))));
            None
        }
        Err(error) => Some(error),
    }
}

/// What an entry of a batch is told.
fn answer(op: &Op, result: OpResult) -> Result<Told, Error> {
    if !result.ok {
        let (code, detail) = (result.code.unwrap_or_default(), result.detail.unwrap_or_default());
        let problem = Problem { status: 409, code, detail, job_id: result.job_id };
        return problem.into_refusal().map(Err);
    }
    let missing = || unfit(&"an entry went well and names no job");
    let epoch = match op {
        Op::Start(op) => op.epoch,
        Op::Release(op) => op.epoch,
        Op::Settle(op) => op.epoch,
        Op::Wait(op) => op.epoch,
        Op::Renew(op) => op.epoch,
        _ => Epoch::ZERO,
    };
    let answer = Answer {
        job_id: result.job_id.ok_or_else(missing)?,
        state: result.state.and_then(|word| State::parse(&word)).ok_or_else(missing)?,
        recorded: result.idempotent_hit.unwrap_or(false),
        epoch,
        leased_until: result.leased_until,
        next_retry_at: result.next_retry_at,
        dlq_id: result.dlq_id,
        cancel_requested: result.cancel_requested.unwrap_or(false),
        steps: Vec::new(),
        delivered: false,
    };
    Ok(Ok(Reply::Answer(answer, None)))
}

/// An op as an entry of a batch.
fn entry(op: &Op) -> Result<Box<RawValue>, Refusal> {
    let lease = |job_id, epoch| Ok(raw_json(&LeaseBody { job_id, epoch }));
    match op {
        Op::Enqueue(op) => Ok(raw_json(&NewJobBody::of(op)?)),
        Op::Start(op) => lease(op.job_id, op.epoch),
        Op::Release(op) => lease(op.job_id, op.epoch),
        Op::Settle(op) => Ok(raw_json(&SettleEntry::of(op)?)),
        Op::Renew(Renew { job_id, epoch, heartbeat, progress, .. }) => {
            let progress = progress.as_ref().map(raw_payload).transpose()?;
            let (job_id, epoch, heartbeat) = (*job_id, *epoch, *heartbeat);
            Ok(raw_json(&RenewEntry { job_id, epoch, heartbeat, progress }))
        }
        Op::Wait(op) => match (&op.wait.on, op.wait.until) {
            (windlass_kernel::job::WaitOn::Time, Some(until)) => {
                let (job_id, epoch) = (op.job_id, op.epoch);
                Ok(raw_json(&WaitEntry { job_id, epoch, until }))
            }
            _ => Err(Refusal::invalid("wait", "for anything but a time is not for a server yet")),
        },
        other => Err(unsent(other)),
    }
}

pub(super) fn unsent(op: &Op) -> Refusal {
    Refusal::invalid("op", format!("{} cannot be sent to a server", op.kind()))
}

fn raw_json(document: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(document).expect("a document is plain data")
}

pub(super) fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("a document is plain data")
}

#[cfg(test)]
mod tests {
    use windlass_kernel::{
        By, Kind, Payload, WorkerId,
        ops::{Cancel, Enqueue, NewJob, Release, Start},
    };

    use super::*;

    fn tenant() -> TenantId {
        TenantId::new("default").unwrap()
    }

    fn write(op: impl Into<Op>) -> Write {
        Write::Op { tenant: tenant(), op: op.into() }
    }

    fn by() -> By {
        By::worker(WorkerId::new("w1").unwrap())
    }

    fn start(job: u128) -> Write {
        let (job_id, epoch) = (JobId::from_u128(job), Epoch::new(1));
        write(Start { job_id, epoch, by: by() })
    }

    fn release(job: u128) -> Write {
        let (job_id, epoch) = (JobId::from_u128(job), Epoch::new(1));
        write(Release { job_id, epoch, by: by() })
    }

    fn cancel(job: u128) -> Write {
        let (grace, reason) = (Duration::ZERO, None);
        write(Cancel { job_id: JobId::from_u128(job), force: true, grace, reason, by: by() })
    }

    /// The places of each group, round by round.
    fn places(writes: &[Write]) -> Vec<Vec<Vec<usize>>> {
        let told: Vec<Option<Told>> = writes.iter().map(|_| None).collect();
        let rounds = rounds(writes, &told).into_iter();
        rounds.map(|round| round.into_iter().map(|group| group.places).collect()).collect()
    }

    #[test]
    fn writes_of_one_job_keep_their_order_and_all_else_goes_together() {
        let writes = [start(1), start(2), release(1), cancel(3), start(3), release(2), start(1)];
        let expected: &[&[&[usize]]] = &[&[&[0, 1], &[3]], &[&[2, 5], &[4]], &[&[6]]];
        assert_eq!(places(&writes), expected);
        assert_eq!(places(&[start(1), start(1)]), [[[0, 1]]], "a call keeps the order too");
    }

    #[test]
    fn another_tenants_writes_are_not_sent() {
        let own = TenantId::new("acme").unwrap();
        let foreign = Some(Err(Refusal::NotFound { what: "tenant" }));
        let refusal =
            |own: Option<TenantId>| refused(own.as_ref(), &start(1)).map(|told| told.map(drop));
        assert_eq!(refusal(Some(own)), foreign);
        assert_eq!(refusal(Some(tenant())), None);
        assert_eq!(refusal(None), None, "a fleet works for all of them");
    }

    #[test]
    fn a_payload_is_sent_byte_for_byte_and_under_the_jobs_own_id() {
        let payload = Payload::parse(r#"{"n":1.50, "e":1e400}"#, 100).unwrap();
        let new = Box::new(NewJob::new(Kind::new("mail").unwrap(), payload));
        let (job_id, random) = (JobId::from_u128(7), 1);
        let op = Op::Enqueue(Enqueue { job_id, tenant: tenant(), new, random, by: by() });
        let entry = entry(&op).unwrap();
        let text = entry.get();
        assert!(text.contains(r#""payload":{"n":1.50, "e":1e400},"#), "{text}");
        assert!(text.contains(r#""job_id":"job_00000000000000000000000007""#), "{text}");
        assert!(text.contains("trace-run-job_"), "{text}");
    }
}
