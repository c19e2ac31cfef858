//! What follows for other jobs: a child's end for its parent, a cancel for its children.
//!
//! Each is carried out as ops that change nothing the second time, and is struck off after that. So it happens
//! also if the process dies in between, or if two engines do it at once.

use std::collections::BTreeMap;

use windlass_kernel::{
    Actor, FollowUp, JobId, Op, TenantId,
    ledger::{MailContent, MailName},
    ops::{Cancel, Signal},
};
use windlass_store::{Error, Watch, Write, read::StoredFollowUp};

use crate::engine::Inner;

/// The children that are told at once; the others come with the next look.
const CHILDREN_MAX: usize = 2_000;

/// How far the children of parents that were cancelled are told, by follow-up.
///
/// A parent that is cancelled gets no more children, so one pass through all of them is enough: neither those that have
/// ended nor those that were asked and still run are passed again. After a restart it begins anew.
#[derive(Debug, Default)]
pub(super) struct Cancelling {
    told_to: BTreeMap<i64, JobId>,
}

/// Carries out at most so many. Is there more to do?
///
/// The ends of children are told together, and all that is done is struck off together: a job with many children has as
/// many ends to be told of, and two commits for each, one after the other, held up everything behind them.
pub(super) async fn carry_out(
    engine: &Inner,
    store: &dyn Watch,
    cancelling: &mut Cancelling,
    max: usize,
) -> Result<bool, Error> {
    let found = store.follow_ups(max).await?;
    let mut more = found.len() >= max;
    cancelling.told_to.retain(|id, _| found.iter().any(|it| it.id == *id));
    let (mut ended, mut wakes, mut done) = (Vec::new(), Vec::new(), Vec::new());
    for StoredFollowUp { id, tenant, follow_up } in found {
        match follow_up {
            FollowUp::ChildEnded { parent, child, state } => {
                let op = Op::Signal(Signal {
                    job_id: parent,
                    name: MailName::Child(child),
                    content: MailContent::Ended(state),
                    expect_waiting: false,
                    by: Actor::Scheduler.into(),
                });
                ended.push(id);
                wakes.push(Write::Op { tenant, op });
            }
            FollowUp::CancelChildren { parent } => {
                let after = cancelling.told_to.get(&id).copied();
                match cancel_children(engine, store, &tenant, parent, after).await? {
                    Pass::Ended => done.push(id),
                    Pass::UpTo(child) => {
                        cancelling.told_to.insert(id, child);
                        more = true;
                    }
                    Pass::Held => {}
                }
            }
        }
    }
    // A parent without a ledger that does not wait for a child finds out when it begins to; one with a ledger has mail.
    let told = engine.submit_many(wakes).await;
    let settled = ended.into_iter().zip(told).filter(|(_, told)| is_settled(told));
    done.extend(settled.map(|(id, _)| id));
    let done = done.into_iter().map(|id| Write::FollowUpDone { id }).collect();
    let _ = engine.submit_many(done).await;
    Ok(more)
}

/// How far the pass through the children of a parent has come.
enum Pass {
    /// All are told.
    Ended,
    /// All up to this one.
    UpTo(JobId),
    /// Some of the next could not be told: they come again.
    Held,
}

/// Tells the next children that their parent is cancelled.
async fn cancel_children(
    engine: &Inner,
    store: &dyn Watch,
    tenant: &TenantId,
    parent: JobId,
    after: Option<JobId>,
) -> Result<Pass, Error> {
    let children = store.open_children(tenant, parent, after, CHILDREN_MAX).await?;
    let last = children.last().copied().filter(|_| children.len() >= CHILDREN_MAX);
    let cancel = |job_id| {
        let (reason, by) =
            (Some(format!("its parent {parent} is cancelled")), Actor::Scheduler.into());
        let grace = Cancel::GRACE_DEFAULT;
        let op = Op::Cancel(Cancel { job_id, force: false, grace, reason, by });
        Write::Op { tenant: tenant.clone(), op }
    };
    let told = engine.submit_many(children.into_iter().map(cancel).collect()).await;
    Ok(match last {
        _ if !told.iter().all(is_settled) => Pass::Held,
        Some(child) => Pass::UpTo(child),
        None => Pass::Ended,
    })
}

/// Was the op answered, be it by a refusal? Then asking again would bring nothing new.
fn is_settled<T>(answer: &Result<T, crate::SubmitError>) -> bool {
    matches!(answer, Ok(_) | Err(crate::SubmitError::Refused(_)))
}
