//! How far a handler said it had come, as the engine tells it.

use serde::de::DeserializeOwned;
use windlass_kernel::{Epoch, Timestamp};
use windlass_store::read;

use crate::Error;

/// How far a handler said it had come: the last thing it said with [`Context::progress`](crate::Context::progress).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The epoch that said it. If it is not the job's, the attempt that said it has lost its lease.
    pub epoch: Epoch,
    /// When it was said, by the store's clock.
    pub at: Timestamp,
    /// What was said, as JSON.
    pub value: String,
}

impl Progress {
    /// What was said, as the type that the handler gave.
    pub fn get<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(&self.value)
            .map_err(|source| Error::Json { what: "the progress", source })
    }
}

impl From<read::Progress> for Progress {
    fn from(read::Progress { epoch, at, value }: read::Progress) -> Self {
        Self { epoch, at, value }
    }
}
