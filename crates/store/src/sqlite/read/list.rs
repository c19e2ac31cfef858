//! Lists: jobs and dead letters by filter, newest first.
//!
//! The order of jobs is that of their numbers, in which time never goes back. The newest rows are looked at first, which
//! is all that most lists need. What they do not fill is searched by index (`search`), so that a filter finds what
//! there is at any depth.

use std::cmp::Reverse;

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params, params_from_iter};
use windlass_kernel::{DeadLetter, Job, LetterState, TenantId, Timestamp};

use crate::{
    read::{JobFilter, LetterFilter, Page, PageFrom, Position, Scope},
    search::{self, Fetch, Group, KeySource, Search, SearchMove},
    sqlite::{
        SqlResult,
        claim::names::Stored,
        retention::prune::{JOB_FROM, halve},
        row::{
            column::{self, text_of},
            job::{self, Loaded, job_columns},
            letter,
        },
    },
};

/// Newest first, at most so many rows from a place on, and not further than another.
const NEWEST: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM jobs WHERE seq < ?1 AND seq >= ?2 ORDER BY seq DESC LIMIT ?3"
);

const LAST_SEQ: &str = "SELECT coalesce(max(seq), 0) FROM jobs";

/// Jobs by filter, newest first.
pub(crate) fn read_jobs(
    connection: &Connection,
    filter: &JobFilter,
    cursor: PageFrom,
) -> SqlResult<Page<Job>> {
    let (floor, mut below) = bounds(connection, filter)?;
    if let Some(from) = cursor.from {
        below = below.min(i64::try_from(from.at).unwrap_or(i64::MAX));
    }
    let mut list = JobList { connection, filter, cursor, page: Page::empty() };
    let newest = match filter.needs_index() {
        true => cursor.items().max(PageFrom::NEWEST_MIN),
        false => usize::try_from(PageFrom::VISITS_MAX).unwrap_or(usize::MAX),
    };
    if let Some(below) = list.read_newest(floor, below, newest)? {
        list.search(floor, below)?;
    }
    Ok(list.page)
}

/// The first number that the filter's times of creation allow, and the first after those.
fn bounds(connection: &Connection, filter: &JobFilter) -> SqlResult<(i64, i64)> {
    let last: i64 = connection.query_row(LAST_SEQ, [], |row| row.get(0))?;
    let from = |at: Timestamp| {
        let before = Timestamp::from_micros(at.as_micros().saturating_sub(1));
        halve(connection, JOB_FROM, last, before)
    };
    let floor = filter.created_from.map_or(Ok(0), from)?;
    let below = filter.created_before.map_or(Ok(last + 1), from)?;
    Ok((floor, below))
}

struct JobList<'a> {
    connection: &'a Connection,
    filter: &'a JobFilter,
    cursor: PageFrom,
    page: Page<Job>,
}

impl JobList<'_> {
    /// Looks at the newest rows. Where to go on, unless the page is finished.
    fn read_newest(&mut self, floor: i64, below: i64, most: usize) -> SqlResult<Option<i64>> {
        let mut statement = self.connection.prepare_cached(NEWEST)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![below, floor, most])?;
        let (mut seen, mut reached) = (0, below);
        while let Some(row) = rows.next()? {
            seen += 1;
            let Loaded { job, place } = job::job_of(row, &Stored(self.connection))?;
            reached = place.seq;
            if self.add(job, reached) {
                return Ok(None);
            }
        }
        if seen < most {
            return Ok(None);
        }
        if !self.filter.needs_index() {
            self.stop(reached);
            return Ok(None);
        }
        Ok(Some(reached))
    }

    /// Looks at one job. Is the page finished?
    fn add(&mut self, job: Job, seq: i64) -> bool {
        self.page.visited += 1;
        if self.filter.matches(&job) {
            self.page.items.push(job);
        }
        let is_full = self.page.items.len() == self.cursor.items();
        if is_full {
            self.page.next = position(seq);
        }
        is_full
    }

    fn stop(&mut self, reached: i64) {
        self.page.next = position(reached);
        self.page.stopped = self.page.next.is_some();
    }

    /// Finds what fits by index.
    fn search(&mut self, floor: i64, below: i64) -> SqlResult<()> {
        let groups = groups(self.connection, self.filter)?;
        let Some(parts) = search::parts(self.filter, &groups) else { return Ok(()) };
        let key = |seq: i64| u128::try_from(seq).unwrap_or(0);
        let mut search = Search::new(parts, key(below), key(floor));
        let looked_at = self.page.visited;
        loop {
            match search.step() {
                SearchMove::End => break,
                SearchMove::Fetch(fetches) => {
                    for fetch in fetches {
                        let keys = fetched(self.connection, &fetch)?;
                        search.add(&fetch, keys);
                    }
                }
                SearchMove::Found(key) => {
                    let seq = i64::try_from(key).unwrap_or(i64::MAX);
                    let job = job_at(self.connection, seq)?;
                    if job.is_some_and(|job| self.add(job, seq)) {
                        break;
                    }
                }
            }
            if self.page.visited + search.fetched() >= PageFrom::VISITS_MAX + looked_at {
                self.stop(i64::try_from(search.below()).unwrap_or(i64::MAX));
                break;
            }
        }
        self.page.visited += search.fetched();
        Ok(())
    }
}

