//! What nodes can do: a job that does what its payload says.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use windlass::{Context, Failure, HandlerResult, Outcome, SubmitError, Work};
use windlass_kernel::{
    By, Jitter, Op,
    ops::{self, Settle},
};
use windlass_store::Write;
use windlass_testkit::random::Chance;

use crate::outside::Outside;

/// A job that does what it says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Do {
    /// Takes this long.
    SleepMs(u64),
    /// Fails in its first attempt, in a way that may pass.
    FailFirst,
    /// Never returns the first time.
    HangFirst,
    /// Goes on the first time until it is told to stop, and says why.
    StopFirst,
    /// Has an effect with a fence. The first time it is in no hurry, and goes on although it is told to stop.
    ApplyLate,
    /// Takes its process down.
    Abort,
    /// Does anything but that, by chance, until the world is calm.
    Anything(u64),
}

impl Work for Do {
    const KIND: &str = "do";
}

pub(crate) async fn act(
    what: Do,
    context: Context,
    outside: Arc<Outside>,
) -> HandlerResult<Outcome> {
    if let Do::Anything(seed) = what {
        return anything(seed, context, outside).await;
    }
    outside.say(&context, "begun");
    // An epoch begins with the incarnation of the store.
    let is_first = context.epoch().get() & 0xffff_ffff == 1;
    match what {
        Do::SleepMs(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        Do::FailFirst if context.attempt() == 1 => return Err("not yet".into()),
        Do::HangFirst if is_first => std::future::pending().await,
        Do::StopFirst if is_first => {
            let why = context.stopped().await;
            outside.say(&context, &format!("stopped {why:?}"));
            std::future::pending::<()>().await;
        }
        Do::ApplyLate if is_first => {
            // The worker drops a handler that has lost its lease, but not what the handler has begun elsewhere.
            tokio::spawn(apply_late(context.clone(), outside.clone()));
            std::future::pending::<()>().await;
        }
        Do::ApplyLate => apply(&context, &outside),
        Do::FailFirst | Do::HangFirst | Do::StopFirst => {}
        Do::Abort => std::process::abort(),
        Do::Anything(_) => unreachable!("it is done by now"),
    }
    outside.say(&context, "done");
    Ok(Outcome::done(&context.epoch().get()))
}

async fn anything(seed: u64, context: Context, outside: Arc<Outside>) -> HandlerResult<Outcome> {
    if outside.is_calm() {
        return Ok(Outcome::done(&"calm"));
    }
    let mut chance = Chance::new(seed ^ context.epoch().get());
    tokio::time::sleep(chance.ms(0, 30)).await;
    match chance.below(100) {
        0..50 => Ok(Outcome::done(&seed)),
        50..65 => Err("it failed".into()),
        65..70 => Err(Failure::permanent("GONE", "it is gone").into()),
        70..75 => panic!("on purpose"),
        75..80 => std::future::pending().await,
        80..84 => {
            // It blocks its thread, and cannot be dropped meanwhile.
            std::thread::sleep(chance.ms(0, 500));
            Ok(Outcome::done(&seed))
        }
        84..92 => Ok(Outcome::snooze(chance.ms(0, 300))),
        92..95 => Ok(Outcome::partial(&seed, &"the rest")),
        _ => {
            tokio::time::sleep(chance.ms(0, 3_000)).await;
            Ok(Outcome::done(&seed))
        }
    }
}

async fn apply_late(context: Context, outside: Arc<Outside>) {
    let why = context.stopped().await;
    outside.say(&context, &format!("stopped {why:?}"));
    apply(&context, &outside);
    let op = Settle {
        job_id: context.job_id(),
        epoch: context.epoch(),
        by: By::worker(context.worker().clone()),
        outcome: ops::Outcome::Succeeded { result: None },
        stats: None,
        jitter: Jitter::NONE,
    };
    let write = Write::Op { tenant: context.tenant().clone(), op: Op::Settle(op) };
    let told = match context.engine().committer().submit(write).await {
        Err(SubmitError::Refused(refusal)) => refusal.code().to_owned(),
        other => format!("{other:?}"),
    };
    outside.say(&context, &format!("settled {told}"));
}

fn apply(context: &Context, outside: &Outside) {
    let applied = if outside.apply(context) { "applied" } else { "fenced off" };
    outside.say(context, applied);
}
