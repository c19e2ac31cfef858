//! What all calls share: the engine, the settings, and what is counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::http::{HeaderMap, HeaderValue, Uri, header, uri::Authority};
use tokio::sync::{SemaphorePermit, watch};
use windlass::Engine;
use windlass_kernel::{Job, JobId, Principal, TenantId, ids::ClaimId, token::Role};
use windlass_store::read::Scope;

use crate::http::{
    api::{
        alerts::{Alerts, Thresholds},
        tokens,
    },
    core::{
        bells::Bells,
        caller::{Access, Caller},
        counts::Counts,
        figures::Figures,
        limits::Limits,
        lines::Lines,
        listening::Listening,
        pages::Pages,
        problem::Problem,
        room::Rooms,
        route::Call,
        streams::Streams,
        tail::Tail,
        under_way::UnderWay,
    },
};
use crate::traces::Traces;

/// How the server is set up.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Is it for development, on this machine only?
    pub(crate) dev: bool,
    /// The most bytes of a body.
    pub(crate) body_bytes_max: usize,
    /// The most bytes of bodies that are read and answers that are written, at once. A tenant has a quarter of them.
    pub(crate) memory_bytes_max: usize,
    /// How long a body may take to come.
    pub(crate) body_timeout: Duration,
    /// How long the head of a request may take to come.
    pub(crate) header_timeout: Duration,
    /// The most connections at once.
    pub(crate) connections_max: usize,
    /// The most calls at once that read or write, but for those of workers: what is held must not be lost because others
    /// ask too much.
    pub(crate) calls_max: usize,
    /// How many calls a second a principal may make, and how many at once.
    pub(crate) calls_per_second: u32,
    /// From where on something is worth an alert.
    pub(crate) alerts: Thresholds,
    /// How long what is open may take to end, when the server stops.
    pub(crate) grace: Duration,
}

impl Settings {
    /// As usual.
    pub(crate) fn new(dev: bool) -> Self {
        Self {
            dev,
            body_bytes_max: 8 * 1024 * 1024,
            memory_bytes_max: 512 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(10),
            connections_max: 10_000,
            calls_max: 2_000,
            calls_per_second: 50_000,
            alerts: Thresholds::default(),
            grace: Duration::from_secs(10),
        }
    }
}

