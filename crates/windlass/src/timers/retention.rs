//! Retention: forgets what may go, in small steps between which others write.

use std::time::Duration;

use tokio::time::sleep;
use windlass_kernel::Retention;
use windlass_store::Keep;

/// How many jobs one step looks at.
const STEP: usize = 500;
/// The most steps of one pass: what is left then waits for the next.
const STEPS_MAX: usize = 1_000;
/// The pause between two steps.
const PAUSE: Duration = Duration::from_millis(5);

/// One pass. If the store cannot do it now, it can the next time.
pub(super) async fn prune(store: &dyn Keep, retention: Retention) {
    for _ in 0..STEPS_MAX {
        match store.prune(retention, STEP).await {
            Ok(pruned) if pruned.more => sleep(PAUSE).await,
            Ok(_) | Err(_) => return,
        }
    }
}
