//! What the writer remembers by name: groups and sessions.
//!
//! A cache that is authoritative, because there is one writer: it holds what is stored, and what
//! plans in flight are about to store.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use windlass_kernel::{Job, Queue, Refusal, Session, Timestamp, WorkerId};

use crate::{
    Reply,
    job_row::{GroupName, json},
    read::{Standing, Word},
    sqlite::{
        SqlResult,
        row::{
            column::{text_of, time_of, time_or_none},
            job::Place,
        },
    },
};

/// Groups and sessions, by name and by the number they have in rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    groups: HashMap<GroupName, i64>,
    groups_by_id: HashMap<i64, GroupName>,
    last_group: Option<i64>,
    by_queue: HashMap<Queue, Vec<(i64, GroupName)>>,
    sessions: HashMap<i64, SessionRow>,
    workers: HashMap<WorkerId, i64>,
    greatest_group: i64,
    greatest_session: i64,
    /// Sessions by when they gave their word, oldest first. One that gave it again is here once more.
    listened: VecDeque<(Timestamp, i64)>,
    unsaved: Unsaved,
}

/// Names that a plan adds or changes, in the order in which they are to be saved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsaved {
    groups: Vec<(i64, GroupName)>,
    sessions: Vec<(i64, SessionRow)>,
    /// Sessions that are forgotten.
    gone: Vec<i64>,
}

/// Looks up what rows refer to by number.
pub(crate) trait Lookup {
    /// The group of this number.
    fn group(&self, id: i64) -> SqlResult<Option<GroupName>>;
    /// The session of this number.
    fn session(&self, id: i64) -> SqlResult<Option<Session>>;
}

/// Looks up in the database: readers have no cache of names.
pub(crate) struct Stored<'a>(pub(crate) &'a Connection);

impl Lookup for Stored<'_> {
    fn group(&self, id: i64) -> SqlResult<Option<GroupName>> {
        self.0.prepare_cached(GROUP)?.query_row([id], group_of).optional()
    }

    fn session(&self, id: i64) -> SqlResult<Option<Session>> {
        self.0.prepare_cached(SESSION)?.query_row([id], session_of).optional()
    }
}

impl Lookup for Names {
    fn group(&self, id: i64) -> SqlResult<Option<GroupName>> {
        Ok(self.groups_by_id.get(&id).cloned())
    }

    fn session(&self, id: i64) -> SqlResult<Option<Session>> {
        Ok(self.known(id).cloned())
    }
}

/// A session, when the last of its leases runs out, and whether a process vouches for its worker.
#[derive(Clone, Debug)]
struct SessionRow {
    session: Session,
    lapses_at: Timestamp,
    vouched: bool,
    /// What it listens to, as its row says it.
    listens: Option<Arc<str>>,
    /// When it last said so, or that it does no more.
    listened_at: Option<Timestamp>,
}

impl SessionRow {
    /// A session that has no lease yet.
    fn new(worker: &WorkerId) -> Self {
        let session = Session { worker: worker.clone(), until: Timestamp::MIN, renewals: 0 };
        let (listens, listened_at) = (None, None);
        Self { session, lapses_at: Timestamp::MIN, vouched: false, listens, listened_at }
    }
}

/// How many silent sessions one write frees at the most. Each write brings one, so none is left.
const FORGET_MAX: usize = 20;

const GROUPS: &str = "SELECT queue, tenant, kind, isolated, id FROM job_groups";
const GROUP: &str = "SELECT queue, tenant, kind, isolated FROM job_groups WHERE id = ?1";
const SESSIONS: &str = "
    SELECT worker, until, renewals, id, lapses_at, vouched, listens, listened_at FROM sessions";
const SESSION: &str = "SELECT worker, until, renewals FROM sessions WHERE id = ?1";
const ADD_GROUP: &str =
    "INSERT INTO job_groups (id, queue, tenant, kind, isolated) VALUES (?1, ?2, ?3, ?4, ?5)";
const SAVE_SESSION: &str = "
    INSERT INTO sessions (id, worker, until, renewals, lapses_at, vouched, started_at, listens,
        listened_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until, renewals = excluded.renewals,
        lapses_at = excluded.lapses_at, vouched = excluded.vouched, listens = excluded.listens,
        listened_at = excluded.listened_at";
const DROP_SESSION: &str = "DELETE FROM sessions WHERE id = ?1";

impl Unsaved {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.sessions.is_empty() && self.gone.is_empty()
    }

    pub(crate) fn save(&self, connection: &Connection, now: Timestamp) -> SqlResult<()> {
        for (id, name) in &self.groups {
            connection.prepare_cached(ADD_GROUP)?.execute(params![
                id,
                name.queue.as_str(),
                name.tenant.as_str(),
                name.kind.as_str(),
                name.isolated,
            ])?;
        }
        // First, for a worker that was forgotten may be back under another number.
        for id in &self.gone {
            connection.prepare_cached(DROP_SESSION)?.execute([id])?;
        }
        for (id, SessionRow { session, lapses_at, vouched, listens, listened_at }) in &self.sessions
        {
            connection.prepare_cached(SAVE_SESSION)?.execute(params![
                id,
                session.worker.as_str(),
                session.until.as_micros(),
                session.renewals,
                lapses_at.as_micros(),
                vouched,
                now.as_micros(),
                listens,
                listened_at.map(Timestamp::as_micros),
            ])?;
        }
        Ok(())
    }
}

