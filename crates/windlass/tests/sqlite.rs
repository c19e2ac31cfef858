//! The Committer on a real file: many callers at once, few transactions.

use std::sync::Arc;

use tokio::sync::oneshot;
use windlass::{
    Committer, Ids, SubmitError, clock,
    committer::{Config, Handle},
};
use windlass_kernel::{
    Actor, Answer, JobId, Kind, Payload, Principal, State, TenantId,
    ops::{Enqueue, NewJob},
};
use windlass_store::{
    ReadJobs as _, ReadQueues as _, Reply, Write,
    read::Scope,
    sqlite::{Options, Sqlite},
};

const CALLERS: usize = 32;
const EACH: usize = 200;

fn enqueue(job_id: JobId) -> Write {
    let tenant = TenantId::new("acme").expect("a name");
    let payload = Payload::parse("{\"n\":1}", 100).expect("it is JSON");
    let new = Box::new(NewJob::new(Kind::new("noop").expect("a name"), payload));
    let by = Actor::User(Principal::new("test").expect("a name")).into();
    let op = Enqueue { job_id, tenant: tenant.clone(), new, random: 0, by }.into();
    Write::Op { tenant, op }
}

async fn call(handle: Handle, ids: Ids) -> Vec<JobId> {
    let mut made = Vec::new();
    for _ in 0..EACH {
        let id = ids.job_id();
        let reply = handle.submit(enqueue(id)).await.expect("it is accepted");
        let Reply::Answer(answer, Some(job)) = &reply else {
            panic!("an enqueue was answered with {reply:?}");
        };
        let Answer { job_id, state, recorded, .. } = answer;
        assert_eq!((*job_id, *state, *recorded, job.id), (id, State::Queued, false, id));
        made.push(id);
    }
    made
}

/// How many transactions there were: each of one tenant leaves one row in the log.
fn commits(path: &std::path::Path) -> usize {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(path, flags).expect("the file is there");
    connection.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).expect("it has a log")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_share_transactions_and_each_job_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let options =
        Options { path: path.clone(), clock: clock::system(), ticks: None, address: None };
    let store = Arc::new(Sqlite::open(options).unwrap());
    let committer = Committer::new(store.clone(), Config::default());
    let handle = committer.handle();
    let (shutdown, told) = oneshot::channel::<()>();
    let running = tokio::spawn(committer.run(async { told.await.unwrap_or(()) }));

    let ids = Ids::system();
    let callers: Vec<_> =
        (0..CALLERS).map(|_| tokio::spawn(call(handle.clone(), ids.clone()))).collect();
    let mut made = Vec::new();
    for caller in callers {
        made.extend(caller.await.unwrap());
    }
    shutdown.send(()).unwrap();
    running.await.unwrap().unwrap();
    let late = handle.submit(enqueue(ids.job_id())).await;
    assert!(matches!(late, Err(SubmitError::Closed)));

    assert_eq!(made.len(), CALLERS * EACH);
    let counts = store.counts(&Scope::Every).await.unwrap();
    assert_eq!(counts, [("default".to_owned(), "queued".to_owned(), made.len() as u64)]);
    for id in made.iter().step_by(97) {
        assert_eq!(store.job(&Scope::Every, *id).await.unwrap().unwrap().state, State::Queued);
    }
    let commits = commits(&path);
    assert!(commits * 4 < made.len(), "{commits} commits for {} writes", made.len());
}
