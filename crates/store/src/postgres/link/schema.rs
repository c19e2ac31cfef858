//! Brings the schema up to date, on a connection of its own and in one transaction. A schema that is up to date takes
//! three looks and no transaction.
//!
//! Two versions may serve one database while it is upgraded: so an older program serves a newer schema that says
//! it can, and a step after which older programs cannot serve waits until none of them does. Whoever waits for
//! the server waits for a bounded time, also here.

use std::{future::Future, pin::pin, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{
    Client, Row, Transaction,
    types::{ToSql, Type},
};

use super::{
    open::{Options, quoted},
    partitions,
    pool::Connector,
    wake,
};
use crate::{
    Error,
    migrate::{Migration, missing_if_served},
    postgres::Failure,
};

/// The first part of all our advisory locks.
pub(crate) const LOCK_CLASS: i32 = 0x57_4c_41_53;

/// How long others are waited for that migrate.
const OTHERS_MAX: Duration = Duration::from_secs(60);

/// How often it is tried.
const OTHERS_POLL: Duration = Duration::from_millis(20);

/// The longest that the steps may take: one of them may rewrite a large table.
const STEPS_MAX: Duration = Duration::from_secs(3600);

/// Makes the schema if it is not there, and runs the steps that it lacks. It gives back the lock of its feed.
pub(crate) async fn bring_up_to_date(
    options: &Options,
    connector: &Connector,
    migrations: &[Migration],
) -> Result<(i32, i32), Error> {
    let connected = connector.alone(&options.config, || {}).await;
    let (mut client, task) = connected.map_err(|failure| options.not_opened(failure))?;
    let done = migrate(&mut client, options, connector, migrations).await;
    task.abort();
    done
}

async fn migrate(
    client: &mut Client,
    options: &Options,
    connector: &Connector,
    migrations: &[Migration],
) -> Result<(i32, i32), Error> {
    if check_server(client, options).await?
        && let Some(id) = up_to_date(client, options, migrations).await?
    {
        return Ok((LOCK_CLASS, id));
    }
    let transaction = told(options, client.transaction()).await?;
    let upgrade = Upgrade { transaction, options, connector };
    upgrade.lock().await?;
    upgrade.make_schema().await?;
    let (found, served_from) = upgrade.standing().await?;
    let missing = missing_if_served(migrations, found, served_from)?;
    upgrade.check_others(found, missing).await?;
    upgrade.run(missing).await?;
    let id = upgrade.id().await?;
    told(options, partitions::ensure(&upgrade.transaction)).await?;
    told(options, upgrade.transaction.commit()).await?;
    Ok((LOCK_CLASS, id))
}

/// An answer, in the time that the options give to all calls.
async fn told<T>(
    options: &Options,
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Error> {
    told_within(options.deadline, options, call).await
}

async fn told_within<T>(
    most: Duration,
    options: &Options,
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Error> {
    let told = match timeout(most, call).await {
        Ok(told) => told.map_err(Failure::from),
        Err(_) => Err(Failure::TimedOut(most)),
    };
    told.map_err(|failure| options.not_opened(failure))
}

/// A migration holds the lock exclusively. Once it is free, the next statement sees what was migrated; this one may not, for
/// its snapshot may be older.
const SERVER: &str = "
    SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
        to_regclass('meta') IS NOT NULL AND pg_try_advisory_xact_lock_shared($1, hashtext($2))";

/// Refuses a server that we cannot use. Is there a store, and nobody migrates it just now?
async fn check_server(client: &Client, options: &Options) -> Result<bool, Error> {
    let class = LOCK_CLASS + 1;
    let values: [(&(dyn ToSql + Sync), Type); 2] =
        [(&class, Type::INT4), (&options.schema, Type::TEXT)];
    let facts = told(options, client.query_typed(SERVER, &values)).await?;
    let facts = only(&facts, options)?;
    let (version, encoding): (i32, &str) = (facts.get(0), facts.get(1));
    if version < 130_000 {
        return Err(options.cannot_open("PostgreSQL 13 or newer is needed"));
    }
    if encoding != "UTF8" {
        let why = format!("the database is encoded in {encoding}, and has to be in UTF8");
        return Err(options.cannot_open(why));
    }
    Ok(facts.get(2))
}

fn only<'a>(rows: &'a [Row], options: &Options) -> Result<&'a Row, Error> {
    rows.first().ok_or_else(|| options.cannot_open("the server gave no answer"))
}

const LOOK: &str = "
    SELECT 'meta'::regclass::oid::bigint,
        (SELECT value FROM meta WHERE name = 'schema'),
        (SELECT value FROM meta WHERE name = 'schema_served_by')";

/// The number of the store, if there is nothing to do. All else is found out, and told, under the lock.
async fn up_to_date(
    client: &Client,
    options: &Options,
    migrations: &[Migration],
) -> Result<Option<i32>, Error> {
    let rows = told(options, client.query_typed(LOOK, &[])).await?;
    let look = only(&rows, options)?;
    let number = |column| {
        let value: Option<&str> = look.get(column);
        value.and_then(|value| value.parse::<u32>().ok())
    };
    let (Some(found), Some(served_from)) = (number(1), number(2)) else { return Ok(None) };
    let has_all = missing_if_served(migrations, found, served_from).is_ok_and(<[_]>::is_empty);
    if !(has_all && told(options, partitions::are_ahead(client)).await?) {
        return Ok(None);
    }
    Ok(Some(lock_number(look.get(0))))
}

/// The number of a store in advisory locks is that of its table `meta`.
fn lock_number(meta: i64) -> i32 {
    u32::try_from(meta).unwrap_or_default().cast_signed()
}

/// The transaction in which everything is done.
struct Upgrade<'a> {
    transaction: Transaction<'a>,
    options: &'a Options,
    connector: &'a Connector,
}

