//! Memory: who waits takes little.

use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::server::{Server, Store, block_on};

/// 5,000 callers that wait for a job take less than 100 MB, so each may take 20 KB.
const EACH_KB_MAX: u64 = 20;
const CALLERS: u64 = 200;

#[test]
fn a_caller_that_waits_takes_less_than_20_kilobytes() {
    block_on(async {
        let store = Store::sqlite();
        let server = Server::start(&store);
        // What the first ones bring about stays, however many come after them.
        let mut callers = vec![wait_for_work(&server, "first").await];
        // Other things happen in a server meanwhile: what the callers take is the least of what was seen.
        let mut least = u64::MAX;
        for name in ["second", "third", "fourth"] {
            let before = server.rss_kb();
            callers.push(wait_for_work(&server, name).await);
            least = least.min(server.rss_kb().saturating_sub(before) / CALLERS);
            if least < EACH_KB_MAX {
                return;
            }
        }
        panic!("each takes {least} KB");
    });
}

/// So many callers wait, and the server knows of each.
async fn wait_for_work(server: &Server, name: &str) -> Vec<TcpStream> {
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let mut caller = TcpStream::connect(server.address()).await.expect("it listens");
        let body = format!(
            r#"{{"worker_id":"{name}{number}","queues":["nothing-{name}"],"wait_ms":30000}}"#
        );
        let len = body.len();
        let head = format!(
            "POST /api/v1/claims HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {len}\r\n\r\n"
        );
        caller.write_all((head + &body).as_bytes()).await.expect("it reads");
        callers.push(caller);
    }
    // All of them have been heard when whoever came after them has been.
    let last = format!(r#"{{"worker_id":"{name}","queues":["nothing-{name}"],"wait_ms":3000}}"#);
    server.post("/api/v1/claims", &last).await.ok();
    callers
}
