//! The server over HTTP: a process of its own, and callers that keep their connections.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1::SendRequest, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::{net::TcpStream, task::JoinSet};

use super::{error::Error, options::HttpPlan, times::Times};
use crate::cli::{
    Output,
    look::{output, prose::wrapped, view::View},
};

/// One run. Programs rely on these fields.
#[derive(Serialize)]
struct Document {
    workload: &'static str,
    jobs: u64,
    batch: u64,
    connections: u64,
    seconds: f64,
    jobs_per_s: f64,
    requests_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    server_rss_mb: f64,
    idle_polls: u64,
    idle_polls_mb: Option<f64>,
}

/// Measures, and prints what was measured.
pub(super) fn run(plan: &HttpPlan, view: &View) -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new().map_err(Error::Runtime)?;
    for _ in 0..plan.runs {
        let document = runtime.block_on(one_run(plan))?;
        let text = match view.output {
            Output::Table => wrapped(&table(&document), 0, view.width),
            Output::Json => {
                serde_json::to_string_pretty(&document).expect("it is plain data") + "\n"
            }
            Output::Jsonl => serde_json::to_string(&document).expect("it is plain data") + "\n",
        };
        output::print(&text);
    }
    Ok(())
}

fn table(run: &Document) -> String {
    let polls = run.idle_polls_mb.map_or(String::new(), |mb| {
        format!(", {} idle long polls take {mb:.1} MB", run.idle_polls)
    });
    format!(
        "http: {} jobs by {} over {} connections in {:.2} s: {:.0} jobs/s, {:.0} requests/s, \
         p50 {:.2} ms, p99 {:.2} ms; server {:.0} MB{polls}\n",
        run.jobs,
        run.batch,
        run.connections,
        run.seconds,
        run.jobs_per_s,
        run.requests_per_s,
        run.p50_ms,
        run.p99_ms,
        run.server_rss_mb
    )
}

/// A server that ends with this value.
struct Server {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts this program as a server, on a database in a temporary folder below the current one.
    fn start() -> Result<Self, Error> {
        let folder = |source| Error::Folder { path: ".".into(), source };
        let place =
            tempfile::Builder::new().prefix("windlass-bench-").tempdir_in(".").map_err(folder)?;
        let store = format!("sqlite:{}", place.path().join("bench.db").display());
        let program = std::env::current_exe().map_err(Error::Runtime)?;
        let mut child = Command::new(program)
            .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--store", &store])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::Runtime)?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(Error::Runtime)?;
        let address = line.trim().rsplit("http://").next().and_then(|text| text.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            return Err(Error::Server(format!("it did not say where it listens: {line:?}")));
        };
        Ok(Self { child, address, _folder: place })
    }

    /// The memory that it has in use.
    fn rss_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let line =
            |text: String| text.lines().find(|line| line.starts_with("VmRSS:")).map(str::to_owned);
        let line = status.ok().and_then(line).unwrap_or_default();
        let kilobytes = line.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
        kilobytes.unwrap_or(0.0) / 1_000.0
    }
}

async fn one_run(plan: &HttpPlan) -> Result<Document, Error> {
    let server = Server::start()?;
    let idle_polls_mb = match plan.polls {
        0 => None,
        polls => Some(idle_polls(&server, polls).await?),
    };
    let requests = plan.jobs.div_ceil(plan.batch);
    let each = requests.div_ceil(plan.connections);
    let (path, body) = request_of(plan.batch);
    let mut callers = JoinSet::new();
    let mut lines = Vec::new();
    for _ in 0..plan.connections {
        lines.push(connect(server.address).await?);
    }
    let began = Instant::now();
    for mut line in lines {
        let body = body.clone();
        callers.spawn(async move {
            let mut times = Times::default();
            for _ in 0..each {
                let sent = Instant::now();
                let status = post(&mut line, path, body.clone()).await?;
                if !status.is_success() {
                    return Err(Error::Server(format!("it answered {status}")));
                }
                times.record(sent.elapsed(), 1);
            }
            Ok(times)
        });
    }
    let mut times = Times::default();
    while let Some(caller) = callers.join_next().await {
        let caller = caller.map_err(|error| Error::Server(error.to_string()))?;
        times.merge(&caller?);
    }
    let seconds = began.elapsed().as_secs_f64();
    let requests = (each * plan.connections) as f64;
    let ms = |percent| times.percentile(percent).unwrap_or_default().as_secs_f64() * 1e3;
    Ok(Document {
        workload: "http",
        jobs: each * plan.connections * plan.batch,
        batch: plan.batch,
        connections: plan.connections,
        seconds,
        jobs_per_s: requests * plan.batch as f64 / seconds,
        requests_per_s: requests / seconds,
        p50_ms: ms(50),
        p99_ms: ms(99),
        server_rss_mb: server.rss_mb(),
        idle_polls: plan.polls,
        idle_polls_mb,
    })
}

/// A job as the other workloads have it: it does nothing and carries 60 bytes.
fn request_of(batch: u64) -> (&'static str, Bytes) {
    let job =
        r#"{"kind":"noop","payload":{"to":"somebody@example.com","text":"sixty bytes or so"}}"#;
    if batch == 1 {
        return ("/api/v1/jobs", Bytes::from_static(job.as_bytes()));
    }
    let jobs = vec![job; usize::try_from(batch).unwrap_or(1)].join(",");
    ("/api/v1/jobs/batch", Bytes::from(format!("{{\"jobs\":[{jobs}]}}")))
}

/// How much memory so many callers take that wait for a job.
async fn idle_polls(server: &Server, polls: u64) -> Result<f64, Error> {
    let before = server.rss_mb();
    let mut waiting = JoinSet::new();
    for number in 0..polls {
        let mut line = connect(server.address).await?;
        let body = format!(r#"{{"worker_id":"w{number}","queues":["nothing"],"wait_ms":30000}}"#);
        waiting.spawn(async move { post(&mut line, "/api/v1/claims", body.into()).await });
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = server.rss_mb();
    waiting.shutdown().await;
    Ok(after - before)
}

type Line = SendRequest<Full<Bytes>>;

async fn connect(address: SocketAddr) -> Result<Line, Error> {
    let failed = |error: &dyn std::error::Error| Error::Server(error.to_string());
    let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
    let _ = stream.set_nodelay(true);
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (line, connection) = shaken.map_err(|error| failed(&error))?;
    tokio::spawn(connection);
    Ok(line)
}

async fn post(line: &mut Line, path: &str, body: Bytes) -> Result<hyper::StatusCode, Error> {
    let failed = |error: hyper::Error| Error::Server(error.to_string());
    let request = Request::post(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("it is a request");
    line.ready().await.map_err(failed)?;
    let response = line.send_request(request).await.map_err(failed)?;
    let status = response.status();
    response.into_body().collect().await.map_err(failed)?;
    Ok(status)
}
