//! Databases of earlier versions: each is kept as it was, and is read and finished by this one.
//!
//! `make bless` writes a database for the newest schema if there is none yet. One that is there is never
//! written again: it is what users have. Of PostgreSQL it is a dump.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use common::{postgres::SchemaHome, *};
use windlass_kernel::{
    By, DlqId, Epoch, Failure, IdempotencyKey, IdempotencyScope, Jitter, JobId, MarkName,
    Principal, RetryPolicy, Role, ScheduleName, ScheduleOp, State, Tag, TaskId, Timestamp, TokenId,
    TokenLabel, TokenOp, TraceId,
    ids::{Channel, CorrelationKey, MessageId, StepKey},
    job::{Priority, ScheduleType, Wait, WaitOn},
    ledger::{MailContent, MailName, Mode, Record, RecordedBy, Shape, StepOutcome},
    ops::{
        Advance, Discard, Entry, Expire, Expiry, Fingerprint, Happened, Idempotency, NewJob,
        NewTask, Outcome, Promote, PromoteWhen, Release, Renew, Signal, WaitFor,
    },
    schedule::{Action, CatchUp, Overlap, ScheduleSpec, When},
    token::IssueToken,
};
use windlass_store::{
    Write,
    read::{InboxOutcome, Scope},
};
use windlass_testkit::postgres::Cluster;

/// The newest migration of each database.
const NEWEST: u32 = 10;
const NEWEST_POSTGRES: u32 = 11;
/// The versions that users can have. The fourth schema was never in one without the fifth.
const VERSIONS: [u32; 9] = [1, 2, 3, 5, 6, 7, 8, 9, NEWEST];
const VERSIONS_POSTGRES: [u32; 10] = [1, 2, 3, 5, 6, 7, 8, 9, 10, NEWEST_POSTGRES];
/// The first version of each database that has ledgers.
const LEDGERS: u32 = 10;
const LEDGERS_POSTGRES: u32 = 11;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn file_of(version: u32) -> PathBuf {
    golden(&format!("v{version}.db"))
}

fn dump_of(version: u32) -> PathBuf {
    golden(&format!("v{version}.postgres.sql"))
}

/// The mark beside a database. Without it, a database counts as a copy, and its leases are over.
fn mark_of(path: &Path) -> PathBuf {
    format!("{}-mark", path.display()).into()
}

/// The jobs of a golden database, and where each of them stands.
const JOBS: [(u128, State); 12] = [
    (1, State::Queued),
    (2, State::Scheduled),
    (3, State::Running),
    (4, State::Succeeded),
    (5, State::Partial),
    (6, State::RetryScheduled),
    (7, State::Waiting),
    (8, State::Failed),
    (9, State::Cancelled),
    (10, State::Dispatched),
    (11, State::Interrupted),
    // It waits in the inbox, in the form of that version.
    (12, State::Queued),
];

/// What the handler of job 3 has said, from the third schema on.
const PROGRESS: &str = "{ \"rows\": 12 }";

/// Makes the file of the newest schema, if it is to be made.
fn bless() {
    let path = file_of(NEWEST);
    if env::var_os("WINDLASS_BLESS").is_some() && !path.exists() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("windlass.db");
        make(Backend::Sqlite.home_at(made.to_str().unwrap()));
        fs::copy(&made, &path).unwrap();
        fs::copy(mark_of(&made), mark_of(&path)).unwrap();
    }
    let version = FileStore::new().sql().pragma_query_value(None, "user_version", |row| row.get(0));
    assert_eq!(version, Ok(NEWEST), "NEWEST is not the newest");
}

/// Where a dump was made and is restored.
const SCHEMA: &str = "golden";

fn schema_home() -> Arc<SchemaHome> {
    let server = Cluster::shared().connection_string("postgres");
    Arc::new(SchemaHome::at(&format!("{server}|{SCHEMA}")))
}