/// What all calls share.
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) settings: Settings,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) bells: Bells,
    pub(crate) streams: Streams,
    pub(crate) lines: Lines,
    /// The same claim may come again before it is answered.
    pub(crate) claiming: UnderWay<ClaimId>,
    pub(crate) tail: Arc<Tail>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) traces: Traces,
    pub(crate) alerts: Arc<Alerts>,
    pub(crate) counts: Arc<Counts>,
    /// What of the settings can be changed while it runs.
    pub(crate) limits: Limits,
    pub(crate) listening: Listening,
    pub(crate) tokens: tokens::Known,
    /// Does the worker of the demo run here?
    has_demo: AtomicBool,
    /// Who calls, where nobody else can: in the process of the one who has the store.
    trusted: Option<Caller>,
    /// True from the moment when the server is to stop.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl App {
    pub(crate) fn new(
        engine: Engine,
        settings: Settings,
        traces: Traces,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let rooms: Arc<Rooms> = Arc::default();
        Self {
            engine,
            bells: Bells::new(rooms.clone()),
            rooms,
            streams: Streams::default(),
            lines: Lines::default(),
            claiming: UnderWay::default(),
            tail: Arc::default(),
            pages: Arc::default(),
            figures: Arc::new(Figures::new(&traces.counts)),
            traces,
            alerts: Arc::default(),
            counts: Arc::default(),
            listening: Listening::default(),
            tokens: tokens::Known::default(),
            has_demo: AtomicBool::new(false),
            trusted: None,
            limits: Limits::new(settings.clone()),
            settings,
            stopping,
        }
    }

    /// Every call is this one's. It is for calls within a process, and never for what listens.
    pub(crate) fn trusting(self, caller: Caller) -> Self {
        Self { trusted: Some(caller), ..self }
    }

    /// Does it listen, or is it for calls within a process?
    pub(crate) fn is_serving(&self) -> bool {
        self.trusted.is_none()
    }

    /// The worker of the demo runs here from now on.
    pub(crate) fn demo_runs(&self) {
        self.has_demo.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_demo(&self) -> bool {
        self.has_demo.load(Ordering::Relaxed)
    }

    /// Who calls. In development, who brings no token may do everything, under any name.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        access: Access,
    ) -> Result<Caller, Problem> {
        if let Some(caller) = &self.trusted {
            return Ok(caller.clone());
        }
        if let Some(token) = tokens::bearer(headers)? {
            return self.tokens.caller(&self.engine, token).await;
        }
        let scope = TenantId::new(Engine::TENANT_DEFAULT).expect("the default name is a name");
        let named = headers.get("x-windlass-actor").and_then(|value| value.to_str().ok());
        let (name, role) = match (self.settings.dev, access) {
            (true, _) => (named.unwrap_or("dev"), Role::Admin),
            (false, Access::Open) => ("anybody", Role::Viewer),
            (false, _) => return Err(Problem::unauthorized("the call brings no token")),
        };
        let principal = Principal::new(name)?;
        Ok(Caller { principal, scope: scope.into(), role, has_token: false })
    }

    /// A place for a call that reads or writes, if there is one left. Workers need none.
    pub(crate) fn place(&self, access: Access) -> Result<Option<SemaphorePermit<'_>>, Problem> {
        match access {
            Access::Open | Access::Work => Ok(None),
            Access::Read | Access::Enqueue | Access::Operate | Access::Admin => {
                let full = |_| Problem {
                    retry_after: Some(1),
                    ..Problem::overloaded("as many calls as the server can hold are being answered")
                };
                self.limits.place().map(Some).map_err(full)
            }
        }
    }

    /// A page of another site can make a browser call this machine, also under a name of its own. Without tokens only
    /// the names of this machine are answered, and only its own pages.
    pub(crate) fn check_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        if !self.settings.dev {
            return Ok(());
        }
        let text =
            |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
        // HTTP/2 says it in `:authority`, and need not say it again.
        let authority = uri.authority().map(Authority::as_str);
        for host in [text(header::HOST), authority].into_iter().flatten() {
            if !is_this_machine(host) {
                let detail = format!("{host} is no name of this machine; use localhost");
                return Err(Problem::forbidden(detail));
            }
        }
        let origin =
            text(header::ORIGIN).map(|origin| origin.split_once("://").map_or("?", |it| it.1));
        // A page from a file, or from nowhere, has no name.
        if origin.is_some_and(|origin| origin.is_empty() || !is_this_machine(origin)) {
            return Err(Problem::forbidden("a page of another site may not call this machine"));
        }
        Ok(())
    }
}

/// Is it a name of this machine, with a port or without?
fn is_this_machine(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    matches!(name, "localhost" | "[::1]")
        || name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

impl App {
    /// A job that the caller can see. Another tenant's is not there.
    pub(crate) async fn job(&self, call: &Call, id: JobId) -> Result<Job, Problem> {
        let job = self.engine.store().job(call.scope(), id).await?;
        job.ok_or_else(|| Problem::not_found("job").of_job(id))
    }

    /// The problem as somebody of this scope may see it. Whoever gives a new job the id of another tenant's is told what
    /// they would be told of any job that is not theirs.
    pub(crate) async fn hide(&self, problem: Problem, scope: &Scope) -> Problem {
        let taken = problem.job_id.filter(|_| problem.code == "JOB_EXISTS");
        if let Some(id) = taken
            && let Ok(None) = self.engine.store().job(scope, id).await
        {
            return Problem::not_found("job").of_job(id);
        }
        problem.seen_by(scope)
    }

    /// The payload of a job that the caller can see.
    pub(crate) async fn payload(&self, call: &Call, id: JobId) -> Result<Option<String>, Problem> {
        Ok(self.engine.store().payload(call.scope(), id).await?)
    }
}
