//! Acts: where the log tells what people did.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::TenantId;

use super::column::{number, text_of, time_of};
use crate::{
    log,
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::signed,
        },
        read::job::whose,
    },
    read::{FeedEvent, PageFrom, Scope},
};

/// Where the acts of one commit stand, a column each.
#[derive(Default)]
pub(crate) struct Acts {
    seqs: Vec<i64>,
    places: Vec<i32>,
    tenants: Vec<String>,
}

/// The log rows have their places in the feed by now.
const SAVE: &str = "
    INSERT INTO acts (event, tenant)
    SELECT feed.first + v.place, v.tenant
    FROM unnest($1::bigint[], $2::int[], $3::text[]) AS v (seq, place, tenant)
    JOIN feed ON feed.seq = v.seq";

impl Acts {
    /// One stands in this log row, at this place.
    pub(crate) fn add(&mut self, seq: i64, place: usize, tenant: &TenantId) {
        self.seqs.push(seq);
        self.places.push(i32::try_from(place).expect("a batch is bounded"));
        self.tenants.push(tenant.as_str().to_owned());
    }

    /// The statement that saves it, if there is something to save.
    pub(crate) fn save(self, asks: &mut Vec<Ask>) {
        if !self.seqs.is_empty() {
            asks.push(Ask::new(SAVE).with(self.seqs).with(self.places).with(self.tenants));
        }
    }
}

/// Newest first. Served by the index `acts_tenant`.
const ACTS: &str = "
    SELECT a.event, f.first, log.at, log.tenant, log.events
    FROM (SELECT event FROM acts WHERE tenant = $1 AND event < $2 ORDER BY event DESC LIMIT $3) AS a,
        LATERAL (SELECT first, seq FROM feed WHERE first <= a.event ORDER BY first DESC LIMIT 1) AS f
    JOIN log ON log.seq = f.seq ORDER BY a.event DESC";

/// The same of every tenant. Served by the primary key.
const ACTS_OF_ALL: &str = "
    SELECT a.event, f.first, log.at, log.tenant, log.events
    FROM (SELECT event FROM acts WHERE $1::text IS NULL AND event < $2
          ORDER BY event DESC LIMIT $3) AS a,
        LATERAL (SELECT first, seq FROM feed WHERE first <= a.event ORDER BY first DESC LIMIT 1) AS f
    JOIN log ON log.seq = f.seq ORDER BY a.event DESC";

/// What people did before an event, newest first.
pub(crate) async fn read_acts(
    client: &ClientWrapper,
    scope: &Scope,
    before: u64,
    limit: usize,
) -> PgResult<Vec<FeedEvent>> {
    let ask = Ask::new(scope.word().map_or(ACTS_OF_ALL, |_| ACTS))
        .with(whose(scope))
        .with(signed(before.min(i64::MAX.unsigned_abs())))
        .with(i64::try_from(limit.min(PageFrom::LIMIT_MAX)).unwrap_or(i64::MAX));
    let act = |row: &tokio_postgres::Row| {
        let (event, first) = (number(row, 0)?, number(row, 1)?);
        let line = log::line_at(row.try_get(4)?, event - first).map_err(Failure::Known)?;
        Ok(FeedEvent { number: event, tenant: text_of(row, 3)?, at: time_of(row, 2)?, line })
    };
    run_one(client, ask).await?.iter().map(act).collect()
}
