//! Lists: jobs and dead letters by filter, newest first.
//!
//! The order of jobs is that of their ids, which grow with time. The newest rows are looked at first, which is all
//! that most lists need. What they do not fill is searched by index (`search`), so that a filter finds what there is
//! at any depth. A search is made in one snapshot: a job that changes meanwhile is neither missed nor told twice.

use std::cmp::Reverse;

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{DeadLetter, Job, LetterState, TenantId, Timestamp};

use super::job::whose;
use crate::{
    IdMap,
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run, run_one},
            types::{Time, Uuid, signed},
        },
        row::{
            column::{json_of, number_32, text_of},
            job::{Loaded, job_columns, job_of, job_tables},
        },
    },
    read::{JobFilter, LetterFilter, Page, PageFrom, Position, Scope},
    search::{self, Fetch, Group, KeySource, Search, SearchMove},
};

/// The greatest ids first, at most so many rows from a place on, and not further than another.
const NEWEST: &str = concat!(
    "SELECT ",
    job_columns!(),
    job_tables!(),
    "WHERE j.id < $1 AND j.id >= $2 ORDER BY j.id DESC LIMIT $3"
);

/// Jobs by filter, newest first.
pub(crate) async fn read_jobs(
    client: &ClientWrapper,
    filter: &JobFilter,
    cursor: PageFrom,
) -> PgResult<Page<Job>> {
    in_snapshot(client, read_jobs_in(client, filter, cursor)).await
}

/// Reads everything as it was at one moment.
async fn in_snapshot<T>(
    client: &ClientWrapper,
    read: impl Future<Output = PgResult<T>>,
) -> PgResult<T> {
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let found = read.await;
    if found.as_ref().err().is_none_or(|error| !error.is_unknown()) {
        // Also if a statement failed: then it rolls back.
        client.batch_execute("COMMIT").await?;
    }
    found
}

async fn read_jobs_in(
    client: &ClientWrapper,
    filter: &JobFilter,
    cursor: PageFrom,
) -> PgResult<Page<Job>> {
    let (floor, mut below) = bounds(client, filter).await?;
    if let Some(from) = cursor.from {
        below = below.min(from.id);
    }
    let mut list = JobList { client, filter, cursor, page: Page::empty() };
    if let Some(below) = list.read_newest(floor, below).await? {
        list.search(floor, below).await?;
    }
    Ok(list.page)
}

/// Jobs that were not created about when their id was made.
macro_rules! astray {
    ($order:literal) => {
        concat!(
            "(SELECT id FROM (
                SELECT id FROM job_astray WHERE created_at >= $1 AND created_at < $2
                OFFSET 0) AS astray ORDER BY id ",
            $order,
            " LIMIT 1)"
        )
    };
}

const ASTRAY: &str = concat!("SELECT ", astray!("ASC"), ", ", astray!("DESC"));

/// How far the time in an id may be from the time of creation of a job that is not astray.
const ASTRAY_MICROS: i64 = 30 * 1_000_000;

/// The first id that the filter's times of creation allow, and the first after those.
async fn bounds(client: &ClientWrapper, filter: &JobFilter) -> PgResult<(u128, u128)> {
    let (from, before) = (filter.created_from, filter.created_before);
    if from.is_none() && before.is_none() {
        return Ok((0, u128::MAX));
    }
    let range = (from.unwrap_or(Timestamp::MIN), before.unwrap_or(Timestamp::MAX));
    let rows = run_one(client, Ask::new(ASTRAY).with(Time(range.0)).with(Time(range.1))).await?;
    let astray = |column| -> PgResult<Option<u128>> {
        let id = rows.first().map(|row| row.try_get::<_, Option<Uuid>>(column)).transpose()?;
        Ok(id.flatten().map(|id| id.0))
    };
    let floor = from.map_or(0, |from| id_at(from.as_micros().saturating_sub(ASTRAY_MICROS)));
    let below = before.map_or(u128::MAX, |before| {
        // A millisecond more: an id has no smaller parts.
        id_at(before.as_micros().saturating_add(ASTRAY_MICROS + 1_000))
    });
    let floor = astray(0)?.map_or(floor, |id| floor.min(id));
    Ok((floor, astray(1)?.map_or(below, |id| below.max(id.saturating_add(1)))))
}

