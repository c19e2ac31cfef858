//! Notes: where the log tells what is not of a job, by what it is about.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{About, Note, TenantId, Timestamp};

use super::column::{number, time_of};
use crate::{
    log,
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::{Time, signed},
        },
    },
    read::FeedEvent,
};

/// Where the notes of one commit stand, a column each.
#[derive(Default)]
pub(crate) struct Noted {
    seqs: Vec<i64>,
    places: Vec<i32>,
    tenants: Vec<String>,
    abouts: Vec<&'static str>,
    names: Vec<String>,
}

const SAVE: &str = "
    INSERT INTO notes (seq, place, tenant, about, name, at)
    SELECT v.seq, v.place, v.tenant, v.about, v.name, $6
    FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[])
        AS v (seq, place, tenant, about, name)";

impl Noted {
    /// These stand in this log row, from this place on.
    pub(crate) fn add(&mut self, seq: i64, from: usize, notes: &[&Note]) {
        for (place, note) in (from..).zip(notes) {
            self.seqs.push(seq);
            self.places.push(i32::try_from(place).expect("a batch is bounded"));
            self.tenants.push(note.tenant.as_str().to_owned());
            self.abouts.push(note.about.kind());
            self.names.push(note.about.name().into_owned());
        }
    }

    /// The statement that saves it, if there is something to save.
    pub(crate) fn save(self, now: Timestamp, asks: &mut Vec<Ask>) {
        if self.seqs.is_empty() {
            return;
        }
        asks.push(
            Ask::new(SAVE)
                .with(self.seqs)
                .with(self.places)
                .with(self.tenants)
                .with(self.abouts)
                .with(self.names)
                .with(Time(now)),
        );
    }
}

/// Newest first. Nodes write side by side, so those of two nodes at one moment may change places. Served by the
/// index `notes_about`.
const NOTES: &str = "
    SELECT f.first + n.place, n.place, log.at, log.events
    FROM notes n JOIN feed f ON f.seq = n.seq JOIN log ON log.seq = n.seq
    WHERE n.tenant = $1 AND n.about = $2 AND n.name = $3 AND f.first + n.place < $4
    ORDER BY n.seq DESC, n.place DESC LIMIT $5";

/// What was noted about something before an event, newest first.
pub(crate) async fn read_notes(
    client: &ClientWrapper,
    tenant: &TenantId,
    about: &About,
    before: u64,
    limit: usize,
) -> PgResult<Vec<FeedEvent>> {
    let ask = Ask::new(NOTES)
        .with(tenant.as_str().to_owned())
        .with(about.kind())
        .with(about.name().into_owned())
        .with(signed(before.min(i64::MAX.unsigned_abs())))
        .with(i64::try_from(limit).unwrap_or(i64::MAX));
    let rows = run_one(client, ask).await?;
    let note = |row: &tokio_postgres::Row| {
        let place: i32 = row.try_get(1)?;
        let line = log::line_at(row.try_get(3)?, u64::from(place.unsigned_abs()));
        let line = line.map_err(Failure::Known)?;
        let (number, at) = (number(row, 0)?, time_of(row, 2)?);
        Ok(FeedEvent { number, tenant: tenant.clone(), at, line })
    };
    rows.iter().map(note).collect()
}
