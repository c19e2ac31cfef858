//! Unique while active: of jobs with one unique key, one is not at its end.

use std::collections::HashSet;

use windlass_kernel::{Answer, JobId, UniqueKey, ops::NewJob};

use super::{
    races::{answers, at_once},
    rules::enqueue_of,
};
use crate::common::*;

for_each_backend!(
    of_many_who_ask_at_once_one_makes_the_job,
    asking_again_gives_the_job_until_its_end,
    a_batch_that_ends_the_job_can_make_the_next,
    the_same_key_of_another_tenant_is_another,
    it_holds_for_users_transactions_too,
);

const MANY: usize = 64;

fn unique(key: &str) -> NewJob {
    NewJob { unique_key: Some(UniqueKey::new(key).unwrap()), ..plain() }
}

fn of_many_who_ask_at_once_one_makes_the_job(backend: Backend) {
    let test = TestStore::new(backend);
    for round in 0..5u128 {
        let key = format!("sync-{round}");
        let number = |it: usize| round * 100 + it as u128;
        let writes = (1..=MANY).map(|it| write(enqueue(number(it), unique(&key)))).collect();
        let told: Vec<Answer> =
            answers(at_once(&test, writes)).into_iter().map(Result::unwrap).collect();
        let ids: HashSet<JobId> = told.iter().map(|answer| answer.job_id).collect();
        assert_eq!(ids.len(), 1);
        assert_eq!(told.iter().filter(|answer| answer.recorded).count(), MANY - 1);
    }
    assert_eq!(test.wait(test.store.open_jobs()).len(), 5);
    assert!(test.home.check().is_clean());
}

fn asking_again_gives_the_job_until_its_end(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, unique("sync"));
    assert_eq!(test.enqueue(2, unique("sync")), id);
    let got = test.claim("w1", 1, 10);
    assert_eq!(got.len(), 1);
    assert_eq!(test.enqueue(3, unique("sync")), id, "it runs");
    test.op(settle(id, got[0].job.epoch, failed_for_now())).unwrap();
    assert_eq!(test.enqueue(4, unique("sync")), id, "it is tried again");
    test.pass(std::time::Duration::from_secs(60));
    let got = test.claim("w1", 2, 10);
    test.op(settle(id, got[0].job.epoch, succeeded())).unwrap();
    assert_eq!(test.enqueue(5, unique("sync")), JobId::from_u128(5));
    assert_eq!(test.enqueue(6, unique("sync")), JobId::from_u128(5));
    assert_eq!(test.enqueue(7, unique("other")), JobId::from_u128(7));
}

fn a_batch_that_ends_the_job_can_make_the_next(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, unique("sync"));
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let next = |number| write(enqueue(number, unique("sync")));
    let writes = vec![next(2), write(settle(id, epoch, succeeded())), next(3), next(4)];
    let told = answers(test.commit(writes));
    let ids = [0, 2, 3].map(|place| told[place].as_ref().unwrap().job_id.as_u128());
    assert_eq!(ids, [1, 3, 3]);
    assert_eq!(test.wait(test.store.open_jobs()).len(), 1);
    assert!(test.home.check().is_clean());
}

fn the_same_key_of_another_tenant_is_another(backend: Backend) {
    let test = TestStore::new(backend);
    test.enqueue(1, unique("sync"));
    let other = test.write(enqueue_of("bolt", 2, unique("sync"))).unwrap();
    assert_eq!(answer(&other).job_id, JobId::from_u128(2));
}

fn it_holds_for_users_transactions_too(backend: Backend) {
    let test = TestStore::new(backend);
    let mut user = test.home.user();
    user.begin();
    for number in 1..=3 {
        user.put(&enqueue(number, unique("sync")), test.now()).unwrap();
    }
    user.sql("COMMIT");
    assert_eq!(test.enqueue(4, unique("sync")), JobId::from_u128(1));
    assert_eq!(test.wait(test.store.open_jobs()).len(), 1);
    let result = test.wait(test.store.inbox_result(&Scope::Every, JobId::from_u128(3))).unwrap();
    assert_eq!(result.existing, Some(JobId::from_u128(1)));
    assert!(test.home.check().is_clean());
}
