//! The listener: connections with bounds, and a good end.

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::MethodFilter};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};

use super::{
    app::App,
    route::{handle, no_method, no_route},
    routes::ROUTES,
    tls::Tls,
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
    beside.spawn(app.tail.clone().run(app.engine.clone()));
    beside.spawn(app.alerts.clone().run(app.clone()));
    let places = Arc::new(Semaphore::new(app.settings.connections_max));
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, most likely: what is open has to end first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Who finds no place is cut off: a queue of connections would only hide it.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (app, router, watcher) = (app.clone(), router.clone(), graceful.watcher());
        let acceptor = tls.as_ref().map(Tls::acceptor);
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            match acceptor {
                None => talk(&app, router, stream, watcher).await,
                Some(acceptor) => {
                    let shaking = timeout(app.settings.header_timeout, acceptor.accept(stream));
                    if let Ok(Ok(stream)) = shaking.await {
                        talk(&app, router, stream, watcher).await;
                    }
                }
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = timeout(app.limits.now().grace, graceful.shutdown()).await;
    beside.shutdown().await;
}

/// Serves one connection to its end.
async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    app: &App,
    router: Router,
    stream: S,
    watcher: Watcher,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(app.settings.header_timeout);
    http1.max_buf_size(32 * 1024).max_headers(100);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(250).max_header_list_size(16 * 1024);
    http2.keep_alive_interval(Duration::from_secs(20));
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(error, "a connection broke");
    }
}
