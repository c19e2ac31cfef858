//! A shell in a folder of its own, in which `windlass` is this program, and a page of what was typed and printed.
//!
//! Ids and times are replaced by others that are as long and the same each time, so that tables stay tables.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A person at a terminal.
pub(crate) struct Shell {
    folder: TempDir,
    page: String,
    columns: usize,
}

/// What one line did.
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

impl Ran {
    /// What was printed, as a document.
    pub(crate) fn json(&self) -> serde_json::Value {
        let read = serde_json::from_str(&self.stdout);
        read.unwrap_or_else(|why| panic!("{why}: {}{}", self.stdout, self.stderr))
    }
}

impl Shell {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, page: String::new(), columns: 100 }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Says on the page what follows.
    pub(crate) fn about(&mut self, text: &str) {
        self.page.push_str(&format!("\n# {text}\n"));
    }

    /// How wide the terminal is from now on.
    pub(crate) fn columns(&mut self, columns: usize) {
        self.columns = columns;
    }

    /// Types a line, and writes down what it printed.
    pub(crate) fn run(&mut self, line: &str) -> Ran {
        let ran = self.quiet(line);
        self.page.push_str(&format!("\n$ {line}\n{}", ran.stdout));
        for line in ran.stderr.lines() {
            self.page.push_str(&format!("stderr: {line}\n"));
        }
        if ran.code != 0 {
            self.page.push_str(&format!("exit: {}\n", ran.code));
        }
        ran
    }

    /// Writes down a line and what it said, which somebody else has run.
    pub(crate) fn wrote(&mut self, line: &str, said: &str) {
        self.page.push_str(&format!("\n$ {line}\n{said}"));
    }

    /// Types a line, and says nothing of it on the page.
    pub(crate) fn quiet(&self, line: &str) -> Ran {
        let run = self.command(line).output().expect("there is a shell");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
        Ran {
            stdout: text(run.stdout),
            stderr: text(run.stderr),
            code: run.status.code().unwrap_or(-1),
        }
    }

    /// What runs when a line is typed.
    pub(crate) fn command(&self, line: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_windlass"));
        let folder = program.parent().expect("it stands in a folder");
        let path = format!("{}:{}", folder.display(), env::var("PATH").unwrap_or_default());
        let mut command = Command::new("sh");
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
        command
            .args(["-c", line])
            .current_dir(self.folder())
            .env("PATH", path)
            .env("COLUMNS", self.columns.to_string())
            .env("WINDLASS_TIME", "utc")
            .env("WINDLASS_AS", "ann")
            .env("TZ", "UTC")
            .stdin(std::process::Stdio::null());
        command
    }

    /// Compares the page with its file, or writes it if `WINDLASS_BLESS` is set.
    pub(crate) fn finish(self, name: &str) {
        let folder = self.folder().canonicalize().expect("the folder is there");
        let page = self.page.replace(&folder.display().to_string(), "/home/ann");
        let page = steady(page.trim_start());
        let file = pages().join(name).with_extension("txt");
        if env::var_os("WINDLASS_BLESS").is_some() {
            fs::write(&file, &page).expect("the folder can be written");
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if expected == page {
            return;
        }
        let at = page.lines().zip(expected.lines()).take_while(|(now, was)| now == was).count();
        let from = |text: &str| text.lines().skip(at).take(12).collect::<Vec<_>>().join("\n");
        panic!(
            "{} differs from line {} on (`make bless` writes it anew). Now it is\n{}\nand it was\n{}",
            file.display(),
            at + 1,
            from(&page),
            from(&expected)
        );
    }
}

/// Where the pages are.
pub(crate) fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/pages")
}

/// The text with other ids and times in place of those that differ from run to run, as long as they were.
fn steady(text: &str) -> String {
    let mut known: HashMap<String, usize> = HashMap::new();
    let (mut steady, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let varying = Varying::find(&steady, rest);
        let len = varying.as_ref().map_or(first.len_utf8(), |(_, len)| *len);
        match varying {
            Some((Varying::Time, _)) => steady.push_str(time(len)),
            Some((Varying::CutTime, _)) => steady.push_str(&time(TIME.len())[..len]),
            Some((Varying::Clock, _)) => steady.push_str(CLOCK),
            Some((Varying::Chance, _)) => steady.push_str(&"0".repeat(len)),
            Some((Varying::Id, _)) => {
                let count = known.len() + 1;
                let number = *known.entry(rest[..len].to_owned()).or_insert(count);
                let prefix = rest[..len].find('_').map_or(0, |at| at + 1);
                let digits = len - prefix;
                steady.push_str(&format!("{}{number:0>digits$}", &rest[..prefix]));
            }
            None => steady.push(first),
        }
        rest = &rest[len..];
    }
    steady
}

/// What differs from run to run. Its kind is told by its shape alone, never by the digits that it happens to have.
enum Varying {
    Id,
    Time,
    /// A time that a narrow column has no room for: an ellipsis follows.
    CutTime,
    Clock,
    Chance,
}

impl Varying {
    /// What the text begins with, behind what stands before it, and how long it is.
    fn find(before: &str, text: &str) -> Option<(Self, usize)> {
        if before.ends_with(|last: char| last.is_ascii_alphanumeric()) {
            return chance_len(before, text).map(|len| (Self::Chance, len));
        }
        let is_logged = before.ends_with(&format!("{CLOCK}  "));
        let short_id = || is_logged.then(|| short_id_len(text)).flatten();
        chance_len(before, text)
            .or_else(|| days_len(text))
            .map(|len| (Self::Chance, len))
            .or_else(|| time_len(text).map(|len| (Self::Time, len)))
            .or_else(|| cut_time_len(text).map(|len| (Self::CutTime, len)))
            .or_else(|| clock_len(text).map(|len| (Self::Clock, len)))
            .or_else(|| id_len(text).or_else(short_id).map(|len| (Self::Id, len)))
    }
}

