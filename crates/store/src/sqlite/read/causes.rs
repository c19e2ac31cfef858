//! Causes: dead letters that failed for one reason are counted together.

use rusqlite::{Connection, Row, params};
use windlass_kernel::{DeadLetter, DlqId, LetterState};

use super::list;
use crate::{
    read::{LetterGroup, LetterGroups, Scope},
    sqlite::{
        SqlResult,
        row::column::{json_of, time_of, u128_of},
    },
};

/// Served by the index `dlq_items_causes`, which has all that is asked for.
const GROUPS: &str = "
    SELECT code, cause, letters, first_at, last_at, (
        SELECT id FROM dlq_items
        WHERE tenant = ?1 AND state = ?2 AND code = counted.code AND cause = counted.cause
        ORDER BY created_at DESC, id DESC LIMIT 1)
    FROM (
        SELECT code, cause, count(*) AS letters, min(created_at) AS first_at, max(created_at) AS last_at
        FROM dlq_items INDEXED BY dlq_items_causes WHERE tenant = ?1 AND state = ?2
        GROUP BY code, cause ORDER BY count(*) DESC LIMIT ?3) AS counted";

const LETTERS: &str = "SELECT count(*) FROM dlq_items WHERE tenant = ?1 AND state = ?2";

/// Letters in a state by code and cause.
pub(crate) fn read_groups(
    connection: &Connection,
    scope: &Scope,
    state: LetterState,
) -> SqlResult<LetterGroups> {
    let mut statement = connection.prepare_cached(GROUPS)?;
    let mut count = connection.prepare_cached(LETTERS)?;
    let (mut groups, mut letters) = (Vec::new(), 0);
    for tenant in list::tenants(connection, scope)? {
        let most = LetterGroups::MAX + 1;
        let rows = statement.query_map(params![tenant.as_str(), state.as_str(), most], group_of)?;
        groups.extend(rows.collect::<SqlResult<Vec<_>>>()?);
        let of = params![tenant.as_str(), state.as_str()];
        letters += count.query_row(of, |row| row.get::<_, u64>(0))?;
    }
    Ok(LetterGroups::of(groups, letters))
}

fn group_of(row: &Row<'_>) -> SqlResult<LetterGroup> {
    Ok(LetterGroup {
        code: row.get(0)?,
        cause: row.get(1)?,
        count: row.get(2)?,
        first_at: time_of(row, 3)?,
        last_at: time_of(row, 4)?,
        newest: DlqId::from_u128(u128_of(row, 5)?),
    })
}

const WITHOUT: &str = "SELECT letter FROM dlq_items WHERE cause IS NULL LIMIT 500";
const SET: &str = "UPDATE dlq_items SET cause = ?2 WHERE id = ?1";

/// Makes the causes of letters that an earlier version wrote.
pub(crate) fn make(connection: &mut Connection) -> SqlResult<()> {
    loop {
        let transaction = connection.transaction()?;
        let letters: Vec<DeadLetter> = transaction
            .prepare(WITHOUT)?
            .query_map([], |row| json_of(row, 0))?
            .collect::<SqlResult<_>>()?;
        for letter in &letters {
            let row = params![letter.id.as_u128().to_be_bytes(), letter.cause()];
            transaction.prepare_cached(SET)?.execute(row)?;
        }
        transaction.commit()?;
        if letters.is_empty() {
            return Ok(());
        }
    }
}