/// Makes the dump of the newest schema, if it is to be made.
fn bless_dump() {
    let cluster = Cluster::shared();
    make(schema_home());
    let newest = cluster.psql("SELECT value FROM golden.meta WHERE name = 'schema'");
    assert_eq!(newest, NEWEST_POSTGRES.to_string(), "NEWEST_POSTGRES is not the newest");
    let path = dump_of(NEWEST_POSTGRES);
    if env::var_os("WINDLASS_BLESS").is_some() && !path.exists() {
        let mut dump = cluster.client("pg_dump");
        dump.args(["--schema", SCHEMA, "--no-owner", "-d"]);
        let made = dump.arg(cluster.connection_string("postgres")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let text = String::from_utf8(made.stdout).unwrap();
        // What only some versions of the client understand, and notes.
        let is_kept = |line: &&str| !line.starts_with('\\') || *line == "\\.";
        let is_kept = |line: &&str| is_kept(line) && !line.starts_with("--") && !line.is_empty();
        let lines = text.lines().filter(is_kept);
        fs::write(path, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }
    cluster.psql("DROP SCHEMA golden CASCADE");
}

fn restore(dump: &Path) {
    let text = fs::read(dump).expect("it is there; else run `make bless`");
    assert!(text.len() < 200 * 1024, "it is too large to keep");
    let mut psql = Cluster::shared().client("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d"]);
    psql.arg(Cluster::shared().connection_string("postgres"));
    let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    psql.stdin.take().unwrap().write_all(&text).unwrap();
    assert!(psql.wait().unwrap().success(), "{} cannot be restored", dump.display());
}

/// One job in each state that a job can be left in, and what users left in the inbox.
fn make(home: Arc<dyn Home>) {
    let test = TestStore::open(home).unwrap();
    test.pass(Duration::from_secs(1));
    let queued = NewJob {
        priority: Priority(500),
        task: Some(NewTask { task_id: TaskId::new("invoice-1").unwrap(), may_rerun: true }),
        payload: payload("{\"big\": 3544790567247868102,  \"spaced\": true}"),
        ..with_order_key()
    };
    test.enqueue(1, queued);
    let at = test.now().plus(Duration::from_secs(3600));
    test.enqueue(2, NewJob { scheduled_at: Some(at), ..plain() });
    for number in 3..=11 {
        let text = if number == 3 { "x".repeat(1000) } else { number.to_string() };
        test.enqueue(number, with_payload(&format!("\"{text}\"")));
    }
    let granted = test.claim("w1", 1, 9);
    assert_eq!(granted.len(), 9);
    let epoch = granted[0].job.epoch;
    let id = JobId::from_u128;
    let (lease, progress) = (Duration::from_secs(60), Some(payload(PROGRESS)));
    test.op(Renew {
        job_id: id(3),
        epoch,
        by: By::worker(worker("w1")),
        lease,
        heartbeat: true,
        progress,
    })
    .unwrap();
    make_ledgers(&test, epoch);
    let result = Some(payload("{ \"sent\": 1 }"));
    let done = Outcome::Succeeded { result };
    let mut settle_4 = settle(id(4), epoch, done);
    settle_4.stats = Some(payload("{ \"ms\": 12 }"));
    test.op(settle_4).unwrap();
    let part = Outcome::Partial { result: None, remaining: payload("[1, 2]") };
    test.op(settle(id(5), epoch, part)).unwrap();
    test.op(settle(id(6), epoch, failed_for_now())).unwrap();
    let by = By::worker(worker("w1"));
    test.op(WaitFor { job_id: id(7), epoch, by, wait: wait(), mails_seen: None }).unwrap();
    test.op(settle(id(8), epoch, failed_for_good())).unwrap();
    let reason = "nobody needs it".to_owned();
    let dlq_id = DlqId::of_job(id(8));
    test.op(Discard { dlq_id, reason, by: person("ann") }).unwrap();
    let enough = Outcome::Cancelled { reason: Some("enough".to_owned()) };
    test.op(settle(id(9), epoch, enough)).unwrap();
    test.op(Release { job_id: id(10), epoch, by: By::worker(worker("w1")) }).unwrap();
    expire(&test, id(11), Expiry::DeadSession);
    test.op(hand_in(id(11), epoch)).unwrap();
    let mut slow = wanted("w2", 2, 1);
    slow.start = false;
    test.write(Write::Claim(slow)).unwrap();
    let schedule = Action::Put(Box::new(schedule()));
    test.write(on_schedule(schedule)).unwrap();
    test.write(on_schedule(Action::Pause { reason: Some("a holiday".to_owned()) })).unwrap();
    test.write(Write::Token(TokenOp::Issue(token()))).unwrap();
    test.write(Write::Mark { name: follower(), number: 5 }).unwrap();
    put(&*test.home, 13, NewJob { payload: payload("[ 13 ]"), ..with_order_key() });
    assert_eq!(
        test.wait(test.store.inbox_result(&Scope::Every, id(13))).unwrap().existing,
        Some(id(1))
    );
    put(&*test.close(), 12, with_everything());
}

/// Job 3 has a step that is done, one that failed, one that was begun, and mail of two sorts. Job 11 has only begun a step,
/// before it lost its worker.
fn make_ledgers(test: &TestStore, epoch: Epoch) {
    let id = JobId::from_u128;
    let begun = Happened::Begun { call_id: 7, until: None };
    let failed = Happened::Recorded {
        outcome: StepOutcome::Failed(declined()),
        by: RecordedBy::Executed,
        mail: None,
    };
    test.op(advance(id(3), epoch)).unwrap();
    for job_id in [id(3), id(11)] {
        let entries = vec![entry("charge", Mode::Once, begun.clone())];
        test.op(Advance { entries, ..advance(job_id, epoch) }).unwrap();
    }
    let entries = vec![entry("mail", Mode::Idempotent, failed)];
    test.op(Advance { entries, ..advance(id(3), epoch) }).unwrap();
    test.op(signal(id(3), CorrelationKey::new("paid").unwrap())).unwrap();
    let content = MailContent::Rejected(declined());
    let rejected = signal(id(3), CorrelationKey::new("paid").unwrap());
    test.op(Signal { name: message(), content, ..rejected }).unwrap();
}

fn entry(step: &str, mode: Mode, what: Happened) -> Entry {
    let input = Some(payload("[ 3 ]").digest());
    let location = Some("src/order.rs:12".to_owned());
    Entry { key: step_key(step), shape: Shape::step(mode, input), location, what }
}

fn declined() -> Failure {
    Failure::permanent("DECLINED", "the card was declined")
}

fn message() -> MailName {
    let (channel, id) = (Channel::new("chat: ä").unwrap(), MessageId::new("m1").unwrap());
    MailName::Message { channel, id }
}

/// The ledgers say what they said.
fn check_ledgers(test: &TestStore) {
    let read = |number| {
        let id = JobId::from_u128(number);
        test.wait(test.store.ledger(&Scope::Every, id, 0)).unwrap()
    };
    let ledger = read(3);
    let outcome = |record: &Record| (record.number, record.outcome.clone());
    let steps = ledger.steps.iter().map(|step| (&step.key, step.record.as_ref().map(outcome)));
    let (price, mail, charge) = (step_key("price"), step_key("mail"), step_key("charge"));
    let expected: [(&StepKey, Option<(u32, StepOutcome)>); 3] = [
        (&price, Some((1, StepOutcome::Done(payload("1"))))),
        (&mail, Some((2, StepOutcome::Failed(declined())))),
        (&charge, None),
    ];
    assert_eq!(steps.collect::<Vec<_>>(), expected);
    let begun = &ledger.steps[2];
    let asked = entry("charge", Mode::Once, Happened::Begun { call_id: 7, until: None });
    assert_eq!((&begun.shape, &begun.location), (&asked.shape, &asked.location));
    let mails = ledger.mails.iter().map(|it| (it.number, &it.name, &it.content, it.taken));
    let paid = signal(JobId::from_u128(3), CorrelationKey::new("paid").unwrap());
    let rejected = MailContent::Rejected(declined());
    assert_eq!(
        mails.collect::<Vec<_>>(),
        [(1, &paid.name, &paid.content, false), (2, &message(), &rejected, false)]
    );
    let effects = read(11).effects;
    let late = hand_in(JobId::from_u128(11), effects[0].epoch);
    assert_eq!((&effects[0].key, &effects[0].outcome), (&late.key, &late.outcome));
    assert_eq!((effects.len(), effects[0].epoch), (1, Epoch::new(1)));
}

/// A schedule with something unusual in every field.
fn schedule() -> ScheduleSpec {
    let when =
        When::Cron { expression: "30 2 * * 1-5".to_owned(), zone: "Europe/Berlin".to_owned() };
    let job = NewJob { max_retries: 9, ..with_payload("[ 1,  2 ]") };
    ScheduleSpec {
        jitter: Duration::from_secs(90),
        catch_up: CatchUp::All { max: 7 },
        overlap: Overlap::Queue,
        start_at: Some(Timestamp::from_micros(START)),
        end_at: Some(Timestamp::MAX),
        ..ScheduleSpec::new(when, job)
    }
}

/// A token with something unusual in every field.
fn token() -> IssueToken {
    IssueToken {
        id: TokenId::from_u128(77),
        digest: [7; 32],
        tenant: Some(tenant()),
        principal: Principal::new("bob").unwrap(),
        role: Role::Operator,
        label: Some(TokenLabel::new("laptop").unwrap()),
        expires_at: Some(Timestamp::MAX),
        by: person("ann"),
    }
}

fn follower() -> MarkName {
    MarkName::new("alerts").unwrap()
}

fn on_schedule(action: Action) -> Write {
    let name = ScheduleName::new("nightly").unwrap();
    Write::Schedule(ScheduleOp { tenant: tenant(), name, action, by: person("ann") })
}

/// Enqueues in a transaction of a user.
fn put(home: &dyn Home, number: u128, new: NewJob) {
    let mut user = home.user();
    user.begin();
    user.put(&enqueue(number, new), Timestamp::from_micros(START + 2_000_000)).unwrap();
    user.sql("COMMIT");
}

fn with_order_key() -> NewJob {
    NewJob {
        idempotency: Idempotency::Key {
            scope: IdempotencyScope::new("orders").unwrap(),
            key: IdempotencyKey::new("order-1").unwrap(),
        },
        ..plain()
    }
}

/// A job with something unusual in every field that a row of the inbox has.
fn with_everything() -> NewJob {
    let at = |days: u64| Timestamp::from_micros(START).plus(Duration::from_secs(86_400 * days));
    NewJob {
        priority: Priority(-7),
        schedule_type: ScheduleType::Every,
        scheduled_at: Some(Timestamp::from_micros(START)),
        timeout: Some(Duration::from_millis(1_500)),
        heartbeat_timeout: Some(Duration::from_secs(20)),
        schedule_to_start: Some(Duration::from_secs(86_400)),
        deadline_at: Some(at(365 * 500)),
        max_retries: 9,
        retry: RetryPolicy { base: Duration::from_secs(2), max_backoff: Duration::from_secs(99) },
        max_interruptions: 8,
        idempotency: Idempotency::Run { key: IdempotencyKey::new("run-12").unwrap() },
        task: Some(NewTask { task_id: TaskId::new("task-12").unwrap(), may_rerun: true }),
        tags: vec![Tag::new("blue").unwrap()],
        trace_id: Some(TraceId::new("trace-12").unwrap()),
        parent: Some(JobId::from_u128(3)),
        ..with_payload("[ 12 ]")
    }
}

fn expire(test: &TestStore, job_id: JobId, what: Expiry) {
    let (version, jitter) = (test.job(job_id).version, Jitter::NONE);
    test.op(Expire { job_id, version, what, jitter }).unwrap();
}

fn wait() -> Wait {
    let key = CorrelationKey::new("paid").unwrap();
    Wait { on: WaitOn::Signal(key), until: None }
}

#[test]
fn every_golden_database_is_read_and_finished() {
    bless();
    for version in VERSIONS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windlass.db");
        let size = fs::copy(file_of(version), &path).expect("it is there; else run `make bless`");
        fs::copy(mark_of(&file_of(version)), mark_of(&path)).unwrap();
        assert!(size < 320 * 1024, "it is too large to keep");
        let report = windlass_store::sqlite::check(&path).unwrap();
        assert!(report.is_clean(), "before it is brought up to date: {report}");
        let test = FileStore::open(&path).unwrap();
        check_read(&test, version, |state| state);
        if version >= LEDGERS {
            check_ledgers(&test);
        }
        finish(&test);
        let report = test.home.check();
        assert!(report.is_clean(), "{report}");
    }
}

