//! Tokens: their rows, locked for the commit that decides about them.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{Token, TokenId};

use super::column::{time_of, time_or_none};
use crate::{
    commit::{Changes, Needs, Put},
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::{Time, Uuid},
        },
        read::job::whose,
        write::work::Work,
    },
    read::{Scope, TOKENS_MAX},
    token_row::TokenRow,
};

/// The columns of a token, in the order of [`token_of`].
macro_rules! token_columns {
    () => {
        "id, digest, tenant, principal, role, label, created_at, created_by, expires_at,
         revoked_at, revoked_by"
    };
}

fn token_of(row: &Row) -> PgResult<Token> {
    let read = TokenRow {
        id: row.try_get::<_, Uuid>(0)?.0,
        digest: row.try_get(1)?,
        tenant: row.try_get(2)?,
        principal: row.try_get(3)?,
        role: row.try_get(4)?,
        label: row.try_get(5)?,
        created_at: time_of(row, 6)?,
        created_by: row.try_get(7)?,
        expires_at: time_or_none(row, 8)?,
        revoked_at: time_or_none(row, 9)?,
        revoked_by: row.try_get(10)?,
    };
    read.read().map_err(|why| Failure::damaged(format!("a token: {why}")))
}

const TOKEN: &str = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id = $1");

/// A token as it stands.
pub(crate) async fn read_token(client: &ClientWrapper, id: TokenId) -> PgResult<Option<Token>> {
    let rows = run_one(client, Ask::new(TOKEN).with(Uuid(id.as_u128()))).await?;
    rows.first().map(token_of).transpose()
}

/// Ids grow with time.
const TOKENS: &str = concat!(
    "SELECT ",
    token_columns!(),
    " FROM tokens WHERE $1::text IS NULL OR tenant = $1 ORDER BY id DESC LIMIT $2"
);

/// The tokens of a scope, newest first.
pub(crate) async fn read_tokens(client: &ClientWrapper, scope: &Scope) -> PgResult<Vec<Token>> {
    let ask = Ask::new(TOKENS).with(whose(scope)).with(TOKENS_MAX);
    run_one(client, ask).await?.iter().map(token_of).collect()
}

/// In the order of their ids, so that two commits cannot deadlock.
const LOCKED: &str = concat!(
    "SELECT ",
    token_columns!(),
    " FROM tokens WHERE id = ANY($1) OR $2 AND role = 'admin' AND revoked_at IS NULL
      ORDER BY id FOR UPDATE"
);

/// Locks the tokens that these writes name, if they name some, and those of admins if one is to be revoked: of two who
/// revoke the last two, the second sees what the first has done.
pub(crate) fn ask_for(needs: &Needs, asks: &mut Vec<Ask>) {
    if !needs.tokens.is_empty() {
        let ids: Vec<Uuid> = needs.tokens.iter().map(|id| Uuid(id.as_u128())).collect();
        asks.push(Ask::new(LOCKED).with(ids).with(needs.admins));
    }
}

/// Takes the rows that were asked for.
pub(crate) fn take(
    needs: &Needs,
    rows: &mut impl Iterator<Item = Vec<Row>>,
    work: &mut Work<'_>,
) -> PgResult<()> {
    if !needs.tokens.is_empty() {
        for row in rows.next().unwrap_or_default() {
            work.set.add_token(token_of(&row)?);
        }
    }
    Ok(())
}

const INSERT: &str = concat!(
    "INSERT INTO tokens (",
    token_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
);

/// A token never changes, but for its end. The row is locked, and nothing rests on the lock alone.
const REVOKE: &str = "
    WITH done AS (
        UPDATE tokens SET revoked_at = $2, revoked_by = $3
        WHERE id = $1 AND revoked_at IS NULL RETURNING 1)
    SELECT expect((SELECT count(*) FROM done), 1)";

/// The statements that save what became of tokens.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    for Put { before, after } in changes.tokens.values() {
        let Some(token) = after else { continue };
        let id = Uuid(token.id.as_u128());
        let (revoked_at, revoked_by) =
            (token.revoked_at.map(Time), token.revoked_by.as_ref().map(ToString::to_string));
        asks.push(if before.is_none() {
            Ask::new(INSERT)
                .with(id)
                .with(token.digest.to_vec())
                .with(token.tenant_word().to_owned())
                .with(token.principal.as_str().to_owned())
                .with(token.role.as_str())
                .with(token.label.as_ref().map(|label| label.as_str().to_owned()))
                .with(Time(token.created_at))
                .with(token.created_by.to_string())
                .with(token.expires_at.map(Time))
                .with(revoked_at)
                .with(revoked_by)
        } else {
            Ask::new(REVOKE).with(id).with(revoked_at).with(revoked_by)
        });
    }
}
