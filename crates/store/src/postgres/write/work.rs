//! The work of one commit: the rows it has loaded, and what it remembers from earlier ones.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Job, JobId, Refusal, Session, Timestamp, WorkerId};

use crate::{
    IdMap, Reply,
    commit::{Row, WorkingSet},
    job_row::with_session,
    postgres::{
        claim::rules::{CommitRules, Edition},
        link::types::Xid,
        row::{
            job::{Loaded, Place},
            session::KnownSession,
        },
    },
    read::Word,
};

/// What one commit works on.
pub(crate) struct Work<'a> {
    pub(crate) client: &'a ClientWrapper,
    pub(crate) set: WorkingSet<Place>,
    sessions: BTreeMap<WorkerId, KnownSession>,
    /// Sessions whose leases last longer after this commit.
    pub(crate) longer: BTreeMap<WorkerId, Timestamp>,
    /// Sessions that were renewed.
    pub(crate) renewed: Vec<KnownSession>,
    /// What workers say of themselves.
    pub(crate) words: BTreeMap<WorkerId, Word>,
    /// The rules that it goes by.
    pub(crate) rules: CommitRules,
}

impl<'a> Work<'a> {
    /// Nothing yet, with room for so many jobs, and by these rules.
    pub(crate) fn new(client: &'a ClientWrapper, room: usize, rules: Edition) -> Self {
        let (sessions, longer) = (BTreeMap::new(), BTreeMap::new());
        // The incarnation is told with the first rows.
        let set = WorkingSet::new(0, room);
        let rules = CommitRules::new(rules);
        let (renewed, words) = (Vec::new(), BTreeMap::new());
        let mut work = Self { client, set, sessions, longer, renewed, words, rules };
        work.set.set_rules(&work.rules.book);
        work
    }

    /// The cached rules were out of date: goes by these instead. Nothing is decided yet.
    pub(crate) fn go_by(&mut self, rules: Edition) {
        self.rules = CommitRules::new(rules);
        self.set.set_rules(&self.rules.book);
    }

    /// Adds a job that was loaded.
    pub(crate) fn add(&mut self, loaded: Loaded) {
        self.set.add_job(loaded.job, loaded.place);
    }

    pub(crate) fn add_session(&mut self, known: KnownSession) {
        self.sessions.insert(known.session.worker.clone(), known);
    }

    /// The session of a worker.
    pub(crate) fn session(&self, worker: &WorkerId) -> Option<&KnownSession> {
        self.sessions.get(worker)
    }

    pub(crate) fn session_by_id(&self, id: i32) -> Option<&KnownSession> {
        self.sessions.values().find(|known| known.id == id)
    }

    /// How often the session of a worker was renewed.
    pub(crate) fn renewals(&self, worker: &WorkerId) -> u64 {
        self.sessions.get(worker).map_or(0, |known| known.session.renewals)
    }

    /// Leases of this worker last until then.
    pub(crate) fn lease_until(&mut self, worker: &WorkerId, until: Timestamp) {
        let longest = self.longer.entry(worker.clone()).or_insert(until);
        *longest = (*longest).max(until);
    }

    /// Notes the renewal of a session, and gives back until when it keeps its leases. None, if the worker
    /// has no session.
    pub(crate) fn renew(
        &mut self,
        worker: &WorkerId,
        lease: Duration,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let known = self.sessions.get_mut(worker).filter(|known| known.has_begun())?;
        known.session = known.session.renewed(lease, now);
        let until = known.session.until;
        known.lapses_at = known.lapses_at.max(until);
        self.renewed.retain(|other| other.id != known.id);
        self.renewed.push(known.clone());
        Some(until)
    }

    /// A worker says something of itself. Only one that is known can say goodbye.
    pub(crate) fn hear(&mut self, worker: &WorkerId, word: &Word) -> Result<Reply, Refusal> {
        let has_spoken = matches!(self.words.get(worker), Some(Word::To(_) | Word::Goodbye));
        match word {
            Word::Still if has_spoken => {}
            Word::Goodbye if !has_spoken && self.session(worker).is_none() => {
                return Err(Refusal::NotFound { what: "worker" });
            }
            Word::To(_) | Word::Still | Word::Goodbye => {
                self.words.insert(worker.clone(), word.clone());
            }
        }
        Ok(Reply::Done)
    }

    /// Tells jobs that are remembered what their sessions have done since.
    pub(crate) fn bring_up_to_date(&mut self) {
        let sessions: HashMap<&WorkerId, &Session> =
            self.sessions.iter().map(|(worker, known)| (worker, &known.session)).collect();
        for row in self.set.rows_mut() {
            let Some(lease) = &row.job.lease else { continue };
            let Some(session) = sessions.get(&lease.worker) else { continue };
            if session.renewals != row.place.lease_seen || session.until > lease.until {
                with_session(Arc::make_mut(&mut row.job), &mut row.place.lease_seen, session);
            }
        }
    }

    /// What a worker holds of this commit's jobs.
    pub(crate) fn held_here(&self, worker: &WorkerId) -> impl Iterator<Item = &Job> {
        let jobs = self.set.rows().map(|row| &*row.job);
        jobs.filter(move |job| job.lease.as_ref().is_some_and(|lease| lease.worker == *worker))
    }
}

impl KnownSession {
    /// Did it ever have a lease?
    pub(crate) fn has_begun(&self) -> bool {
        self.lapses_at > Timestamp::from_micros(0)
    }
}

/// A cache of the rows of jobs that workers of this process hold. It spares a commit the reading
/// and unpacking of rows, and nothing else: a commit locks each row that it names, and a cached row
/// counts only if the stored one still has its `xmin`. So nothing is decided by a row that another
/// node has changed since.
///
/// A commit takes the rows that it works on out of the cache, and puts back those that are leased
/// afterwards. A job that ended on another node is never taken: it is evicted with the older of two
/// generations.
#[derive(Default)]
pub(crate) struct Held {
    young: IdMap<Remembered>,
    old: IdMap<Remembered>,
}

/// A job as its row was.
pub(crate) type Remembered = (Arc<Job>, Place);

impl Held {
    /// When the young generation has so many rows, the old one is dropped and the young one becomes
    /// the old one.
    const GENERATION: usize = 8 * 1024;

    /// Takes out what is remembered of these jobs.
    pub(crate) fn take(&mut self, ids: &[JobId]) -> Vec<Remembered> {
        if self.young.is_empty() && self.old.is_empty() {
            return Vec::new();
        }
        ids.iter().filter_map(|id| self.remove(*id)).collect()
    }

    fn remove(&mut self, id: JobId) -> Option<Remembered> {
        let old = self.old.remove(&id);
        self.young.remove(&id).or(old)
    }

    /// Remembers what is held after a commit of this transaction.
    pub(crate) fn put_back(&mut self, rows: IdMap<Row<Place>>, transaction: Xid) {
        for (id, mut row) in rows {
            self.remove(id);
            if row.job.lease.is_none() {
                continue;
            }
            if row.is_changed() {
                row.place.written_by = transaction;
            }
            self.put(id, (row.job, row.place));
        }
    }

    fn put(&mut self, id: JobId, remembered: Remembered) {
        if self.young.len() >= Self::GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, remembered);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}
