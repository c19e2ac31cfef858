//! `windlass token`: the first token of a store, and those after it, from the machine that has the store.
//!
//! A server that is running issues tokens itself, to those who are its admins: `POST /api/v1/tokens`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;
use windlass::{Config, Engine, Error};
use windlass_kernel::{
    Actor, By, Principal, Refusal, Timestamp, Token as Kept, TokenId, TokenOp,
    ids::TokenLabel,
    token::{IssueToken, RevokeToken, Role},
};
use windlass_store::read::Scope;

use super::{
    Output, exit,
    store::{self, StoreArg},
};
use crate::http::{Secret, send_token};

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Issue a token. It is shown once.
    Add(Add),
    /// List the tokens, without their secrets.
    List(List),
    /// Revoke a token.
    Revoke(Revoke),
}

#[derive(Args)]
pub(crate) struct Add {
    /// As whom its bearer acts. Two people are two principals, not two tokens.
    principal: String,
    /// What its bearer may do: viewer, worker, operator or admin.
    #[arg(long, default_value = "operator")]
    role: String,
    /// Whose things it opens; * for those of every tenant.
    #[arg(long, default_value = "default")]
    tenant: String,
    /// What people call it.
    #[arg(long)]
    label: Option<String>,
    /// From when on it opens nothing, such as 2027-01-01T00:00:00Z.
    #[arg(long)]
    expires_at: Option<String>,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Args)]
pub(crate) struct Revoke {
    /// The id of the token, tok_…
    id: String,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    store: StoreArg,
}

/// A token as it is shown.
#[derive(Serialize)]
struct Shown {
    token_id: String,
    principal: String,
    role: String,
    tenant: String,
    label: Option<String>,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl From<Kept> for Shown {
    fn from(token: Kept) -> Self {
        Self {
            token_id: token.id.to_string(),
            principal: token.principal.to_string(),
            role: token.role.to_string(),
            tenant: token.tenant_word().to_owned(),
            label: token.label.as_ref().map(ToString::to_string),
            expires_at: token.expires_at,
            revoked_at: token.revoked_at,
            token: None,
        }
    }
}

pub(crate) fn run(command: &Token, output: Output) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::fail(exit::FAILED, &format!("cannot start: {error}")),
    };
    let StoreArg { store } = match command {
        Token::Add(add) => &add.store,
        Token::List(list) => &list.store,
        Token::Revoke(revoke) => &revoke.store,
    };
    let done = runtime.block_on(async {
        let config = Config { timers: None, retention: None, ..Config::default() };
        let engine = Engine::open_with(store, &config).await?;
        let done = act(command, &engine).await;
        engine.close().await;
        done
    });
    match done {
        Ok(tokens) => show(command, tokens, output),
        Err(error) => fail(&error),
    }
}

async fn act(command: &Token, engine: &Engine) -> Result<Vec<Shown>, Error> {
    let by: By = Actor::User(Principal::new("command-line")?).into();
    match command {
        Token::Add(add) => {
            let unknown = || Refusal::invalid("role", "must be viewer, worker, operator or admin");
            let secret = Secret::new(engine.ids().token_id());
            let expires_at = add.expires_at.as_deref().map(time).transpose()?;
            let op = IssueToken {
                id: secret.id,
                digest: secret.digest,
                tenant: Kept::tenant_of_word(&add.tenant)?,
                principal: Principal::new(&add.principal)?,
                role: Role::parse(&add.role).ok_or_else(unknown)?,
                label: add.label.as_deref().map(TokenLabel::new).transpose()?,
                expires_at,
                by,
            };
            let token = send_token(engine, TokenOp::Issue(op)).await?;
            Ok(vec![Shown { token: Some(secret.text), ..token.into() }])
        }
        Token::List(_) => {
            let tokens = engine.store().tokens(&Scope::Every).await?;
            Ok(tokens.into_iter().map(Shown::from).collect())
        }
        Token::Revoke(revoke) => {
            let id: TokenId = revoke.id.parse()?;
            let op = RevokeToken { id, within: None, reason: revoke.reason.clone(), by };
            Ok(vec![send_token(engine, TokenOp::Revoke(op)).await?.into()])
        }
    }
}

fn time(text: &str) -> Result<Timestamp, Refusal> {
    let quoted = serde_json::Value::String(text.to_owned());
    let why = "must be a time such as 2027-01-01T00:00:00Z";
    serde_json::from_value(quoted).map_err(|_| Refusal::invalid("expires_at", why))
}

fn show(command: &Token, tokens: Vec<Shown>, output: Output) -> ExitCode {
    match (output, command) {
        (Output::Json, Token::List(_)) => println!("{}", json(&tokens)),
        (Output::Json | Output::Jsonl, _) => {
            tokens.iter().for_each(|one| println!("{}", json(one)));
        }
        (Output::Table, Token::Add(_)) => {
            for shown in tokens {
                println!("{}", shown.token.unwrap_or_default());
                eprintln!(
                    "{} lets {} in as {} of tenant {}. It is not shown again.",
                    shown.token_id, shown.principal, shown.role, shown.tenant
                );
            }
        }
        (Output::Table, _) => {
            for shown in tokens {
                let state = match (shown.revoked_at, shown.expires_at) {
                    (Some(at), _) => format!("revoked {at}"),
                    (None, Some(at)) => format!("until {at}"),
                    (None, None) => "for ever".to_owned(),
                };
                println!(
                    "{}  {:<9} {:<20} {:<16} {state}",
                    shown.token_id, shown.role, shown.principal, shown.tenant
                );
            }
        }
    }
    ExitCode::SUCCESS
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it is plain data")
}

fn fail(error: &Error) -> ExitCode {
    match error {
        Error::Store(error) => store::fail(error),
        Error::Refused(refusal) => {
            let code = match refusal {
                Refusal::NotFound { .. } => exit::NOT_FOUND,
                Refusal::Invalid { .. } => exit::USAGE,
                _ => exit::CONFLICT,
            };
            exit::fail(code, &format!("{refusal}\n{}", refusal.info().remedy))
        }
        other => exit::fail(exit::USAGE, &format!("{other:?}")),
    }
}
