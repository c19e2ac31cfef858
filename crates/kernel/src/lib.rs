//! The rules of Windlass, and nothing else.
//!
//! Two functions decide everything: [`decide`] says what one op does to one job, [`admit::admit`] says
//! who may claim how many. Both are pure: no clock, no randomness, no IO. Time, jitter and ids come in
//! as arguments, so the same question always has the same answer, and a test can ask all of them.
//!
//! Where to start: [`machine`] is the table of legal moves; `ops/` has the ops, each with its rule; [`job`] is the
//! row that they change; [`event`] is the history that they write, and [`evolve`] reads it back.
//!
//! What an op does is a value. Here a worker that lost its lease tries to settle:
//!
//! ```
//! use std::time::Duration;
//! use windlass_kernel::{ids::ClaimId, ops::*, *};
//!
//! let now: Timestamp = "2026-02-25T12:00:00Z".parse()?;
//! let by = || By::from(Actor::User("ann".parse().expect("a name")));
//! let new = NewJob::new("mail".parse()?, Payload::parse(r#"{"to": "bob"}"#, 1_000)?);
//! let (job_id, tenant) = (JobId::from_u128(1), "acme".parse()?);
//! let enqueue = Enqueue { job_id, tenant, new: Box::new(new), random: 7, by: by() };
//! let job = decide(&Current::default(), &enqueue.into(), now)?.job;
//! assert_eq!(job.state, State::Queued);
//!
//! let claim = Claim {
//!     job_id,
//!     claim_id: ClaimId::from_u128(1),
//!     worker: "w1".parse()?,
//!     trace_id: None,
//!     lease: Duration::from_secs(30),
//!     start: true,
//!     alone: false,
//! };
//! let current = Current { job: Some(&job), ..Current::default() };
//! let job = decide(&current, &claim.into(), now)?.job;
//! assert_eq!((job.state, job.epoch), (State::Running, Epoch::new(1)));
//!
//! let settle = Settle {
//!     job_id,
//!     epoch: Epoch::ZERO,
//!     by: By::worker("w0".parse()?),
//!     outcome: Outcome::Succeeded { result: None },
//!     stats: None,
//!     jitter: Jitter::NONE,
//! };
//! let current = Current { job: Some(&job), ..Current::default() };
//! assert_eq!(decide(&current, &settle.into(), now), Err(Refusal::StaleAttempt));
//! # Ok::<(), Refusal>(())
//! ```
//!
//! Always true here: a job's row is the fold of its events (lease and payload aside), because a row is
//! never changed in any other way. Never here: SQL, HTTP, a thread, the wall clock.

pub mod access;
pub mod admission;
pub mod canonical;
pub mod clock;
pub mod contract;
pub mod failure;
pub mod ids;
pub mod job;
pub mod ledger;
pub mod letter;
pub mod note;
pub mod ops;
pub mod plain;
pub mod refusal;
pub mod schedule;
pub mod time;

mod footprint;

pub use access::{holder, own_names, token};
pub use admission::{admit, rule};
pub use canonical::{Digest, Payload};
pub use clock::AcceptClock;
pub use event::{Actor, By, Event, Fact};
pub use failure::{Class, Failure};
pub use ids::{
    DlqId, Epoch, IdempotencyKey, IdempotencyScope, JobId, Kind, LimitKey, MarkName, Principal,
    Queue, RuleName, ScheduleName, Tag, TaskId, TenantId, TokenId, TokenLabel, TraceId, UniqueKey,
    WorkerId,
};
pub(crate) use job::evolve;
pub use job::evolve::{evolve, fold};
pub use job::{Job, Lease, Session, Spec, Task};
pub use job::{event, lane, machine, retention, retry, timer, transition};
pub use lane::Lane;
pub use letter::{Approval, DeadLetter, LetterState};
pub use machine::{Cause, State};
pub use note::{About, Note};
pub use ops::{Current, Op, OpKind, decide};
pub use refusal::Refusal;
pub use retention::Retention;
pub use retry::{Jitter, RetryPolicy};
pub use rule::{Rule, Says, Scope};
pub use schedule::{Schedule, ScheduleOp};
pub use time::Timestamp;
pub use token::{Role, Token, TokenOp};
pub use transition::{
    Answer, Attempt, AttemptState, FollowUp, NewPayload, Progress, Transition, attempts,
};
