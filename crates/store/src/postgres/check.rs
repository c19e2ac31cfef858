//! Reads a whole store for the history checker, in one snapshot, while others may write.
//!
//! The store is copied, row by row, into the tables that the checker knows, and the copy is checked: so there is
//! one reader for both databases. What the copy cannot hold, the order that the feed gives to the log, is
//! looked at here. Whether the server's own files are sound is for the server to say.

use rusqlite::types::Value;
use tokio::task::spawn_blocking;
use tokio_postgres::{Client, IsolationLevel, Row, Transaction, types::Type};

use super::{
    Failure, Options, PgResult,
    link::{open::quoted, pool::Connector, types::Uuid},
    row::column::time_or_none,
};
use crate::{
    Error,
    check::{Invariant, Report},
    sqlite::CheckCopy,
};

/// Checks a whole store: every job, every event, every dead letter. Nothing in it is changed.
pub async fn check(options: &Options) -> Result<Report, Error> {
    let Some(schema) = quoted(&options.schema) else {
        return Err(options.cannot_open("it is no name for a schema"));
    };
    let connector = Connector::new(options, format!("SET search_path = {schema}"))?;
    let connected = connector.alone(&options.config, || {}).await;
    let (mut client, task) = connected.map_err(|failure| options.cannot_open(failure))?;
    // A schema of another program is not a damaged store.
    let found = client.query_one("SELECT to_regclass('meta') IS NOT NULL", &[]).await;
    if !found.and_then(|row| row.try_get(0)).map_err(|it| Failure::from(it).into_error())? {
        return Err(options.cannot_open("there is no store in this schema"));
    }
    let mut report = Report::default();
    let copied = copy_all(&mut client, &mut report).await;
    task.abort();
    let copy = copied.map_err(Failure::into_error)?;
    let checking = spawn_blocking(move || copy.check(&mut report).map(|()| report));
    checking.await.map_err(|error| Error::Unavailable(error.into()))?
}

async fn copy_all(client: &mut Client, report: &mut Report) -> PgResult<CheckCopy> {
    let snapshot = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    check_feed(&snapshot, report).await?;
    let mut copy = CheckCopy::new().map_err(Failure::Known)?;
    for table in TABLES {
        table.copy(&snapshot, &mut copy).await?;
    }
    if snapshot.query_one(HAS_PROGRESS, &[]).await?.try_get(0)? {
        PROGRESS.copy(&snapshot, &mut copy).await?;
    }
    if snapshot.query_one(HAS_NOTES, &[]).await?.try_get(0)? {
        NOTES.copy(&snapshot, &mut copy).await?;
    }
    if snapshot.query_one(HAS_ACTS, &[]).await?.try_get(0)? {
        ACTS.copy(&snapshot, &mut copy).await?;
    }
    if snapshot.query_one(HAS_LEDGER, &[]).await?.try_get(0)? {
        for table in LEDGER {
            table.copy(&snapshot, &mut copy).await?;
        }
    }
    Ok(copy)
}

/// What is wrong between the log and the feed, in sentences.
const FEED_RULES: &[(Invariant, &str)] = &[
    (
        Invariant::LogContiguous,
        "SELECT format('log row %s has no place in the feed', seq) FROM log
         WHERE NOT EXISTS (SELECT FROM feed WHERE feed.seq = log.seq) ORDER BY seq LIMIT 1000",
    ),
    (
        Invariant::LogContiguous,
        "SELECT format('event %s is to stand in log row %s, which is not there', first, seq) FROM feed
         WHERE NOT EXISTS (SELECT FROM log WHERE log.seq = feed.seq) ORDER BY first LIMIT 1000",
    ),
    (
        Invariant::LogContiguous,
        "SELECT format('the feed counts %s events in log row %s, which counts %s', feed.count, seq, log.count)
         FROM feed JOIN log USING (seq) WHERE feed.count <> log.count ORDER BY first LIMIT 1000",
    ),
    (
        Invariant::Time,
        "SELECT format('log row %s is of another time than its place in the feed', seq)
         FROM feed JOIN log USING (seq) WHERE feed.at <> log.at ORDER BY first LIMIT 1000",
    ),
];

async fn check_feed(snapshot: &Transaction<'_>, report: &mut Report) -> PgResult<()> {
    for (rule, sql) in FEED_RULES {
        for row in snapshot.query(*sql, &[]).await? {
            report.add(*rule, row.try_get::<_, String>(0)?);
        }
    }
    Ok(())
}

/// A table, and where its rows go in the copy.
struct Table {
    read: &'static str,
    write: &'static str,
}

