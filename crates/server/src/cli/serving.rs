//! A server that runs: what `serve` and `dev` share.
//!
//! Always true here: nobody is answered before everything is open, and what was begun has its grace at the end.

use std::{sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};
use windlass::{Config, Engine, Error};
use windlass_kernel::own_names::OWN_PREFIX;
use windlass_store::Client;

use super::{exit, trouble::Trouble};
use crate::{
    config,
    executors::BuiltIn,
    http::{self, App, Tls, TlsFiles},
    traces::{Teller, Traces},
    webhooks::Webhooks,
};

/// A server that is open and not yet answering.
pub(crate) struct Serving {
    pub(crate) app: Arc<App>,
    /// Where it answers.
    pub(crate) url: String,
    /// Ends it when it says so.
    pub(crate) stop: watch::Sender<bool>,
    /// Workers of its own besides the usual ones. They end when it stops, and before the store is closed.
    pub(crate) workers: Vec<JoinHandle<()>>,
    /// Those who look on until the last worker has ended, which [`closing`](Self::closing) tells them.
    pub(crate) onlookers: Vec<JoinHandle<()>>,
    pub(crate) closing: watch::Sender<bool>,
    setup: config::Config,
    listener: TcpListener,
    tls: Option<Tls>,
    teller: Option<Teller>,
}

impl Serving {
    /// Opens the store.
    pub(crate) async fn open(
        setup: config::Config,
        listener: TcpListener,
    ) -> Result<Self, Trouble> {
        let server = &setup.server;
        let address = listener.local_addr().map_err(|error| Trouble::failed(error.to_string()))?;
        let tls = server.tls.clone();
        let tls = tls.map(|(certificate, key)| Tls::open(TlsFiles { certificate, key }));
        let tls = tls.transpose().map_err(|error| Trouble::usage(error.to_string()))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        let (traces, teller) = Traces::open(&setup.traces).map_err(Trouble::usage)?;
        let (address, tracer) = (Some(url.clone()), traces.tracer());
        let config = Config { address, tracer, ..Config::default() };
        let engine = Engine::open_with(&server.store, &config).await;
        let engine = engine.map_err(|error| match error {
            Error::Store(error) => Trouble::of_store(&error),
            other => Trouble::usage(format!("{other:?}")),
        })?;
        let (stop, stopping) = watch::channel(false);
        let app = Arc::new(App::new(engine, server.settings.clone(), traces, stopping));
        let (workers, onlookers, closing) = (Vec::new(), Vec::new(), watch::channel(false).0);
        Ok(Self { app, url, stop, workers, onlookers, closing, setup, listener, tls, teller })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.app.engine
    }

    pub(crate) fn setup(&self) -> &config::Config {
        &self.setup
    }

    /// Answers until it is told to stop, and ends in good order.
    pub(crate) async fn run(self) -> Result<(), Trouble> {
        let Self { app, setup, listener, tls, teller, stop, workers, onlookers, closing, .. } =
            self;
        let (engine, stopping) = (app.engine.clone(), stop.subscribe());
        let failed = |error: Error| Trouble::failed(exit::chain(&error));
        let worker =
            engine.worker().name("windlass.server").queues([http::OPERATION_QUEUE]).concurrency(4);
        let worker = worker.handle_kind(http::OPERATION_KIND, http::carry_out).start().await;
        let worker = worker.map_err(failed)?;
        let grace = setup.server.settings.grace;
        let built_in =
            BuiltIn::start(&engine, OWN_PREFIX, &setup.executors, grace, &stopping).await;
        let built_in = built_in.map_err(failed)?;
        let webhooks = Webhooks::start(&app, &setup).await.map_err(failed)?;
        let watching = tokio::spawn(end_with_the_store(engine.clone(), stop));
        http::serve(app, listener, tls, stopping).await;
        let ending = async {
            let _ = worker.shutdown().await;
            webhooks.ended().await;
            built_in.ended().await;
            all(workers).await;
            closing.send_replace(true);
            all(onlookers).await;
        };
        match engine.health().stopped {
            None => ending.await,
            // Nothing of what still runs can be written down: a supervisor must not wait for it.
            Some(_) => drop(tokio::time::timeout(grace, ending).await),
        }
        watching.abort();
        let _ = watching.await;
        let (store, stopped) = (engine.store().clone(), engine.health().stopped);
        engine.close().await;
        close(store, grace).await;
        if let Some(teller) = teller {
            teller.finish().await;
        }
        match stopped {
            None => Ok(()),
            Some(error) => Err(Trouble::of_stopped(&error)),
        }
    }
}

/// A store that has stopped acknowledges nothing any more and never recovers: the process ends, so that whoever looks
/// after it starts it again.
async fn end_with_the_store(engine: Engine, stop: watch::Sender<bool>) {
    let error = engine.stopped().await;
    tracing::error!(error = exit::chain(&*error), "the store has stopped, and the process ends");
    stop.send_replace(true);
}

/// Closes the store, in this order: whoever still has it lets go, and then what it keeps beside its file is folded into it.
/// A copy of that file alone has everything then. Who is too slow is not waited for: the next start folds it.
async fn close(store: Arc<dyn Client>, most: Duration) {
    let closing = async move {
        while Arc::strong_count(&store) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _ = tokio::task::spawn_blocking(move || drop(store)).await;
    };
    if tokio::time::timeout(most, closing).await.is_err() {
        tracing::warn!("somebody still has the store: its write-ahead log stays beside it");
    }
}

/// Waits until all have ended.
async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        let _ = task.await;
    }
}

/// Logs go to stderr: JSON, if that is wanted. `WINDLASS_LOG` says what is logged, else `usual` does.
pub(crate) fn log(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WINDLASS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let is_json = std::env::var("WINDLASS_LOG_FORMAT").is_ok_and(|format| format == "json");
    let _ = match is_json {
        true => builder.json().try_init(),
        false => builder.with_ansi(false).try_init(),
    };
}

/// Ready when somebody wants the process to end.
pub(crate) async fn signalled() {
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Runs work on all cores to its end.
pub(crate) fn on_threads(work: impl Future<Output = Result<(), Trouble>>) -> Result<(), Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Trouble::failed(format!("cannot start threads: {error}")))?;
    let ended = runtime.block_on(work);
    // A thread that waits for a key must not keep the process.
    runtime.shutdown_background();
    ended
}