impl Names {
    /// Loads the whole cache from the database.
    pub(crate) fn load(connection: &Connection) -> SqlResult<Self> {
        let mut names = Names::default();
        let mut groups = connection.prepare(GROUPS)?;
        let mut rows = groups.query([])?;
        while let Some(row) = rows.next()? {
            names.add_group(row.get(4)?, group_of(row)?);
        }
        let mut sessions = connection.prepare(SESSIONS)?;
        let mut rows = sessions.query([])?;
        while let Some(row) = rows.next()? {
            let (session, lapses_at, vouched) = (session_of(row)?, time_of(row, 4)?, row.get(5)?);
            let (listens, listened_at) = (row.get(6)?, time_or_none(row, 7)?);
            let id = row.get(3)?;
            names.listened.extend(listened_at.map(|at| (at, id)));
            names.add_session(id, SessionRow { session, lapses_at, vouched, listens, listened_at });
        }
        names.listened.make_contiguous().sort_unstable();
        Ok(names)
    }

    /// What was added or changed since this was last asked.
    pub(crate) fn take_unsaved(&mut self) -> Unsaved {
        mem::take(&mut self.unsaved)
    }

    /// The number of a job's group, which is made if it is new.
    pub(crate) fn group(&mut self, job: &Job, place: &Place) -> (i64, bool) {
        let isolated = job.is_isolated();
        if let Some(group) = place.group.filter(|(_, was)| *was == isolated) {
            return group;
        }
        // Jobs that are enqueued together are mostly of one group.
        let id = match self.last_group.filter(|id| self.groups_by_id[id].is_of(job)) {
            Some(id) => id,
            None => self.group_named(GroupName::of(job)),
        };
        self.last_group = Some(id);
        (id, isolated)
    }

    fn group_named(&mut self, name: GroupName) -> i64 {
        if let Some(id) = self.groups.get(&name) {
            return *id;
        }
        let id = self.greatest_group + 1;
        self.unsaved.groups.push((id, name.clone()));
        self.add_group(id, name);
        id
    }

    /// The groups of a queue.
    pub(crate) fn groups_of(&self, queue: &Queue) -> &[(i64, GroupName)] {
        self.by_queue.get(queue).map_or(&[], Vec::as_slice)
    }

    /// The group of this number.
    pub(crate) fn group_by_id(&self, id: i64) -> Option<&GroupName> {
        self.groups_by_id.get(&id)
    }

    /// The session of this number.
    pub(crate) fn known(&self, id: i64) -> Option<&Session> {
        self.sessions.get(&id).map(|known| &known.session)
    }

    /// The session of a worker, with its number.
    pub(crate) fn session_of(&self, worker: &WorkerId) -> Option<(i64, &Session)> {
        let id = *self.workers.get(worker)?;
        Some((id, self.known(id)?))
    }

    /// A worker has leases until then: its session begins, or lasts longer.
    pub(crate) fn lease_session(&mut self, worker: &WorkerId, until: Timestamp) {
        match self.known_of(worker).cloned() {
            Some(known) if known.lapses_at >= until => {}
            Some(known) => {
                self.save_session(SessionRow { lapses_at: until, ..known });
            }
            None => {
                self.save_session(SessionRow { lapses_at: until, ..SessionRow::new(worker) });
            }
        }
    }

    /// The session of a worker that has had a lease: before that it is only a name.
    pub(crate) fn begun_session_of(&self, worker: &WorkerId) -> Option<&Session> {
        let known = self.known_of(worker).filter(|known| known.lapses_at > Timestamp::MIN)?;
        Some(&known.session)
    }

    /// A process vouches for the worker, or does so no more.
    pub(crate) fn vouch(&mut self, worker: &WorkerId, vouched: bool) {
        match self.known_of(worker).cloned() {
            Some(known) if known.vouched == vouched => {}
            // A worker whose process has ended listens to nothing.
            Some(known) if !vouched => {
                self.save_session(SessionRow { vouched, listens: None, ..known });
            }
            Some(known) => {
                self.save_session(SessionRow { vouched, ..known });
            }
            None if vouched => {
                self.save_session(SessionRow { vouched, ..SessionRow::new(worker) });
            }
            None => {}
        }
    }

