//! `windlass token`: who may come in from outside.
//!
//! The first token of a store is made without a server, by whoever can open the store. Later ones are issued by the
//! server that has it open, to those who are its admins.

use axum::http::Method;
use clap::{Args, Subcommand};
use serde_json::json;
use windlass::wire::{Me, RevokeBody, TokenDocument};

use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{
        ask,
        table::{Cell, Room, Table},
        times,
        view::{View, state_look},
    },
    trouble::Trouble,
};

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Issue a token. It is shown once.
    Add(Add),
    /// List the tokens, without their secrets.
    List(List),
    /// Revoke a token, at once.
    Revoke(Revoke),
}

#[derive(Args)]
pub(crate) struct Add {
    /// As whom its bearer acts. Two people are two principals, not two tokens.
    principal: String,
    /// What its bearer may do: viewer, worker, operator or admin.
    #[arg(long, default_value = "operator", value_parser = ["viewer", "worker", "operator", "admin"])]
    role: String,
    /// What people call it.
    #[arg(long)]
    label: Option<String>,
    /// From when on it opens nothing: 2027-01-01T00:00:00Z, or 90d from now.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Revoke {
    /// The id of the token, tok_…
    id: String,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
    /// Revoke it even if it is the last token of an admin.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(command: &Token, view: &View) -> Result<(), Trouble> {
    match command {
        Token::Add(command) => add(command, view).await,
        Token::List(command) => list(command, view).await,
        Token::Revoke(command) => revoke(command, view).await,
    }
}

async fn add(command: &Add, view: &View) -> Result<(), Trouble> {
    let at = |text: &String| times::parse_time(text, view.times.now()).map_err(Trouble::usage);
    let expires_at = command.expires_at.as_ref().map(at).transpose()?;
    let api = open(&command.api).await?;
    let me: Me = api.get(&path(&["me"])).await?.read()?;
    // Whoever may do everything to everybody's things does not give that away by saying nothing.
    let usual = (me.tenant == "*").then_some("default");
    let body = json!({
        "principal": command.principal,
        "role": command.role,
        "tenant": command.api.tenant().or(usual),
        "label": command.label,
        "expires_at": expires_at,
    });
    let document = api.post(&path(&["tokens"]), Some(body.to_string())).await?;
    api.close().await;
    let made: TokenDocument = document.read()?;
    view.document(&document, || made.token.clone().unwrap_or_default() + "\n");
    view.say(&format!(
        "{} lets {} in as {} of tenant {}. It is not shown again.",
        made.token_id, made.principal, made.role, made.tenant
    ));
    Ok(())
}

async fn list(command: &List, view: &View) -> Result<(), Trouble> {
    let api = open(&command.api).await?;
    let page = api.page(&path(&["tokens"])).await?;
    api.close().await;
    let tokens: Vec<TokenDocument> = page.read()?;
    view.list(&page, || {
        let empty = "There is no token yet. Make one: windlass token add ann --role admin";
        let mut table = Table::new(empty)
            .column("TOKEN", Room::Needed)
            .column("WHO", Room::Shorten(8))
            .column("ROLE", Room::Needed)
            .column("TENANT", Room::Spare(0))
            .column("LABEL", Room::Spare(3))
            .column("CREATED", Room::Spare(2))
            .column("HOLDS", Room::Spare(1));
        for token in &tokens {
            table.row([
                token.token_id.to_string().into(),
                token.principal.as_str().into(),
                token.role.as_str().into(),
                token.tenant.as_str().into(),
                token.label.as_deref().unwrap_or("-").into(),
                view.times.show(token.created_at).into(),
                holds(token, view),
            ]);
        }
        table
    });
    Ok(())
}

async fn revoke(command: &Revoke, view: &View) -> Result<(), Trouble> {
    let api = open(&command.api).await?;
    let page = api.page(&path(&["tokens"])).await?;
    let known = page
        .read::<TokenDocument>()?
        .into_iter()
        .find(|token| token.token_id.to_string() == command.id);
    // What is not listed is asked about too: the server says whether it is there.
    let whose = known.map(|it| format!(", with which {} is {}", it.principal, it.role));
    let whose = whose.unwrap_or_default();
    ask::confirm(view, &format!("Revoke {}{whose}? It ends at once.", command.id))?;
    let body = RevokeBody { reason: command.reason.clone(), force: command.force };
    let body = serde_json::to_string(&body).expect("a body is plain data");
    let document = api.call(Method::DELETE, &path(&["tokens", &command.id]), Some(body)).await?;
    api.close().await;
    let gone: TokenDocument = document.read()?;
    view.document(&document, || format!("{} of {} is revoked.\n", gone.token_id, gone.principal));
    Ok(())
}

/// The first token is made before there is anything else, so the database is made too. Whoever can open it is its admin.
async fn open(args: &ApiArgs) -> Result<Api, Trouble> {
    Api::open_or_make(&args.of_every_tenant()).await
}

/// Whether it opens anything, and until when.
fn holds(token: &TokenDocument, view: &View) -> Cell {
    let times = view.times;
    let (shape, style) = match (token.revoked_at, token.expires_at) {
        (Some(_), _) => state_look("cancelled"),
        (None, Some(at)) if at <= times.now() => state_look("failed"),
        (None, _) => state_look("succeeded"),
    };
    let words = match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", times.show(at)),
        (None, Some(at)) if at <= times.now() => format!("expired {}", times.show(at)),
        (None, Some(at)) => match times.show(at).strip_prefix("in ") {
            Some(long) => format!("for {long}"),
            None => format!("until {}", times.show(at)),
        },
        (None, None) => "for ever".to_owned(),
    };
    Cell::styled(format!("{shape} {words}"), style)
}
