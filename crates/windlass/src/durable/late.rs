//! Late effects: what came of steps whose execution has lost its lease is handed in as a fact.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use windlass_kernel::{By, Op, ids::StepKey, ledger::StepOutcome, ops::HandIn};
use windlass_store::TenantOp;

use super::Exec;
use crate::SubmitError;

/// How long it is tried, and how long in between.
const TRIED_FOR: Duration = Duration::from_secs(600);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Hands in what came of these steps, in the background, until the store has taken or refused it.
pub(super) fn hand_in(exec: &Arc<Exec>, outcomes: Vec<(StepKey, StepOutcome)>) {
    if outcomes.is_empty() {
        return;
    }
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let exec = exec.clone();
    runtime.spawn(async move {
        for (key, outcome) in outcomes {
            hand_in_one(&exec, key, outcome).await;
        }
    });
}

async fn hand_in_one(exec: &Exec, key: StepKey, outcome: StepOutcome) {
    let by = By::worker(exec.context.worker().clone());
    let (job_id, epoch) = (exec.job_id(), exec.epoch());
    let op = Op::HandIn(HandIn { job_id, key, epoch, outcome, by });
    let began = Instant::now();
    loop {
        let request = TenantOp { tenant: exec.context.tenant().clone(), op: op.clone() };
        match exec.context.engine().inner().submit(request).await {
            Ok(_) | Err(SubmitError::Refused(_) | SubmitError::Closed) => return,
            Err(SubmitError::Store(_) | SubmitError::Full) if began.elapsed() < TRIED_FOR => {
                sleep(TRY_AGAIN_AFTER).await;
            }
            Err(_) => return,
        }
    }
}