/// The length of an id, a trace or a digest that the text begins with.
fn id_len(text: &str) -> Option<usize> {
    let word = text.bytes().take_while(|it| it.is_ascii_alphanumeric() || *it == b'_').count();
    let is_id = ["job_", "dlq_", "tok_", "claim_"].iter().any(|prefix| {
        let rest = text[..word].strip_prefix(prefix);
        rest.is_some_and(|rest| rest.len() == 26)
    });
    let is_trace =
        [32, 64].contains(&word) && text[..word].bytes().all(|it| it.is_ascii_hexdigit());
    (is_id || is_trace).then_some(word)
}

/// The shape of a time of these years, as a table has it. Tests name times of another century.
const TIME: &[u8] = b"20dd-dd-ddTdd:dd:dd.dddZ";

/// How much of the text is the beginning of such a time.
fn time_prefix_len(text: &str) -> usize {
    let fits =
        |(byte, shape): &(u8, &u8)| byte == *shape || **shape == b'd' && byte.is_ascii_digit();
    text.bytes().zip(TIME).take_while(fits).count()
}

/// The length of a time that the text begins with.
fn time_len(text: &str) -> Option<usize> {
    const SECONDS: usize = 19;
    if time_prefix_len(text) < SECONDS {
        return None;
    }
    let rest = &text[SECONDS..];
    let fraction = rest.bytes().take_while(|byte| *byte == b'.' || byte.is_ascii_digit()).count();
    rest[fraction..].starts_with('Z').then_some(SECONDS + fraction + 1)
}

/// The length of the beginning of a time that was cut off behind its year.
fn cut_time_len(text: &str) -> Option<usize> {
    const YEAR: usize = 5;
    let len = time_prefix_len(text);
    (len >= YEAR && text[len..].starts_with('…')).then_some(len)
}

/// The time of the day at which every line of a log was written.
const CLOCK: &str = "00:00:00.000";

/// The length of the time of a day that the text begins with, as a log has it.
fn clock_len(text: &str) -> Option<usize> {
    let is_like = |(byte, like): (u8, u8)| byte == like || like == b'0' && byte.is_ascii_digit();
    let is_clock = text.len() >= CLOCK.len() && text.bytes().zip(CLOCK.bytes()).all(is_like);
    is_clock.then_some(CLOCK.len())
}

/// The length of the end of an id, as a log has it behind the time.
fn short_id_len(text: &str) -> Option<usize> {
    let len = text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    (len == 6 && text[len..].starts_with("  ")).then_some(len)
}

/// The length of what the text begins with if chance made it: the rest of the name of a worker, or a port that was free.
fn chance_len(before: &str, text: &str) -> Option<usize> {
    let len = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let is_port = before.ends_with("127.0.0.1:") && len == 5;
    let is_worker = ["by demo-", "worker http-", "worker windlass.http-", "\nwindlass.http-"]
        .iter()
        .any(|it| before.ends_with(it));
    (is_port || is_worker && len > 0).then_some(len)
}

/// The length of the number in `36290d`, which the text begins with: how far away a time of another century is today.
fn days_len(text: &str) -> Option<usize> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let is_whole = text[len..]
        .strip_prefix('d')
        .is_some_and(|after| !after.starts_with(|next: char| next.is_ascii_alphanumeric()));
    (len == 5 && is_whole).then_some(len)
}

/// A time in a table is always as long; one in a document is as long as its fraction happens to be.
fn time(len: usize) -> &'static str {
    if len == 24 { "2000-01-01T00:00:00.000Z" } else { "2000-01-01T00:00:00Z" }
}

#[test]
fn what_differs_from_run_to_run_is_replaced_by_what_is_as_long() {
    let text = "job_01kz000000000000000000000a at 2026-01-02T03:04:05.678Z, 2126-01-02T03:04:05Z";
    let expected =
        "job_00000000000000000000000001 at 2000-01-01T00:00:00.000Z, 2126-01-02T03:04:05Z";
    assert_eq!(steady(text), expected);
}

#[test]
fn digits_that_look_like_a_year_are_no_time() {
    let check = |text: &str, expected: &str| assert_eq!(steady(text), expected, "{text}");
    for hour in 0..24 {
        let line = format!("{hour:02}:14:05.123  20abcd  demo.mail");
        check(&line, "00:00:00.000  000001  demo.mail");
    }
    let trace = format!("20{}", "ab".repeat(15));
    check(&trace, &format!("{}1", "0".repeat(31)));
    check("http://127.0.0.1:20144 by demo-20aa20bb", "http://127.0.0.1:00000 by demo-00000000");
    check("20 jobs, 2020 of 20:30", "20 jobs, 2020 of 20:30");
    check("in 36290d, 36291days, 20d", "in 00000d, 36291days, 20d");
    check("slot 2027-03…, 2126-03-30T01:…, 20…", "slot 2000-01…, 2126-03-30T01:…, 20…");
    check("at 2027-03-04T05:06:07.8…", "at 2000-01-01T00:00:00.0…");
}
