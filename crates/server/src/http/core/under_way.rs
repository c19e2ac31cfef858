//! What is under way, counted by a key: streams by tenant, claims by their ids. A key that nobody has is not kept.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard},
};

/// How many there are of each key.
#[derive(Debug)]
pub(crate) struct UnderWay<K>(Arc<Mutex<HashMap<K, usize>>>);

/// One of a key, until this is dropped.
#[derive(Debug)]
pub(crate) struct Entry<K: Eq + Hash> {
    key: K,
    all: UnderWay<K>,
}

impl<K> Default for UnderWay<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K> UnderWay<K> {
    fn counts(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl<K: Clone + Eq + Hash> UnderWay<K> {
    /// One more, if there are not so many of this key.
    pub(crate) fn enter(&self, key: K, max: usize) -> Option<Entry<K>> {
        let mut counts = self.counts();
        let count = counts.entry(key.clone()).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Entry { key, all: Self(self.0.clone()) })
    }
}

impl<K: Eq + Hash> Entry<K> {
    /// Is there no other of the same key?
    pub(crate) fn is_only(&self) -> bool {
        self.all.counts().get(&self.key) == Some(&1)
    }
}

impl<K: Eq + Hash> Drop for Entry<K> {
    fn drop(&mut self) {
        let mut counts = self.all.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_counted_by_itself_and_bounded() {
        let all = UnderWay::default();
        let (first, other) = (all.enter('a', 2).unwrap(), all.enter('b', 2).unwrap());
        assert!(first.is_only() && other.is_only());
        let again = all.enter('a', 2).unwrap();
        assert!(!first.is_only() && !again.is_only());
        assert!(all.enter('a', 2).is_none());
        drop(first);
        assert!(again.is_only());
        drop((again, other));
        assert!(all.counts().is_empty(), "nothing is kept of who is done");
    }
}
