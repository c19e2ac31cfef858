//! Thins the log: takes out the lines of jobs that retention has forgotten, old results of the inbox and old notes.
//!
//! A row that speaks of nobody else is deleted, and so is its place in the feed. A row in which half of the lines
//! or more may go is written again without them: each leaves `null` in its place, so that the others keep their
//! numbers and their bytes, and with them the chains of their jobs. Only lines of jobs in `pruned` are ever taken,
//! and lines of the inbox together with the results that they tell, and notes. The last row of the feed stays as it is: event
//! numbers must not come again.

use std::collections::{BTreeMap, BTreeSet};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{JobId, Timestamp};

use crate::{
    IdSet, inbox, log,
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run, run_one},
            types::Uuid,
        },
        row::column::{id_of, time_of},
    },
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

/// Rows in the order of the feed, until they have so many lines together. Each has one at least.
const NEXT: &str = "
    SELECT f.first, f.seq, f.count, f.at, log.events
    FROM (SELECT first, seq, count, at, sum(count) OVER (ORDER BY first) - count AS lines_before
          FROM (SELECT first, seq, count, at FROM feed
                WHERE first > $1 AND first <= $2 AND first < (SELECT max(first) FROM feed)
                ORDER BY first LIMIT $3) AS page) AS f
    LEFT JOIN log ON log.seq = f.seq
    WHERE f.lines_before < $3 ORDER BY f.first";

/// Looks at rows from `after` to `until`. Results of the inbox go if they are not newer than `newest_result`.
pub(crate) async fn thin(
    client: &ClientWrapper,
    after: i64,
    until: i64,
    newest_result: Timestamp,
) -> PgResult<Thinned> {
    let ask = Ask::new(NEXT).with(after).with(until).with(LINES_MAX);
    let rows = run_one(client, ask).await?;
    let rows = rows.iter().map(LogRow::of).collect::<PgResult<Vec<_>>>()?;
    let forgotten = load_forgotten(client, &rows).await?;
    let mut changes = Changes::default();
    for row in &rows {
        changes.look(row, row.at <= newest_result, &forgotten);
    }
    changes.save(client).await?;
    let seen: i64 = rows.iter().map(|row| i64::from(row.count)).sum();
    let after = rows.last().filter(|_| seen >= LINES_MAX).map(|row| row.first);
    Ok(Thinned { deleted: changes.deleted.len() as u64, after })
}

struct LogRow<'a> {
    /// The number of its first event.
    first: i64,
    seq: i64,
    count: i32,
    at: Timestamp,
    text: &'a str,
    /// None, if it cannot be read.
    lines: Option<Vec<&'a str>>,
}

impl<'a> LogRow<'a> {
    fn of(row: &'a Row) -> PgResult<Self> {
        let text = row.try_get::<_, Option<&str>>(4)?.unwrap_or_default();
        let lines = log::lines(text).ok();
        let lines = lines.map(|lines| lines.iter().map(|line| line.get()).collect());
        let (first, seq, count) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Self { first, seq, count, at: time_of(row, 3)?, text, lines })
    }
}

const FORGOTTEN: &str = "SELECT id FROM pruned WHERE id = ANY($1)";

