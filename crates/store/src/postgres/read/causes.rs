//! Causes: dead letters that failed for one reason are counted together.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{DeadLetter, DlqId, LetterState};

use super::list;
use crate::{
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run, run_one},
            types::Uuid,
        },
        row::column::{json_of, number, time_of},
    },
    read::{LetterGroup, LetterGroups, Scope},
};

/// Served by the index `dlq_items_causes`, which has all that is asked for.
const GROUPS: &str = "
    SELECT code, cause, letters, first_at, last_at, (
        SELECT id FROM dlq_items
        WHERE tenant = $1 AND state = $2 AND code = counted.code AND cause = counted.cause
        ORDER BY created_at DESC, id DESC LIMIT 1)
    FROM (
        SELECT code, cause, count(*) AS letters, min(created_at) AS first_at, max(created_at) AS last_at
        FROM dlq_items WHERE tenant = $1 AND state = $2 AND cause IS NOT NULL
        GROUP BY code, cause ORDER BY count(*) DESC LIMIT $3) AS counted";

const LETTERS: &str = "SELECT count(*) FROM dlq_items WHERE tenant = $1 AND state = $2";

/// Letters that an older version wrote while it served beside this one. Served by the index `dlq_items_no_cause`.
const WITHOUT: &str = "
    SELECT letter FROM dlq_items
    WHERE cause IS NULL AND tenant = $1 AND state = $2 ORDER BY id DESC LIMIT 10000";

/// Letters in a state by code and cause.
pub(crate) async fn read_groups(
    client: &ClientWrapper,
    scope: &Scope,
    state: LetterState,
) -> PgResult<LetterGroups> {
    let (mut groups, mut letters) = (Vec::new(), 0);
    let most = i64::try_from(LetterGroups::MAX + 1).unwrap_or(i64::MAX);
    for tenant in list::tenants(client, scope).await? {
        let of = |sql| Ask::new(sql).with(tenant.to_string()).with(state.as_str());
        let found = run(client, &[of(GROUPS).with(most), of(WITHOUT), of(LETTERS)]).await?;
        for row in &found[0] {
            groups.push(group_of(row)?);
        }
        for row in &found[1] {
            groups.push(LetterGroup::of(&json_of::<DeadLetter>(row, 0)?));
        }
        letters += number(&found[2][0], 0)?;
    }
    Ok(LetterGroups::of(groups, letters))
}

fn group_of(row: &Row) -> PgResult<LetterGroup> {
    Ok(LetterGroup {
        code: row.try_get(0)?,
        cause: row.try_get(1)?,
        count: number(row, 2)?,
        first_at: time_of(row, 3)?,
        last_at: time_of(row, 4)?,
        newest: DlqId::from_u128(row.try_get::<_, Uuid>(5)?.0),
    })
}

const ANY_WITHOUT: &str = "SELECT letter FROM dlq_items WHERE cause IS NULL LIMIT 500";
const SET: &str = "
    UPDATE dlq_items SET cause = made.cause FROM unnest($1::uuid[], $2::text[]) AS made (id, cause)
    WHERE dlq_items.id = made.id AND dlq_items.cause IS NULL";

/// Makes the causes of some letters that an earlier version wrote. Are there more?
pub(crate) async fn make(client: &ClientWrapper) -> PgResult<bool> {
    let (mut ids, mut causes) = (Vec::new(), Vec::new());
    for row in run_one(client, Ask::new(ANY_WITHOUT)).await? {
        let letter: DeadLetter = json_of(&row, 0)?;
        ids.push(Uuid(letter.id.as_u128()));
        causes.push(letter.cause());
    }
    if ids.is_empty() {
        return Ok(false);
    }
    run_one(client, Ask::new(SET).with(ids).with(causes)).await?;
    Ok(true)
}
