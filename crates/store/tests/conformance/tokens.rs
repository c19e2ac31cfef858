//! Tokens: issued once, revoked once, and told of without their digests.

use std::time::Duration;

use windlass_kernel::{
    About, Actor, Principal, Refusal, Role, TenantId, Token, TokenId, TokenLabel, TokenOp,
    token::{IssueToken, RevokeToken},
};
use windlass_store::{Reply, Write};

use crate::common::*;

for_each_backend!(
    a_token_is_kept_as_it_was_issued,
    the_same_issue_again_is_answered_and_another_is_refused,
    a_token_is_revoked_once_and_told,
    each_tenant_sees_and_revokes_its_own,
    one_admin_stays,
    in_one_commit_ops_on_a_token_see_each_other,
    of_two_who_issue_one_id_at_once_one_is_refused,
);
for_each_lasting_backend!(a_token_is_there_after_a_restart);

fn issue(number: u128, tenant: Option<&str>) -> IssueToken {
    IssueToken {
        id: TokenId::from_u128(number),
        digest: [u8::try_from(number).unwrap(); 32],
        tenant: tenant.map(|name| TenantId::new(name).unwrap()),
        principal: Principal::new("bob").unwrap(),
        role: Role::Operator,
        label: Some(TokenLabel::new("bob's laptop").unwrap()),
        expires_at: None,
        by: person("root"),
    }
}

fn revoke(number: u128) -> RevokeToken {
    let (id, reason) = (TokenId::from_u128(number), Some("lost".to_owned()));
    RevokeToken { id, within: None, reason, force: false, by: person("ann") }
}

fn write_of(op: TokenOp) -> Write {
    Write::Token(op)
}

fn done(test: &TestStore, op: TokenOp) -> Result<Token, Refusal> {
    test.write(write_of(op)).map(|reply| token_of(&reply))
}

fn token_of(reply: &Reply) -> Token {
    match reply {
        Reply::Token(token) => token.clone(),
        other => panic!("an op on a token was answered with {other:?}"),
    }
}

fn find(test: &TestStore, number: u128) -> Option<Token> {
    test.wait(test.store.token(TokenId::from_u128(number)))
}

