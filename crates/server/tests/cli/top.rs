//! `windlass top`, as one picture.

use crate::shell::Shell;

#[test]
fn one_picture_shows_queues_workers_rates_and_alerts() {
    let mut shell = Shell::new();
    shell.about("Nobody serves it.");
    shell.quiet("windlass token list");
    shell.run("windlass top --once");
    shell.quiet("windlass job add send_mail");
    shell.quiet("windlass job add send_mail");
    shell.quiet("windlass job add report --queue office --at 2126-01-02T03:04:05Z");
    shell.run("windlass top --once");
    shell.about("It is served, and a job runs.");
    // Its own worker has a name that differs from run to run.
    let config = "[executors.http]\nenabled = false";
    let server = crate::serving::Server::start(shell.folder(), config);
    let claim = serde_json::json!({"worker_id": "ann-1", "start": true, "max": 1});
    assert_eq!(server.call("POST", "/api/v1/claims", Some(&claim)).0, 200);
    // One that only waits is seen, too.
    let claim = serde_json::json!({"worker_id": "bob-1", "queues": ["letters"]});
    assert_eq!(server.call("POST", "/api/v1/claims", Some(&claim)).0, 200);
    shell.run("windlass top --once");
    shell.about("A narrow terminal.");
    shell.columns(40);
    shell.run("windlass top --once");
    shell.columns(100);
    let document = shell.quiet("windlass top -o json").json();
    assert_eq!(document["totals"]["started"], 1, "{document}");
    assert_eq!(document["workers"][0]["held"], 1, "{document}");
    assert_eq!(document["queues"][0]["counts"]["queued"], 1, "{document}");
    shell.finish("top");
}
