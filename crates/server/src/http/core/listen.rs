//! The listener: connections with bounds, and a good end.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::{Router, routing::MethodFilter};
use hyper::server::conn::{http1, http2};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;
use windlass::BoxFuture;

use crate::http::{
    core::{
        app::App,
        places::{Place, Places},
        pulse::{Counted, Noted},
        route::{HEAD_BYTES_MAX, HEADERS_MAX, handle, no_method, no_route},
        tls::Tls,
        worded::Worded,
    },
    routes::ROUTES,
};

/// Every route, as it is called.
fn router(app: &Arc<App>) -> Router {
    let mut router = Router::<Arc<App>>::new();
    for route in ROUTES.iter().filter(|route| !route.dev || app.settings.dev) {
        let method = match route.method {
            "GET" => MethodFilter::GET,
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "DELETE" => MethodFilter::DELETE,
            other => unreachable!("no route has the method {other}"),
        };
        let state = (app.clone(), route);
        let service = axum::routing::on(method, handle).with_state(state);
        router = router.route(route.path, service);
    }
    router.fallback(no_route).method_not_allowed_fallback(no_method).with_state(app.clone())
}

/// Every route, called within this process.
pub(crate) struct InProcess(pub(crate) TowerToHyperService<Router>);

impl InProcess {
    pub(crate) fn new(app: &Arc<App>) -> Self {
        Self(TowerToHyperService::new(router(app)))
    }
}

/// Serves until it is told to stop, and then until everything that was begun is answered, or its grace is over.
pub(crate) async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<Tls>,
    mut stopping: watch::Receiver<bool>,
) {
    let router = router(&app);
    let mut beside = JoinSet::new();
    beside.spawn(app.rooms.clone().run(app.engine.clone()));
    beside.spawn(app.tail.clone().run(app.engine.clone(), app.pages.clone()));
    beside.spawn(app.alerts.clone().run(app.clone()));
    let places = Places::new(app.settings.connections_max);
    // Each connection has one of these until it ends.
    let (alive, mut all_ended) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files, most likely: what is open has to end first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Who finds no place is cut off: a queue of connections would only hide it.
        let Some(place) = places.enter(peer.ip()) else { continue };
        let connection =
            Connection { app: app.clone(), router: router.clone(), place, _alive: alive.clone() };
        let _ = stream.set_nodelay(true);
        match tls.as_ref().map(Tls::acceptor) {
            None => tokio::spawn(connection.talk_plainly(stream)),
            Some(acceptor) => tokio::spawn(connection.talk_in_secret(stream, acceptor)),
        };
    }
    drop((listener, alive));
    let _ = timeout(app.limits.now().grace, all_ended.recv()).await;
    beside.shutdown().await;
}

/// The same over HTTP/2.
const HEADER_LIST_MAX: u32 = 64 * 1024;

/// How a connection over HTTP/2 begins, if both sides knew beforehand that it would.
const HTTP2_BEGINS: &[u8; 4] = b"PRI ";

/// What one connection needs.
///
/// Thousands of them wait for most of their lives. So what is rare is boxed, what is needed only to set up a
/// connection is gone when it waits, and nothing is read before it is known which HTTP it is.
struct Connection {
    app: Arc<App>,
    router: Router,
    place: Arc<Place>,
    _alive: mpsc::Sender<()>,
}

impl Connection {
    async fn talk_plainly(self, stream: TcpStream) {
        if let Some(is_http2) = self.first_word(&stream).await {
            self.talk(stream, is_http2).await;
        }
    }

    async fn talk_in_secret(self, stream: TcpStream, acceptor: TlsAcceptor) {
        let shaking = timeout(self.app.settings.header_timeout, acceptor.accept(stream));
        if let Ok(Ok(stream)) = Box::pin(shaking).await {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            self.talk(stream, is_http2).await;
        }
    }

