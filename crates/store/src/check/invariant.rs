//! The invariants that a store is held to, each with its name and its sentence.

use std::fmt;

macro_rules! invariants {
    ($(#[doc = $meaning:literal] $variant:ident = $word:literal,)*) => {
        /// Something that is true of every sound store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Invariant {
            $(#[doc = $meaning] $variant,)*
        }

        impl Invariant {
            /// All of them, in the order of the definition.
            pub const ALL: &'static [Invariant] = &[$(Invariant::$variant),*];

            /// Its name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Invariant::$variant => $word),*
                }
            }

            /// What it says, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Invariant::$variant => $meaning.trim_ascii()),*
                }
            }
        }
    };
}

invariants! {
    /// The database says of itself that it is sound.
    Integrity = "integrity",
    /// Every row and every line can be read.
    Readable = "readable",
    /// Nothing stands alone: lines, payloads, outputs, progress, children and approvals belong to something that is there.
    Owner = "owner",
    /// Event numbers of the store have no gap, but for what retention took.
    LogContiguous = "log_contiguous",
    /// Retention took whole jobs that were at their end for long enough, and nothing else.
    Retention = "retention",
    /// A job points to exactly the log rows that speak of it.
    LogPointers = "log_pointers",
    /// Time never goes back.
    Time = "time",
    /// What belongs to one tenant is told and kept under that tenant only.
    Tenant = "tenant",

    /// Events of a job are numbered 1, 2, 3 without a gap.
    Numbers = "numbers",
    /// A history begins with the creation of its job, from what the row says was asked for.
    Creation = "creation",
    /// Each event leaves the state that the one before entered, by a legal move.
    Moves = "moves",
    /// A job has at most one end, and nothing follows it.
    OneEnd = "one_end",
    /// A job fails only right after its letter was recorded, in the same commit.
    DeadLetterPath = "dead_letter_path",
    /// The attempt never falls, and rises only when a due retry is claimed.
    Attempts = "attempts",
    /// A retry is counted when it is scheduled, and there are never more than the job may have.
    Retries = "retries",
    /// A retry is due when the formula says.
    RetryDelay = "retry_delay",
    /// Each claim has a higher epoch than all before, and nothing else changes it.
    EpochGrows = "epoch_grows",
    /// Nothing is written under an epoch that is over.
    Fenced = "fenced",
    /// The hash chain of a history ends in the hash of its row.
    Chain = "chain",

    /// The row's version is the number of its events.
    Version = "version",
    /// The row is the fold of its events.
    Fold = "fold",
    /// A retry time is set if and only if a retry is scheduled.
    RetryTime = "retry_time",
    /// A lease is held if and only if the job is dispatched or running, and its session is there.
    Lease = "lease",
    /// A wait is set if and only if the job waits.
    Wait = "wait",
    /// A job that is not at an end is found by its queue, its time, its lease or its wait.
    Reachable = "reachable",
    /// Payloads and results are what their digests say.
    Payload = "payload",

    /// One attempt of a task belongs to one job.
    AttemptUnique = "attempt_unique",
    /// A named task has one job that is not at an end, at the most.
    TaskActive = "task_active",
    /// The next attempt of a task lies beyond all that were made.
    TaskNext = "task_next",
    /// One idempotency key belongs to one job.
    KeyUnique = "key_unique",

    /// A failed job has one dead letter, and no other job has any.
    OneLetter = "one_letter",
    /// A dead letter says the same as its columns and its job.
    LetterTrue = "letter_true",
    /// A letter is discarded by two different people, with a reason.
    TwoPeople = "two_people",
    /// A letter that was requeued and the job that took over name each other.
    Requeued = "requeued",

    /// An enqueue of a user's transaction that made no job is kept, and one event says what became of it.
    InboxTold = "inbox_told",
    /// Every note of the log is found by what it is about, and nothing else is.
    Noted = "noted",
    /// What a person did is found again, and nothing else is.
    Acted = "acted",
    /// What was promoted out of the inbox is no longer in it.
    InboxOnce = "inbox_once",
    /// No row of the inbox had to be set aside.
    InboxSetAside = "inbox_set_aside",
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
