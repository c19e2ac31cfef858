//! Tokens: who may come in from outside, as whom, and what for.
//!
//! A token is random, and whoever has it is let in. The secret itself is never here: a token is known by its id and by the
//! digest of its secret. It is bound to a principal, to one tenant or to all of them, and to a role. It never changes,
//! but for its end: it can be revoked, once.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    About, Actor, By, Note, Principal, Refusal, TenantId, Timestamp,
    ids::{TokenId, TokenLabel},
    machine::words,
    ops::check_reason,
    own_names::check_not_own,
    plain::check_plain,
};

/// A token as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its id, which is no secret.
    pub id: TokenId,
    /// The SHA-256 of its secret.
    pub digest: [u8; 32],
    /// Whose things it opens; those of every tenant, if none is named.
    pub tenant: Option<TenantId>,
    /// As whom it lets its bearer act.
    pub principal: Principal,
    /// What its bearer may do.
    pub role: Role,
    /// What people call it.
    pub label: Option<TokenLabel>,
    /// When it was issued.
    pub created_at: Timestamp,
    /// Who issued it.
    pub created_by: Actor,
    /// From when on it opens nothing.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Who revoked it.
    pub revoked_by: Option<Actor>,
}

words!(
    /// What the bearer of a token may do.
    Role {
        /// Looks.
        Viewer = "viewer",
        /// Claims jobs and reports on them.
        Worker = "worker",
        /// Acts on jobs, dead letters, rules and schedules.
        Operator = "operator",
        /// Does all that, and issues tokens.
        Admin = "admin",
    }
);

impl Token {
    /// How every tenant is written, where a tenant is. Nobody is called so.
    pub const EVERY_TENANT: &'static str = "*";

    /// Does it let its bearer in?
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }

    /// Does it let somebody in who may issue tokens there: for that tenant, or for all if none is named?
    fn is_admin_of(&self, tenant: &Option<TenantId>, now: Timestamp) -> bool {
        self.role == Role::Admin
            && self.is_live(now)
            && (self.tenant.is_none() || self.tenant == *tenant)
    }

    /// Its tenant, as rows and documents write it.
    pub fn tenant_word(&self) -> &str {
        self.tenant.as_ref().map_or(Self::EVERY_TENANT, TenantId::as_str)
    }

    /// The tenant of this word; none for all of them.
    pub fn tenant_of_word(word: &str) -> Result<Option<TenantId>, Refusal> {
        if word == Self::EVERY_TENANT { Ok(None) } else { TenantId::new(word).map(Some) }
    }
}

/// Something that is to happen to a token. Its identity is the id of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenOp {
    /// It is issued.
    Issue(IssueToken),
    /// It is revoked.
    Revoke(RevokeToken),
}

/// Issues a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueToken {
    /// Its id, made before the first try.
    pub id: TokenId,
    /// The SHA-256 of its secret.
    pub digest: [u8; 32],
    /// Whose things it opens; those of every tenant, if none is named.
    pub tenant: Option<TenantId>,
    /// As whom it lets its bearer act.
    pub principal: Principal,
    /// What its bearer may do.
    pub role: Role,
    /// What people call it.
    pub label: Option<TokenLabel>,
    /// From when on it opens nothing.
    pub expires_at: Option<Timestamp>,
    /// Who issues it.
    pub by: By,
}

/// Revokes a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeToken {
    /// Which one.
    pub id: TokenId,
    /// Whose tokens whoever asks may revoke: another's is not found. Those of all, if none is named.
    pub within: Option<TenantId>,
    /// In the words of whoever asks.
    pub reason: Option<String>,
    /// Also if it is the last that lets an admin in.
    pub force: bool,
    /// Who revokes it.
    pub by: By,
}

impl TokenOp {
    /// The token that it is about.
    pub fn id(&self) -> TokenId {
        match self {
            TokenOp::Issue(op) => op.id,
            TokenOp::Revoke(op) => op.id,
        }
    }

