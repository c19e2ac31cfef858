//! Reads of dead letters.

use windlass_kernel::{Approval, DeadLetter, DlqId, LetterState};

use crate::{
    StoreFuture,
    read::{LetterFilter, LetterGroups, Page, PageFrom, Scope},
};

/// Reads dead letters, and what people said about them.
pub trait ReadLetters: Send + Sync {
    /// A dead letter as it stands.
    fn letter(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Option<DeadLetter>>;

    /// What people said about a dead letter, in order.
    fn approvals(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Vec<Approval>>;

    /// Dead letters by filter, newest first, page by page.
    fn letters(&self, filter: LetterFilter, cursor: PageFrom) -> StoreFuture<'_, Page<DeadLetter>>;

    /// Dead letters in a state, by the code and the message of their failure, with exact counts.
    fn letter_groups(&self, scope: &Scope, state: LetterState) -> StoreFuture<'_, LetterGroups>;
}
