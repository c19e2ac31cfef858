//! Tokens, and who a caller is.

use serde::{Deserialize, Serialize};
use windlass_kernel::{Actor, Principal, Role, Timestamp, Token, TokenId, TokenLabel};

/// A token that is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenBody {
    /// As whom its bearer acts. Two people are two principals, not two tokens.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub principal: Principal,
    /// What its bearer may do: viewer, worker, operator or admin.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub role: Role,
    /// Whose things it opens, `*` for those of every tenant; the caller's own, if nothing is said.
    pub tenant: Option<String>,
    /// What people call it.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub label: Option<TokenLabel>,
    /// From when on it opens nothing.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub expires_at: Option<Timestamp>,
}

/// A token, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenDocument {
    /// Its id, which is no secret.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub token_id: TokenId,
    /// As whom its bearer acts.
    pub principal: String,
    /// What its bearer may do.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub role: Role,
    /// Whose things it opens.
    pub tenant: String,
    /// What people call it.
    pub label: Option<String>,
    /// When it was issued.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub created_at: Timestamp,
    /// Who issued it.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub created_by: Actor,
    /// From when on it opens nothing.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub revoked_at: Option<Timestamp>,
    /// Who revoked it.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub revoked_by: Option<Actor>,
    /// The token itself. It is shown this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl From<Token> for TokenDocument {
    fn from(token: Token) -> Self {
        Self {
            token_id: token.id,
            principal: token.principal.to_string(),
            role: token.role,
            tenant: token.tenant_word().to_owned(),
            label: token.label.as_ref().map(ToString::to_string),
            created_at: token.created_at,
            created_by: token.created_by,
            expires_at: token.expires_at,
            revoked_at: token.revoked_at,
            revoked_by: token.revoked_by,
            token: None,
        }
    }
}

/// Who calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Me {
    /// As whom the caller acts.
    pub principal: String,
    /// What the caller may do.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub role: Role,
    /// Whose things the caller can see; `*` for those of every tenant.
    pub tenant: String,
    /// What time it is, by the clock that decides.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub now: Timestamp,
}

/// A token that is to be revoked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RevokeBody {
    /// Why.
    pub reason: Option<String>,
    /// Revoke it even if it is the last that lets an admin in [default: false].
    pub force: bool,
}