    /// The token as it stands from now on. The same again changes nothing, and gets what was recorded. Among `others` are
    /// all tokens of admins, if one is to be revoked.
    pub fn decide<'a>(
        &self,
        known: Option<&Token>,
        others: impl IntoIterator<Item = &'a Token>,
        now: Timestamp,
    ) -> Result<Token, Refusal> {
        match self {
            TokenOp::Issue(op) => op.decide(known, now),
            TokenOp::Revoke(op) => op.decide(known, others, now),
        }
    }

    /// What is told of it. The digest never is. What opens every tenant is told to the store's own.
    pub fn note(&self, token: &Token) -> Note {
        let tenant = token.tenant.clone().unwrap_or_else(TenantId::of_store);
        let (what, by) = match self {
            TokenOp::Issue(op) => ("issued", &op.by),
            TokenOp::Revoke(op) => ("revoked", &op.by),
        };
        let note = Note::new(tenant, About::Token(token.id), what, by.clone())
            .with("principal", token.principal.as_str())
            .with("role", token.role.as_str())
            .with("tenant", token.tenant_word());
        match self {
            TokenOp::Issue(IssueToken { label, expires_at, .. }) => {
                let note = match label {
                    Some(label) => note.with("label", label.as_str()),
                    None => note,
                };
                match expires_at {
                    Some(at) => note.with("expires_at", at.to_string()),
                    None => note,
                }
            }
            TokenOp::Revoke(RevokeToken { reason: Some(reason), .. }) => {
                note.with("reason", reason.as_str())
            }
            TokenOp::Revoke(_) => note,
        }
    }
}

impl IssueToken {
    fn decide(&self, known: Option<&Token>, now: Timestamp) -> Result<Token, Refusal> {
        if let Some(known) = known {
            return if self.asks_for(known) {
                Ok(known.clone())
            } else {
                Err(Refusal::invalid("id", "must be new: another token has it"))
            };
        }
        if self.tenant.as_ref().is_some_and(|tenant| tenant.as_str() == Token::EVERY_TENANT) {
            return Err(Refusal::invalid("tenant", "must be a name: * means every tenant"));
        }
        self.check_names()?;
        if self.expires_at.is_some_and(|at| at <= now) {
            return Err(Refusal::invalid("expires_at", "must lie in the future"));
        }
        Ok(Token {
            id: self.id,
            digest: self.digest,
            tenant: self.tenant.clone(),
            principal: self.principal.clone(),
            role: self.role,
            label: self.label.clone(),
            created_at: now,
            created_by: self.by.actor.clone(),
            expires_at: self.expires_at,
            revoked_at: None,
            revoked_by: None,
        })
    }

    /// A tenant begins with its first token, and its name becomes part of others: it has no slash and no blank.
    fn check_names(&self) -> Result<(), Refusal> {
        if let Some(tenant) = self.tenant.as_ref().map(TenantId::as_str) {
            check_plain("tenant", tenant)?;
            check_not_own("tenant", tenant)?;
            if tenant.contains('/') || tenant.contains(char::is_whitespace) {
                return Err(Refusal::invalid("tenant", "must not contain / or a blank"));
            }
            if tenant == TenantId::of_store().as_str() {
                return Err(Refusal::invalid("tenant", "must be another: it is the store's own"));
            }
        }
        check_plain("principal", self.principal.as_str())?;
        check_plain("label", self.label.as_ref().map_or("", TokenLabel::as_str))
    }

    /// Is it the token that this asked for before?
    fn asks_for(&self, known: &Token) -> bool {
        let asked = (&self.digest, &self.tenant, &self.principal, self.role, &self.label);
        let got = (&known.digest, &known.tenant, &known.principal, known.role, &known.label);
        asked == got && self.expires_at == known.expires_at && self.by.actor == known.created_by
    }
}

