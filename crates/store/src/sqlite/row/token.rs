//! Tokens: their rows.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use windlass_kernel::{Timestamp, Token, TokenId, TokenLabel};

use super::column::{time_of, time_or_none, u128_of, unreadable};
use crate::{
    commit::{Changes, Needs, after},
    read::{Scope, TOKENS_MAX},
    sqlite::{SqlResult, write::work::Work},
    token_row::TokenRow,
};

/// The columns of a token, in the order of [`token_of`].
macro_rules! token_columns {
    () => {
        "id, digest, tenant, principal, role, label, created_at, created_by, expires_at,
         revoked_at, revoked_by"
    };
}

fn token_of(row: &Row<'_>) -> SqlResult<Token> {
    let text = |column: usize| -> SqlResult<&str> { Ok(row.get_ref(column)?.as_str()?) };
    let read = TokenRow {
        id: u128_of(row, 0)?,
        digest: row.get_ref(1)?.as_blob()?,
        tenant: text(2)?,
        principal: text(3)?,
        role: text(4)?,
        label: row.get_ref(5)?.as_str_or_null()?,
        created_at: time_of(row, 6)?,
        created_by: text(7)?,
        expires_at: time_or_none(row, 8)?,
        revoked_at: time_or_none(row, 9)?,
        revoked_by: row.get_ref(10)?.as_str_or_null()?,
    };
    read.read().map_err(|why| unreadable(0, why))
}

const TOKEN: &str = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id = ?1");

/// A token as it stands.
pub(crate) fn read_token(connection: &Connection, id: TokenId) -> SqlResult<Option<Token>> {
    let mut statement = connection.prepare_cached(TOKEN)?;
    statement.query_row([id.as_u128().to_be_bytes()], token_of).optional()
}

/// Ids grow with time.
const TOKENS: &str = concat!(
    "SELECT ",
    token_columns!(),
    " FROM tokens WHERE ?1 IS NULL OR tenant = ?1 ORDER BY id DESC LIMIT ?2"
);

/// The tokens of a scope, newest first.
pub(crate) fn read_tokens(connection: &Connection, scope: &Scope) -> SqlResult<Vec<Token>> {
    let mut statement = connection.prepare_cached(TOKENS)?;
    let rows = statement.query_map(params![scope.word(), TOKENS_MAX], token_of)?;
    rows.collect()
}

const ADMINS: &str = concat!(
    "SELECT ",
    token_columns!(),
    " FROM tokens WHERE role = 'admin' AND revoked_at IS NULL"
);

/// Loads the tokens that a batch names, and those of admins if one is to be revoked.
pub(crate) fn load(connection: &Connection, needs: &Needs, work: &mut Work<'_>) -> SqlResult<()> {
    if needs.admins {
        let mut statement = connection.prepare_cached(ADMINS)?;
        for admin in statement.query_map([], token_of)? {
            work.set.add_token(admin?);
        }
        // Tokens of plans in flight are newer than those that are stored: some are no admins any more.
        let flying = work.flying().iter().flat_map(|plan| plan.changes.tokens.values());
        for put in flying {
            put.after.iter().for_each(|token| work.set.add_token(token.clone()));
        }
    }
    for id in &needs.tokens {
        let token = work.row(|changes| &changes.tokens, id, || read_token(connection, *id))?;
        if let Some(token) = token {
            work.set.add_token(token);
        }
    }
    Ok(())
}

/// A token never changes, but for its end.
const SAVE: &str = concat!(
    "INSERT INTO tokens (",
    token_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
     ON CONFLICT DO UPDATE SET revoked_at = excluded.revoked_at, revoked_by = excluded.revoked_by"
);

/// Saves what became of tokens.
pub(crate) fn save(connection: &Connection, changes: &Changes) -> SqlResult<()> {
    for token in after(&changes.tokens) {
        connection.prepare_cached(SAVE)?.execute(params![
            token.id.as_u128().to_be_bytes(),
            token.digest,
            token.tenant_word(),
            token.principal.as_str(),
            token.role.as_str(),
            token.label.as_ref().map(TokenLabel::as_str),
            token.created_at.as_micros(),
            token.created_by.to_string(),
            token.expires_at.map(Timestamp::as_micros),
            token.revoked_at.map(Timestamp::as_micros),
            token.revoked_by.as_ref().map(ToString::to_string),
        ])?;
    }
    Ok(())
}
