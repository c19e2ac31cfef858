//! Saves jobs: new rows, and what changes in those that are there.

use std::cmp::Ordering;

use tokio_postgres::types::Type;
use windlass_kernel::{Job, JobId, Lane, NewPayload, Spec, UniqueKey};

use super::job::Place;
use crate::{
    IdMap,
    commit::{Changes, Row},
    job_row::{TraceName, json, timer_at},
    packed::{History, LeaseColumn},
    postgres::{
        PgResult,
        claim::names::{CommitGroups, Names},
        link::{
            composite::{Columns, Rows},
            pipeline::Ask,
            types::{Time, Uuid, signed, signed_32},
        },
        write::work::Work,
    },
    row::{Options, Rest},
};

/// The columns that change in the life of a job. Both types of rows begin with them.
fn put_moving<'a, 'b>(
    row: &'a mut Columns<'b>,
    job: &Job,
    place: &Place,
    history: &[u8],
    group: i32,
) -> &'a mut Columns<'b> {
    row.put(&Type::UUID, Uuid(job.id.as_u128()))
        .put(&Type::TEXT, job.state.as_str())
        .put(&Type::INT8, signed(job.version))
        .put(&Type::INT4, signed_32(job.attempt))
        .put(&Type::INT4, signed_32(job.retry_count))
        .put(&Type::INT8, signed(job.epoch.get()))
        .put(&Type::TIMESTAMPTZ, Time(job.updated_at))
        .put(&Type::TIMESTAMPTZ, job.started_at.map(Time))
        .put(&Type::TIMESTAMPTZ, job.next_retry_at.map(Time))
        .put(&Type::TIMESTAMPTZ, timer_at(job).map(Time))
        .put(&Type::INT4, place.session)
        .put(&Type::BYTEA, LeaseColumn::of(job, place.lease_seen).bytes())
        .put(&Type::UUID, job.dlq_id.map(|id| Uuid(id.as_u128())))
        .put(&Type::TEXT, Rest::of(job).map(|rest| json(&rest)))
        .put(&Type::BYTEA, history)
        .put(&Type::INT4, group)
}

/// New rows. The log row that speaks of each is known, or is counted from a number that the statement draws.
macro_rules! insert {
    ($from:literal, $history:literal) => {
        concat!(
            "INSERT INTO jobs (id, state, version, attempt, retry_count, epoch, updated_at, started_at,
                next_retry_at, timer_at, lease_session, lease, dlq_id, rest, history, group_id,
                tenant, rank, max_retries, created_at, task_id, idempotency_scope, idempotency_key,
                payload_digest, trace_made, trace_id, options, payload, lane, unique_key)
            SELECT v.id, v.state, v.version, v.attempt, v.retry_count, v.epoch, v.updated_at,
                v.started_at, v.next_retry_at, v.timer_at, v.lease_session, v.lease, v.dlq_id, v.rest, ",
            $history,
            ", v.group_id, v.tenant, v.rank, v.max_retries, v.created_at, v.task_id, v.scope, v.key,
                v.payload_digest, v.trace_made, v.trace_id, v.options,
                coalesce(v.payload, (SELECT jobs.payload FROM jobs WHERE jobs.id = v.payload_of)),
                v.lane, v.unique_key
            FROM ",
            $from,
            "unnest($1::new_job[]) AS v "
        )
    };
}

const INSERT: &str = insert!("", "v.chain || int8send(v.seq)");

/// All of a commit that only makes jobs. The numbers of groups are remembered, so the store has to be the one that gave them.
pub(crate) const INSERT_AT_ONCE: &str = concat!(
    "WITH begun AS MATERIALIZED (SELECT begin_at_once($2, $3, $4, $5) AS seq), made AS (",
    insert!("begun, ", "v.chain || int8send(begun.seq + v.seq)"),
    "RETURNING 1)
     SELECT finish((SELECT count(*) FROM made), $6, (SELECT seq FROM begun),
            $7, $8, $9, $10, $11, $12, $13, $14, $15), clock_timestamp(),
        expect(count(*), 1) FROM meta
     WHERE name = 'incarnation' AND value::bigint = $16 AND tableoid::bigint = $17"
);

