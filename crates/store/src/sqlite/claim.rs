//! Claims: what is ready, and who gets it.

use rusqlite::{Connection, params};
use windlass_kernel::{
    JobId, Op, Timestamp,
    admit::{Head, Limits, Request, admit},
    job::Rank,
    ops::Claim,
};

use super::{
    SqlResult,
    load::{HeldRow, load_job, load_to_grant},
    work::Work,
};
use crate::{commit::ClaimMany, job_row::GroupName};

/// The jobs that a claim may consider, by head.
#[derive(Default)]
struct Ready {
    heads: Vec<Head>,
    /// For each head, where its jobs are, in the order of its ranks.
    seqs: Vec<Vec<i64>>,
}

/// A job that a claim got, and its payload if it is known.
pub(super) type Grant = (JobId, Option<String>);

/// Grants what the claim may have, and gives back the ids.
pub(super) fn claim(
    connection: &Connection,
    wanted: &ClaimMany,
    work: &mut Work<'_>,
    now: Timestamp,
) -> SqlResult<Vec<Grant>> {
    let held = work.held_by(connection, &wanted.worker)?;
    let mut same: Vec<&HeldRow> =
        held.iter().filter(|row| row.claim_id == Some(wanted.claim_id)).collect();
    if !same.is_empty() {
        same.sort_by_key(|row| (row.rank, row.id));
        return grant_again(connection, same.into_iter().map(|row| row.id), work);
    }
    let (held, holds_isolated) = (held.len(), held.iter().any(|row| row.alone));
    let ready = ready(connection, wanted, work, now)?;
    let request = Request { max: wanted.max, held, holds_isolated, heads: ready.heads };
    let admission = admit(&request, &Limits::default(), now);
    let session = work.names().session_of(&wanted.worker);
    let renewals = session.map_or(0, |(_, session)| session.renewals);
    let mut granted = Vec::new();
    for quota in admission.quotas {
        let seqs = ready.seqs[quota.head][..quota.take].iter().copied();
        for (loaded, payload) in load_to_grant(connection, seqs, work.names())? {
            let (id, tenant) = (loaded.job.id, loaded.job.spec.tenant.clone());
            work.add(loaded);
            let op = Op::Claim(Claim {
                job_id: id,
                claim_id: wanted.claim_id,
                worker: wanted.worker.clone(),
                trace_id: wanted.trace_id.clone(),
                lease: wanted.lease,
                start: wanted.start,
                alone: quota.alone,
            });
            // The same claim had this job before and lost it: it must not take it again.
            if work.set.apply(&tenant, &op, now).is_ok_and(|answer| !answer.recorded) {
                work.set.place_mut(id).expect("it was just loaded").lease_seen = renewals;
                granted.push((id, payload));
            }
        }
    }
    Ok(granted)
}

/// The same claim again gets the same leases: what it got before and still holds.
fn grant_again(
    connection: &Connection,
    same: impl Iterator<Item = JobId>,
    work: &mut Work<'_>,
) -> SqlResult<Vec<Grant>> {
    let mut granted = Vec::new();
    for id in same {
        if !work.set.contains(id)
            && !work.take_held(id)
            && let Some(loaded) = load_job(connection, id, work.names())?
        {
            work.add(loaded);
        }
        granted.push((id, None));
    }
    Ok(granted)
}

/// Served by the index `jobs_ready` alone.
const READY: &str = "
    SELECT seq, rank FROM jobs
    WHERE group_id = ?1 AND (state = 'queued' OR state = 'interrupted')
    ORDER BY rank LIMIT ?2";

/// Retries that are due, longest due first. Served by the index `jobs_retry`.
const DUE_RETRIES: &str = "
    SELECT seq, rank FROM jobs
    WHERE group_id = ?1 AND next_retry_at <= ?2
    ORDER BY next_retry_at LIMIT ?3";

const WAITS_SINCE: &str = "SELECT updated_at FROM jobs WHERE seq = ?1";

/// Everything that is ready for this worker, less what this commit has touched.
fn ready(
    connection: &Connection,
    wanted: &ClaimMany,
    work: &Work<'_>,
    now: Timestamp,
) -> SqlResult<Ready> {
    let touched = work.touched();
    let limit = i64::try_from(wanted.max.saturating_add(touched.len())).unwrap_or(i64::MAX);
    let mut ready = Ready::default();
    let mut first = connection.prepare_cached(READY)?;
    let mut retries = connection.prepare_cached(DUE_RETRIES)?;
    for (place, queue) in wanted.queues.iter().enumerate() {
        if wanted.queues[..place].contains(queue) {
            continue;
        }
        for (group, name) in work.names().groups_of(queue) {
            if !wants(wanted, name) {
                continue;
            }
            let mut jobs: Vec<(Rank, i64)> = Vec::new();
            let mut rows = first.query(params![group, limit])?;
            while let Some(row) = rows.next()? {
                jobs.push((Rank(row.get(1)?), row.get(0)?));
            }
            let mut rows = retries.query(params![group, now.as_micros(), limit])?;
            while let Some(row) = rows.next()? {
                jobs.push((Rank(row.get(1)?), row.get(0)?));
            }
            jobs.retain(|(_, seq)| !touched.contains(seq));
            jobs.sort_unstable();
            ready.add(connection, name, jobs)?;
        }
    }
    Ok(ready)
}

fn wants(wanted: &ClaimMany, name: &GroupName) -> bool {
    wanted.tenant.as_ref().is_none_or(|only| *only == name.tenant)
        && (wanted.kinds.is_empty() || wanted.kinds.contains(&name.kind))
}

impl Ready {
    fn add(
        &mut self,
        connection: &Connection,
        name: &GroupName,
        jobs: Vec<(Rank, i64)>,
    ) -> SqlResult<()> {
        let Some((_, first)) = jobs.first() else { return Ok(()) };
        let isolated_since = if name.isolated {
            let mut since = connection.prepare_cached(WAITS_SINCE)?;
            Some(Timestamp::from_micros(since.query_row([first], |row| row.get(0))?))
        } else {
            None
        };
        let (ranks, seqs) = jobs.into_iter().unzip();
        self.heads.push(Head {
            queue: name.queue.clone(),
            tenant: name.tenant.clone(),
            kind: name.kind.clone(),
            ranks,
            isolated_since,
        });
        self.seqs.push(seqs);
        Ok(())
    }
}
