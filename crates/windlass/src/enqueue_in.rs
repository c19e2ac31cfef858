//! Enqueue in the caller's own transaction: the job is there if and only if the caller's rows are.

use windlass_kernel::{
    By, JobId, TenantId,
    ops::{Enqueue, NewJob},
};
#[cfg(feature = "postgres")]
use windlass_store::postgres;
use windlass_store::{
    rusqlite::Connection,
    sqlite::{self, EnqueueInError},
};

use crate::Ids;

/// Enqueues a job in the transaction that `connection` is in, and gives back its id.
///
/// The connection is the caller's own, to the file that the store was opened with, in the process that
/// serves it; the caller's tables live beside ours. The job commits or rolls back with everything else in
/// the transaction. `connection` may be a [`Transaction`](crate::rusqlite::Transaction) or a
/// [`Savepoint`](crate::rusqlite::Savepoint). Use the [`rusqlite`](crate::rusqlite) of this crate, so that
/// the process has one SQLite.
///
/// ```
/// use std::sync::Arc;
/// use windlass::{Committer, Ids, clock, committer::Config, enqueue_in, rusqlite};
/// use windlass_kernel::{Actor, Kind, Payload, Principal, State, TenantId, ops::NewJob};
/// use windlass_store::{ReadJobs, read::Scope, sqlite::{Options, Sqlite}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # runtime.block_on(example())
/// # }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("shop.db");
/// let options = Options { path: path.clone(), clock: clock::system(), ticks: None, address: None };
/// let store = Arc::new(Sqlite::open(options)?);
/// let committer = Committer::new(store.clone(), Config::default());
/// let handle = committer.handle();
/// tokio::spawn(committer.run(std::future::pending()));
///
/// let mut shop = rusqlite::Connection::open(&path)?;
/// shop.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")?;
///
/// // The order and the job that confirms it: both, or neither.
/// let (ids, tenant) = (Ids::system(), TenantId::new("shop")?);
/// let by = Actor::User(Principal::new("ann")?);
/// let payload = Payload::parse(r#"{"order": 1}"#, Payload::MAX_BYTES_DEFAULT)?;
/// let job = NewJob::new(Kind::new("confirm")?, payload);
/// let transaction = shop.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
/// transaction.execute("INSERT INTO orders (item) VALUES ('anchor')", [])?;
/// let job_id = enqueue_in(&transaction, &ids, &tenant, by.into(), job)?;
/// transaction.commit()?;
/// handle.wake();
///
/// let job = store.job(&Scope::Every, job_id).await?.expect("it was committed");
/// assert_eq!(job.state, State::Queued);
/// # Ok(())
/// # }
/// ```
///
/// # What happens when
///
/// Everything that can be refused without a look at stored rows is refused here, before anything is
/// written, and the transaction can go on. The job itself is made right after the commit, by the one
/// pipeline that every write takes: with [`Handle::wake`](crate::Handle::wake), with the next write of
/// anybody, or within a tenth of a second, when the store looks by itself. Whoever writes to the job or
/// reads it by its id finds it at once.
///
/// Only then are keys and tasks looked up. An enqueue whose key is known, or that is refused for another
/// reason, makes no job: an event in the feed says what became of it, and
/// [`inbox_result`](windlass_store::Inspect::inbox_result) gives it back by the id that was returned
/// here, with the request, which is kept.
///
/// # Keep the transaction short
///
/// SQLite has one write lock for the whole file. While the caller's transaction holds it, nobody writes:
/// not another user, and not Windlass. Its writer waits for five seconds and then answers `UNAVAILABLE`,
/// which can be sent again. Nothing is lost, but leases are not renewed either. Begin the transaction with
/// `TransactionBehavior::Immediate`: one that has read before it writes cannot wait for the lock.
///
/// # Errors
///
/// [`EnqueueInError`] says what to do. Nothing was written in any case.
pub fn enqueue_in(
    connection: &Connection,
    ids: &Ids,
    tenant: &TenantId,
    by: By,
    new: NewJob,
) -> Result<JobId, EnqueueInError> {
    let (job_id, random) = (ids.job_id(), ids.random());
    let op = Enqueue { job_id, tenant: tenant.clone(), new: Box::new(new), random, by };
    sqlite::enqueue_in(connection, &op, ids.now())?;
    Ok(job_id)
}

/// Enqueues a job in the caller's own transaction on PostgreSQL, and gives back its id.
///
/// `transaction` is a [`Transaction`](crate::tokio_postgres::Transaction), or a client that is in one, on the
/// database of the store; `schema` is the store's. The job commits or rolls back with everything else in the
/// transaction, which waits for nobody and keeps nobody waiting, however long it stays open. What is said of
/// [`enqueue_in`] about when the job is made and what becomes of one that is refused is true here too. Use the
/// [`tokio_postgres`](crate::tokio_postgres) of this crate. Other languages call the function `enqueue` of the
/// schema.
///
/// ```no_run
/// use windlass::{Ids, enqueue_in_postgres, tokio_postgres::Client};
/// use windlass_kernel::{Actor, Kind, Payload, Principal, TenantId, ops::NewJob};
///
/// # async fn example(shop: &mut Client) -> Result<(), Box<dyn std::error::Error>> {
/// // The order and the job that confirms it: both, or neither.
/// let (ids, tenant) = (Ids::system(), TenantId::new("shop")?);
/// let by = Actor::User(Principal::new("ann")?);
/// let payload = Payload::parse(r#"{"order": 1}"#, Payload::MAX_BYTES_DEFAULT)?;
/// let job = NewJob::new(Kind::new("confirm")?, payload);
/// let transaction = shop.transaction().await?;
/// transaction.execute("INSERT INTO orders (item) VALUES ('anchor')", &[]).await?;
/// let job_id = enqueue_in_postgres(&transaction, "windlass", &ids, &tenant, by.into(), job).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`postgres::EnqueueInError`] says what to do. Nothing was written in any case.
#[cfg(feature = "postgres")]
pub async fn enqueue_in_postgres(
    transaction: &impl postgres::tokio_postgres::GenericClient,
    schema: &str,
    ids: &Ids,
    tenant: &TenantId,
    by: By,
    new: NewJob,
) -> Result<JobId, postgres::EnqueueInError> {
    let (job_id, random) = (ids.job_id(), ids.random());
    let op = Enqueue { job_id, tenant: tenant.clone(), new: Box::new(new), random, by };
    postgres::enqueue_in(transaction, schema, &op, ids.now()).await?;
    Ok(job_id)
}