/// Those of the jobs that these rows speak of that retention has taken.
async fn load_forgotten(client: &ClientWrapper, rows: &[LogRow<'_>]) -> PgResult<IdSet> {
    let lines = rows.iter().filter_map(|row| row.lines.as_ref()).flatten();
    let jobs: BTreeSet<JobId> = lines.filter_map(|line| log::job_of(line)).collect();
    let jobs: Vec<Uuid> = jobs.into_iter().map(|id| Uuid(id.as_u128())).collect();
    let rows = run_one(client, Ask::new(FORGOTTEN).with(jobs)).await?;
    rows.iter().map(|row| id_of(row, 0)).collect()
}

/// What becomes of the rows of a step.
#[derive(Default)]
struct Changes {
    /// Rows that go.
    deleted: Vec<i64>,
    /// Rows that are written again, with their new text.
    rewritten: Vec<i64>,
    texts: Vec<String>,
    /// How many rows less speak of each of these jobs.
    forgotten: BTreeMap<JobId, i32>,
    /// Results of the inbox, and notes, that go with their lines: where they are told.
    result_seqs: Vec<i64>,
    result_places: Vec<i32>,
    /// Events that go and that a person may have had a part in.
    by_people: Vec<i64>,
    /// From this number on no event is taken out.
    whole_from: i64,
}

const DELETE: [&str; 2] =
    ["DELETE FROM log WHERE seq = ANY($1)", "DELETE FROM feed WHERE seq = ANY($1)"];
const REWRITE: &str = "
    UPDATE log SET events = v.events FROM unnest($1::bigint[], $2::text[]) AS v (seq, events)
    WHERE log.seq = v.seq";
/// After the last row nothing is left of a job.
const FORGET_LAST: &str = "
    DELETE FROM pruned USING unnest($1::uuid[], $2::int[]) AS v (id, rows)
    WHERE pruned.id = v.id AND pruned.rows <= v.rows";
const FORGET_SOME: &str = "
    UPDATE pruned SET rows = pruned.rows - v.rows FROM unnest($1::uuid[], $2::int[]) AS v (id, rows)
    WHERE pruned.id = v.id";
const FORGET_RESULTS: &str = "
    DELETE FROM inbox_results r USING unnest($1::bigint[], $2::int[]) AS v (seq, place)
    WHERE r.seq = v.seq AND r.place = v.place";
const FORGET_NOTES: &str = "
    DELETE FROM notes n USING unnest($1::bigint[], $2::int[]) AS v (seq, place)
    WHERE n.seq = v.seq AND n.place = v.place";
const FORGET_ACTS: &str = "DELETE FROM acts WHERE event = ANY($1)";
/// From this number on no event was ever taken out.
const SET_FEED_FROM: &str = "
    UPDATE meta SET value = greatest(value::bigint, $1) WHERE name = 'feed_from'";

impl Changes {
    fn look(&mut self, row: &LogRow<'_>, is_old: bool, forgotten: &IdSet) {
        // What cannot be read stays, for the checker to tell.
        let Some(lines) = &row.lines else { return };
        let is_told = |line: &str| is_old && inbox::is_line(line);
        let goes = |line: &str| {
            is_told(line) || log::job_of(line).is_some_and(|job| forgotten.contains(&job))
        };
        let left = lines.iter().filter(|line| **line != log::TAKEN).count();
        let gone = lines.iter().filter(|line| goes(line)).count();
        if gone == left {
            self.deleted.push(row.seq);
        // What goes by its age goes at once: otherwise each pass would look for it again.
        } else if gone > 0 && (gone * 2 >= left || lines.iter().any(|line| is_told(line))) {
            let all = log::lines(row.text).expect("it was just read");
            self.rewritten.push(row.seq);
            self.texts.push(log::without(&all, goes));
        } else {
            return;
        }
        let jobs: BTreeSet<JobId> = lines.iter().filter_map(|line| log::job_of(line)).collect();
        for job in jobs.into_iter().filter(|job| forgotten.contains(job)) {
            *self.forgotten.entry(job).or_default() += 1;
        }
        for (place, _) in (0..).zip(lines).filter(|(_, line)| is_told(line)) {
            self.result_seqs.push(row.seq);
            self.result_places.push(place);
        }
        for (event, _) in
            (row.first..).zip(lines).filter(|(_, line)| goes(line) && log::names_a_person(line))
        {
            self.by_people.push(event);
        }
        self.whole_from = row.first + i64::from(row.count);
    }

    async fn save(&self, client: &ClientWrapper) -> PgResult<()> {
        if self.whole_from == 0 {
            return Ok(());
        }
        let ids: Vec<Uuid> = self.forgotten.keys().map(|id| Uuid(id.as_u128())).collect();
        let rows: Vec<i32> = self.forgotten.values().copied().collect();
        let mut asks: Vec<Ask> =
            DELETE.iter().map(|sql| Ask::new(sql).with(self.deleted.clone())).collect();
        asks.extend([
            Ask::new(REWRITE).with(self.rewritten.clone()).with(self.texts.clone()),
            Ask::new(FORGET_LAST).with(ids.clone()).with(rows.clone()),
            Ask::new(FORGET_SOME).with(ids).with(rows),
            Ask::new(FORGET_RESULTS)
                .with(self.result_seqs.clone())
                .with(self.result_places.clone()),
            Ask::new(FORGET_NOTES).with(self.result_seqs.clone()).with(self.result_places.clone()),
            Ask::new(FORGET_ACTS).with(self.by_people.clone()),
            Ask::new(SET_FEED_FROM).with(self.whole_from),
        ]);
        run(client, &asks).await?;
        Ok(())
    }
}
