//! A server in a process of its own, and someone whom it calls.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} takes too long");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A server. It is killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Serves the store of a folder with this config.
    pub(crate) fn start(folder: &Path, config: &str) -> Self {
        let store = format!("sqlite:{}", folder.join("windlass.db").display());
        Self::start_on(&store, folder, config, "127.0.0.1:0", |_| {})
    }

    /// The same at this address.
    pub(crate) fn start_at(folder: &Path, config: &str, listen: &str) -> Self {
        let store = format!("sqlite:{}", folder.join("windlass.db").display());
        Self::start_on(&store, folder, config, listen, |_| {})
    }

    /// Serves a store with the config of a folder, and with what else is to be said of the process.
    pub(crate) fn start_on(
        store: &str,
        folder: &Path,
        config: &str,
        listen: &str,
        set_up: impl FnOnce(&mut Command),
    ) -> Self {
        let file = folder.join("windlass.toml");
        fs::write(&file, config).expect("the config can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(["serve", "--dev", "--listen", listen, "--store", store, "--config"])
            .arg(&file)
            .env("WINDLASS_LOG", "warn")
            .stdout(Stdio::piped());
        set_up(&mut command);
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints where it is");
        let address = line.trim().rsplit("//").next().expect("it has an address");
        let address = address.parse().unwrap_or_else(|_| panic!("it printed {line:?}"));
        Self { child, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is gone");
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        until("the end", || self.child.try_wait().expect("it is ours").is_some());
    }

    /// The status and the document that it answers.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let (status, text) = self.call_with(method, path, "", body);
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// The status and the text that it answers, if it is sent these headers besides the usual ones.
    pub(crate) fn call_with(
        &self,
        method: &str,
        path: &str,
        more: &str,
        body: Option<&Value>,
    ) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n{more}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        stream.write_all(body.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let status = answer.split(' ').nth(1).expect("a status").parse().expect("a number");
        let (_, document) = answer.split_once("\r\n\r\n").expect("a body");
        (status, document.to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, document) = self.call("GET", path, None);
        assert_eq!(status, 200, "{path}: {document}");
        document
    }

    /// Enqueues a job, and gives back its id.
    pub(crate) fn enqueue(&self, body: &Value) -> String {
        let (status, document) = self.call("POST", "/api/v1/jobs", Some(body));
        assert_eq!(status, 201, "{document}");
        document["job"]["job_id"].as_str().expect("an id").to_owned()
    }

    /// The job, once it is in this state.
    pub(crate) fn job_in(&self, id: &str, state: &str) -> Value {
        let mut job = Value::Null;
        until(state, || {
            job = self.get(&format!("/api/v1/jobs/{id}"));
            job["state"] == state
        });
        job
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A call that was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) headers: BTreeMap<String, String>,
    /// As text; what is none is in `bytes`.
    pub(crate) body: String,
    pub(crate) bytes: Vec<u8>,
}

/// Someone who is called, and answers with a status.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// Answers each call with the status that is given for its number, from 0.
    pub(crate) fn start(status: impl Fn(usize) -> u16 + Send + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), status)
    }

    pub(crate) fn at(address: SocketAddr, status: impl Fn(usize) -> u16 + Send + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("the address is free");
        let address = listener.local_addr().expect("it has one");
        let received = Arc::new(Mutex::new(Vec::new()));
        let told = received.clone();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Some(call) = stream.ok().and_then(|stream| receive(stream, status(number)))
                else {
                    continue;
                };
                told.lock().expect("nobody panics with it").push(call);
            }
        });
        Self { address, received }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("nobody panics with it").clone()
    }
}

/// Reads a call and answers it. None, if it broke off.
fn receive(stream: TcpStream, status: u16) -> Option<Received> {
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut headers) = (String::new(), BTreeMap::new());
    reader.read_line(&mut line).ok()?;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        if line == "\r\n" {
            break;
        }
        // A caller that was killed leaves no line, or half of one.
        let (name, value) = line.strip_suffix("\r\n")?.split_once(": ")?;
        headers.insert(name.to_owned(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(Ok(0), |length| length.parse()).ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let answer =
        format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).ok()?;
    Some(Received { headers, body: String::from_utf8_lossy(&body).into_owned(), bytes: body })
}
