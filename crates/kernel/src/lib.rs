//! The rules of Windlass, and nothing else.
//!
//! Two functions decide everything: [`decide`] says what one op does to one job, [`admit::admit`] says
//! who may claim how many. Both are pure: no clock, no randomness, no IO. Time, jitter and ids come in
//! as arguments, so the same question always has the same answer, and a test can ask all of them.
//!
//! Where to start: [`machine`] is the table of legal moves; `ops/` has one file per op; [`job`] is the
//! row that they change; [`event`] is the history that they write, and [`evolve`] reads it back.
//!
//! Always true here: a job's row is the fold of its events (lease and payload aside), because a row is
//! never changed in any other way. Never here: SQL, HTTP, a thread, the wall clock.

pub mod admit;
pub mod canonical;
pub mod contract;
pub mod event;
pub mod failure;
pub mod ids;
pub mod job;
pub mod letter;
pub mod machine;
pub mod ops;
pub mod refusal;
pub mod retry;
pub mod time;
pub mod timer;
pub mod transition;

mod evolve;

pub use canonical::{Digest, Payload};
pub use event::{Actor, By, Event, Fact};
pub use evolve::{evolve, fold};
pub use failure::{Class, Failure};
pub use ids::{
    DlqId, Epoch, IdempotencyKey, IdempotencyScope, JobId, Kind, Principal, Queue, Tag, TaskId,
    TenantId, TraceId, WorkerId,
};
pub use job::{Job, Lease, Session, Spec, Task};
pub use letter::{Approval, DeadLetter, LetterState};
pub use machine::{Cause, State};
pub use ops::{Current, Op, OpKind, decide};
pub use refusal::Refusal;
pub use retry::{Jitter, RetryPolicy};
pub use time::Timestamp;
pub use transition::{Answer, Attempt, AttemptState, FollowUp, NewPayload, Transition, attempts};
