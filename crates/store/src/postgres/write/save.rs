//! Saves the rows that a commit decided.
//!
//! Everything is put together here and sent at once, with the `COMMIT` behind it. A row is written only if it
//! is still the one that was decided upon.

use windlass_kernel::Timestamp;

use super::{
    log_rows::{Block, write_log},
    work::Work,
};
use crate::{
    IdMap,
    commit::{Changes, Row},
    postgres::{
        Inner, PgResult,
        claim::names::{CommitGroups, Names},
        link::{
            pipeline::Ask,
            types::{Time, Uuid},
        },
        row::{
            follow_up, follower,
            job::Place,
            job_save::{INSERT_AT_ONCE, insert, insert_jobs, update_jobs},
            ledger, letter, output, progress, schedule, task, token,
        },
    },
};

/// The statements that save all rows of a commit.
pub(crate) async fn asks(
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
    output::save(changes, asks);
    progress::save(changes, asks);
    ledger::save(changes, asks);
    letter::save(changes, asks);
    task::save(changes, asks);
    follow_up::save(changes, asks);
    schedule::save(changes, asks);
    token::save(changes, asks);
    follower::save(changes, asks);
    Ok(())
}

/// All of a commit that only makes jobs, in one statement. Its log rows are numbered from 0; the server adds
/// where they begin, and tells what time it is.
pub(crate) async fn at_once(
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
