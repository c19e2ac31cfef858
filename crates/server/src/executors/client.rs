//! Calls to other servers: guarded, bounded and told in failures.
//!
//! Always true here: no proxy of the environment is used, no redirect is followed that was not checked, no more of an
//! answer is read than is kept, and a failure names the host and nothing else of the call, because paths, queries and
//! headers hold secrets.

use std::{error::Error, sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use reqwest::{Client, Response, Url, redirect::Policy};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use windlass_kernel::{
    Failure,
    failure::{ADDRESS_NOT_ALLOWED, HTTP_REJECTED, HTTP_TIMEOUT, HTTP_UNREACHABLE},
};

use super::guard::{Guard, NotAllowed};

/// Makes calls. Clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct Outward {
    client: Client,
    guard: Guard,
    redirects_max: usize,
}

/// A call to make.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// What is sent to the server that was named, and to no other one.
    pub(crate) headers: HeaderMap,
    /// What is sent wherever the call is led to.
    pub(crate) own_headers: HeaderMap,
    pub(crate) body: Bytes,
    /// How long it may take, all in all.
    pub(crate) timeout: Duration,
    /// The most bytes of the answer that are kept.
    pub(crate) bytes_max: usize,
}

/// What was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Was there more than is kept?
    pub(crate) is_cut: bool,
}

impl Outward {
    /// The most redirects, where they are followed at all.
    const REDIRECTS_MAX: usize = 3;
    const CONNECT_MAX: Duration = Duration::from_secs(10);

    pub(crate) fn new(guard: Guard, follow_redirects: bool) -> Result<Self, String> {
        let client = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(Self::CONNECT_MAX)
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(guard.clone()))
            .tls_backend_preconfigured(tls()?)
            .build()
            .map_err(|error| format!("cannot make calls to other servers: {error}"))?;
        let redirects_max = if follow_redirects { Self::REDIRECTS_MAX } else { 0 };
        Ok(Self { client, guard, redirects_max })
    }

    /// Makes the call and reads its answer, whatever its status.
    pub(crate) async fn send(&self, call: Outgoing) -> Result<Answered, Failure> {
        let (timeout, host) = (call.timeout, host(&call.url));
        let answered = tokio::time::timeout(timeout, self.send_and_read(call)).await;
        answered.unwrap_or_else(|_| {
            let message = format!("{host} did not answer within {} ms", timeout.as_millis());
            Err(Failure::own(HTTP_TIMEOUT, &message))
        })
    }

    async fn send_and_read(&self, mut call: Outgoing) -> Result<Answered, Failure> {
        for followed in 0.. {
            let response = self.send_once(&call).await?;
            let Some(target) = redirect(&response, &call.url) else {
                return read(response, &host(&call.url), call.bytes_max).await;
            };
            if self.redirects_max == 0 {
                return read(response, &host(&call.url), call.bytes_max).await;
            }
            if followed >= self.redirects_max {
                let message = format!("{} redirects too often", host(&call.url));
                return Err(Failure::own(HTTP_REJECTED, &message));
            }
            call.follow(response.status(), target);
        }
        unreachable!("the redirects are counted")
    }

    async fn send_once(&self, call: &Outgoing) -> Result<Response, Failure> {
        self.guard.check(&call.url).map_err(|refused| not_allowed(&refused))?;
        let mut headers = call.headers.clone();
        headers.extend(call.own_headers.clone());
        let request = self.client.request(call.method.clone(), call.url.clone()).headers(headers);
        let sent = request.body(call.body.clone()).send().await;
        sent.map_err(|error| unreached(&host(&call.url), &error))
    }
}

