//! How many jobs a second 32 callers enqueue, each one at a time: with the Committer, and with a
//! transaction for each.
//!
//! ```sh
//! cargo run --release -p windlass --example enqueue -- [jobs per caller] [folder]
//! ```

use std::{
    env,
    error::Error,
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use windlass::{Committer, Handle, Ids, clock, committer::Config};
use windlass_kernel::{
    Actor, By, Kind, Payload, Principal, TenantId,
    ops::{Enqueue, NewJob},
};
use windlass_store::{
    Store, Write,
    sqlite::{Options, Sqlite},
};

const CALLERS: usize = 32;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let each: usize = env::args().nth(1).map_or(Ok(2000), |text| text.parse())?;
    let folder = env::args().nth(2).map_or_else(env::temp_dir, PathBuf::from);
    for round in 1..=3 {
        let (single, _) = run(&folder, each / 10 + 1, Way::Alone).await?;
        let (grouped, latency) = run(&folder, each, Way::Grouped).await?;
        println!(
            "round {round}: {CALLERS} callers: {grouped:.0}/s grouped (median {latency:?}), \
             {single:.0}/s with a transaction each: {:.1} times as many",
            grouped / single
        );
    }
    Ok(())
}

#[derive(Clone)]
enum Road {
    Grouped(Handle),
    Alone(Arc<dyn Store>),
}

#[derive(Clone, Copy)]
enum Way {
    Grouped,
    Alone,
}

/// Enqueues a second, and the median of how long one took.
async fn run(folder: &Path, each: usize, way: Way) -> Result<(f64, Duration), Box<dyn Error>> {
    let folder = tempfile::tempdir_in(folder)?;
    let options =
        Options { path: folder.path().join("windlass.db"), clock: clock::system(), address: None };
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(options)?);
    let committer = Committer::new(store.clone(), Config::default());
    let road = match way {
        Way::Grouped => Road::Grouped(committer.handle()),
        Way::Alone => Road::Alone(store),
    };
    let committing = tokio::spawn(committer.run(pending()));
    let ids = Ids::system();
    let start = Instant::now();
    let callers: Vec<_> =
        (0..CALLERS).map(|_| tokio::spawn(call(road.clone(), ids.clone(), each))).collect();
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await?);
    }
    let rate = f64::from(u32::try_from(took.len())?) / start.elapsed().as_secs_f64();
    committing.abort();
    took.sort_unstable();
    Ok((rate, took[took.len() / 2]))
}

async fn call(road: Road, ids: Ids, each: usize) -> Vec<Duration> {
    let mut took = Vec::with_capacity(each);
    for _ in 0..each {
        let write = enqueue(&ids);
        let start = Instant::now();
        match &road {
            Road::Grouped(handle) => drop(handle.submit(write).await.expect("it is accepted")),
            Road::Alone(store) => {
                drop(store.commit(vec![write].into()).await.expect("it is written"))
            }
        }
        took.push(start.elapsed());
    }
    took
}

fn enqueue(ids: &Ids) -> Write {
    let tenant = TenantId::new("default").expect("a name");
    let payload = Payload::parse("{\"n\":1}", 100).expect("it is JSON");
    let new = Box::new(NewJob::new(Kind::new("noop").expect("a name"), payload));
    let by: By = Actor::User(Principal::new("bench").expect("a name")).into();
    let (job_id, random) = (ids.job_id(), ids.random());
    Write::Op { tenant: tenant.clone(), op: Enqueue { job_id, tenant, new, random, by }.into() }
}
