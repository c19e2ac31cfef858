//! A copy of a store that is kept in another database, for the history checker.
//!
//! It has our tables without any constraint: what is broken has to fit in, so that the checker can name it.
//! The copy has no name, so nobody else can open it, and it goes with its connection, however that ends.

use rusqlite::{Connection, OptionalExtension as _, params_from_iter, types::Value};

use super::snapshot::check_rules;
use crate::{
    Error,
    check::Report,
    migrate,
    packed::History,
    sqlite::{SqlResult, classify},
};

/// A copy that is being made, and then checked.
pub(crate) struct CheckCopy {
    connection: Connection,
}

/// Nothing here has to outlive a crash.
const CARELESS: &str = "
    PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16384; BEGIN";

/// Where the rows of the log stand in the order of events: the number of the first event of each.
const FEED: &str = "
    CREATE TEMP TABLE feed (first INTEGER, seq INTEGER);
    CREATE INDEX temp.feed_seq ON feed (seq)";

/// Serve the look-ups of the checker. They are made when their tables are full, but for those that serve the
/// copy itself.
const INDEXES_BEFORE: &str = "CREATE INDEX jobs_id ON jobs (id)";
const INDEXES_AFTER: &str = "
    CREATE INDEX groups_id ON job_groups (id);
    CREATE INDEX sessions_id ON sessions (id);
    CREATE INDEX children_both ON children (parent, seq);
    CREATE INDEX outputs_both ON outputs (seq, attempt);
    CREATE INDEX job_log_both ON job_log (seq, log_id);
    CREATE INDEX log_id ON log (id);
    CREATE INDEX pruned_id ON pruned (id);
    CREATE INDEX tasks_both ON tasks (tenant, task_id);
    CREATE INDEX letters_id ON dlq_items (id);
    CREATE INDEX letters_job ON dlq_items (job_id);
    CREATE INDEX approvals_letter ON approvals (dlq_id);
    CREATE INDEX results_event ON inbox_results (event);
    CREATE INDEX results_job ON inbox_results (job_id);
    CREATE INDEX acts_event ON acts (event)";

impl CheckCopy {
    /// A copy in which nothing is yet.
    pub(crate) fn new() -> Result<Self, Error> {
        Self::open().map_err(classify)
    }

    fn open() -> SqlResult<Self> {
        let connection = Connection::open("")?;
        connection.set_prepared_statement_cache_capacity(64);
        connection.execute_batch(CARELESS)?;
        connection.execute_batch(&tables()?)?;
        connection.execute_batch(FEED)?;
        connection.execute_batch(INDEXES_BEFORE)?;
        Ok(Self { connection })
    }

    /// Writes a row.
    pub(crate) fn write(&mut self, sql: &str, row: Vec<Value>) -> Result<(), Error> {
        let write = || self.connection.prepare_cached(sql)?.execute(params_from_iter(row));
        write().map(drop).map_err(classify)
    }

    /// What a task is called here.
    pub(crate) fn task(name: String) -> Value {
        match name.parse::<windlass_kernel::JobId>() {
            Ok(id) => Value::Blob(id.as_u128().to_be_bytes().to_vec()),
            Err(_) => Value::Text(name),
        }
    }

    /// A history that names the log rows as they are named here. One that is not there is 0, which no row of
    /// the log is; what is no history stays as it is.
    pub(crate) fn history(&mut self, bytes: Vec<u8>) -> Result<Value, Error> {
        let Some(history) = History::parse(&bytes) else { return Ok(Value::Blob(bytes)) };
        let first = || {
            let mut first = self.connection.prepare_cached(FIRST)?;
            let mut named = history.chain().to_vec();
            for seq in history.log_ids() {
                let found = first.query_row([seq.cast_signed()], |row| row.get(0)).optional()?;
                named.extend(found.unwrap_or(0i64).to_be_bytes());
            }
            Ok(Value::Blob(named))
        };
        first().map_err(classify)
    }

    /// Checks what was copied.
    pub(crate) fn check(self, report: &mut Report) -> Result<(), Error> {
        let mut check = || {
            self.connection.execute_batch(INDEXES_AFTER)?;
            check_rules(&self.connection, report)
        };
        check().map_err(classify)
    }
}

const FIRST: &str = "SELECT first FROM temp.feed WHERE seq = ?1";

/// A table whose name begins like that is SQLite's own.
const COLUMNS: &str = "
    SELECT 'CREATE TABLE ' || tables.name || ' ('
        || group_concat(columns.name || ' ' || columns.type) || ') STRICT;'
    FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite%' GROUP BY tables.name";

/// Our tables as the migrations make them, with nothing but their columns.
fn tables() -> SqlResult<String> {
    let model = Connection::open_in_memory()?;
    for migration in migrate::SQLITE {
        model.execute_batch(migration.sql)?;
    }
    let mut statement = model.prepare(COLUMNS)?;
    let tables = statement.query_map([], |row| row.get::<_, String>(0))?;
    tables.collect()
}
