//! Decides a batch: loads what it needs, asks the kernel, and makes a plan of all that changes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rusqlite::{Connection, OptionalExtension as _};
use windlass_kernel::{JobId, NewPayload, Refusal, Timestamp, WorkerId};

use super::{
    load,
    work::{Held, Remembered, Work},
    write_plan::{Numbers, WritePlan},
};
use crate::{
    ClaimMany, IdMap, Replies, Reply, Write,
    commit::{
        Grants, Needs, WorkingSet,
        driver::{self, AnswersSoFar, Backend, Decided, at_once, room},
    },
    read::{Scope, Word},
    rules::Rulebook,
    sqlite::{
        SqlResult,
        claim::{
            grant,
            names::{Names, Unsaved},
            ready::Ready,
            rules::Rules,
        },
        read::job::read_payload,
        retention::prune,
        row::{column, granted, inbox, job::Place, ledger, schedule, token},
    },
};

/// What the writer knows without a look: what is stored, and what is planned on top of it.
pub(crate) struct WriterCache {
    names: Names,
    ready: Ready,
    rules: Rules,
    pub(crate) held: Held,
    pub(crate) numbers: Numbers,
}

const NEWEST: &str = "SELECT coalesce(max(id), zeroblob(16)), coalesce(max(seq), 0) FROM jobs";
const LAST: &str = "SELECT id + count - 1 FROM log ORDER BY id DESC LIMIT 1";

impl WriterCache {
    pub(crate) fn load(connection: &Connection) -> SqlResult<Self> {
        let last = connection.query_row(LAST, [], |row| row.get(0)).optional()?;
        let (newest, seq) =
            connection.query_row(NEWEST, [], |row| Ok((column::u128_of(row, 0)?, row.get(1)?)))?;
        let (event, newest) = (last.unwrap_or(0), JobId::from_u128(newest));
        let numbers =
            Numbers { event, seq, newest, newest_claim: granted::load_newest(connection)? };
        let names = Names::load(connection)?;
        let rules = Rules::load(connection, &names)?;
        Ok(Self { names, ready: Ready::default(), rules, held: Held::default(), numbers })
    }

    /// A process vouches for a worker, or does so no more. It gives back what has to be saved.
    pub(crate) fn vouch(&mut self, worker: &WorkerId, vouched: bool) -> Unsaved {
        self.names.vouch(worker, vouched);
        self.names.take_unsaved()
    }
}

/// A plan, and what is said once it is written.
pub(crate) struct AnsweredPlan {
    pub(crate) plan: Arc<WritePlan>,
    pub(crate) replies: Replies,
}

/// What came of an attempt to plan.
pub(crate) enum PlanOutcome {
    Planned(AnsweredPlan),
    /// It needs what a plan that is on its way may change.
    HasToWait,
    /// It was to take nothing from the inbox, and something waits there.
    InboxWaits,
    /// Something was refused, and what it lacks may be among the rows of the inbox that still wait.
    MayBeInInbox,
}

/// What a batch is decided upon, besides what is [`WriterCache`].
pub(crate) struct State<'a> {
    pub(crate) snapshot: &'a Connection,
    /// Plans that are on their way, oldest first.
    pub(crate) flying: &'a VecDeque<Arc<WritePlan>>,
    pub(crate) last_pruned: Option<JobId>,
    pub(crate) incarnation: u32,
}

/// Decides these rows of the inbox, and then these writes.
pub(crate) fn decide(
    state: &State<'_>,
    known: &mut WriterCache,
    inbox: inbox::InboxRows,
    writes: &[Write],
    now: Timestamp,
) -> SqlResult<PlanOutcome> {
    let joined;
    let writes = if inbox.len() == 0 {
        writes
    } else {
        joined = inbox.before(writes);
        &joined
    };
    let needs = Needs::of(writes);
    let sets_rules = writes.iter().any(|write| matches!(write, Write::Rule(_)));
    // What rules hold is counted anew from what is stored.
    if !state.flying.is_empty() && sets_rules {
        return Ok(PlanOutcome::HasToWait);
    }
    let WriterCache { names, ready, rules, held, numbers } = known;
    let remembered = Remembered { names, held, ready, rules };
    let mut work = Work::new(state.incarnation, room(writes), remembered, state.flying, *numbers);
    load::load(state.snapshot, &needs, &mut work)?;
    token::load(state.snapshot, &needs, &mut work)?;
    ledger::load(state.snapshot, &needs, &mut work)?;
    let mut commit = Commit { state, work, inbox: &inbox };
    let answers = match at_once(driver::decide(&mut commit, writes, now))? {
        Decided::Answers(answers) => answers,
        Decided::Retry(tried) => return Ok(tried),
    };
    let Work { set, names, ready, rules, .. } = commit.work;
    let mut plan = WritePlan::new(set, names, ready, numbers, now);
    plan.news.is_ready |= rules.lets_more_go(&plan.changes);
    let mut answers = answers.into_iter();
    let promoted = answers.by_ref().take(inbox.len()).collect();
    plan.inbox = inbox::Promotion { batch: inbox, replies: promoted };
    Ok(PlanOutcome::Planned(AnsweredPlan { plan: Arc::new(plan), replies: answers.collect() }))
}

