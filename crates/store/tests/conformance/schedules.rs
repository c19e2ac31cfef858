//! Schedules: a slot makes one job, whoever fires it, and what was skipped is told.

mod races;

use std::time::Duration;

use windlass_kernel::{
    About, Actor, JobId, Refusal, Schedule, ScheduleName, ScheduleOp, State, Tag, Timestamp,
    job::ScheduleType,
    ops::NewJob,
    schedule::{Action, CatchUp, Overlap, Pause, ScheduleSpec, When},
};
use windlass_store::{Reply, Scheduled, Write};

use crate::common::*;

for_each_backend!(
    a_schedule_comes_back_as_it_was_put,
    a_slot_makes_a_job_in_the_same_commit,
    schedules_are_listed_by_name,
    whoever_looks_after_alarms_is_told_of_an_earlier_slot,
    a_slot_waits_for_the_last_job_or_is_skipped,
    what_was_missed_is_told_once,
    a_slot_that_was_filled_in_is_not_fired_again,
    a_slot_whose_job_was_forgotten_is_not_filled_in_again,
    a_job_is_made_now_once_for_each_id,
    a_schedule_of_another_tenant_is_not_found,
    a_refused_schedule_changes_nothing,
    many_ops_on_one_schedule_in_one_commit_are_decided_in_order,
);

for_each_lasting_backend!(a_schedule_outlives_its_process);

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).unwrap()
}

fn every(period: Duration) -> ScheduleSpec {
    // The clock of a test stands at no whole minute.
    let anchor = Timestamp::from_micros(START);
    ScheduleSpec::new(When::Every { period, anchor }, plain())
}

fn op(schedule: &str, action: Action) -> Write {
    let by = match action {
        Action::Fire { .. } => Actor::Scheduler.into(),
        _ => person("ann"),
    };
    Write::Schedule(ScheduleOp { tenant: tenant(), name: name(schedule), action, by })
}

fn scheduled(reply: Reply) -> Scheduled {
    match reply {
        Reply::Scheduled(told) => *told,
        other => panic!("a schedule was answered with {other:?}"),
    }
}

fn act(test: &TestStore, schedule: &str, action: Action) -> Result<Scheduled, Refusal> {
    test.write(op(schedule, action)).map(scheduled)
}

fn put(test: &TestStore, schedule: &str, spec: ScheduleSpec) -> Schedule {
    let told = act(test, schedule, Action::Put(Box::new(spec))).unwrap();
    (*told.schedule.unwrap()).clone()
}

fn read(test: &TestStore, schedule: &str) -> Schedule {
    test.wait(test.store.schedule(&tenant(), &name(schedule))).unwrap()
}

/// A timer looks once, and fires what it finds.
fn look(test: &TestStore) -> Vec<Result<Scheduled, Refusal>> {
    let due = test.wait(test.store.due(100));
    let fire = |due: windlass_store::read::DueSchedule| {
        let action = Action::Fire { version: due.version };
        let by = Actor::Scheduler.into();
        Write::Schedule(ScheduleOp { tenant: due.tenant, name: due.name, action, by })
    };
    let replies = test.commit(due.schedules.into_iter().map(fire).collect());
    replies.into_iter().map(|reply| reply.map(scheduled)).collect()
}

/// What was noted about a schedule, oldest first: the word, and one field of the detail.
fn notes(test: &TestStore, schedule: &str, field: &str) -> Vec<(String, String)> {
    let about = About::Schedule(name(schedule));
    let mut found = test.wait(test.store.notes(&tenant(), &about, u64::MAX, 1_000));
    found.reverse();
    assert!(found.is_sorted_by_key(|note| note.number));
    let told = found.iter().map(|note| {
        let line: serde_json::Value = serde_json::from_str(&note.line).unwrap();
        let detail = &line["detail"][field];
        let detail = detail.as_str().map_or_else(|| detail.to_string(), str::to_owned);
        (line["what"].as_str().unwrap().to_owned(), detail)
    });
    told.collect()
}

fn words(test: &TestStore, schedule: &str) -> Vec<String> {
    notes(test, schedule, "slot").into_iter().map(|(what, _)| what).collect()
}

