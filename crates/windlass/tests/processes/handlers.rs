//! What nodes can do: a job that does what its payload says.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use windlass::{Context, HandlerResult, Outcome, Work};

use crate::outside::Outside;

/// A job that does what it says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Do {
    /// Takes this long.
    SleepMs(u64),
    /// Never returns, unless it was interrupted before.
    HangFirst,
    /// Takes its process down.
    Abort,
}

impl Work for Do {
    const KIND: &str = "do";
}

pub(crate) async fn act(
    what: Do,
    context: Context,
    outside: Arc<Outside>,
) -> HandlerResult<Outcome> {
    outside.say(&context, "begun");
    match what {
        Do::SleepMs(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        Do::HangFirst if context.interruptions() == 0 => std::future::pending().await,
        Do::HangFirst => {}
        Do::Abort => std::process::abort(),
    }
    outside.say(&context, "done");
    Ok(Outcome::done(&context.epoch().get()))
}
