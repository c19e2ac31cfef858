//! `windlass serve`: the server.

use std::{process::ExitCode, sync::Arc};

use clap::Args;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use windlass::{Config, Engine, Error};
use windlass_store::read::Scope;

use super::{exit, reload, store};
use crate::{
    config::{self, ServerArgs, without_password},
    executors::BuiltIn,
    http::{self, App, Tls, TlsFiles},
    webhooks::Webhooks,
};

/// Serve jobs over HTTP.
#[derive(Args)]
#[command(after_help = "\
    Each setting can be given as a flag, as a WINDLASS_* variable or in the config file, in that order.\n\
    SIGHUP reads the file again: limits and thresholds hold at once, and what needs a restart is told in the log.\n\
    Tokens are read from the store and need neither.")]
pub(crate) struct Serve {
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(command: &Serve) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return exit::fail(exit::FAILED, &format!("cannot start threads: {error}")),
    };
    match runtime.block_on(serve(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

async fn serve(command: &Serve) -> Result<(), ExitCode> {
    log();
    // From now on a hangup does not end the process.
    let hangup = signal(SignalKind::hangup());
    let hangup = hangup.map_err(|error| exit::fail(exit::FAILED, &error.to_string()))?;
    let setup = config::Config::load(&command.server);
    let setup = setup.map_err(|error| exit::fail(exit::USAGE, &error))?;
    let server = &setup.server;
    if server.store == "sqlite::memory:" {
        let message = "a server must not lose what it accepted, and memory does.\n\
                       Name a file: --store sqlite:windlass.db.";
        return Err(exit::fail(exit::USAGE, message));
    }
    if server.settings.dev && !server.listen.ip().is_loopback() {
        let message = format!(
            "--dev lets everybody do everything, so it listens on this machine only, not on {}.\n\
             Leave --dev out, or listen on 127.0.0.1.",
            server.listen
        );
        return Err(exit::fail(exit::USAGE, &message));
    }
    let listener = TcpListener::bind(server.listen).await.map_err(|error| {
        let message = format!(
            "cannot listen on {}: {error}.\nName another address with --listen HOST:PORT.",
            server.listen
        );
        exit::fail(exit::CONFLICT, &message)
    })?;
    let address =
        listener.local_addr().map_err(|error| exit::fail(exit::FAILED, &error.to_string()))?;
    let tls = server
        .tls
        .clone()
        .map(|(certificate, key)| Tls::open(TlsFiles { certificate, key }))
        .transpose();
    let tls = tls.map_err(|error| exit::fail(exit::USAGE, &error.to_string()))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let config = Config { address: Some(format!("{scheme}://{address}")), ..Config::default() };
    let engine = Engine::open_with(&server.store, &config).await.map_err(|error| match error {
        Error::Store(error) => store::fail(&error),
        other => exit::fail(exit::USAGE, &format!("{other:?}")),
    })?;
    check_tokens(server, &engine).await?;
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(async move {
        signalled().await;
        tracing::info!("stopping");
        stop.send_replace(true);
        // Kept, so that nobody takes its end for an order.
        std::future::pending::<()>().await;
    });
    let settings = server.settings.clone();
    let grace = settings.grace;
    let app = Arc::new(App::new(engine.clone(), settings, stopping.clone()));
    tokio::spawn(reload::on_hangup(app.clone(), command.server.clone(), hangup));
    println!("windlass serves {} at {scheme}://{address}", without_password(&server.store));
    let worker = engine.worker().name("server").queues([http::OPERATION_QUEUE]).concurrency(4);
    let worker = worker.handle_kind(http::OPERATION_KIND, http::carry_out).start().await;
    let worker = worker.map_err(|error| exit::fail(exit::FAILED, &error.to_string()))?;
    let failed = |error: Error| exit::fail(exit::FAILED, &error.to_string());
    let built_in = BuiltIn::start(&engine, &setup.executors, grace, &stopping).await;
    let built_in = built_in.map_err(failed)?;
    let webhooks = Webhooks::start(&app, &setup).await.map_err(failed)?;
    http::serve(app, listener, tls, stopping).await;
    let _ = worker.shutdown().await;
    webhooks.ended().await;
    built_in.ended().await;
    engine.close().await;
    Ok(())
}

/// Whoever can be reached from elsewhere must know who calls.
async fn check_tokens(server: &config::Server, engine: &Engine) -> Result<(), ExitCode> {
    if server.settings.dev {
        return Ok(());
    }
    let tokens = engine.store().tokens(&Scope::Every).await.map_err(|error| store::fail(&error))?;
    if tokens.iter().any(|token| token.is_live(engine.now())) {
        return Ok(());
    }
    let how = format!(
        "Make one with: windlass token add NAME --role admin --store {}",
        without_password(&server.store)
    );
    if server.listen.ip().is_loopback() {
        eprintln!("windlass: there is no token yet, so nobody can do anything.\n{how}");
        return Ok(());
    }
    let message = format!(
        "{} can be reached from elsewhere, and there is no token that says who may come in.\n{how}",
        server.listen
    );
    Err(exit::fail(exit::USAGE, &message))
}

/// Logs go to stderr: JSON, if that is wanted.
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WINDLASS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let is_json = std::env::var("WINDLASS_LOG_FORMAT").is_ok_and(|format| format == "json");
    let _ = match is_json {
        true => builder.json().try_init(),
        false => builder.with_ansi(false).try_init(),
    };
}

/// Ready when somebody wants the process to end.
async fn signalled() {
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
