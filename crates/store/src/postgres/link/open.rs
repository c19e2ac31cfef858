//! Opens a store: where the server is, what each connection is told, and the schema brought up to date.

use std::{path::PathBuf, sync::Arc, time::Duration};

use deadpool_postgres::ClientWrapper;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio_postgres::{Client, Config, config::TargetSessionAttrs};

use super::{
    pipeline::{Ask, run_for_row, run_one},
    pool::{Connector, Pool},
    schema, way,
};
use crate::{
    Error, Ticks, migrate,
    postgres::{Clock, Failure, Inner, PgResult, row::column::number},
    without_password,
};

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Where the server is, and as whom.
    pub config: Config,
    /// The schema that holds the tables. It is made if it is not there.
    pub schema: String,
    /// A clock in place of the database's own, for tests.
    pub clock: Option<Clock>,
    /// A monotonic clock in place of this machine's, for tests. A clock that is given without ticks is all there is.
    pub ticks: Option<Ticks>,
    /// How many connections are kept, at the most.
    pub connections: usize,
    /// How long a call waits for an answer.
    pub deadline: Duration,
    /// How the server has to prove who it is, if TLS is used.
    pub verify: Verify,
}

/// How the server has to prove who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Not at all. What is sent is encrypted, and might be sent to anyone.
    #[default]
    Nothing,
    /// By a certificate of an authority that this machine trusts.
    System,
    /// By a certificate of an authority in this file.
    File(PathBuf),
}

impl Options {
    /// The schema, unless another is named.
    pub const SCHEMA_DEFAULT: &str = "windlass";

    /// The options of a URL such as `postgres://user:password@host:5432/database`.
    ///
    /// Beside what PostgreSQL's own clients take, `sslmode=verify-full`, `sslrootcert=FILE` and
    /// `schema=NAME` are understood. A server on another machine has to prove who it is, as `verify-full` says,
    /// unless another `sslmode` is given; `prefer` means `require` there.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let cannot = |why: String| Error::Open { path: without_password(url), source: why.into() };
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut schema, mut file, mut verifies) = (Self::SCHEMA_DEFAULT.to_owned(), None, false);
        let mut sslmode = None;
        let mut rest = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("schema", name)) => name.clone_into(&mut schema),
                Some(("sslrootcert", path)) => file = Some(PathBuf::from(path)),
                Some(("sslmode", "verify-full" | "verify-ca")) => {
                    (verifies, sslmode) = (true, Some("verify-full"));
                    rest.push("sslmode=require");
                }
                Some(("sslmode", mode)) => {
                    sslmode = Some(mode);
                    rest.push(part);
                }
                _ => rest.push(part),
            }
        }
        let url = format!("{base}?{}", rest.join("&"));
        let url = url.trim_end_matches('?');
        let mut config: Config = url
            .parse()
            .map_err(|error: tokio_postgres::Error| cannot(Failure::from(error).to_string()))?;
        if config.get_application_name().is_none() {
            config.application_name("windlass");
        }
        let mut verify = match file {
            Some(file) => Verify::File(file),
            None if verifies => Verify::System,
            None => Verify::Nothing,
        };
        way::settle(&mut config, &mut verify, sslmode);
        Ok(Self { schema, verify, ..Self::new(config) })
    }

    /// The usual options for this server.
    pub fn new(mut config: Config) -> Self {
        config
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .keepalives_idle(Duration::from_secs(10));
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        Self {
            config,
            schema: Self::SCHEMA_DEFAULT.to_owned(),
            clock: None,
            ticks: None,
            connections: 8,
            deadline: Duration::from_secs(10),
            verify: Verify::Nothing,
        }
    }

    /// What the store is called when something is said about it.
    pub fn name(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let ports = self.config.get_ports();
        // One port is for all hosts; the usual one need not be read.
        let port = |place: usize| ports.get(place).or(ports.first()).filter(|port| **port != 5432);
        let hosts: Vec<String> = hosts
            .enumerate()
            .map(|(place, host)| match port(place) {
                Some(port) => format!("{host}:{port}"),
                None => host,
            })
            .collect();
        let database = self.config.get_dbname().unwrap_or_default();
        format!("postgres://{}/{database}?schema={}", hosts.join(","), self.schema)
    }

    pub(crate) fn cannot_open(&self, why: impl Into<crate::error::BoxError>) -> Error {
        Error::Open { path: self.name(), source: why.into() }
    }
}

impl Options {
    /// What it means to whoever opens a store that a call failed.
    pub(crate) fn not_opened(&self, failure: Failure) -> Error {
        if failure.is_away() {
            return Error::Unavailable(format!("{}: {failure}", self.name()).into());
        }
        match failure.into_error() {
            Error::Unavailable(source) | Error::Contradiction(source) => self.cannot_open(source),
            other => self.cannot_open(other),
        }
    }
}

/// The name of a schema as SQL has it. None, if it is no plain name.
pub(crate) fn quoted(schema: &str) -> Option<String> {
    let plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
    let is_plain = schema.bytes().all(plain) && (1..=63).contains(&schema.len());
    is_plain.then(|| format!("\"{schema}\""))
}

