//! Acts: what a person did is found again, newest first; what workers and time do is not among it.

use std::time::Duration;

use windlass_kernel::{
    DlqId, JobId, Op, Retention, RuleName, Says, ScheduleName, ScheduleOp, TenantId, Timestamp,
    TokenId, TokenOp,
    ops::{
        ApproveDiscard, Bury, Cancel, Discard, Enqueue, NewJob, Promote, PromoteWhen, Requeue,
        Rerun, RetryNow,
    },
    rule::{DropRule, PutRule, RuleOp, Scope as Covers},
    schedule::{Action, CatchUp, Overlap, ScheduleSpec, When},
    token::{IssueToken, RevokeToken},
};
use windlass_store::{Write, read::FeedEvent};

use crate::common::*;

for_each_backend!(
    everything_that_a_person_does_is_found_newest_first,
    acts_are_read_page_by_page_and_by_tenant,
    what_workers_and_time_do_costs_no_row,
    acts_go_with_what_the_log_says_of_them,
);

fn acts(test: &TestStore, scope: &Scope) -> Vec<FeedEvent> {
    test.wait(test.store.acts(scope, u64::MAX, 100))
}

/// What an act is called: the cause of its event, or what its note is about and says.
fn word(act: &FeedEvent) -> String {
    if let Some(event) = act.event() {
        return event.cause.as_str().to_owned();
    }
    let note: serde_json::Value = serde_json::from_str(&act.line).unwrap();
    format!("{} {}", note["about"].as_str().unwrap(), note["what"].as_str().unwrap())
}

fn newest(test: &TestStore) -> String {
    acts(test, &Scope::Every).first().map(word).unwrap_or_default()
}

fn id(number: u128) -> JobId {
    JobId::from_u128(number)
}

/// A job of this number that has failed for good.
fn failed(test: &TestStore, number: u128) -> DlqId {
    test.enqueue(number, plain());
    let granted = test.claim("w1", number, 1);
    assert_eq!(granted[0].job.id, id(number));
    test.op(settle(id(number), granted[0].job.epoch, failed_for_good())).unwrap();
    DlqId::of_job(id(number))
}

fn cancel(number: u128) -> Cancel {
    let (grace, reason) = (Cancel::GRACE_DEFAULT, Some("not wanted".to_owned()));
    Cancel { job_id: id(number), force: false, grace, reason, by: person("ann") }
}

fn later(test: &TestStore) -> NewJob {
    NewJob { scheduled_at: Some(test.now().plus(Duration::from_secs(3600))), ..plain() }
}

fn schedule(action: Action) -> Write {
    let name = ScheduleName::new("nightly").unwrap();
    Write::Schedule(ScheduleOp { tenant: tenant(), name, action, by: person("ann") })
}

fn every_hour() -> ScheduleSpec {
    ScheduleSpec {
        when: When::Every {
            period: Duration::from_secs(3600),
            anchor: Timestamp::from_micros(START),
        },
        jitter: Duration::ZERO,
        catch_up: CatchUp::One,
        overlap: Overlap::Allow,
        start_at: None,
        end_at: None,
        job: plain(),
    }
}

fn put_rule() -> PutRule {
    PutRule {
        name: RuleName::new("stop").unwrap(),
        scope: Covers { tenant: Some(tenant()), ..Covers::default() },
        says: Says::Drain,
        within: None,
        by: person("ann"),
        reason: None,
    }
}

fn issue() -> IssueToken {
    IssueToken {
        id: TokenId::from_u128(1),
        digest: [7; 32],
        tenant: Some(tenant()),
        principal: "bob".parse().unwrap(),
        role: windlass_kernel::Role::Viewer,
        label: None,
        expires_at: None,
        by: person("ann"),
    }
}