impl Outgoing {
    /// The call that a redirect asks for.
    fn follow(&mut self, status: StatusCode, target: Url) {
        let keeps_method =
            matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        if !keeps_method && !matches!(self.method, Method::GET | Method::HEAD) {
            self.method = Method::GET;
            self.body = Bytes::new();
            self.headers.remove(header::CONTENT_TYPE);
        }
        if target.origin() != self.url.origin() {
            // What was meant for one server is not told to another.
            let content_type = self.headers.remove(header::CONTENT_TYPE);
            self.headers = HeaderMap::new();
            self.headers.extend(content_type.map(|value| (header::CONTENT_TYPE, value)));
        }
        self.url = target;
    }
}

/// Where a redirect leads.
fn redirect(response: &Response, from: &Url) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(header::LOCATION)?;
    from.join(location.to_str().ok()?).ok()
}

/// Reads an answer as far as it is kept. What comes after that is not waited for.
async fn read(mut response: Response, host: &str, bytes_max: usize) -> Result<Answered, Failure> {
    let (status, headers) = (response.status(), response.headers().clone());
    let (mut body, mut is_cut) = (Vec::new(), false);
    while let Some(chunk) = response.chunk().await.map_err(|error| unreached(host, &error))? {
        let room = bytes_max - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            is_cut = true;
            break;
        }
    }
    Ok(Answered { status, headers, body, is_cut })
}

fn not_allowed(refused: &NotAllowed) -> Failure {
    Failure::own(ADDRESS_NOT_ALLOWED, &refused.to_string())
}

/// Why there is no answer. The message of the library would name the whole URL; its deepest cause names nothing.
fn unreached(host: &str, error: &reqwest::Error) -> Failure {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        if let Some(refused) = deeper.downcast_ref::<NotAllowed>() {
            return not_allowed(refused);
        }
        cause = deeper;
    }
    match error.is_timeout() {
        true => Failure::own(HTTP_TIMEOUT, &format!("{host} cannot be reached in time")),
        false if std::ptr::addr_eq(cause, error) => {
            Failure::own(HTTP_UNREACHABLE, &format!("{host} cannot be called"))
        }
        false => Failure::own(HTTP_UNREACHABLE, &format!("{host} cannot be called: {cause}")),
    }
}

/// Scheme, name and port: what may be told of a URL.
pub(crate) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{name}{port}", url.scheme())
}

/// The headers that say which job calls, and in which attempt.
pub(crate) fn identity(context: &windlass::Context) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: String| {
        // A trace may hold what a header may not; then it is left out.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    put("idempotency-key", context.fence().execution_key);
    put("x-windlass-job-id", context.job_id().to_string());
    put("x-windlass-attempt", context.attempt().to_string());
    let trace = context.trace_id().as_str();
    put("x-trace-id", trace.to_owned());
    put("traceparent", context.trace_context().to_string());
    headers
}

/// TLS with the authorities that this machine trusts.
pub(crate) fn tls() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        tracing::warn!("this machine trusts no authority, so no https can be called");
    }
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("cannot set up TLS: {error}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_told_without_its_secrets() {
        let url = Url::parse("https://hooks.example:8443/T0/secret?token=secret").unwrap();
        assert_eq!(host(&url), "https://hooks.example:8443");
    }

    #[test]
    fn another_server_is_not_told_what_was_meant_for_the_first() {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut call = Outgoing {
            method: Method::POST,
            url: Url::parse("https://a.example/x").unwrap(),
            headers,
            own_headers: HeaderMap::new(),
            body: Bytes::from_static(b"{}"),
            timeout: Duration::from_secs(1),
            bytes_max: 1,
        };
        call.follow(StatusCode::PERMANENT_REDIRECT, Url::parse("https://a.example/y").unwrap());
        assert!(call.headers.contains_key(header::AUTHORIZATION));
        call.follow(StatusCode::TEMPORARY_REDIRECT, Url::parse("http://a.example/y").unwrap());
        assert_eq!(call.headers.len(), 1);
        assert_eq!((&call.method, call.body.len()), (&Method::POST, 2));
        call.follow(StatusCode::FOUND, Url::parse("http://a.example/z").unwrap());
        assert_eq!((&call.method, call.body.len()), (&Method::GET, 0));
    }
}
