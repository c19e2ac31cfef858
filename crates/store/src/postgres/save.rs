//! Saves the rows that a commit decided.
//!
//! Everything is put together here and sent at once, with the `COMMIT` behind it. A row is written only if it
//! is still the one that was decided upon.

use std::cmp::Ordering;

use tokio_postgres::types::Type;
use windlass_kernel::{Job, JobId, Lane, NewPayload, Spec, Task, Timestamp, UniqueKey};

use super::{
    Inner, PgResult,
    load::Place,
    log_rows::{Block, write_log},
    marks,
    names::{CommitGroups, Names},
    pipeline::Ask,
    rows::{Columns, Rows},
    schedules, tokens,
    types::{Time, Uuid, signed, signed_32},
    work::Work,
};
use crate::{
    IdMap,
    commit::{Changes, Row},
    job_row::{TraceName, json, timer_at},
    packed::{History, LeaseColumn},
    read::Word,
    row::{Options, Rest},
};

/// How many log ids stand in a job's row before the older ones move to their own table.
const LOG_IDS_INLINE: usize = 16;

/// The statements that save all rows of a commit.
pub(super) async fn asks(
    changes: &Changes,
    rows: &mut IdMap<Row<Place>>,
    work: &Work<'_>,
    names: &Names,
    groups: &mut CommitGroups,
    asks: &mut Vec<Ask>,
) -> PgResult<()> {
    let touched = changes.created.iter().map(|(id, _)| id).chain(&changes.updated);
    let touched = touched.map(|id| (&*rows[id].job, &rows[id].place));
    groups.make_all(work.client, names, touched).await?;
    // A job that comes to its end leaves its unique key to one that is made.
    update_jobs(changes, rows, work, names, groups, asks).await?;
    insert_jobs(changes, rows, work, names, groups, asks).await?;
    save_outputs(changes, asks);
    save_progress(changes, asks);
    save_letters(changes, asks);
    let mut tasks: Vec<&Task> = changes.tasks.iter().collect();
    // Stable: of one task, the last counts.
    tasks.sort_by_key(|task| (&task.tenant, &task.task_id));
    for task in tasks {
        asks.push(
            Ask::new(SAVE_TASK)
                .with(task.tenant.as_str().to_owned())
                .with(task.task_id.as_str().to_owned())
                .with(signed_32(task.next_attempt)),
        );
    }
    for (tenant, follow_up) in &changes.follow_ups {
        let row = Ask::new(FOLLOW_UP).with(tenant.as_str().to_owned());
        asks.push(row.with(json(follow_up)));
    }
    if !changes.follow_ups_done.is_empty() {
        asks.push(Ask::new(FOLLOW_UPS_DONE).with(changes.follow_ups_done.clone()));
    }
    schedules::save(changes, asks);
    tokens::save(changes, asks);
    marks::save(changes, asks);
    Ok(())
}

const FOLLOW_UP: &str = "INSERT INTO follow_ups (tenant, what) VALUES ($1, $2)";

/// Locked in the order of their numbers, so that two commits do not wait for each other.
const FOLLOW_UPS_DONE: &str = "
    WITH done AS (SELECT id FROM follow_ups WHERE id = ANY($1) ORDER BY id FOR UPDATE)
    DELETE FROM follow_ups WHERE id IN (SELECT id FROM done)";

