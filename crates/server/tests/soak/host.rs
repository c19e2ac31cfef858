//! Where the server of the day runs: it is killed and frozen, and comes back at the same address.

use std::{process::Command, thread, time::Instant};

use windlass_testkit::random::Chance;

use crate::{
    day::{Memory, day},
    home::Home,
    server::{Server, Store},
};

/// A server that has bad moments.
pub(crate) struct Host {
    store: Store,
    /// Always there, but while it is started again.
    server: Option<Server>,
    began: Instant,
    injuries: u32,
    memory: Memory,
}

impl Host {
    /// Starts a server on this file.
    pub(crate) fn start(home: &Home) -> Self {
        let store = Store::at(&home.url);
        let server = Some(Server::start(&store));
        Self { store, server, began: Instant::now(), injuries: 0, memory: Memory::default() }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Where it is, all day.
    pub(crate) fn url(&self) -> String {
        self.server().url("")
    }

    /// In the middle of the day, three fifths of it, nothing is done to it. Its memory is compared within this life.
    pub(crate) fn is_left_alone(&self) -> bool {
        (1..4).contains(&self.fifth())
    }

    /// Which fifth of the day it is.
    fn fifth(&self) -> u128 {
        self.began.elapsed().as_millis() * 5 / day().as_millis()
    }

    /// Looks at its memory, if it has lived long enough to be warm.
    pub(crate) fn look(&mut self) {
        if (2..4).contains(&self.fifth()) {
            self.memory.look_at(self.server().id());
        }
    }

    /// Kills it, or has it stand still. Gives back what was done.
    pub(crate) fn injure(&mut self, chance: &mut Chance) -> &'static str {
        self.injuries += 1;
        if self.injuries.is_multiple_of(3) {
            self.signal("STOP");
            thread::sleep(chance.ms(0, 4_000));
            self.signal("CONT");
            return "freezes of the server";
        }
        let server = self.server.take().unwrap();
        let address = server.address().to_owned();
        server.kill();
        if chance.percent(50) {
            thread::sleep(chance.ms(0, 3_000));
        }
        self.server = Some(Server::start_at(&self.store, &address));
        "kills of the server"
    }

    fn signal(&self, name: &str) {
        let id = self.server().id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "a signal can be sent");
    }

    /// Ends it in good order.
    pub(crate) fn stop(mut self) {
        assert!(self.injuries > 0, "it was never injured");
        self.memory.check("the server");
        assert!(self.server.take().unwrap().stop().success());
    }
}
