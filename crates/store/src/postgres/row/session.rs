//! Sessions of workers: their rows.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{JobId, Session, Timestamp};

use super::column::{number, text_of, time_of};
use crate::{
    job_row::json,
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::{Time, Uuid, signed},
        },
        write::work::Work,
    },
    read::{SessionView, Word},
};

/// The columns of a session, and the jobs that it holds alone, served by the index `jobs_leased`.
macro_rules! session_columns {
    () => {
        "id, worker, until, renewals, lapses_at, ARRAY(
            SELECT jobs.id FROM jobs
            WHERE lease_session = sessions.id AND lease_session IS NOT NULL AND get_byte(lease, 48) = 1)"
    };
}

pub(crate) use session_columns;

pub(crate) const SESSIONS_BY_ID: &str =
    concat!("SELECT ", session_columns!(), " FROM sessions WHERE id = ANY($1)");

/// Sessions that are written to.
pub(crate) const SESSIONS_LOCKED: &str = concat!(
    "SELECT ",
    session_columns!(),
    " FROM sessions WHERE worker = ANY($1) ORDER BY worker FOR UPDATE"
);

/// A session as its row has it.
#[derive(Clone, Debug)]
pub(crate) struct KnownSession {
    pub(crate) id: i32,
    pub(crate) session: Session,
    /// The last of its leases does not run out later.
    pub(crate) lapses_at: Timestamp,
    /// Jobs that it holds and that have to be alone.
    pub(crate) alone: Vec<JobId>,
}

impl KnownSession {
    pub(crate) fn of(row: &Row) -> PgResult<Self> {
        let (worker, until) = (text_of(row, 1)?, time_of(row, 2)?);
        let session = Session { worker, until, renewals: number(row, 3)? };
        let alone: Vec<Uuid> = row.try_get(5)?;
        let alone = alone.into_iter().map(|id| JobId::from_u128(id.0)).collect();
        Ok(Self { id: row.try_get(0)?, session, lapses_at: time_of(row, 4)?, alone })
    }
}

/// Moves the time on by which all leases of a session have run out. By more than it has to be, so that this
/// is not written with every claim.
const LAPSE_LATER: &str = "UPDATE sessions SET lapses_at = greatest(lapses_at, $2) WHERE id = $1";

const RENEW: &str = "
    UPDATE sessions SET until = $2, renewals = $3, lapses_at = greatest(lapses_at, $4) WHERE id = $1";

/// Its session is made if it has none.
const LISTENS: &str = "
    INSERT INTO sessions (worker, until, renewals, lapses_at, started_at, listens, listened_at)
    VALUES ($1, 'epoch', 0, 'epoch', $2, $3, $2)
    ON CONFLICT (worker) DO UPDATE SET listens = excluded.listens, listened_at = excluded.listened_at";

const STILL_LISTENS: &str =
    "UPDATE sessions SET listened_at = $2 WHERE worker = $1 AND listens IS NOT NULL";

/// Its session is cleared away like that of any other that has been silent for long.
const GOODBYE: &str = "UPDATE sessions SET listens = NULL, listened_at = $2 WHERE worker = $1";

/// What changes in sessions.
pub(crate) fn save(work: &Work<'_>, now: Timestamp, asks: &mut Vec<Ask>) {
    for (worker, word) in &work.words {
        let ask = |sql| Ask::new(sql).with(worker.as_str().to_owned()).with(Time(now));
        asks.push(match word {
            Word::To(listens) => ask(LISTENS).with(json(listens)),
            Word::Still => ask(STILL_LISTENS),
            Word::Goodbye => ask(GOODBYE),
        });
    }
    for known in &work.renewed {
        asks.push(
            Ask::new(RENEW)
                .with(known.id)
                .with(Time(known.session.until))
                .with(signed(known.session.renewals))
                .with(Time(known.lapses_at)),
        );
    }
    for (worker, until) in &work.longer {
        let Some(known) = work.session(worker) else { continue };
        if known.lapses_at < *until {
            let spare = until.since(now) / 8;
            asks.push(Ask::new(LAPSE_LATER).with(known.id).with(Time(until.plus(spare))));
        }
    }
}

/// A session that never had a lease is only a name.
const SESSION_VIEWS: &str = "
    SELECT worker, lapses_at, renewals,
        (SELECT count(*) FROM jobs WHERE lease_session = sessions.id)
    FROM sessions WHERE lapses_at > 'epoch' ORDER BY worker COLLATE \"C\"";

/// Every session, with how much it holds.
pub(crate) async fn read_sessions(client: &ClientWrapper) -> PgResult<Vec<SessionView>> {
    let rows = run_one(client, Ask::new(SESSION_VIEWS)).await?;
    let session = |row: &Row| {
        let (worker, lapses_at) = (text_of(row, 0)?, time_of(row, 1)?);
        Ok(SessionView { worker, lapses_at, renewals: number(row, 2)?, held: number(row, 3)? })
    };
    rows.iter().map(session).collect()
}
