//! Thins the log: takes out the lines of jobs that retention has forgotten, old results of the inbox and old notes.
//!
//! A row that speaks of nobody else is deleted. A row in which half of the lines or more may go is written
//! again without them: each leaves `null` in its place, so that the others keep their numbers and their
//! bytes, and with them the chains of their jobs. Only lines of jobs in `pruned` are ever taken, and lines of
//! the inbox together with the results that they tell, and notes. The last row stays as it is: event numbers must not
//! come again.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use windlass_kernel::{JobId, Timestamp};

use super::prune::is_pruned;
use crate::{
    inbox, log,
    sqlite::{SqlResult, row::column::time_of},
};

/// How many lines a step looks at. One row is looked at in any case.
const LINES_MAX: i64 = 5_000;

/// What a step did.
pub(crate) struct Thinned {
    /// Rows that are gone.
    pub(crate) deleted: u64,
    /// Where the next step goes on; none at the end.
    pub(crate) after: Option<i64>,
}

const NEXT: &str = "
    SELECT id, count, at, events FROM log
    WHERE id > ?1 AND id <= ?2 AND id < (SELECT max(id) FROM log) ORDER BY id LIMIT 1";

/// Looks at rows from `after` to `until`. Results of the inbox go if they are not newer than `newest_result`.
pub(crate) fn thin(
    connection: &Connection,
    after: i64,
    until: i64,
    newest_result: Timestamp,
) -> SqlResult<Thinned> {
    let mut next = connection.prepare_cached(NEXT)?;
    let (mut deleted, mut seen, mut whole_from) = (0, 0, 0);
    let mut reached = after;
    let mut after = None;
    while let Some(row) = next.query_row([reached, until], log_row).optional()? {
        let (id, count) = (row.id, row.count);
        reached = id;
        seen += count;
        let change = look(connection, &row, row.at <= newest_result)?;
        match &change {
            Change::None => {}
            Change::Delete(_) => deleted += connection.prepare_cached(DELETE)?.execute([id])?,
            Change::Rewrite(text, _) => {
                connection.prepare_cached(REWRITE)?.execute(params![id, text])?;
            }
        }
        if let Change::Delete(gone) | Change::Rewrite(_, gone) = change {
            gone.forget(connection)?;
            whole_from = id + count;
        }
        if seen >= LINES_MAX {
            after = Some(id);
            break;
        }
    }
    if whole_from > 0 {
        connection.prepare_cached(SET_FEED_FROM)?.execute([whole_from])?;
    }
    Ok(Thinned { deleted: deleted as u64, after })
}

struct LogRow {
    id: i64,
    count: i64,
    at: Timestamp,
    text: String,
}

fn log_row(row: &Row<'_>) -> SqlResult<LogRow> {
    Ok(LogRow { id: row.get(0)?, count: row.get(1)?, at: time_of(row, 2)?, text: row.get(3)? })
}

const DELETE: &str = "DELETE FROM log WHERE id = ?1";
const REWRITE: &str = "UPDATE log SET events = ?2 WHERE id = ?1";
/// From this number on no event was ever taken out.
const SET_FEED_FROM: &str = "
    INSERT INTO meta (name, value) VALUES ('feed_from', ?1)
    ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)";

/// What becomes of a row.
enum Change {
    None,
    Delete(Gone),
    Rewrite(String, Gone),
}

/// What a row no longer speaks of.
#[derive(Default)]
struct Gone {
    jobs: BTreeSet<JobId>,
    /// Results of the inbox and notes, by the numbers of their events.
    results: Vec<i64>,
    /// The numbers of all events that it tells no more and that a person may have had a part in.
    by_people: Vec<i64>,
}

fn look(connection: &Connection, row: &LogRow, is_old: bool) -> SqlResult<Change> {
    // What cannot be read stays, for the checker to tell.
    let Ok(lines) = log::lines(&row.text) else { return Ok(Change::None) };
    let (mut gone, mut stay) = (Gone::default(), BTreeSet::new());
    let (mut lines_gone, mut lines_left) = (0, 0);
    for (number, line) in (row.id..).zip(&lines).filter(|(_, line)| line.get() != log::TAKEN) {
        lines_left += 1;
        if is_old && inbox::is_line(line.get()) {
            gone.results.push(number);
            gone.by_people.extend(log::names_a_person(line.get()).then_some(number));
            lines_gone += 1;
        }
        let Some(job) = log::job_of(line.get()) else { continue };
        let known = gone.jobs.contains(&job) || stay.contains(&job);
        if !known {
            let set = if is_pruned(connection, job)? { &mut gone.jobs } else { &mut stay };
            set.insert(job);
        }
        if gone.jobs.contains(&job) {
            gone.by_people.extend(log::names_a_person(line.get()).then_some(number));
            lines_gone += 1;
        }
    }
    if lines_gone == lines_left {
        return Ok(Change::Delete(gone));
    }
    // What goes by its age goes at once: otherwise each pass would look for it again.
    if lines_gone == 0 || lines_gone * 2 < lines_left && gone.results.is_empty() {
        return Ok(Change::None);
    }
    let text = log::without(&lines, |line| {
        is_old && inbox::is_line(line)
            || log::job_of(line).is_some_and(|job| gone.jobs.contains(&job))
    });
    Ok(Change::Rewrite(text, gone))
}

const FORGET_LAST: &str = "DELETE FROM pruned WHERE id = ?1 AND rows <= 1";
const FORGET_ONE: &str = "UPDATE pruned SET rows = rows - 1 WHERE id = ?1";
const FORGET_RESULT: &str = "DELETE FROM inbox_results WHERE event = ?1";
const FORGET_NOTE: &str = "DELETE FROM notes WHERE event = ?1";
const FORGET_ACT: &str = "DELETE FROM acts WHERE event = ?1";

impl Gone {
    /// One row less speaks of these jobs. After the last one nothing is left of them. A result goes with
    /// its line, and so does an act.
    fn forget(&self, connection: &Connection) -> SqlResult<()> {
        let mut last = connection.prepare_cached(FORGET_LAST)?;
        let mut one = connection.prepare_cached(FORGET_ONE)?;
        for job in &self.jobs {
            let id = job.as_u128().to_be_bytes();
            if last.execute([id])? == 0 {
                one.execute([id])?;
            }
        }
        let mut result = connection.prepare_cached(FORGET_RESULT)?;
        let mut note = connection.prepare_cached(FORGET_NOTE)?;
        for event in &self.results {
            if result.execute([event])? == 0 {
                note.execute([event])?;
            }
        }
        let mut act = connection.prepare_cached(FORGET_ACT)?;
        for event in &self.by_people {
            act.execute([event])?;
        }
        Ok(())
    }
}
