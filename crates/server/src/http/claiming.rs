//! Claims that are under way, by their ids: the same may come again before the first is answered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use windlass_kernel::ids::ClaimId;

type Counts = Arc<Mutex<HashMap<ClaimId, usize>>>;

/// How many calls there are of each claim.
#[derive(Debug, Default)]
pub(crate) struct Claiming {
    calls: Counts,
}

/// One call, until this is dropped.
#[derive(Debug)]
pub(crate) struct ClaimCall {
    claim: ClaimId,
    calls: Counts,
}

impl Claiming {
    pub(crate) fn enter(&self, claim: ClaimId) -> ClaimCall {
        *self.calls.lock().expect("nobody panics with it").entry(claim).or_default() += 1;
        ClaimCall { claim, calls: self.calls.clone() }
    }
}

impl ClaimCall {
    /// Is there no other call of the same claim?
    pub(crate) fn is_only(&self) -> bool {
        self.calls.lock().expect("nobody panics with it").get(&self.claim) == Some(&1)
    }
}

impl Drop for ClaimCall {
    fn drop(&mut self) {
        let mut calls = self.calls.lock().expect("nobody panics with it");
        if let Some(count) = calls.get_mut(&self.claim) {
            *count -= 1;
            if *count == 0 {
                calls.remove(&self.claim);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_knows_whether_another_sent_the_same_claim() {
        let claiming = Claiming::default();
        let [one, two] = [1, 2].map(ClaimId::from_u128);
        let (first, other) = (claiming.enter(one), claiming.enter(two));
        assert!(first.is_only() && other.is_only());
        let again = claiming.enter(one);
        assert!(!first.is_only() && !again.is_only());
        drop(first);
        assert!(again.is_only());
        drop((again, other));
        assert!(claiming.calls.lock().unwrap().is_empty(), "nothing is kept of who is done");
    }
}