/// What each connection is told.
///
/// A node that is cut off in the middle of a commit may have locked what all others wait for: its transaction
/// ends before they give up. One that is cut off in the middle of a message is found by keep-alives.
///
/// All that we ask is served by an index, and a plan that was made while a table was small must not stay when
/// it is large: so the planner is told not to look for anything else. The log is compressed by the quicker of
/// two ways, where the server has it.
fn greeting(schema: &str) -> String {
    format!(
        "SET search_path = {schema};
         SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
         SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_generic_plan;
         SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '3s';
         SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;
         SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') = 'off';
         SELECT set_config(name, 'lz4', false) FROM pg_settings
             WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)"
    )
}

/// Connects and brings the schema up to date.
pub(crate) async fn open(options: Options) -> Result<Inner, Error> {
    let Some(name) = quoted(&options.schema) else {
        let why = "a schema has a name of small letters, digits and underscores";
        return Err(options.cannot_open(why));
    };
    let greeting = greeting(&name);
    let connector = Connector::new(&options, greeting.clone())?;
    let feed_lock = schema::bring_up_to_date(&options, &connector, migrate::POSTGRES).await?;
    let connector = Connector::new(&options, format!("{greeting}; SELECT meet_server()"))?;
    let wake = super::wake::Wake::new(&options, connector.clone());
    Ok(Inner {
        pool: Pool::new(&options, connector)?,
        time: super::server_time::ServerTime::new(options.clock, options.ticks).into(),
        deadline: options.deadline,
        names: crate::postgres::Names::default(),
        rules: crate::postgres::claim::rules::Rules::default(),
        ready: crate::postgres::claim::ready::Ready::default(),
        held: std::sync::Mutex::default(),
        sweep: tokio::sync::Mutex::default(),
        wake,
        sooner: crate::news::Sooner::default(),
        presence: super::presence::Presence::default(),
        feed_lock,
        incarnation: std::sync::atomic::AtomicU32::new(0),
    })
}

const LOOK: &str = "SELECT pg_is_in_recovery()";

/// Is the server there, and can it be written to?
pub(crate) async fn look(client: &ClientWrapper) -> PgResult<()> {
    match run_one(client, Ask::new(LOOK)).await?[0].try_get(0)? {
        false => Ok(()),
        true => {
            let why = "the server is a standby, which cannot be written to";
            Err(Failure::Known(Error::Unavailable(why.into())))
        }
    }
}

const INCARNATION: &str = "SELECT value::bigint FROM meta WHERE name = 'incarnation'";
const RAISE: &str = "
    UPDATE meta SET value = value::bigint + 1 WHERE name = 'incarnation' RETURNING value::bigint";

pub(crate) async fn read_incarnation(client: &ClientWrapper) -> PgResult<u32> {
    let row = run_for_row(client, Ask::new(INCARNATION), "meta has no incarnation").await?;
    Ok(u32::try_from(number(&row, 0)?).unwrap_or(u32::MAX))
}

/// Begins a new incarnation: epochs jump ahead of all that were handed out before.
pub(crate) async fn raise_incarnation(client: &ClientWrapper) -> PgResult<u32> {
    let row = run_for_row(client, Ask::new(RAISE), "meta has no incarnation").await?;
    Ok(u32::try_from(number(&row, 0)?).unwrap_or(u32::MAX))
}

/// TLS as it is asked for.
pub(crate) fn tls_config(options: &Options) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| options.cannot_open(error))?;
    let roots = match &options.verify {
        Verify::Nothing => {
            let anyone = Arc::new(Anyone(provider));
            let builder = builder.dangerous().with_custom_certificate_verifier(anyone);
            return Ok(builder.with_no_client_auth());
        }
        Verify::System => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
        Verify::File(path) => {
            let unreadable = |why: String| {
                options.cannot_open(format!("the certificates in {}: {why}", path.display()))
            };
            let mut roots = RootCertStore::empty();
            let read = CertificateDer::pem_file_iter(path);
            for certificate in read.map_err(|error| unreadable(error.to_string()))? {
                let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
                roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            }
            roots
        }
    };
    if roots.is_empty() {
        return Err(options.cannot_open("there is no authority that could vouch for the server"));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Takes anyone for the server, as PostgreSQL's own clients do unless they are told to verify.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What a store takes on the disk: all tables and indexes of its schema.
pub async fn size_bytes(options: &Options) -> Result<u64, Error> {
    let sql = "
        SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = $1 AND relkind = 'r'";
    on_a_connection(options, async |client| {
        let size: i64 = client.query_one(sql, &[&options.schema]).await?.get(0);
        Ok(u64::try_from(size).unwrap_or(0))
    })
    .await
}

/// Removes a store with everything in it.
pub async fn remove(options: &Options) -> Result<(), Error> {
    let Some(schema) = quoted(&options.schema) else { return Ok(()) };
    on_a_connection(options, async |client| {
        client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await
    })
    .await
}

async fn on_a_connection<T>(
    options: &Options,
    ask: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
) -> Result<T, Error> {
    let connector = Connector::new(options, String::new())?;
    let connected = connector.alone(&options.config, || {}).await;
    let (client, task) = connected.map_err(|failure| options.not_opened(failure))?;
    let answer = ask(&client).await.map_err(|error| Failure::from(error).into_error());
    task.abort();
    answer
}
