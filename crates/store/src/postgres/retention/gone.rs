//! Jobs that go, with all that is their own: deleted together, each leaving its row in `pruned`.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::Timestamp;

use crate::postgres::{
    PgResult,
    link::{
        pipeline::{Ask, run},
        types::{Time, Uuid, signed},
    },
    row::job::Loaded,
};

/// Jobs that go.
#[derive(Default)]
pub(super) struct Gone {
    pub(super) ids: Vec<Uuid>,
    least_ms: Vec<i64>,
    versions: Vec<i64>,
    /// How many log rows stand in the row of each, and the last of them.
    log_rows: Vec<i32>,
    last_seqs: Vec<i64>,
    /// Each that has a parent, with it.
    parents: Vec<Uuid>,
    children: Vec<Uuid>,
}

const NOTE: &str = "
    INSERT INTO pruned (id, at, least_ms, version, rows)
    SELECT v.id, $2, v.least_ms, v.version,
        v.rows + (SELECT count(*) FROM job_log WHERE job_log.id = v.id)
    FROM unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::int[]) AS v (id, least_ms, version, rows)";
/// These before the jobs, which they are found by.
const DELETE_TAGS: &str = "
    DELETE FROM job_tags USING (
        SELECT tenant, json_array_elements_text(options::json -> 'tags') AS tag, id FROM jobs
        WHERE id = ANY($1) AND strpos(options, 'tags') > 0) AS gone
    WHERE job_tags.tenant = gone.tenant AND job_tags.tag = gone.tag AND job_tags.id = gone.id";
const DELETE_KEYS: &str = "
    DELETE FROM job_keys USING jobs
    WHERE jobs.id = ANY($1) AND jobs.lane <> 0 AND job_keys.lane = jobs.lane AND job_keys.id = jobs.id";
const DELETE_ASTRAY: &str = "
    DELETE FROM job_astray USING jobs
    WHERE jobs.id = ANY($1) AND job_astray.created_at = jobs.created_at AND job_astray.id = jobs.id";
const DELETE: [&str; 8] = [
    "DELETE FROM jobs WHERE id = ANY($1)",
    "DELETE FROM outputs WHERE id = ANY($1)",
    "DELETE FROM progress WHERE id = ANY($1)",
    "DELETE FROM job_log WHERE id = ANY($1)",
    "DELETE FROM steps WHERE job_id = ANY($1)",
    "DELETE FROM signals WHERE job_id = ANY($1)",
    "DELETE FROM effects WHERE job_id = ANY($1)",
    // Approvals go with their dead letter.
    "DELETE FROM dlq_items WHERE job_id = ANY($1)",
];
const DELETE_CHILDREN: &str = "
    DELETE FROM children USING unnest($1::uuid[], $2::uuid[]) AS v (parent, id)
    WHERE children.parent = v.parent AND children.id = v.id";
const LAST_EVENT: &str = "SELECT max(first) FROM feed WHERE seq = ANY($1)";

impl Gone {
    pub(super) fn add(&mut self, Loaded { job, place }: &Loaded, least_ms: u64) {
        let id = Uuid(job.id.as_u128());
        let log_ids = place.history.log_ids();
        self.ids.push(id);
        self.least_ms.push(signed(least_ms));
        self.versions.push(signed(job.version));
        self.log_rows.push(i32::try_from(log_ids.len()).expect("a few"));
        self.last_seqs.extend(log_ids.last().map(signed));
        if let Some(parent) = job.spec.parent {
            self.parents.push(Uuid(parent.as_u128()));
            self.children.push(id);
        }
    }

    /// Deletes them with all that is their own, and says where the log speaks of them for the last time.
    pub(super) async fn save(
        &self,
        client: &ClientWrapper,
        now: Timestamp,
    ) -> PgResult<Option<i64>> {
        if self.ids.is_empty() {
            return Ok(None);
        }
        let mut asks = vec![
            Ask::new(LAST_EVENT).with(self.last_seqs.clone()),
            Ask::new(NOTE)
                .with(self.ids.clone())
                .with(Time(now))
                .with(self.least_ms.clone())
                .with(self.versions.clone())
                .with(self.log_rows.clone()),
        ];
        let found_by = [DELETE_TAGS, DELETE_KEYS, DELETE_ASTRAY];
        asks.extend(found_by.map(|sql| Ask::new(sql).with(self.ids.clone())));
        asks.extend(DELETE.map(|sql| Ask::new(sql).with(self.ids.clone())));
        let children = Ask::new(DELETE_CHILDREN).with(self.parents.clone());
        asks.push(children.with(self.children.clone()));
        Ok(run(client, &asks).await?[0][0].try_get(0)?)
    }
}
