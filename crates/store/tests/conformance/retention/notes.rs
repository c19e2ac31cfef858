//! What was noted of schedules is kept for a while, and goes by its age.

use windlass_kernel::{
    About, ScheduleName, ScheduleOp, Timestamp,
    ops::NewJob,
    schedule::{Action, ScheduleSpec, When},
};
use windlass_store::Write;

use super::{DAY, HOUR, older_than, prune, step};
use crate::common::*;

for_each_backend!(a_note_goes_when_it_is_old_and_what_stands_beside_it_stays);

fn a_note_goes_when_it_is_old_and_what_stands_beside_it_stays(backend: Backend) {
    let retention = older_than(8 * DAY);
    let test = TestStore::new(backend);
    prune(&test, retention);
    let name = ScheduleName::new("nightly").unwrap();
    let act = |action: Action| {
        let (tenant, name, by) = (tenant(), name.clone(), person("ann"));
        Write::Schedule(ScheduleOp { tenant, name, action, by })
    };
    let when = When::At(test.now().plus(30 * DAY));
    let put = act(Action::Put(Box::new(ScheduleSpec::new(when, plain()))));
    // Jobs that stay are told of in the same row, and by far more lines.
    let waits =
        |number| write(enqueue(number, NewJob { scheduled_at: Some(Timestamp::MAX), ..plain() }));
    let writes: Vec<Write> = std::iter::once(put).chain((1..10).map(waits)).collect();
    assert!(test.commit(writes).iter().all(Result::is_ok));
    test.pass(HOUR);
    test.write(act(Action::Pause { reason: None })).unwrap();
    test.enqueue(20, plain());
    let noted =
        || test.wait(test.store.notes(&tenant(), &About::Schedule(name.clone()), u64::MAX, 9));
    let what = || -> Vec<u64> { noted().iter().map(|note| note.number).collect() };
    assert_eq!(what(), [11, 10]);

    test.pass(8 * DAY - HOUR);
    assert_eq!(prune(&test, retention).log_rows, 0);
    assert_eq!(what(), [11], "the other is younger");
    assert_eq!(test.home.count("notes"), 1);
    assert!(!step(&test, retention, 100).more, "nothing is left to do");
    let job = windlass_kernel::JobId::from_u128(1);
    assert_eq!(test.wait(test.store.events(&Scope::Every, job)).len(), 1);

    test.pass(HOUR);
    assert_eq!(prune(&test, retention).log_rows, 1);
    assert!(what().is_empty());
    assert_eq!(test.wait(test.store.schedule(&tenant(), &name)).unwrap().version, 2);
}