const SAVE_TASK: &str = "
    INSERT INTO tasks (tenant, task_id, next_attempt) VALUES ($1, $2, $3)
    ON CONFLICT (tenant, task_id) DO UPDATE SET next_attempt = excluded.next_attempt";

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
const INSERT_AT_ONCE: &str = concat!(
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

async fn insert_jobs(
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

async fn insert(
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

/// The order in which jobs are made. An insert waits for another node that makes a job with the same key: whoever makes
/// several goes by their keys, and then neither waits for the other.
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

/// All of a commit that only makes jobs, in one statement. Its log rows are numbered from 0; the server adds
/// where they begin, and tells what time it is.
pub(super) async fn at_once(
    commit_id: u128,
    changes: &Changes,
    rows: &mut IdMap<Row<Place>>,
    work: &Work<'_>,
    store: &Inner,
    groups: &mut CommitGroups,
    now: Timestamp,
) -> PgResult<Ask> {
    let log = write_log(changes, rows, &mut Block::new(0), now);
    let ask = insert(changes, rows, work, &store.names, groups).await?;
    let wanted = i64::try_from(changes.created.len()).expect("a batch is bounded");
    let ask = ask.instead(INSERT_AT_ONCE).with(Uuid(commit_id)).with(Time(now));
    let ask = ask.with(store.time.is_the_servers()).with(work.rules.version).with(wanted);
    let ask = log.add_to(ask, changes, store.feed_lock, now);
    let (incarnation, meta) = store.identity();
    Ok(ask.with(incarnation).with(meta))
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

/// Each row is found by its id and is written if it is the one that was seen.
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

pub(super) const UPDATE_AND_FINISH: &str = concat!(
    update!(),
    "SELECT finish((SELECT count(*) FROM done), $2, 0, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
);

const MOVE_LOG_IDS: &str =
    "INSERT INTO job_log (id, seq) SELECT * FROM unnest($1::uuid[], $2::bigint[])";

async fn update_jobs(
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
    // All are locked already.
    let mut updated = changes.updated.clone();
    updated.sort_unstable();
    for id in &updated {
        let Row { job, place, .. } = rows.get_mut(id).expect("it was changed");
        if place.history.log_ids().len() > LOG_IDS_INLINE {
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

const SAVE_OUTPUT: &str = "
    INSERT INTO outputs (id, attempt, result, remaining, stats) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id, attempt) DO UPDATE SET result = excluded.result,
        remaining = excluded.remaining, stats = excluded.stats";

fn save_outputs(changes: &Changes, asks: &mut Vec<Ask>) {
    let text = |payload: &Option<windlass_kernel::Payload>| {
        payload.as_ref().map(|payload| payload.as_str().to_owned())
    };
    for output in &changes.outputs {
        asks.push(
            Ask::new(SAVE_OUTPUT)
                .with(Uuid(output.job_id.as_u128()))
                .with(signed_32(output.attempt))
                .with(text(&output.result))
                .with(text(&output.remaining))
                .with(text(&output.stats)),
        );
    }
}

const SAVE_PROGRESS: &str = "
    INSERT INTO progress (id, epoch, at, value)
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[])
    ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, at = excluded.at, value = excluded.value";

/// The row of its job is locked first, so two commits do not wait for each other here.
fn save_progress(changes: &Changes, asks: &mut Vec<Ask>) {
    if changes.progress.is_empty() {
        return;
    }
    let ids: Vec<Uuid> = changes.progress.keys().map(|id| Uuid(id.as_u128())).collect();
    let all = || changes.progress.values();
    asks.push(
        Ask::new(SAVE_PROGRESS)
            .with(ids)
            .with(all().map(|it| signed(it.epoch.get())).collect::<Vec<_>>())
            .with(all().map(|it| Time(it.at)).collect::<Vec<_>>())
            .with(all().map(|it| it.value.as_str().to_owned()).collect::<Vec<_>>()),
    );
}

const SAVE_LETTER: &str = "
    INSERT INTO dlq_items (id, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter,
        cause)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (id) DO UPDATE SET state = excluded.state, requeued_as = excluded.requeued_as,
        closed_at = excluded.closed_at, letter = excluded.letter";

const APPROVE: &str =
    "INSERT INTO approvals (dlq_id, step, principal, reason, at) VALUES ($1, $2, $3, $4, $5)";

fn save_letters(changes: &Changes, asks: &mut Vec<Ask>) {
    for letter in changes.letters.values() {
        asks.push(
            Ask::new(SAVE_LETTER)
                .with(Uuid(letter.id.as_u128()))
                .with(letter.tenant.as_str().to_owned())
                .with(Uuid(letter.job_id.as_u128()))
                .with(letter.state.as_str())
                .with(letter.failure.code.clone())
                .with(Time(letter.created_at))
                .with(letter.requeued_as.map(|id| Uuid(id.as_u128())))
                .with(letter.closed_at.map(Time))
                .with(json(letter))
                .with(letter.cause()),
        );
    }
    for approval in &changes.approvals {
        asks.push(
            Ask::new(APPROVE)
                .with(Uuid(approval.dlq_id.as_u128()))
                .with(approval.step.as_str())
                .with(approval.principal.as_str().to_owned())
                .with(approval.reason.clone())
                .with(Time(approval.at)),
        );
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
pub(super) fn save_sessions(work: &Work<'_>, now: Timestamp, asks: &mut Vec<Ask>) {
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
