//! Looks at a schema from outside, while others may write.

use tokio_postgres::{Client, Row, types::ToSql};
use windlass_kernel::{Timestamp, WorkerId};

use crate::{
    Error, migrate,
    postgres::{
        Failure, PgResult,
        link::{
            open::{Options, quoted, size_bytes},
            pool::Connector,
        },
        row::column::{number, time_of},
    },
    read::SessionView,
    survey::{self, MigrationStep, Survey},
};

/// The steps of the schema of a PostgreSQL database.
pub fn steps() -> Vec<MigrationStep> {
    survey::steps(migrate::POSTGRES)
}

/// Looks at a store. Nothing in it is changed.
pub async fn survey(options: &Options) -> Result<Survey, Error> {
    let Some(schema) = quoted(&options.schema) else {
        return Err(options.cannot_open("it is no name for a schema"));
    };
    let connector = Connector::new(options, format!("SET search_path = {schema}"))?;
    // One that cannot be written to is looked at all the same.
    let mut config = options.config.clone();
    config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::Any);
    let connected = connector.alone(&config, || {}).await;
    let (client, task) = connected.map_err(|failure| options.cannot_open(failure))?;
    let looked = tokio::time::timeout(options.deadline, look(&client, options)).await;
    task.abort();
    let late = |_| Error::Unavailable("the server did not answer in time".into());
    let mut survey = looked.map_err(late)?.map_err(Failure::into_error)?;
    survey.size_bytes = size_bytes(options).await?;
    Ok(survey)
}

const STANDING: &str = "
    SELECT clock_timestamp(), pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
        to_regclass('meta') IS NOT NULL";
const SCHEMA: &str = "SELECT name, value FROM meta WHERE name IN ('schema', 'schema_served_by')";

async fn look(client: &Client, options: &Options) -> PgResult<Survey> {
    let standing = client.query_one(STANDING, &[]).await?;
    let read_only = match (standing.try_get(1)?, standing.try_get(2)?) {
        (true, _) => Some("the server is a standby, which cannot be written to".to_owned()),
        (false, true) => {
            Some("the server takes no writes (default_transaction_read_only)".to_owned())
        }
        (false, false) => None,
    };
    let known = migrate::POSTGRES.last().map_or(0, |step| step.number);
    let now = Some(time_of(&standing, 0)?);
    let mut survey = Survey { known, now, read_only, ..Survey::default() };
    if !standing.try_get::<_, bool>(3)? {
        return Ok(survey);
    }
    let mut served_from = u32::MAX;
    for row in client.query(SCHEMA, &[]).await? {
        let number = row.try_get::<_, &str>(1)?.parse().unwrap_or(u32::MAX);
        match row.try_get(0)? {
            "schema" => survey.schema = number,
            _ => served_from = number,
        }
    }
    survey.is_too_new = survey.schema > known && served_from > known;
    if survey.is_up_to_date() {
        look_inside(client, options, &mut survey).await?;
    }
    Ok(survey)
}

const OBJECTS: &str = "
    SELECT CASE relkind WHEN 'i' THEN 'index ' WHEN 'I' THEN 'index ' WHEN 'v' THEN 'view '
        WHEN 'c' THEN 'type ' ELSE 'table ' END || relname
    FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p', 'i', 'I', 'v', 'c')
    UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = to_regnamespace($1)";
/// The triggers that Windlass has. They keep `job_tags`, `job_keys` and `job_astray`.
const OUR_TRIGGERS: [&str; 3] =
    ["trigger jobs_tags on jobs", "trigger jobs_keys on jobs", "trigger jobs_astray on jobs"];
/// Triggers and rewrite rules, which run with every write.
const TRIGGERS: &str = "
    SELECT 'trigger ' || tgname || ' on ' || relname FROM pg_trigger
    JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = to_regnamespace($1) AND NOT tgisinternal AND tgparentid = 0
    UNION ALL SELECT 'trigger ' || rulename || ' on ' || relname FROM pg_rewrite
    JOIN pg_class ON pg_class.oid = ev_class
    WHERE relnamespace = to_regnamespace($1) AND rulename <> '_RETURN' ORDER BY 1";
