//! Rows beside jobs: dead letters, tasks, schedules, tokens, steps and mail. All of them are loaded, changed and saved in one shape, so that
//! a new kind of row is its [`Noun`] here, and a `load` and a `save` in each backend.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use windlass_kernel::{
    DeadLetter, DlqId, JobId, Schedule, Task, TaskId, TenantId, Token, TokenId,
    ids::StepKey,
    ledger::{Effect, Mail, MailName, Step},
};

use super::ScheduleKey;

/// A kind of row, and what its rows are known by.
pub trait Noun {
    /// Unique among the rows of its kind.
    type Key: Clone + Ord + Debug;

    /// What this row is known by.
    fn key(&self) -> Self::Key;
}

/// What becomes of a row.
#[derive(Debug)]
pub struct Put<T> {
    /// The row that was loaded; none, if there was no row.
    pub before: Option<Arc<T>>,
    /// The row from now on; none, if it goes.
    pub after: Option<Arc<T>>,
}

/// What becomes of the rows of one kind.
pub type Puts<T> = BTreeMap<<T as Noun>::Key, Put<T>>;

/// The rows of one kind in a commit: as they stand, and what becomes of them.
#[derive(Debug)]
pub(crate) struct Table<T: Noun> {
    rows: BTreeMap<T::Key, Arc<T>>,
    puts: Puts<T>,
}

impl<T: Noun> Default for Table<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), puts: BTreeMap::new() }
    }
}

impl<T: Noun> Table<T> {
    /// Adds a row that was loaded.
    pub(crate) fn add(&mut self, row: impl Into<Arc<T>>) {
        let row = row.into();
        self.rows.insert(row.key(), row);
    }

    /// A row as it stands.
    pub(crate) fn get(&self, key: &T::Key) -> Option<&T> {
        self.rows.get(key).map(|row| &**row)
    }

    /// A row as it stands, to be kept.
    pub(crate) fn shared(&self, key: &T::Key) -> Option<&Arc<T>> {
        self.rows.get(key)
    }

    /// All rows as they stand.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &T> {
        self.rows.values().map(|row| &**row)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The row stands so from now on.
    pub(crate) fn put(&mut self, row: impl Into<Arc<T>>) {
        let row = row.into();
        let key = row.key();
        let before = self.rows.insert(key.clone(), row.clone());
        self.puts.entry(key).or_insert(Put { before, after: None }).after = Some(row);
    }

    /// The row goes.
    pub(crate) fn remove(&mut self, key: &T::Key) {
        let before = self.rows.remove(key);
        self.puts.entry(key.clone()).or_insert(Put { before, after: None }).after = None;
    }

    /// Changes what this commit sees of a row, and not what is saved of it.
    pub(crate) fn see(&mut self, key: &T::Key, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        if let Some(row) = self.rows.get_mut(key) {
            change(Arc::make_mut(row));
        }
    }

    /// What has to be saved.
    pub(crate) fn into_puts(self) -> Puts<T> {
        self.puts
    }
}

/// The rows that are there after these.
pub(crate) fn after<T: Noun>(puts: &Puts<T>) -> impl Iterator<Item = &T> {
    puts.values().filter_map(|put| put.after.as_deref())
}

impl Noun for DeadLetter {
    type Key = DlqId;

    fn key(&self) -> DlqId {
        self.id
    }
}

impl Noun for Task {
    type Key = (TenantId, TaskId);

    fn key(&self) -> Self::Key {
        (self.tenant.clone(), self.task_id.clone())
    }
}

impl Noun for Schedule {
    type Key = ScheduleKey;

    fn key(&self) -> ScheduleKey {
        (self.tenant.clone(), self.name.clone())
    }
}

impl Noun for Token {
    type Key = TokenId;

    fn key(&self) -> TokenId {
        self.id
    }
}

impl Noun for Step {
    type Key = (JobId, StepKey);

    fn key(&self) -> Self::Key {
        (self.job_id, self.key.clone())
    }
}

impl Noun for Mail {
    type Key = (JobId, MailName);

    fn key(&self) -> Self::Key {
        (self.job_id, self.name.clone())
    }
}

impl Noun for Effect {
    type Key = (JobId, StepKey);

    fn key(&self) -> Self::Key {
        (self.job_id, self.key.clone())
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::JobId;

    use super::*;

    fn task(next_attempt: u32) -> Task {
        let (tenant, task_id) = ("acme".parse().unwrap(), "t".parse().unwrap());
        Task { tenant, task_id, next_attempt, active: None, failed: None }
    }

    fn saved(table: Table<Task>) -> Vec<(Option<u32>, Option<u32>)> {
        let next = |row: &Option<Arc<Task>>| row.as_ref().map(|task| task.next_attempt);
        table.into_puts().values().map(|put| (next(&put.before), next(&put.after))).collect()
    }

    #[test]
    fn of_several_changes_the_first_row_and_the_last_are_told() {
        let mut table = Table::default();
        table.add(task(1));
        table.put(task(2));
        table.put(task(3));
        assert_eq!(table.get(&task(0).key()).map(|task| task.next_attempt), Some(3));
        assert_eq!(saved(table), [(Some(1), Some(3))]);
    }

    #[test]
    fn a_row_that_is_made_and_goes_leaves_nothing() {
        let mut table = Table::default();
        table.put(task(1));
        table.remove(&task(0).key());
        assert_eq!(saved(table), [(None, None)]);
    }

    #[test]
    fn what_is_only_loaded_or_seen_is_not_saved() {
        let mut table = Table::default();
        table.add(task(1));
        table.see(&task(0).key(), |task| task.active = Some(JobId::from_u128(7)));
        assert_eq!(table.rows().next().and_then(|task| task.active), Some(JobId::from_u128(7)));
        assert!(saved(table).is_empty());
    }
}