/// The first id of a time.
fn id_at(micros: i64) -> u128 {
    const TIME_MAX: u128 = (1 << 48) - 1;
    u128::try_from(micros / 1_000).unwrap_or(0).min(TIME_MAX) << 80
}

struct JobList<'a> {
    client: &'a ClientWrapper,
    filter: &'a JobFilter,
    cursor: PageFrom,
    page: Page<Job>,
}

impl JobList<'_> {
    /// Looks at the newest rows. Where to go on, unless the page is finished.
    async fn read_newest(&mut self, floor: u128, mut below: u128) -> PgResult<Option<u128>> {
        let newest = self.cursor.items().max(PageFrom::NEWEST_MIN);
        let step = i64::try_from(newest).unwrap_or(i64::MAX);
        loop {
            let ask = Ask::new(NEWEST).with(Uuid(below)).with(Uuid(floor)).with(step);
            let rows = run_one(self.client, ask).await?;
            for row in &rows {
                let Loaded { job, .. } = job_of(row)?;
                below = job.id.as_u128();
                if self.add(job) {
                    return Ok(None);
                }
            }
            if rows.len() < newest {
                return Ok(None);
            }
            if self.filter.needs_index() {
                return Ok(Some(below));
            }
            if self.page.visited >= PageFrom::VISITS_MAX {
                self.stop(below);
                return Ok(None);
            }
        }
    }

    /// Looks at one job. Is the page finished?
    fn add(&mut self, job: Job) -> bool {
        self.page.visited += 1;
        let id = job.id.as_u128();
        if self.filter.matches(&job) {
            self.page.items.push(job);
        }
        let is_full = self.page.items.len() == self.cursor.items();
        if is_full {
            self.page.next = Some(Position { at: 0, id });
        }
        is_full
    }

    fn stop(&mut self, reached: u128) {
        self.page.next = Some(Position { at: 0, id: reached });
        self.page.stopped = true;
    }

    /// Finds what fits by index.
    async fn search(&mut self, floor: u128, below: u128) -> PgResult<()> {
        let groups = groups(self.client, self.filter).await?;
        let Some(parts) = search::parts(self.filter, &groups) else { return Ok(()) };
        let mut search = Search::new(parts, below, floor);
        let looked_at = self.page.visited;
        let mut found = Vec::new();
        loop {
            let step = search.step();
            let is_end = step == SearchMove::End;
            match step {
                SearchMove::End => {}
                SearchMove::Fetch(fetches) => fetch_all(self.client, &fetches, &mut search).await?,
                SearchMove::Found(key) => found.push(Uuid(key)),
            }
            let wanted = (self.cursor.items() - self.page.items.len()).max(LOAD_MIN);
            let is_over = self.page.visited + search.fetched() >= PageFrom::VISITS_MAX + looked_at;
            if (is_end || is_over || found.len() >= wanted)
                && self.load(std::mem::take(&mut found)).await?
            {
                break;
            }
            if is_end {
                break;
            }
            if is_over {
                self.stop(search.below());
                break;
            }
        }
        self.page.visited += search.fetched();
        Ok(())
    }

    /// Looks at the jobs of these ids, which are in order. Is the page finished?
    async fn load(&mut self, ids: Vec<Uuid>) -> PgResult<bool> {
        for job in jobs_of(self.client, ids).await? {
            if self.add(job) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How many rows are loaded together at least.
const LOAD_MIN: usize = 32;

const JOBS: &str = concat!("SELECT ", job_columns!(), job_tables!(), "WHERE j.id = ANY($1)");

/// The jobs of these ids, greatest first.
async fn jobs_of(client: &ClientWrapper, ids: Vec<Uuid>) -> PgResult<Vec<Job>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = run_one(client, Ask::new(JOBS).with(ids)).await?;
    let mut jobs: Vec<Job> =
        rows.iter().map(|row| Ok(job_of(row)?.job)).collect::<PgResult<_>>()?;
    jobs.sort_unstable_by_key(|job| Reverse(job.id));
    Ok(jobs)
}

const GROUPS: &str = "
    SELECT id, tenant FROM job_groups
    WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR queue = $2)
        AND ($3::text IS NULL OR kind = $3)";