const INSERT_CHILDREN: &str =
    "INSERT INTO children (parent, id) SELECT * FROM unnest($1::uuid[], $2::uuid[])";

/// About how many bytes a row of each type takes.
const MOVING_BYTES: usize = 384;

const NEW_BYTES: usize = 768;

/// The columns that never change.
fn put_fixed(row: &mut Columns<'_>, job: &Job, lane: Lane, payload: Result<&str, JobId>, seq: u64) {
    let spec = &job.spec;
    let given = !spec.idempotency_scope.is_own_id();
    let (made, named) = match TraceName::of(job) {
        TraceName::Made(random) => (Some(Uuid(random)), None),
        TraceName::Given(trace) => (None, Some(trace)),
    };
    row.put(&Type::TEXT, spec.tenant.as_str())
        .put(&Type::INT8, spec.rank().0)
        .put(&Type::INT4, signed_32(spec.max_retries))
        .put(&Type::TIMESTAMPTZ, Time(spec.created_at))
        .put(&Type::TEXT, spec.task_given.then(|| spec.task_id.as_str()))
        .put(&Type::TEXT, given.then(|| spec.idempotency_scope.as_str()))
        .put(&Type::TEXT, given.then(|| spec.idempotency_key.as_str()))
        .put(&Type::BYTEA, &spec.payload_digest.as_bytes()[..])
        .put(&Type::UUID, made)
        .put(&Type::TEXT, named)
        .put(&Type::TEXT, Options::of(spec).map(|options| json(&options)))
        .put(&Type::TEXT, payload.ok())
        .put(&Type::UUID, payload.err().map(|id| Uuid(id.as_u128())))
        .put(&Type::INT8, signed(seq))
        .put(&Type::INT8, lane.get())
        .put(&Type::TEXT, spec.unique_key.as_ref().map(UniqueKey::as_str));
}

pub(crate) async fn insert_jobs(
    changes: &Changes,
    rows: &mut IdMap<Row<Place>>,
    work: &Work<'_>,
    names: &Names,
    groups: &mut CommitGroups,
    asks: &mut Vec<Ask>,
) -> PgResult<()> {
    if changes.created.is_empty() {
        return Ok(());
    }
    asks.push(insert(changes, rows, work, names, groups).await?);
    let (mut parents, mut children) = (Vec::new(), Vec::new());
    for (id, _) in &changes.created {
        if let Some(parent) = rows[id].job.spec.parent {
            parents.push(Uuid(parent.as_u128()));
            children.push(Uuid(id.as_u128()));
        }
    }
    if !parents.is_empty() {
        asks.push(Ask::new(INSERT_CHILDREN).with(parents).with(children));
    }
    Ok(())
}

pub(crate) async fn insert(
    changes: &Changes,
    rows: &mut IdMap<Row<Place>>,
    work: &Work<'_>,
    names: &Names,
    groups: &mut CommitGroups,
) -> PgResult<Ask> {
    let mut new = Rows::new("new_job", changes.created.len(), NEW_BYTES);
    let mut created: Vec<&(JobId, NewPayload)> = changes.created.iter().collect();
    created.sort_by(|one, other| in_order(&rows[&one.0].job, &rows[&other.0].job));
    for (id, payload) in created {
        let Row { job, place, .. } = rows.get_mut(id).expect("it was just created");
        let group = groups.of(work.client, names, job, place).await?;
        place.session = session_of(job, place, work);
        place.lane = job.spec.lane();
        // All that this commit tells of it stands in one log row.
        let chain = &place.history.bytes()[..History::CHAIN];
        let seq = place.history.log_ids().next().expect("a job begins with an event");
        new.add(|row| {
            put_moving(row, job, place, chain, group);
            put_fixed(row, job, place.lane, source(payload, changes), seq);
        });
    }
    Ok(Ask::new(INSERT).with(new))
}