impl RevokeToken {
    fn decide<'a>(
        &self,
        known: Option<&Token>,
        others: impl IntoIterator<Item = &'a Token>,
        now: Timestamp,
    ) -> Result<Token, Refusal> {
        check_reason(self.reason.as_deref())?;
        let mine = |token: &&Token| self.within.is_none() || token.tenant == self.within;
        let known = known.filter(mine).ok_or(Refusal::NotFound { what: "token" })?;
        if known.revoked_at.is_some() {
            return Ok(known.clone());
        }
        let mut others = others.into_iter().filter(|other| other.id != known.id);
        let is_admin = known.role == Role::Admin && known.is_live(now);
        if is_admin && !self.force && !others.any(|other| other.is_admin_of(&known.tenant, now)) {
            return Err(Refusal::LastAdmin { tenant: known.tenant_word().to_owned() });
        }
        let revoked_by = Some(self.by.actor.clone());
        Ok(Token { revoked_at: Some(now), revoked_by, ..known.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_000_000)
    }

    fn by(name: &str) -> By {
        Actor::User(Principal::new(name).unwrap()).into()
    }

    fn issue() -> IssueToken {
        IssueToken {
            id: TokenId::from_u128(7),
            digest: [9; 32],
            tenant: Some(TenantId::new("acme").unwrap()),
            principal: Principal::new("bob").unwrap(),
            role: Role::Operator,
            label: Some(TokenLabel::new("laptop").unwrap()),
            expires_at: Some(Timestamp::from_micros(2_000_000)),
            by: by("root"),
        }
    }

    fn revoke() -> RevokeToken {
        let reason = Some("lost".to_owned());
        let (id, within, force) = (TokenId::from_u128(7), None, false);
        RevokeToken { id, within, reason, force, by: by("ann") }
    }

    #[test]
    fn the_same_issue_again_gets_what_was_recorded_and_another_is_refused() {
        let token = issue().decide(None, now()).unwrap();
        let later = Timestamp::from_micros(5_000_000);
        assert_eq!(issue().decide(Some(&token), later), Ok(token.clone()));
        let others = [
            IssueToken { digest: [8; 32], ..issue() },
            IssueToken { tenant: None, ..issue() },
            IssueToken { role: Role::Admin, ..issue() },
            IssueToken { expires_at: None, ..issue() },
            IssueToken { by: by("eve"), ..issue() },
        ];
        for other in others {
            let refused = other.decide(Some(&token), now()).unwrap_err();
            assert_eq!(refused.code(), "INVALID_INPUT");
        }
    }

    #[test]
    fn an_end_in_the_past_and_a_tenant_called_like_all_are_refused() {
        assert!(IssueToken { expires_at: Some(now()), ..issue() }.decide(None, now()).is_err());
        let star = Some(TenantId::new("*").unwrap());
        assert!(IssueToken { tenant: star, ..issue() }.decide(None, now()).is_err());
        assert!(IssueToken { tenant: None, ..issue() }.decide(None, now()).is_ok());
    }

    #[test]
    fn a_tenant_whose_name_could_pass_for_another_is_refused() {
        for odd in ["acme/eu", "ac me", "acme\u{a0}", "acme\u{202e}", "_windlass", "windlass.acme"]
        {
            let tenant = Some(TenantId::new(odd).unwrap());
            assert!(IssueToken { tenant, ..issue() }.decide(None, now()).is_err(), "{odd:?}");
        }
        let principal = Principal::new("ann\u{2066}").unwrap();
        assert!(IssueToken { principal, ..issue() }.decide(None, now()).is_err());
        let tenant = Some(TenantId::new("Größe-2.x_y").unwrap());
        assert!(IssueToken { tenant, ..issue() }.decide(None, now()).is_ok());
    }

    #[test]
    fn a_token_is_revoked_once() {
        let token = issue().decide(None, now()).unwrap();
        assert!(token.is_live(now()));
        assert!(!token.is_live(Timestamp::from_micros(2_000_000)), "it has come to its end");
        let revoked = revoke().decide(Some(&token), [], now()).unwrap();
        assert!(!revoked.is_live(now()));
        let again = RevokeToken { by: by("eve"), ..revoke() };
        let later = Timestamp::from_micros(1_500_000);
        assert_eq!(
            again.decide(Some(&revoked), [], later),
            Ok(revoked),
            "whoever was first has done it"
        );
        assert_eq!(revoke().decide(None, [], now()), Err(Refusal::NotFound { what: "token" }));
    }

    #[test]
    fn nobody_revokes_what_is_not_of_their_tenant() {
        let (mine, all) = (issue(), IssueToken { tenant: None, ..issue() });
        let [acme, other] = ["acme", "other"].map(|name| Some(TenantId::new(name).unwrap()));
        for (token, within, is_found) in [
            (&mine, &acme, true),
            (&mine, &other, false),
            (&all, &acme, false),
            (&all, &None, true),
        ] {
            let token = token.decide(None, now()).unwrap();
            let revoke = RevokeToken { within: within.clone(), ..revoke() };
            assert_eq!(revoke.decide(Some(&token), [], now()).is_ok(), is_found, "{within:?}");
        }
    }

    #[test]
    fn the_last_admin_is_revoked_by_force_alone() {
        let token = |number: u128, role: Role, tenant: Option<&str>| {
            let (id, expires_at) = (TokenId::from_u128(number), None);
            let tenant = tenant.map(|name| TenantId::new(name).unwrap());
            IssueToken { id, role, tenant, expires_at, ..issue() }.decide(None, now()).unwrap()
        };
        let acme = token(7, Role::Admin, Some("acme"));
        let all = token(7, Role::Admin, None);
        let ended = Token { revoked_at: Some(now()), ..token(8, Role::Admin, Some("acme")) };
        let past = Token { expires_at: Some(now()), ..token(8, Role::Admin, None) };
        for (known, other, is_last) in [
            (&acme, &acme, true),
            (&acme, &token(8, Role::Admin, Some("acme")), false),
            (&acme, &token(8, Role::Admin, None), false),
            (&acme, &token(8, Role::Admin, Some("bolt")), true),
            (&acme, &token(8, Role::Operator, Some("acme")), true),
            (&acme, &ended, true),
            (&acme, &past, true),
            (&all, &token(8, Role::Admin, None), false),
            (&all, &token(8, Role::Admin, Some("acme")), true),
            (&token(7, Role::Operator, Some("acme")), &acme, false),
        ] {
            let revoked = revoke().decide(Some(known), [other], now());
            let code = revoked.as_ref().err().map(Refusal::code);
            assert_eq!(code, is_last.then_some("LAST_ADMIN"), "{known:?} {other:?}");
            let forced = RevokeToken { force: true, ..revoke() };
            assert!(forced.decide(Some(known), [other], now()).is_ok());
        }
    }

    #[test]
    fn what_is_told_names_everything_but_the_digest() {
        let token = issue().decide(None, now()).unwrap();
        let told = TokenOp::Issue(issue()).note(&token);
        assert_eq!((told.tenant.as_str(), told.what, told.is_act()), ("acme", "issued", true));
        for word in
            ["\"principal\":\"bob\"", "\"role\":\"operator\"", "\"tenant\":\"acme\"", "laptop"]
        {
            assert!(told.line().contains(word), "{}", told.line());
        }
        assert!(!told.line().contains("digest") && !told.line().contains("9, 9"));
        let all = IssueToken { tenant: None, ..issue() };
        let told = TokenOp::Issue(all.clone()).note(&all.decide(None, now()).unwrap());
        assert_eq!(told.tenant, TenantId::of_store());
        assert!(told.line().contains("\"tenant\":\"*\""), "{}", told.line());
        let told = TokenOp::Revoke(revoke()).note(&token);
        assert!(told.line().contains("\"reason\":\"lost\""), "{}", told.line());
    }

    #[test]
    fn a_tenant_reads_back_from_its_word() {
        let acme = Some(TenantId::new("acme").unwrap());
        assert_eq!(Token::tenant_of_word("acme"), Ok(acme));
        assert_eq!(Token::tenant_of_word("*"), Ok(None));
        assert!(Token::tenant_of_word("").is_err());
    }
}
