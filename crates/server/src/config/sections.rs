//! The sections of the file about executors, webhooks, alerts and traces.

use std::{
    collections::BTreeMap, env, fmt, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::Url;
use serde::{Deserialize, Deserializer, de::Error};
use windlass_kernel::{Kind, Queue, State, TenantId};

use super::read::{count, ms, number, queues};
use crate::{
    executors::{guard::Allowed, template::Template},
    http::Thresholds,
};

/// `[traces]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Traces {
    /// A collector that takes OTLP over HTTP; none, if nothing and no variable of OpenTelemetry names one.
    #[serde(deserialize_with = "collector")]
    pub(crate) endpoint: Option<Url>,
    /// The name under which the spans are found.
    pub(crate) service_name: String,
}

impl Default for Traces {
    fn default() -> Self {
        Self { endpoint: None, service_name: "windlass".to_owned() }
    }
}

fn collector<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Url>, D::Error> {
    let text = String::deserialize(from)?;
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let why = || D::Error::custom("it must be a URL, such as \"http://127.0.0.1:4318\"");
    url.map(Some).ok_or_else(why)
}

/// `[executors]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Executors {
    pub(crate) http: HttpExecutor,
    pub(crate) command: CommandExecutor,
}

/// `[executors.http]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpExecutor {
    pub(crate) enabled: bool,
    #[serde(deserialize_with = "queues")]
    pub(crate) queues: Vec<String>,
    #[serde(deserialize_with = "count::<_, 1, 10_000>")]
    pub(crate) concurrency: usize,
    /// What may be called although it is not public.
    #[serde(deserialize_with = "allow")]
    pub(crate) allow: Vec<Allowed>,
    /// The longest that a call may take.
    #[serde(rename = "timeout_ms", deserialize_with = "ms::<_, 1, 3_600_000>")]
    pub(crate) timeout: Duration,
    /// How much of an answer is kept. As JSON it can be six times as long, and has to fit into a result.
    #[serde(deserialize_with = "count::<_, 0, 163_840>")]
    pub(crate) response_bytes_max: usize,
    pub(crate) follow_redirects: bool,
}

impl Default for HttpExecutor {
    fn default() -> Self {
        Self {
            enabled: true,
            queues: vec!["default".to_owned()],
            concurrency: 16,
            allow: Vec::new(),
            timeout: Duration::from_secs(30),
            response_bytes_max: 64 * 1024,
            follow_redirects: false,
        }
    }
}

/// `[executors.command]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CommandExecutor {
    pub(crate) enabled: bool,
    #[serde(deserialize_with = "queues")]
    pub(crate) queues: Vec<String>,
    /// Each program that runs keeps a thread of the server waiting.
    #[serde(deserialize_with = "count::<_, 1, 256>")]
    pub(crate) concurrency: usize,
    pub(crate) allow: BTreeMap<String, AllowedCommand>,
}

impl Default for CommandExecutor {
    fn default() -> Self {
        Self {
            enabled: false,
            queues: vec!["default".to_owned()],
            concurrency: 4,
            allow: BTreeMap::new(),
        }
    }
}

/// `[executors.command.allow.NAME]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AllowedCommand {
    #[serde(deserialize_with = "absolute")]
    pub(crate) program: PathBuf,
    #[serde(default, deserialize_with = "template")]
    pub(crate) args: Template,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default = "root", deserialize_with = "absolute")]
    pub(crate) directory: PathBuf,
    /// How much is kept of each pipe.
    #[serde(default = "output_bytes_max", deserialize_with = "count::<_, 0, 81_920>")]
    pub(crate) output_bytes_max: usize,
    /// The exit codes besides 75 that are tried again.
    #[serde(default)]
    pub(crate) retry_exit_codes: Vec<i32>,
}

fn root() -> PathBuf {
    PathBuf::from("/")
}

fn output_bytes_max() -> usize {
    64 * 1024
}

fn allow<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Allowed>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| Allowed::parse(text)).collect::<Result<_, _>>().map_err(Error::custom)
}

fn template<'de, D: Deserializer<'de>>(from: D) -> Result<Template, D::Error> {
    Template::parse(&Vec::<String>::deserialize(from)?).map_err(Error::custom)
}

fn absolute<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(from)?;
    match path.is_absolute() {
        true => Ok(path),
        false => Err(D::Error::custom(format!(
            "{} is not absolute; write the whole path, such as /usr/bin/convert",
            path.display()
        ))),
    }
}