fn position(seq: i64) -> Option<Position> {
    let at = u64::try_from(seq).ok().filter(|seq| *seq > 1)?;
    Some(Position { at, id: 0 })
}

const JOB_AT: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE seq = ?1");

fn job_at(connection: &Connection, seq: i64) -> SqlResult<Option<Job>> {
    let job = |row: &Row<'_>| Ok(job::job_of(row, &Stored(connection))?.job);
    connection.prepare_cached(JOB_AT)?.query_row([seq], job).optional()
}

const GROUPS: &str = "
    SELECT id, tenant FROM job_groups
    WHERE (?1 IS NULL OR tenant = ?1) AND (?2 IS NULL OR queue = ?2) AND (?3 IS NULL OR kind = ?3)";

/// The groups that a filter allows.
fn groups(connection: &Connection, filter: &JobFilter) -> SqlResult<Vec<Group>> {
    let mut statement = connection.prepare_cached(GROUPS)?;
    let queue = filter.queue.as_ref().map(windlass_kernel::Queue::as_str);
    let kind = filter.kind.as_ref().map(windlass_kernel::Kind::as_str);
    let group = |row: &Row<'_>| Ok(Group { id: row.get(0)?, tenant: text_of(row, 1)? });
    statement.query_map(params![filter.scope.word(), queue, kind], group)?.collect()
}

/// The statements of the sources. Each begins with what the source names, then the place and the number of keys.
mod source {
    pub(crate) const READY: &str = "
        SELECT seq FROM jobs INDEXED BY jobs_ready
        WHERE group_id = ?1 AND (state = 'queued' OR state = 'interrupted') AND seq < ?2
        ORDER BY seq DESC LIMIT ?3";
    pub(crate) const RETRY: &str = "
        SELECT seq FROM jobs INDEXED BY jobs_retry
        WHERE group_id = ?1 AND next_retry_at IS NOT NULL AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
    pub(crate) const HELD: &str = "
        SELECT seq FROM jobs INDEXED BY jobs_leased
        WHERE lease_session IS NOT NULL AND seq < ?1 ORDER BY seq DESC LIMIT ?2";
    pub(crate) const LISTED: &str = "
        SELECT seq FROM jobs INDEXED BY jobs_listed
        WHERE group_id = ?1 AND state = ?2 AND seq < ?3 AND (
            state = 'succeeded' OR state = 'scheduled' OR state = 'waiting' OR state = 'partial'
            OR state = 'failed' OR state = 'cancelled')
        ORDER BY seq DESC LIMIT ?4";
    pub(crate) const TAG: &str = "
        SELECT seq FROM job_tags WHERE tenant = ?1 AND tag = ?2 AND seq < ?3
        ORDER BY seq DESC LIMIT ?4";
    pub(crate) const KEY: &str = "
        SELECT seq FROM jobs INDEXED BY jobs_limit_key
        WHERE lane = ?1 AND lane <> 0 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
    pub(crate) const CODE: &str = "
        SELECT seq FROM jobs INDEXED BY jobs_code
        WHERE rest ->> '$.error.code' = ?1 AND instr(rest, 'error') > 0 AND seq < ?2
        ORDER BY seq DESC LIMIT ?3";
    pub(crate) const FAILED: &str = "
        SELECT seq FROM dlq_items INDEXED BY dlq_items_list CROSS JOIN jobs ON jobs.id = dlq_items.job_id
        WHERE dlq_items.tenant = ?1 AND dlq_items.created_at >= ?2 AND dlq_items.created_at < ?3
            AND dlq_items.state IN ('open', 'discard_requested', 'discarded', 'requeued') AND seq < ?4
        ORDER BY seq DESC LIMIT ?5";
    pub(crate) const FAILED_OF_ALL: &str = "
        SELECT seq FROM dlq_items INDEXED BY dlq_items_all CROSS JOIN jobs ON jobs.id = dlq_items.job_id
        WHERE dlq_items.created_at >= ?1 AND dlq_items.created_at < ?2
            AND dlq_items.state IN ('open', 'discard_requested', 'discarded', 'requeued') AND seq < ?3
        ORDER BY seq DESC LIMIT ?4";
}

