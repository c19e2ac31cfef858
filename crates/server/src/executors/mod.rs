//! The executors that are built in: jobs that call a URL, and jobs that run a program. They are workers of the engine
//! inside the server, for people who want no code.
//!
//! [`http`] and [`command`] are the kinds; [`guard`] says which addresses may be called and [`client`] calls them;
//! [`template`] makes the arguments of a program and [`process`] runs it.

pub(crate) mod client;
mod command;
pub(crate) mod guard;
mod http;
mod process;
pub(crate) mod template;

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinHandle};
use windlass::{Engine, Error, Worker};

pub(crate) use self::http::retry_after;
use self::{client::Outward, command::Commands, guard::Guard, http::Http, process::Processes};
use crate::config::Executors;

/// The built-in executors of a server that runs.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    workers: Vec<JoinHandle<()>>,
    processes: Processes,
}

impl BuiltIn {
    /// Starts what the config switches on. They end by themselves when the server stops. `prefix` begins the names of
    /// their sessions: [`OWN_PREFIX`](windlass_kernel::own_names::OWN_PREFIX) in a server, and nothing elsewhere.
    pub(crate) async fn start(
        engine: &Engine,
        prefix: &str,
        config: &Executors,
        grace: Duration,
        stopping: &watch::Receiver<bool>,
    ) -> Result<Self, Error> {
        let mut workers = Vec::new();
        if config.http.enabled {
            let http = &config.http;
            let outward = Outward::new(Guard::new(&http.allow), http.follow_redirects);
            let outward = outward.map_err(Error::Worker)?;
            let state = Arc::new(Http { outward, config: http.clone() });
            let worker = engine.worker().name(&format!("{prefix}http"));
            let worker = worker.queues(&http.queues).state(state);
            let worker = worker.concurrency(http.concurrency).grace(grace);
            let worker = worker.tenant_max(share(http.concurrency));
            let worker = worker.handle_kind(http::KIND, http::run).start().await?;
            workers.push(look_after("http", worker, stopping.clone()));
        }
        let processes = Processes::new();
        if config.command.enabled {
            let command = &config.command;
            let (allow, processes) = (command.allow.clone(), processes.clone());
            let state = Arc::new(Commands { allow, processes, grace });
            let worker = engine.worker().name(&format!("{prefix}command"));
            let worker = worker.queues(&command.queues).state(state);
            let worker = worker.concurrency(command.concurrency).grace(grace);
            let worker = worker.tenant_max(share(command.concurrency));
            let worker = worker.handle_kind(command::KIND, command::run).start().await?;
            workers.push(look_after("command", worker, stopping.clone()));
        }
        Ok(Self { workers, processes })
    }

    /// Waits until all have ended and no program of theirs is left.
    pub(crate) async fn ended(self) {
        for worker in self.workers {
            let _ = worker.await;
        }
        self.processes.all_ended().await;
    }
}

/// How many slots of an executor one tenant may have: three of four, so that slow jobs of one do not hold up all others. Of
/// two or more, one is always left to others.
fn share(concurrency: usize) -> usize {
    (concurrency * 3 / 4).max(1)
}

/// Shuts a worker down when the server stops. One that ends before that is told of.
pub(crate) fn look_after(
    name: &'static str,
    mut worker: Worker,
    mut stopping: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let ended = tokio::select! {
            biased;
            () = stopped(&mut stopping) => worker.shutdown().await,
            ended = worker.ended() => ended,
        };
        if let Err(error) = ended {
            tracing::error!(%error, worker = name, "a built-in worker has ended");
        }
    })
}

/// Ready when the server is to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_slots_or_more_one_is_left_to_others() {
        assert_eq!([1, 2, 3, 4, 16].map(share), [1, 1, 2, 3, 12]);
    }
}
