//! The section `[server]`, and the flags and variables that stand above it.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, builder::BoolishValueParser};
use serde::{Deserialize, Deserializer, de::Error};

use super::{keys::bounds, read::within};
use crate::http::Settings;

/// Where a server listens, if nothing is said.
pub(crate) const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7117);

/// What the flags and the environment say.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServerArgs {
    /// A file with everything that can be set; flags and variables stand above it.
    #[arg(long, env = "WINDLASS_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The database: sqlite:FILE or postgres://HOST/DATABASE [default: sqlite:windlass.db].
    #[arg(long, env = "WINDLASS_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Where to listen. Port 0 takes a free one [default: 127.0.0.1:7117].
    #[arg(long, env = "WINDLASS_LISTEN")]
    listen: Option<SocketAddr>,
    /// For development on this machine: no token is needed, and jobs can be run by a call.
    #[arg(
        long, env = "WINDLASS_DEV", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = BoolishValueParser::new()
    )]
    dev: Option<bool>,
    /// The most bytes of a request's body.
    #[arg(long, env = "WINDLASS_BODY_BYTES_MAX", hide_short_help = true)]
    body_bytes_max: Option<u64>,
    /// The most bytes of bodies and answers at once; a tenant has a quarter of them.
    #[arg(long, env = "WINDLASS_MEMORY_BYTES_MAX", hide_short_help = true)]
    memory_bytes_max: Option<u64>,
    /// How long a body may take to come.
    #[arg(long, env = "WINDLASS_BODY_TIMEOUT_MS", hide_short_help = true)]
    body_timeout_ms: Option<u64>,
    /// How long the head of a request may take to come.
    #[arg(long, env = "WINDLASS_HEADER_TIMEOUT_MS", hide_short_help = true)]
    header_timeout_ms: Option<u64>,
    /// The most connections at once.
    #[arg(long, env = "WINDLASS_CONNECTIONS_MAX", hide_short_help = true)]
    connections_max: Option<u64>,
    /// The most calls at once, but for those of workers.
    #[arg(long, env = "WINDLASS_CALLS_MAX", hide_short_help = true)]
    calls_max: Option<u64>,
    /// How many calls a second a principal may make.
    #[arg(long, env = "WINDLASS_CALLS_PER_SECOND", hide_short_help = true)]
    calls_per_second: Option<u64>,
    /// How long what is open may take to end, when the server stops.
    #[arg(long, env = "WINDLASS_GRACE_MS", hide_short_help = true)]
    grace_ms: Option<u64>,
    /// A file with the certificate of the server and its chain, in PEM.
    #[arg(long, env = "WINDLASS_TLS_CERTIFICATE", value_name = "FILE", hide_short_help = true)]
    tls_certificate: Option<PathBuf>,
    /// A file with the key of the certificate, in PEM.
    #[arg(long, env = "WINDLASS_TLS_KEY", value_name = "FILE", hide_short_help = true)]
    tls_key: Option<PathBuf>,
}

impl ServerArgs {
    /// What a server for development is told.
    pub(crate) fn for_development(
        config: Option<PathBuf>,
        store: Option<String>,
        listen: Option<SocketAddr>,
    ) -> Self {
        Self { config, store, listen, dev: Some(true), ..Self::default() }
    }

    /// Nothing but a file.
    pub(crate) fn of_file(config: Option<PathBuf>) -> Self {
        Self { config, ..Self::default() }
    }
}

/// The section of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerSection {
    store: Option<String>,
    #[serde(deserialize_with = "listen")]
    listen: Option<SocketAddr>,
    dev: Option<bool>,
    body_bytes_max: Option<u64>,
    memory_bytes_max: Option<u64>,
    body_timeout_ms: Option<u64>,
    header_timeout_ms: Option<u64>,
    connections_max: Option<u64>,
    calls_max: Option<u64>,
    calls_per_second: Option<u64>,
    grace_ms: Option<u64>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
}

/// How the server itself is set up.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) store: String,
    pub(crate) listen: SocketAddr,
    /// The bounds of calls, and whether it is for development.
    pub(crate) settings: Settings,
    /// The files of certificate and key, if it speaks TLS.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
}

fn listen<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    let why = || format!("{text:?} is no address; write it as \"127.0.0.1:7117\"");
    text.parse().map(Some).map_err(|_| D::Error::custom(why()))
}

impl ServerSection {
    /// What holds in the end.
    pub(super) fn under(self, args: &ServerArgs) -> Result<Server, String> {
        let flags = args.clone();
        let mut settings = Settings::new(flags.dev.or(self.dev).unwrap_or(false));
        let set = |name, flag: Option<u64>, file: Option<u64>| {
            let number = flag.or(file).map(|number| within(number, &bounds(name))).transpose();
            number.map_err(|why| format!("{name}: {why}"))
        };
        let count = |number: u64| usize::try_from(number).map_err(|why| why.to_string());
        if let Some(bytes) = set("body_bytes_max", flags.body_bytes_max, self.body_bytes_max)? {
            settings.body_bytes_max = count(bytes)?;
        }
        let memory = (flags.memory_bytes_max, self.memory_bytes_max);
        if let Some(bytes) = set("memory_bytes_max", memory.0, memory.1)? {
            settings.memory_bytes_max = count(bytes)?;
        }
        if let Some(ms) = set("body_timeout_ms", flags.body_timeout_ms, self.body_timeout_ms)? {
            settings.body_timeout = Duration::from_millis(ms);
        }
        let timeout = (flags.header_timeout_ms, self.header_timeout_ms);
        if let Some(ms) = set("header_timeout_ms", timeout.0, timeout.1)? {
            settings.header_timeout = Duration::from_millis(ms);
        }
        if let Some(places) = set("connections_max", flags.connections_max, self.connections_max)? {
            settings.connections_max = count(places)?;
        }
        if let Some(calls) = set("calls_max", flags.calls_max, self.calls_max)? {
            settings.calls_max = count(calls)?;
        }
        let calls = (flags.calls_per_second, self.calls_per_second);
        if let Some(calls) = set("calls_per_second", calls.0, calls.1)? {
            settings.calls_per_second = u32::try_from(calls).map_err(|why| why.to_string())?;
        }
        if let Some(ms) = set("grace_ms", flags.grace_ms, self.grace_ms)? {
            settings.grace = Duration::from_millis(ms);
        }
        let tls = flags.tls_certificate.or(self.tls_certificate);
        let tls = match (tls, flags.tls_key.or(self.tls_key)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err("tls_certificate: name its tls_key, too".to_owned()),
            (None, Some(_)) => return Err("tls_key: name its tls_certificate, too".to_owned()),
        };
        let store = flags.store.or(self.store).unwrap_or_else(|| "sqlite:windlass.db".to_owned());
        let listen = flags.listen.or(self.listen).unwrap_or(LISTEN_DEFAULT);
        Ok(Server { store, listen, settings, tls })
    }
}
