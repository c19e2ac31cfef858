//! Dead letters and what people said about them: their rows.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{Approval, DeadLetter, DlqId, letter::ApprovalStep};

use super::{
    column::{json_of, text_of, time_of},
    task::own_task,
};
use crate::{
    commit::{Changes, Needs, after},
    job_row::json,
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run, run_one},
            types::{Time, Uuid},
        },
        read::job::whose,
        write::first_load::Locking,
    },
    read::Scope,
};

/// Letters by id, and those of tasks whose last job failed: of named ones, served by the index `jobs_task`, and of jobs
/// that named none. A letter has the id of its job.
macro_rules! letters {
    ($waits:literal) => {
        concat!(
            "SELECT letter FROM dlq_items WHERE id = ANY($1
                || ARRAY(
                    SELECT j.id FROM unnest($2::text[], $3::text[]) AS k (tenant, task_id), LATERAL (
                        SELECT id, state FROM jobs
                        WHERE jobs.tenant = k.tenant AND jobs.task_id = k.task_id
                            AND jobs.task_id IS NOT NULL
                        ORDER BY attempt DESC LIMIT 1) j
                    WHERE j.state = 'failed')
                || ARRAY(
                    SELECT id FROM jobs WHERE id = ANY($4) AND tenant = ANY($2) AND state = 'failed'))
             ORDER BY id FOR UPDATE",
            $waits
        )
    };
}

const LETTERS: &str = letters!("");

const LETTERS_NO_WAIT: &str = letters!(" NOWAIT");

pub(crate) fn ask_letters(needs: &Needs, locking: Locking) -> Ask {
    let letters = if locking == Locking::NoWait { LETTERS_NO_WAIT } else { LETTERS };
    let ids: Vec<Uuid> = needs.letters.iter().map(|id| Uuid(id.as_u128())).collect();
    let tenants = needs.reruns.iter().map(|(tenant, _)| tenant.as_str().to_owned());
    let tasks = needs.reruns.iter().map(|(_, task)| task.as_str().to_owned());
    let own = needs.reruns.iter().filter_map(|(_, task)| own_task(task));
    Ask::new(letters)
        .with(ids)
        .with(tenants.collect::<Vec<_>>())
        .with(tasks.collect::<Vec<_>>())
        .with(own.collect::<Vec<_>>())
}

const LETTER: &str = "SELECT letter FROM dlq_items WHERE id = $1";

pub(crate) async fn load_letter(client: &ClientWrapper, id: DlqId) -> PgResult<Option<DeadLetter>> {
    let rows = run(client, &[Ask::new(LETTER).with(Uuid(id.as_u128()))]).await?.remove(0);
    rows.first().map(|row| json_of(row, 0)).transpose()
}

const SAVE_LETTER: &str = "
    INSERT INTO dlq_items (id, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter,
        cause)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (id) DO UPDATE SET state = excluded.state, requeued_as = excluded.requeued_as,
        closed_at = excluded.closed_at, letter = excluded.letter";

const APPROVE: &str =
    "INSERT INTO approvals (dlq_id, step, principal, reason, at) VALUES ($1, $2, $3, $4, $5)";

/// The statements that save dead letters, and what people said about them.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    for letter in after(&changes.letters) {
        asks.push(
            Ask::new(SAVE_LETTER)
                .with(Uuid(letter.id.as_u128()))
                .with(letter.tenant.as_str().to_owned())
                .with(Uuid(letter.job_id.as_u128()))
                .with(letter.state.as_str())
                .with(letter.failure.code.clone())
                .with(Time(letter.created_at))
                .with(letter.requeued_as.map(|id| Uuid(id.as_u128())))
                .with(letter.closed_at.map(Time))
                .with(json(letter))
                .with(letter.cause()),
        );
    }
    for approval in &changes.approvals {
        asks.push(
            Ask::new(APPROVE)
                .with(Uuid(approval.dlq_id.as_u128()))
                .with(approval.step.as_str())
                .with(approval.principal.as_str().to_owned())
                .with(approval.reason.clone())
                .with(Time(approval.at)),
        );
    }
}

/// A dead letter as it stands.
pub(crate) async fn read_letter(
    client: &ClientWrapper,
    scope: &Scope,
    id: DlqId,
) -> PgResult<Option<DeadLetter>> {
    let letter = load_letter(client, id).await?;
    Ok(letter.filter(|letter| scope.admits(&letter.tenant)))
}

const APPROVALS: &str = "
    SELECT a.principal, a.step, a.reason, a.at FROM approvals a JOIN dlq_items d ON d.id = a.dlq_id
    WHERE a.dlq_id = $1 AND ($2::text IS NULL OR d.tenant = $2) ORDER BY a.at, a.step DESC";

/// What people said about a dead letter, in order.
pub(crate) async fn read_approvals(
    client: &ClientWrapper,
    scope: &Scope,
    dlq_id: DlqId,
) -> PgResult<Vec<Approval>> {
    let ask = Ask::new(APPROVALS).with(Uuid(dlq_id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
    let approval = |row: &Row| {
        let step = ApprovalStep::parse(row.try_get(1)?);
        Ok(Approval {
            dlq_id,
            principal: text_of(row, 0)?,
            step: step.ok_or_else(|| Failure::damaged("it is no step"))?,
            reason: row.try_get(2)?,
            at: time_of(row, 3)?,
        })
    };
    rows.iter().map(approval).collect()
}
