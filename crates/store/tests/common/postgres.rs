//! PostgreSQL: a home is a schema of its own, in a cluster that the tests of this process share.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tokio::runtime::Runtime;
use windlass_kernel::{FollowUp, Refusal, TenantId, Timestamp, ops::Enqueue};
use windlass_store::{
    Error, Store, Ticks,
    check::Report,
    postgres::{
        self, EnqueueInError, Options, Postgres, enqueue_in,
        tokio_postgres::{Client, NoTls, Row, types::ToSql},
    },
    sqlite::Clock,
};
use windlass_testkit::postgres::Cluster;

use super::{Home, User, store::runtime};

/// A schema, which goes when this does, unless somebody else has made it.
pub struct SchemaHome {
    pub options: Options,
    connection: String,
    is_mine: bool,
}

impl SchemaHome {
    /// A new schema in the cluster of this process.
    pub fn new() -> Self {
        Self::new_in(Cluster::shared())
    }

    /// A new schema in this cluster.
    pub fn new_in(cluster: &Cluster) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let schema = format!("windlass_{}_{number}", std::process::id());
        let mut home = Self::at(&format!("{}|{schema}", cluster.connection_string("postgres")));
        home.is_mine = true;
        home
    }

    pub fn at(address: &str) -> Self {
        let (connection, schema) = address.split_once('|').unwrap();
        let mut options = Options::new(connection.parse().unwrap());
        schema.clone_into(&mut options.schema);
        options.connections = 16;
        Self { options, connection: connection.to_owned(), is_mine: false }
    }

    /// A connection like that of a shell.
    pub fn sql(&self) -> Shell {
        Shell::connect(&self.options)
    }
}

impl Drop for SchemaHome {
    fn drop(&mut self) {
        if self.is_mine && !std::thread::panicking() {
            self.sql().run(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.options.schema));
        }
    }
}

impl Home for SchemaHome {
    fn address(&self) -> String {
        format!("{}|{}", self.connection, self.options.schema)
    }

    fn open_with_ticks(
        &self,
        clock: Clock,
        ticks: Option<Ticks>,
        runtime: &Runtime,
    ) -> Result<Arc<dyn Store>, Error> {
        let options = Options { clock: Some(clock), ticks, ..self.options.clone() };
        Ok(Arc::new(runtime.block_on(open_patiently(options))?))
    }

    fn check(&self) -> Report {
        runtime(1).block_on(postgres::check(&self.options)).unwrap()
    }

    fn user(&self) -> Box<dyn User> {
        Box::new(self.sql())
    }

    fn count(&self, table: &str) -> u64 {
        let rows = self.sql().query(&format!("SELECT count(*) FROM {table}"), &[]);
        u64::try_from(rows[0].get::<_, i64>(0)).unwrap()
    }

    fn side_tables(&self) -> &'static [&'static str] {
        &[
            "outputs", "progress", "job_log", "job_tags", "job_keys", "steps", "signals",
            "effects", "pruned",
        ]
    }

    fn next_attempts(&self, tenant: &TenantId) -> Vec<u32> {
        let sql = "SELECT next_attempt FROM tasks WHERE tenant = $1 ORDER BY next_attempt";
        let rows = self.sql().query(sql, &[&tenant.as_str()]);
        rows.iter().map(|row| u32::try_from(row.get::<_, i32>(0)).unwrap()).collect()
    }

    fn follow_ups(&self) -> Vec<FollowUp> {
        let rows = self.sql().query("SELECT what FROM follow_ups ORDER BY id", &[]);
        rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
    }
}

/// On a machine that is busy with other things a server may not take a connection within the five seconds that it has.
pub async fn open_patiently(options: Options) -> Result<Postgres, Error> {
    for _ in 1..OPEN_TRIES {
        match Postgres::open(options.clone()).await {
            Err(Error::Unavailable(_)) => {}
            opened => return opened,
        }
    }
    Postgres::open(options).await
}

/// How often a test tries to open a store: a minute, if none of them is answered.
const OPEN_TRIES: usize = 12;

/// A connection with a runtime of its own, so that whoever uses it waits.
pub struct Shell {
    pub client: Client,
    pub runtime: Runtime,
    schema: String,
    changed_before: u64,
}

impl Shell {
    pub fn connect(options: &Options) -> Self {
        let runtime = runtime(1);
        let client = runtime.block_on(async {
            let (client, connection) = options.config.connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&format!("SET search_path = {}", options.schema)).await.unwrap();
            client
        });
        Self { client, runtime, schema: options.schema.clone(), changed_before: 0 }
    }

    pub fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub fn query(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        self.runtime.block_on(self.client.query(sql, values)).unwrap()
    }
}

impl User for Shell {
    fn begin(&mut self) {
        self.run("BEGIN");
    }

    fn sql(&mut self, sql: &str) {
        // What a transaction changed is counted only while it lasts.
        self.changed_before = self.changes();
        self.run(sql);
    }

    fn put(&mut self, op: &Enqueue, at: Timestamp) -> Result<(), Refusal> {
        match self.runtime.block_on(enqueue_in(&self.client, &self.schema, op, at)) {
            Ok(()) => Ok(()),
            Err(EnqueueInError::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        }
    }

    fn changes(&mut self) -> u64 {
        let sql = "
            SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint
            FROM pg_stat_xact_user_tables";
        let rows = self.query(sql, &[]);
        self.changed_before + u64::try_from(rows[0].get::<_, i64>(0)).unwrap()
    }
}
