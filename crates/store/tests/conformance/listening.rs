//! What workers say of themselves: what they listen to, that they are still there, and goodbye.

use std::time::Duration;

use windlass_kernel::JobId;
use windlass_store::{
    Reply, Write,
    read::{self, ListeningWorker, Listens, Word},
};

use crate::common::*;

for_each_backend!(whoever_listens_is_named, whoever_says_goodbye_listens_no_more);

for_each_lasting_backend!(a_goodbye_survives_a_restart);

const SECOND: Duration = Duration::from_secs(1);

/// The workers that listen, by name, and whether each was seen so many seconds ago or is there now.
fn listening(test: &TestStore, id: JobId) -> Vec<(String, Option<u64>)> {
    let standing = test.wait(test.store.standing(&read::Scope::Every, id)).unwrap();
    let listed = test.wait(test.store.listening(&read::Scope::Every));
    let ago = |at: windlass_kernel::Timestamp| standing.now.since(at).as_secs();
    let named = |all: &[ListeningWorker]| -> Vec<_> {
        let it = all.iter().map(|it| (it.worker.to_string(), it.last_seen_at.map(ago)));
        let mut it: Vec<_> = it.collect();
        it.sort();
        it
    };
    assert_eq!(named(&listed), named(&standing.listening), "both look the same way");
    named(&standing.listening)
}

fn says(name: &str, word: Word) -> Write {
    Write::Listens { worker: worker(name), tenant: None, word }
}

fn default_word() -> Word {
    Word::To(Listens { queues: vec![queue("default")], ..Listens::default() })
}

/// As [`listening`] tells it.
fn told(workers: &[(&str, Option<u64>)]) -> Vec<(String, Option<u64>)> {
    workers.iter().map(|(name, ago)| ((*name).to_owned(), *ago)).collect()
}

fn whoever_listens_is_named(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let listens = |name: &str| says(name, default_word());
    assert!(matches!(test.write(listens("w1")), Ok(Reply::Done)));
    test.wait(test.store.vouch(&worker("w2")));
    test.commit(vec![listens("w2"), listens("w3"), listens("w4")]);
    let all = [("w1", Some(0)), ("w2", None), ("w3", Some(0)), ("w4", Some(0))];
    assert_eq!(listening(&test, id), told(&all));
    assert_eq!(test.claim("w1", 1, 1).len(), 1, "its session begins with its first lease");
    test.pass(SECOND * 20);
    test.write(says("w3", Word::Still)).unwrap();
    let all = [("w1", Some(20)), ("w2", None), ("w3", Some(0)), ("w4", Some(20))];
    assert_eq!(listening(&test, id), told(&all));
    test.pass(SECOND * 71);
    let rest = [("w2", None), ("w3", Some(71))];
    assert_eq!(listening(&test, id), told(&rest), "one lives, one has said so again");
    test.write(Write::RenewSession { worker: worker("w1"), lease: SECOND * 200 }).unwrap();
    test.pass(SECOND * 100);
    let rest = [("w1", Some(191)), ("w2", None)];
    assert_eq!(listening(&test, id), told(&rest), "one lives, and one keeps its leases");
    let standing = test.wait(test.store.standing(&read::Scope::Every, id)).unwrap();
    let holds = |name: &str| {
        let mut all = standing.listening.iter();
        all.find(|it| it.worker == worker(name)).map(|it| it.holds)
    };
    assert_eq!((holds("w1"), holds("w2")), (Some(1), Some(0)));
}

fn whoever_says_goodbye_listens_no_more(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    let goodbye = |name: &str| says(name, Word::Goodbye);
    let refused = test.write(goodbye("w1")).unwrap_err();
    assert_eq!(refused.code(), "NOT_FOUND", "nobody knows it");
    test.wait(test.store.vouch(&worker("w2")));
    for name in ["w1", "w2", "w3"] {
        test.write(says(name, default_word())).unwrap();
    }
    let held = test.claim("w1", 1, 1);
    test.commit(vec![goodbye("w1"), goodbye("w2")]);
    assert_eq!(listening(&test, id), told(&[("w3", Some(0))]));
    assert_eq!(test.job(id).lease, held[0].job.lease, "what it holds is as it was");
    // Goodbye once more is no error, and whoever is gone is not there because it is heard of.
    test.commit(vec![goodbye("w1"), says("w1", Word::Still), says("w2", Word::Still)]);
    assert_eq!(listening(&test, id), told(&[("w3", Some(0))]));
    test.write(says("w1", default_word())).unwrap();
    assert_eq!(listening(&test, id), told(&[("w1", Some(0)), ("w3", Some(0))]), "it is back");
    // Within one commit the last word counts.
    let back = vec![says("w4", default_word()), goodbye("w4"), goodbye("w3")];
    test.commit([back, vec![says("w3", default_word()), says("w3", Word::Still)]].concat());
    assert_eq!(listening(&test, id), told(&[("w1", Some(0)), ("w3", Some(0))]));
}

fn a_goodbye_survives_a_restart(backend: Backend) {
    let test = TestStore::new(backend);
    let id = test.enqueue(1, plain());
    for name in ["w1", "w2"] {
        test.write(says(name, default_word())).unwrap();
    }
    test.write(says("w1", Word::Goodbye)).unwrap();
    let test = test.reopen();
    let ago = listening(&test, id);
    assert_eq!(ago.iter().map(|it| it.0.as_str()).collect::<Vec<_>>(), ["w2"]);
    assert!(test.write(says("w1", Word::Goodbye)).is_ok(), "its session is still known");
}