/// The order in which jobs are made. An insert waits for another node's uncommitted insert of the
/// same unique key, so a commit inserts its jobs in the order of their keys: then two commits
/// cannot deadlock.
fn in_order(one: &Job, other: &Job) -> Ordering {
    fn keys(job: &Job) -> impl Ord {
        let Spec { tenant, task_id, unique_key, idempotency_scope, idempotency_key, .. } =
            &*job.spec;
        let given = !idempotency_scope.is_own_id();
        let task = job.spec.task_given.then_some(task_id);
        (tenant, task, unique_key, given.then_some((idempotency_scope, idempotency_key)), job.id)
    }
    keys(one).cmp(&keys(other))
}

/// A payload, or the stored job that has the same. What this commit makes is not stored yet.
fn source<'a>(payload: &'a NewPayload, changes: &'a Changes) -> Result<&'a str, JobId> {
    match payload {
        NewPayload::Given(payload) => Ok(payload.as_str()),
        NewPayload::Of(other) => match changes.created.iter().find(|(id, _)| id == other) {
            Some((_, payload)) => source(payload, changes),
            None => Err(*other),
        },
    }
}

/// The session that holds the job: that of its worker, or the one of its row, if this commit knows no other.
fn session_of(job: &Job, place: &Place, work: &Work<'_>) -> Option<i32> {
    let lease = job.lease.as_ref()?;
    work.session(&lease.worker).map(|known| known.id).or(place.session)
}

/// An optimistic lock (compare-and-set): each row is found by its id, and is written only if its
/// `xmin` is the one that was read.
macro_rules! update {
    () => {
        "WITH done AS (
        UPDATE jobs SET state = v.state, version = v.version, attempt = v.attempt,
            retry_count = v.retry_count, epoch = v.epoch, updated_at = v.updated_at,
            started_at = v.started_at, next_retry_at = v.next_retry_at, timer_at = v.timer_at,
            lease_session = v.lease_session, lease = v.lease, dlq_id = v.dlq_id, rest = v.rest,
            history = v.history, group_id = v.group_id
        FROM unnest($1::moving_job[]) AS v
        WHERE jobs.id = v.id AND jobs.xmin = v.written_by
        RETURNING 1) "
    };
}

const UPDATE: &str = concat!(update!(), "SELECT expect((SELECT count(*) FROM done), $2)");

pub(crate) const UPDATE_AND_FINISH: &str = concat!(
    update!(),
    "SELECT finish((SELECT count(*) FROM done), $2, 0, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
);

const MOVE_LOG_IDS: &str =
    "INSERT INTO job_log (id, seq) SELECT * FROM unnest($1::uuid[], $2::bigint[])";

pub(crate) async fn update_jobs(
    changes: &Changes,
    rows: &mut IdMap<Row<Place>>,
    work: &Work<'_>,
    names: &Names,
    groups: &mut CommitGroups,
    asks: &mut Vec<Ask>,
) -> PgResult<()> {
    if changes.updated.is_empty() {
        return Ok(());
    }
    let mut moving = Rows::new("moving_job", changes.updated.len(), MOVING_BYTES);
    let (mut old_ids, mut old_seqs) = (Vec::new(), Vec::new());
    // The rows are locked already, so their order cannot cause a deadlock.
    let mut updated = changes.updated.clone();
    updated.sort_unstable();
    for id in &updated {
        let Row { job, place, .. } = rows.get_mut(id).expect("it was changed");
        if place.history.log_ids().len() > History::LOG_IDS_INLINE {
            for seq in place.history.take_older() {
                old_ids.push(Uuid(id.as_u128()));
                old_seqs.push(signed(seq));
            }
        }
        let group = groups.of(work.client, names, job, place).await?;
        place.session = session_of(job, place, work);
        moving.add(|row| {
            let row = put_moving(row, job, place, place.history.bytes(), group);
            row.put(&Type::XID, place.written_by);
        });
    }
    let count = i64::try_from(updated.len()).expect("a batch is bounded");
    asks.push(Ask::new(UPDATE).with(moving).with(count));
    if !old_ids.is_empty() {
        asks.push(Ask::new(MOVE_LOG_IDS).with(old_ids).with(old_seqs));
    }
    Ok(())
}