fn check(test: &TestStore) {
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn a_token_is_kept_as_it_was_issued(backend: Backend) {
    let test = TestStore::new(backend);
    let roles = Role::ALL.iter().zip(1..);
    for (role, number) in roles {
        let expires_at = Some(test.now().plus(Duration::from_secs(60))).filter(|_| number % 2 == 0);
        let label = issue(1, None).label.filter(|_| number % 2 == 1);
        let tenant = issue(number, Some("acme")).tenant.filter(|_| number < 3);
        let op = IssueToken { role: *role, expires_at, label, tenant, ..issue(number, None) };
        let token = done(&test, TokenOp::Issue(op.clone())).unwrap();
        assert_eq!((token.id, token.digest, token.role), (op.id, op.digest, *role));
        assert_eq!((token.created_at, &token.created_by), (test.now(), &op.by.actor));
        assert_eq!((&token.tenant, token.expires_at), (&op.tenant, op.expires_at));
        assert_eq!(find(&test, number), Some(token));
    }
    assert_eq!(find(&test, 9), None);
    let late = IssueToken { expires_at: Some(test.now()), ..issue(9, None) };
    assert_eq!(done(&test, TokenOp::Issue(late)).unwrap_err().code(), "INVALID_INPUT");
    assert_eq!(find(&test, 9), None);
    check(&test);
}

fn the_same_issue_again_is_answered_and_another_is_refused(backend: Backend) {
    let test = TestStore::new(backend);
    let token = done(&test, TokenOp::Issue(issue(1, Some("acme")))).unwrap();
    test.pass(Duration::from_secs(5));
    assert_eq!(done(&test, TokenOp::Issue(issue(1, Some("acme")))), Ok(token.clone()));
    let other = IssueToken { role: Role::Admin, ..issue(1, Some("acme")) };
    assert!(done(&test, TokenOp::Issue(other)).is_err());
    assert_eq!(find(&test, 1), Some(token));
    assert_eq!(test.wait(test.store.feed(&Scope::Every, 0, 100)).events.len(), 1, "told once");
}

fn a_token_is_revoked_once_and_told(backend: Backend) {
    let test = TestStore::new(backend);
    done(&test, TokenOp::Issue(issue(1, Some("acme")))).unwrap();
    test.pass(Duration::from_secs(5));
    let revoked = done(&test, TokenOp::Revoke(revoke(1))).unwrap();
    let ann = Actor::User(Principal::new("ann").unwrap());
    assert_eq!((revoked.revoked_at, &revoked.revoked_by), (Some(test.now()), &Some(ann)));
    test.pass(Duration::from_secs(5));
    let again = RevokeToken { by: person("eve"), ..revoke(1) };
    assert_eq!(done(&test, TokenOp::Revoke(again)), Ok(revoked.clone()));
    assert_eq!(find(&test, 1), Some(revoked));
    let missing = done(&test, TokenOp::Revoke(revoke(2)));
    assert_eq!(missing, Err(Refusal::NotFound { what: "token" }));
    let about = About::Token(TokenId::from_u128(1));
    let notes = test.wait(test.store.notes(&tenant(), &about, u64::MAX, 10));
    let lines: Vec<&str> = notes.iter().map(|note| note.line.as_str()).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains(r#""what":"revoked","actor":"user:ann""#), "{}", lines[0]);
    assert!(lines[0].contains(r#""reason":"lost""#), "{}", lines[0]);
    assert!(lines[1].contains(r#""what":"issued","actor":"user:root""#), "{}", lines[1]);
    assert!(lines.iter().all(|line| !line.contains("digest")));
    check(&test);
}

/// Of two admins who revoke each other at once, one stays.
fn one_admin_stays(backend: Backend) {
    let test = TestStore::new(backend);
    let admin =
        |number: u128, of: Option<&str>| IssueToken { role: Role::Admin, ..issue(number, of) };
    for (number, of) in [(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, None)] {
        done(&test, TokenOp::Issue(admin(number, of))).unwrap();
    }
    let last = |refused: Result<Token, Refusal>| refused.unwrap_err().code();
    // The one for all tenants is the last of its sort; it can take the place of any other.
    assert_eq!(last(done(&test, TokenOp::Revoke(revoke(4)))), "LAST_ADMIN");
    done(&test, TokenOp::Revoke(revoke(3))).unwrap();
    done(&test, TokenOp::Revoke(RevokeToken { force: true, ..revoke(4) })).unwrap();
    let both = [1, 2].map(|number| write_of(TokenOp::Revoke(revoke(number)))).to_vec();
    let told = crate::races::at_once(&test, both);
    let refused: Vec<_> =
        told.iter().filter_map(|it| it.as_ref().err()).map(Refusal::code).collect();
    assert_eq!(refused, ["LAST_ADMIN"]);
    let live = test.wait(test.store.tokens(&Scope::Every));
    assert_eq!(live.iter().filter(|token| token.is_live(test.now())).count(), 1);
    check(&test);
}

fn each_tenant_sees_and_revokes_its_own(backend: Backend) {
    let test = TestStore::new(backend);
    for (number, of) in [(1, Some("a")), (2, Some("b")), (3, None)] {
        done(&test, TokenOp::Issue(issue(number, of))).unwrap();
    }
    let seen = |scope: Scope| {
        let tokens = test.wait(test.store.tokens(&scope));
        tokens.iter().map(|token| token.id.as_u128()).collect::<Vec<_>>()
    };
    let of = |name: &str| TenantId::new(name).unwrap();
    assert_eq!(seen(of("a").into()), [1]);
    assert_eq!(seen(of("b").into()), [2]);
    assert_eq!(seen(Scope::Every), [3, 2, 1]);
    for number in [2, 3] {
        let within = RevokeToken { within: Some(of("a")), ..revoke(number) };
        let refused = done(&test, TokenOp::Revoke(within));
        assert_eq!(refused, Err(Refusal::NotFound { what: "token" }));
    }
    done(&test, TokenOp::Revoke(RevokeToken { within: Some(of("a")), ..revoke(1) })).unwrap();
    let noted = |of: TenantId, number: u128| {
        let about = About::Token(TokenId::from_u128(number));
        test.wait(test.store.notes(&of, &about, u64::MAX, 10)).len()
    };
    assert_eq!((noted(of("a"), 1), noted(of("b"), 2), noted(of("a"), 2)), (2, 1, 0));
    assert_eq!(
        noted(TenantId::of_store(), 3),
        1,
        "what opens every tenant is told to the store's own"
    );
}

fn in_one_commit_ops_on_a_token_see_each_other(backend: Backend) {
    let test = TestStore::new(backend);
    let ops = [
        TokenOp::Revoke(revoke(1)),
        TokenOp::Issue(issue(1, Some("acme"))),
        TokenOp::Revoke(revoke(1)),
        TokenOp::Issue(issue(2, None)),
    ];
    let replies = test.commit(ops.into_iter().map(write_of).collect());
    assert_eq!(replies[0].as_ref().unwrap_err(), &Refusal::NotFound { what: "token" });
    assert_eq!(token_of(replies[2].as_ref().unwrap()).revoked_at, Some(test.now()));
    assert_eq!(find(&test, 1).unwrap().revoked_at, Some(test.now()));
    assert_eq!(find(&test, 2).unwrap().revoked_at, None);
    check(&test);
}

fn of_two_who_issue_one_id_at_once_one_is_refused(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=10 {
        let race = |digest: u8| {
            let op = IssueToken { digest: [digest; 32], ..issue(number, Some("acme")) };
            let store = test.store.clone();
            test.runtime.spawn(async move {
                store.commit(vec![write_of(TokenOp::Issue(op))].into()).await.unwrap().remove(0)
            })
        };
        let racers = [race(100), race(200)];
        let won = racers.map(|racer| test.runtime.block_on(racer).unwrap());
        let won: Vec<Token> = won.into_iter().flatten().map(|reply| token_of(&reply)).collect();
        assert_eq!(won.len(), 1, "of two digests one counts");
        assert_eq!(find(&test, number), Some(won[0].clone()));
    }
    check(&test);
}

fn a_token_is_there_after_a_restart(backend: Backend) {
    let test = TestStore::new(backend);
    let token = done(&test, TokenOp::Issue(issue(1, None))).unwrap();
    let test = test.reopen();
    assert_eq!(find(&test, 1), Some(token));
}
