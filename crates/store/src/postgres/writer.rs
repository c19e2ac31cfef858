//! Commits: tried until it is known what became of them.
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

use super::{
    Failure, Inner, PgResult, inbox,
    load::{id_of, number, text_of},
    partitions,
    pipeline::{Ask, run, run_one},
    transaction::{Tried, Try},
    types::Uuid,
};
use crate::{Error, Replies, Write};

/// How often a transaction that did nothing is tried again.
const TRIES: u32 = 8;

/// How long a commit whose answer was lost is asked about.
const RESOLVE_MAX: Duration = Duration::from_secs(15);

/// Notes the id of a commit, and waits for a transaction that has noted the same and is still open.
pub(super) const NOTE_COMMIT: &str = "INSERT INTO commits (id) VALUES ($1)";

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
    pub(super) async fn commit(&self, writes: &[Write]) -> Result<Replies, Error> {
        let mut promoting = 0;
        let take = inbox::Take { rows_max: inbox::ROWS_MAX, waits: false };
        match self.commit_with(writes, take, &mut promoting).await {
            Ok(Some(replies)) => return Ok(replies),
            Ok(None) => {}
            Err(Error::Contradiction(_)) if promoting > 0 => {}
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
            let mut promoting = 0;
            let take = inbox::Take { rows_max, waits: true };
            match self.commit_with(&[], take, &mut promoting).await {
                Ok(_) => rows_max = (rows_max * 2).min(inbox::ROWS_MAX),
                Err(Error::Contradiction(_)) if promoting > 1 => {
                    rows_max = promoting / 2;
                    continue;
                }
                Err(Error::Contradiction(why)) if promoting == 1 => {
                    let why = format!("the database refuses it: {why}");
                    self.with_client(async |client| inbox::set_first_aside(client, &why).await)
                        .await?;
                }
                Err(error) => return Err(error),
            }
            left = left.saturating_sub(promoting.max(1));
        }
        Ok(())
    }

    /// Ends the leases of earlier incarnations: their workers know of a past that this store has not had.
    /// Each is an op like any other.
    pub(super) async fn end_old_leases(&self, incarnation: u32) -> Result<(), Error> {
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
            let done = self.commit_with(&writes, inbox::Take::NONE, &mut 0).await?;
            // Each ends a lease; if none did, nothing more can be done here, and leases still lapse.
            if !done.is_some_and(|replies| replies.iter().any(Result::is_ok)) {
                return Ok(());
            }
        }
    }

    /// A batch and so many rows of the inbox, in one transaction. None, if something was refused and what
    /// it lacks may be among the rows that still wait: then nothing was written.
    async fn commit_with(
        &self,
        writes: &[Write],
        take: inbox::Take,
        promoting: &mut usize,
    ) -> Result<Option<Replies>, Error> {
        let commit_id = super::random_id();
        let begun = Instant::now();
        let mut lost: Option<Lost> = None;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut this = Try {
                store: self,
                commit_id,
                // What is remembered, and that new ids are new, is trusted once.
                trusts: tries == 1,
                resolves: lost.is_some(),
                take,
                promoting: 0,
                unanswered: None,
            };
            let tried = this.run(writes).await;
            *promoting = this.promoting;
            let error = match tried {
                Ok(Tried::Done(replies)) => return Ok(Some(replies)),
                Ok(Tried::InboxFirst) => return Ok(None),
                Ok(Tried::LookFirst) => continue,
                Ok(Tried::WasDone) => match self.confirm().await {
                    Ok(()) => {
                        let lost = lost.expect("only a commit of ours has this id");
                        // What it made ready is no longer known, and others may wait for it.
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
                // It takes numbers faster than partitions are made ahead.
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
        let note = Ask::new(NOTE_COMMIT).with(Uuid(super::random_id()));
        let noted = self.within(run(client.get(), &[note])).await;
        if noted.is_ok() {
            client.give_back();
        }
        noted.map(drop)
    }
}

/// Longer from try to try, and never the same for two.
fn pause(tries: u32) -> Duration {
    let most = 1u64 << tries.min(9);
    let part = u64::try_from(super::random_id() % 1_000).expect("it is small");
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
