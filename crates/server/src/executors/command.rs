//! The kind `command`: a job that runs a program of the allow-list. It is off unless the config switches it on.
//!
//! Always true here: which program runs, and which arguments it has, stands in the config; a job only fills places. There
//! is no shell, and nothing of the server's environment.

use std::{
    collections::BTreeMap, os::unix::process::ExitStatusExt, process::ExitStatus, sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass::{Context, HandlerResult, Outcome};
use windlass_kernel::{
    Failure,
    failure::{
        COMMAND_FAILED, COMMAND_NOT_ALLOWED, COMMAND_NOT_STARTED, COMMAND_UNAVAILABLE,
        PAYLOAD_UNFIT,
    },
};

use super::{
    http::cancelled,
    process::{Ended, Output, Processes, TERM_GRACE},
};
use crate::config::AllowedCommand;

/// The name of the kind.
pub(crate) const KIND: &str = "command";

/// What all such jobs share.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) allow: BTreeMap<String, AllowedCommand>,
    pub(crate) processes: Processes,
    /// How long a program may go on at a shutdown.
    pub(crate) grace: Duration,
}

/// What a job asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    command: String,
    /// Values for the places: by name, or in a list.
    args: Option<Box<RawValue>>,
    stdin: Option<String>,
}

/// What came out, as the result of the job.
#[derive(Debug, Serialize)]
struct Kept {
    exit_code: i32,
    stdout: String,
    stderr: String,
}

/// The usual places of programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// `EX_TEMPFAIL`: the program says that trying again may help.
const TRY_AGAIN: i32 = 75;

/// Runs a job of this kind.
pub(crate) async fn run(
    call: Call,
    context: Context,
    commands: Arc<Commands>,
) -> HandlerResult<Outcome> {
    let Some(allowed) = commands.allow.get(&call.command) else {
        let message = format!("{:?} is no command of the allow-list", call.command);
        return Err(Failure::own(COMMAND_NOT_ALLOWED, &message).into());
    };
    let args = allowed.args.fill(call.args.as_deref());
    let args = args.map_err(|why| match why.contains("dash") {
        true => Failure::own(COMMAND_NOT_ALLOWED, &why),
        false => Failure::own(PAYLOAD_UNFIT, &why),
    })?;
    let mut command = tokio::process::Command::new(&allowed.program);
    command.args(args).env_clear().env("PATH", PATH).envs(&allowed.env);
    command.env("WINDLASS_EXECUTION_KEY", context.fence().execution_key);
    command.env("WINDLASS_JOB_ID", context.job_id().to_string());
    command.env("WINDLASS_ATTEMPT", context.attempt().to_string());
    command.env("WINDLASS_TRACE_ID", context.trace_id().as_str());
    command.current_dir(&allowed.directory);
    let stdin = call.stdin.unwrap_or_default().into_bytes();
    let started = commands.processes.start(command, stdin, allowed.output_bytes_max);
    let not_started = |error: std::io::Error| {
        let message = format!("{} did not start: {error}", call.command);
        Failure::own(COMMAND_NOT_STARTED, &message)
    };
    let mut running = started.map_err(not_started)?;
    // Whatever drops this ends the program: a time-out, say, or a lost lease.
    let ended = tokio::select! {
        ended = running.ended() => ended.map_err(not_started)?,
        () = cancelled(&context) => {
            running.stop().await;
            return Ok(Outcome::cancelled(None));
        }
        () = patience_ends(&context, commands.grace) => {
            // It is gone before the job is given back, so that it does not run twice at the same time.
            running.stop().await;
            return std::future::pending().await;
        }
    };
    outcome(&call.command, allowed, &ended)
}

/// Ready when the worker shuts down and there is just time enough to end the program before its job is given back.
async fn patience_ends(context: &Context, grace: Duration) {
    context.stopped().await;
    tokio::time::sleep(grace.saturating_sub(TERM_GRACE + TERM_GRACE / 4)).await;
}

fn outcome(name: &str, allowed: &AllowedCommand, ended: &Ended) -> HandlerResult<Outcome> {
    let code = code(ended.status);
    if code == 0 {
        let (stdout, stderr) = (ended.stdout.text(), ended.stderr.text());
        return Ok(Outcome::done(&Kept { exit_code: code, stdout, stderr }));
    }
    let how = match ended.status.signal() {
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("ended with code {code}"),
    };
    let message = match tail(&ended.stderr) {
        told if told.is_empty() => format!("{name} {how}"),
        told => format!("{name} {how}: {told}"),
    };
    match code == TRY_AGAIN || allowed.retry_exit_codes.contains(&code) {
        true => Err(Failure::own(COMMAND_UNAVAILABLE, &message).into()),
        false => Err(Failure::own(COMMAND_FAILED, &message).into()),
    }
}

/// The exit code; for one that was ended by a signal, what a shell would say.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The end of what it wrote, for people.
fn tail(output: &Output) -> String {
    const BYTES_MAX: usize = 2_048;
    let text = output.text();
    let text = text.trim();
    text[text.ceil_char_boundary(text.len().saturating_sub(BYTES_MAX))..].to_owned()
}

#[cfg(test)]
mod tests;
