//! Lines: long reads of one tenant wait for each other, and not others for them.
//!
//! A store has few readers. Forty long lists that one tenant asks for at a time would queue before the short reads of all
//! other tenants.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use windlass_kernel::TenantId;
use windlass_store::read::Scope;

use crate::http::core::problem::Problem;

/// How many long reads of one tenant go on at once: half of what the smallest store reads at once.
pub(crate) const AT_ONCE: usize = 2;
/// How many more of it may wait.
pub(crate) const WAITING_MAX: usize = 100;
/// How long one waits for its turn at the most.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The line of each tenant that reads, and of those who read of all.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Arc<Mutex<HashMap<Option<TenantId>, Line>>>,
}

#[derive(Debug)]
struct Line {
    turns: Arc<Semaphore>,
    /// Those who stand in it, and those whose turn it is.
    callers: usize,
}

/// Where one caller stands, until this is dropped.
#[derive(Debug)]
struct Stand {
    tenant: Option<TenantId>,
    lines: Arc<Mutex<HashMap<Option<TenantId>, Line>>>,
}

/// The turn of a caller, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
    _stand: Stand,
}

impl Lines {
    /// Waits for a turn, if not too many do already.
    pub(crate) async fn turn(&self, scope: &Scope) -> Result<Turn, Problem> {
        let overloaded =
            |detail: String| Problem { retry_after: Some(1), ..Problem::overloaded(detail) };
        let Some((stand, turns)) = self.stand(scope) else {
            let detail = format!(
                "{WAITING_MAX} lists of this tenant wait to be read: ask for fewer at once"
            );
            return Err(overloaded(detail));
        };
        match timeout(WAIT_MAX, turns.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Turn { _permit: permit, _stand: stand }),
            _ => Err(overloaded("other lists of this tenant take too long to read".to_owned())),
        }
    }

    fn stand(&self, scope: &Scope) -> Option<(Stand, Arc<Semaphore>)> {
        let tenant = scope.tenant().cloned();
        let mut lines = self.lines.lock().expect("nobody panics with it");
        let new = || Line { turns: Arc::new(Semaphore::new(AT_ONCE)), callers: 0 };
        let line = lines.entry(tenant.clone()).or_insert_with(new);
        if line.callers >= AT_ONCE + WAITING_MAX {
            return None;
        }
        line.callers += 1;
        Some((Stand { tenant, lines: self.lines.clone() }, line.turns.clone()))
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let mut lines = self.lines.lock().expect("nobody panics with it");
        if let Some(line) = lines.get_mut(&self.tenant) {
            line.callers -= 1;
            if line.callers == 0 {
                lines.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{Future, poll_fn},
        pin::Pin,
        task::Poll,
    };

    use super::*;

    /// What comes of it at once, if it does not wait.
    async fn at_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(move |context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn a_tenant_waits_for_itself_and_for_nobody_else() {
        let lines = Lines::default();
        let [a, b] = ["a", "b"].map(|name| Scope::Of(TenantId::new(name).unwrap()));
        let mut first = Vec::new();
        for _ in 0..AT_ONCE {
            first.push(lines.turn(&a).await.unwrap());
        }
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(lines.turn(&a))).collect();
        for turn in &mut waiting {
            assert!(at_once(turn.as_mut()).await.is_none());
        }
        let refused = lines.turn(&a).await.unwrap_err();
        assert_eq!((refused.code, refused.retry_after), ("OVERLOADED", Some(1)));
        let other = lines.turn(&b).await.unwrap();
        first.pop();
        let next = at_once(waiting.remove(0).as_mut()).await.expect("it waited for longest");
        for turn in &mut waiting {
            assert!(at_once(turn.as_mut()).await.is_none());
        }
        drop((first, waiting, other, next));
        assert!(lines.lines.lock().unwrap().is_empty(), "nothing is kept of who is done");
    }
}
