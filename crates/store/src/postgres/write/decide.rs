//! Decides a commit: what the driver asks for while it goes through the writes.

use std::time::Duration;

use windlass_kernel::{JobId, Op, Refusal, Timestamp, WorkerId};

use super::{
    first_load::{FirstLoad, Locking},
    load::{add_jobs, load_rest},
    transaction::{Moment, Try, TryOutcome},
    work::Work,
};
use crate::{
    IdMap, Reply, Write,
    commit::{
        ClaimMany, Grants, Needs, WorkingSet,
        driver::{self, AnswersSoFar, Backend},
    },
    postgres::{
        Failure, Inner, PgResult,
        claim::grant::Claims,
        link::{
            pipeline::{Ask, run, run_one},
            types::Uuid,
        },
        row::{column::id_of, inbox, job::Place, schedule},
    },
    read::Word,
    rules::Rulebook,
};

/// A commit that is being decided.
pub(crate) struct Commit<'t, 'w> {
    pub(crate) tried: &'t Try<'t>,
    pub(crate) moment: &'t Moment,
    pub(crate) inbox: &'t inbox::InboxRows,
    pub(crate) work: Work<'w>,
    pub(crate) claims: Claims<'w>,
}

impl Backend for Commit<'_, '_> {
    type Place = Place;
    type Error = Failure;
    type Retry = TryOutcome;

    fn parts(&mut self) -> (&mut WorkingSet<Place>, &mut Rulebook) {
        (&mut self.work.set, &mut self.work.rules.book)
    }

    async fn load_schedules(&mut self, _needs: &Needs) -> PgResult<()> {
        // Their rows were locked and read before all others.
        schedule::load_last_jobs(&mut self.work).await
    }

    async fn load_enqueues(&mut self, enqueues: &[Write]) -> PgResult<()> {
        // A schedule's job has no parent and no task, so nothing that is there is changed.
        load_more(self.tried.store, enqueues, &mut self.work, Locking::Reads).await
    }

    async fn is_forgotten(&mut self, id: JobId) -> PgResult<bool> {
        if Some(id) > self.moment.last_pruned {
            return Ok(false);
        }
        let rows = run_one(self.work.client, Ask::new(IS_PRUNED).with(Uuid(id.as_u128()))).await?;
        Ok(!rows.is_empty())
    }

    fn hear(&mut self, worker: &WorkerId, word: &Word, _now: Timestamp) -> Result<Reply, Refusal> {
        self.work.hear(worker, word)
    }

    fn note_lease(&mut self, job: JobId, worker: &WorkerId) {
        let renewals = self.work.renewals(worker);
        self.work.set.place_mut(job).expect("its claim was granted").lease_seen = renewals;
    }

    fn extend_session(&mut self, worker: &WorkerId, until: Timestamp) {
        self.work.lease_until(worker, until);
    }

    fn retry(&self, writes: &[Write], answers: &AnswersSoFar) -> Option<TryOutcome> {
        let inbox = self.inbox;
        if self.tried.take.rows_max > 0
            && driver::refuses_any(&answers[inbox.len()..])
            && (inbox.is_full() || inbox.rows() == 0 && self.moment.has_inbox)
        {
            return Some(TryOutcome::InboxFirst);
        }
        let is_unseen = self.tried.trusts && self.refuses_unseen(writes, answers);
        is_unseen.then_some(TryOutcome::LookFirst)
    }

    async fn before_claims(&mut self, _sets_rules: bool, now: Timestamp) -> PgResult<()> {
        let Self { tried, work, claims, moment, .. } = self;
        let store = tried.store;
        if claims.is_about(moment.newest_group, &store.names) {
            store.names.learn(work.client).await?;
            claims.look_further();
        }
        // A rule that is set here may keep back what is claimed here.
        claims.look_again(&work.rules, false);
        work.lock_rules(|| claims.groups(&store.names), store.feed_lock.1, now).await?;
        claims.look_below(work, now).await
    }

    async fn claim(&mut self, wanted: &ClaimMany, now: Timestamp) -> PgResult<Grants> {
        self.claims.grant(wanted, &mut self.work, self.tried.store, now).await
    }

    async fn renew(
        &mut self,
        worker: &WorkerId,
        lease: Duration,
        now: Timestamp,
    ) -> PgResult<Option<Reply>> {
        let Some(until) = self.work.renew(worker, lease, now) else { return Ok(None) };
        let session = self.work.session(worker).map(|known| known.id);
        let rows = run_one(self.work.client, Ask::new(HELD).with(session)).await?;
        let (mut held, mut cancelled) = (Vec::new(), Vec::new());
        for row in &rows {
            let id = id_of(row, 0)?;
            if !self.work.set.contains(id) {
                held.push(id);
                cancelled.extend(row.try_get::<_, bool>(1)?.then_some(id));
            }
        }
        for job in self.work.held_here(worker) {
            held.push(job.id);
            cancelled.extend(job.cancel.is_some().then_some(job.id));
        }
        Ok(Some(Reply::Renewed { until, cancelled, held }))
    }

    async fn payloads(&mut self, jobs: &[JobId]) -> PgResult<IdMap<String>> {
        let ids: Vec<Uuid> = jobs.iter().map(|id| Uuid(id.as_u128())).collect();
        let rows = run_one(self.work.client, Ask::new(PAYLOADS).with(ids)).await?;
        let loaded: PgResult<IdMap<String>> =
            rows.iter().map(|row| Ok((id_of(row, 0)?, row.try_get(1)?))).collect();
        let loaded = loaded?;
        match jobs.iter().find(|id| !loaded.contains_key(id)) {
            Some(id) => Err(Failure::damaged(format!("{id} has no payload"))),
            None => Ok(loaded),
        }
    }
}

impl Commit<'_, '_> {
    /// Is an enqueue refused whose id nobody has looked for? An insert would have told that it is taken.
    fn refuses_unseen(&self, writes: &[Write], answers: &AnswersSoFar) -> bool {
        writes.iter().zip(answers).any(|(write, answer)| match write {
            Write::Op { op: Op::Enqueue(op), .. } => {
                matches!(answer, Some(Err(_))) && !self.work.set.contains(op.job_id)
            }
            _ => false,
        })
    }
}

/// Loads what the enqueues of the inbox or of schedules need, which nobody knew before they were read.
pub(crate) async fn load_more(
    store: &Inner,
    enqueues: &[Write],
    work: &mut Work<'_>,
    locking: Locking,
) -> PgResult<()> {
    let needs = Needs::of(enqueues);
    let load = FirstLoad::of(enqueues, &needs, work, &[], false).locking(locking);
    let mut asks = Vec::new();
    load.ask_jobs(&mut asks);
    let found = run(work.client, &asks).await?;
    let jobs = load.take_jobs(&mut found.into_iter(), Vec::new(), true, work)?;
    add_jobs(work, &store.names, &jobs.rows).await?;
    load_rest(work, &store.names, &needs, locking).await
}

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT id, coalesce(rest::json -> 'cancel', 'null')::text <> 'null'
    FROM jobs WHERE lease_session = $1 AND lease_session IS NOT NULL";

const PAYLOADS: &str = "SELECT id, payload FROM jobs WHERE id = ANY($1)";

const IS_PRUNED: &str = "SELECT 1 FROM pruned WHERE id = $1";
