//! Where the calls of a command go: to the server that is named, to the one that has the file open, or to the same routes
//! in this process.
//!
//! Always true here: a command looks and acts through the HTTP API and by no other way, so that it says the same
//! wherever the store is, and `-o json` is the API's own document.

use std::{path::Path, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use clap::Args;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::sync::watch;
use windlass::{Config, Engine, Error, Tracer, Worker};
use windlass_kernel::{Principal, TenantId, Timestamp, token::Role};
use windlass_store::{self as store, read::Scope, without_password};

use super::{
    exit,
    look::terminal::for_people,
    place::{Place, PlaceArgs},
    store::StoreArg,
    trouble::Trouble,
};
use crate::{
    executors::client::tls,
    http::{App, Caller, InProcess, OPERATION_KIND, OPERATION_QUEUE, Settings, carry_out},
    traces::Traces,
};

/// Which Windlass a command is about, and as whom.
#[derive(Args, Clone, Default)]
pub(crate) struct ApiArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// What lets you in there.
    #[arg(
        long,
        env = "WINDLASS_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Where"
    )]
    token: Option<String>,
    /// As whom you act, where no token says so.
    #[arg(
        long = "as",
        env = "WINDLASS_AS",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Where"
    )]
    actor: Option<String>,
    /// Whose things are meant, where no token says so; * for everybody's.
    #[arg(
        long,
        env = "WINDLASS_TENANT",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Where"
    )]
    tenant: Option<String>,
}

/// A way to make calls.
pub(crate) enum Api {
    /// To another process.
    Server { client: reqwest::Client, url: String, token: Option<String>, actor: String },
    /// In this one.
    Here { engine: Engine, routes: InProcess, _stop: watch::Sender<bool> },
}

/// What was answered, as it came.
pub(crate) struct Document(String);

/// A list, or a part of one: its things as they came.
#[derive(Deserialize)]
pub(crate) struct Page {
    pub(crate) items: Vec<Box<RawValue>>,
    pub(crate) next: Option<String>,
    /// Of queues: when their jobs were counted.
    pub(crate) counted_at: Option<Timestamp>,
}

impl Document {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Reads what a command needs of it, as it can be shown to people.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Trouble> {
        serde_json::from_str(&for_people(&self.0)).map_err(|why| unfit(&why))
    }

    /// Reads a list, whose things stay as they came.
    pub(crate) fn page(&self) -> Result<Page, Trouble> {
        serde_json::from_str(&self.0).map_err(|why| unfit(&why))
    }
}

impl Page {
    /// The list as a document.
    pub(crate) fn text(&self) -> String {
        let items: Vec<&str> = self.items.iter().map(|item| item.get()).collect();
        let next = serde_json::to_string(&self.next).expect("it is text");
        let counted =
            self.counted_at.map(|at| format!(",\"counted_at\":\"{at}\"")).unwrap_or_default();
        format!("{{\"items\":[{}],\"next\":{next}{counted}}}", items.join(","))
    }

    /// Reads what a command needs of each, as it can be shown to people.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, Trouble> {
        let items = self.items.iter().map(|item| serde_json::from_str(&for_people(item.get())));
        items.collect::<Result<_, _>>().map_err(|why| unfit(&why))
    }
}

fn unfit(why: &serde_json::Error) -> Trouble {
    Trouble::failed(format!("the answer is not what this version expects: {why}"))
        .then("Are server and command line of the same version? windlass --version tells.")
}

/// The most that one page of a list has.
const PAGE_MAX: usize = 1_000;

/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(30);

impl Api {
    /// Finds out where to go. A file that is not there is not made.
    pub(crate) async fn open(args: &ApiArgs) -> Result<Self, Trouble> {
        if let Place::Store(store) = args.place()
            && let Some(path) = store.store.strip_prefix("sqlite:")
            && !Path::new(path).is_file()
        {
            return Err(Trouble::not_found(format!("there is no database {path} here"))
                .then("Start one with: windlass dev")
                .then("Or name another with --store sqlite:FILE, --store postgres://… or --server URL."));
        }
        Self::open_or_make(args).await
    }

