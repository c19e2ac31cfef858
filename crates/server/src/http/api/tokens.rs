//! Tokens: they are shown once, kept as digests, and revoked at once.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, StatusCode, header};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use windlass::Engine;
use windlass::wire::{List, Me, RevokeBody, TokenBody, TokenDocument};
use windlass_kernel::{
    Refusal, Token, TokenId, TokenOp,
    token::{IssueToken, RevokeToken},
};
use windlass_store::read::Scope;

use crate::http::core::{
    caller::Caller,
    problem::Problem,
    route::{Answer, Call},
};

/// How a token begins, so that those who look for leaked secrets know it.
const PREFIX: &str = "windlass_";
const SECRET_BYTES: usize = 32;

/// A token that is new: its id, its text, which is shown once, and the digest that is kept.
pub(crate) struct Secret {
    pub(crate) id: TokenId,
    pub(crate) text: String,
    pub(crate) digest: [u8; 32],
}

impl Secret {
    /// A fresh one.
    pub(crate) fn new(id: TokenId) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the operating system has randomness");
        let secret = URL_SAFE_NO_PAD.encode(bytes);
        let digits = id.to_string();
        let digits = digits.rsplit('_').next().unwrap_or_default();
        Self { id, text: format!("{PREFIX}{digits}_{secret}"), digest: digest(&secret) }
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// The id and the secret of a token's text.
fn parse(text: &str) -> Option<(TokenId, &str)> {
    let (digits, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    Some((format!("tok_{digits}").parse().ok()?, secret))
}

/// Tokens that were looked up lately.
///
/// Always true here: that there is no such token is not remembered, for another node may have issued it a moment ago.
/// What is remembered of one never changes but for its end: its digest, and that it is revoked or expired. Anybody can make
/// up tokens, so the store is asked for so many a second and no more.
#[derive(Debug, Default)]
pub(crate) struct Known {
    tokens: Mutex<HashMap<TokenId, (Token, Instant)>>,
    look_ups: Mutex<LookUps>,
}

impl Known {
    /// So long another node may not have heard that a token is revoked. This one knows at once.
    const FRESH: Duration = Duration::from_secs(1);
    /// The most tokens that are remembered.
    const KNOWN_MAX: usize = 10_000;

    /// Who calls with this token.
    pub(crate) async fn caller(&self, engine: &Engine, text: &str) -> Result<Caller, Problem> {
        let (id, secret) = parse(text).unzip();
        let given = digest(secret.unwrap_or(text));
        let lets_in =
            |token: &Token| bool::from(given.ct_eq(&token.digest)) && token.is_live(engine.now());
        let token = match id {
            Some(id) => self.find(engine, id, lets_in).await?,
            None => None,
        };
        // Whether there is such a token or not, the same is computed and compared.
        let expected = token.as_ref().map_or([0; 32], |token| token.digest);
        let is_right = bool::from(given.ct_eq(&expected));
        let token = token.filter(|token| is_right && token.is_live(engine.now()));
        let refused = || Problem::unauthorized("the token is unknown, expired or revoked");
        let token = token.ok_or_else(refused)?;
        Ok(Caller {
            principal: token.principal,
            scope: token.tenant.map_or(Scope::Every, Scope::Of),
            role: token.role,
            has_token: true,
        })
    }

    /// The token of this id: as it is remembered from a moment ago, and else as the store has it.
    async fn find(
        &self,
        engine: &Engine,
        id: TokenId,
        lets_in: impl Fn(&Token) -> bool,
    ) -> Result<Option<Token>, Problem> {
        let now = Instant::now();
        let known = self.tokens().get(&id).cloned();
        match known {
            Some((token, at)) if now.duration_since(at) < Self::FRESH => return Ok(Some(token)),
            // It let somebody in a moment ago: it is looked up again, however many others are not.
            Some((token, _)) if lets_in(&token) => {}
            _ => self.look_ups.lock().expect("nobody panics with it").take(now)?,
        }
        let token = engine.own_store()?.token(id).await?;
        match &token {
            Some(token) => self.remember(id, token, now),
            None => self.forget(id),
        }
        Ok(token)
    }

    fn remember(&self, id: TokenId, token: &Token, now: Instant) {
        let mut tokens = self.tokens();
        if tokens.len() >= Self::KNOWN_MAX && !tokens.contains_key(&id) {
            tokens.retain(|_, (_, at)| now.duration_since(*at) < Self::FRESH);
        }
        if tokens.len() < Self::KNOWN_MAX || tokens.contains_key(&id) {
            tokens.insert(id, (token.clone(), now));
        }
    }

    fn forget(&self, id: TokenId) {
        self.tokens().remove(&id);
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, HashMap<TokenId, (Token, Instant)>> {
        self.tokens.lock().expect("nobody panics with it")
    }
}

/// How many tokens that are not known may be looked up, as of when.
#[derive(Debug)]
struct LookUps {
    left: f64,
    at: Instant,
}

impl Default for LookUps {
    fn default() -> Self {
        Self { left: Self::PER_SECOND, at: Instant::now() }
    }
}

impl LookUps {
    /// How many are looked up in a second, for all callers together.
    const PER_SECOND: f64 = 1_000.0;

    /// Takes one, or says when to come back.
    fn take(&mut self, now: Instant) -> Result<(), Problem> {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        let left = (self.left + since * Self::PER_SECOND).min(Self::PER_SECOND);
        *self = Self { left: if left < 1.0 { left } else { left - 1.0 }, at: now.max(self.at) };
        if left < 1.0 {
            let detail = "too many calls bring tokens that have to be looked up";
            return Err(Problem { retry_after: Some(1), ..Problem::overloaded(detail) });
        }
        Ok(())
    }
}

/// The token that a call brings, if it brings one.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let unknown = || Problem::unauthorized("Authorization must be Bearer TOKEN");
    let text = value.to_str().map_err(|_| unknown())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(unknown)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unknown());
    }
    Ok(Some(token.trim()))
}

