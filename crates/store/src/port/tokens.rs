//! Reads of tokens.

use windlass_kernel::{Token, TokenId};

use crate::{StoreFuture, read::Scope};

/// Reads tokens.
pub trait ReadTokens: Send + Sync {
    /// A token as it stands, whosever it is: it is asked for before anybody knows who asks.
    fn token(&self, id: TokenId) -> StoreFuture<'_, Option<Token>>;

    /// Tokens, newest first, [`TOKENS_MAX`](crate::read::TOKENS_MAX) at the most. Those that open every tenant are seen by
    /// [`Scope::Every`] alone.
    fn tokens(&self, scope: &Scope) -> StoreFuture<'_, Vec<Token>>;
}
