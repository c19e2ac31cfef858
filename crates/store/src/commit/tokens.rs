//! Tokens in a commit: issued and revoked like everything else that changes.

use std::collections::BTreeMap;

use windlass_kernel::{MarkName, Refusal, Timestamp, Token, TokenId, TokenOp};

use super::{Reply, WorkingSet};

/// What becomes of the row of a token.
#[derive(Debug)]
pub struct TokenChange {
    /// Is there no row yet?
    pub is_new: bool,
    /// The row.
    pub token: Token,
}

impl<P: Default> WorkingSet<P> {
    /// Adds a token that was loaded.
    pub(crate) fn add_token(&mut self, token: Token) {
        self.tokens.insert(token.id, token);
    }

    /// When the last of these tokens was issued: time does not go back behind it.
    #[cfg(feature = "postgres")]
    pub(crate) fn tokens_seen_at(&self) -> Option<Timestamp> {
        self.tokens.values().map(|token| token.created_at).max()
    }

    /// Issues a token or revokes it.
    pub(crate) fn apply_token(&mut self, op: &TokenOp, now: Timestamp) -> Result<Reply, Refusal> {
        let known = self.tokens.get(&op.id());
        let token = op.decide(known, self.tokens.values(), now)?;
        if known != Some(&token) {
            let is_new = known.is_none();
            self.note(op.note(&token));
            let change = TokenChange { is_new, token: token.clone() };
            let changed = self.changes.tokens.entry(token.id).or_insert(change);
            changed.token.clone_from(&token);
            self.tokens.insert(token.id, token.clone());
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

/// The tokens of one commit.
pub(super) type Tokens = BTreeMap<TokenId, Token>;
