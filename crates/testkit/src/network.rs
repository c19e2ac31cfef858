//! Lines that can be cut: each leads from this machine into a network namespace, in which a process is run.
//!
//! Packets are dropped inside the namespace, in one direction or in both, so nothing is closed and nobody is
//! told: it is like a cable that is pulled. It needs the rights of an administrator over networks, and the
//! programs `ip` and `nft`. A line is removed when it is dropped, also after a panic; what a killed process left
//! behind is removed by the next one.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::Write as _,
    net::Ipv4Addr,
    path::Path,
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

/// A line into a namespace of its own.
#[derive(Debug)]
pub struct Line {
    namespace: String,
    /// The end of it that is on this machine.
    link: String,
    here: Ipv4Addr,
    there: Ipv4Addr,
}

/// What does not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// Nothing.
    Both,
    /// What is sent from there. It still hears.
    FromThere,
    /// What is sent to there. It is still heard.
    ToThere,
}

/// Of the addresses that are set aside for tests of networks (RFC 2544), each process has sixteen.
const FIRST_ADDRESS: u32 = Ipv4Addr::new(198, 18, 0, 0).to_bits();

/// Each line takes four of them.
const LINES_MAX: u8 = 4;

impl Line {
    /// A new line.
    ///
    /// # Errors
    /// If this process may not make namespaces, or if its system has none.
    ///
    /// # Panics
    /// If the programs are not installed although they could be, if they fail for any other reason, or if there
    /// are too many lines.
    pub fn new() -> Result<Self, String> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        for program in ["ip", "nft"] {
            assert!(
                is_installed(program) || !is_root(),
                "`{program}` is not installed: run `make test`, which installs it"
            );
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number < LINES_MAX, "a process has {LINES_MAX} lines at the most");
        if number == 0 {
            remove_orphans();
        }
        let block = FIRST_ADDRESS + process::id() % 8_192 * 16 + u32::from(number) * 4;
        let line = Self {
            namespace: format!("{PREFIX}{}-{number}", process::id()),
            link: format!("wl{}n{number}", process::id()),
            here: Ipv4Addr::from_bits(block + 1),
            there: Ipv4Addr::from_bits(block + 2),
        };
        match line.make() {
            Ok(()) => Ok(line),
            Err(why) if is_forbidden(&why) => Err(why),
            Err(why) => panic!("{why}"),
        }
    }

    fn make(&self) -> Result<(), String> {
        let Self { namespace, link, here, there } = self;
        ip(&["netns", "add", namespace])?;
        ip(&["link", "add", link, "type", "veth", "peer", "name", "line", "netns", namespace])?;
        ip(&["addr", "add", &format!("{here}/30"), "dev", link])?;
        ip(&["link", "set", link, "up"])?;
        ip(&["-n", namespace, "addr", "add", &format!("{there}/30"), "dev", "line"])?;
        ip(&["-n", namespace, "link", "set", "line", "up"])?;
        ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        self.filter("")
    }

    /// The address of this machine, as it is seen from there.
    pub fn here(&self) -> Ipv4Addr {
        self.here
    }

    /// The address of whoever is there.
    pub fn there(&self) -> Ipv4Addr {
        self.there
    }

    /// A program that runs there.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// From now on this does not get through.
    ///
    /// # Panics
    /// If it cannot be cut.
    pub fn cut(&self, cut: Cut) {
        let chain =
            |hook| format!("chain {hook} {{ type filter hook {hook} priority 0; policy drop; }}");
        let chains = match cut {
            Cut::Both => chain("input") + "\n" + &chain("output"),
            Cut::FromThere => chain("output"),
            Cut::ToThere => chain("input"),
        };
        self.filter(&format!("table inet cut {{\n{chains}\n}}")).expect("a line can be cut");
    }

    /// All gets through again.
    ///
    /// # Panics
    /// If it cannot be healed.
    pub fn heal(&self) {
        self.filter("").expect("a line can be healed");
    }

    /// Exactly these rules from now on.
    fn filter(&self, rules: &str) -> Result<(), String> {
        let mut nft = self.command("nft");
        nft.args(["-f", "-"]);
        run(nft, &format!("flush ruleset\n{rules}\n"))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        remove(&self.namespace, &self.link);
    }
}

const PREFIX: &str = "windlass-";

fn remove(namespace: &str, link: &str) {
    // The namespace itself goes with the last process in it, so its line is taken away first.
    let _ = ip(&["link", "del", link]);
    let _ = ip(&["netns", "del", namespace]);
}

/// Removes what processes left behind that were killed.
fn remove_orphans() {
    let names = fs::read_dir("/run/netns").into_iter().flatten().filter_map(Result::ok);
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        let Some((owner, number)) = parts else { continue };
        if !Path::new("/proc").join(owner).exists() {
            remove(&name, &format!("wl{owner}n{number}"));
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let mut ip = Command::new("ip");
    ip.args(arguments);
    run(ip, "")
}

/// Runs it with this input. If it fails, what it said is the error.
fn run(mut command: Command, input: &str) -> Result<(), String> {
    let named = format!("{command:?}");
    let failed = |why: String| format!("{named} failed: {}", why.trim());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    // Whoever ends without reading says on its own why.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(failed(said)) }
}

/// Is it the system that says no?
fn is_forbidden(why: &str) -> bool {
    // The last one is what Linux says of a program that is not there, to whoever cannot install it.
    let said = ["not permitted", "denied", "not supported", "Unknown device type", "No such file"];
    said.iter().any(|it| why.contains(it))
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).exists())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
