//! A client that says what it wants in one line, and gets the whole answer.

use std::sync::OnceLock;

use reqwest::Method;
use serde_json::Value;

use crate::server::Server;

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: reqwest::StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {}", self.text))
    }

    /// What stands at this place of the body, such as `/job/job_id`, as text.
    pub(crate) fn at(&self, pointer: &str) -> String {
        let json = self.json();
        let found = json.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}: {}", self.text));
        found.as_str().map_or_else(|| found.to_string(), str::to_owned)
    }

    /// All is well, or the test fails.
    pub(crate) fn ok(self) -> Self {
        assert!(self.status.is_success(), "{}: {}", self.status, self.text);
        self
    }
}

/// The client of all tests.
pub(crate) fn client() -> reqwest::Client {
    static TLS: OnceLock<()> = OnceLock::new();
    TLS.get_or_init(|| {
        // It wants one, although nothing here is encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder().no_proxy().build().expect("a client can be made")
}

/// Sends a request, and reads the answer to its end.
pub(crate) async fn send(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let response = request.send().await?;
    let (status, headers) = (response.status(), response.headers().clone());
    Ok(Answer { status, headers, text: response.text().await? })
}

impl Server {
    /// Sends a body that is JSON, and expects an answer.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        let request = client().request(Method::POST, self.url(path)).body(body.to_owned());
        let request = request.header("content-type", "application/json");
        send(request).await.expect("it answers")
    }

    /// Asks for what is at this path, and expects an answer.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(client().get(self.url(path))).await.expect("it answers")
    }
}
