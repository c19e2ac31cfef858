//! Keys at a real terminal: `script` gives each command a pseudo terminal of its own, and types what it is sent.

use std::{
    io::{Read as _, Write as _},
    process::{Child, ChildStdin, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    serving::{Server, until},
    shell::Shell,
};

/// A command at a terminal, and all that it has drawn. It is killed when it is dropped.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    drawn: Arc<Mutex<String>>,
}

impl Terminal {
    /// Types a line. What comes after it tells how the terminal was left.
    fn open(shell: &Shell, line: &str) -> Self {
        let line = format!("{line}; echo ended with $?; stty -a");
        let mut command = shell.command(&format!("exec script -qec \"{line}\" /dev/null"));
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("there is a shell");
        let keys = child.stdin.take().expect("it is a pipe");
        let mut out = child.stdout.take().expect("it is a pipe");
        let drawn = Arc::new(Mutex::new(String::new()));
        let told = drawn.clone();
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(len @ 1..) = out.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..len]);
                told.lock().expect("nobody panics with it").push_str(&text);
            }
        });
        Self { child, keys, drawn }
    }

    fn drawn(&self) -> String {
        self.drawn.lock().expect("nobody panics with it").clone()
    }

    /// Waits until this was drawn so many times.
    fn shows(&self, text: &str, times: usize) {
        let is_there = || self.drawn().matches(text).count() >= times;
        until(&format!("{text:?} at the terminal"), is_there);
    }

    fn press(&mut self, key: u8) {
        self.keys.write_all(&[key]).and_then(|()| self.keys.flush()).expect("it is open");
    }

    /// It came to its end with this code, and the terminal is as it was: lines are read whole, and shown as they are typed.
    fn ended(self, code: i32) {
        self.shows(&format!("ended with {code}"), 1);
        self.shows("echoke", 1);
        let drawn = self.drawn();
        let modes = drawn.rsplit("ended with").next().unwrap_or_default();
        for mode in [" icanon ", " echo "] {
            assert!(modes.contains(mode), "{mode} is not in {modes}");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_keys_of_dev() {
    let shell = Shell::new();
    let mut terminal = Terminal::open(&shell, "windlass dev --listen 127.0.0.1:0");
    let banner = "d demo   h help   q quit";
    terminal.shows(banner, 1);
    terminal.press(b'h');
    terminal.shows(banner, 2);
    terminal.press(b'd');
    terminal.shows("Four jobs are on their way.", 1);
    terminal.shows("demo.import       ▶ running", 1);
    // A key that means nothing does nothing.
    terminal.press(b'x');
    terminal.press(b'q');
    terminal.shows("Stopping. What runs is given back", 1);
    terminal.ended(0);
}

#[test]
fn the_keys_of_top() {
    let shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    server.enqueue(&serde_json::json!({"kind": "mail", "queue": "post"}));
    let mut terminal = Terminal::open(&shell, "windlass top --every 200ms");
    terminal.shows("post", 1);
    terminal.press(b'p');
    terminal.shows("paused", 1);
    terminal.press(b'p');
    let seen = terminal.drawn().matches("post").count();
    terminal.shows("post", seen + 2);
    terminal.press(b'q');
    // What was there before is shown again.
    terminal.shows("\u{1b}[?1049l", 1);
    terminal.ended(0);
    server.stop();
}
