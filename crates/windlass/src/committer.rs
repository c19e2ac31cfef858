//! The Committer: groups writes that come at the same time into one transaction.
//!
//! While one batch is being written, whatever arrives waits; then all of that is the next batch, or earlier if
//! it has become many and the store can use a second one. There is no sleep and no timer: alone, a write is a
//! transaction of its own and waits for nothing; in a crowd, hundreds share one.
//!
//! Always true here:
//! - An answer comes after the store's commit has returned, and each write gets exactly one, also when
//!   the Committer is told to shut down, is dropped or panics.
//! - Writes that name the same job reach the store in the order they were accepted; `pending.rs` says
//!   why. Writes that name no job (a claim, the renewal of a session) have no order.
//! - As many transactions are in flight as the store can use, and no two that name the same job. A second
//!   Committer on the same store would have no order with the first.
//!
//! Never here: a rule about jobs. What a write does is decided in the store's transaction, by the kernel.
//!
//! ```
//! # use std::{future::pending, sync::Arc};
//! # use windlass::committer::{Committer, Config};
//! # use windlass_store::{Commit, Write};
//! # async fn example(store: Arc<dyn Commit>, write: Write) -> Result<(), Box<dyn std::error::Error>> {
//! let committer = Committer::new(store, Config::default());
//! let handle = committer.handle();
//! tokio::spawn(committer.run(pending()));
//! let reply = handle.submit(write).await?; // It is on the disk now.
//! # Ok(())
//! # }
//! ```

mod flying;
mod handle;
mod pending;
mod queue;
mod shares;
#[cfg(test)]
mod tests;

use std::{future::Future, pin::pin, sync::Arc};

pub use self::handle::{Handle, SubmitError, Ticket};
use self::{
    flying::Flying,
    queue::{Batch, Entry, Queue, Sender},
};
use crate::{condition::Condition, tally::Tally, touched::Touched};
use windlass_store::{Commit, Error, Overlap, Write};

/// The bounds of a Committer.
///
/// A write counts as one, and as one more for each 4 KiB of payload; a claim counts for as many jobs as it
/// wants. A bound of zero counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How much one transaction takes. The first write of each lane is taken whatever it counts.
    pub batch_max: u32,
    /// How much may wait in each of the two lanes: what holders of leases say, and everything else. A
    /// write that counts for more takes the whole room. One tenant takes an eighth of it at the most, or one batch
    /// if that is more: its writes wait for each other, and those of others find room.
    pub queue_max: u32,
}

impl Config {
    /// How much of each lane one tenant may take.
    fn share(&self) -> u32 {
        (self.queue_max / 8).max(self.batch_max).min(self.queue_max)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { batch_max: 1000, queue_max: 10_000 }
    }
}

/// Groups writes into transactions. Nothing is written until [`run`](Committer::run) is polled.
pub struct Committer {
    store: Arc<dyn Commit>,
    queue: Arc<Queue>,
    overlap: Overlap,
    tally: Arc<Tally>,
    condition: Arc<Condition>,
    touched: Arc<Touched>,
}

impl Committer {
    /// A Committer in front of this store.
    pub fn new(store: Arc<dyn Commit>, config: Config) -> Self {
        let (batch_max, queue_max) = (config.batch_max.max(1), config.queue_max.max(1));
        let overlap = store.overlap();
        let queue = Queue::new(Config { batch_max, queue_max }, overlap.commits_max > 1);
        let (tally, condition, touched) = (Arc::default(), Arc::default(), Arc::default());
        Self { store, queue, overlap, tally, condition, touched }
    }

    /// What was written so far, counted.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }

    /// Where it notes how the store takes what is written.
    pub(crate) fn condition(&self) -> Arc<Condition> {
        self.condition.clone()
    }

    /// Whose things were written to.
    pub(crate) fn touched(&self) -> Arc<Touched> {
        self.touched.clone()
    }

    /// A way to submit writes.
    pub fn handle(&self) -> Handle {
        Handle { queue: self.queue.clone() }
    }