/// The groups that a filter allows.
async fn groups(client: &ClientWrapper, filter: &JobFilter) -> PgResult<Vec<Group>> {
    let ask = Ask::new(GROUPS)
        .with(whose(&filter.scope))
        .with(filter.queue.as_ref().map(ToString::to_string))
        .with(filter.kind.as_ref().map(ToString::to_string));
    let rows = run_one(client, ask).await?;
    let group = |row: &tokio_postgres::Row| {
        Ok(Group { id: i64::from(row.try_get::<_, i32>(0)?), tenant: text_of(row, 1)? })
    };
    rows.iter().map(group).collect()
}

/// The statements of the sources. Where the primary key could serve the order as well, the order names the whole index,
/// so that nothing else can serve it: the server would walk through all ids.
mod source {
    /// For each walk: its number, and what it finds.
    pub(crate) const LISTED: &str = "
        SELECT w.walk, found.id
        FROM unnest($1::int[], $2::int[], $3::text[], $4::uuid[], $5::bigint[])
            AS w (walk, group_id, state, below, most)
        CROSS JOIN LATERAL (
            SELECT jobs.group_id, jobs.state, jobs.id FROM jobs
            WHERE (jobs.group_id, jobs.state, jobs.id) < (w.group_id, w.state, w.below) AND (
                jobs.state = 'succeeded' OR jobs.state = 'scheduled' OR jobs.state = 'waiting'
                OR jobs.state = 'partial' OR jobs.state = 'failed' OR jobs.state = 'cancelled')
            ORDER BY jobs.group_id DESC, jobs.state DESC, jobs.id DESC LIMIT w.most) AS found
        WHERE found.group_id = w.group_id AND found.state = w.state";
    pub(crate) const READY: &str = "
        SELECT w.walk, found.id
        FROM unnest($1::int[], $2::int[], $3::uuid[], $4::bigint[]) AS w (walk, group_id, below, most)
        CROSS JOIN LATERAL (
            SELECT id FROM (
                SELECT jobs.id FROM jobs WHERE jobs.group_id = w.group_id
                AND (jobs.state = 'queued' OR jobs.state = 'interrupted') OFFSET 0) AS ready
            WHERE id < w.below ORDER BY id DESC LIMIT w.most) AS found";
    pub(crate) const RETRY: &str = "
        SELECT w.walk, found.id
        FROM unnest($1::int[], $2::int[], $3::uuid[], $4::bigint[]) AS w (walk, group_id, below, most)
        CROSS JOIN LATERAL (
            SELECT id FROM (
                SELECT jobs.id FROM jobs WHERE jobs.group_id = w.group_id
                AND jobs.next_retry_at IS NOT NULL OFFSET 0) AS retry
            WHERE id < w.below ORDER BY id DESC LIMIT w.most) AS found";
    pub(crate) const HELD: &str = "
        SELECT id FROM (SELECT id FROM jobs WHERE lease_session IS NOT NULL OFFSET 0) AS held
        WHERE id < $1 ORDER BY id DESC LIMIT $2";
    pub(crate) const TAG: &str = "
        SELECT id FROM job_tags WHERE tenant = $1 AND tag = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
    pub(crate) const KEY: &str = "
        SELECT id FROM job_keys WHERE lane = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
    pub(crate) const CODE: &str = "
        SELECT id FROM (
            SELECT rest::json -> 'error' ->> 'code' AS code, id FROM jobs
            WHERE strpos(rest, 'error') > 0 AND ((rest::json -> 'error' ->> 'code'), id) < ($1, $2)
            ORDER BY (rest::json -> 'error' ->> 'code') DESC, id DESC LIMIT $3) AS failed
        WHERE code = $1";
    pub(crate) const FAILED: &str = "
        SELECT job_id FROM (
            SELECT job_id FROM dlq_items
            WHERE tenant = $1 AND created_at >= $2 AND created_at < $3 OFFSET 0) AS failed
        WHERE job_id < $4 ORDER BY job_id DESC LIMIT $5";
    pub(crate) const FAILED_OF_ALL: &str = "
        SELECT job_id FROM (
            SELECT job_id FROM dlq_items WHERE created_at >= $1 AND created_at < $2 OFFSET 0) AS failed
        WHERE job_id < $3 ORDER BY job_id DESC LIMIT $4";
}

