//! The retry loop of a commit: it is tried until its outcome is known.
//!
//! Whatever can go wrong is told apart by what is known afterwards. If the transaction is known to have done
//! nothing, it is tried again with what is stored, a few times. If the answer to its `COMMIT` was lost, nobody
//! knows: then the next try carries the same commit id, and either finds that id taken, which means that it
//! was written, or writes everything.

use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tokio::time::{Instant, sleep};
use windlass_kernel::{
    Jitter, JobId, TenantId,
    ops::{Expire, Expiry},
};

use super::transaction::{Try, TryOutcome};
use crate::{
    Error, Replies, Write,
    postgres::{
        Failure, Inner, PgResult,
        link::{
            partitions,
            pipeline::{Ask, run, run_one},
            types::Uuid,
        },
        row::{
            column::{id_of, number, text_of},
            inbox,
        },
    },
};

/// How often a transaction that did nothing is tried again.
const TRIES: u32 = 8;

/// How long a commit whose answer was lost is asked about.
const RESOLVE_MAX: Duration = Duration::from_secs(15);

/// Notes the id of a commit, and waits for a transaction that has noted the same and is still open.
pub(crate) const NOTE_COMMIT: &str = "INSERT INTO commits (id) VALUES ($1)";

/// A commit whose answer was lost, and what it would have answered.
struct Lost {
    replies: Replies,
    error: Failure,
}

impl Inner {
    /// A batch, and before it what waits in the inbox, in one transaction.
    ///
    /// The inbox gets transactions of its own in two cases: it is long and may hold a job that the batch
    /// names, or the database refuses what some row would do, which must not fail the batch.
    pub(crate) async fn commit(&self, writes: &[Write]) -> Result<Replies, Error> {
        let mut promoting = inbox::Promoting::default();
        let take = inbox::Take { rows_max: inbox::ROWS_MAX, waits: false };
        match self.commit_with(writes, take, &mut promoting).await {
            Ok(Some(replies)) => return Ok(replies),
            Ok(None) => {}
            Err(Error::Contradiction(_)) if promoting.rows > 0 => {}
            Err(error) => return Err(error),
        }
        self.promote_all().await?;
        let replies = self.commit_with(writes, inbox::Take::NONE, &mut promoting).await?;
        Ok(replies.expect("without the inbox nothing is missing from it"))
    }

    /// Promotes all that waits now. Rows that the database refuses are halved until the one that is to
    /// blame stands alone; it is set aside.
    async fn promote_all(&self) -> Result<(), Error> {
        let mut left = self.with_client(async |client| inbox::count(client).await).await?;
        let mut rows_max = inbox::ROWS_MAX;
        while left > 0 {
            let mut promoting = inbox::Promoting::default();
            let take = inbox::Take { rows_max, waits: true };
            match self.commit_with(&[], take, &mut promoting).await {
                Ok(_) => rows_max = (rows_max * 2).min(inbox::ROWS_MAX),
                Err(Error::Contradiction(_)) if promoting.rows > 1 => {
                    rows_max = promoting.rows / 2;
                    continue;
                }
                Err(Error::Contradiction(why)) if promoting.rows == 1 => {
                    let seq = promoting.first.expect("the only row has a number");
                    let why = format!("the database refuses it: {why}");
                    self.with_client(async |client| inbox::set_one_aside(client, seq, &why).await)
                        .await?;
                }
                Err(error) => return Err(error),
            }
            left = left.saturating_sub(promoting.rows.max(1));
        }
        Ok(())
    }

    /// Ends the leases of earlier incarnations: their workers know of a past that this store has not had.
    /// Each is an op like any other.
    pub(crate) async fn end_old_leases(&self, incarnation: u32) -> Result<(), Error> {
        let first_epoch = i64::from(incarnation) << 32;
        loop {
            let old = self
                .with_client(async |client| load_leased_before(client, first_epoch).await)
                .await?;
            let expire = |(tenant, job_id, version)| {
                let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
                Write::Op { tenant, op: Expire { job_id, version, what, jitter }.into() }
            };
            let writes: Vec<Write> = old.into_iter().map(expire).collect();
            if writes.is_empty() {
                return Ok(());
            }
            let done =
                self.commit_with(&writes, inbox::Take::NONE, &mut Default::default()).await?;
            // Each ends a lease; if none did, nothing more can be done here, and leases still lapse.
            if !done.is_some_and(|replies| replies.iter().any(Result::is_ok)) {
                return Ok(());
            }
        }
    }

