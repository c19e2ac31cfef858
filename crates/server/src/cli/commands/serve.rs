//! `windlass serve`: the server.

use std::sync::Arc;

use clap::Args;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use windlass::Engine;
use windlass_store::{read::Scope, without_password};

use crate::cli::{
    exit,
    look::terminal,
    reload,
    serving::{self, Serving, signalled},
    trouble::Trouble,
};
use crate::config::{self, ServerArgs};

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

pub(crate) fn run(command: &Serve) -> Result<(), Trouble> {
    use_small_pages();
    serving::on_threads(serve(command))
}

/// Of each connection's buffers a little is used. In pages of 2 MB all of it would take memory, which for 5,000 callers
/// that wait was 80 MB; what a call takes was the same with pages of 4 KB. Programs that it starts inherit it.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

async fn serve(command: &Serve) -> Result<(), Trouble> {
    serving::log("info");
    // From now on a hangup does not end the process.
    let hangup = signal(SignalKind::hangup());
    let hangup = hangup.map_err(|error| Trouble::failed(error.to_string()))?;
    let setup = config::Config::load(&command.server).map_err(Trouble::usage)?;
    let server = &setup.server;
    config::warn_of_readers(command.server.config.as_deref(), &server.store);
    if server.store == "sqlite::memory:" {
        let what = "a server must not lose what it accepted, and memory does.";
        return Err(Trouble::usage(what).then("Name a file: --store sqlite:windlass.db."));
    }
    if server.settings.dev && !server.listen.ip().is_loopback() {
        let what = format!(
            "--dev lets everybody do everything, so it listens on this machine only, not on {}.",
            server.listen
        );
        return Err(Trouble::usage(what).then("Leave --dev out, or listen on 127.0.0.1."));
    }
    let listener = TcpListener::bind(server.listen).await.map_err(|error| {
        let what = format!("cannot listen on {}: {error}.", server.listen);
        Trouble::new(exit::CONFLICT, what).then("Name another address with --listen HOST:PORT.")
    })?;
    let serving = Serving::open(setup, listener).await?;
    check_tokens(&serving.setup().server, serving.engine()).await?;
    let stop = serving.stop.clone();
    tokio::spawn(async move {
        signalled().await;
        tracing::info!("stopping");
        stop.send_replace(true);
    });
    let app = Arc::downgrade(&serving.app);
    tokio::spawn(reload::on_hangup(app, command.server.clone(), hangup));
    let store = without_password(&serving.setup().server.store);
    terminal::print(&format!("windlass serves {store} at {}\n", serving.url));
    serving.run().await
}

/// Whoever can be reached from elsewhere must know who calls.
async fn check_tokens(server: &config::Server, engine: &Engine) -> Result<(), Trouble> {
    if server.settings.dev {
        return Ok(());
    }
    let tokens = async { engine.own_store()?.tokens(&Scope::Every).await }.await;
    let tokens = tokens.map_err(|error| Trouble::of_store(&error))?;
    if tokens.iter().any(|token| token.is_live(engine.now())) {
        return Ok(());
    }
    let how = format!(
        "Make one with: windlass token add NAME --role admin --store {}",
        without_password(&server.store)
    );
    if server.listen.ip().is_loopback() {
        let what = "windlass: there is no token yet, so nobody can do anything.";
        terminal::say(&format!("{what}\n{how}"));
        return Ok(());
    }
    let what = format!(
        "{} can be reached from elsewhere, and there is no token that says who may come in.",
        server.listen
    );
    Err(Trouble::usage(what).then(how))
}