/// What a source has, as a search wants it.
fn fetched(connection: &Connection, fetch: &Fetch) -> SqlResult<Vec<u128>> {
    let (sql, mut values): (&str, Vec<Box<dyn ToSql>>) = match &fetch.source {
        KeySource::Ready(group) => (source::READY, vec![Box::new(*group)]),
        KeySource::Retry(group) => (source::RETRY, vec![Box::new(*group)]),
        KeySource::Held => (source::HELD, vec![]),
        KeySource::Listed(group, state) => {
            (source::LISTED, vec![Box::new(*group), Box::new(state.as_str())])
        }
        KeySource::Tag(tenant, tag) => {
            let (tenant, tag) = (tenant.as_str().to_owned(), tag.as_str().to_owned());
            (source::TAG, vec![Box::new(tenant), Box::new(tag)])
        }
        KeySource::Key(lane) => (source::KEY, vec![Box::new(lane.get())]),
        KeySource::Code(code) => (source::CODE, vec![Box::new(code.clone())]),
        KeySource::Failed(scope, from, before) => {
            let mut values: Vec<Box<dyn ToSql>> = Vec::new();
            values.extend(scope.word().map(|it| Box::new(it.to_owned()) as Box<dyn ToSql>));
            values.extend([from, before].map(|at| Box::new(at.as_micros()) as Box<dyn ToSql>));
            (scope.word().map_or(source::FAILED_OF_ALL, |_| source::FAILED), values)
        }
    };
    values.push(Box::new(i64::try_from(fetch.below).unwrap_or(i64::MAX)));
    values.push(Box::new(i64::try_from(fetch.limit).unwrap_or(i64::MAX)));
    let mut statement = connection.prepare_cached(sql)?;
    let key = |row: &Row<'_>| Ok(u128::try_from(row.get::<_, i64>(0)?).unwrap_or(0));
    statement.query_map(params_from_iter(values), key)?.collect()
}

/// Up to how many failed jobs are gathered to find their letters. Where there are more, letters are walked.
const LETTER_JOBS_MAX: usize = 2_000;

/// Dead letters by filter, newest first. Many can be of one instant, so the cursor has their ids, too.
pub(crate) fn read_letters(
    connection: &Connection,
    filter: &LetterFilter,
    cursor: PageFrom,
) -> SqlResult<Page<DeadLetter>> {
    let mut list = LetterList { connection, filter, cursor, page: Page::empty() };
    let from = cursor.from.unwrap_or(Position { at: u64::MAX, id: u128::MAX });
    if !(filter.asks_jobs() && list.of_jobs(from)?) {
        list.walk(from)?;
    }
    Ok(list.page)
}

struct LetterList<'a> {
    connection: &'a Connection,
    filter: &'a LetterFilter,
    cursor: PageFrom,
    page: Page<DeadLetter>,
}

/// Served by the index `dlq_items_list`, which ends with the primary key: nothing is sorted.
const LETTERS: &str = "
    SELECT letter FROM dlq_items
    WHERE tenant = ?1 AND state = ?2 AND (created_at, id) < (?3, ?4)
    ORDER BY created_at DESC, id DESC LIMIT ?5";

/// The same of every tenant. Served by the index `dlq_items_all`.
const LETTERS_OF_ALL: &str = "
    SELECT letter FROM dlq_items
    WHERE ?1 IS NULL AND state = ?2 AND (created_at, id) < (?3, ?4)
    ORDER BY created_at DESC, id DESC LIMIT ?5";

/// Letters of one code. Served by the index `dlq_items_code`.
const LETTERS_OF_CODE: &str = "
    SELECT letter FROM dlq_items
    WHERE tenant = ?1 AND code = ?2 AND (created_at, id) < (?3, ?4)
    ORDER BY created_at DESC, id DESC LIMIT ?5";

const TENANTS: &str = "
    SELECT DISTINCT tenant FROM job_groups WHERE ?1 IS NULL OR tenant = ?1";

