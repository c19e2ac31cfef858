//! The pulse of a connection: whether anything is asked on it, and whether what is answered is read.
//!
//! One that is idle or does not read holds a place and memory. Nothing in HTTP ends it: an answer waits for ever for a
//! reader that opens no window, and over HTTP/2 an idle connection stays as long as it answers pings.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use hyper::{
    Request, Response,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    service::Service,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::Instant,
};
use windlass::BoxFuture;

use crate::http::core::places::Place;

/// A reader that takes nothing for so long is cut off.
pub(crate) const UNREAD_MAX: Duration = Duration::from_secs(30);

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct Pulse {
    began: Instant,
    state: Mutex<State>,
    /// Since when nothing can be written, in milliseconds after it began, and one more; 0, if all was.
    blocked_since: AtomicU64,
    /// Has a caller that was let in been heard on it?
    proven: AtomicBool,
    /// It is to end, for another needs its place.
    pub(crate) ended: Notify,
}

#[derive(Debug)]
struct State {
    /// How many calls are not answered to their end.
    open: usize,
    idle_since: Instant,
    /// Answers of which a part was taken and the next was not yet asked for, and since when.
    unread: BTreeMap<u64, Instant>,
    answers: u64,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        let began = Instant::now();
        let state = State { open: 0, idle_since: began, unread: BTreeMap::new(), answers: 0 };
        Self {
            began,
            state: Mutex::new(state),
            blocked_since: AtomicU64::new(0),
            proven: AtomicBool::new(false),
            ended: Notify::new(),
        }
    }

    /// Since when it is idle; none, if a call is open.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.open == 0).then_some(state.idle_since)
    }

    /// Does its reader take nothing for too long?
    pub(crate) fn is_stuck(&self, now: Instant) -> bool {
        let blocked = self.blocked_since.load(Ordering::Relaxed);
        let blocked = blocked.checked_sub(1).map(|at| self.began + Duration::from_millis(at));
        let unread = self.state().unread.values().min().copied();
        let since = [blocked, unread].into_iter().flatten().min();
        since.is_some_and(|since| now.duration_since(since) >= UNREAD_MAX)
    }

    /// A caller was let in. Is it the first time?
    pub(crate) fn prove(&self) -> bool {
        !self.proven.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    fn begin(self: &Arc<Self>) -> Open {
        let mut state = self.state();
        state.open += 1;
        state.answers += 1;
        Open { number: state.answers, pulse: self.clone() }
    }

    fn blocked(&self, is_blocked: bool) {
        let since = self.blocked_since.load(Ordering::Relaxed);
        if is_blocked && since == 0 {
            let at = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
            self.blocked_since.store(at + 1, Ordering::Relaxed);
        } else if !is_blocked && since != 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }
}

/// A call that is open until its answer is sent.
struct Open {
    number: u64,
    pulse: Arc<Pulse>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.pulse.state();
        state.open -= 1;
        state.unread.remove(&self.number);
        if state.open == 0 {
            state.idle_since = Instant::now();
        }
    }
}

/// A service whose calls are counted. Each request has its connection's [`Place`] among its extensions.
pub(crate) struct Counted<S> {
    pub(crate) inner: S,
    pub(crate) place: Arc<Place>,
}

impl<S> Service<Request<Incoming>> for Counted<S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Future: Send + 'static>,
{
    type Response = Response<Watched>;
    type Error = S::Error;
    type Future = BoxFuture<Result<Self::Response, Self::Error>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let open = self.place.pulse.begin();
        request.extensions_mut().insert(self.place.clone());
        let answering = self.inner.call(request);
        Box::pin(async move {
            let response = answering.await?;
            Ok(response.map(|body| Watched { body, rest: Bytes::new(), is_unread: false, open }))
        })
    }
}

/// A body that is given away in pieces, so that it is known whether it is read.
pub(crate) struct Watched {
    body: Body,
    /// What was not given away yet.
    rest: Bytes,
    is_unread: bool,
    open: Open,
}

impl Watched {
    /// The most bytes of one piece.
    const PIECE: usize = 64 * 1024;
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if std::mem::take(&mut self.is_unread) {
            let number = self.open.number;
            self.open.pulse.state().unread.remove(&number);
        }
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let size = self.rest.len().min(Self::PIECE);
        let piece = self.rest.split_to(size);
        if !self.is_end_stream() {
            self.is_unread = true;
            let number = self.open.number;
            self.open.pulse.state().unread.insert(number, Instant::now());
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        match hint.exact() {
            Some(exact) => SizeHint::with_exact(exact + rest),
            None => hint,
        }
    }
}

/// A stream of which it is known whether it takes what is written.
pub(crate) struct Noted<S> {
    pub(crate) stream: S,
    pub(crate) pulse: Arc<Pulse>,
}

impl<S> Noted<S> {
    fn note<T>(&self, polled: Poll<T>) -> Poll<T> {
        self.pulse.blocked(polled.is_pending());
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has always flushed: it says nothing about whether anybody reads.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Waker};

    use super::*;

    fn watched(pulse: &Arc<Pulse>, text: String) -> Watched {
        Watched { body: text.into(), rest: Bytes::new(), is_unread: false, open: pulse.begin() }
    }

    async fn piece(body: &mut Watched) -> Option<usize> {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        frame.map(|frame| frame.unwrap().into_data().unwrap().len())
    }

    /// What is so this long from now.
    fn is_stuck_in(pulse: &Pulse, time: Duration) -> bool {
        pulse.is_stuck(Instant::now() + time)
    }

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn an_answer_that_is_not_read_on_is_noticed_and_one_that_is_read_slowly_is_not() {
        let pulse = Arc::new(Pulse::new());
        let mut body = watched(&pulse, "x".repeat(3 * Watched::PIECE));
        assert_eq!(body.size_hint().exact(), Some(3 * Watched::PIECE as u64));
        for _ in 0..2 {
            assert_eq!(piece(&mut body).await, Some(Watched::PIECE));
            assert!(!is_stuck_in(&pulse, SOON));
            assert!(is_stuck_in(&pulse, UNREAD_MAX));
        }
        assert!(pulse.idle_since().is_none(), "a call is open");
        assert_eq!(piece(&mut body).await, Some(Watched::PIECE));
        assert!(!is_stuck_in(&pulse, UNREAD_MAX), "all of it was taken");
        drop(body);
        assert!(pulse.idle_since().is_some());
    }

    #[tokio::test]
    async fn a_stream_that_has_nothing_to_say_is_not_stuck() {
        let pulse = Arc::new(Pulse::new());
        let (frames, received) = tokio::sync::mpsc::channel(1);
        let body = crate::http::api::feed::event_stream(received).0.into_body();
        let mut body = Watched { body, rest: Bytes::new(), is_unread: false, open: pulse.begin() };
        frames.send(Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(piece(&mut body).await, Some(1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut body).poll_frame(&mut context).is_pending());
        assert!(!is_stuck_in(&pulse, UNREAD_MAX * 2), "its reader waits for us");
        pulse.blocked(true);
        assert!(is_stuck_in(&pulse, UNREAD_MAX) && !is_stuck_in(&pulse, SOON));
        pulse.blocked(false);
        assert!(!is_stuck_in(&pulse, UNREAD_MAX));
    }
}