    /// A worker says something of itself. Only one that is known can say goodbye.
    pub(crate) fn hear(
        &mut self,
        worker: &WorkerId,
        word: &Word,
        now: Timestamp,
    ) -> Result<Reply, Refusal> {
        let known = self.known_of(worker).cloned();
        let (known, listens) = match (word, known) {
            (Word::To(to), known) => {
                (known.unwrap_or_else(|| SessionRow::new(worker)), Some(json(to).into()))
            }
            (Word::Still, Some(known)) if known.listens.is_some() => {
                let listens = known.listens.clone();
                (known, listens)
            }
            (Word::Still, _) => return Ok(Reply::Done),
            (Word::Goodbye, Some(known)) => (known, None),
            (Word::Goodbye, None) => return Err(Refusal::NotFound { what: "worker" }),
        };
        let id = self.save_session(SessionRow { listens, listened_at: Some(now), ..known });
        self.listened.push_back((now, id));
        self.forget_silent(now);
        Ok(Reply::Done)
    }

    /// Frees what workers said that have been silent for long. One that never held a job is forgotten altogether: names
    /// cost a caller nothing, and there is no end of them.
    fn forget_silent(&mut self, now: Timestamp) {
        let silent = now.minus(Standing::REMEMBERED_FOR);
        for _ in 0..FORGET_MAX {
            let Some((at, id)) = self.listened.front().copied().filter(|(at, _)| *at < silent)
            else {
                return;
            };
            self.listened.pop_front();
            let said_last = |known: &&SessionRow| known.listened_at == Some(at);
            match self.sessions.get(&id).filter(said_last).cloned() {
                // A process that lives answers for it, and it says it once.
                Some(known) if known.vouched => {}
                Some(known) if known.lapses_at == Timestamp::MIN => {
                    self.sessions.remove(&id);
                    self.workers.remove(&known.session.worker);
                    self.unsaved.gone.push(id);
                }
                Some(known) if known.listens.is_some() => {
                    self.save_session(SessionRow { listens: None, ..known });
                }
                Some(_) | None => {}
            }
        }
    }

    /// A session was renewed.
    pub(crate) fn renew_session(&mut self, session: Session) {
        let known = self.known_of(&session.worker).cloned();
        let known = known.unwrap_or_else(|| SessionRow::new(&session.worker));
        let lapses_at = known.lapses_at.max(session.until);
        self.save_session(SessionRow { session, lapses_at, ..known });
    }

    fn known_of(&self, worker: &WorkerId) -> Option<&SessionRow> {
        self.workers.get(worker).and_then(|id| self.sessions.get(id))
    }

    fn save_session(&mut self, known: SessionRow) -> i64 {
        let id = self.workers.get(&known.session.worker).copied();
        let id = id.unwrap_or(self.greatest_session + 1);
        self.unsaved.sessions.push((id, known.clone()));
        self.add_session(id, known);
        id
    }

    fn add_group(&mut self, id: i64, name: GroupName) {
        self.greatest_group = self.greatest_group.max(id);
        self.groups_by_id.insert(id, name.clone());
        self.by_queue.entry(name.queue.clone()).or_default().push((id, name.clone()));
        self.groups.insert(name, id);
    }

    fn add_session(&mut self, id: i64, known: SessionRow) {
        self.greatest_session = self.greatest_session.max(id);
        self.workers.insert(known.session.worker.clone(), id);
        self.sessions.insert(id, known);
    }
}

fn group_of(row: &Row<'_>) -> SqlResult<GroupName> {
    let (queue, tenant, kind) = (text_of(row, 0)?, text_of(row, 1)?, text_of(row, 2)?);
    Ok(GroupName { queue, tenant, kind, isolated: row.get(3)? })
}

fn session_of(row: &Row<'_>) -> SqlResult<Session> {
    Ok(Session { worker: text_of(row, 0)?, until: time_of(row, 1)?, renewals: row.get(2)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Listens;

    fn worker(number: usize) -> WorkerId {
        WorkerId::new(format!("w{number}")).unwrap()
    }

    #[test]
    fn workers_that_fell_silent_are_forgotten_and_those_that_held_a_job_keep_their_session() {
        let (mut names, to) = (Names::default(), Word::To(Listens::default()));
        let began = Timestamp::from_micros(1_000_000);
        for number in 0..100 {
            names.hear(&worker(number), &to, began).unwrap();
        }
        for number in 50..100 {
            names.hear(&worker(number), &Word::Goodbye, began).unwrap();
        }
        names.lease_session(&worker(7), began.plus(Standing::LISTENS_FOR));
        names.vouch(&worker(8), true);
        names.take_unsaved();
        let later = began.plus(Standing::REMEMBERED_FOR).plus(Standing::LISTENS_FOR);
        for number in 1_000..1_010 {
            names.hear(&worker(number), &to, later).unwrap();
        }
        assert_eq!(names.sessions.len(), 12, "ten that came, one that held, one that lives");
        assert!(names.known_of(&worker(7)).unwrap().listens.is_none());
        assert!(names.known_of(&worker(8)).unwrap().listens.is_some());
        assert_eq!(names.take_unsaved().gone.len(), 98);
        // One that is back has another number.
        names.hear(&worker(1), &to, later).unwrap();
        assert_eq!(names.workers.len(), 13);
        assert_eq!(names.workers.len(), names.sessions.len());
    }
}
