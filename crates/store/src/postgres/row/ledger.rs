//! The ledger of a job: its steps, its mail, and what was handed in late.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{
    JobId,
    ids::StepKey,
    ledger::{Effect, Mail, Step},
};

use super::column::{id_of, number, text_of, time_of};
use crate::{
    commit::{Changes, Needs, after},
    ledger_row::{MailColumns, StepColumns, effect_of, outcome_text},
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run},
            types::{Time, Uuid, signed},
        },
        read::job::whose,
        write::work::Work,
    },
    read::{Ledger, Scope},
};

const STEPS: &str = "
    SELECT s.job_id, s.key, s.number, s.step, s.output
    FROM steps s JOIN unnest($1::uuid[], $2::text[]) AS k (job_id, key)
        ON s.job_id = k.job_id AND s.key = k.key";

const MAILS: &str = "
    SELECT s.job_id, s.name, s.number, s.at, s.sender, s.sort, s.content, s.taken
    FROM signals s JOIN unnest($1::uuid[], $2::text[]) AS k (job_id, name)
        ON s.job_id = k.job_id AND s.name = k.name";

const EFFECTS: &str = "
    SELECT s.job_id, s.key, s.epoch, s.at, s.failed, s.outcome
    FROM effects s JOIN unnest($1::uuid[], $2::text[]) AS k (job_id, key)
        ON s.job_id = k.job_id AND s.key = k.key";

/// The statements that ask for rows of ledgers, after the jobs that they belong to are locked: nobody else writes them then.
pub(crate) fn ask_for(needs: &Needs, asks: &mut Vec<Ask>) {
    fn ask<'a>(sql: &'static str, keys: impl Iterator<Item = (&'a JobId, String)>) -> Option<Ask> {
        let (ids, keys): (Vec<Uuid>, Vec<String>) =
            keys.map(|(id, key)| (Uuid(id.as_u128()), key)).unzip();
        (!ids.is_empty()).then(|| Ask::new(sql).with(ids).with(keys))
    }
    let text = |(id, key): &'_ (JobId, StepKey)| (*id, key.as_str().to_owned());
    let steps: Vec<_> = needs.steps.iter().map(text).collect();
    let mails: Vec<_> = needs.mails.iter().map(|(id, name)| (*id, name.text())).collect();
    let effects: Vec<_> = needs.effects.iter().map(text).collect();
    for (sql, keys) in [(STEPS, steps), (MAILS, mails), (EFFECTS, effects)] {
        asks.extend(ask(sql, keys.iter().map(|(id, key)| (id, key.clone()))));
    }
}

/// Takes the rows, which come in the order of the statements.
pub(crate) fn take(
    needs: &Needs,
    rows: &mut impl Iterator<Item = Vec<Row>>,
    work: &mut Work<'_>,
) -> PgResult<()> {
    if !needs.steps.is_empty() {
        for row in rows.next().unwrap_or_default() {
            work.set.add_step(step_of(&row)?);
        }
    }
    if !needs.mails.is_empty() {
        for row in rows.next().unwrap_or_default() {
            work.set.add_mail(mail_of(&row)?);
        }
    }
    if !needs.effects.is_empty() {
        for row in rows.next().unwrap_or_default() {
            work.set.add_effect(effect_row(&row)?);
        }
    }
    Ok(())
}

fn step_of(row: &Row) -> PgResult<Step> {
    let record: Option<i32> = row.try_get(2)?;
    let columns = StepColumns {
        number: record.map(i32::cast_unsigned),
        step: row.try_get(3)?,
        output: row.try_get(4)?,
    };
    columns.step(id_of(row, 0)?, text_of(row, 1)?).map_err(Failure::damaged)
}

fn mail_of(row: &Row) -> PgResult<Mail> {
    let place: i32 = row.try_get(2)?;
    let columns = MailColumns {
        name: row.try_get(1)?,
        number: place.cast_unsigned(),
        at: time_of(row, 3)?,
        sender: row.try_get(4)?,
        sort: row.try_get(5)?,
        content: row.try_get(6)?,
        taken: row.try_get(7)?,
    };
    columns.mail(id_of(row, 0)?).map_err(Failure::damaged)
}

fn effect_row(row: &Row) -> PgResult<Effect> {
    let (failed, outcome): (bool, String) = (row.try_get(4)?, row.try_get(5)?);
    let (id, key, epoch) = (id_of(row, 0)?, text_of(row, 1)?, number(row, 2)?);
    effect_of(id, key, epoch, time_of(row, 3)?, failed, &outcome).map_err(Failure::damaged)
}

const SAVE_STEPS: &str = "
    INSERT INTO steps (job_id, key, number, step, output)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[])
    ON CONFLICT (job_id, key) DO UPDATE SET number = excluded.number, step = excluded.step,
        output = excluded.output";

