//! `windlass replay`: the five replays of contract jobs, lived through on a real store.
//!
//! Always true here: each replay goes through the API as a worker does, with claims and settles, and is judged by what
//! the API then tells in the words of the contract. A store that was there before is never touched.

mod act;
mod place;
mod script;
mod told;

use clap::Args;

pub(crate) use self::script::Script;
use self::{place::Place, script::SCRIPTS, told::Told};
use crate::cli::{exit, look::view::View, trouble::Trouble};

/// Live through the replays of contract jobs on a real store, and judge each.
#[derive(Args)]
pub(crate) struct Replay {
    /// Which: RP-001 to RP-005, or all.
    #[arg(required = true, value_name = "REPLAY", value_parser = known)]
    replays: Vec<Which>,
    /// Where: sqlite:FILE, which must not be there yet and is kept, or postgres://HOST/DATABASE, where a schema of its
    /// own is made and removed. Without it, a SQLite file that is removed.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

/// Which replays are meant.
#[derive(Clone, Copy)]
enum Which {
    All,
    One(&'static Script),
}

fn known(text: &str) -> Result<Which, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(Which::All);
    }
    let found = SCRIPTS.iter().find(|script| script.name.eq_ignore_ascii_case(text));
    found.map(Which::One).ok_or_else(|| "there are RP-001 to RP-005, and all".to_owned())
}

pub(crate) async fn run(command: &Replay, view: &View) -> Result<(), Trouble> {
    let is_meant = |script: &&Script| {
        command.replays.iter().any(|which| match which {
            Which::All => true,
            Which::One(one) => one.name == script.name,
        })
    };
    let scripts: Vec<&Script> = SCRIPTS.iter().filter(is_meant).collect();
    let place = Place::new(command.store.as_deref())?;
    let lived = tokio::select! {
        lived = live(&place, &scripts) => lived,
        _ = tokio::signal::ctrl_c() => Err(Trouble::new(exit::INTERRUPTED, "stopped before the end")),
    };
    // Whatever became of it, what is temporary goes.
    let removed = place.remove().await;
    let told = lived?;
    removed?;
    told::show(&told, view);
    verdict(&told)
}

/// Lives through each on one store.
async fn live(place: &Place, scripts: &[&Script]) -> Result<Vec<Told>, Trouble> {
    let api = place.open().await?;
    let mut told = Vec::new();
    for script in scripts {
        told.push(act::live(&api, script).await?);
    }
    api.close().await;
    Ok(told)
}

/// One that failed makes the command fail.
fn verdict(told: &[Told]) -> Result<(), Trouble> {
    let failed: Vec<&str> =
        told.iter().filter(|one| !one.passed).map(|one| one.replay.as_str()).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Trouble::failed(format!("{} did not go as it must", failed.join(", ")))
            .then("What was expected and what happened stands above.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(work)
    }

    /// The same as RP-002, but for what it expects.
    fn wrong() -> Script {
        let path = &["queued", "running", "succeeded"];
        Script { name: "RP-002", retry_count: 0, path, ..SCRIPTS[1] }
    }

    #[test]
    fn a_replay_that_goes_otherwise_fails_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("w.db").display());
        let (right, wrong) = (&SCRIPTS[0], wrong());
        let told = block_on(async {
            let place = Place::new(Some(&store)).unwrap();
            live(&place, &[right, &wrong]).await.unwrap()
        });
        assert_eq!((told[0].passed, told[1].passed), (true, false));
        assert_eq!(told[1].failures.len(), 2, "{:?}", told[1].failures);
        assert!(told[1].failures[0].contains("queued -> running -> retrying"), "{told:?}");
        assert_eq!(verdict(&told).unwrap_err().exit, exit::FAILED);
        assert!(verdict(&told[..1]).is_ok());
    }

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.db");
        std::fs::write(&path, "somebody's").unwrap();
        let refused = Place::new(Some(&format!("sqlite:{}", path.display())));
        assert_eq!(refused.err().unwrap().exit, exit::CONFLICT);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's");
    }
}
