//! Claims in a commit: which of them were granted something, and what that means for the same claim sent again.
//!
//! A claim takes jobs once. A worker that got no answer sends the same claim again and gets the same leases; but the same
//! may also come late, when nobody waits for it any more, and then whatever it took would be held for nobody. So a claim
//! that was granted something gets what it still holds of that, and nothing else. One that got nothing has taken nothing,
//! and may. Each backend remembers the claims that were granted something for [`Claim::REMEMBERED_FOR`] at the least.
//!
//! [`Claim::REMEMBERED_FOR`]: windlass_kernel::ops::Claim::REMEMBERED_FOR

use windlass_kernel::{JobId, Timestamp, ids::ClaimId};

use super::WorkingSet;

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
