//! A token as its row has it, whichever database keeps the row.

use windlass_kernel::{Actor, Role, Timestamp, Token, TokenId, TokenLabel};

/// The columns of a token.
pub(crate) struct TokenRow<'a> {
    pub(crate) id: u128,
    pub(crate) digest: &'a [u8],
    pub(crate) tenant: &'a str,
    pub(crate) principal: &'a str,
    pub(crate) role: &'a str,
    pub(crate) label: Option<&'a str>,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: &'a str,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) revoked_at: Option<Timestamp>,
    pub(crate) revoked_by: Option<&'a str>,
}

impl TokenRow<'_> {
    /// The token, or why it cannot be one.
    pub(crate) fn read(self) -> Result<Token, String> {
        let told = |why: windlass_kernel::Refusal| why.to_string();
        let actor = |text: &str| Actor::try_from(text.to_owned()).map_err(told);
        Ok(Token {
            id: TokenId::from_u128(self.id),
            digest: self.digest.try_into().map_err(|_| "a digest is not 32 bytes".to_owned())?,
            tenant: Token::tenant_of_word(self.tenant).map_err(told)?,
            principal: self.principal.parse().map_err(told)?,
            role: Role::parse(self.role).ok_or_else(|| format!("{} is no role", self.role))?,
            label: self.label.map(TokenLabel::new).transpose().map_err(told)?,
            created_at: self.created_at,
            created_by: actor(self.created_by)?,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            revoked_by: self.revoked_by.map(actor).transpose()?,
        })
    }
}
