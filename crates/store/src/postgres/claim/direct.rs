//! The usual claim: all claims of a batch want the same, it is one group, its jobs have no keys, and no rule keeps them
//! back.
//!
//! Then its jobs are asked for and locked together with everything else that the commit loads. Whether there are jobs
//! with keys after all, the same trip tells.

use std::collections::VecDeque;

use tokio_postgres::Row;
use windlass_kernel::{
    JobId, Lane, OpKind, Timestamp,
    admit::{Head, NoBooks, Request, Turns, admit},
    job::Rank,
};

use super::{
    grant::{LOCK_MAX, apply},
    names::Names,
};
use crate::{
    Write,
    commit::{ClaimMany, ClaimShare, Filled, Grant},
    job_row::GroupName,
    postgres::{
        PgResult,
        link::{pipeline::Ask, types::Time},
        row::job::{Candidate, GRANT_COLUMNS, candidate_of, grant_columns},
        write::work::Work,
    },
};

/// All claims want the same, and it is one line.
pub(crate) struct Direct {
    pub(crate) group: i32,
    pub(crate) name: GroupName,
    floor: i64,
    limit: usize,
    /// What was found, best first, and locked.
    ready: VecDeque<Candidate>,
    /// The best rank that was found, if there may be more than was asked for.
    full_from: Option<i64>,
}

/// What is ready, best first, served by the index `jobs_ready`; then retries that are due, longest due first,
/// served by the index `jobs_retry`.
const READY: &str = concat!(
    "SELECT *, false FROM (SELECT ",
    grant_columns!(),
    " FROM jobs j
     WHERE j.group_id = $1 AND j.lane = 0 AND (j.state = 'queued' OR j.state = 'interrupted')
        AND j.rank >= $2
     ORDER BY j.rank LIMIT $3 FOR UPDATE SKIP LOCKED) AS ready
     UNION ALL SELECT *, true FROM (SELECT ",
    grant_columns!(),
    " FROM jobs j
     WHERE j.group_id = $1 AND j.lane = 0
        AND j.next_retry_at <= coalesce($4, statement_timestamp())
     ORDER BY j.next_retry_at LIMIT $3 FOR UPDATE SKIP LOCKED) AS due"
);

impl Direct {
    /// The way that claims for a group go, of which these writes may touch some.
    pub(crate) fn new(
        (group, name): (i32, GroupName),
        wanted: &[&ClaimMany],
        writes: &[Write],
        names: &Names,
    ) -> Self {
        let touched = writes.iter().filter(|write| may_touch_ready(write)).count();
        let limit = wanted.iter().map(|it| it.max).fold(touched, usize::saturating_add);
        let (floor, limit) = (names.floor(group), limit.min(LOCK_MAX));
        Self { group, name, floor, limit, ready: VecDeque::new(), full_from: None }
    }

    /// Drops the floor (the rank from which the scan began), if there was one and the scan found
    /// too little above it. True, if the group has to be scanned again.
    pub(crate) fn looks_below(&mut self) -> bool {
        let looks = self.floor > i64::MIN && self.full_from.is_none();
        if looks {
            self.floor = i64::MIN;
        }
        looks
    }

    /// Notes how far the group was looked through, when what was found is taken for good.
    pub(crate) fn note(&self, names: &Names) {
        match self.full_from {
            Some(rank) => names.raise_floor(self.group, rank),
            None => names.lower_floor(self.group, i64::MIN),
        }
    }

    pub(crate) fn ask(&self, now: Option<Timestamp>) -> Ask {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        Ask::new(READY).with(self.group).with(self.floor).with(limit).with(now.map(Time))
    }

    pub(crate) fn take(&mut self, rows: &[Row]) -> PgResult<()> {
        let mut found = Vec::with_capacity(rows.len());
        let mut ready = 0;
        for row in rows {
            found.push(candidate_of(row, &self.name)?);
            ready += usize::from(!row.try_get::<_, bool>(GRANT_COLUMNS)?);
        }
        let best = found.first().filter(|_| ready == self.limit);
        self.full_from = best.map(|best| rank_of(best).0.0);
        found.sort_by_key(rank_of);
        self.ready = found.into();
        Ok(())
    }

    /// What the claim gets, and when to ask again.
    pub(crate) fn grant(
        &mut self,
        wanted: &ClaimMany,
        work: &mut Work<'_>,
        now: Timestamp,
    ) -> (Vec<Grant>, Option<Timestamp>) {
        self.ready.retain(|it| !work.set.contains(it.loaded.job.id));
        let (mut asked, mut filled) = (ClaimShare::new(wanted.max), Filled::default());
        let wants = self.ready.iter().take(wanted.max);
        let fitting = wants.take_while(|it| filled.add(&it.loaded.job, it.payload_bytes)).count();
        if fitting < wanted.max.min(self.ready.len()) {
            asked.cut(fitting);
        }
        let head = Head {
            queue: &self.name.queue,
            tenant: &self.name.tenant,
            kind: &self.name.kind,
            lane: Lane::NONE,
            retries: false,
            ranks: self.ready.iter().take(asked.max).map(|it| rank_of(it).0).collect(),
            isolated_since: None,
        };
        let request = Request { max: asked.max, held: 0, holds_isolated: false, heads: vec![head] };
        let quotas = admit(&request, &[], &NoBooks, &mut Turns::default(), now).quotas;
        let take = quotas.first().map_or(0, |quota| quota.take);
        let taken: Vec<_> = self.ready.drain(..take).collect();
        (apply(taken, wanted, false, work, now), asked.again_at(None, now))
    }
}

fn rank_of(candidate: &Candidate) -> (Rank, JobId) {
    let job = &candidate.loaded.job;
    (job.spec.rank(), job.id)
}

/// May a write be about a job that could be claimed? One more job is locked for each such write,
/// because the claim cannot have the job that the write touches; no more than that, because a job
/// that is locked and not granted is withheld from other nodes' claims.
fn may_touch_ready(write: &Write) -> bool {
    let Write::Op { op, .. } = write else { return false };
    !matches!(op.kind(), OpKind::Enqueue | OpKind::Settle | OpKind::Renew | OpKind::Checkpoint)
}