    /// Is it HTTP/2? None, if nothing comes.
    async fn first_word(&self, stream: &TcpStream) -> Option<bool> {
        let mut word = [0; HTTP2_BEGINS.len()];
        let mut stopping = self.app.stopping.clone();
        tokio::select! {
            peeked = timeout(self.app.settings.header_timeout, stream.peek(&mut word)) => {
                let len = peeked.ok()?.ok()?;
                (len > 0).then_some(word == *HTTP2_BEGINS)
            }
            _ = stopping.wait_for(|stopping| *stopping) => None,
            () = self.place.pulse.ended.notified() => None,
        }
    }

    /// Serves it to its end.
    fn talk<S>(self, stream: S, is_http2: bool) -> BoxFuture<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { app, router, place, _alive } = self;
        let service = TowerToHyperService::new(router);
        let service = Counted { inner: service, place: place.clone() };
        let stream = Noted { stream, pulse: place.pulse.clone() };
        let timer = TokioTimer::new();
        let stopping = app.stopping.clone();
        let watched = Watch { place, stopping, is_http2, _alive };
        if is_http2 {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(timer).max_concurrent_streams(250).max_header_list_size(HEADER_LIST_MAX);
            http.keep_alive_interval(Duration::from_secs(20));
            http.initial_stream_window_size(STREAM_WINDOW);
            http.initial_connection_window_size(CONNECTION_WINDOW);
            http.max_send_buf_size(SEND_BUFFER_MAX);
            let talking = http.serve_connection(TokioIo::new(stream), service);
            return Box::pin(watched.serve(talking, http2::Connection::graceful_shutdown));
        }
        let mut http = http1::Builder::new();
        http.timer(timer).header_read_timeout(app.settings.header_timeout);
        http.max_buf_size(2 * HEAD_BYTES_MAX).max_headers(2 * HEADERS_MAX);
        let stream = TokioIo::new(Worded::new(stream, app));
        let talking = http.serve_connection(stream, service);
        Box::pin(watched.serve(talking, http1::Connection::graceful_shutdown))
    }
}

/// How much of the bodies of one stream, and of a whole connection, is taken in before anybody reads it.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// How much of an answer is kept for a reader that opens no window.
const SEND_BUFFER_MAX: usize = 64 * 1024;

/// A connection over HTTP/2 on which nothing is asked for so long is ended. Over HTTP/1 the next head has its own time.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How often a connection is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Looks after a connection until it ends. Its place is free then.
struct Watch {
    place: Arc<Place>,
    stopping: watch::Receiver<bool>,
    is_http2: bool,
    _alive: mpsc::Sender<()>,
}

impl Watch {
    async fn serve<C>(mut self, talking: C, finish: fn(Pin<&mut C>))
    where
        C: Future<Output = Result<(), hyper::Error>>,
    {
        let mut talking = pin!(talking);
        let mut is_finishing = false;
        let mut finish_until = None;
        loop {
            tokio::select! {
                ended = talking.as_mut() => {
                    if let Err(error) = ended {
                        let error = &error as &dyn std::error::Error;
                        tracing::debug!(error, "a connection broke");
                    }
                    return;
                }
                _ = self.stopping.wait_for(|stopping| *stopping), if !is_finishing => {
                    is_finishing = true;
                    finish(talking.as_mut());
                }
                () = self.place.pulse.ended.notified() => return,
                () = tokio::time::sleep(LOOK) => {
                    let now = Instant::now();
                    if self.place.pulse.is_stuck(now) || finish_until.is_some_and(|it| now >= it) {
                        return;
                    }
                    let is_idle = |since| now.duration_since(since) >= IDLE_MAX;
                    let is_idle = self.is_http2 && self.place.pulse.idle_since().is_some_and(is_idle);
                    if is_idle && finish_until.is_none() {
                        // The other side is told, so that it does not send into a connection that is closed.
                        finish(talking.as_mut());
                        (is_finishing, finish_until) = (true, Some(now + LOOK));
                    }
                }
            }
        }
    }
}
