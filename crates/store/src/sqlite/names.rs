//! What the writer remembers by name: groups and sessions.
//!
//! There is one writer, so what it remembers is what is stored. What a transaction adds is kept apart
//! until it is committed.

use std::collections::HashMap;

use rusqlite::{Connection, params};
use windlass_kernel::{Job, Kind, Queue, Session, TenantId, Timestamp, WorkerId};

use super::{
    SqlResult,
    load::{Place, text_of, time_of},
};

/// Groups and sessions, by name and by the number they have in rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    groups: HashMap<GroupName, i64>,
    by_queue: HashMap<Queue, Vec<(i64, GroupName)>>,
    sessions: HashMap<i64, Known>,
    workers: HashMap<WorkerId, i64>,
}

/// A session, and when the last of its leases runs out.
#[derive(Clone, Debug)]
struct Known {
    session: Session,
    lapses_at: Timestamp,
}

/// Jobs that are offered to workers together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupName {
    pub(super) queue: Queue,
    pub(super) tenant: TenantId,
    pub(super) kind: Kind,
    pub(super) isolated: bool,
}

impl GroupName {
    pub(super) fn of(job: &Job) -> Self {
        let spec = &job.spec;
        Self {
            queue: spec.queue.clone(),
            tenant: spec.tenant.clone(),
            kind: spec.kind.clone(),
            isolated: job.is_isolated(),
        }
    }
}

const GROUPS: &str = "SELECT id, queue, tenant, kind, isolated FROM job_groups";
const SESSIONS: &str = "SELECT id, worker, until, renewals, lapses_at FROM sessions";
const ADD_GROUP: &str =
    "INSERT INTO job_groups (queue, tenant, kind, isolated) VALUES (?1, ?2, ?3, ?4)";
const SAVE_SESSION: &str = "
    INSERT INTO sessions (worker, until, renewals, lapses_at, started_at)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (worker) DO UPDATE SET until = excluded.until, renewals = excluded.renewals,
        lapses_at = excluded.lapses_at
    RETURNING id";

impl Names {
    /// Everything that is stored.
    pub(super) fn load(connection: &Connection) -> SqlResult<Self> {
        let mut names = Names::default();
        let mut groups = connection.prepare(GROUPS)?;
        let mut rows = groups.query([])?;
        while let Some(row) = rows.next()? {
            let name = GroupName {
                queue: text_of(row, 1)?,
                tenant: text_of(row, 2)?,
                kind: text_of(row, 3)?,
                isolated: row.get(4)?,
            };
            names.add_group(row.get(0)?, name);
        }
        let sessions = Self::load_sessions(connection)?;
        Ok(Names { groups: names.groups, by_queue: names.by_queue, ..sessions })
    }

    /// The sessions alone, which is what a reader needs.
    pub(super) fn load_sessions(connection: &Connection) -> SqlResult<Self> {
        let mut names = Names::default();
        let mut sessions = connection.prepare_cached(SESSIONS)?;
        let mut rows = sessions.query([])?;
        while let Some(row) = rows.next()? {
            let session = Session {
                worker: text_of(row, 1)?,
                until: time_of(row, 2)?,
                renewals: row.get(3)?,
            };
            names.add_session(row.get(0)?, Known { session, lapses_at: time_of(row, 4)? });
        }
        Ok(names)
    }

    /// The number of a job's group, which is made if it is new.
    pub(super) fn group(
        &mut self,
        connection: &Connection,
        job: &Job,
        place: &mut Place,
    ) -> SqlResult<i64> {
        let isolated = job.is_isolated();
        if let Some((id, _)) = place.group.filter(|(_, was)| *was == isolated) {
            return Ok(id);
        }
        let id = self.group_named(connection, GroupName::of(job))?;
        place.group = Some((id, isolated));
        Ok(id)
    }

    fn group_named(&mut self, connection: &Connection, name: GroupName) -> SqlResult<i64> {
        if let Some(id) = self.groups.get(&name) {
            return Ok(*id);
        }
        connection.prepare_cached(ADD_GROUP)?.execute(params![
            name.queue.as_str(),
            name.tenant.as_str(),
            name.kind.as_str(),
            name.isolated,
        ])?;
        let id = connection.last_insert_rowid();
        self.add_group(id, name);
        Ok(id)
    }

    /// The groups of a queue.
    pub(super) fn groups_of(&self, queue: &Queue) -> &[(i64, GroupName)] {
        self.by_queue.get(queue).map_or(&[], Vec::as_slice)
    }

    /// The session of this number.
    pub(super) fn session(&self, id: i64) -> Option<&Session> {
        self.sessions.get(&id).map(|known| &known.session)
    }

    /// The session of a worker, with its number.
    pub(super) fn session_of(&self, worker: &WorkerId) -> Option<(i64, &Session)> {
        let id = *self.workers.get(worker)?;
        Some((id, self.session(id)?))
    }

    /// A worker has leases until then: its session begins, or lasts longer.
    pub(super) fn lease_session(
        &mut self,
        connection: &Connection,
        worker: &WorkerId,
        until: Timestamp,
        now: Timestamp,
    ) -> SqlResult<()> {
        let known = self.workers.get(worker).and_then(|id| self.sessions.get(id));
        match known {
            Some(known) if known.lapses_at >= until => Ok(()),
            Some(known) => self.save_session(connection, known.session.clone(), until, now),
            None => {
                let none = Timestamp::MIN;
                let session = Session { worker: worker.clone(), until: none, renewals: 0 };
                self.save_session(connection, session, until, now)
            }
        }
    }

    /// Saves a session that was renewed.
    pub(super) fn renew_session(
        &mut self,
        connection: &Connection,
        session: Session,
        now: Timestamp,
    ) -> SqlResult<()> {
        let known = self.workers.get(&session.worker).and_then(|id| self.sessions.get(id));
        let lapses_at = known.map_or(session.until, |known| known.lapses_at.max(session.until));
        self.save_session(connection, session, lapses_at, now)
    }

    fn save_session(
        &mut self,
        connection: &Connection,
        session: Session,
        lapses_at: Timestamp,
        now: Timestamp,
    ) -> SqlResult<()> {
        let row = params![
            session.worker.as_str(),
            session.until.as_micros(),
            session.renewals,
            lapses_at.as_micros(),
            now.as_micros()
        ];
        let mut save = connection.prepare_cached(SAVE_SESSION)?;
        let id = save.query_row(row, |row| row.get(0))?;
        self.add_session(id, Known { session, lapses_at });
        Ok(())
    }

    fn add_group(&mut self, id: i64, name: GroupName) {
        self.by_queue.entry(name.queue.clone()).or_default().push((id, name.clone()));
        self.groups.insert(name, id);
    }

    fn add_session(&mut self, id: i64, known: Known) {
        self.workers.insert(known.session.worker.clone(), id);
        self.sessions.insert(id, known);
    }
}