    /// Finds out where to go. A file that is not there is made.
    pub(crate) async fn open_or_make(args: &ApiArgs) -> Result<Self, Trouble> {
        let store = match args.place() {
            Place::Server(url) => return Self::server(url, args),
            Place::Store(store) => &store.store,
        };
        // Another command may have it for a moment.
        let mut tries = 0;
        let error = loop {
            // Nobody looks after timers for the moment that a command takes.
            let config = Config { timers: None, retention: None, ..Config::default() };
            match Engine::open_with(store, &config).await {
                Ok(engine) => return Self::here(engine, args),
                Err(Error::Store(error)) => match &*error {
                    store::Error::InUse { owner } if owner.address.is_some() => {
                        let address = owner.address.as_deref().unwrap_or_default();
                        return Self::server(address, args);
                    }
                    store::Error::InUse { .. } if tries < 20 => {}
                    _ => break Trouble::of_store(&error),
                },
                Err(Error::Refused(refusal)) => break Trouble::usage(refusal.to_string()),
                Err(other) => break Trouble::failed(exit::chain(&other)),
            }
            tries += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        Err(error)
    }

    /// Calls go to this server, as whom the arguments say.
    pub(crate) fn at(url: &str, args: &ApiArgs) -> Result<Self, Trouble> {
        Self::server(url, args)
    }

    /// A server for development, which asks for no token.
    pub(crate) fn in_development(url: &str) -> Result<Self, Trouble> {
        Self::server(url, &ApiArgs::default())
    }

    fn server(url: &str, args: &ApiArgs) -> Result<Self, Trouble> {
        let tls = tls().map_err(Trouble::failed)?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|error| Trouble::failed(exit::chain(&error)))?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let what = format!("{url:?} is no address of a server");
            return Err(Trouble::usage(what).then("Write it as --server http://127.0.0.1:7117."));
        }
        Ok(Self::Server {
            client,
            url: url.trim_end_matches('/').to_owned(),
            token: args.token.clone(),
            actor: args.actor(),
        })
    }

    fn here(engine: Engine, args: &ApiArgs) -> Result<Self, Trouble> {
        let invalid = |refusal: windlass_kernel::Refusal| Trouble::usage(refusal.to_string());
        let scope = match args.tenant.as_deref().unwrap_or(Engine::TENANT_DEFAULT) {
            "*" => Scope::Every,
            name => TenantId::new(name).map_err(invalid)?.into(),
        };
        // Whoever can open the store can do everything to it.
        let principal = Principal::new(args.actor()).map_err(invalid)?;
        let caller = Caller { principal, scope, role: Role::Admin, has_token: false };
        Ok(Self::on(engine, caller, Settings::new(false)))
    }

    /// Calls routes in this process, on this engine.
    pub(crate) fn on(engine: Engine, caller: Caller, settings: Settings) -> Self {
        let (stop, stopping) = watch::channel(false);
        let app = App::new(engine.clone(), settings, Traces::default(), stopping).trusting(caller);
        Self::Here { engine, routes: InProcess::new(&Arc::new(app)), _stop: stop }
    }

    /// Where the calls go, for people.
    pub(crate) fn place(&self) -> &str {
        match self {
            Self::Server { url, .. } => url,
            Self::Here { .. } => "the database itself",
        }
    }

    /// Is there a process that goes on when this command has ended?
    pub(crate) fn is_server(&self) -> bool {
        matches!(self, Self::Server { .. })
    }

    /// Is it a file that nobody else has open? Then nothing happens in it but what this command does.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self, Self::Here { engine, .. } if engine.sqlite().is_some())
    }

    /// Carries out operations in this process, if no server does it: until the worker is shut down.
    pub(crate) async fn carry_out(&self) -> Result<Option<Worker>, Trouble> {
        let Self::Here { engine, .. } = self else { return Ok(None) };
        let worker = engine.worker().name("windlass.command-line").queues([OPERATION_QUEUE]);
        let worker = worker.handle_kind(OPERATION_KIND, carry_out).start().await;
        worker.map(Some).map_err(|error| Trouble::failed(exit::chain(&error)))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Document, Trouble> {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Option<String>) -> Result<Document, Trouble> {
        self.call(Method::POST, path, body).await
    }

    /// A part of a list, from `cursor` on.
    pub(crate) async fn page(&self, path: &str) -> Result<Page, Trouble> {
        self.get(path).await?.page()
    }

    /// A list of so many at the most. It asks for page after page until it has them, or there are no more: a page that
    /// is short, or empty, is no end while it has a next one.
    pub(crate) async fn pages(
        &self,
        names: &[&str],
        query: &[(&str, Option<String>)],
        limit: u32,
        mut cursor: Option<String>,
    ) -> Result<Page, Trouble> {
        let mut all = Page { items: Vec::new(), next: None, counted_at: None };
        loop {
            let left = usize::try_from(limit).unwrap_or(usize::MAX) - all.items.len();
            let mut query = query.to_vec();
            query.push(("limit", Some(left.min(PAGE_MAX).to_string())));
            query.push(("cursor", cursor));
            let page = self.page(&with_query(&path(names), &query)).await?;
            all.items.extend(page.items);
            all.next.clone_from(&page.next);
            // The oldest count is the one that can be told of all.
            all.counted_at = all.counted_at.or(page.counted_at);
            cursor = page.next;
            let is_full = all.items.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
            if is_full || cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// Makes a call. What is no good answer is trouble.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Document, Trouble> {
        match self.answer(method, path, body).await? {
            (200..=299, document) => Ok(document),
            (status, problem) => Err(Trouble::of_problem(status, path, problem.text())),
        }
    }

    /// Makes a call, and takes whatever is answered.
    pub(crate) async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(u16, Document), Trouble> {
        let answered = tokio::time::timeout(CALL_MAX, self.send(method, path, body)).await;
        let late = |_| format!("{} did not answer within {} s", self.place(), CALL_MAX.as_secs());
        let (status, text) = answered.map_err(|it| Trouble::unreachable(late(it)))??;
        Ok((status, Document(text)))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(u16, String), Trouble> {
        match self {
            Self::Server { client, url, token, actor } => {
                let mut request = client.request(method, format!("{url}{path}"));
                request = match token {
                    Some(token) => request.bearer_auth(token),
                    None => request.header("x-windlass-actor", actor),
                };
                if let Some(body) = body {
                    request = request.header(header::CONTENT_TYPE, "application/json").body(body);
                }
                let lost = |error: reqwest::Error| unreachable(url, &error);
                let answer = request.send().await.map_err(lost)?;
                let status = answer.status().as_u16();
                Ok((status, answer.text().await.map_err(lost)?))
            }
            Self::Here { routes, .. } => {
                let mut request = Request::builder().method(method).uri(path);
                if body.is_some() {
                    request = request.header(header::CONTENT_TYPE, "application/json");
                }
                let request = request.body(Body::from(body.unwrap_or_default()));
                let request = request.map_err(|why| Trouble::usage(why.to_string()))?;
                let answer = routes.0.call(request).await.unwrap_or_else(|never| match never {});
                let status = answer.status().as_u16();
                let body = answer.into_body().collect().await;
                let body = body.map_err(|why| Trouble::failed(why.to_string()))?.to_bytes();
                Ok((status, String::from_utf8_lossy(&body).into_owned()))
            }
        }
    }

    /// Lets go of the store.
    pub(crate) async fn close(self) {
        if let Self::Here { engine, .. } = self {
            engine.close().await;
        }
    }
}

impl ApiArgs {
    /// The server or the store that is meant.
    pub(crate) fn place(&self) -> &Place {
        &self.place.place
    }

    /// Takes the store that a config file names, unless a flag or a variable has named a place.
    pub(crate) fn or_store(&mut self, store: &str) {
        if self.place.is_default {
            self.place.place = Place::Store(StoreArg { store: store.to_owned() });
        }
    }

    /// The same, and everybody's things are meant, unless it is said whose.
    pub(crate) fn of_every_tenant(&self) -> Self {
        Self { tenant: self.tenant.clone().or_else(|| Some("*".to_owned())), ..self.clone() }
    }

    /// Whose things are meant, if it is said.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// An engine for a worker, and where it is: on the server that is named, on the one that has the store open, or on the
    /// store itself.
    pub(crate) async fn engine(&self, tracer: Option<Tracer>) -> Result<(Engine, String), Trouble> {
        let mut place = match self.place() {
            Place::Server(url) => url.clone(),
            Place::Store(store) => store.store.clone(),
        };
        let config = Config { token: self.token.clone(), tracer, ..Config::default() };
        let mut opened = Engine::open_with(&place, &config).await;
        if let Err(Error::Store(error)) = &opened
            && let store::Error::InUse { owner } = &**error
            && let Some(address) = &owner.address
        {
            place = address.clone();
            opened = Engine::open_with(&place, &config).await;
        }
        match opened {
            Ok(engine) => Ok((engine, without_password(&place))),
            Err(Error::Store(error)) => match &*error {
                store::Error::Unavailable(why) if place.starts_with("http") => {
                    Err(unreachable(&place, &**why))
                }
                _ => Err(Trouble::of_store(&error)),
            },
            Err(other) => Err(Trouble::usage(exit::chain(&other))),
        }
    }

    /// As whom to act: as was said, or under the name that this machine knows.
    fn actor(&self) -> String {
        let login = || {
            let names = ["USER", "LOGNAME", "USERNAME"].map(|name| std::env::var(name).ok());
            names.into_iter().flatten().find(|name| !name.is_empty())
        };
        self.actor.clone().or_else(login).unwrap_or_else(|| "command-line".to_owned())
    }
}

fn unreachable(url: &str, mut cause: &(dyn std::error::Error + 'static)) -> Trouble {
    while let Some(next) = cause.source() {
        cause = next;
    }
    Trouble::unreachable(format!("no answer from {url}: {cause}"))
        .then("Is it running? Start one with: windlass dev")
}

/// A path with what varies in it, escaped.
pub(crate) fn path(parts: &[&str]) -> String {
    let mut path = String::from("/api/v1");
    for part in parts {
        path.push('/');
        path.extend(
            form_urlencoded::byte_serialize(part.as_bytes()).map(|it| it.replace('+', "%20")),
        );
    }
    path
}

/// The path with what stands behind the question mark: only what has a value.
pub(crate) fn with_query(path: &str, query: &[(&str, Option<String>)]) -> String {
    let mut text = form_urlencoded::Serializer::new(String::new());
    for (name, value) in query {
        if let Some(value) = value {
            text.append_pair(name, value);
        }
    }
    let query = text.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_in_a_path_is_escaped() {
        assert_eq!(path(&["queues", "a b/c", "pause"]), "/api/v1/queues/a%20b%2Fc/pause");
        let query = [("state", Some("queued,running".to_owned())), ("kind", None)];
        assert_eq!(with_query("/api/v1/jobs", &query), "/api/v1/jobs?state=queued%2Crunning");
    }

    #[test]
    fn a_list_stays_as_it_came() {
        let text = r#"{"items":[{"n":1.50}],"next":null}"#;
        assert_eq!(Document(text.to_owned()).page().unwrap().text(), text);
    }
}