fn everything_that_a_person_does_is_found_newest_first(backend: Backend) {
    let test = TestStore::new(backend);
    let (mut done, mut count) = (Vec::new(), 0);
    let mut does = |write: Write, expected: &str| {
        test.write(write).unwrap();
        count += 1;
        assert_eq!(newest(&test), expected);
        assert_eq!(acts(&test, &Scope::Every).len(), count, "one act, one row: {expected}");
        done.push(expected.to_owned());
    };
    let letters = [1, 2].map(|number| failed(&test, number));
    test.enqueue(3, plain());
    does(write(cancel(3)), "cancel_command");
    test.enqueue(4, plain());
    test.claim("w1", 4, 1);
    does(write(cancel(4)), "cancel_requested");
    test.enqueue(5, NewJob { max_retries: 3, ..plain() });
    let granted = test.claim("w2", 5, 1);
    test.op(settle(id(5), granted[0].job.epoch, failed_for_now())).unwrap();
    does(write(RetryNow { job_id: id(5), by: person("ann") }), "retry_now");
    test.enqueue(6, later(&test));
    let when = PromoteWhen::Now { by: person("ann") };
    does(write(Promote { job_id: id(6), when }), "run_now");
    let reason = "hopeless".to_owned();
    does(write(Bury { job_id: id(4), reason, by: person("ann") }), "operator_gave_up");
    let rerun = Rerun { job_id: id(3), new_job_id: id(7), by: person("ann") };
    does(write(rerun), "enqueued");
    let requeue =
        Requeue { dlq_id: letters[0], new_job_id: id(8), payload: None, by: person("ann") };
    does(write(requeue), "letter requeued");
    let reason = "spam".to_owned();
    let discard = Discard { dlq_id: letters[1], reason, by: person("ann") };
    does(write(discard), "letter discard_requested");
    let approve = ApproveDiscard { dlq_id: letters[1], by: person("bob") };
    does(write(approve), "letter discarded");
    does(schedule(Action::Put(Box::new(every_hour()))), "schedule created");
    does(schedule(Action::Pause { reason: None }), "schedule paused");
    does(schedule(Action::Trigger { job_id: id(9), random: 9 }), "schedule fired");
    does(schedule(Action::Resume), "schedule resumed");
    does(schedule(Action::Delete), "schedule deleted");
    does(Write::Rule(RuleOp::Put(put_rule())), "rule set");
    let name = RuleName::new("stop").unwrap();
    let drop = DropRule { name, within: None, by: person("ann"), reason: None };
    does(Write::Rule(RuleOp::Drop(drop)), "rule dropped");
    does(Write::Token(TokenOp::Issue(issue())), "token issued");
    let revoke = RevokeToken {
        id: TokenId::from_u128(1),
        within: None,
        reason: None,
        force: true,
        by: person("bob"),
    };
    does(Write::Token(TokenOp::Revoke(revoke)), "token revoked");
    let found = acts(&test, &Scope::Every);
    assert!(found.is_sorted_by(|newer, older| newer.number > older.number));
    done.reverse();
    assert_eq!(found.iter().map(word).collect::<Vec<_>>(), done);
    let told = |word_of: &str| found.iter().find(|act| word(act) == word_of).unwrap();
    let discarded = &told("letter discarded").line;
    for word in [r#""actor":"user:bob""#, r#""reason":"spam""#, &letters[1].to_string()] {
        assert!(discarded.contains(word), "{discarded} does not tell {word}");
    }
    let requeued = &told("letter requeued").line;
    assert!(requeued.contains(&id(8).to_string()), "{requeued}");
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn acts_are_read_page_by_page_and_by_tenant(backend: Backend) {
    let test = TestStore::new(backend);
    let of = |name: &str| TenantId::new(name).unwrap();
    for number in 1..=10 {
        let tenant = if number % 3 == 0 { of("b") } else { of("a") };
        let make = Enqueue { tenant: tenant.clone(), ..enqueue(number, plain()) };
        test.write(Write::Op { tenant: tenant.clone(), op: make.into() }).unwrap();
        test.write(Write::Op { tenant, op: Op::Cancel(cancel(number)) }).unwrap();
    }
    let jobs = |scope: &Scope, limit| {
        let (mut found, mut before) = (Vec::new(), u64::MAX);
        loop {
            let page = test.wait(test.store.acts(scope, before, limit));
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { return found };
            before = last.number;
            found.extend(page.iter().map(|act| act.event().unwrap().job_id.as_u128()));
        }
    };
    for limit in [1, 3, 100] {
        assert_eq!(jobs(&Scope::Every, limit), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(jobs(&of("a").into(), limit), [10, 8, 7, 5, 4, 2, 1]);
        assert_eq!(jobs(&of("b").into(), limit), [9, 6, 3]);
        assert!(jobs(&of("c").into(), limit).is_empty());
    }
}

fn what_workers_and_time_do_costs_no_row(backend: Backend) {
    let test = TestStore::new(backend);
    test.write(schedule(Action::Put(Box::new(every_hour())))).unwrap();
    for number in 1..=5 {
        failed(&test, number);
    }
    test.enqueue(6, plain());
    let granted = test.claim("w1", 6, 1);
    test.op(settle(id(6), granted[0].job.epoch, succeeded())).unwrap();
    assert_eq!(test.home.count("acts"), 1, "the schedule alone was put by a person");
}

fn acts_go_with_what_the_log_says_of_them(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=4 {
        test.enqueue(number, plain());
        test.op(cancel(number)).unwrap();
    }
    let letter = failed(&test, 5);
    test.op(Discard { dlq_id: letter, reason: "old".to_owned(), by: person("ann") }).unwrap();
    test.op(ApproveDiscard { dlq_id: letter, by: person("bob") }).unwrap();
    test.pass(Duration::from_secs(365 * 24 * 60 * 60));
    test.enqueue(10, plain());
    test.op(cancel(10)).unwrap();
    assert_eq!(test.home.count("acts"), 7);
    while test.wait(test.store.prune(Retention::default(), 100)).more {}
    assert_eq!(test.home.count("acts"), 1, "the last one is young");
    assert_eq!(acts(&test, &Scope::Every).len(), 1);
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}
