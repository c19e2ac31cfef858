//! The wire: every document and body of the HTTP API, once.
//!
//! The server answers with these, the client and the command line read them, and OpenAPI is written from them (feature
//! `schema`). One file a resource; each converts to and from the types of the kernel itself, both ways, so that nobody
//! else does. Start with `new_job` and `job`.
//!
//! Always true here: payloads pass byte for byte. A body refuses a field that it does not know; a document takes it, for a
//! newer server may tell more. Names in documents are text, because what was stored under an older rule is still shown;
//! they are checked when a document becomes a job.

mod act;
mod attempt;
mod batch;
mod claim;
mod event;
mod failure;
#[cfg(feature = "client")]
mod fields;
mod job;
mod lease;
mod ledger;
mod letter;
mod list;
mod new_job;
mod problem;
mod queue;
mod raw;
mod rule;
mod schedule;
mod token;
mod worker;

#[cfg(feature = "client")]
pub(crate) use self::fields::fields;
pub(crate) use self::raw::raw_payload;
pub use self::{
    act::{CancelBody, ReasonBody, RetryBody, RetryOp},
    attempt::AttemptDocument,
    batch::{BatchBody, OpResult, Results},
    claim::{ClaimBody, LeaseDocument, Leases},
    event::{EventDocument, FeedDocument},
    failure::{ErrorBody, FailureDocument},
    job::{JobDocument, RetryDocument},
    lease::{LeaseBody, LeasesBody, OutcomeWord, RenewBody, RenewEntry, SettleEntry, WaitEntry},
    ledger::{
        BeginBody, CheckpointBody, CommitBody, DecisionDocument, DecisionsDocument,
        DeliveredDocument, EffectBody, LedgerDocument, MailDocument, MessageBody, OperatorBody,
        ParkBody, ResolveBody, SignalBody, StepBegin, StepDocument, final_failure,
    },
    letter::{
        ApprovalDocument, DiscardBody, Groups, LetterDocument, LetterGroup, RequeueBody, Requeued,
    },
    list::{Found, List},
    new_job::{EnqueuedDocument, NewJobBody},
    problem::ProblemDocument,
    queue::{QueueDocument, Queues},
    raw::raw,
    rule::RuleDocument,
    schedule::{
        BackfillBody, Backfilled, CatchUpAllBody, CatchUpBody, ScheduleBody, ScheduleDocument,
        SlotDocument, TriggerBody, Triggered,
    },
    token::{Me, RevokeBody, TokenBody, TokenDocument},
    worker::WorkerDocument,
};
