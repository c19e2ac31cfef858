//! Commits that overlap: one is decided while another is written, and it must not show.
//!
//! While somebody else holds the file, nothing is written, and what comes in is decided on top of what is not
//! on the disk yet. Whatever a plain map says of the same ops, one after the other, the store has to say.
//! In memory whoever decides waits as well, and then meets whoever writes.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::{
    Backend,
    rich::{Overlap, Rich},
    *,
};
use windlass_kernel::{
    Epoch, JobId, Payload, Principal, Refusal, Role, ScheduleName, ScheduleOp, Timestamp, TokenId,
    TokenOp,
    ops::{Cancel, NewJob},
    schedule::{Action, ScheduleSpec, When},
    token::{IssueToken, RevokeToken},
};
use windlass_store::{Reply, Write};
use windlass_testkit::random::{self, Chance};

const SEQUENCES: u64 = 12;

/// Lives through some sequences of commits that overlap.
fn live_through(mut rich: Rich) -> Rich {
    let seed = u64::from_be_bytes(random::seed()[..8].try_into().unwrap());
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    for family in 1..=SEQUENCES {
        rich.begin(family);
        rich.live(chance.draw(), 150, 6);
        rich.compare();
    }
    rich.compare_totals();
    rich
}

#[test]
fn commits_that_overlap_are_as_if_they_came_one_after_the_other() {
    overlap_in(Backend::Sqlite);
}

#[test]
fn commits_that_overlap_in_memory_are_as_if_they_came_one_after_the_other() {
    overlap_in(Backend::Memory);
}

