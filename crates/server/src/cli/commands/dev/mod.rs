//! `windlass dev`: the first five minutes. A server on this machine, with a file that is kept and no token, that says
//! where everything is and then what happens, line by line.

mod banner;
mod line;
mod log;
mod resumed;

use std::{io, net::SocketAddr, path::PathBuf};

use clap::Args;
use tempfile::TempDir;
use tokio::net::TcpListener;

use self::{banner::Banner, log::Log};
use crate::cli::{
    commands::demo::told,
    exit,
    look::{
        keys::Keys,
        terminal::{print, say},
        view::{View, now},
    },
    serving::{self, Serving, signalled},
    trouble::Trouble,
};
use crate::{
    config::{self, LISTEN_DEFAULT, ServerArgs},
    demo,
};

/// Serve on this machine to try things out: no token, a file that is kept, and a demo.
#[derive(Args)]
pub(crate) struct Dev {
    /// Put the database into a temporary folder, which goes at the end.
    #[arg(long, conflicts_with = "store")]
    ephemeral: bool,
    /// The database: sqlite:FILE or postgres://HOST/DATABASE [default: sqlite:windlass.db].
    #[arg(long, env = "WINDLASS_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Where to listen [default: 127.0.0.1:7117, or the next port that is free].
    #[arg(long, env = "WINDLASS_LISTEN")]
    listen: Option<SocketAddr>,
    /// A file with everything that can be set, as `serve` has it.
    #[arg(long, env = "WINDLASS_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the demo writes down its effects, so that they can be counted outside.
    #[arg(long, value_name = "FILE", hide = true)]
    demo_ledger: Option<PathBuf>,
}

pub(crate) fn run(command: &Dev, view: &View) -> Result<(), Trouble> {
    serving::on_threads(dev(command, view))
}

async fn dev(command: &Dev, view: &View) -> Result<(), Trouble> {
    let began_at = now();
    serving::log("warn");
    // Dropped last, so that the store is closed when its folder goes.
    let folder = command.ephemeral.then(|| TempDir::with_prefix("windlass-dev-")).transpose();
    let folder =
        folder.map_err(|error| Trouble::failed(format!("no temporary folder: {error}")))?;
    let store = match &folder {
        Some(folder) => Some(format!("sqlite:{}", folder.path().join("windlass.db").display())),
        None => command.store.clone(),
    };
    let args = ServerArgs::for_development(command.config.clone(), store, command.listen);
    let setup = config::Config::load(&args).map_err(Trouble::usage)?;
    let listen = setup.server.listen;
    if !listen.ip().is_loopback() {
        let what = format!(
            "in development everybody may do everything, so it listens on this machine only, not on {listen}"
        );
        return Err(Trouble::usage(what)
            .then("Listen on 127.0.0.1, or use tokens: windlass serve --listen HOST:PORT"));
    }
    let may_move = command.listen.is_none() && listen == LISTEN_DEFAULT;
    let listener = listener(listen, may_move).await?;
    let mut serving = Serving::open(setup, listener).await?;
    let stopping = serving.stop.subscribe();
    let failed = |error: windlass::Error| Trouble::failed(exit::chain(&error));
    let demo = demo::start(serving.engine(), command.demo_ledger.clone(), &stopping).await;
    serving.workers.push(demo.map_err(failed)?);
    serving.app.demo_runs();
    let keys = Keys::open();
    let banner = Banner::new(&serving, folder.is_some(), keys.are_there());
    if let Some(moved) = banner.moved(may_move.then_some(listen)) {
        say(&moved);
    }
    match view.is_for_people() {
        true => print(&banner.text()),
        false => say(&banner.text()),
    }
    let log = Log::new(&serving, view.clone(), began_at).run(serving.closing.subscribe());
    let hand = obey(keys, serving.stop.clone(), serving.engine().clone(), banner, view.clone());
    serving.onlookers.extend([tokio::spawn(log), tokio::spawn(hand)]);
    let ended = serving.run().await;
    drop(folder);
    ended
}

/// How many ports are tried.
const PORTS_MAX: u16 = 50;

/// Listens there, or at the next port that is free if that may be.
async fn listener(listen: SocketAddr, may_move: bool) -> Result<TcpListener, Trouble> {
    let ports = listen.port()..=listen.port().saturating_add(if may_move { PORTS_MAX } else { 0 });
    let mut taken = None;
    for port in ports {
        match TcpListener::bind(SocketAddr::new(listen.ip(), port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = Some(error),
            Err(error) => return Err(cannot_listen(listen, &error)),
        }
    }
    Err(cannot_listen(listen, &taken.expect("at least one was tried")))
}

fn cannot_listen(listen: SocketAddr, error: &io::Error) -> Trouble {
    Trouble::new(exit::CONFLICT, format!("cannot listen on {listen}: {error}"))
        .then("Name another address with --listen HOST:PORT. Port 0 takes a free one.")
}

/// Does what keys and signals say, until the server is to stop.
async fn obey(
    mut keys: Keys,
    stop: tokio::sync::watch::Sender<bool>,
    engine: windlass::Engine,
    banner: Banner,
    view: View,
) {
    let signalled = signalled();
    tokio::pin!(signalled);
    loop {
        let key = tokio::select! {
            () = &mut signalled => b'q',
            key = keys.next() => key,
        };
        match key {
            b'q' | b'Q' => break,
            b'd' | b'D' => match demo::enqueue(&engine).await {
                Ok(jobs) => {
                    let ids: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
                    view.say(&told(&ids));
                }
                Err(error) => view.say(&format!("the demo did not start: {}", exit::chain(&error))),
            },
            b'h' | b'H' | b'?' => view.say(&banner.text()),
            _ => {}
        }
    }
    view.say("Stopping. What runs is given back, and goes on after the next start.");
    stop.send_replace(true);
}