impl LetterList<'_> {
    /// The letters of all jobs that fit, if they are not too many.
    fn of_jobs(&mut self, from: Position) -> SqlResult<bool> {
        let (mut letters, mut below) = (Vec::new(), None);
        loop {
            let cursor = PageFrom { from: below, limit: PageFrom::LIMIT_MAX };
            let jobs = read_jobs(self.connection, &self.filter.failed_jobs(), cursor)?;
            self.page.visited += jobs.visited;
            for job in &jobs.items {
                let letter = job.dlq_id.map(|id| letter::load_letter(self.connection, id));
                letters.extend(letter.transpose()?.flatten());
            }
            if letters.len() > LETTER_JOBS_MAX || jobs.stopped {
                return Ok(false);
            }
            below = jobs.next;
            if below.is_none() {
                break;
            }
        }
        letters
            .retain(|letter| self.filter.matches_alone(letter) && place_of(letter) < place(from));
        letters.sort_by_key(|letter| Reverse(place_of(letter)));
        for letter in letters {
            if self.add(letter) {
                break;
            }
        }
        Ok(true)
    }

    /// Looks at letters one after the other.
    fn walk(&mut self, mut from: Position) -> SqlResult<()> {
        let JobFilter { failed_from, failed_before, .. } = &self.filter.jobs;
        if let Some(before) = failed_before {
            let before = Position { at: u64::try_from(before.as_micros()).unwrap_or(0), id: 0 };
            from = if place(before) < place(from) { before } else { from };
        }
        let jobs = self.filter.asks_jobs().then(|| self.filter.failed_jobs());
        let step = self.cursor.items().max(PageFrom::NEWEST_MIN);
        loop {
            let letters = self.below(from, step)?;
            let is_end = letters.len() < step;
            for letter in letters {
                self.page.visited += 1;
                from = position_of(&letter);
                if failed_from.is_some_and(|at| letter.created_at < at) {
                    return Ok(());
                }
                let is_of_jobs = match &jobs {
                    Some(jobs) => {
                        let job =
                            super::job::read_job(self.connection, &Scope::Every, letter.job_id)?;
                        job.is_some_and(|loaded| jobs.matches(&loaded.job))
                    }
                    None => true,
                };
                if is_of_jobs && self.filter.matches_alone(&letter) && self.add(letter) {
                    return Ok(());
                }
            }
            if is_end {
                return Ok(());
            }
            if self.page.visited >= PageFrom::VISITS_MAX {
                (self.page.next, self.page.stopped) = (Some(from), true);
                return Ok(());
            }
        }
    }

    /// Letters below a place, newest first, of all lines of the index that the filter allows.
    fn below(&self, from: Position, limit: usize) -> SqlResult<Vec<DeadLetter>> {
        let before = i64::try_from(from.at).unwrap_or(i64::MAX);
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut letters: Vec<DeadLetter> = Vec::new();
        let mut read = |sql: &str, tenant: Option<&str>, line: &str| -> SqlResult<()> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let row = params![tenant, line, before, from.id.to_be_bytes(), most];
            for letter in statement.query_map(row, |row| column::json_of(row, 0))? {
                letters.push(letter?);
            }
            Ok(())
        };
        let scope = self.filter.scope.word();
        if let Some(code) = &self.filter.jobs.code {
            for tenant in tenants(self.connection, &self.filter.scope)? {
                read(LETTERS_OF_CODE, Some(tenant.as_str()), code)?;
            }
        } else {
            // In the index letters are in order state by state; of each state so many at the most are needed.
            let wanted = |it: &&LetterState| self.filter.state.is_none_or(|state| state == **it);
            for state in LetterState::ALL.iter().filter(wanted) {
                let sql = scope.map_or(LETTERS_OF_ALL, |_| LETTERS);
                read(sql, scope, state.as_str())?;
            }
        }
        letters.sort_by_key(|letter| Reverse(place_of(letter)));
        letters.truncate(limit);
        Ok(letters)
    }

    /// Adds a letter. Is the page finished?
    fn add(&mut self, letter: DeadLetter) -> bool {
        let is_full = self.page.items.len() + 1 == self.cursor.items();
        self.page.next = Some(position_of(&letter)).filter(|_| is_full);
        self.page.items.push(letter);
        is_full
    }
}

pub(crate) fn tenants(connection: &Connection, scope: &Scope) -> SqlResult<Vec<TenantId>> {
    let mut statement = connection.prepare_cached(TENANTS)?;
    statement.query_map([scope.word()], |row| text_of(row, 0))?.collect()
}

fn position_of(letter: &DeadLetter) -> Position {
    let at = u64::try_from(letter.created_at.as_micros()).unwrap_or(0);
    Position { at, id: letter.id.as_u128() }
}

fn place(position: Position) -> (u64, u128) {
    (position.at, position.id)
}

fn place_of(letter: &DeadLetter) -> (u64, u128) {
    place(position_of(letter))
}
