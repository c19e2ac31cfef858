//! What has happened to each tenant since this process began to look, on whichever node it happened.
//!
//! Always bounded: tenants beyond the first thousand are counted together, without a name.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Deserialize;
use windlass_kernel::TenantId;
use windlass_store::read::Scope;

/// The most tenants that are counted by name.
const TENANTS_MAX: usize = 1_000;

/// Why slots of schedules are skipped. One that was fired before, by a backfill, is not among them: nothing is missing.
pub(crate) const SKIP_REASONS: [&str; 5] =
    ["missed", "bound_reached", "refused", "overlap", "paused"];

/// Counts by tenant; none stands for all whose names are too many.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    letters: Mutex<BTreeMap<Option<TenantId>, u64>>,
    skipped: Mutex<BTreeMap<(Option<TenantId>, &'static str), u64>>,
}

impl Totals {
    /// A job became a dead letter.
    pub(crate) fn letter(&self, tenant: &TenantId) {
        let mut letters = lock(&self.letters);
        let is_known = letters.len() < TENANTS_MAX || letters.contains_key(&Some(tenant.clone()));
        *letters.entry(is_known.then(|| tenant.clone())).or_default() += 1;
    }

    /// Slots of a schedule were skipped.
    pub(crate) fn skipped(&self, tenant: &TenantId, skip: &Skip) {
        let mut skipped = lock(&self.skipped);
        let bound = TENANTS_MAX * SKIP_REASONS.len();
        let key = (Some(tenant.clone()), skip.reason);
        let is_known = skipped.len() < bound || skipped.contains_key(&key);
        *skipped.entry((key.0.filter(|_| is_known), skip.reason)).or_default() += skip.count;
    }

    /// Dead letters by tenant, as far as the scope may see them.
    pub(crate) fn letters_seen_by(&self, scope: &Scope) -> Vec<(String, u64)> {
        let letters = lock(&self.letters);
        let seen = letters.iter().filter(|(tenant, _)| admits(scope, tenant.as_ref()));
        seen.map(|(tenant, count)| (label(tenant.as_ref()), *count)).collect()
    }

    /// Skipped slots by tenant and reason, as far as the scope may see them.
    pub(crate) fn skipped_seen_by(&self, scope: &Scope) -> Vec<(String, &'static str, u64)> {
        let skipped = lock(&self.skipped);
        let seen = skipped.iter().filter(|((tenant, _), _)| admits(scope, tenant.as_ref()));
        seen.map(|((tenant, why), count)| (label(tenant.as_ref()), *why, *count)).collect()
    }
}

fn lock<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn admits(scope: &Scope, tenant: Option<&TenantId>) -> bool {
    tenant.map_or(matches!(scope, Scope::Every), |tenant| scope.admits(tenant))
}

fn label(tenant: Option<&TenantId>) -> String {
    tenant.map_or_else(String::new, ToString::to_string)
}

/// Slots that a schedule skipped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    /// One of [`SKIP_REASONS`].
    pub(crate) reason: &'static str,
    /// How many.
    pub(crate) count: u64,
}

impl Skip {
    /// Was it asked for, by the pause of a person or by what the schedule does while its last job runs?
    pub(crate) fn is_asked_for(&self) -> bool {
        matches!(self.reason, "overlap" | "paused")
    }

    /// What a note of the feed says of skipped slots, if that is what it is about.
    pub(crate) fn of_note(line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Note {
            about: String,
            what: String,
            #[serde(default)]
            detail: Detail,
        }
        #[derive(Default, Deserialize)]
        struct Detail {
            reason: Option<String>,
            count: Option<u64>,
        }
        let note: Note = serde_json::from_str(line).ok()?;
        if (note.about.as_str(), note.what.as_str()) != ("schedule", "skipped") {
            return None;
        }
        let reason = note.detail.reason.unwrap_or_else(|| "refused".to_owned());
        let reason = SKIP_REASONS.into_iter().find(|known| *known == reason)?;
        Some(Self { reason, count: note.detail.count.unwrap_or(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn tenants_that_are_too_many_are_counted_together() {
        let totals = Totals::default();
        for number in 0..1_200 {
            totals.letter(&tenant(&format!("t{number:04}")));
        }
        totals.letter(&tenant("t0000"));
        let all = totals.letters_seen_by(&Scope::Every);
        assert_eq!(all.len(), TENANTS_MAX + 1);
        assert!(all.contains(&(String::new(), 200)) && all.contains(&("t0000".to_owned(), 2)));
        let own = totals.letters_seen_by(&Scope::Of(tenant("t0007")));
        assert_eq!(own, [("t0007".to_owned(), 1)]);
    }

    #[test]
    fn a_note_says_how_many_slots_were_skipped_and_why() {
        let note = |detail: &str| {
            Skip::of_note(&format!(
                r#"{{"about":"schedule","name":"s","what":"skipped","actor":"scheduler","detail":{detail}}}"#
            ))
        };
        let skip = |reason, count| Some(Skip { reason, count });
        assert_eq!(note(r#"{"reason":"missed","count":8}"#), skip("missed", 8));
        assert_eq!(note(r#"{"reason":"overlap"}"#), skip("overlap", 1));
        assert_eq!(note(r#"{"why":"nothing new is taken in"}"#), skip("refused", 1));
        assert_eq!(note(r#"{"reason":"fired_before"}"#), None, "it was fired");
        let other = r#"{"about":"rule","name":"s","what":"skipped","actor":"scheduler"}"#;
        assert_eq!(Skip::of_note(other), None);
    }
}