const LAST_COMMIT: &str = "SELECT at FROM feed ORDER BY first DESC LIMIT 1";
const LETTERS: &str = "SELECT count(*) FROM dlq_items WHERE state = 'open'";
const SET_ASIDE: &str = "SELECT count(*) FROM inbox_set_aside";
const SESSIONS: &str = "
    SELECT worker, lapses_at, renewals, (SELECT count(*) FROM jobs WHERE lease_session = sessions.id)
    FROM sessions WHERE lapses_at > 'epoch' ORDER BY worker COLLATE \"C\"";

/// What a table that is missing would tell is left out: that it is missing is told.
async fn look_inside(client: &Client, options: &Options, survey: &mut Survey) -> PgResult<()> {
    let schema: &(dyn ToSql + Sync) = &options.schema;
    let rows = client.query(OBJECTS, &[schema]).await?;
    let found = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    survey.missing = survey::missing(wanted(), &found);
    let triggers = client.query(TRIGGERS, &[schema]).await?;
    let triggers = triggers.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    let ours: Vec<String> = wanted().collect();
    let is_view = |name: &&String| name.starts_with("view ") && !ours.contains(name);
    let triggers = triggers.into_iter().filter(|name| !OUR_TRIGGERS.contains(&name.as_str()));
    survey.foreign = triggers.chain(found.iter().filter(is_view).cloned()).collect();
    let has = |table: &str| found.contains(&format!("table {table}"));
    if has("feed") {
        let last = client.query_opt(LAST_COMMIT, &[]).await?;
        survey.last_commit_at = last.map(|row| time_of(&row, 0)).transpose()?;
    }
    if has("sessions") && has("jobs") {
        let rows = client.query(SESSIONS, &[]).await?;
        survey.sessions = rows.iter().map(session).collect::<PgResult<_>>()?;
    }
    if has("dlq_items") {
        survey.letters = number(&client.query_one(LETTERS, &[]).await?, 0)?;
    }
    if has("inbox_set_aside") {
        survey.set_aside = number(&client.query_one(SET_ASIDE, &[]).await?, 0)?;
    }
    Ok(())
}

fn session(row: &Row) -> PgResult<SessionView> {
    let (worker, lapses_at): (&str, Timestamp) = (row.try_get(0)?, time_of(row, 1)?);
    let unfit = |_| Failure::damaged(format!("{worker:?} is no name of a worker"));
    let worker = WorkerId::new(worker).map_err(unfit)?;
    Ok(SessionView { worker, lapses_at, renewals: number(row, 2)?, held: number(row, 3)? })
}

/// What is written down with columns, and is no table.
const VIEWS: [&str; 5] =
    ["events", "jobs_by_name", "task_runs", "scheduler_tasks", "contract_jobs"];

/// The tables, types, indexes, views and functions of the schema that is written down.
fn wanted() -> impl Iterator<Item = String> {
    let schema = include_str!("../../../schema/postgres.txt");
    let mut last = String::new();
    let object = move |line: &str| {
        if let Some(rest) = line.strip_prefix("CREATE ") {
            let name = rest.split_once("INDEX ")?.1.split(' ').next()?;
            return Some(format!("index {name}"));
        }
        if let Some(rest) = line.strip_prefix("function ") {
            return Some(format!("function {}", rest.split('(').next()?));
        }
        let (kind, rest) = line.split_once(' ')?;
        let name = rest.split('.').next()?;
        let kind = match kind {
            "type" => "type",
            "column" if VIEWS.contains(&name) => "view",
            "column" => "table",
            _ => return None,
        };
        let is_new = last != name;
        name.clone_into(&mut last);
        is_new.then(|| format!("{kind} {name}"))
    };
    schema.lines().filter_map(object)
}
