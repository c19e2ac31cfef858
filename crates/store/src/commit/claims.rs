//! Claims in a commit: which of them were granted something, and what that means for the same claim sent again.
//!
//! A claim takes jobs once. A worker that got no answer sends the same claim again and gets the same leases; but the same
//! may also come late, when nobody waits for it any more, and then whatever it took would be held for nobody. So a claim
//! that was granted something gets what it still holds of that, and nothing else. One that got nothing has taken nothing,
//! and may. Each backend remembers the claims that were granted something for [`Claim::REMEMBERED_FOR`] at the least.
//!
//! [`Claim::REMEMBERED_FOR`]: windlass_kernel::ops::Claim::REMEMBERED_FOR

use std::{collections::HashSet, time::Duration};

use windlass_kernel::{
    Job, JobId, Kind, Queue, Refusal, TenantId, Timestamp, TraceId, WorkerId, ids::ClaimId,
    ops::Claim,
};

use super::WorkingSet;
use crate::job_row::GroupName;

/// A worker wants jobs.
#[derive(Clone, Debug)]
pub struct ClaimMany {
    /// The identity of the claim: once it was granted something, the same again gets what it still holds of that, and
    /// nothing else, for as long as it is remembered ([`Claim::REMEMBERED_FOR`]).
    pub claim_id: ClaimId,
    /// The worker.
    pub worker: WorkerId,
    /// The trace of the request, if it brought one.
    pub trace_id: Option<TraceId>,
    /// Jobs of this tenant only; of every tenant, if none is named.
    pub tenant: Option<TenantId>,
    /// Of these tenants it has as many jobs as it may: none of theirs.
    pub except: Vec<TenantId>,
    /// The queues it listens to.
    pub queues: Vec<Queue>,
    /// The kinds it can run; all, if none is named.
    pub kinds: Vec<Kind>,
    /// How many it wants at the most.
    pub max: usize,
    /// How long the leases last.
    pub lease: Duration,
    /// Start them at once.
    pub start: bool,
    /// Other workers of the same process. A job that must be alone is alone in its process.
    pub neighbours: Vec<WorkerId>,
}

impl ClaimMany {
    /// The most queues that one claim names, and the most kinds. A claim is looked at while other writes wait.
    pub const NAMES_MAX: usize = 1_000;
    /// The most bytes of jobs that one claim is granted: their payloads, and what their last failures said. One job is
    /// granted whatever its size. What does not fit is left as it is, and the claim is told to ask again.
    pub const BYTES_MAX: usize = 8 * 1024 * 1024;

    /// Refuses what is wrong whatever is stored.
    pub fn check(&self) -> Result<(), Refusal> {
        check_names(&self.queues, &self.kinds)?;
        Claim::check_lease(self.lease)
    }

    /// Which groups it wants jobs of.
    pub(crate) fn wants(&self) -> Wants<'_> {
        let (tenant, kinds) = (self.tenant.as_ref(), self.kinds.iter().collect());
        Wants { tenant, except: &self.except, kinds }
    }
}

/// How much a claim has been granted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filled {
    jobs: usize,
    bytes: usize,
}

impl Filled {
    /// Adds a job with a payload of so many bytes, if it fits. The first one always does.
    pub(crate) fn add(&mut self, job: &Job, payload_bytes: usize) -> bool {
        let error = job.error.as_ref().map_or(0, |error| error.message.len());
        let bytes = self.bytes.saturating_add(payload_bytes).saturating_add(error);
        let fits = self.jobs == 0 || bytes <= ClaimMany::BYTES_MAX;
        if fits {
            *self = Self { jobs: self.jobs + 1, bytes };
        }
        fits
    }
}

/// How many jobs are shared out to a claim. If those that it may have do not fit into one answer, fewer are shared out
/// anew, so that everybody's turns and rates are as if it had asked for no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimShare {
    pub(crate) max: usize,
    /// Is it fewer than the claim wants?
    pub(crate) is_cut: bool,
}

impl ClaimShare {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, is_cut: false }
    }

    /// Of those that were shared out so many fit, and not all. It ends: from the second time on there are a quarter fewer.
    pub(crate) fn cut(&mut self, fitting: usize) {
        let most = if self.is_cut { self.max * 3 / 4 } else { self.max };
        *self = Self { max: fitting.min(most).max(1), is_cut: true };
    }

    /// When the claim is to ask again: at once, if it was cut.
    pub(crate) fn again_at(self, by_rules: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        if self.is_cut { Some(now) } else { by_rules }
    }
}

/// Which groups a claim wants jobs of. Its kinds are a set: there may be as many groups as kinds.
pub(crate) struct Wants<'a> {
    tenant: Option<&'a TenantId>,
    except: &'a [TenantId],
    /// All, if none is named.
    kinds: HashSet<&'a Kind>,
}

impl Wants<'_> {
    /// Does the claim want jobs of this group?
    pub(crate) fn admits(&self, name: &GroupName) -> bool {
        self.tenant.is_none_or(|only| *only == name.tenant)
            && !self.except.contains(&name.tenant)
            && (self.kinds.is_empty() || self.kinds.contains(&name.kind))
    }
}

/// Refuses a claim or a worker that names too many queues or kinds.
pub(super) fn check_names(queues: &[Queue], kinds: &[Kind]) -> Result<(), Refusal> {
    let check = |field, count| match count > ClaimMany::NAMES_MAX {
        true => Err(Refusal::invalid(
            field,
            format!(
                "must be at most {} names, not {count}: let several workers share them",
                ClaimMany::NAMES_MAX
            ),
        )),
        false => Ok(()),
    };
    check("queues", queues.len())?;
    check("kinds", kinds.len())
}

/// A job that a claim got, and its payload if it is known.
pub(crate) type Grant = (JobId, Option<String>);

/// What a claim got.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// The jobs.
    pub(crate) jobs: Vec<Grant>,
    /// When to ask again, if a rule holds something back.
    pub(crate) again_at: Option<Timestamp>,
    /// Are they told once more?
    pub(crate) repeated: bool,
}

impl Grants {
    /// What a claim still holds of what it got before.
    pub(crate) fn again(jobs: Vec<Grant>) -> Self {
        Self { jobs, again_at: None, repeated: true }
    }
}

impl<P: Default> WorkingSet<P> {
    /// Adds a claim that was granted something by an earlier commit.
    pub(crate) fn add_claim(&mut self, claim: ClaimId) {
        self.claims.insert(claim);
    }

    /// Was the claim granted something, as far as this commit knows? Then it takes nothing more.
    pub(crate) fn was_granted(&self, claim: ClaimId) -> bool {
        self.claims.contains(&claim)
    }

    /// Notes what a claim took. If that is anything, it is remembered.
    pub(crate) fn note_grants(&mut self, claim: ClaimId, granted: &[Grant]) {
        if !granted.is_empty() && self.claims.insert(claim) {
            self.changes.claims.push(claim);
        }
    }
}
