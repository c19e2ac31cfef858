//! The world outside the store: what handlers say they did, and a system that knows fences.
//!
//! It is a folder with files, so that it outlives every process. A line is written at once, by whichever process.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use windlass::{Context, JobId};
use windlass_testkit::refusals::RefusalNote;

/// The world outside.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    folder: PathBuf,
}

/// Something that a handler said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) process: u32,
    pub(crate) worker: String,
    pub(crate) job: String,
    pub(crate) epoch: u64,
    pub(crate) what: String,
}

impl Said {
    /// What this line says, if it is of a handler.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        let process = words.next()?.parse().ok()?;
        let (worker, job) = (words.next()?.to_owned(), words.next()?.to_owned());
        let epoch = words.next()?.parse().ok()?;
        Some(Self { process, worker, job, epoch, what: words.next()?.to_owned() })
    }
}

impl Outside {
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Notes what the handler of this context says.
    pub(crate) fn say(&self, context: &Context, what: &str) {
        let (job, epoch) = (context.job_id(), context.epoch().get());
        self.note(&format!("{} {job} {epoch} {what}", context.worker()));
    }

    /// Notes a line of this process.
    pub(crate) fn note(&self, line: &str) {
        let mut log = File::options().create(true).append(true).open(self.log()).unwrap();
        log.write_all(format!("{} {line}\n", std::process::id()).as_bytes()).unwrap();
    }

    /// Notes that somebody was refused something.
    pub(crate) fn note_refused(&self, refused: &RefusalNote) {
        self.note(&format!("refused {}", serde_json::to_string(refused).unwrap()));
    }

    /// All that somebody was refused.
    pub(crate) fn refused(&self) -> Vec<RefusalNote> {
        let lines = self.lines();
        let refused = lines.iter().filter_map(|line| Some(line.split_once(" refused ")?.1));
        refused.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// All that was noted, in order. A line that was cut off by a kill is left out.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = fs::read(self.log()).unwrap_or_default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        String::from_utf8_lossy(&text[..whole]).lines().map(str::to_owned).collect()
    }

    /// All that handlers said, in order.
    pub(crate) fn said(&self) -> Vec<Said> {
        self.lines().iter().filter_map(|line| Said::parse(line)).collect()
    }

    /// What began after so many lines.
    pub(crate) fn begun_since(&self, seen: usize) -> impl Iterator<Item = Said> {
        let later = self.lines().into_iter().skip(seen);
        later.filter_map(|line| Said::parse(&line)).filter(|said| said.what == "begun")
    }

    /// The first thing of this kind that was said about the job.
    pub(crate) fn first(&self, job: JobId, what: &str) -> Option<Said> {
        let job = job.to_string();
        self.said().into_iter().find(|said| said.job == job && said.what == what)
    }

    /// An effect with a fence: it is applied if and only if its epoch is newer than all that were applied to the
    /// same job.
    pub(crate) fn apply(&self, context: &Context) -> bool {
        let mut options = File::options();
        let mut file =
            options.create(true).read(true).append(true).open(self.folder.join("effects")).unwrap();
        file.lock().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let fence = context.fence();
        let (job, epoch) = (fence.job_id.to_string(), fence.epoch.get());
        let is_newer = applied(&text).iter().all(|(other, old)| *other != job || *old < epoch);
        if is_newer {
            file.write_all(format!("{job} {epoch}\n").as_bytes()).unwrap();
        }
        is_newer
    }

    /// The effects that were applied: job and epoch.
    pub(crate) fn applied(&self) -> Vec<(String, u64)> {
        applied(&fs::read_to_string(self.folder.join("effects")).unwrap_or_default())
    }

    /// From now on every handler succeeds at once.
    pub(crate) fn calm_down(&self) {
        fs::write(self.calm(), "").unwrap();
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm().exists()
    }

    fn calm(&self) -> PathBuf {
        self.folder.join("calm")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

fn applied(text: &str) -> Vec<(String, u64)> {
    let effect = |line: &str| {
        let (job, epoch) = line.split_once(' ')?;
        Some((job.to_owned(), epoch.parse().ok()?))
    };
    text.lines().filter_map(effect).collect()
}
