//! What the HTTP library answers by itself, in our words.
//!
//! A head that it cannot take never becomes a request. It answers with a status and nothing else, and closes the
//! connection. This stream puts a problem document in the place of that answer; all else passes as it is.
//!
//! Every answer of ours has a trace, so one without is the library's. Over HTTP/2 there is no such place: a head that is
//! too large is a bare 431 there.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::core::{
    app::App,
    problem::Problem,
    route::{HEAD_BYTES_MAX, HEADERS_MAX},
};

/// A connection on which every answer is ours.
pub(crate) struct Worded<S> {
    stream: S,
    app: Arc<App>,
    /// An answer that is on its way in the place of another.
    telling: Option<Box<Telling>>,
}

struct Telling {
    text: String,
    sent: usize,
}

impl<S> Worded<S> {
    pub(crate) fn new(stream: S, app: Arc<App>) -> Self {
        Self { stream, app, telling: None }
    }
}

impl<S: AsyncWrite + Unpin> Worded<S> {
    /// Is this part of the library's answer, and not of ours?
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        if self.telling.is_none()
            && let Some(problem) = problem_of(bytes)
        {
            self.app.figures.problem(problem.code);
            let trace = format!("{:032x}", self.app.engine.ids().random());
            self.telling = Some(Box::new(Telling { text: text_of(&problem, &trace), sent: 0 }));
        }
        self.telling.is_some()
    }

    /// Tells ours. Then all of theirs counts as written.
    fn poll_tell(&mut self, cx: &mut Context<'_>, theirs: &[u8]) -> Poll<io::Result<usize>> {
        while let Some(telling) = &mut self.telling {
            let rest = &telling.text.as_bytes()[telling.sent..];
            if rest.is_empty() {
                self.telling = None;
                break;
            }
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => telling.sent += sent,
            }
        }
        Poll::Ready(Ok(theirs.len()))
    }
}

/// What the library means by a bare answer; none, if it is not one.
fn problem_of(head: &[u8]) -> Option<Problem> {
    let status = head.strip_prefix(b"HTTP/1.1 ").or_else(|| head.strip_prefix(b"HTTP/1.0 "))?;
    let problem = match status.get(..4)? {
        b"431 " | b"414 " => Problem::head_too_large(format!(
            "there are more than {} headers, or with the address they have more than {} bytes",
            2 * HEADERS_MAX,
            2 * HEAD_BYTES_MAX
        )),
        b"400 " => Problem::malformed("it is not HTTP/1.1: its first line or a header is broken"),
        _ => return None,
    };
    let text = std::str::from_utf8(head).ok()?;
    (text.contains("\r\ncontent-length: 0\r\n") && !text.contains("\r\nx-trace-id:"))
        .then_some(problem)
}

/// A whole answer. The connection ends with it.
fn text_of(problem: &Problem, trace: &str) -> String {
    let body = serde_json::to_string(&problem.document(trace)).expect("it is plain data");
    let (status, length) = (problem.status, body.len());
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n\
         x-trace-id: {trace}\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n\
         connection: close\r\n\r\n{body}"
    )
}

impl<S: AsyncRead + Unpin> AsyncRead for Worded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Worded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.replaces(bytes) {
            true => self.poll_tell(cx, bytes),
            false => Pin::new(&mut self.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match parts.first() {
            Some(head) if self.replaces(head) => self.poll_tell(cx, head),
            _ => Pin::new(&mut self.stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_by_itself_is_told_from_what_we_say() {
        let code = |head: &str| problem_of(head.as_bytes()).map(|problem| problem.code);
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(code(bare), Some("HEAD_TOO_LARGE"));
        assert_eq!(
            code("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"),
            Some("MALFORMED_REQUEST")
        );
        assert_eq!(
            code("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx-trace-id: a\r\n\r\n"),
            None
        );
        assert_eq!(code("HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\n"), None);
        assert_eq!(code("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), None);
        assert_eq!(code("HTTP/1.1"), None);
    }
}
