//! Marks: how far those have come who follow the feed.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::MarkName;

use super::column::number;
use crate::{
    commit::Changes,
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::signed,
        },
    },
};

const MARK: &str = "SELECT number FROM marks WHERE name = $1";

/// How far a follower has come.
pub(crate) async fn read_mark(client: &ClientWrapper, name: &MarkName) -> PgResult<Option<u64>> {
    let rows = run_one(client, Ask::new(MARK).with(name.as_str().to_owned())).await?;
    rows.first().map(|row| number(row, 0)).transpose()
}

/// It never goes back, whoever of two followers is first.
const SAVE: &str = "
    INSERT INTO marks (name, number) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET number = greatest(marks.number, excluded.number)";

/// The statements that save how far followers have come. They are in the order of the names, so that two commits
/// cannot deadlock.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    for (name, number) in &changes.marks {
        asks.push(Ask::new(SAVE).with(name.as_str().to_owned()).with(signed(*number)));
    }
}
