//! Connections: how they are made, kept, and thrown away.
//!
//! A connection that was in the middle of something when its user gave up is not used again: nobody knows
//! what it would answer.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use deadpool_postgres::{
    ClientWrapper, Connect, Manager, ManagerConfig, Object, PoolConfig, RecyclingMethod,
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_postgres::{
    AsyncMessage, Client, Config, NoTls, Socket, config::SslMode, error::DbError,
    tls::MakeTlsConnect,
};

use super::open::Options;
use crate::{
    Error,
    postgres::{Failure, PgResult},
};

/// Connections that are kept.
pub(crate) struct Pool {
    pool: deadpool_postgres::Pool,
}

impl Pool {
    pub(crate) fn new(options: &Options, connector: Connector) -> Result<Self, Error> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(options.config.clone(), connector, config);
        let pool = deadpool_postgres::Pool::builder(manager)
            .config(PoolConfig::new(options.connections.max(1)))
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .build();
        let pool = pool.map_err(|error| options.cannot_open(error.to_string()))?;
        Ok(Self { pool })
    }

    pub(crate) async fn get(&self) -> PgResult<Borrowed> {
        Ok(Borrowed { client: Some(self.pool.get().await?) })
    }
}

/// A connection in use. Unless it is given back, it is closed.
pub(crate) struct Borrowed {
    client: Option<Object>,
}

impl Borrowed {
    pub(crate) fn get(&self) -> &ClientWrapper {
        self.client.as_ref().expect("it is there until it is given back")
    }

    /// Returns the connection to the pool. It must be in no transaction and wait for no answer.
    pub(crate) fn give_back(&mut self) {
        self.client = None;
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

/// How long one host is waited for, unless the options say otherwise.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Makes connections, and says to each what all of ours have in common.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<tokio_postgres_rustls::MakeRustlsConnect>,
    /// Run on each new connection.
    greeting: Arc<str>,
}

impl Connector {
    pub(crate) fn new(options: &Options, greeting: String) -> Result<Self, Error> {
        let wants_tls = options.config.get_ssl_mode() != SslMode::Disable;
        let tls = if wants_tls { Some(tls(options)?) } else { None };
        Ok(Self { tls, greeting: greeting.into() })
    }

    /// A connection of its own, for what does not go through the pool. What the server says without being
    /// asked is heard. A server that takes the connection and then says nothing is given up.
    pub(crate) async fn alone(
        &self,
        config: &Config,
        hear: impl Fn() + Send + 'static,
    ) -> PgResult<(Client, JoinHandle<()>)> {
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX).max(1);
        let each = config.get_connect_timeout().copied().unwrap_or(CONNECT_MAX);
        let most = each.saturating_mul(hosts);
        match timeout(most, self.greet(config, hear)).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Failure::TimedOut(most)),
        }
    }

    /// Connects and says what all of ours have in common.
    async fn greet(
        &self,
        config: &Config,
        hear: impl Fn() + Send + 'static,
    ) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => connect(config, tls.clone(), &self.greeting, hear).await,
            None => connect(config, NoTls, &self.greeting, hear).await,
        }
    }
}

impl Connect for Connector {
    fn connect(
        &self,
        config: &Config,
    ) -> Pin<
        Box<
            dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>>
                + Send
                + '_,
        >,
    > {
        let config = config.clone();
        Box::pin(async move { self.greet(&config, || {}).await })
    }
}

async fn connect<T>(
    config: &Config,
    tls: T,
    greeting: &str,
    hear: impl Fn() + Send + 'static,
) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket> + Send,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    let (client, mut connection) = config.connect(tls).await?;
    // When this task ends, calls that wait for an answer on the connection fail.
    let task = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                AsyncMessage::Notification(_) => hear(),
                AsyncMessage::Notice(notice) if is_not_replicated(&notice) => break,
                _ => {}
            }
        }
    });
    client.batch_execute(greeting).await?;
    Ok((client, task))
}

/// Did somebody cancel a commit that waited for its standby? The server then says that all is well, and only
/// warns that the standby may not have it. So the connection ends before that answer is read, and the commit
/// counts as one whose answer was lost. The message is translated; the place that it comes from is not.
fn is_not_replicated(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// TLS as `sslmode` asks for it: `verify-full` checks who answers, the others encrypt, as PostgreSQL's own
/// clients do.
fn tls(options: &Options) -> Result<tokio_postgres_rustls::MakeRustlsConnect, Error> {
    super::open::tls_config(options).map(tokio_postgres_rustls::MakeRustlsConnect::new)
}
