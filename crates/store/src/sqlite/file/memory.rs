//! A store in memory, for tests: of users, and of a whole cluster in one thread.
//!
//! It is the store of a file in all but its place (`place`): the same threads, the same SQL, the same rules.
//! It has no lock, no mark and no log to checkpoint, and it ends with its process.

use super::{now::Now, open, wait::Wait};
use crate::{
    Error, Ticks,
    sqlite::{Clock, Sqlite},
};

/// How a store in memory is made.
pub struct MemoryOptions {
    /// The clock that decides leases. A thread of the store asks it: one that goes by tokio's time has to
    /// enter its runtime, or it tells the time of the machine.
    pub clock: Clock,
    /// The monotonic clock that goes with it, if it has one.
    pub ticks: Option<Ticks>,
    /// Whoever asks blocks its thread until the answer is there. Then what happens depends on the order of
    /// calls alone, also under a paused clock, and a test can be repeated exactly. What users put into the
    /// inbox is promoted by the next commit, and by nothing else.
    pub inline: bool,
}

impl Sqlite {
    /// A store in memory: gone when it is dropped, with the last connection that [`Sqlite::connect`] gave
    /// out. Nothing is written to the disk.
    ///
    /// It holds up to 1 GiB. A connection that keeps a transaction open keeps the store waiting, reads
    /// included, for five seconds at the most: then it answers that it is unavailable.
    pub fn in_memory(options: MemoryOptions) -> Result<Self, Error> {
        let wait = if options.inline { Wait::Thread } else { Wait::Task };
        Self::start(open::open_in_memory()?, Now::new(options.clock, options.ticks), wait)
    }
}
