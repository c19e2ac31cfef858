//! What the tests share.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use windlass::{Engine, HandlerResult, Scope, Timestamp};
use windlass_kernel::Fact;

use crate::outside::Outside;

/// One test for each store from each of these functions.
macro_rules! for_each_store {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use crate::home::Home;

            #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
            async fn sqlite() {
                super::$name(Home::sqlite()).await.unwrap();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
            async fn postgres() {
                super::$name(Home::postgres()).await.unwrap();
            }
        })*
    };
}
pub(crate) use for_each_store;

/// Waits until something is there, and fails if that takes too long.
///
/// What is waited for happens in other processes, so it has to be looked at again and again.
pub(crate) async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// When the jobs that began were claimed, by the store's clock, in order.
pub(crate) async fn claims(engine: &Engine, outside: &Outside) -> HandlerResult<Vec<Timestamp>> {
    let jobs: BTreeSet<String> = outside.said().into_iter().map(|said| said.job).collect();
    let mut claims = Vec::new();
    for id in jobs {
        let events = engine.store().events(&Scope::Every, id.parse()?).await?.into_iter();
        let claimed = events.filter(|event| matches!(event.fact, Fact::Claimed { .. }));
        claims.extend(claimed.map(|event| event.at));
    }
    claims.sort();
    Ok(claims)
}