    /// A batch and so many rows of the inbox, in one transaction. None, if an op was refused and
    /// the job that it names may still wait in the inbox: then nothing was written.
    async fn commit_with(
        &self,
        writes: &[Write],
        take: inbox::Take,
        promoting: &mut inbox::Promoting,
    ) -> Result<Option<Replies>, Error> {
        let commit_id = crate::postgres::random_id();
        let begun = Instant::now();
        let mut lost: Option<Lost> = None;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut this = Try {
                store: self,
                commit_id,
                // Caches, and that new ids are new, are trusted by the first try only.
                trusts: tries == 1,
                resolves: lost.is_some(),
                take,
                promoting: inbox::Promoting::default(),
                unanswered: None,
            };
            let tried = this.run(writes).await;
            *promoting = this.promoting;
            let error = match tried {
                Ok(TryOutcome::Done(replies)) => return Ok(Some(replies)),
                Ok(TryOutcome::InboxFirst) => return Ok(None),
                Ok(TryOutcome::LookFirst) => continue,
                Ok(TryOutcome::WasDone) => match self.confirm().await {
                    Ok(()) => {
                        let lost = lost.expect("only a commit of ours has this id");
                        // The commit was written by an earlier try whose changes are gone from
                        // memory: so drop the cached lines, and wake the workers and timers that
                        // may wait for its jobs.
                        self.forget_ready();
                        self.wake.tell();
                        self.sooner.tell_anyway();
                        return Ok(Some(lost.replies));
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if error.lacks_partition() && tries < TRIES {
                // Log numbers were taken faster than partitions are made ahead: make the next one
                // now.
                let lock = self.feed_lock;
                self.with_client(async |it| Ok(partitions::look_ahead(it, lock).await?)).await?;
                continue;
            }
            if let Some(replies) = this.unanswered {
                lost = Some(Lost { replies, error });
            } else if lost.is_none() && !(error.is_worth_a_try() && tries < TRIES) {
                return Err(error.into_error());
            }
            if let Some(lost) = lost.take_if(|_| begun.elapsed() > RESOLVE_MAX) {
                return Err(Error::Ambiguous(lost.error.into_source()));
            }
            sleep(pause(tries)).await;
        }
    }
}

impl Inner {
    /// Waits until all that can be seen is as durable as the server makes it.
    ///
    /// A commit whose connection ended while it waited for a standby can be seen, and the standby may not have
    /// it. A later commit is told only when the standby has both.
    async fn confirm(&self) -> PgResult<()> {
        let mut client = self.client().await?;
        let note = Ask::new(NOTE_COMMIT).with(Uuid(crate::postgres::random_id()));
        let noted = self.within(run(client.get(), &[note])).await;
        if noted.is_ok() {
            client.give_back();
        }
        noted.map(drop)
    }
}

/// Exponential back-off with full jitter: below 2 ms after the first try, doubling to 512 ms.
fn pause(tries: u32) -> Duration {
    let most = 1u64 << tries.min(9);
    let part = u64::try_from(crate::postgres::random_id() % 1_000).expect("it is small");
    Duration::from_micros(most * part)
}

/// Served by the index `jobs_leased`.
const LEASED_BEFORE: &str = "
    SELECT tenant, id, version FROM jobs WHERE lease_session IS NOT NULL AND epoch < $1 LIMIT 500";

/// Some jobs that are held under an epoch before this one.
async fn load_leased_before(
    client: &ClientWrapper,
    epoch: i64,
) -> PgResult<Vec<(TenantId, JobId, u64)>> {
    let rows = run_one(client, Ask::new(LEASED_BEFORE).with(epoch)).await?;
    let lease = |row: &_| Ok((text_of(row, 0)?, id_of(row, 1)?, number(row, 2)?));
    rows.iter().map(lease).collect()
}
