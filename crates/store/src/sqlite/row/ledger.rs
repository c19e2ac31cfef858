//! The ledger of a job: its steps, its mail, and what was handed in late.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use windlass_kernel::{
    JobId,
    ids::StepKey,
    ledger::{Effect, Mail, MailName, Step},
};

use super::{
    column::{text_of, time_of, unreadable},
    job::Place,
};
use crate::{
    IdMap,
    commit::{self, Changes, Needs, after},
    ledger_row::{MailColumns, StepColumns, effect_of, outcome_text},
    read::{Ledger, Scope},
    sqlite::{SqlResult, write::work::Work},
};

/// Loads the rows of ledgers that a commit needs, after the jobs that they belong to.
pub(crate) fn load(connection: &Connection, needs: &Needs, work: &mut Work<'_>) -> SqlResult<()> {
    for (id, key) in &needs.steps {
        let Some(seq) = place_of(work, *id) else { continue };
        let load = || load_step(connection, seq, *id, key);
        if let Some(step) = work.row(|changes| &changes.steps, &(*id, key.clone()), load)? {
            work.set.add_step(step);
        }
    }
    for (id, name) in &needs.mails {
        let Some(seq) = place_of(work, *id) else { continue };
        let load = || load_mail(connection, seq, *id, name);
        if let Some(mail) = work.row(|changes| &changes.mails, &(*id, name.clone()), load)? {
            work.set.add_mail(mail);
        }
    }
    for (id, key) in &needs.effects {
        let Some(seq) = place_of(work, *id) else { continue };
        let load = || load_effect(connection, seq, *id, key);
        if let Some(effect) = work.row(|changes| &changes.effects, &(*id, key.clone()), load)? {
            work.set.add_effect(effect);
        }
    }
    Ok(())
}

/// Where a job stands whose ledger is not empty.
fn place_of(work: &mut Work<'_>, id: JobId) -> Option<i64> {
    work.set.job(id).filter(|job| !job.ledger.is_empty())?;
    work.set.place_mut(id).map(|place| place.seq)
}

const STEP: &str = "SELECT key, number, step, output FROM steps WHERE seq = ?1 AND key = ?2";

fn load_step(
    connection: &Connection,
    seq: i64,
    id: JobId,
    key: &StepKey,
) -> SqlResult<Option<Step>> {
    let mut statement = connection.prepare_cached(STEP)?;
    statement.query_row(params![seq, key.as_str()], |row| step_of(row, id)).optional()
}

fn step_of(row: &Row<'_>, id: JobId) -> SqlResult<Step> {
    let columns = StepColumns { number: row.get(1)?, step: row.get(2)?, output: row.get(3)? };
    columns.step(id, text_of(row, 0)?).map_err(|why| unreadable(2, why))
}

const MAIL: &str = "SELECT name, number, at, sender, sort, content, taken FROM signals WHERE seq = ?1 AND name = ?2";

fn load_mail(
    connection: &Connection,
    seq: i64,
    id: JobId,
    name: &MailName,
) -> SqlResult<Option<Mail>> {
    let mut statement = connection.prepare_cached(MAIL)?;
    statement.query_row(params![seq, name.text()], |row| mail_of(row, id)).optional()
}

fn mail_of(row: &Row<'_>, id: JobId) -> SqlResult<Mail> {
    let columns = MailColumns {
        name: row.get(0)?,
        number: row.get(1)?,
        at: time_of(row, 2)?,
        sender: row.get(3)?,
        sort: row.get(4)?,
        content: row.get(5)?,
        taken: row.get(6)?,
    };
    columns.mail(id).map_err(|why| unreadable(5, why))
}

const EFFECT: &str =
    "SELECT key, epoch, at, failed, outcome FROM effects WHERE seq = ?1 AND key = ?2";