const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock($1, hashtext($2))";

impl Upgrade<'_> {
    /// Whoever comes second waits until the first is done, and then finds nothing to do. It asks again and again,
    /// so that a server that waits can be told from one that has fallen silent.
    async fn lock(&self) -> Result<(), Error> {
        let Self { transaction, options, .. } = self;
        told(options, transaction.batch_execute("SET LOCAL lock_timeout = '60s'")).await?;
        let (begun, class) = (Instant::now(), LOCK_CLASS + 1);
        loop {
            let values: [&(dyn ToSql + Sync); 2] = [&class, &options.schema];
            if told(options, transaction.query_one(TRY_LOCK, &values)).await?.get(0) {
                return Ok(());
            }
            if begun.elapsed() > OTHERS_MAX {
                return Err(options.cannot_open("another node has been migrating for a minute"));
            }
            sleep(OTHERS_POLL).await;
        }
    }

    /// Whoever may not make schemas can use one that was made for them.
    async fn make_schema(&self) -> Result<(), Error> {
        let Self { transaction, options, .. } = self;
        let schema = quoted(&options.schema).unwrap_or_default();
        let sql = "SELECT to_regnamespace($1) IS NOT NULL";
        if told(options, transaction.query_one(sql, &[&schema])).await?.get(0) {
            return Ok(());
        }
        told(options, transaction.batch_execute(&format!("CREATE SCHEMA {schema}"))).await
    }

    /// The newest step that was run, and the oldest whose programs can still serve.
    async fn standing(&self) -> Result<(u32, u32), Error> {
        let Self { transaction, options, .. } = self;
        let sql = "SELECT to_regclass('meta') IS NOT NULL";
        if !told(options, transaction.query_one(sql, &[])).await?.get::<_, bool>(0) {
            return Ok((0, 0));
        }
        let sql = "SELECT name, value FROM meta WHERE name IN ('schema', 'schema_served_by')";
        let (mut found, mut served_from) = (None, u32::MAX);
        for row in told(options, transaction.query(sql, &[])).await? {
            let number = row.get::<_, &str>(1).parse().unwrap_or(u32::MAX);
            match row.get(0) {
                "schema" => found = Some(number),
                _ => served_from = number,
            }
        }
        let not_whole = "the table meta is not whole: a dump is being restored here, or was not restored to its end";
        let found = found.ok_or_else(|| options.cannot_open(not_whole))?;
        Ok((found, served_from))
    }

    /// Nodes that were started before and cannot serve after these steps have to be stopped first. One that has
    /// just lost its connection is not seen here: so stop the old ones, and do not rely on this.
    async fn check_others(&self, found: u32, missing: &[Migration]) -> Result<(), Error> {
        let Self { transaction, options, .. } = self;
        if found == 0 || missing.iter().all(|migration| migration.served_from <= found) {
            return Ok(());
        }
        let (class, id) = wake::listeners_lock((LOCK_CLASS, self.id().await?));
        let alone = "SELECT pg_try_advisory_xact_lock($1, $2)";
        if told(options, transaction.query_one(alone, &[&class, &id])).await?.get(0) {
            return Ok(());
        }
        Err(options.cannot_open(
            "nodes of an older version serve this store, and could not after it is migrated: \
             stop them, then start this version again",
        ))
    }

    /// Runs these steps, all in one trip to the server.
    async fn run(&self, migrations: &[Migration]) -> Result<(), Error> {
        let Some(Migration { number, served_from, .. }) = migrations.last() else { return Ok(()) };
        let Self { transaction, options, connector } = self;
        let mut sql: String = migrations.iter().map(|it| format!("{}\n;\n", it.sql)).collect();
        sql += &format!(
            "INSERT INTO meta (name, value) VALUES ('schema', '{number}'), ('schema_served_by', '{served_from}')
             ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        );
        let steps = told_within(STEPS_MAX, options, transaction.batch_execute(&sql));
        let mut steps = pin!(steps);
        loop {
            if let Ok(done) = timeout(options.deadline, &mut steps).await {
                return done;
            }
            // It may take long. Meanwhile a server that lives takes other connections.
            let other = connector.alone(&options.config, || {}).await;
            other.map_err(|failure| options.not_opened(failure))?.1.abort();
        }
    }

    /// The number of this store in advisory locks.
    async fn id(&self) -> Result<i32, Error> {
        let sql = "SELECT 'meta'::regclass::oid::bigint";
        let id: i64 = told(self.options, self.transaction.query_one(sql, &[])).await?.get(0);
        Ok(lock_number(id))
    }
}

#[cfg(test)]
mod tests;
