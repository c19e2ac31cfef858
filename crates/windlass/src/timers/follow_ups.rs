//! What follows for other jobs: a child's end for its parent, a cancel for its children.
//!
//! Each is carried out as ops that change nothing the second time, and is struck off after that. So it happens
//! also if the process dies in between, or if two engines do it at once.

use windlass_kernel::{
    Actor, FollowUp, Op, TenantId,
    ops::{Cancel, Wake, WakeBy},
};
use windlass_store::{Error, Write, read::StoredFollowUp};

use crate::engine::Inner;

/// The children that are told at once; the others come with the next look.
const CHILDREN_MAX: usize = 500;

/// Carries out at most so many. Is there more to do?
pub(super) async fn carry_out(engine: &Inner, max: usize) -> Result<bool, Error> {
    let found = engine.store.follow_ups(max).await?;
    let more = found.len() >= max;
    for StoredFollowUp { id, tenant, follow_up } in found {
        if carry_out_one(engine, tenant, follow_up).await? {
            let _ = engine.submit(Write::FollowUpDone { id }).await;
        }
    }
    Ok(more)
}

/// Is it done?
async fn carry_out_one(
    engine: &Inner,
    tenant: TenantId,
    follow_up: FollowUp,
) -> Result<bool, Error> {
    match follow_up {
        FollowUp::ChildEnded { parent, child, .. } => {
            let op = Op::Wake(Wake { job_id: parent, by: WakeBy::Child { child } });
            // A parent that does not wait for it finds out when it begins to.
            Ok(is_settled(&engine.submit(Write::Op { tenant, op }).await))
        }
        FollowUp::CancelChildren { parent } => {
            let children = engine.store.open_children(&tenant, parent, CHILDREN_MAX).await?;
            let cancel = |job_id| {
                let (reason, by) =
                    (Some(format!("its parent {parent} is cancelled")), Actor::Scheduler.into());
                let grace = Cancel::GRACE_DEFAULT;
                let op = Op::Cancel(Cancel { job_id, force: false, grace, reason, by });
                Write::Op { tenant: tenant.clone(), op }
            };
            let all = children.len() < CHILDREN_MAX;
            let told = engine.submit_many(children.into_iter().map(cancel).collect()).await;
            Ok(all && told.iter().all(is_settled))
        }
    }
}

/// Was the op answered, be it by a refusal? Then asking again would bring nothing new.
fn is_settled<T>(answer: &Result<T, crate::SubmitError>) -> bool {
    matches!(answer, Ok(_) | Err(crate::SubmitError::Refused(_)))
}