fn overlap_in(backend: Backend) {
    let mut rich = Rich::new_in(backend.new_quick_home());
    rich.overlap = Some(Overlap { fails_first: None, failures: 0 });
    let rich = live_through(rich);
    let report = rich.home.check();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn claims_that_overlap_never_grant_a_job_twice() {
    let mut rich = Rich::new_in(Backend::Sqlite.new_quick_home());
    let now = rich.world.now;
    rich.commit((1..=20).map(|number| write(enqueue(number, plain()))).collect(), now);
    rich.overlap = Some(Overlap { fails_first: None, failures: 0 });
    let claim = |worker, claim| claim_many(worker, claim, 5);
    let writes = vec![
        claim("one", 1),
        claim("two", 2),
        claim("one", 1),
        Write::RenewSession { worker: worker("one"), lease: LEASE },
        claim("one", 3),
    ];
    let mut replies = rich.commit(writes, now).into_iter().map(Result::unwrap);
    let mut ids = || -> BTreeSet<JobId> {
        match replies.next().unwrap() {
            Reply::Granted { jobs, .. } => jobs.iter().map(|it| it.job.id).collect(),
            Reply::Renewed { held, .. } => held.into_iter().collect(),
            other => panic!("{other:?}"),
        }
    };
    let (one, two, again, held, more) = (ids(), ids(), ids(), ids(), ids());
    assert_eq!([one.len(), two.len(), more.len()], [5; 3]);
    assert!(one.is_disjoint(&two) && one.is_disjoint(&more) && two.is_disjoint(&more));
    assert_eq!((&again, &held), (&one, &one));
}

/// What was granted is not on the disk yet when it ends, and when the same claim comes again.
#[test]
fn a_claim_that_overlaps_with_itself_never_takes_other_jobs() {
    for backend in [Backend::Sqlite, Backend::Memory] {
        let mut rich = Rich::new_in(backend.new_quick_home());
        let now = rich.world.now;
        rich.commit((1..=20).map(|number| write(enqueue(number, plain()))).collect(), now);
        rich.overlap = Some(Overlap { fails_first: None, failures: 0 });
        let done = |number| write(settle(JobId::from_u128(number), Epoch::new(1), succeeded()));
        let again = || claim_many("w1", 1, 2);
        let writes =
            vec![again(), again(), done(1), again(), done(2), again(), claim_many("w1", 2, 2)];
        let replies: Vec<_> = rich.commit(writes, now).into_iter().map(Result::unwrap).collect();
        let got = [0, 1, 3, 5, 6].map(|place| granted(&replies[place]).len());
        assert_eq!(got, [2, 2, 1, 0, 2]);
    }
}

/// A claim whose commit failed was granted nothing.
#[test]
fn a_claim_that_failed_with_its_commit_may_take_jobs_later() {
    for backend in [Backend::Sqlite, Backend::Memory] {
        let test = TestStore::open(backend.new_quick_home()).unwrap();
        test.commit((1..=5).map(|number| write(enqueue(number, plain()))).collect());
        test.home.user().sql(REFUSE);
        let both = vec![claim_many("w1", 1, 2), poison(1)];
        let failed = test.runtime.block_on(test.store.commit(both.into()));
        assert_eq!(failed.unwrap_err().code(), "STORE_CONTRADICTION");
        assert_eq!(test.claim("w1", 1, 2).len(), 2);
    }
}

/// The database refuses it, whatever the rules say.
fn poison(number: u64) -> Write {
    let payload = Payload::parse("\"poison\"", 100).unwrap();
    write(enqueue((1 << 120) + u128::from(number), NewJob { payload, ..plain() }))
}

const REFUSE: &str = "
    CREATE TRIGGER no_poison BEFORE INSERT ON jobs WHEN new.payload = '\"poison\"'
    BEGIN SELECT RAISE(ABORT, 'no poison here'); END";

#[test]
fn what_was_decided_on_top_of_a_commit_that_failed_is_decided_anew() {
    fail_in(Backend::Sqlite);
}

#[test]
fn what_was_decided_in_memory_on_top_of_a_commit_that_failed_is_decided_anew() {
    fail_in(Backend::Memory);
}

fn fail_in(backend: Backend) {
    let mut rich = Rich::new_in(backend.new_quick_home());
    rich.home.user().sql(REFUSE);
    rich.overlap = Some(Overlap { fails_first: Some(poison), failures: 0 });
    let rich = live_through(rich);
    assert!(rich.overlap.unwrap().failures > 100);
    rich.home.user().sql("DROP TRIGGER no_poison");
    let report = rich.home.check();
    assert!(report.is_clean(), "{report}");
}

/// Only what is on the disk is told.
#[test]
fn a_commit_that_failed_wakes_nobody() {
    let test = TestStore::open(Backend::Sqlite.new_quick_home()).unwrap();
    test.home.user().sql(REFUSE);
    let (ready, sooner) = (test.store.ready(), test.store.sooner());
    let far = Some(test.now().plus(std::time::Duration::from_secs(60)));
    let later = write(enqueue(1, NewJob { scheduled_at: far, ..plain() }));
    let failed = test.runtime.block_on(test.store.commit(vec![poison(1), later].into()));
    assert_eq!(failed.unwrap_err().code(), "STORE_CONTRADICTION");
    assert!(!ready.is_rung() && !sooner.is_rung());
    let replies = test.commit(vec![write(enqueue(2, plain()))]);
    assert!(replies[0].is_ok() && ready.is_rung());
}

fn overlapping(backend: Backend, writes: Vec<Write>) -> Vec<Result<Reply, Refusal>> {
    let mut rich = Rich::new_in(backend.new_quick_home());
    let now = rich.world.now;
    rich.overlap = Some(Overlap { fails_first: None, failures: 0 });
    let replies = rich.commit(writes, now);
    let report = rich.home.check();
    assert!(report.is_clean(), "{report}");
    replies
}

/// What is asked for while the schedule is not on the disk yet is decided by the schedule as it will be.
#[test]
fn commits_that_overlap_see_each_others_schedules() {
    let op = |action: Action| {
        let name = ScheduleName::new("nightly").unwrap();
        Write::Schedule(ScheduleOp { tenant: tenant(), name, action, by: person("ann") })
    };
    let when = When::Every { period: Duration::from_secs(60), anchor: Timestamp::from_micros(0) };
    let put = || op(Action::Put(Box::new(ScheduleSpec::new(when.clone(), plain()))));
    for backend in [Backend::Sqlite, Backend::Memory] {
        let delete = || op(Action::Delete);
        let replies = overlapping(backend, vec![delete(), put(), delete(), delete(), put()]);
        let codes: Vec<&str> = replies.iter().map(code).collect();
        assert_eq!(codes, ["NOT_FOUND", "", "", "NOT_FOUND", ""], "{backend:?}");
    }
}

/// The last admin stays, also if the token of another is revoked and not on the disk yet.
#[test]
fn commits_that_overlap_see_each_others_tokens() {
    let issue = |number: u8| {
        Write::Token(TokenOp::Issue(IssueToken {
            id: TokenId::from_u128(u128::from(number)),
            digest: [number; 32],
            tenant: None,
            principal: Principal::new("bob").unwrap(),
            role: Role::Admin,
            label: None,
            expires_at: None,
            by: person("root"),
        }))
    };
    let revoke = |number: u8| {
        let id = TokenId::from_u128(u128::from(number));
        let op = RevokeToken { id, within: None, reason: None, force: false, by: person("ann") };
        Write::Token(TokenOp::Revoke(op))
    };
    for backend in [Backend::Sqlite, Backend::Memory] {
        let writes = vec![revoke(1), issue(1), revoke(1), issue(2), revoke(1), revoke(2)];
        let replies = overlapping(backend, writes);
        let refused: Vec<bool> = replies.iter().map(Result::is_err).collect();
        assert_eq!(refused, [true, false, true, false, false, true], "{backend:?}: {replies:?}");
    }
}

/// A unique key is taken by a job that is not on the disk yet, and free when that job has ended.
#[test]
fn commits_that_overlap_see_each_others_unique_keys() {
    let unique = |number: u128| {
        let unique_key = Some("one".parse().unwrap());
        write(enqueue(number, NewJob { unique_key, ..plain() }))
    };
    let cancel = |number: u128| {
        let (force, grace) = (true, Duration::ZERO);
        let job_id = JobId::from_u128(number);
        write(Cancel { job_id, force, grace, reason: None, by: person("ann") })
    };
    for backend in [Backend::Sqlite, Backend::Memory] {
        let writes = vec![unique(1), unique(2), cancel(1), unique(3), unique(4)];
        let replies = overlapping(backend, writes);
        let ids = replies.iter().map(|reply| match reply {
            Ok(Reply::Answer(answer, _)) => answer.job_id.as_u128(),
            other => panic!("{other:?}"),
        });
        assert_eq!(ids.collect::<Vec<_>>(), [1, 1, 1, 3, 3], "{backend:?}");
    }
}

fn code(reply: &Result<Reply, Refusal>) -> &'static str {
    reply.as_ref().err().map_or("", Refusal::code)
}
