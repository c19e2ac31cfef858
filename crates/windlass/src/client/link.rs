//! The line to a server: one call, and what is known when it fails.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{
    Client, Method, RequestBuilder, Response, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use serde::de::DeserializeOwned;
use windlass_kernel::{Actor, TenantId};
use windlass_store::Error;

use super::problem::Problem;
use crate::{
    clock::{Clock, ticks_of},
    engine::StoreClock,
    wire::Me,
};

/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(30);
/// How long it may take until there is a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a connection is kept that nobody uses. A server keeps it for longer, so that it does not hang up on a call
/// that is just being made.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The line to a server.
pub(super) struct Link {
    client: Client,
    base: Url,
    token: Option<HeaderValue>,
    clock: Clock,
    pub(super) store_clock: Arc<StoreClock>,
}

/// Why a call has no other answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server said no.
    Problem(Problem),
    /// There is no answer.
    Store(Error),
}

impl Failed {
    /// The same for a call that only reads.
    pub(super) fn into_error(self) -> Error {
        match self {
            Failed::Problem(problem) => problem.into_error(),
            Failed::Store(error) => error,
        }
    }
}

impl Link {
    /// A line to this address. Nothing is said on it yet.
    pub(super) fn new(url: &str, token: Option<&str>, clock: Clock) -> Result<Self, String> {
        let base = Url::parse(url).map_err(|why| why.to_string())?;
        let host = base.host_str().ok_or("the name of the server is missing")?;
        if !base.username().is_empty() || base.password().is_some() {
            return Err("a name or password has no place in it: the token goes into Config.token \
                        or WINDLASS_TOKEN"
                .to_owned());
        }
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let mut token = token.transpose().map_err(|_| "the token is no text of a header")?;
        token.iter_mut().for_each(|token| token.set_sensitive(true));
        let builder = Client::builder().connect_timeout(CONNECT_MAX).tcp_nodelay(true);
        let builder = builder.pool_idle_timeout(IDLE_MAX);
        let builder = builder.tls_backend_preconfigured(tls(base.scheme() == "https")?);
        // What is on this machine is not behind a proxy.
        let is_here = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse()
                .is_ok_and(|it: std::net::IpAddr| it.is_loopback());
        let builder = if is_here { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|why| why.to_string())?;
        let store_clock = Arc::new(StoreClock::new(ticks_of(&clock)));
        Ok(Self { client, base, token, clock, store_clock })
    }

    /// Where it leads.
    pub(super) fn url(&self) -> &str {
        self.base.as_str()
    }

    /// Asks who the server takes us for, and what time it is there. None is every tenant.
    pub(super) async fn me(&self) -> Result<Option<TenantId>, Error> {
        let asked_at = (self.clock)();
        let me: Me = self.get(&["me"], &[]).await.map_err(Failed::into_error)?;
        self.store_clock.hear(asked_at, me.now, (self.clock)());
        match me.tenant.as_str() {
            "*" => Ok(None),
            name => TenantId::new(name).map(Some).map_err(|why| unfit(&why)),
        }
    }

    /// Reads what is at this path.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T, Failed> {
        let mut url = self.at(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.request(Method::GET, url).timeout(CALL_MAX);
        // A read can be asked again whatever became of it.
        let away = |why: reqwest::Error| Failed::Store(Error::Unavailable(why.into()));
        let text = answer(request.send().await.map_err(away)?, away).await?;
        parsed(&text).map_err(|why| Failed::Store(unfit(&why)))
    }

    /// Sends a document, in the name of whoever acts.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        actor: Option<&Actor>,
        body: String,
    ) -> Result<T, Failed> {
        let json = HeaderValue::from_static("application/json");
        let request = self.request(method, self.at(path)).timeout(CALL_MAX);
        let request = request.header(CONTENT_TYPE, json).body(body);
        // A server in development believes it; any other one asks the token alone.
        let request = match actor {
            Some(Actor::User(name)) => request.header("x-windlass-actor", name.as_str()),
            _ => request,
        };
        let sent = request.send().await.map_err(|why| {
            let is_unsent = why.is_connect() || why.is_builder();
            let error = if is_unsent { Error::Unavailable } else { Error::Ambiguous };
            Failed::Store(error(why.into()))
        })?;
        let lost = |why: reqwest::Error| Failed::Store(Error::Ambiguous(why.into()));
        let text = answer(sent, lost).await?;
        parsed(&text).map_err(|why| Failed::Store(Error::Ambiguous(why.into())))
    }

    /// Begins to read a stream.
    pub(super) async fn stream(&self, path: &[&str]) -> Result<Response, reqwest::Error> {
        self.request(Method::GET, self.at(path)).send().await?.error_for_status()
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.client.request(method, url);
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        }
    }

    fn at(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            let root: &[&str] = if path == ["readyz"] { &[] } else { &["api", "v1"] };
            segments.pop_if_empty().extend(root).extend(path);
        }
        url
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// The whole text of an answer, if all is well.
async fn answer(
    response: Response,
    lost: impl FnOnce(reqwest::Error) -> Failed,
) -> Result<Vec<u8>, Failed> {
    let status = response.status();
    let text = response.bytes().await.map_err(lost)?;
    match status.is_success() {
        true => Ok(text.into()),
        false => Err(Failed::Problem(Problem::read(status.as_u16(), &text))),
    }
}

/// An answer as a document. Nothing at all is an empty one.
fn parsed<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(if text.is_empty() { b"{}" } else { text })
}

/// What a server told cannot be right.
pub(super) fn unfit(why: &dyn fmt::Display) -> Error {
    Error::Damaged(format!("the server's answer does not fit: {why}"))
}

/// How a connection is encrypted, if it is. The authorities are those that this machine trusts.
fn tls(is_wanted: bool) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if is_wanted {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("this machine trusts no certificate authority".to_owned());
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|why| why.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