impl Executors {
    /// What can only be checked on this machine.
    pub(super) fn check(&self) -> Result<(), String> {
        let command = &self.command;
        if !command.enabled {
            return Ok(());
        }
        if command.allow.is_empty() {
            return Err("executors.command: it is enabled and may run nothing; \
                        add a section [executors.command.allow.NAME]"
                .to_owned());
        }
        command.allow.iter().try_for_each(|(name, allowed)| {
            allowed.check().map_err(|why| format!("executors.command.allow.{name}: {why}"))
        })
    }
}

impl AllowedCommand {
    fn check(&self) -> Result<(), String> {
        let program = self.program.display();
        let found = self.program.metadata();
        let found = found.map_err(|error| format!("{program} cannot be used: {error}"))?;
        if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
            return Err(format!("{program} is no program; name a file that can be executed"));
        }
        if !self.directory.is_dir() {
            return Err(format!("directory: there is no folder {}", self.directory.display()));
        }
        let is_fit = |name: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !name.is_empty() && name.bytes().all(fits) && !name.starts_with("WINDLASS_")
        };
        if let Some(name) = self.env.keys().find(|name| !is_fit(name)) {
            return Err(format!(
                "env: {name:?} is no name; use letters, digits and _, not WINDLASS_"
            ));
        }
        if let Some((name, _)) = self.env.iter().find(|(_, value)| value.contains('\0')) {
            return Err(format!("env: {name} has a zero byte"));
        }
        match self.retry_exit_codes.iter().find(|code| !(1..=255).contains(*code)) {
            Some(code) => Err(format!("retry_exit_codes: {code} is none; they are from 1 to 255")),
            None => Ok(()),
        }
    }
}

/// `[[webhooks]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    #[serde(deserialize_with = "webhook_name")]
    pub(crate) name: String,
    #[serde(deserialize_with = "url")]
    pub(crate) url: Url,
    secret: Option<Secret>,
    secret_env: Option<String>,
    /// The secret that was used before: while it is there, both sign.
    secret_old: Option<Secret>,
    secret_old_env: Option<String>,
    /// Whose events it tells.
    #[serde(default = "default_tenant")]
    pub(crate) tenant: TenantId,
    /// In whose words.
    #[serde(default, deserialize_with = "contract")]
    pub(crate) contract: Option<&'static windlass_kernel::contract::Contract>,
    /// Does it tell events? One that does not is for alerts alone.
    #[serde(default = "yes")]
    pub(crate) feed: bool,
    /// Which events.
    #[serde(default)]
    pub(crate) events: EventFilter,
    #[serde(default = "webhook_retries", deserialize_with = "number::<_, 0, 100>")]
    pub(crate) max_retries: u64,
    /// The wait before the first retry, which doubles each time up to an hour.
    #[serde(
        default = "webhook_backoff",
        rename = "backoff_ms",
        deserialize_with = "ms::<_, 1, 3_600_000>"
    )]
    pub(crate) backoff: Duration,
    #[serde(
        default = "webhook_timeout",
        rename = "timeout_ms",
        deserialize_with = "ms::<_, 1, 300_000>"
    )]
    pub(crate) timeout: Duration,
}

/// Which events a webhook tells: those that fit everything that is said, and all if nothing is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventFilter {
    pub(crate) states: Vec<State>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) queues: Vec<Queue>,
}

impl EventFilter {
    /// Does it say nothing?
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty() && self.kinds.is_empty() && self.queues.is_empty()
    }
}

fn default_tenant() -> TenantId {
    TenantId::new(windlass::Engine::TENANT_DEFAULT).expect("the default name is a name")
}

fn yes() -> bool {
    true
}

fn webhook_retries() -> u64 {
    12
}

fn webhook_backoff() -> Duration {
    Duration::from_secs(5)
}

fn webhook_timeout() -> Duration {
    Duration::from_secs(15)
}

fn webhook_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        true => Ok(name),
        false => Err(D::Error::custom("use 1 to 64 letters, digits, - and _")),
    }
}

/// A path or a query may be the secret of the receiver, so the value is not shown.
fn url<'de, D: Deserializer<'de>>(from: D) -> Result<Url, D::Error> {
    let url = Url::parse(&String::deserialize(from)?);
    let url = url.map_err(|why| D::Error::custom(format!("it is no URL ({why})")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(D::Error::custom("begin it with https:// or http://"));
    }
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(url),
        false => {
            Err(D::Error::custom("leave name and password out; the receiver checks signatures"))
        }
    }
}

fn contract<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<&'static windlass_kernel::contract::Contract>, D::Error> {
    let name = String::deserialize(from)?;
    let found = windlass_kernel::contract::Contract::named(&name);
    let why = || D::Error::custom("there are the contracts runs, tasks, jobs and ingest");
    found.map(Some).ok_or_else(why)
}

