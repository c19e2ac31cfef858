//! `windlass worker`: the built-in executors in a process of their own, beside a server or on a store.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use tokio::sync::watch;

use crate::cli::{
    api::ApiArgs,
    exit,
    look::{terminal::print, times, view::View},
    serving::{self, signalled},
    trouble::Trouble,
};
use crate::{
    config::{self, Executors, ServerArgs},
    executors::BuiltIn,
    traces::Traces,
};

/// Run jobs that call a URL or a program, for a server that is elsewhere.
///
/// It takes jobs of the kinds http and command. What they may do stands in the sections [executors.http] and
/// [executors.command] of the config file, as `windlass serve` has them.
#[derive(Args)]
pub(crate) struct Worker {
    /// A file with the sections [executors.http] and [executors.command]. Its store is used if neither a flag nor
    /// a variable names a place.
    #[arg(long, env = "WINDLASS_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen to these queues, whatever the file says.
    #[arg(short, long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// How long what runs may take to end when it is asked to stop.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = times::parse)]
    grace: Duration,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) fn run(command: &Worker, view: &View) -> Result<(), Trouble> {
    serving::on_threads(work(command, view))
}

async fn work(command: &Worker, view: &View) -> Result<(), Trouble> {
    serving::log("info");
    let args = ServerArgs::of_file(command.config.clone());
    let setup = config::Config::load(&args).map_err(Trouble::usage)?;
    let mut executors = setup.executors;
    if !command.queues.is_empty() {
        executors.http.queues = command.queues.clone();
        executors.command.queues = command.queues.clone();
    }
    let listens = listens(&executors);
    if listens.is_empty() {
        return Err(Trouble::usage("both executors are off, so there is nothing to run").then(
            "Set enabled = true in [executors.http] or [executors.command] of the config file.",
        ));
    }
    let (traces, teller) = Traces::open(&setup.traces).map_err(Trouble::usage)?;
    let mut api = command.api.clone();
    api.or_store(&setup.server.store);
    let (engine, place) = api.engine(traces.tracer()).await?;
    let (stop, stopping) = watch::channel(false);
    let started = BuiltIn::start(&engine, "", &executors, command.grace, &stopping).await;
    let built_in = started.map_err(|error| Trouble::failed(exit::chain(&error)))?;
    print(&format!("windlass works for {place}: {}\n", listens.join("; ")));
    let mut ended = Box::pin(built_in.ended());
    let is_asked = tokio::select! {
        () = signalled() => true,
        () = &mut ended => false,
    };
    if is_asked {
        view.say("Stopping. What runs may end; what does not in time is given back.");
        stop.send_replace(true);
        ended.await;
    }
    engine.close().await;
    if let Some(teller) = teller {
        teller.finish().await;
    }
    match is_asked {
        true => Ok(()),
        false => Err(Trouble::unreachable(format!("the workers have ended: {place} let them go"))
            .then("Look at what was logged above, and start it again.")),
    }
}

/// What it listens to, in words.
fn listens(executors: &Executors) -> Vec<String> {
    let (http, command) = (&executors.http, &executors.command);
    let on = |kind: &str, queues: &[String], at_once: usize| {
        let (word, queues) =
            (if queues.len() == 1 { "queue" } else { "queues" }, queues.join(", "));
        format!("{kind} from {word} {queues}, {at_once} at once")
    };
    let http = http.enabled.then(|| on("http", &http.queues, http.concurrency));
    let programs: Vec<&str> = command.allow.keys().map(String::as_str).collect();
    let command = command.enabled.then(|| {
        let on = on("command", &command.queues, command.concurrency);
        format!("{on} ({})", programs.join(", "))
    });
    http.into_iter().chain(command).collect()
}
