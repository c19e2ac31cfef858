//! A lane: where jobs with one key wait.

use sha2::{Digest as _, Sha256};

use crate::{LimitKey, TenantId};

/// Where jobs with one key wait: the tenant and the key in one number.
///
/// Two keys with the same number would share a limit, never exceed one; among a million keys the odds of that
/// are one in twenty million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(i64);

impl Lane {
    /// Where jobs without a key wait.
    pub const NONE: Lane = Lane(0);

    /// The lane of a key of this tenant.
    pub fn of(tenant: &TenantId, key: &LimitKey) -> Self {
        let mut hash = Sha256::new();
        // Neither holds a line break.
        hash.update(tenant.as_str());
        hash.update("\n");
        hash.update(key.as_str());
        let hash: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        Self(i64::from_be_bytes([a, b, c, d, e, f, g, h]) | 1)
    }

    /// Wraps the number that a row has.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// The number, as a store keeps it.
    pub const fn get(self) -> i64 {
        self.0
    }
}
