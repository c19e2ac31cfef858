//! A way to the server that fails when it is told to.
//!
//! It reads along, so it knows which bytes are a commit: those that bind the statement that was prepared as
//! `COMMIT`, or one that is a whole commit by itself.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use windlass_testkit::network::Cut;

/// What happens to the next `COMMIT`, or to everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server carries it out, and its answer does not arrive: the connection ends.
    Swallow,
    /// The server never sees it: the connection ends.
    Drop,
    /// The client's connection ends at once, and the server sees it only after a while.
    Late(Duration),
    /// The server never sees it, and sees only after a while that the connection has ended: until then, all that
    /// the transaction has locked stays locked.
    Unnoticed(Duration),
    /// It does not get through, and from then on nothing does, in either direction, until all thaws.
    Freeze,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: u16,
    next: Mutex<Option<Fault>>,
    done: AtomicU64,
    /// So many messages still get through to the server, and then nothing in either direction.
    left: Mutex<u64>,
    thawed: Condvar,
    /// What is held back for now.
    held: Mutex<Option<Cut>>,
    let_go: Condvar,
}

impl Proxy {
    /// A proxy of the server at this port of this machine. It ends with the process.
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            next: Mutex::default(),
            done: AtomicU64::new(0),
            left: Mutex::new(u64::MAX),
            thawed: Condvar::new(),
            held: Mutex::default(),
            let_go: Condvar::new(),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = serving.clone();
                thread::spawn(move || serve(&client, &shared));
            }
        });
        Self { port, shared }
    }

    /// This is what happens to the next commit.
    pub(crate) fn arm(&self, fault: Fault) {
        *self.shared.next.lock().unwrap() = Some(fault);
    }

    /// How many faults have happened.
    pub(crate) fn done(&self) -> u64 {
        self.shared.done.load(Ordering::SeqCst)
    }

    /// So many messages still get through to the server, and then nothing, in either direction. Nothing is
    /// closed: it is like a server that stands still, or a line that is cut.
    pub(crate) fn freeze_after(&self, messages: u64) {
        *self.shared.left.lock().unwrap() = messages;
    }

    /// Does nothing get through?
    pub(crate) fn is_frozen(&self) -> bool {
        *self.shared.left.lock().unwrap() == 0
    }

    /// This is held back from now on, as seen from the client, until it is let go: then it arrives late.
    pub(crate) fn hold(&self, cut: Cut) {
        *self.shared.held.lock().unwrap() = Some(cut);
    }

    /// What was held back goes on its way.
    pub(crate) fn let_go(&self) {
        *self.shared.held.lock().unwrap() = None;
        self.shared.let_go.notify_all();
    }

    /// All goes on.
    pub(crate) fn thaw(&self) {
        *self.shared.left.lock().unwrap() = u64::MAX;
        self.shared.thawed.notify_all();
    }
}

impl Shared {
    /// Waits while what goes in the other direction than this is not all that is held back.
    fn wait_for(&self, other: Cut) {
        let held = self.held.lock().unwrap();
        drop(self.let_go.wait_while(held, |held| held.is_some_and(|it| it != other)).unwrap());
    }

    /// Waits while nothing gets through, and counts what does.
    fn pass(&self, messages: u64) {
        let left = self.left.lock().unwrap();
        let mut left = self.thawed.wait_while(left, |left| *left == 0).unwrap();
        if *left != u64::MAX {
            *left -= messages;
        }
    }
}

/// The answer to `COMMIT`.
const COMMITTED: &[u8] = b"CCOMMIT";

/// What follows the answer to a statement that stands alone, when it is committed.
const READY: &[u8] = b"Z";

/// What both directions of a connection know.
#[derive(Default)]
struct Told {
    /// No byte of the server reaches the client any more.
    is_silent: bool,
    /// The connection ends with this answer: the server has committed.
    ends_with: Option<&'static [u8]>,
}

