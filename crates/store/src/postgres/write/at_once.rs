//! A commit that only makes jobs: one statement, which is one trip and one message each way.
//!
//! It needs to know nothing that is stored. That an id is new, inserting it tells; that nothing waits in the inbox,
//! the statement looks; and what time it is, this process knows from the last answer that it got. If any of this
//! is not so, nothing is written, and the commit is tried again in two trips.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Op, Timestamp};

use super::{
    first_load::fresh_ids,
    log_rows::Block,
    save,
    transaction::{Try, TryOutcome},
    work::Work,
};
use crate::{
    Replies, Write,
    commit::{Changes, Needs},
    postgres::{
        Failure, PgResult,
        claim::names::CommitGroups,
        link::pipeline::{Ask, run_one},
        row::column::time_of,
    },
};

impl Try<'_> {
    /// The time, if these writes only make jobs and can be tried at once.
    pub(crate) fn time_to_make_at_once(&self, writes: &[Write]) -> Option<Timestamp> {
        let is_enqueue = |write: &Write| matches!(write, Write::Op { op: Op::Enqueue(_), .. });
        if !self.trusts || writes.is_empty() || !writes.iter().all(is_enqueue) {
            return None;
        }
        let (needs, fresh) = (Needs::of(writes), fresh_ids(writes));
        let are_new = needs.jobs.iter().all(|id| fresh.contains(id));
        if !are_new || !needs.keys.is_empty() || needs.more_than_jobs() {
            return None;
        }
        self.store.time.guess()
    }

    /// Makes the jobs. If anything is refused, nothing is written: it has to be looked at.
    pub(crate) async fn make_at_once(
        &mut self,
        client: &ClientWrapper,
        writes: &[Write],
        now: Timestamp,
    ) -> PgResult<TryOutcome> {
        let store = self.store;
        let mut work = Work::new(client, writes.len(), store.rules.known());
        let mut replies = Replies::with_capacity(writes.len());
        for write in writes {
            let Write::Op { tenant, op } = write else { return Ok(TryOutcome::LookFirst) };
            match write.check().and_then(|()| work.set.apply(tenant, op, now)) {
                Ok(answer) => replies.push(Ok(work.set.reply(answer))),
                Err(_) => return Ok(TryOutcome::LookFirst),
            }
        }
        let (changes, mut rows) = std::mem::take(&mut work.set).finish();
        if !only_makes_jobs(&changes) {
            return Ok(TryOutcome::LookFirst);
        }
        let mut groups = CommitGroups::default();
        let ask =
            save::at_once(self.commit_id, &changes, &mut rows, &work, store, &mut groups, now);
        let ask = ask.await?;
        self.unanswered = Some(replies);
        let answer = self.send(client, ask).await?;
        store.time.read(answer, Some(now));
        groups.keep(&store.names);
        self.tell(&changes, &rows, &work, now);
        Ok(TryOutcome::Done(self.unanswered.take().expect("it was put there")))
    }

    async fn send(&mut self, client: &ClientWrapper, ask: Ask) -> PgResult<Timestamp> {
        match run_one(client, ask).await.map_err(Failure::from) {
            Ok(rows) => time_of(&rows[0], 1),
            Err(error) => {
                self.unanswered.take_if(|_| !error.is_unknown());
                Err(error)
            }
        }
    }
}

/// Is there nothing to save but new jobs and their events, and are there numbers for all log rows?
fn only_makes_jobs(changes: &Changes) -> bool {
    !changes.created.is_empty()
        && changes.updated.is_empty()
        && changes.has_only_jobs()
        && Block::new(0).lacks(changes.events.len()) == 0
}
