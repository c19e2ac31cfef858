//! Columns that Windlass alone reads, as bytes: the lease of a job, and where its history is.

use windlass_kernel::{Job, Lease, Timestamp, WorkerId, ids::ClaimId};

use crate::log::{Chain, NO_CHAIN};

/// What the column `lease` says, but for the worker, whose session stands in a column of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseBytes {
    /// The last claim.
    pub(crate) claim_id: Option<ClaimId>,
    /// Claims and renewals over the whole life.
    pub(crate) count: u64,
    /// The lease that is held now.
    pub(crate) held: Option<HeldBytes>,
}

/// A lease that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldBytes {
    pub(crate) until: Timestamp,
    pub(crate) beat_at: Timestamp,
    /// Renewals of the session that are part of the count.
    pub(crate) seen: u64,
    pub(crate) alone: bool,
}

impl HeldBytes {
    /// The lease that a worker has.
    pub(crate) fn lease(&self, worker: WorkerId) -> Lease {
        Lease { worker, until: self.until, alone: self.alone, beat_at: self.beat_at }
    }
}

/// The bytes of a lease, long enough for one that is held.
pub(crate) struct LeaseColumn {
    bytes: [u8; HELD],
    length: usize,
}

const FREE: usize = 24;
const HELD: usize = 49;

impl LeaseColumn {
    /// What is written for a job.
    pub(crate) fn of(job: &Job, seen: u64) -> Self {
        let mut column = Self { bytes: [0; HELD], length: 0 };
        if let Some(claim_id) = job.claim_id {
            column.add(&claim_id.as_u128().to_be_bytes());
            column.add(&job.lease_count.to_be_bytes());
        }
        if let Some(lease) = &job.lease {
            column.add(&lease.until.as_micros().to_be_bytes());
            column.add(&lease.beat_at.as_micros().to_be_bytes());
            column.add(&seen.to_be_bytes());
            column.add(&[u8::from(lease.alone)]);
        }
        column
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// The column; null for a job that was never claimed.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        (self.length > 0).then_some(&self.bytes[..self.length])
    }
}

impl LeaseBytes {
    /// What a column says; none if it is not what was written.
    pub(crate) fn parse(bytes: Option<&[u8]>) -> Option<Self> {
        let Some(bytes) = bytes else { return Some(Self::default()) };
        if bytes.len() != FREE && bytes.len() != HELD {
            return None;
        }
        let number = |from: usize| bytes[from..from + 8].try_into().ok().map(u64::from_be_bytes);
        let time = |from| number(from).map(|it| Timestamp::from_micros(it.cast_signed()));
        let claim_id = bytes[..16].try_into().ok().map(u128::from_be_bytes);
        let held = match bytes.get(HELD - 1) {
            None => None,
            Some(alone) => {
                let (until, beat_at, seen) = (time(24)?, time(32)?, number(40)?);
                Some(HeldBytes { until, beat_at, seen, alone: *alone != 0 })
            }
        };
        Some(Self { claim_id: claim_id.map(ClaimId::from_u128), count: number(16)?, held })
    }
}

/// The column `history`: the head of the chain of hashes, and the log rows that speak of the job.
#[derive(Clone, Debug)]
pub(crate) struct History {
    bytes: Vec<u8>,
}

impl Default for History {
    /// The history of a job that has no event.
    fn default() -> Self {
        let mut bytes = Vec::with_capacity(Self::CHAIN + 32);
        bytes.extend(NO_CHAIN);
        Self { bytes }
    }
}

impl History {
    /// How long the head of the chain is.
    pub(crate) const CHAIN: usize = 32;
    /// How many log ids stand in a job's row before the older ones move to their own table.
    pub(crate) const LOG_IDS_INLINE: usize = 16;

    /// What a column says; none if it is not what was written.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let whole = bytes.len() > Self::CHAIN && bytes.len().is_multiple_of(8);
        whole.then(|| Self { bytes: bytes.to_owned() })
    }

    /// The column.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The head of the chain.
    pub(crate) fn chain(&self) -> Chain {
        self.bytes[..Self::CHAIN].try_into().expect("a chain is 32 bytes")
    }

    /// The log rows that stand here, oldest first.
    pub(crate) fn log_ids(&self) -> impl ExactSizeIterator<Item = u64> {
        let ids = self.bytes[Self::CHAIN..].chunks_exact(8);
        ids.map(|id| u64::from_be_bytes(id.try_into().expect("eight bytes")))
    }

    /// Adds an event: the new head of the chain, and its log row if that is another one.
    pub(crate) fn add(&mut self, chain: &Chain, log_id: u64) {
        self.bytes[..Self::CHAIN].copy_from_slice(chain);
        let log_id = log_id.to_be_bytes();
        if self.bytes.len() == Self::CHAIN || !self.bytes.ends_with(&log_id) {
            self.bytes.extend(log_id);
        }
    }

    /// Keeps the newest log row, and gives back the others.
    pub(crate) fn take_older(&mut self) -> Vec<u64> {
        let older: Vec<u64> = self.log_ids().take(self.log_ids().len() - 1).collect();
        self.bytes.drain(Self::CHAIN..Self::CHAIN + older.len() * 8);
        older
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_that_was_not_written_by_us_is_not_read() {
        assert_eq!(LeaseBytes::parse(None), Some(LeaseBytes::default()));
        for length in (0..60).filter(|length| *length != FREE && *length != HELD) {
            assert_eq!(LeaseBytes::parse(Some(&vec![0; length])), None, "{length} bytes");
        }
        for length in [0, 8, 31, 32, 33, 39, 41] {
            assert!(History::parse(&vec![0; length]).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn a_history_knows_its_rows_and_gives_the_older_ones_away() {
        let mut history = History::default();
        for (chain, log_id) in [(1, 7), (2, 7), (3, 9), (4, 12)] {
            history.add(&[chain; 32], log_id);
        }
        assert_eq!(history.chain(), [4; 32]);
        assert_eq!(history.log_ids().collect::<Vec<_>>(), [7, 9, 12]);
        let same = History::parse(history.bytes()).unwrap();
        assert_eq!(same.bytes(), history.bytes());
        assert_eq!(history.take_older(), [7, 9]);
        assert_eq!(history.log_ids().collect::<Vec<_>>(), [12]);
        assert_eq!(history.chain(), [4; 32]);
    }
}
