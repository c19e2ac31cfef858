//! What follows for other jobs is kept with the commit that caused it.

mod common;

use windlass_kernel::{FollowUp, State};

use crate::common::{TestStore, plain, settle, succeeded};

#[test]
fn the_end_of_a_child_is_kept_for_its_parent() {
    let test = TestStore::new();
    let parent = test.enqueue(1, plain());
    let mut child = plain();
    child.parent = Some(parent);
    let child = test.enqueue(2, child);
    for granted in test.claim("w1", 1, 2) {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    let sql = test.sql();
    let mut rows = sql.prepare("SELECT what FROM follow_ups ORDER BY id").unwrap();
    let kept = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let kept: Vec<FollowUp> =
        kept.map(|text| serde_json::from_str(&text.unwrap()).unwrap()).collect();
    assert_eq!(kept, [FollowUp::ChildEnded { parent, child, state: State::Succeeded }]);
}
