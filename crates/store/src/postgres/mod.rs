//! The store in a schema of a PostgreSQL database: several nodes, one truth.
//!
//! Each commit is one transaction on a connection of a pool (`write/writer`). Nodes know nothing of each
//! other: what keeps them apart are row locks, unique keys, and an optimistic lock: a row is
//! written only if its `xmin` is still the one that was read (compare-and-set). Each call has a
//! deadline. The clock that decides is the database's.

mod check;
mod claim;
mod link;
mod port;
mod read;
mod retention;
mod row;
mod write;

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::ClientWrapper;
use tokio::time::timeout;
pub use tokio_postgres;
use tokio_postgres::Row;
use windlass_kernel::{JobId, Timestamp};

pub use self::{
    check::check,
    link::open::{Options, Verify, remove, size_bytes},
    read::survey::{steps, survey},
    row::inbox::{EnqueueInError, enqueue_in},
};
use self::{
    claim::{names::Names, ready, rules},
    link::{
        failure::Failure,
        open,
        pool::{Borrowed, Pool},
        presence, server_time,
        thread::Thread,
        wake::{self, Wake},
    },
    read::{causes, due},
    retention::prune::Sweep,
    row::{column, inbox},
    write::{transaction, work::Held},
};
use crate::{Error, StoreFuture, news::Sooner};

type PgResult<T> = Result<T, Failure>;

/// Tells the time in place of the database's clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A store in a schema of a PostgreSQL database.
///
/// Dropping it closes its connections. What was asked for and not answered may or may not be done.
pub struct Postgres {
    inner: Arc<Inner>,
    thread: Thread,
}

/// What all calls share.
struct Inner {
    pool: Pool,
    time: Arc<server_time::ServerTime>,
    deadline: Duration,
    names: Names,
    rules: rules::Rules,
    ready: ready::Ready,
    held: Mutex<Held>,
    sweep: tokio::sync::Mutex<Sweep>,
    wake: Wake,
    sooner: Sooner,
    presence: presence::Presence,
    /// Who has this lock gives out the next numbers of events.
    feed_lock: (i32, i32),
    /// The incarnation whose older leases were ended.
    incarnation: AtomicU32,
}

impl Postgres {
    /// Connects, brings the schema up to date and starts to listen.
    pub async fn open(options: Options) -> Result<Self, Error> {
        let thread = Thread::start()?;
        let open = async move {
            let inner = Arc::new(open::open(options).await?);
            inner.settle_in().await?;
            while inner.with_client(causes::make).await? {}
            wake::start(&inner);
            Ok(inner)
        };
        Ok(Self { inner: thread.run(open).await?, thread })
    }

    /// Runs a call on the store's own thread (`thread`), and waits for its answer there.
    fn ask<T, F>(&self, call: impl FnOnce(Arc<Inner>) -> F) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Box::pin(self.thread.run(call(self.inner.clone())))
    }
}

impl Inner {
    /// A connection that is free.
    async fn client(&self) -> PgResult<Borrowed> {
        self.within(self.pool.get()).await
    }

    /// Reads something.
    async fn with_client<T>(
        &self,
        read: impl AsyncFnOnce(&ClientWrapper) -> PgResult<T>,
    ) -> Result<T, Error> {
        let mut client = self.client().await.map_err(Failure::into_error)?;
        let found = self.within(read(client.get())).await;
        if found.as_ref().err().is_none_or(|error| !error.is_unknown()) {
            client.give_back();
        }
        found.map_err(Failure::into_error)
    }

    /// Reads what belongs to a job. A job that is committed and still waits in the inbox is promoted first.
    async fn read_of<T>(
        &self,
        id: JobId,
        is_missing: fn(&T) -> bool,
        read: impl AsyncFn(&ClientWrapper) -> PgResult<T>,
    ) -> Result<T, Error> {
        loop {
            let look = async |client: &ClientWrapper| {
                let found = read(client).await?;
                if !is_missing(&found) {
                    return Ok(Some(found));
                }
                if inbox::is_waiting(client, id).await? {
                    return Ok(None);
                }
                // The job may have been promoted between the read and the look into the inbox.
                read(client).await.map(Some)
            };
            if let Some(found) = self.with_client(look).await? {
                return Ok(found);
            }
            // Each commit takes a bounded part of the inbox, so this ends.
            self.commit(&[]).await?;
        }
    }

    /// Waits for an answer, but not for ever.
    async fn within<T, E: Into<Failure>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> PgResult<T> {
        match timeout(self.deadline, call).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(Failure::TimedOut(self.deadline)),
        }
    }

    /// Who has this lock promotes what waits in the inbox.
    fn inbox_lock(&self) -> (i32, i32) {
        (self.feed_lock.0 + 4, self.feed_lock.1)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has to be done before the first commit.
    async fn settle_in(&self) -> Result<(), Error> {
        let incarnation = self
            .with_client(async |client| {
                self.names.learn(client).await?;
                self.rules.learn(client).await?;
                due::read_now(client, &self.time).await?;
                open::read_incarnation(client).await
            })
            .await?;
        self.end_old_leases(incarnation).await?;
        self.incarnation.store(incarnation, Ordering::SeqCst);
        Ok(())
    }

    /// The incarnation whose older leases were ended, and the table that it stands in.
    fn identity(&self) -> (i64, i64) {
        let incarnation = i64::from(self.incarnation.load(Ordering::SeqCst));
        (incarnation, i64::from(self.feed_lock.1.cast_unsigned()))
    }

    fn is_new(&self, incarnation: u32) -> bool {
        self.incarnation.load(Ordering::SeqCst) < incarnation
    }

    /// Drops the floors, and marks all cached lines as stale: another node may have made jobs ready
    /// anywhere.
    fn forget_ready(&self) {
        self.names.forget_floors();
        self.ready.hear();
    }

    /// Looks whether the store that a commit has met is still the one that was opened, and tells whether it has another
    /// incarnation by now.
    ///
    /// Restoring a dump replaces the tables, and all advisory locks of this store are named after
    /// the oid of one of them: a node that went on would use other locks than the nodes that were
    /// started since.
    fn meet(&self, moment: &Row) -> PgResult<bool> {
        let found: Option<i64> = moment.try_get(transaction::FOUND_META)?;
        let found = found.ok_or_else(|| Failure::damaged("meta has no incarnation"))?;
        if u32::try_from(found).ok().map(u32::cast_signed) != Some(self.feed_lock.1) {
            let why = "its tables were replaced while this process ran, as a restore does; \
                       start this process again";
            return Err(Failure::Known(Error::Stopped(why.to_owned())));
        }
        let incarnation = column::number(moment, transaction::FOUND_INCARNATION)?;
        Ok(self.is_new(u32::try_from(incarnation).unwrap_or(u32::MAX)))
    }

    /// A commit has seen this incarnation. If it is a new one, the server is not the one it was: nothing that
    /// is remembered holds, and older leases have to end.
    fn note_incarnation(&self, incarnation: u32) {
        if self.is_new(incarnation) {
            self.held().clear();
            self.forget_ready();
            self.wake.look_around();
        }
    }
}

/// Sixteen random bytes, for names that nobody else gives.
#[expect(
    clippy::disallowed_methods,
    reason = "names of commits and pauses between tries, which decide nothing about jobs"
)]
fn random_id() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    u128::from_be_bytes(bytes)
}
