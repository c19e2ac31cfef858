//! `windlass doctor --mend clock`: a person says that the clock which the store follows is right.
//!
//! It is an act: who did it and why stands in the log. Time does not go back for it: histories are in order.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use windlass_kernel::Timestamp;

use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{times::written, view::View},
    trouble::Trouble,
};

/// How the clock of a store stands.
#[derive(Deserialize)]
pub(super) struct Clock {
    now: Timestamp,
    clock: String,
    off_ms: u64,
    meets_in_ms: Option<u64>,
}

impl Clock {
    /// What is to be said of it, unless all is well.
    pub(super) fn trouble(&self) -> Option<String> {
        let off = rough(self.off_ms);
        match self.clock.as_str() {
            "agrees" => None,
            "jumped_ahead" => Some(format!(
                "the clock jumped ahead by {off}, and the store does not follow it: its time is {}",
                self.now
            )),
            _ => Some(format!(
                "the clock is {off} behind the store\'s time, which goes on a tenth slower until they meet, in {}",
                rough(self.meets_in_ms.unwrap_or_default())
            )),
        }
    }

    /// Does it wait for somebody to say that it is right?
    pub(super) fn is_held_back(&self) -> bool {
        self.clock == "jumped_ahead"
    }
}

/// What to type when a clock that jumped is right.
pub(super) const REMEDY: &str = "If the clock is right now: windlass doctor --mend clock --reason WHY. If it is not, set it right, and \
    let the machine follow a time server (timedatectl set-ntp true).";

pub(super) async fn clock(
    args: &ApiArgs,
    reason: Option<&str>,
    view: &View,
) -> Result<(), Trouble> {
    let api = Api::open(args).await?;
    let before: Clock = api.get(&path(&["clock"])).await?.read()?;
    let body = json!({"reason": reason}).to_string();
    let document = api.post(&path(&["clock", "accept"]), Some(body)).await?;
    let after: Clock = document.read()?;
    view.document(&document, || match (before.is_held_back(), after.trouble()) {
        (_, Some(trouble)) => format!("It cannot be taken back: {trouble}.\n"),
        (true, None) => {
            format!(
                "The store follows the clock: it is {}, {} later.\n",
                after.now,
                rough(before.off_ms)
            )
        }
        (false, None) => format!("The store follows the clock already: it is {}.\n", after.now),
    });
    api.close().await;
    Ok(())
}

/// In whole seconds.
fn rough(millis: u64) -> String {
    written(Duration::from_secs(millis / 1_000))
}
