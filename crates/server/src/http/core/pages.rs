//! Pages of the feed that many follow: each is read and put into words once, for all streams that stand at one place.
//!
//! A page is known by who may see it, in whose words, where it begins and how far the feed went when it was read. When
//! the feed goes on, the last page of it becomes another one, and those before it stay.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use tokio::sync::OnceCell;
use windlass_kernel::TenantId;

/// What a page is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Whose events; those of every tenant, if none is named.
    pub(crate) tenant: Option<TenantId>,
    /// With what is told of tokens, which is not for everybody.
    pub(crate) tells_tokens: bool,
    /// In the words of this contract.
    pub(crate) contract: Option<&'static str>,
    /// After this event.
    pub(crate) after: u64,
    /// How far the feed goes, as far as is known.
    pub(crate) tail: u64,
}

impl Key {
    /// Is the page that is known by this the one that is wanted? One that ends before the feed does is whole, however far
    /// the feed has gone since. One without an event says nothing about later ones: after a failover the feed may end
    /// before a tail that was seen.
    fn serves(&self, wanted: &Key, cell: &Cell) -> bool {
        let Key { tenant, tells_tokens, contract, after, tail } = self;
        let is_whole = || cell.get().is_some_and(|page| *after < page.upto && page.upto < *tail);
        *after == wanted.after
            && *tenant == wanted.tenant
            && *tells_tokens == wanted.tells_tokens
            && *contract == wanted.contract
            && (*tail == wanted.tail || is_whole())
    }
}

/// Events as a stream tells them, in one piece, and the last event that was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) text: Bytes,
    pub(crate) upto: u64,
}

type Cell = Arc<OnceCell<Page>>;

/// The last pages that were read.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    recent: Mutex<VecDeque<(Key, Cell)>>,
}

impl Pages {
    /// Those who stand at one place ask within moments of each other: few pages are enough.
    const KEPT_MAX: usize = 32;

    /// The page, which is read unless it was, or is being read for another.
    pub(crate) async fn get<E>(
        &self,
        key: Key,
        read: impl Future<Output = Result<Page, E>>,
    ) -> Result<Page, E> {
        let cell = self.cell(key);
        cell.get_or_try_init(|| read).await.cloned()
    }

    /// Forgets all pages: the feed is another than it was.
    pub(crate) fn clear(&self) {
        self.recent.lock().expect("nobody panics with it").clear();
    }

    fn cell(&self, key: Key) -> Cell {
        let mut recent = self.recent.lock().expect("nobody panics with it");
        if let Some((_, cell)) = recent.iter().find(|(known, cell)| known.serves(&key, cell)) {
            return cell.clone();
        }
        if recent.len() >= Self::KEPT_MAX {
            recent.pop_front();
        }
        let cell = Cell::default();
        recent.push_back((key, cell.clone()));
        cell
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn key(after: u64, tail: u64) -> Key {
        Key { tenant: None, tells_tokens: false, contract: None, after, tail }
    }

    #[tokio::test]
    async fn a_page_is_read_once_for_all_and_anew_when_the_feed_goes_on() {
        let (pages, reads) = (Pages::default(), AtomicUsize::new(0));
        let read = || async {
            reads.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok::<Page, ()>(Page { text: Bytes::new(), upto: 7 })
        };
        for _ in 0..100 {
            let (one, other) =
                tokio::join!(pages.get(key(5, 7), read()), pages.get(key(5, 7), read()));
            assert_eq!((one.unwrap().upto, other.unwrap().upto), (7, 7));
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        pages.get(key(5, 8), read()).await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 2);
        for after in 100..300 {
            pages.get(key(after, 400), read()).await.unwrap();
        }
        assert_eq!(pages.recent.lock().unwrap().len(), Pages::KEPT_MAX);
    }

    #[tokio::test]
    async fn a_page_that_is_not_the_last_is_read_once_however_far_the_feed_goes() {
        let (pages, reads) = (Pages::default(), AtomicUsize::new(0));
        for tail in 100..120 {
            let read = async {
                reads.fetch_add(1, Ordering::Relaxed);
                Ok::<Page, ()>(Page { text: Bytes::new(), upto: 50 })
            };
            pages.get(key(5, tail), read).await.unwrap();
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_page_without_an_event_is_read_again_when_the_feed_goes_on() {
        let (pages, reads) = (Pages::default(), AtomicUsize::new(0));
        for tail in [100, 100, 101] {
            let read = async {
                reads.fetch_add(1, Ordering::Relaxed);
                Ok::<Page, ()>(Page { text: Bytes::new(), upto: 5 })
            };
            pages.get(key(5, tail), read).await.unwrap();
        }
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }
}
