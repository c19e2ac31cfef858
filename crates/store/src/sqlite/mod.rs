//! The store in one SQLite file: no set-up, one process.
//!
//! One thread decides what is written (`write/writer`), another owns the only connection that writes (`write/saver`);
//! a few more read (`file/readers`). The file is locked for as long as it is open (`file/lock`): a second process is refused
//! and told who has it. A mark beside the file (`file/mark`) tells at the next start if something is gone.
//!
//! Other connections of the process may write to tables of their own, and to one of ours: the inbox. What
//! they leave there the writer promotes (`row/inbox`), and a thread notices it (`file/inbox_watch`).
//!
//! For tests the same store can be in memory (`file/memory`), and can answer on the spot (`file/wait`).

mod check;
mod claim;
mod file;
mod port;
mod read;
mod retention;
mod row;
mod write;

use std::{path::PathBuf, sync::Arc};

use rusqlite::{Connection, ErrorCode, ffi};
use windlass_kernel::{JobId, Timestamp};

#[cfg(feature = "postgres")]
pub(crate) use self::check::CheckCopy;
pub use self::{
    check::check,
    file::{
        backup::{BackedUp, BackupOptions, backup},
        copy::Copied,
        memory::MemoryOptions,
        restore::{Restored, restore},
    },
    read::survey::{steps, survey},
    row::inbox::{EnqueueInError, enqueue_in},
};
use self::{
    file::{
        inbox_watch::InboxWatch,
        lock::Lock,
        now::Now,
        open::{self, Opened},
        place::Place,
        presence::Presence,
        readers::Readers,
        wait::Wait,
    },
    read::due,
    row::inbox,
    write::writer_thread::WriterThread,
};
use crate::{
    Bell, Error, Ticks,
    news::{News, Sooner},
    read::Due,
};

type SqlResult<T> = rusqlite::Result<T>;

/// Tells the time. It is asked inside each transaction.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a file is opened.
pub struct Options {
    /// The file. It is made if it is not there; its folder is not.
    pub path: PathBuf,
    /// The clock that decides leases.
    pub clock: Clock,
    /// The monotonic clock that goes with it, such as [`uptime`](crate::uptime): by it time goes on when the clock is
    /// set back, and a jump ahead is noticed. Without it the clock is all there is, as for a test that sets it.
    pub ticks: Option<Ticks>,
    /// Where this process answers. Whoever finds the file in use is told.
    pub address: Option<String>,
}

/// A store in one SQLite file, or in memory.
///
/// Dropping it closes it well: what was asked is written, the log is checkpointed, and the mark
/// is on the disk. The fields are dropped in their order, so the lock is the last to go.
pub struct Sqlite {
    _watch: Option<InboxWatch>,
    readers: Readers,
    writer: WriterThread,
    now: Arc<Now>,
    bells: Arc<Bells>,
    presence: Presence,
    place: Place,
    _lock: Option<Lock>,
}

/// What those who wait hear of commits.
#[derive(Default)]
struct Bells {
    ready: Bell,
    sooner: Sooner,
}

impl Bells {
    /// A commit is durable that brings this.
    fn ring(&self, news: &News) {
        if news.is_ready {
            self.ready.ring();
        }
        self.sooner.tell(news);
    }
}

impl Sqlite {
    /// Opens the file, brings its schema up to date and starts the writer.
    pub fn open(options: Options) -> Result<Self, Error> {
        let opened = open::open(&options.path, options.address.as_deref())?;
        Self::start(opened, Now::new(options.clock, options.ticks), Wait::Task)
    }

    fn start(opened: Opened, now: Now, wait: Wait) -> Result<Self, Error> {
        let Opened { place, connection, lock, files } = opened;
        let (now, bells) = (Arc::new(now), Arc::<Bells>::default());
        let (shared_now, told) = (now.clone(), bells.clone());
        let writer = WriterThread::start(connection, &place, files, shared_now, told, wait)?;
        let readers = Readers::open(&place, wait)?;
        let watch = match wait {
            Wait::Task => Some(InboxWatch::start(&place, writer.promoter())?),
            // The watch would poll by the time of the machine, and a store that blocks its caller has a clock that is set.
            Wait::Thread => None,
        };
        let presence = Presence::default();
        Ok(Self { _watch: watch, readers, writer, now, bells, presence, place, _lock: lock })
    }

    /// A connection of the caller's own to the same database, for tables of their own and for [`enqueue_in`].
    /// What it writes should begin with `BEGIN IMMEDIATE`: a transaction that first reads and then writes is
    /// refused when somebody else has written in between.
    pub fn connect(&self) -> Result<Connection, Error> {
        self.place.connect()
    }

    /// What time has brought. What is committed meanwhile is told.
    async fn look(&self, max: usize) -> Result<Due, Error> {
        let (look, now, max) = (self.bells.sooner.look(), self.now.get(), max.max(1));
        let found = self.readers.read(move |it| Ok(Ok(due::look(it, max, now)?))).await?;
        let due = found.share(max);
        look.found(&due);
        Ok(due)
    }

    /// Reads what belongs to a job. A job that is committed and still waits in the inbox is promoted first.
    async fn read_of<T, R>(
        &self,
        id: JobId,
        is_missing: fn(&T) -> bool,
        read: R,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        R: Fn(&Connection) -> SqlResult<Result<T, Error>> + Clone + Send + 'static,
    {
        loop {
            let read = read.clone();
            let look = move |snapshot: &Connection| {
                let found = match read(snapshot)? {
                    Ok(found) => found,
                    Err(error) => return Ok(Err(error)),
                };
                let waits = is_missing(&found) && inbox::is_waiting(snapshot, id)?;
                Ok(Ok((found, waits)))
            };
            match self.readers.read(look).await? {
                (found, false) => return Ok(found),
                // Each commit takes a bounded part of the inbox, in order, so this ends.
                (_, true) => self.writer.commit(Arc::default()).await.map(drop)?,
            }
        }
    }
}

/// What an error of SQLite means to the caller.
fn classify(error: rusqlite::Error) -> Error {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::DiskFull(error.into()),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Damaged(error.to_string())
        }
        Some(ErrorCode::SystemIoFailure) if extended != Some(ffi::SQLITE_IOERR_READ) => {
            Error::Stopped(format!("the disk failed: {error}"))
        }
        Some(ErrorCode::ConstraintViolation) => Error::Contradiction(error.into()),
        Some(_) => Error::Unavailable(error.into()),
        // SQLite did its part, and the row is not what it has to be.
        None => Error::Damaged(error.to_string()),
    }
}
