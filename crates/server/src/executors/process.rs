//! A program that runs for a job: in a process group of its own, and gone with all its children when it is to end.
//!
//! Each program is looked after by a task of its own. Whoever waits for it holds a [`Running`]; dropping that, for
//! whatever reason, ends the whole group: `SIGTERM`, and `SIGKILL` after a moment.
//!
//! Always true here: while a group may still be told something, its leader is not reaped. So its number cannot belong to
//! anybody else.

use std::{
    io,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    sync::{Semaphore, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// How long a program may take to end by itself, when it was told to.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long the pipes of a program that has ended are read. Only what has left its group can still hold them.
const PIPES_MAX: Duration = Duration::from_secs(1);

/// All programs that run. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    places: Arc<Semaphore>,
}

/// A program that runs. Dropping it ends the program.
#[derive(Debug)]
pub(crate) struct Running {
    ended: oneshot::Receiver<io::Result<Ended>>,
    /// Dropping it is the order to end.
    wanted: Option<oneshot::Sender<()>>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
}

/// What a program wrote, as far as it is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// How many bytes there were in all.
    pub(crate) bytes_all: u64,
}

impl Processes {
    const PLACES: u32 = 1_000_000;

    pub(crate) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(Self::PLACES as usize)) }
    }

    /// Starts a program, and keeps so many bytes at the most of what it writes to each pipe.
    pub(crate) fn start(
        &self,
        mut command: Command,
        stdin: Vec<u8>,
        bytes_max: usize,
    ) -> io::Result<Running> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let place = self.places.clone().try_acquire_owned().map_err(io::Error::other)?;
        let child = command.spawn()?;
        let (tell, ended) = oneshot::channel();
        let (wanted, unwanted) = oneshot::channel();
        tokio::spawn(async move {
            let _ = tell.send(look_after(child, stdin, bytes_max, unwanted).await);
            drop(place);
        });
        Ok(Running { ended, wanted: Some(wanted) })
    }

    /// Waits until none runs any more, so that a server leaves nothing behind.
    pub(crate) async fn all_ended(&self) {
        let _ = self.places.acquire_many(Self::PLACES).await;
    }
}

impl Running {
    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> io::Result<Ended> {
        let ended = (&mut self.ended).await;
        ended.unwrap_or_else(|_| Err(io::Error::other("nobody looks after it any more")))
    }

    /// Ends it with all its children, and waits until they are gone.
    pub(crate) async fn stop(&mut self) {
        self.wanted = None;
        let _ = self.ended().await;
    }
}

async fn look_after(
    mut child: Child,
    stdin: Vec<u8>,
    bytes_max: usize,
    unwanted: oneshot::Receiver<()>,
) -> io::Result<Ended> {
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.ok_or_else(|| io::Error::other("it has no number"))?;
    let mut pipe = child.stdin.take();
    // A program that does not read is no failure.
    let writing = tokio::spawn(async move {
        if let Some(pipe) = &mut pipe {
            let _ = pipe.write_all(&stdin).await;
        }
    });
    let stdout = Reading::start(child.stdout.take(), bytes_max);
    let stderr = Reading::start(child.stderr.take(), bytes_max);
    // It is seen to have ended, and not reaped.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let mut exited = tokio::task::spawn_blocking(move || waitid(WaitId::Pid(pid), options));
    let has_ended = tokio::select! {
        biased;
        _ = &mut exited => true,
        _ = unwanted => false,
    };
    if !has_ended {
        let _ = kill_process_group(pid, Signal::TERM);
        let _ = timeout(TERM_GRACE, &mut exited).await;
    }
    // What it has started goes with it, however it ended.
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait().await?;
    writing.abort();
    Ok(Ended { status, stdout: stdout.end().await, stderr: stderr.end().await })
}

/// A pipe that is being read.
struct Reading {
    output: Arc<Mutex<Output>>,
    task: JoinHandle<()>,
}

impl Reading {
    /// Reads to the end, and keeps the first bytes. A program that writes more is not stopped by a full pipe.
    fn start(pipe: Option<impl AsyncRead + Unpin + Send + 'static>, bytes_max: usize) -> Self {
        let output = Arc::new(Mutex::new(Output::default()));
        let kept = output.clone();
        let task = tokio::spawn(async move {
            let Some(mut pipe) = pipe else { return };
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                let is_full =
                    kept.lock().expect("nobody panics with it").add(&buffer[..count], bytes_max);
                if is_full {
                    // Others want to run, too, while a program floods its pipe.
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
        Self { output, task }
    }

    async fn end(mut self) -> Output {
        let _ = timeout(PIPES_MAX, &mut self.task).await;
        self.task.abort();
        std::mem::take(&mut self.output.lock().expect("nobody panics with it"))
    }
}

impl Output {
    /// Adds what was read. True, if some of it was left out.
    fn add(&mut self, bytes: &[u8], bytes_max: usize) -> bool {
        let room = bytes_max - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.bytes_all += bytes.len() as u64;
        bytes.len() > room
    }

    /// As text, with a mark where it was cut.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        let more = self.bytes_all - self.bytes.len() as u64;
        if more > 0 {
            text = format!("{text}\n[cut: {more} more bytes]");
        }
        text
    }
}