/// Walks through groups, which are asked together.
#[derive(Default)]
struct ByGroup {
    walks: Vec<i32>,
    groups: Vec<i32>,
    states: Vec<&'static str>,
    below: Vec<Uuid>,
    most: Vec<i64>,
}

impl ByGroup {
    fn add(&mut self, number: usize, group: i64, fetch: &Fetch) {
        self.walks.push(i32::try_from(number).unwrap_or(i32::MAX));
        self.groups.push(i32::try_from(group).unwrap_or(i32::MAX));
        self.below.push(Uuid(fetch.below));
        self.most.push(i64::try_from(fetch.limit).unwrap_or(i64::MAX));
    }

    fn ask(self, sql: &'static str) -> Option<Ask> {
        if self.walks.is_empty() {
            return None;
        }
        let ask = Ask::new(sql).with(self.walks).with(self.groups);
        let ask = if self.states.is_empty() { ask } else { ask.with(self.states) };
        Some(ask.with(self.below).with(self.most))
    }
}

/// Asks all of these sources at once.
async fn fetch_all(client: &ClientWrapper, fetches: &[Fetch], search: &mut Search) -> PgResult<()> {
    let mut keys: Vec<Vec<u128>> = vec![Vec::new(); fetches.len()];
    let (mut listed, mut ready, mut retry) =
        (ByGroup::default(), ByGroup::default(), ByGroup::default());
    let (mut alone, mut asks) = (Vec::new(), Vec::new());
    for (number, fetch) in fetches.iter().enumerate() {
        let ask = match &fetch.source {
            KeySource::Listed(group, state) => {
                listed.states.push(state.as_str());
                listed.add(number, *group, fetch);
                continue;
            }
            KeySource::Ready(group) => {
                ready.add(number, *group, fetch);
                continue;
            }
            KeySource::Retry(group) => {
                retry.add(number, *group, fetch);
                continue;
            }
            KeySource::Held => Ask::new(source::HELD),
            KeySource::Tag(tenant, tag) => {
                Ask::new(source::TAG).with(tenant.to_string()).with(tag.to_string())
            }
            KeySource::Key(lane) => Ask::new(source::KEY).with(lane.get()),
            KeySource::Code(code) => Ask::new(source::CODE).with(code.clone()),
            KeySource::Failed(scope, from, before) => {
                let ask = match scope.word() {
                    Some(tenant) => Ask::new(source::FAILED).with(tenant.to_owned()),
                    None => Ask::new(source::FAILED_OF_ALL),
                };
                ask.with(Time(*from)).with(Time(*before))
            }
        };
        alone.push(number);
        let most = i64::try_from(fetch.limit).unwrap_or(i64::MAX);
        asks.push(ask.with(Uuid(fetch.below)).with(most));
    }
    asks.extend(listed.ask(source::LISTED));
    asks.extend(ready.ask(source::READY));
    asks.extend(retry.ask(source::RETRY));
    for (place, rows) in run(client, &asks).await?.into_iter().enumerate() {
        match alone.get(place) {
            Some(number) => {
                for row in rows {
                    keys[*number].push(row.try_get::<_, Uuid>(0)?.0);
                }
            }
            None => {
                for row in rows {
                    let walk = number_32(&row, 0)? as usize;
                    keys[walk].push(row.try_get::<_, Uuid>(1)?.0);
                }
            }
        }
    }
    for (fetch, keys) in fetches.iter().zip(keys) {
        search.add(fetch, keys);
    }
    Ok(())
}

