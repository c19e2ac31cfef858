//! What a job's row knows of its ledger: how much there is. The rows of steps and mail say the rest.

use serde::{Deserialize, Serialize};

use crate::Refusal;

/// How much stands in the ledger of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerHead {
    /// Steps that were begun or recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u32,
    /// The number of the last record.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recorded: u32,
    /// Mail that has come.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mails: u32,
    /// Mail that the handler has taken.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken: u32,
    /// The record that is the last checkpoint; 0, if there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checkpoint: u32,
    /// Bytes of results and states in it.
    #[serde(default, skip_serializing_if = "is_zero_bytes")]
    pub bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero_bytes(number: &u64) -> bool {
    *number == 0
}

impl LedgerHead {
    /// The most steps of one job.
    pub const STEPS_MAX: u32 = 10_000;
    /// The largest result of a step, and the largest state of a checkpoint.
    pub const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
    /// The most bytes of results in one ledger.
    pub const BYTES_MAX: u64 = 256 * 1024 * 1024;
    /// The most mail that waits for one job.
    pub const MAIL_MAX: u32 = 10_000;

    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// May another step begin?
    pub fn check_room(&self) -> Result<(), Refusal> {
        if self.steps >= Self::STEPS_MAX {
            return Err(Refusal::HistoryLimit { what: "steps", max: u64::from(Self::STEPS_MAX) });
        }
        Ok(())
    }

    /// May so many bytes be added?
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<(), Refusal> {
        let max = Self::RESULT_BYTES_MAX as u64;
        let bytes = bytes as u64;
        if bytes > max {
            return Err(Refusal::HistoryLimit { what: "bytes of one result", max });
        }
        if self.bytes + bytes > Self::BYTES_MAX {
            return Err(Refusal::HistoryLimit { what: "bytes of results", max: Self::BYTES_MAX });
        }
        Ok(())
    }

    /// Mail that has come and was not taken.
    pub fn waiting_mail(&self) -> u32 {
        self.mails.saturating_sub(self.taken)
    }
}
