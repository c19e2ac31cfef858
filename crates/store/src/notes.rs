//! Notes as a commit writes them: behind the events of their tenant, in the same log row.

use std::collections::BTreeSet;

use windlass_kernel::{Note, TenantId};

use crate::commit::Changes;

/// Everybody who is told something by a commit, in order: each gets one log row.
pub(crate) fn tenants(changes: &Changes) -> BTreeSet<&TenantId> {
    changes.events.keys().chain(changes.notes.iter().map(|note| &note.tenant)).collect()
}

/// The notes of a tenant, in order.
pub(crate) fn of<'a>(changes: &'a Changes, tenant: &TenantId) -> Vec<&'a Note> {
    changes.notes.iter().filter(|note| note.tenant == *tenant).collect()
}

/// Writes their lines at the end of a log row that may have others already.
pub(crate) fn append(notes: &[&Note], text: &mut String) {
    for note in notes {
        text.push(if text.is_empty() { '[' } else { ',' });
        text.push_str(&note.line());
    }
}