/// `GET /api/v1/me`
pub(crate) async fn me(call: Call) -> Result<Answer, Problem> {
    Ok(Answer::ok(&Me {
        principal: call.caller.principal.to_string(),
        role: call.caller.role,
        tenant: call.scope().tenant().map_or_else(|| "*".to_owned(), ToString::to_string),
        now: call.engine().now(),
    }))
}

/// `POST /api/v1/tokens`
pub(crate) async fn issue(call: Call) -> Result<Answer, Problem> {
    let body: TokenBody = call.body()?;
    let tenant = match (call.scope().tenant(), body.tenant.as_deref()) {
        (Some(own), None) => Some(own.clone()),
        (None, None) => None,
        (None, Some(word)) => Token::tenant_of_word(word)?,
        (Some(own), Some(word)) if own.as_str() == word => Some(own.clone()),
        // An admin of one tenant gives away nothing of another.
        (Some(_), Some(_)) => return Err(Refusal::NotFound { what: "tenant" }.into()),
    };
    let secret = Secret::new(call.engine().ids().token_id());
    let op = IssueToken {
        id: secret.id,
        digest: secret.digest,
        tenant,
        principal: body.principal,
        role: body.role,
        label: body.label,
        expires_at: body.expires_at,
        by: call.by(),
    };
    let token = call.engine().submit(TokenOp::Issue(op)).await?;
    let document = TokenDocument { token: Some(secret.text), ..token.into() };
    Ok(Answer::json(StatusCode::CREATED, &document))
}

/// `GET /api/v1/tokens`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let tokens = call.engine().own_store()?.tokens(call.scope()).await?;
    let items = tokens.into_iter().map(TokenDocument::from).collect();
    Ok(Answer::ok(&List { items, next: None }))
}

/// `DELETE /api/v1/tokens/{id}`
pub(crate) async fn revoke(call: Call) -> Result<Answer, Problem> {
    let body: RevokeBody = call.body()?;
    let id = call.param("id").parse().map_err(|_| Problem::not_found("token"))?;
    let within = call.scope().tenant().cloned();
    let RevokeBody { reason, force } = body;
    let op = RevokeToken { id, within, reason, force, by: call.by() };
    let token = call.engine().submit(TokenOp::Revoke(op)).await?;
    call.app.tokens.forget(id);
    Ok(Answer::ok(&TokenDocument::from(token)))
}

#[cfg(test)]
mod tests {
    use windlass_kernel::{Actor, Principal, token::Role};

    use super::*;

    #[test]
    fn a_token_is_known_by_its_id_and_by_the_digest_of_its_secret() {
        let secret = Secret::new(TokenId::from_u128(7));
        let (id, text) = parse(&secret.text).unwrap();
        assert_eq!(id, secret.id);
        assert_eq!(digest(text), secret.digest);
        assert!(secret.text.len() > PREFIX.len() + 26 + 40, "{}", secret.text);
    }

    #[test]
    fn tokens_that_nobody_has_cost_a_bounded_number_of_look_ups() {
        let (mut look_ups, now) = (LookUps::default(), Instant::now());
        let mut taken = |at| (0..100_000).filter(|_| look_ups.take(at).is_ok()).count();
        assert_eq!(taken(now), 1_000);
        assert_eq!(taken(now), 0);
        assert_eq!(taken(now + Duration::from_millis(100)), 100);
        assert_eq!(taken(now + Duration::from_secs(3600)), 1_000, "it saves no more than a second");
        let refused = look_ups.take(now).unwrap_err();
        assert_eq!((refused.code, refused.retry_after), ("OVERLOADED", Some(1)));
    }

    /// Each refusal is one look-up: who is told to come back was not looked up.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_flood_of_made_up_tokens_is_looked_up_so_often_and_a_good_one_passes_through_it() {
        const CALLS: u128 = 20_000;
        let engine = Engine::open("sqlite::memory:").await.unwrap();
        let secret = Secret::new(engine.ids().token_id());
        let op = IssueToken {
            id: secret.id,
            digest: secret.digest,
            tenant: None,
            principal: Principal::new("ann").unwrap(),
            role: Role::Viewer,
            label: None,
            expires_at: None,
            by: Actor::Recovery.into(),
        };
        engine.submit(TokenOp::Issue(op)).await.unwrap();
        let known = Known::default();
        known.caller(&engine, &secret.text).await.unwrap();
        let (began, mut refused) = (Instant::now(), 0);
        for number in 1..=CALLS {
            let made_up = Secret::new(TokenId::from_u128(number)).text;
            match known.caller(&engine, &made_up).await.unwrap_err().code {
                "UNAUTHORIZED" => refused += 1,
                code => assert_eq!(code, "OVERLOADED"),
            }
            if number % 100 == 0 {
                known.caller(&engine, &secret.text).await.unwrap();
            }
        }
        let most = LookUps::PER_SECOND * (1.0 + began.elapsed().as_secs_f64());
        assert!(f64::from(refused) <= most, "{refused} were looked up, {most} may be");
        engine.close().await;
    }

    #[test]
    fn what_is_no_token_is_none() {
        for text in
            ["", "windlass_", "windlass_x_y", "tok_00000000000000000000000007", "windlass__"]
        {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
