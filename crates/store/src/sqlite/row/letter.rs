//! Dead letters and what people said about them: their rows.

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::{Approval, DeadLetter, DlqId, Timestamp};

use super::column::{json_of, text_of, time_of};
use crate::{
    commit::{Changes, after},
    job_row::json,
    read::Scope,
    sqlite::SqlResult,
};

const LETTER: &str = "SELECT letter FROM dlq_items WHERE id = ?1";

pub(crate) fn load_letter(connection: &Connection, id: DlqId) -> SqlResult<Option<DeadLetter>> {
    let mut statement = connection.prepare_cached(LETTER)?;
    let id = id.as_u128().to_be_bytes();
    statement.query_row([id], |row| json_of(row, 0)).optional()
}

const SAVE_LETTER: &str = "
    INSERT INTO dlq_items (id, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter,
        cause)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT DO UPDATE SET state = excluded.state, requeued_as = excluded.requeued_as,
        closed_at = excluded.closed_at, letter = excluded.letter";

const APPROVE: &str =
    "INSERT INTO approvals (dlq_id, step, principal, reason, at) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Writes dead letters, and what people said about them.
pub(crate) fn save(connection: &Connection, changes: &Changes) -> SqlResult<()> {
    for letter in after(&changes.letters) {
        save_letter(connection, letter)?;
    }
    for approval in &changes.approvals {
        connection.prepare_cached(APPROVE)?.execute(params![
            approval.dlq_id.as_u128().to_be_bytes(),
            approval.step.as_str(),
            approval.principal.as_str(),
            approval.reason,
            approval.at.as_micros(),
        ])?;
    }
    Ok(())
}

fn save_letter(connection: &Connection, letter: &DeadLetter) -> SqlResult<()> {
    connection.prepare_cached(SAVE_LETTER)?.execute(params![
        letter.id.as_u128().to_be_bytes(),
        letter.tenant.as_str(),
        letter.job_id.as_u128().to_be_bytes(),
        letter.state.as_str(),
        letter.failure.code,
        letter.created_at.as_micros(),
        letter.requeued_as.map(|id| id.as_u128().to_be_bytes()),
        letter.closed_at.map(Timestamp::as_micros),
        json(letter),
        letter.cause(),
    ])?;
    Ok(())
}

/// A dead letter as it stands.
pub(crate) fn read_letter(
    connection: &Connection,
    scope: &Scope,
    id: DlqId,
) -> SqlResult<Option<DeadLetter>> {
    let letter = load_letter(connection, id)?;
    Ok(letter.filter(|letter| scope.admits(&letter.tenant)))
}

const APPROVALS: &str = "
    SELECT principal, step, reason, a.at FROM approvals a JOIN dlq_items d ON d.id = a.dlq_id
    WHERE a.dlq_id = ?1 AND (?2 IS NULL OR d.tenant = ?2) ORDER BY a.at, step DESC";

/// What people said about a dead letter, in order.
pub(crate) fn read_approvals(
    connection: &Connection,
    scope: &Scope,
    dlq_id: DlqId,
) -> SqlResult<Vec<Approval>> {
    let mut statement = connection.prepare_cached(APPROVALS)?;
    let id = dlq_id.as_u128().to_be_bytes();
    let rows = statement.query_map(params![id, scope.word()], |row| {
        let step = row.get_ref(1)?.as_str()?;
        let step = windlass_kernel::letter::ApprovalStep::parse(step);
        Ok(Approval {
            dlq_id,
            principal: text_of(row, 0)?,
            step: step.ok_or(rusqlite::Error::InvalidQuery)?,
            reason: row.get(2)?,
            at: time_of(row, 3)?,
        })
    })?;
    rows.collect()
}
