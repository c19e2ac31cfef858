//! Single keys from a terminal, without the return key and without echo.
//!
//! Always true here: the terminal is as it was when this value is dropped. Output is not touched, and Ctrl-C stays the
//! signal that it is. Where nobody can press a key (a pipe, a process in the background), none comes.

use std::{
    io::{self, IsTerminal as _, Read as _},
    sync::mpsc::RecvTimeoutError,
    thread,
    time::Duration,
};

use rustix::{
    process::getpgrp,
    termios::{
        LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
    },
};
use tokio::sync::mpsc;

/// A terminal that gives keys.
pub(crate) struct Keys {
    before: Option<Termios>,
    pressed: mpsc::Receiver<u8>,
    _ended: std::sync::mpsc::Sender<()>,
}

impl Keys {
    /// The terminal at stdin, if there is one and it is ours.
    pub(crate) fn open() -> Self {
        let (send, pressed) = mpsc::channel(16);
        let (ended, is_ended) = std::sync::mpsc::channel();
        let before = is_ours().then(|| tcgetattr(io::stdin()).ok()).flatten();
        if let Some(before) = &before {
            let mut modes = before.clone();
            modes.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
            // A read waits for a fifth of a second: so it is seen that the process went into the background.
            modes.special_codes[SpecialCodeIndex::VMIN] = 0;
            modes.special_codes[SpecialCodeIndex::VTIME] = 2;
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
            thread::spawn(move || read(&send, &is_ended));
        }
        Self { before, pressed, _ended: ended }
    }

    /// Can a key be pressed at all?
    pub(crate) fn are_there(&self) -> bool {
        self.before.is_some()
    }

    /// The next key. Where there is no terminal, it never comes.
    pub(crate) async fn next(&mut self) -> u8 {
        match self.pressed.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = self.before.as_ref().filter(|_| is_ours()) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Reads keys, until nobody wants them.
fn read(send: &mpsc::Sender<u8>, is_ended: &std::sync::mpsc::Receiver<()>) {
    let mut key = [0];
    while !send.is_closed() {
        let read = if is_ours() { io::stdin().read(&mut key) } else { Ok(0) };
        match read {
            // There is room, or somebody leans on a key.
            Ok(1) => drop(send.try_send(key[0])),
            Ok(_) if is_ours() => {}
            Ok(_) => match is_ended.recv_timeout(Duration::from_millis(200)) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            },
            Err(_) => return,
        }
    }
}

/// Is stdin a terminal, and this process the one in front? Another one that touched it would be stopped.
fn is_ours() -> bool {
    io::stdin().is_terminal() && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}