/// In this order: what others refer to comes first. Jobs get numbers, which they have in the copy alone. Log rows
/// are known in the copy by the number of their first event; what refers to one that is not there gets 0, and
/// what refers to a job that is not there gets -1, so that the checker finds both. A sum that is too large for a number
/// is the largest one.
const TABLES: &[Table] = &[
    Table {
        read: "SELECT name, value FROM meta WHERE name = 'feed_from'
               UNION ALL SELECT 'many_writers', '1'",
        write: "INSERT INTO meta (name, value) VALUES (?1, CAST(?2 AS INTEGER))",
    },
    Table {
        read: "SELECT id, queue, tenant, kind, isolated FROM job_groups",
        write: "INSERT INTO job_groups (id, queue, tenant, kind, isolated) VALUES (?1, ?2, ?3, ?4, ?5)",
    },
    Table {
        read: "SELECT id, worker, until, renewals, lapses_at, started_at FROM sessions",
        write: "INSERT INTO sessions (id, worker, until, renewals, lapses_at, started_at)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    },
    Table {
        read: "SELECT first, seq FROM feed",
        write: "INSERT INTO temp.feed (first, seq) VALUES (?1, ?2)",
    },
    Table {
        read: "SELECT seq, tenant, at, count, events FROM log",
        write: "INSERT INTO log (id, tenant, at, count, events)
                SELECT first, ?2, ?3, ?4, ?5 FROM temp.feed WHERE seq = ?1",
    },
    Table {
        read: "SELECT row_number() OVER (), id, tenant, group_id, state, rank, version, attempt, retry_count,
                   max_retries, epoch, created_at, updated_at, started_at, next_retry_at, timer_at,
                   lease_session, lease, task_id, idempotency_scope, idempotency_key, payload_digest,
                   trace_made, trace_id, dlq_id, options, rest, history, payload FROM jobs",
        write: "INSERT INTO jobs (seq, id, tenant, group_id, state, rank, version, attempt, retry_count,
                    max_retries, epoch, created_at, updated_at, started_at, next_retry_at, timer_at,
                    lease_session, lease, task_id, idempotency_scope, idempotency_key, payload_digest,
                    trace_id, dlq_id, options, rest, history, payload)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
                    ?20, ?21, ?22, coalesce(?23, ?24), ?25, ?26, ?27, ?28, ?29)",
    },
    Table {
        read: "SELECT parent, id FROM children",
        write: "INSERT INTO children (parent, seq)
                VALUES (?1, coalesce((SELECT seq FROM jobs WHERE id = ?2), -1))",
    },
    Table {
        read: "SELECT id, attempt, result, remaining, stats FROM outputs",
        write: "INSERT INTO outputs (seq, attempt, result, remaining, stats)
                VALUES (coalesce((SELECT seq FROM jobs WHERE id = ?1), -1), ?2, ?3, ?4, ?5)",
    },
    Table {
        read: "SELECT id, seq FROM job_log",
        write: "INSERT INTO job_log (seq, log_id)
                VALUES (coalesce((SELECT seq FROM jobs WHERE id = ?1), -1),
                    coalesce((SELECT first FROM temp.feed WHERE seq = ?2), 0))",
    },
    Table {
        read: "SELECT id, at, least_ms, version, rows FROM pruned",
        write: "INSERT INTO pruned (id, at, least_ms, version, rows) VALUES (?1, ?2, ?3, ?4, ?5)",
    },
    Table {
        read: "SELECT tenant, task_id, next_attempt FROM tasks",
        write: "INSERT INTO tasks (tenant, task_id, next_attempt) VALUES (?1, ?2, ?3)",
    },
    Table {
        read: "SELECT id, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter
               FROM dlq_items",
        write: "INSERT INTO dlq_items
                    (id, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    },
    Table {
        read: "SELECT dlq_id, step, principal, reason, at FROM approvals",
        write: "INSERT INTO approvals (dlq_id, step, principal, reason, at) VALUES (?1, ?2, ?3, ?4, ?5)",
    },
    Table {
        read: "SELECT seq, job_id, tenant, at, op, payload FROM inbox",
        write: "INSERT INTO inbox (seq, job_id, tenant, at, op, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    },
    Table {
        read: "SELECT seq, place, job_id, tenant, asked_at, at, outcome, existing, code, why, op, payload
               FROM inbox_results",
        write: "INSERT INTO inbox_results
                    (event, job_id, tenant, asked_at, at, outcome, existing, code, why, op, payload)
                VALUES (coalesce(CAST((SELECT first FROM temp.feed WHERE seq = ?1) + ?2 AS INTEGER), 0),
                    ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    },
    Table {
        read: "SELECT id, found_at, why FROM inbox_set_aside",
        write: "INSERT INTO inbox_set_aside (id, found_at, why) VALUES (?1, ?2, ?3)",
    },
];

/// Came with the third schema. A store can be checked that nobody has opened since.
const PROGRESS: Table = Table {
    read: "SELECT id, epoch, at, value FROM progress",
    write: "INSERT INTO progress (seq, epoch, at, value)
            VALUES (coalesce((SELECT seq FROM jobs WHERE id = ?1), -1), ?2, ?3, ?4)",
};
const HAS_PROGRESS: &str = "SELECT to_regclass('progress') IS NOT NULL";

/// Came with the fourth schema.
const NOTES: Table = Table {
    read: "SELECT seq, place, tenant, about, name, at FROM notes",
    write: "INSERT INTO notes (event, tenant, about, name, at)
            VALUES (coalesce(CAST((SELECT first FROM temp.feed WHERE seq = ?1) + ?2 AS INTEGER), 0),
                ?3, ?4, ?5, ?6)",
};
const HAS_NOTES: &str = "SELECT to_regclass('notes') IS NOT NULL";

/// Came with the sixth schema.
const ACTS: Table = Table {
    read: "SELECT event, tenant FROM acts",
    write: "INSERT INTO acts (event, tenant) VALUES (?1, ?2)",
};
const HAS_ACTS: &str = "SELECT to_regclass('acts') IS NOT NULL";

/// Came with the eleventh schema.
const LEDGER: &[Table] = &[
    Table {
        read: "SELECT job_id, key, number, step, output FROM steps",
        write: "INSERT INTO steps (seq, key, number, step, output)
                VALUES (coalesce((SELECT seq FROM jobs WHERE id = ?1), -1), ?2, ?3, ?4, ?5)",
    },
    Table {
        read: "SELECT job_id, name, number, at, sender, sort, content, taken FROM signals",
        write:
            "INSERT INTO signals (seq, name, number, at, sender, sort, content, taken)
                VALUES (coalesce((SELECT seq FROM jobs WHERE id = ?1), -1), ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    },
    Table {
        read: "SELECT job_id, key, epoch, at, failed, outcome FROM effects",
        write: "INSERT INTO effects (seq, key, epoch, at, failed, outcome)
                VALUES (coalesce((SELECT seq FROM jobs WHERE id = ?1), -1), ?2, ?3, ?4, ?5, ?6)",
    },
];
const HAS_LEDGER: &str = "SELECT to_regclass('steps') IS NOT NULL";

/// How many rows are fetched at once.
const ROWS_MAX: i32 = 200;

impl Table {
    async fn copy(&self, snapshot: &Transaction<'_>, copy: &mut CheckCopy) -> PgResult<()> {
        let rows = snapshot.bind(self.read, &[]).await?;
        loop {
            let batch = snapshot.query_portal(&rows, ROWS_MAX).await?;
            if batch.is_empty() {
                return Ok(());
            }
            for row in &batch {
                let columns = (0..row.len()).map(|column| value_of(row, column, copy));
                let values = columns.collect::<PgResult<_>>()?;
                copy.write(self.write, values).map_err(Failure::Known)?;
            }
        }
    }
}

/// A column as the copy has it.
fn value_of(row: &Row, column: usize, copy: &mut CheckCopy) -> PgResult<Value> {
    let (name, kind) = (row.columns()[column].name(), row.columns()[column].type_());
    let value = match *kind {
        Type::TEXT => {
            let text: Option<String> = row.try_get(column)?;
            text.map(|it| if name == "task_id" { CheckCopy::task(it) } else { Value::Text(it) })
        }
        Type::BYTEA => match row.try_get::<_, Option<Vec<u8>>>(column)? {
            Some(bytes) if name == "history" => Some(copy.history(bytes).map_err(Failure::Known)?),
            bytes => bytes.map(Value::Blob),
        },
        Type::UUID => {
            let id: Option<Uuid> = row.try_get(column)?;
            id.map(|id| Value::Blob(id.0.to_be_bytes().to_vec()))
        }
        Type::TIMESTAMPTZ => time_or_none(row, column)?.map(|at| Value::Integer(at.as_micros())),
        Type::INT4 => row.try_get::<_, Option<i32>>(column)?.map(|it| Value::Integer(it.into())),
        Type::BOOL => row.try_get::<_, Option<bool>>(column)?.map(|it| Value::Integer(it.into())),
        _ => row.try_get::<_, Option<i64>>(column)?.map(Value::Integer),
    };
    Ok(value.unwrap_or(Value::Null))
}
