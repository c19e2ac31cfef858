//! What the tests share.

use std::time::{Duration, Instant};

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
