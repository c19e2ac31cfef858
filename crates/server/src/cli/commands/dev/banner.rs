//! What `dev` says first: where everything is, and what to try.

use std::{fmt::Write as _, net::SocketAddr};

use windlass_store::without_password;

use crate::cli::{
    look::view::{BOLD, DIM},
    serving::Serving,
};

/// What is to be said.
pub(super) struct Banner {
    url: String,
    store: String,
    is_ephemeral: bool,
    has_keys: bool,
    /// The executors that are built in, with their queues.
    built_in: Vec<String>,
}

impl Banner {
    pub(super) fn new(serving: &Serving, is_ephemeral: bool, has_keys: bool) -> Self {
        let executors = &serving.setup().executors;
        let on = |name: &str, queues: &[String]| format!("{name} (queue {})", queues.join(", "));
        let http = executors.http.enabled.then(|| on("http", &executors.http.queues));
        let command = executors.command.enabled.then(|| on("command", &executors.command.queues));
        Self {
            url: serving.url.clone(),
            store: without_password(&serving.setup().server.store),
            is_ephemeral,
            has_keys,
            built_in: http.into_iter().chain(command).collect(),
        }
    }

    /// That the port is not the usual one, if that is so.
    pub(super) fn moved(&self, wanted: Option<SocketAddr>) -> Option<String> {
        let wanted = wanted?;
        let is_there = self.url.ends_with(&wanted.to_string());
        let here = self.url.rsplit(':').next().unwrap_or_default();
        (!is_there).then(|| format!("Port {} is taken, so this is at port {here}.", wanted.port()))
    }

    pub(super) fn text(&self) -> String {
        let Self { url, store, .. } = self;
        let mut text = format!(
            "{BOLD}Windlass {}{BOLD:#}, for development on this machine\n\n",
            env!("CARGO_PKG_VERSION")
        );
        let mut line = |name: &str, what: &str, more: &str| {
            let more =
                if more.is_empty() { String::new() } else { format!("  {DIM}{more}{DIM:#}") };
            let what = if more.is_empty() { what.to_owned() } else { format!("{what:<22}") };
            let _ = writeln!(text, "  {DIM}{name:<9}{DIM:#} {what}{more}");
        };
        line("API", url, &format!("docs: {url}/docs"));
        let (file, kept) = match (store.strip_prefix("sqlite:"), self.is_ephemeral) {
            (Some(file), true) => (file, "gone when this ends"),
            (Some(file), false) => (file, "kept when this ends"),
            (None, _) => (store.as_str(), "kept when this ends"),
        };
        line("Database", file, kept);
        if store != "sqlite:windlass.db" {
            line("", &format!("export WINDLASS_SERVER={url}"), "so that other terminals find it");
        }
        let key =
            if self.has_keys { "four jobs to look at; or press d" } else { "four jobs to look at" };
        line("Demo", "windlass demo", key);
        line("", "windlass demo crash", "a kill -9 in mid-job, and what comes then");
        line("Job", "windlass job add send_mail '{\"to\": \"ann\"}'", "");
        let built_in = match self.built_in.as_slice() {
            [] => String::new(),
            some => format!("; built in: {}", some.join(", ")),
        };
        line("Workers", &format!("none of yours is connected yet{built_in}"), "");
        line("", &format!("Rust: Engine::open(\"{url}\")"), "");
        line("", &format!("else: POST {url}/api/v1/claims"), "");
        let keys = if self.has_keys { "d demo   h help   q quit" } else { "Ctrl-C ends it" };
        let _ = writeln!(text, "\n  {DIM}{keys}{DIM:#}\n");
        text
    }
}