#[track_caller]
fn is_sound(test: &TestStore) {
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

/// All that can be said about a schedule.
fn rich() -> ScheduleSpec {
    let job = NewJob {
        queue: queue("reports"),
        max_retries: 7,
        timeout: Some(MINUTE),
        tags: vec![Tag::new("nightly").unwrap()],
        ..with_payload("{ \"big\" : 3544790567247868102, \"b\":1,\"a\":2 }")
    };
    let when = When::Cron { expression: "30 2 * * *".to_owned(), zone: "Europe/Berlin".to_owned() };
    ScheduleSpec {
        jitter: MINUTE,
        catch_up: CatchUp::All { max: 12 },
        overlap: Overlap::Queue,
        start_at: Some(Timestamp::from_micros(START)),
        end_at: Some(Timestamp::from_micros(START).plus(1_000_000 * MINUTE)),
        ..ScheduleSpec::new(when, job)
    }
}

fn a_schedule_comes_back_as_it_was_put(backend: Backend) {
    let test = TestStore::new(backend);
    let told = put(&test, "nightly", rich());
    assert_eq!(*told.spec, rich());
    assert_eq!(read(&test, "nightly"), told);
    let paused = act(&test, "nightly", Action::Pause { reason: Some("ä \"b\"".to_owned()) });
    let pause =
        Pause { by: person("ann").actor, at: test.now(), reason: Some("ä \"b\"".to_owned()) };
    assert_eq!(paused.unwrap().schedule.unwrap().pause, Some(pause.clone()));
    assert_eq!(read(&test, "nightly").pause, Some(pause));
    assert_eq!(read(&test, "nightly").version, 2);
    // The same again writes nothing.
    let before = test.home.count("log");
    put(&test, "nightly", rich());
    assert_eq!(test.home.count("log"), before);
    act(&test, "nightly", Action::Delete).unwrap();
    assert_eq!(test.wait(test.store.schedule(&tenant(), &name("nightly"))), None);
    assert_eq!(words(&test, "nightly"), ["created", "paused", "deleted"]);
    is_sound(&test);
}

fn a_slot_makes_a_job_in_the_same_commit(backend: Backend) {
    let test = TestStore::new(backend);
    let job = rich().job;
    put(&test, "nightly", ScheduleSpec { job: job.clone(), ..every(MINUTE) });
    assert_eq!(read(&test, "nightly").next_at, Some(test.now()));
    let fired = look(&test).remove(0).unwrap();
    let [made] = fired.made[..] else { panic!("{fired:?}") };
    let row = test.job(made);
    assert_eq!((row.state, row.spec.schedule_type), (State::Queued, ScheduleType::Every));
    assert_eq!((&row.spec.queue, row.spec.max_retries), (&job.queue, 7));
    assert_eq!(row.spec.scheduled_at, Some(test.now()));
    assert_eq!(row.spec.idempotency_key.as_str(), format!("nightly@{}", test.now()));
    assert_eq!(test.wait(test.store.payload(&Scope::Every, made)).unwrap(), job.payload.as_str());
    assert_eq!(test.wait(test.store.events(&Scope::Every, made))[0].actor, Actor::Scheduler);
    assert!(look(&test).is_empty(), "the next slot has not come");
    let due = test.wait(test.store.due(1));
    assert_eq!(due.next_at, Some(test.now().plus(MINUTE)));
    for _ in 0..3 {
        test.pass(MINUTE);
        assert_eq!(look(&test).remove(0).unwrap().made.len(), 1);
    }
    let schedule = read(&test, "nightly");
    assert_eq!((schedule.last_slot, schedule.version), (Some(test.now()), 5));
    assert_eq!(words(&test, "nightly"), ["created", "fired", "fired", "fired", "fired"]);
    // The line of a firing names its job, in the feed too.
    let feed = test.wait(test.store.feed(&Scope::Every, 0, 100));
    assert!(feed.events.iter().any(|event| event.line.contains(&format!("\"job_id\":\"{made}\""))));
    is_sound(&test);
}

fn schedules_are_listed_by_name(backend: Backend) {
    let test = TestStore::new(backend);
    for schedule in ["b", "a", "Z", "ä", "c"] {
        put(&test, schedule, every(MINUTE));
    }
    let page = |after: Option<&str>, limit| -> Vec<String> {
        let after = after.map(name);
        let page = test.wait(test.store.schedules(&tenant(), after.as_ref(), limit));
        page.into_iter().map(|schedule| schedule.name.to_string()).collect()
    };
    assert_eq!(page(None, 100), ["Z", "a", "b", "c", "ä"]);
    assert_eq!(page(None, 2), ["Z", "a"]);
    assert_eq!(page(Some("a"), 2), ["b", "c"]);
    assert!(page(Some("ä"), 2).is_empty());
}

fn whoever_looks_after_alarms_is_told_of_an_earlier_slot(backend: Backend) {
    let test = TestStore::new(backend);
    let mut sooner = test.store.sooner();
    test.pass(SECOND);
    put(&test, "slow", every(60 * MINUTE));
    test.wait(test.store.due(10));
    sooner.mark_heard();
    put(&test, "slower", every(120 * MINUTE));
    assert!(!sooner.is_rung());
    put(&test, "fast", every(MINUTE));
    assert!(sooner.is_rung());
    assert_eq!(test.wait(test.store.due(10)).next_at, Some(test.now().plus(59 * SECOND)));
    act(&test, "fast", Action::Pause { reason: None }).unwrap();
    assert_eq!(test.wait(test.store.due(10)).next_at, Some(test.now().plus(3599 * SECOND)));
}

fn a_slot_waits_for_the_last_job_or_is_skipped(backend: Backend) {
    let test = TestStore::new(backend);
    put(&test, "queue", ScheduleSpec { overlap: Overlap::Queue, ..every(MINUTE) });
    put(&test, "skip", ScheduleSpec { overlap: Overlap::Skip, ..every(MINUTE) });
    assert_eq!(look(&test).len(), 2);
    test.pass(MINUTE);
    assert!(look(&test).into_iter().all(|told| told.unwrap().made.is_empty()));
    assert_eq!(notes(&test, "skip", "reason")[2], ("skipped".to_owned(), "overlap".to_owned()));
    assert_eq!(words(&test, "queue"), ["created", "fired"]);
    // Their jobs come to an end: the one goes on with the slot that waits, the other with the next.
    for granted in test.claim("w1", 1, 10) {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    test.pass(SECOND);
    let told = look(&test).remove(0).unwrap();
    assert_eq!((told.made.len(), told.schedule.unwrap().name.clone()), (1, name("queue")));
    test.pass(59 * SECOND);
    let made: usize = look(&test).into_iter().map(|told| told.unwrap().made.len()).sum();
    assert_eq!(made, 1);
    assert_eq!(words(&test, "skip"), ["created", "fired", "skipped", "fired"]);
    is_sound(&test);
}

fn what_was_missed_is_told_once(backend: Backend) {
    let test = TestStore::new(backend);
    test.pass(SECOND);
    put(&test, "one", ScheduleSpec { catch_up: CatchUp::One, ..every(MINUTE) });
    put(&test, "skip", ScheduleSpec { catch_up: CatchUp::Skip, ..every(MINUTE) });
    put(&test, "all", ScheduleSpec { catch_up: CatchUp::All { max: 4 }, ..every(MINUTE) });
    test.pass(10 * MINUTE);
    let made: Vec<usize> = look(&test).into_iter().map(|told| told.unwrap().made.len()).collect();
    // The last slot is a second late, and nothing else.
    assert_eq!(made.iter().sum::<usize>(), 2 + 1 + 5);
    assert_eq!(notes(&test, "one", "count")[2].0, "fired");
    for (schedule, reason, count) in
        [("one", "missed", "8"), ("skip", "missed", "9"), ("all", "bound_reached", "5")]
    {
        let told = |field| -> Vec<String> {
            let skipped = notes(&test, schedule, field).into_iter();
            skipped.filter(|(what, _)| what == "skipped").map(|(_, detail)| detail).collect()
        };
        assert_eq!(
            (told("reason"), told("count")),
            (vec![reason.to_owned()], vec![count.to_owned()])
        );
    }
    is_sound(&test);
}

fn a_slot_that_was_filled_in_is_not_fired_again(backend: Backend) {
    let test = TestStore::new(backend);
    let begin = test.now();
    test.pass(SECOND);
    put(&test, "nightly", every(MINUTE));
    test.pass(5 * MINUTE);
    let fill = || Action::Backfill { from: begin, to: test.now() };
    let filled = act(&test, "nightly", fill()).unwrap();
    assert_eq!((filled.made.len(), filled.known.len(), filled.goes_on_from), (6, 0, None));
    let again = act(&test, "nightly", fill()).unwrap();
    assert_eq!((again.made.len(), again.known.len()), (0, 6));
    assert_eq!(again.known, filled.made);
    // Its own time has come too, and finds them.
    let fired = look(&test).remove(0).unwrap();
    assert_eq!((fired.made.len(), fired.known.len()), (0, 2));
    assert_eq!(test.home.count("jobs"), 6);
    is_sound(&test);
}

fn a_slot_whose_job_was_forgotten_is_not_filled_in_again(backend: Backend) {
    let test = TestStore::new(backend);
    put(&test, "nightly", every(60 * MINUTE));
    let slot = test.now();
    let made = look(&test).remove(0).unwrap().made[0];
    // Something that stays lets the log speak of it.
    test.enqueue(77, NewJob { scheduled_at: Some(Timestamp::MAX), ..plain() });
    for granted in test.claim("w1", 1, 10) {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    test.pass(60 * MINUTE - SECOND);
    let retention = windlass_kernel::Retention {
        finished_for: MINUTE,
        key_ttl: MINUTE,
        ..windlass_kernel::Retention::default()
    };
    let pruned = test.wait(test.store.prune(retention, 100));
    assert_eq!(pruned.jobs, 1);
    assert!(test.wait(test.store.job(&Scope::Every, made)).is_none());
    let filled = act(&test, "nightly", Action::Backfill { from: slot, to: test.now() }).unwrap();
    assert_eq!((filled.made, filled.known), (Vec::new(), vec![made]));
    is_sound(&test);
}

fn a_job_is_made_now_once_for_each_id(backend: Backend) {
    let test = TestStore::new(backend);
    test.pass(SECOND);
    put(&test, "nightly", every(60 * MINUTE));
    let job_id = JobId::from_u128(7);
    let trigger = || Action::Trigger { job_id, random: 1 };
    assert_eq!(act(&test, "nightly", trigger()).unwrap().made, [job_id]);
    assert_eq!(act(&test, "nightly", trigger()).unwrap().known, [job_id]);
    assert_eq!(test.job(job_id).spec.scheduled_at, None);
    assert_eq!(read(&test, "nightly").last_job, Some(job_id));
    assert_eq!(read(&test, "nightly").last_slot, None);
    is_sound(&test);
}

fn a_schedule_of_another_tenant_is_not_found(backend: Backend) {
    let test = TestStore::new(backend);
    put(&test, "nightly", every(MINUTE));
    let other = windlass_kernel::TenantId::new("other").unwrap();
    let op = ScheduleOp {
        tenant: other.clone(),
        name: name("nightly"),
        action: Action::Delete,
        by: person("eve"),
    };
    let refused = test.write(Write::Schedule(op)).map(scheduled);
    assert_eq!(refused, Err(Refusal::NotFound { what: "schedule" }));
    assert_eq!(test.wait(test.store.schedule(&other, &name("nightly"))), None);
    assert!(test.wait(test.store.schedules(&other, None, 10)).is_empty());
    let about = About::Schedule(name("nightly"));
    assert!(test.wait(test.store.notes(&other, &about, u64::MAX, 10)).is_empty());
    read(&test, "nightly");
}

fn a_refused_schedule_changes_nothing(backend: Backend) {
    let test = TestStore::new(backend);
    let when = When::Cron { expression: "0 0 31 2 *".to_owned(), zone: "UTC".to_owned() };
    let odd = op("odd", Action::Put(Box::new(ScheduleSpec::new(when, plain()))));
    let fine = op("fine", Action::Put(Box::new(every(MINUTE))));
    let replies = test.commit(vec![odd, fine, write(enqueue(5, plain()))]);
    assert!(matches!(&replies[0], Err(Refusal::Invalid { field: "cron", .. })));
    assert!(replies[1].is_ok() && replies[2].is_ok());
    assert_eq!(test.home.count("schedules"), 1);
    assert!(words(&test, "odd").is_empty());
    is_sound(&test);
}

fn many_ops_on_one_schedule_in_one_commit_are_decided_in_order(backend: Backend) {
    let test = TestStore::new(backend);
    let put = |period| op("nightly", Action::Put(Box::new(every(period))));
    let fire = |version| op("nightly", Action::Fire { version });
    let replies = test.commit(vec![
        put(MINUTE),
        fire(1),
        fire(1),
        op("nightly", Action::Pause { reason: None }),
        put(2 * MINUTE),
        op("nightly", Action::Resume),
        op("gone", Action::Delete),
    ]);
    let codes: Vec<&str> =
        replies.iter().map(|reply| reply.as_ref().map_or_else(Refusal::code, |_| "")).collect();
    assert_eq!(codes, ["", "", "OUTDATED", "", "", "", "NOT_FOUND"]);
    let schedule = read(&test, "nightly");
    assert_eq!((schedule.version, schedule.pause), (5, None));
    assert_eq!(schedule.next_at, Some(test.now().plus(2 * MINUTE)));
    let deleted = test.commit(vec![op("nightly", Action::Delete), put(MINUTE)]);
    assert!(deleted.iter().all(Result::is_ok));
    assert_eq!(read(&test, "nightly").version, 1);
    let brief = test.commit(vec![
        op("brief", Action::Put(Box::new(every(MINUTE)))),
        op("brief", Action::Delete),
    ]);
    assert!(brief.iter().all(Result::is_ok));
    assert_eq!(test.home.count("schedules"), 1);
    is_sound(&test);
}

fn a_schedule_outlives_its_process(backend: Backend) {
    let test = TestStore::new(backend);
    put(&test, "nightly", rich());
    put(&test, "minutes", every(MINUTE));
    look(&test);
    let before = [read(&test, "nightly"), read(&test, "minutes")];
    let test = test.reopen();
    assert_eq!([read(&test, "nightly"), read(&test, "minutes")], before);
    test.pass(MINUTE);
    assert_eq!(look(&test).remove(0).unwrap().made.len(), 1);
    is_sound(&test);
}