fn load_effect(
    connection: &Connection,
    seq: i64,
    id: JobId,
    key: &StepKey,
) -> SqlResult<Option<Effect>> {
    let mut statement = connection.prepare_cached(EFFECT)?;
    statement.query_row(params![seq, key.as_str()], |row| effect_row(row, id)).optional()
}

fn effect_row(row: &Row<'_>, id: JobId) -> SqlResult<Effect> {
    let outcome: String = row.get(4)?;
    let effect =
        effect_of(id, text_of(row, 0)?, row.get(1)?, time_of(row, 2)?, row.get(3)?, &outcome);
    effect.map_err(|why| unreadable(4, why))
}

const SAVE_STEP: &str = "
    INSERT INTO steps (seq, key, number, step, output) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET number = excluded.number, step = excluded.step,
        output = excluded.output";

const SAVE_MAIL: &str = "
    INSERT INTO signals (seq, name, number, at, sender, sort, content, taken)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET taken = excluded.taken";

const SAVE_EFFECT: &str = "
    INSERT INTO effects (seq, key, epoch, at, failed, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Writes what becomes of ledgers.
pub(crate) fn save(
    connection: &Connection,
    changes: &Changes,
    rows: &IdMap<commit::Row<Place>>,
) -> SqlResult<()> {
    for step in after(&changes.steps) {
        let StepColumns { number, step: document, output } = StepColumns::of(step);
        let seq = rows[&step.job_id].place.seq;
        let row = params![seq, step.key.as_str(), number, document, output];
        connection.prepare_cached(SAVE_STEP)?.execute(row)?;
    }
    for mail in after(&changes.mails) {
        let it = MailColumns::of(mail);
        let seq = rows[&mail.job_id].place.seq;
        let at = it.at.as_micros();
        let row = params![seq, it.name, it.number, at, it.sender, it.sort, it.content, it.taken];
        connection.prepare_cached(SAVE_MAIL)?.execute(row)?;
    }
    for effect in after(&changes.effects) {
        connection.prepare_cached(SAVE_EFFECT)?.execute(params![
            rows[&effect.job_id].place.seq,
            effect.key.as_str(),
            effect.epoch.get(),
            effect.at.as_micros(),
            effect.outcome.is_failed(),
            outcome_text(&effect.outcome),
        ])?;
    }
    Ok(())
}

const SEQ: &str = "SELECT seq FROM jobs WHERE id = ?1 AND (?2 IS NULL OR tenant = ?2)";

/// Steps after a record, and those that are not on record.
const STEPS: &str = "
    SELECT key, number, step, output FROM steps
    WHERE seq = ?1 AND (number IS NULL OR number >= ?2)";

const MAILS: &str = "
    SELECT name, number, at, sender, sort, content, taken FROM signals WHERE seq = ?1 ORDER BY number";

const EFFECTS: &str = "SELECT key, epoch, at, failed, outcome FROM effects WHERE seq = ?1";

/// The ledger of a job, from the record of this number on. None, if there is no such job.
pub(crate) fn read_ledger(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
    from: u32,
) -> SqlResult<Option<Ledger>> {
    let mut statement = connection.prepare_cached(SEQ)?;
    let job = params![id.as_u128().to_be_bytes(), scope.word()];
    let seq: Option<i64> = statement.query_row(job, |row| row.get(0)).optional()?;
    let Some(seq) = seq else { return Ok(None) };
    let mut statement = connection.prepare_cached(STEPS)?;
    let steps = statement.query_map(params![seq, from], |row| step_of(row, id))?;
    let steps = steps.collect::<SqlResult<_>>()?;
    let mut statement = connection.prepare_cached(MAILS)?;
    let mails = statement.query_map([seq], |row| mail_of(row, id))?.collect::<SqlResult<_>>()?;
    let mut statement = connection.prepare_cached(EFFECTS)?;
    let effects = statement.query_map([seq], |row| effect_row(row, id))?;
    let effects = effects.collect::<SqlResult<_>>()?;
    Ok(Some(Ledger::new(steps, mails, effects)))
}