fn serve(client: &TcpStream, shared: &Arc<Shared>) {
    shared.wait_for(Cut::ToThere);
    shared.pass(0);
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.server)) else { return };
    for stream in [client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let told: Arc<Mutex<Told>> = Arc::default();
    let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (back_shared, back_told) = (shared.clone(), told.clone());
    let back = thread::spawn(move || {
        let (client, server) = ends;
        let _ = back_to_client(&client, &server, &back_shared, &back_told);
        close(&client, &server);
    });
    let _ = to_server(client, &server, shared, &told);
    // A server that still works on something may finish it; it notices when it answers.
    close(client, &server);
    let _ = back.join();
}

fn close(client: &TcpStream, server: &TcpStream) {
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

fn to_server(
    mut client: &TcpStream,
    mut server: &TcpStream,
    shared: &Shared,
    told: &Mutex<Told>,
) -> io::Result<()> {
    // The first message has no kind: TLS is not asked for in these tests.
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    server.write_all(&length)?;
    server.write_all(&rest(client, length)?)?;
    let mut commits: HashMap<Vec<u8>, &'static [u8]> = HashMap::new();
    loop {
        let message = read_message(client)?;
        shared.wait_for(Cut::ToThere);
        shared.pass(1);
        let mut parts = message[5..].split(|byte| *byte == 0);
        let (first, second) = (parts.next().unwrap_or(b""), parts.next().unwrap_or(b""));
        if message[0] == b'P' && second == b"COMMIT" {
            commits.insert(first.to_vec(), COMMITTED);
        } else if message[0] == b'P' && second.windows(15).any(|it| it == b"begin_at_once($") {
            commits.insert(first.to_vec(), READY);
        }
        let commit = commits.get(second).filter(|_| message[0] == b'B').copied();
        let fault = if commit.is_some() { shared.next.lock().unwrap().take() } else { None };
        match fault {
            None => {}
            Some(Fault::Swallow) => {
                *told.lock().unwrap() = Told { is_silent: true, ends_with: commit };
            }
            Some(Fault::Freeze) => {
                *shared.left.lock().unwrap() = 0;
                shared.done.fetch_add(1, Ordering::SeqCst);
                shared.pass(0);
            }
            Some(Fault::Drop) => {
                shared.done.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            Some(Fault::Unnoticed(time)) => {
                shared.done.fetch_add(1, Ordering::SeqCst);
                client.shutdown(Shutdown::Both)?;
                thread::sleep(time);
                return Ok(());
            }
            Some(Fault::Late(time)) => {
                let (execute, sync) = (read_message(client)?, read_message(client)?);
                shared.done.fetch_add(1, Ordering::SeqCst);
                client.shutdown(Shutdown::Both)?;
                thread::sleep(time);
                server.write_all(&[message, execute, sync].concat())?;
                // The server has it in hand: what it says goes nowhere.
                thread::sleep(Duration::from_millis(50));
                return Ok(());
            }
        }
        server.write_all(&message)?;
    }
}

fn back_to_client(
    mut client: &TcpStream,
    server: &TcpStream,
    shared: &Shared,
    told: &Mutex<Told>,
) -> io::Result<()> {
    loop {
        let message = read_message(server)?;
        shared.wait_for(Cut::FromThere);
        shared.pass(0);
        let told = told.lock().unwrap();
        let kind_and_text = [&message[..1], &message[5..]].concat();
        if told.ends_with.is_some_and(|end| kind_and_text.starts_with(end)) {
            shared.done.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        if !told.is_silent {
            // A client that is gone does not keep the server from what it is at.
            let _ = client.write_all(&message);
        }
    }
}

/// A message: its kind, its length, and what it says.
fn read_message(mut from: &TcpStream) -> io::Result<Vec<u8>> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let mut message = head.to_vec();
    message.extend(rest(from, head[1..].try_into().unwrap())?);
    Ok(message)
}

fn rest(mut from: &TcpStream, length: [u8; 4]) -> io::Result<Vec<u8>> {
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    from.read_exact(&mut rest)?;
    Ok(rest)
}