const SAVE_MAILS: &str = "
    INSERT INTO signals (job_id, name, number, at, sender, sort, content, taken)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::timestamptz[], $5::text[],
        $6::text[], $7::text[], $8::boolean[])
    ON CONFLICT (job_id, name) DO UPDATE SET taken = excluded.taken";

const SAVE_EFFECTS: &str = "
    INSERT INTO effects (job_id, key, epoch, at, failed, outcome)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::timestamptz[], $5::boolean[],
        $6::text[])";

/// The statements that save what becomes of ledgers. The rows of their jobs are locked first, so two commits cannot
/// deadlock here.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    if !changes.steps.is_empty() {
        let all = || after(&changes.steps);
        let columns: Vec<StepColumns> = all().map(StepColumns::of).collect();
        let numbers = columns.iter().map(|it| it.number.map(u32::cast_signed));
        asks.push(
            Ask::new(SAVE_STEPS)
                .with(all().map(|it| Uuid(it.job_id.as_u128())).collect::<Vec<_>>())
                .with(all().map(|it| it.key.as_str().to_owned()).collect::<Vec<_>>())
                .with(numbers.collect::<Vec<_>>())
                .with(columns.iter().map(|it| it.step.clone()).collect::<Vec<_>>())
                .with(columns.iter().map(|it| it.output.clone()).collect::<Vec<_>>()),
        );
    }
    if !changes.mails.is_empty() {
        let all = || after(&changes.mails);
        let columns: Vec<MailColumns> = all().map(MailColumns::of).collect();
        let each = |part: fn(&MailColumns) -> String| -> Vec<String> {
            columns.iter().map(part).collect()
        };
        let numbers = columns.iter().map(|it| it.number.cast_signed());
        asks.push(
            Ask::new(SAVE_MAILS)
                .with(all().map(|it| Uuid(it.job_id.as_u128())).collect::<Vec<_>>())
                .with(each(|it| it.name.clone()))
                .with(numbers.collect::<Vec<_>>())
                .with(columns.iter().map(|it| Time(it.at)).collect::<Vec<_>>())
                .with(each(|it| it.sender.clone()))
                .with(each(|it| it.sort.clone()))
                .with(each(|it| it.content.clone()))
                .with(columns.iter().map(|it| it.taken).collect::<Vec<_>>()),
        );
    }
    if !changes.effects.is_empty() {
        let all = || after(&changes.effects);
        asks.push(
            Ask::new(SAVE_EFFECTS)
                .with(all().map(|it| Uuid(it.job_id.as_u128())).collect::<Vec<_>>())
                .with(all().map(|it| it.key.as_str().to_owned()).collect::<Vec<_>>())
                .with(all().map(|it| signed(it.epoch.get())).collect::<Vec<_>>())
                .with(all().map(|it| Time(it.at)).collect::<Vec<_>>())
                .with(all().map(|it| it.outcome.is_failed()).collect::<Vec<_>>())
                .with(all().map(|it| outcome_text(&it.outcome)).collect::<Vec<_>>()),
        );
    }
}

const HAS_JOB: &str = "SELECT 1 FROM jobs WHERE id = $1 AND ($2::text IS NULL OR tenant = $2)";

/// Steps after a record, and those that are not on record.
const ALL_STEPS: &str = "
    SELECT job_id, key, number, step, output FROM steps
    WHERE job_id = $1 AND (number IS NULL OR number >= $2)";

const ALL_MAILS: &str = "
    SELECT job_id, name, number, at, sender, sort, content, taken FROM signals
    WHERE job_id = $1 ORDER BY number";

const ALL_EFFECTS: &str =
    "SELECT job_id, key, epoch, at, failed, outcome FROM effects WHERE job_id = $1";

/// The ledger of a job, from the record of this number on. None, if there is no such job.
pub(crate) async fn read_ledger(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
    from: u32,
) -> PgResult<Option<Ledger>> {
    let of = |sql: &'static str| Ask::new(sql).with(Uuid(id.as_u128()));
    let asks = [
        of(HAS_JOB).with(whose(scope)),
        of(ALL_STEPS).with(from.cast_signed()),
        of(ALL_MAILS),
        of(ALL_EFFECTS),
    ];
    let found = run(client, &asks).await?;
    let [has_job, steps, mails, effects] = &found[..] else {
        return Err(Failure::damaged("four questions have four answers"));
    };
    if has_job.is_empty() {
        return Ok(None);
    }
    let steps = steps.iter().map(step_of).collect::<PgResult<_>>()?;
    let mails = mails.iter().map(mail_of).collect::<PgResult<_>>()?;
    let effects = effects.iter().map(effect_row).collect::<PgResult<_>>()?;
    Ok(Some(Ledger::new(steps, mails, effects)))
}
