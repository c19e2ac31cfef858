//! Tokens: good on every node as soon as they are issued, and made-up ones cost others nothing.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;
use windlass::Engine;
use windlass_kernel::{
    By, Principal, TenantId, TokenId, TokenOp,
    token::{IssueToken, RevokeToken, Role},
};
use windlass_store::Write;

use crate::{
    client::{Answer, client, send},
    on_both_stores,
    server::{Server, Store, block_on},
};

on_both_stores!(made_up_tokens_are_looked_up_so_often_and_no_more);

async fn look(server: &Server, token: &str) -> Answer {
    let request = client().get(server.url("/api/v1/me")).bearer_auth(token);
    send(request).await.expect("it answers")
}

/// A token whose id and secret are made up.
fn made_up(number: u128) -> (TokenId, String) {
    let id = TokenId::from_u128(number);
    let digits = id.to_string();
    let digits = digits.strip_prefix("tok_").expect("an id has a prefix");
    (id, format!("windlass_{digits}_{}", "x".repeat(43)))
}

fn by() -> By {
    windlass_kernel::Actor::User(Principal::new("root").expect("it is a name")).into()
}

/// One node is this process, the other a server. It is asked for a token that nobody has, and right after that the token
/// is issued.
#[test]
fn a_token_is_good_on_another_node_as_soon_as_it_is_issued() {
    block_on(async {
        let store = Store::postgres();
        store.token("root", "admin", "*");
        let server = Server::start_guarded(&store);
        let engine = Engine::open(store.url()).await.expect("the store can be opened");
        for number in 1..=4 {
            let (id, token) = made_up(number);
            for _ in 0..3 {
                assert_eq!(look(&server, &token).await.status, StatusCode::UNAUTHORIZED);
            }
            let secret = token.rsplit('_').next().expect("it has a secret");
            let issue = IssueToken {
                id,
                digest: Sha256::digest(secret).into(),
                tenant: Some(TenantId::new("a").expect("it is a name")),
                principal: Principal::new("ann").expect("it is a name"),
                role: Role::Viewer,
                label: None,
                expires_at: None,
                by: by(),
            };
            engine.submit(Write::Token(TokenOp::Issue(issue))).await.expect("it is issued");
            assert_eq!(look(&server, &token).await.status, StatusCode::OK, "token {number}");
            // Another secret of a token that is remembered lets nobody in.
            let wrong = token.replace('x', "y");
            assert_eq!(look(&server, &wrong).await.status, StatusCode::UNAUTHORIZED);
            // What another node revoked is good for a second more, and no longer.
            let revoke = RevokeToken { id, within: None, reason: None, force: false, by: by() };
            engine.submit(Write::Token(TokenOp::Revoke(revoke))).await.expect("it is revoked");
            let revoked = Instant::now();
            while look(&server, &token).await.status == StatusCode::OK {
                assert!(revoked.elapsed() < Duration::from_secs(30), "token {number} stays good");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        engine.close().await;
    });
}

/// Each refusal of a made-up token is one look-up in the store, so counting refusals counts those.
async fn made_up_tokens_are_looked_up_so_often_and_no_more(store: Store) {
    const CALLERS: u128 = 8;
    const CALLS: u128 = 400;
    let good = store.token("ann", "viewer", "a");
    let server = Server::start_guarded(&store);
    assert_eq!(look(&server, &good).await.status, StatusCode::OK);
    let began = Instant::now();
    let mut floods = JoinSet::new();
    for caller in 0..CALLERS {
        floods.spawn(flood(server.url("/api/v1/me"), caller * CALLS..(caller + 1) * CALLS));
    }
    // Somebody with a good token is served all the while, whatever others bring.
    let (mut refused, mut sent_away) = (0, 0);
    while !floods.is_empty() {
        let answer = look(&server, &good).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        while let Some(counts) = floods.try_join_next() {
            let counts = counts.expect("it ends");
            (refused, sent_away) = (refused + counts.0, sent_away + counts.1);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let most = 1_000.0 * (1.0 + began.elapsed().as_secs_f64());
    assert!(f64::from(refused) <= most, "{refused} were looked up, {most} may be");
    assert_eq!(u128::from(refused + sent_away), CALLERS * CALLS);
}

/// Calls with made-up tokens: how many were refused, and how many were told to come back.
async fn flood(url: String, numbers: Range<u128>) -> (u32, u32) {
    let (client, mut refused, mut sent_away) = (client(), 0, 0);
    for number in numbers {
        let (_, token) = made_up(1_000_000 + number);
        let answer = send(client.get(&url).bearer_auth(token)).await.expect("it answers");
        match answer.status {
            StatusCode::UNAUTHORIZED => refused += 1,
            StatusCode::SERVICE_UNAVAILABLE => {
                assert_eq!(answer.at("/code"), "OVERLOADED");
                assert_eq!(answer.headers["retry-after"], "1");
                sent_away += 1;
            }
            other => panic!("{other}: {}", answer.text),
        }
    }
    (refused, sent_away)
}