    /// Commits until `shutdown` is ready; then accepts nothing more, commits what was accepted, and ends.
    ///
    /// It ends with an error if the store has stopped: everybody has been told, and this process has to
    /// open the store again. Dropping the future ends it at once: whatever waits is not written, and
    /// what the store had been given is ambiguous.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Arc<Error>> {
        let mut committing = pin!(self.commit_all());
        tokio::select! {
            biased;
            () = shutdown => self.queue.close(),
            ended = &mut committing => return ended,
        }
        committing.await
    }

    async fn commit_all(&self) -> Result<(), Arc<Error>> {
        let Overlap { commits_max, writes_min } = self.overlap;
        if commits_max <= 1 {
            while let Some(batch) = self.queue.next_batch(0).await {
                self.ended(self.commit(batch).await)?;
            }
            return Ok(());
        }
        let mut flying = Flying::default();
        loop {
            self.queue.let_claims_wait(self.store.claims_wait());
            let least = if flying.is_empty() { 0 } else { writes_min };
            tokio::select! {
                biased;
                landed = flying.next(), if !flying.is_empty() => self.ended(landed)?,
                batch = self.queue.next_batch(least), if flying.len() < commits_max => match batch {
                    Some(batch) => flying.add(self.commit(batch)),
                    None => break,
                },
            }
        }
        while !flying.is_empty() {
            self.ended(flying.next().await)?;
        }
        Ok(())
    }

    /// If the store has stopped, whoever waits is told.
    fn ended(&self, commit: Result<(), Arc<Error>>) -> Result<(), Arc<Error>> {
        commit.inspect_err(|stopped| self.queue.end(&SubmitError::Store(stopped.clone())))
    }

    /// Commits a batch and answers all of it. Fails only if the store has stopped.
    ///
    /// A batch that the store cannot digest is halved until the one write that is to blame stands alone,
    /// so a batch of `n` takes fewer than `2n` transactions. The first half goes first: order is kept.
    async fn commit(&self, batch: Batch) -> Result<(), Arc<Error>> {
        let done = self.commit_entries(batch.entries).await;
        self.queue.land(batch.jobs);
        done
    }

    async fn commit_entries(&self, batch: Vec<Entry>) -> Result<(), Arc<Error>> {
        let (writes, answers): (Vec<Write>, Vec<Sender>) =
            batch.into_iter().map(|entry| (entry.write, entry.answer)).unzip();
        let mut parts = vec![(Arc::new(writes), answers)];
        while let Some((writes, mut answers)) = parts.pop() {
            let error = match self.store.commit(writes.clone()).await {
                Ok(replies) => {
                    if !writes.is_empty() {
                        self.condition.written();
                    }
                    // If the store forgets one, its sender is dropped, and that tells it the truth: lost.
                    for ((answer, reply), write) in answers.into_iter().zip(replies).zip(&*writes) {
                        if let Ok(reply) = &reply {
                            self.tally.count(write, reply);
                        }
                        let _ = answer.send(reply.map_err(SubmitError::Refused));
                    }
                    self.touched.tell(&writes);
                    continue;
                }
                Err(error) => Arc::new(error),
            };
            self.condition.not_written(&error);
            let verdict = Verdict::on(&error);
            if verdict == Verdict::OneIsToBlame && answers.len() > 1 {
                let (first, second) = writes.split_at(answers.len() / 2);
                let of_second = answers.split_off(first.len());
                let part = |writes: &[Write], answers| (Arc::new(writes.to_vec()), answers);
                parts.extend([part(second, of_second), part(first, answers)]);
                continue;
            }
            let told = || Err(SubmitError::Store(error.clone()));
            answers.into_iter().for_each(|answer| drop(answer.send(told())));
            if verdict != Verdict::OneIsToBlame {
                let others = parts.drain(..).flat_map(|(_, answers)| answers);
                others.for_each(|answer| drop(answer.send(told())));
            }
            if verdict == Verdict::Stopped {
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // After a proper end nobody waits any more. After a panic, or if the future of `run` was
        // dropped, whoever is still in the queue was not written.
        self.queue.end(&SubmitError::Closed);
    }
}

/// What an error of the store says about the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A smaller batch may go through.
    OneIsToBlame,
    /// No batch would have gone through, or nobody knows: everybody hears it.
    AllAlike,
    /// No batch will ever go through.
    Stopped,
}

impl Verdict {
    fn on(error: &Error) -> Self {
        match error {
            // The database refused what one write would do: that write fails, the others need not.
            Error::Contradiction(_) => Verdict::OneIsToBlame,
            Error::Stopped(_) => Verdict::Stopped,
            // The store is away, full or broken: halves would fail like the whole, only slower.
            Error::Unavailable(_) | Error::DiskFull(_) | Error::Damaged(_) => Verdict::AllAlike,
            // It may have been written. Sending it again is the caller's choice, not ours.
            Error::Ambiguous(_) => Verdict::AllAlike,
            // A store that could not be opened, and whatever we have no better word for.
            _ => Verdict::AllAlike,
        }
    }
}

/// Where another task may come in between, as far as tests that explore schedules know.
#[inline]
fn race_point() {
    #[cfg(test)]
    tests::schedules::race_point();
}