impl Webhook {
    /// What can only be checked with the environment.
    pub(super) fn check(&self) -> Result<(), String> {
        self.secrets().map(drop).map_err(|why| format!("webhooks: {}: {why}", self.name))
    }

    /// The keys that deliveries are signed with, the newest first.
    pub(crate) fn secrets(&self) -> Result<Vec<Secret>, String> {
        let Some(secret) = secret_of("secret", self.secret.as_ref(), self.secret_env.as_deref())?
        else {
            return Err("it needs a secret or secret_env to sign what it sends".to_owned());
        };
        let old =
            secret_of("secret_old", self.secret_old.as_ref(), self.secret_old_env.as_deref())?;
        Ok(std::iter::once(secret).chain(old).collect())
    }
}

/// A secret of the file, or of the variable that the file names.
fn secret_of(
    key: &str,
    given: Option<&Secret>,
    variable: Option<&str>,
) -> Result<Option<Secret>, String> {
    match (given, variable) {
        (Some(_), Some(_)) => Err(format!("say {key} or {key}_env, not both")),
        (given, None) => Ok(given.cloned()),
        (None, Some(name)) => {
            let text = env::var(name).map_err(|_| format!("{key}_env: set {name}"))?;
            let secret = Secret::parse(&text);
            secret.map(Some).map_err(|why| format!("{key}_env: {name}: {why}"))
        }
    }
}

/// The key of signatures. It is never shown.
#[derive(Clone)]
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    const BYTES_MIN: usize = 16;

    /// `whsec_` and base64, or any text that is long enough.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bytes = match text.strip_prefix("whsec_") {
            Some(encoded) => BASE64_STANDARD.decode(encoded).map_err(|_| {
                "what follows whsec_ must be base64; `openssl rand -base64 32` makes some"
                    .to_owned()
            })?,
            None => text.as_bytes().to_vec(),
        };
        match bytes.len() >= Self::BYTES_MIN {
            true => Ok(Self(bytes)),
            false => Err(format!(
                "a secret has at least {} bytes; `openssl rand -base64 32` makes one",
                Self::BYTES_MIN
            )),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// `[alerts]`: from where on something is worth telling a person.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Alerts {
    /// The share of open jobs that wait for a retry, from 0 to 1.
    #[serde(deserialize_with = "share")]
    pub(crate) retrying_share: f64,
    /// With fewer open jobs than this the share says nothing.
    #[serde(deserialize_with = "number::<_, 1, 1_000_000_000>")]
    pub(crate) retrying_jobs_min: u64,
    /// New dead letters of a tenant a minute.
    #[serde(deserialize_with = "number::<_, 1, 1_000_000_000>")]
    pub(crate) dlq_per_minute: u64,
    /// Refusals with `INVALID_TRANSITION` a minute.
    #[serde(deserialize_with = "number::<_, 1, 1_000_000_000>")]
    pub(crate) invalid_transitions: u64,
    /// How long the oldest job of a queue has waited.
    #[serde(rename = "queue_age_ms", deserialize_with = "ms::<_, 1, 31_536_000_000>")]
    pub(crate) queue_age: Duration,
    /// Leases that ran out a minute.
    #[serde(deserialize_with = "number::<_, 1, 1_000_000_000>")]
    pub(crate) lease_churn: u64,
    /// Slots of the schedules of a tenant that were missed, a minute.
    #[serde(deserialize_with = "number::<_, 1, 1_000_000_000>")]
    pub(crate) skipped_slots: u64,
    /// How often to look.
    #[serde(rename = "look_every_ms", deserialize_with = "ms::<_, 100, 3_600_000>")]
    pub(crate) look_every: Duration,
    /// The webhook that is told, by its name.
    pub(crate) webhook: Option<String>,
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            retrying_share: 0.2,
            retrying_jobs_min: 20,
            dlq_per_minute: 10,
            invalid_transitions: 5,
            queue_age: Duration::from_secs(5 * 60),
            lease_churn: 20,
            skipped_slots: 1,
            look_every: Duration::from_secs(5),
            webhook: None,
        }
    }
}

impl Alerts {
    /// What the server compares with.
    pub(super) fn thresholds(&self) -> Thresholds {
        Thresholds {
            retrying_share: self.retrying_share,
            retrying_jobs_min: self.retrying_jobs_min,
            dlq_per_minute: self.dlq_per_minute,
            invalid_transitions: self.invalid_transitions,
            queue_age: self.queue_age,
            interruptions_per_minute: self.lease_churn,
            look_every: self.look_every,
            skipped_slots: self.skipped_slots,
        }
    }
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(from)?;
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(D::Error::custom("it is a share, such as 0.2 for a fifth")),
    }
}
