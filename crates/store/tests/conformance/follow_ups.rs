//! What follows for other jobs is kept with the commit that caused it.

use windlass_kernel::{FollowUp, State};

use crate::common::{Backend, TestStore, plain, settle, succeeded};

for_each_backend!(the_end_of_a_child_is_kept_for_its_parent,);

fn the_end_of_a_child_is_kept_for_its_parent(backend: Backend) {
    let test = TestStore::new(backend);
    let parent = test.enqueue(1, plain());
    let mut child = plain();
    child.parent = Some(parent);
    let child = test.enqueue(2, child);
    for granted in test.claim("w1", 1, 2) {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    assert_eq!(
        test.home.follow_ups(),
        [FollowUp::ChildEnded { parent, child, state: State::Succeeded }]
    );
}
