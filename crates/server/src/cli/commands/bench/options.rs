//! What a person types after `windlass bench`, and what it comes to.

use std::fmt;

use clap::{Args, ValueEnum};

use super::{error::Error, number, yardstick};

/// More than this is a slip of the finger.
const JOBS_MAX: u64 = 1_000_000_000;

/// Measure how fast Windlass is on this machine.
///
/// Every figure is of durable work: nothing counts before it is on the disk. docs/benchmarks.md says
/// what each workload does and what each figure means.
#[derive(Args)]
pub(crate) struct Bench {
    /// What is measured.
    #[arg(value_enum)]
    workload: Workload,
    /// The database to fill: sqlite:FILE, which is kept, and must not be there yet; or a PostgreSQL database,
    /// postgres://HOST/DATABASE, in which a schema is made and removed. Without it, a file in a temporary
    /// folder below the current one, which is deleted. WINDLASS_STORE does not count.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How many jobs are measured [default: 1_000 for latency, 100_000 for the others].
    #[arg(long, value_name = "N", value_parser = number::within(1..=JOBS_MAX))]
    jobs: Option<u64>,
    /// How many callers or workers at the same time [default: 32 for enqueue, 1 for latency, 2 for the others].
    #[arg(long, value_name = "N", value_parser = number::within(1..=1024))]
    concurrency: Option<u64>,
    /// First put in this many finished jobs, which are not timed.
    #[arg(long, value_name = "N", default_value = "0", value_parser = number::within(0..=JOBS_MAX))]
    history: u64,
    /// For drain: no more than this many jobs at once, by a rule.
    #[arg(long, value_name = "N", value_parser = number::within(1..=1_000_000))]
    limit: Option<u64>,
    /// For drain: spread the jobs over this many keys, and allow one of each at once, by a rule.
    #[arg(long, value_name = "N", default_value = "0", value_parser = number::within(0..=1_000_000))]
    keys: u64,
    /// For drain: spread the jobs over this many tenants.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::within(1..=1_000_000))]
    tenants: u64,
    /// For drain: this many more ready jobs, which stay behind. For latency: this many ready jobs of another
    /// tenant, which are drained meanwhile.
    #[arg(long, value_name = "N", default_value = "0", value_parser = number::within(0..=JOBS_MAX))]
    backlog: u64,
    /// For http: how many jobs one call brings.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::within(1..=1_000))]
    batch: u64,
    /// For http: first let this many callers wait for a job, and see how much memory that takes.
    #[arg(long, value_name = "N", default_value = "0", value_parser = number::within(0..=20_000))]
    polls: u64,
    /// How often all of it is done, each time with a new database.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::within(1..=1000))]
    runs: u64,
    /// Measure in each run the database's own limit too: a bare loop of prepared statements on the same disk.
    #[arg(long)]
    yardstick: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Workload {
    /// Enqueue jobs one by one, from many callers.
    Enqueue,
    /// Enqueue jobs in batches of 1,000.
    EnqueueBulk,
    /// Claim, start and settle jobs that are ready, in batches of 500.
    Drain,
    /// Enqueue 100 jobs a second, and see how soon each one starts.
    Latency,
    /// Enqueue jobs over HTTP, at a server in a process of its own, on SQLite.
    Http,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::Enqueue => "enqueue",
            Workload::EnqueueBulk => "enqueue-bulk",
            Workload::Drain => "drain",
            Workload::Latency => "latency",
            Workload::Http => "http",
        })
    }
}

/// What is to be done, with every default filled in.
pub(super) struct Plan {
    pub(super) workload: Workload,
    /// The kind of store.
    pub(super) store: &'static str,
    pub(super) jobs: u64,
    pub(super) concurrency: u64,
    pub(super) history: u64,
    pub(super) backlog: u64,
    pub(super) limit: Option<u32>,
    pub(super) keys: u64,
    pub(super) tenants: u64,
    pub(super) runs: u64,
    pub(super) yardstick: Option<yardstick::Kind>,
}

/// What is to be done over HTTP.
pub(super) struct HttpPlan {
    pub(super) jobs: u64,
    pub(super) batch: u64,
    pub(super) connections: u64,
    pub(super) polls: u64,
    pub(super) runs: u64,
}

impl Bench {
    /// What is to be done over HTTP, if that is asked for.
    pub(super) fn http(&self) -> Option<HttpPlan> {
        (self.workload == Workload::Http).then_some(HttpPlan {
            jobs: self.jobs.unwrap_or(50_000),
            batch: self.batch,
            connections: self.concurrency.unwrap_or(64),
            polls: self.polls,
            runs: self.runs,
        })
    }

    pub(super) fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// Fills in the defaults, and refuses what does not go together.
    pub(super) fn plan(&self, store: &'static str) -> Result<Plan, Error> {
        let workload = self.workload;
        if self.backlog > 0 && !matches!(workload, Workload::Drain | Workload::Latency) {
            let why = format!(
                "--backlog is for drain and latency, not for {workload}.\nTry --history instead."
            );
            return Err(Error::Usage(why));
        }
        let is_shared = self.limit.is_some() || self.keys > 0 || self.tenants > 1;
        if is_shared && workload != Workload::Drain {
            let why = format!("--limit, --keys and --tenants are for drain, not for {workload}.");
            return Err(Error::Usage(why));
        }
        let (jobs, concurrency, yardstick) = match workload {
            Workload::Enqueue => (100_000, 32, Some(yardstick::Kind::Insert { per_commit: 1 })),
            Workload::EnqueueBulk => {
                (100_000, 2, Some(yardstick::Kind::Insert { per_commit: 1000 }))
            }
            Workload::Drain => (100_000, 2, Some(yardstick::Kind::Drain)),
            Workload::Latency | Workload::Http => (1_000, 1, None),
        };
        if self.yardstick && yardstick.is_none() {
            let why =
                format!("{workload} has no yardstick: its pace is given.\nLeave out --yardstick.");
            return Err(Error::Usage(why));
        }
        Ok(Plan {
            workload,
            store,
            jobs: self.jobs.unwrap_or(jobs),
            concurrency: self.concurrency.unwrap_or(concurrency),
            history: self.history,
            backlog: self.backlog,
            limit: self.limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
            keys: self.keys,
            tenants: self.tenants,
            runs: self.runs,
            yardstick: yardstick.filter(|_| self.yardstick),
        })
    }
}