/// A commit that is being decided.
struct Commit<'a> {
    state: &'a State<'a>,
    work: Work<'a>,
    inbox: &'a inbox::InboxRows,
}

impl Backend for Commit<'_> {
    type Place = Place;
    type Error = rusqlite::Error;
    type Retry = PlanOutcome;

    fn parts(&mut self) -> (&mut WorkingSet<Place>, &mut Rulebook) {
        (&mut self.work.set, &mut self.work.rules.book)
    }

    async fn load_schedules(&mut self, needs: &Needs) -> SqlResult<()> {
        schedule::load(self.state.snapshot, needs, &mut self.work)
    }

    async fn load_enqueues(&mut self, enqueues: &[Write]) -> SqlResult<()> {
        load::load(self.state.snapshot, &Needs::of(enqueues), &mut self.work)
    }

    async fn is_forgotten(&mut self, id: JobId) -> SqlResult<bool> {
        Ok(Some(id) <= self.state.last_pruned && prune::is_pruned(self.state.snapshot, id)?)
    }

    fn hear(&mut self, worker: &WorkerId, word: &Word, now: Timestamp) -> Result<Reply, Refusal> {
        self.work.names.hear(worker, word, now)
    }

    fn note_lease(&mut self, job: JobId, worker: &WorkerId) {
        let session = self.work.names().session_of(worker);
        let renewals = session.map_or(0, |(_, session)| session.renewals);
        self.work.set.place_mut(job).expect("its claim was granted").lease_seen = renewals;
    }

    fn extend_session(&mut self, worker: &WorkerId, until: Timestamp) {
        self.work.names.lease_session(worker, until);
    }

    fn retry(&self, _writes: &[Write], answers: &AnswersSoFar) -> Option<PlanOutcome> {
        let may_be_in_inbox =
            self.inbox.is_full() && driver::refuses_any(&answers[self.inbox.len()..]);
        may_be_in_inbox.then_some(PlanOutcome::MayBeInInbox)
    }

    async fn before_claims(&mut self, sets_rules: bool, now: Timestamp) -> SqlResult<()> {
        let Work { rules, names, set, .. } = &mut self.work;
        if sets_rules {
            rules.count_anew(self.state.snapshot, names)?;
        }
        rules.after_ops(set, now);
        Ok(())
    }

    async fn claim(&mut self, wanted: &ClaimMany, now: Timestamp) -> SqlResult<Grants> {
        grant::claim(self.state.snapshot, wanted, &mut self.work, now)
    }

    async fn renew(
        &mut self,
        worker: &WorkerId,
        lease: Duration,
        now: Timestamp,
    ) -> SqlResult<Option<Reply>> {
        let Some(session) = self.work.names().begun_session_of(worker) else { return Ok(None) };
        let session = session.renewed(lease, now);
        let until = session.until;
        self.work.names.renew_session(session);
        let rows = self.work.held_by(self.state.snapshot, worker)?;
        let held = rows.iter().map(|row| row.id).collect();
        let unwanted = rows.iter().filter(|row| row.to_be_cancelled);
        let cancelled = unwanted.map(|row| row.id).collect();
        Ok(Some(Reply::Renewed { until, cancelled, held }))
    }

    async fn payloads(&mut self, jobs: &[JobId]) -> SqlResult<IdMap<String>> {
        jobs.iter().map(|id| Ok((*id, self.payload_of(*id)?))).collect()
    }
}

impl Commit<'_> {
    /// The payload of a job that the same claim was granted before.
    fn payload_of(&self, id: JobId) -> SqlResult<String> {
        let flying = self.state.flying.iter().rev();
        let new = self.work.set.new_payload(id);
        match new.or_else(|| flying.into_iter().find_map(|plan| plan.new_payload(id))) {
            Some(NewPayload::Given(payload)) => Ok(payload.as_str().to_owned()),
            Some(NewPayload::Of(other)) => self.payload_of(*other),
            None => read_payload(self.state.snapshot, &Scope::Every, id)?
                .ok_or(rusqlite::Error::QueryReturnedNoRows),
        }
    }
}