/// A dump is restored on another server, and there all leases are over.
#[test]
fn every_golden_dump_is_read_and_finished() {
    bless_dump();
    for version in VERSIONS_POSTGRES {
        restore(&dump_of(version));
        let report = schema_home().check();
        assert!(report.is_clean(), "before it is brought up to date: {report}");
        let test = TestStore::open(schema_home()).unwrap();
        check_read(&test, version, |state| match state {
            State::Running => State::Interrupted,
            State::Dispatched => State::Queued,
            other => other,
        });
        if version >= LEDGERS_POSTGRES {
            check_ledgers(&test);
        }
        finish(&test);
        let report = test.home.check();
        assert!(report.is_clean(), "{report}");
        drop(test);
        Cluster::shared().psql("DROP SCHEMA golden CASCADE");
    }
}

/// Everything in it can be read, and says what it said.
fn check_read(test: &TestStore, version: u32, left_in: impl Fn(State) -> State) {
    for (number, state) in JOBS {
        let id = JobId::from_u128(number);
        let job = test.job(id);
        assert_eq!(job.state, left_in(state), "job {number}");
        let events = test.wait(test.store.events(&Scope::Every, id));
        assert_eq!(events.len() as u64, job.version, "job {number}");
        let folded = windlass_kernel::fold(&events).unwrap();
        assert_eq!((folded.state, folded.settles), (job.state, job.settles), "job {number}");
    }
    let counts = test.wait(test.store.counts(&Scope::Every));
    assert_eq!(counts.iter().map(|it| it.2).sum::<u64>(), JOBS.len() as u64);
    let waited = test.job(JobId::from_u128(12)).spec;
    let asked = Fingerprint::of_request(&with_everything());
    assert!(asked.differs_from(&Fingerprint::of_job(&waited)).is_empty());
    assert_eq!((waited.trace_id.as_str(), waited.parent), ("trace-12", Some(JobId::from_u128(3))));
    let conflict = test.wait(test.store.inbox_result(&Scope::Every, JobId::from_u128(13))).unwrap();
    assert_eq!(
        (conflict.outcome, conflict.payload.as_deref()),
        (InboxOutcome::Conflict, Some("[ 13 ]"))
    );
    let payload =
        |number| test.wait(test.store.payload(&Scope::Every, JobId::from_u128(number))).unwrap();
    assert_eq!(payload(1), "{\"big\": 3544790567247868102,  \"spaced\": true}");
    assert_eq!(payload(3).len(), 1002);
    let output = test.wait(test.store.last_output(&Scope::Every, JobId::from_u128(4))).unwrap();
    assert_eq!(output.result.as_deref(), Some("{ \"sent\": 1 }"));
    assert_eq!(output.stats.as_deref(), Some("{ \"ms\": 12 }"));
    let said = test.wait(test.store.progress(&Scope::Every, JobId::from_u128(3)));
    assert_eq!(said.map(|it| it.value), (version >= 3).then(|| PROGRESS.to_owned()));
    let found = test.wait(test.store.schedules(&tenant(), None, 10));
    let specs: Vec<ScheduleSpec> = found.iter().map(|found| (*found.spec).clone()).collect();
    assert_eq!(specs, if version >= 5 { vec![schedule()] } else { Vec::new() });
    assert!(found.iter().all(|found| found.pause.is_some() && found.next_at.is_some()));
    let found = test.wait(test.store.token(token().id));
    let found = found.map(|it| (it.digest, it.principal, it.role, it.label));
    let issued = (token().digest, token().principal, token().role, token().label);
    assert_eq!(found, (version >= 6).then_some(issued));
    assert_eq!(test.wait(test.store.mark(&follower())), (version >= 6).then_some(5));
    // What was done before acts were written is in the log alone.
    let acts = test.wait(test.store.acts(&Scope::Every, u64::MAX, 100)).len();
    assert_eq!(acts, if version >= 6 { 4 } else { 0 });
    let letter = test.job(JobId::from_u128(8)).dlq_id.unwrap();
    assert_eq!(
        test.wait(test.store.letter(&Scope::Every, letter)).unwrap().failure.code,
        "NO_SUCH_USER"
    );
    assert_eq!(test.wait(test.store.approvals(&Scope::Every, letter)).len(), 1);
    assert!(!test.wait(test.store.feed(&Scope::Every, 0, 1000)).events.is_empty());
}

/// Every job that is not at an end can be brought to one.
fn finish(test: &TestStore) {
    let id = JobId::from_u128;
    test.pass(Duration::from_secs(7200));
    let job = test.job(id(2));
    let when = PromoteWhen::Due { version: job.version };
    test.op(Promote { job_id: id(2), when }).unwrap();
    let key = CorrelationKey::new("paid").unwrap();
    test.op(signal(id(7), key)).unwrap();
    for number in [3, 10] {
        if test.job(id(number)).lease.is_some() {
            expire(test, id(number), Expiry::Lease);
        }
    }
    let granted = test.claim("w3", 3, 100);
    let mut ids: Vec<JobId> = granted.iter().map(|it| it.job.id).collect();
    ids.sort();
    assert_eq!(ids, [1, 2, 3, 6, 7, 10, 11, 12].map(id));
    for granted in granted {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    assert!(test.wait(test.store.open_jobs()).is_empty());
}
