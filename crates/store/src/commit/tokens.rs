//! Tokens in a commit: issued and revoked like everything else that changes.

use std::sync::Arc;

use windlass_kernel::{MarkName, Refusal, Timestamp, Token, TokenOp};

use super::{Reply, WorkingSet};

impl<P: Default> WorkingSet<P> {
    /// Adds a token that was loaded.
    pub(crate) fn add_token(&mut self, token: impl Into<Arc<Token>>) {
        self.tokens.add(token);
    }

    /// When the last of these tokens was issued: time does not go back behind it.
    #[cfg(feature = "postgres")]
    pub(crate) fn tokens_seen_at(&self) -> Option<Timestamp> {
        self.tokens.rows().map(|token| token.created_at).max()
    }

    /// Issues a token or revokes it.
    pub(crate) fn apply_token(&mut self, op: &TokenOp, now: Timestamp) -> Result<Reply, Refusal> {
        let known = self.tokens.get(&op.id());
        let token = op.decide(known, self.tokens.rows(), now)?;
        if known != Some(&token) {
            self.note(op.note(&token));
            self.tokens.put(token.clone());
        }
        Ok(Reply::Token(token))
    }

    /// Notes how far a follower of the feed has come. It never goes back.
    pub(crate) fn mark(&mut self, name: &MarkName, number: u64) -> Reply {
        let furthest = self.changes.marks.entry(name.clone()).or_default();
        *furthest = (*furthest).max(number);
        Reply::Done
    }
}
