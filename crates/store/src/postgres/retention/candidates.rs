//! Jobs that may have to go: loaded and locked together, with the ties that the kernel asks about.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{DeadLetter, Job, JobId, retention::Ties};

use crate::{
    IdMap, IdSet,
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run},
            types::Uuid,
        },
        row::{
            column::{id_of, json_of},
            job::{Loaded, job_columns, job_of, job_tables},
        },
    },
};

/// Jobs that may have to go, locked, and the living things that lean on them.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) jobs: IdMap<Loaded>,
    letters: IdMap<DeadLetter>,
    parents: IdMap<Job>,
    children: IdMap<Children>,
    with_active_task: IdSet,
}

/// Those that nobody works on. One that is locked stays until the next pass.
const JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    job_tables!(),
    "WHERE j.id = ANY($1) FOR UPDATE OF j SKIP LOCKED"
);

/// A letter that someone decides about is as good as open.
const LETTERS: &str = "
    SELECT job_id, letter FROM dlq_items WHERE job_id = ANY($1) FOR UPDATE SKIP LOCKED";

/// What may become a tie is locked with the job: whoever makes a child of it locks it first.
const CHILDREN: &str = "
    SELECT parent.id, count(*),
        count(*) FILTER (WHERE child.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled'))
    FROM unnest($1::uuid[]) AS parent (id), LATERAL (
        SELECT jobs.state FROM children JOIN jobs ON jobs.id = children.id
        WHERE children.parent = parent.id LIMIT $2) AS child
    GROUP BY parent.id";

/// Once at its end a parent stays there, so nobody need lock it.
const PARENTS: &str = concat!("SELECT ", job_columns!(), job_tables!(), "WHERE j.id = ANY($1)");

/// Jobs whose task runs: one of the last two attempts, or the job whose own id is named as the task. Served by
/// the index `jobs_task`.
const ACTIVE: &str = "
    SELECT task.job FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[])
        AS task (job, tenant, name, own)
    WHERE EXISTS (
        SELECT FROM (
            SELECT state FROM jobs
            WHERE jobs.tenant = task.tenant AND jobs.task_id = task.name AND jobs.task_id IS NOT NULL
            ORDER BY attempt DESC LIMIT 2) AS run
        WHERE run.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled'))
    OR EXISTS (
        SELECT FROM jobs WHERE jobs.id = task.own AND jobs.tenant = task.tenant
            AND jobs.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled'))";

impl Candidates {
    pub(super) async fn load(client: &ClientWrapper, ids: Vec<Uuid>) -> PgResult<Self> {
        let mut found = Self::default();
        if ids.is_empty() {
            return Ok(found);
        }
        let most = Children::MANY + i64::try_from(ids.len()).expect("a step is bounded");
        let asks = [
            Ask::new(JOBS).with(ids.clone()),
            Ask::new(LETTERS).with(ids.clone()),
            Ask::new(CHILDREN).with(ids).with(most),
        ];
        let [jobs, letters, children] = rows_of(run(client, &asks).await?);
        for row in jobs {
            let loaded = job_of(&row)?;
            found.jobs.insert(loaded.job.id, loaded);
        }
        for row in letters {
            found.letters.insert(id_of(&row, 0)?, json_of(&row, 1)?);
        }
        for row in children {
            let (count, live) = (row.try_get(1)?, row.try_get::<_, i64>(2)?);
            found.children.insert(id_of(&row, 0)?, Children { count, has_live: live > 0 });
        }
        found.load_relatives(client).await?;
        Ok(found)
    }

    /// What the jobs themselves name.
    async fn load_relatives(&mut self, client: &ClientWrapper) -> PgResult<()> {
        let (mut ids, mut tenants) = (Vec::new(), Vec::new());
        let (mut tasks, mut own, mut parents) = (Vec::new(), Vec::new(), Vec::new());
        for Loaded { job, .. } in self.jobs.values() {
            let task = job.spec.task_id.as_str();
            ids.push(Uuid(job.id.as_u128()));
            tenants.push(job.spec.tenant.as_str().to_owned());
            own.push(task.parse::<JobId>().ok().map(|id| Uuid(id.as_u128())));
            tasks.push(task.to_owned());
            parents.extend(job.spec.parent.map(|id| Uuid(id.as_u128())));
        }
        let asks = [
            Ask::new(ACTIVE).with(ids).with(tenants).with(tasks).with(own),
            Ask::new(PARENTS).with(parents),
        ];
        let [active, parents] = rows_of(run(client, &asks).await?);
        for row in active {
            self.with_active_task.insert(id_of(&row, 0)?);
        }
        for row in parents {
            let Loaded { job, .. } = job_of(&row)?;
            self.parents.insert(job.id, job);
        }
        Ok(())
    }

    /// A job that is locked, with its ties.
    pub(super) fn with_ties(&self, id: JobId) -> Option<(&Loaded, Ties<'_>)> {
        let loaded = self.jobs.get(&id)?;
        let ties = Ties {
            letter: self.letters.get(&id),
            parent: loaded.job.spec.parent.and_then(|parent| self.parents.get(&parent)),
            has_live_child: self.children.get(&id).is_some_and(Children::may_live),
            task_is_active: self.with_active_task.contains(&id),
        };
        Some((loaded, ties))
    }

    /// A child of this one has gone.
    pub(super) fn forget_child_of(&mut self, parent: Option<JobId>) {
        if let Some(children) = parent.and_then(|parent| self.children.get_mut(&parent)) {
            children.count -= 1;
        }
    }
}

/// The rows of so many statements.
fn rows_of<const N: usize>(rows: Vec<Vec<Row>>) -> [Vec<Row>; N] {
    rows.try_into().expect("each statement has its rows")
}

/// What is known of the children of a job.
struct Children {
    count: i64,
    has_live: bool,
}

impl Children {
    /// So many children are looked at and no more: a parent that has more left counts as one with a live
    /// child, until those that ended were forgotten.
    const MANY: i64 = 100;

    fn may_live(&self) -> bool {
        self.has_live || self.count >= Self::MANY
    }
}