/// Up to how many failed jobs are gathered to find their letters. Where there are more, letters are walked.
const LETTER_JOBS_MAX: usize = 2_000;

/// Dead letters by filter, newest first.
pub(crate) async fn read_letters(
    client: &ClientWrapper,
    filter: &LetterFilter,
    cursor: PageFrom,
) -> PgResult<Page<DeadLetter>> {
    let mut list = LetterList { client, filter, cursor, page: Page::empty() };
    let from = cursor.from.map_or((Timestamp::MAX, u128::MAX), |from| {
        (Timestamp::from_micros(signed(from.at)), from.id)
    });
    in_snapshot(client, async {
        if !(filter.asks_jobs() && list.of_jobs(from).await?) {
            list.walk(from).await?;
        }
        Ok(list.page)
    })
    .await
}

/// Where a letter stands in the list.
type Place = (Timestamp, u128);

struct LetterList<'a> {
    client: &'a ClientWrapper,
    filter: &'a LetterFilter,
    cursor: PageFrom,
    page: Page<DeadLetter>,
}

/// Served by the index `dlq_items_list`.
const LETTERS: &str = "
    SELECT letter FROM dlq_items
    WHERE tenant = $1 AND ($2::text IS NULL OR state = $2) AND (created_at, id) < ($3, $4)
    ORDER BY created_at DESC, id DESC LIMIT $5";

/// The same of every tenant. Served by the index `dlq_items_all`.
const LETTERS_OF_ALL: &str = "
    SELECT letter FROM dlq_items
    WHERE $1::text IS NULL AND ($2::text IS NULL OR state = $2) AND (created_at, id) < ($3, $4)
    ORDER BY created_at DESC, id DESC LIMIT $5";

/// Letters of one code. Served by the index `dlq_items_code`.
const LETTERS_OF_CODE: &str = "
    SELECT letter FROM dlq_items
    WHERE tenant = $1 AND code = $2 AND (created_at, id) < ($3, $4)
    ORDER BY created_at DESC, id DESC LIMIT $5";

const LETTERS_OF_JOBS: &str = "SELECT letter FROM dlq_items WHERE job_id = ANY($1)";

const TENANTS: &str = "
    SELECT DISTINCT tenant FROM job_groups WHERE $1::text IS NULL OR tenant = $1";

impl LetterList<'_> {
    /// The letters of all jobs that fit, if they are not too many.
    async fn of_jobs(&mut self, from: Place) -> PgResult<bool> {
        let (mut letters, mut below) = (Vec::new(), None);
        loop {
            let cursor = PageFrom { from: below, limit: PageFrom::LIMIT_MAX };
            let jobs = read_jobs_in(self.client, &self.filter.failed_jobs(), cursor).await?;
            self.page.visited += jobs.visited;
            let ids: Vec<Uuid> = jobs.items.iter().map(|job| Uuid(job.id.as_u128())).collect();
            for row in run_one(self.client, Ask::new(LETTERS_OF_JOBS).with(ids)).await? {
                letters.push(json_of::<DeadLetter>(&row, 0)?);
            }
            if letters.len() > LETTER_JOBS_MAX || jobs.stopped {
                return Ok(false);
            }
            below = jobs.next;
            if below.is_none() {
                break;
            }
        }
        letters.retain(|letter| self.filter.matches_alone(letter) && place_of(letter) < from);
        letters.sort_by_key(|letter| Reverse(place_of(letter)));
        for letter in letters {
            if self.add(letter) {
                break;
            }
        }
        Ok(true)
    }

    /// Looks at letters one after the other.
    async fn walk(&mut self, mut from: Place) -> PgResult<()> {
        let JobFilter { failed_from, failed_before, .. } = &self.filter.jobs;
        if let Some(before) = failed_before {
            from = from.min((*before, 0));
        }
        let jobs = self.filter.asks_jobs().then(|| self.filter.failed_jobs());
        let step = self.cursor.items().max(PageFrom::NEWEST_MIN);
        loop {
            let letters = self.below(from, step).await?;
            let is_end = letters.len() < step;
            let mut of_letters: IdMap<Job> = IdMap::default();
            if jobs.is_some() {
                let ids = letters.iter().map(|letter| Uuid(letter.job_id.as_u128())).collect();
                let found = jobs_of(self.client, ids).await?;
                of_letters.extend(found.into_iter().map(|job| (job.id, job)));
            }
            for letter in letters {
                self.page.visited += 1;
                from = place_of(&letter);
                if failed_from.is_some_and(|at| letter.created_at < at) {
                    return Ok(());
                }
                let fits = |jobs: &JobFilter| {
                    of_letters.get(&letter.job_id).is_some_and(|job| jobs.matches(job))
                };
                if jobs.as_ref().is_none_or(fits)
                    && self.filter.matches_alone(&letter)
                    && self.add(letter)
                {
                    return Ok(());
                }
            }
            if is_end {
                return Ok(());
            }
            if self.page.visited >= PageFrom::VISITS_MAX {
                (self.page.next, self.page.stopped) = (Some(position(from)), true);
                return Ok(());
            }
        }
    }

    /// Letters below a place, newest first.
    async fn below(&self, from: Place, limit: usize) -> PgResult<Vec<DeadLetter>> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let end = |ask: Ask| ask.with(Time(from.0)).with(Uuid(from.1)).with(most);
        let asks: Vec<Ask> = match &self.filter.jobs.code {
            Some(code) => {
                let of = |tenant: TenantId| {
                    end(Ask::new(LETTERS_OF_CODE).with(tenant.to_string()).with(code.clone()))
                };
                tenants(self.client, &self.filter.scope).await?.into_iter().map(of).collect()
            }
            None => {
                let letters = self.filter.scope.word().map_or(LETTERS_OF_ALL, |_| LETTERS);
                let state = self.filter.state.map(LetterState::as_str);
                vec![end(Ask::new(letters).with(whose(&self.filter.scope)).with(state))]
            }
        };
        let mut letters: Vec<DeadLetter> = Vec::new();
        for rows in run(self.client, &asks).await? {
            for row in &rows {
                letters.push(json_of(row, 0)?);
            }
        }
        letters.sort_by_key(|letter| Reverse(place_of(letter)));
        letters.truncate(limit);
        Ok(letters)
    }

    /// Adds a letter. Is the page finished?
    fn add(&mut self, letter: DeadLetter) -> bool {
        let is_full = self.page.items.len() + 1 == self.cursor.items();
        self.page.next = Some(position(place_of(&letter))).filter(|_| is_full);
        self.page.items.push(letter);
        is_full
    }
}

pub(crate) async fn tenants(client: &ClientWrapper, scope: &Scope) -> PgResult<Vec<TenantId>> {
    let rows = run_one(client, Ask::new(TENANTS).with(whose(scope))).await?;
    rows.iter().map(|row| text_of(row, 0)).collect()
}

fn position((at, id): Place) -> Position {
    Position { at: u64::try_from(at.as_micros()).unwrap_or(0), id }
}

fn place_of(letter: &DeadLetter) -> Place {
    (letter.created_at, letter.id.as_u128())
}
