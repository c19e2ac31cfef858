//! What can be set, what stands above what, and what is said about mistakes.

use std::{net::SocketAddr, path::Path, time::Duration};

use clap::Parser;

use super::*;
use crate::executors::guard::Allowed;

/// The flags, as they are typed.
#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    args: ServerArgs,
}

fn args(typed: &[&str]) -> ServerArgs {
    Typed::parse_from(std::iter::once(&"windlass").chain(typed)).args
}

fn read(text: &str) -> Result<Config, String> {
    Config::parse(&ServerArgs::default(), &Variables::default(), Path::new("windlass.toml"), text)
}

fn refused(text: &str) -> String {
    read(text).expect_err(text)
}

/// Everything that can be set.
const WHOLE: &str = r#"
[server]
listen = "127.0.0.1:9000"
store = "sqlite:file.db"
dev = true
body_bytes_max = 1048576
body_timeout_ms = 1000
header_timeout_ms = 2000
connections_max = 50
calls_per_second = 100
grace_ms = 3000
tls_certificate = "cert.pem"
tls_key = "key.pem"

[executors.http]
enabled = false
queues = ["calls", "slow"]
concurrency = 3
allow = ["10.0.0.0/8", "::1", "Billing.internal"]
timeout_ms = 5000
response_bytes_max = 1000
follow_redirects = true

[executors.command]
enabled = true
queues = ["programs"]
concurrency = 2

[executors.command.allow.resize]
program = "/bin/sh"
args = ["-c", "exit 0", "{file}"]
env = { LANG = "C" }
directory = "/tmp"
output_bytes_max = 100
retry_exit_codes = [3]

[[webhooks]]
name = "orders"
url = "https://example.com/hook?key=1"
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
tenant = "acme"
contract = "tasks"
events = { states = ["succeeded", "failed"], kinds = ["send_mail"], queues = ["mail"] }
max_retries = 2
backoff_ms = 10
timeout_ms = 1000

[alerts]
retrying_share = 0.5
dlq_per_minute = 2
invalid_transitions = 3
queue_age_ms = 1000
lease_churn = 4
webhook = "orders"
"#;

#[test]
fn everything_can_be_set() {
    let config = read(WHOLE).unwrap();
    let server = &config.server;
    assert_eq!(
        (server.store.as_str(), server.listen),
        ("sqlite:file.db", address("127.0.0.1:9000"))
    );
    assert!(server.settings.dev && server.tls.is_some());
    assert_eq!(server.settings.body_bytes_max, 1_048_576);
    assert_eq!(server.settings.grace, Duration::from_secs(3));
    assert_eq!(server.settings.calls_per_second, 100);
    let http = &config.executors.http;
    assert_eq!((http.enabled, http.concurrency, http.follow_redirects), (false, 3, true));
    assert_eq!(http.allow[2], Allowed::Host("billing.internal".to_owned()));
    let command = &config.executors.command;
    assert_eq!((command.enabled, command.allow["resize"].retry_exit_codes[0]), (true, 3));
    let webhook = &config.webhooks[0];
    assert_eq!((webhook.tenant.as_str(), webhook.contract.unwrap().name), ("acme", "tasks"));
    assert_eq!((webhook.events.states.len(), webhook.max_retries), (2, 2));
    assert_eq!(webhook.secrets().unwrap()[0].bytes().len(), 24);
    let thresholds = &config.server.settings.alerts;
    assert_eq!((thresholds.interruptions_per_minute, thresholds.dlq_per_minute), (4, 2));
    assert_eq!(thresholds.queue_age, Duration::from_secs(1));
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn nothing_need_be_set() {
    let config = Config::load(&ServerArgs::default()).unwrap();
    assert_eq!(config.server.store, "sqlite:windlass.db");
    assert_eq!(config.server.listen, address("127.0.0.1:7117"));
    assert!(!config.server.settings.dev && !config.executors.command.enabled);
    assert!(config.webhooks.is_empty());
    assert_eq!(config.server.settings.body_bytes_max, 8 * 1024 * 1024);
}

#[test]
fn a_flag_stands_above_the_file() {
    let file =
        "[server]\nlisten = \"127.0.0.1:1\"\ndev = true\nstore = \"sqlite:a\"\ngrace_ms = 5\n";
    let typed = ["--listen", "127.0.0.1:2", "--dev=false", "--grace-ms", "7"];
    let config = Config::parse(&args(&typed), &Variables::default(), Path::new("f"), file).unwrap();
    assert_eq!(config.server.listen, address("127.0.0.1:2"));
    assert!(!config.server.settings.dev);
    assert_eq!(config.server.store, "sqlite:a");
    assert_eq!(config.server.settings.grace, Duration::from_millis(7));
    assert!(
        Config::parse(&args(&["--dev"]), &Variables::default(), Path::new("f"), "")
            .unwrap()
            .server
            .settings
            .dev
    );
    let out = Config::parse(
        &args(&["--connections-max", "0"]),
        &Variables::default(),
        Path::new("f"),
        "",
    )
    .unwrap_err();
    assert_eq!(out, "f: connections_max: it must be from 1 to 1000000, not 0");
}

#[test]
fn a_key_that_nobody_knows_is_an_error_that_names_the_nearest() {
    for (text, nearest) in [
        ("[sever]\n", "server"),
        ("[server]\nlisen = \"x\"\n", "listen"),
        ("[server]\n\n# a comment\ngrace = 1\n", "grace_ms"),
        ("[executors.htp]\n", "http"),
        ("[executors.http]\nfollow_redirect = true\n", "follow_redirects"),
        ("[executors.command.allow.x]\nprogramm = \"/bin/sh\"\n", "program"),
        ("[[webhooks]]\nnam = \"x\"\n", "name"),
        ("[[webhooks]]\nname = \"x\"\nevents = { state = [] }\n", "states"),
        ("[alerts]\nlease_churm = 1\n", "lease_churn"),
    ] {
        let why = refused(text);
        assert!(why.contains(&format!("did you mean {nearest:?}?")), "{text}: {why}");
    }
    assert!(refused("[server]\n\n\nlisen = 1\n").starts_with("windlass.toml, line 4: "));
    let far = refused("[alerts]\nzzzzzzzzzzzzzz = 1\n");
    assert!(far.contains("there are retrying_share, retrying_jobs_min, dlq_per_minute"), "{far}");
}

#[test]
fn a_value_that_cannot_be_used_is_refused_with_its_place_and_what_to_do() {
    let webhook =
        |more: &str| format!("[[webhooks]]\nname = \"x\"\nurl = \"https://e.com\"\n{more}\n");
    let command = |more: &str| {
        format!("[executors.command]\nenabled = true\n[executors.command.allow.x]\n{more}\n")
    };
    for (text, told) in [
        (
            "[server]\nlisten = \"localhost\"".to_owned(),
            "line 2: listen: \"localhost\" is no address; write it as",
        ),
        ("[server]\nlisten = 7".to_owned(), "line 2: listen: "),
        ("[server]\ngrace_ms = 0".to_owned(), "grace_ms: it must be from 1 to 3600000, not 0"),
        ("[server]\ngrace_ms = -1".to_owned(), "grace_ms: "),
        ("[server]\nbody_bytes_max = 7".to_owned(), "body_bytes_max: it must be from 1024"),
        ("[server]\ntls_key = \"k\"".to_owned(), "tls_key: name its tls_certificate, too"),
        ("[server]\ntls_certificate = \"k\"".to_owned(), "name its tls_key, too"),
        ("[executors.http]\nallow = [\"10.0.0.0/33\"]".to_owned(), "is no network; write it as"),
        ("[executors.http]\nallow = [\"http://x\"]".to_owned(), "line 2: allow: "),
        ("[executors.http]\nallow = [\"*\"]".to_owned(), "is no host and no network"),
        ("[executors.http]\nallow = [\"127.1\"]".to_owned(), "is no host and no network"),
        ("[executors.http]\nqueues = []".to_owned(), "name at least one queue"),
        ("[executors.http]\nconcurrency = 0".to_owned(), "concurrency: it must be from 1 to"),
        (
            "[executors.http]\nresponse_bytes_max = 1000000".to_owned(),
            "it must be from 0 to 163840",
        ),
        (
            "[executors.command]\nenabled = true".to_owned(),
            "add a section [executors.command.allow.NAME]",
        ),
        (
            command("program = \"convert\""),
            "line 4: program: convert is not absolute; write the whole path",
        ),
        (command("program = \"/no/such/program\""), "allow.x: /no/such/program cannot be used"),
        (command("program = \"/etc/passwd\""), "is no program; name a file that can be executed"),
        (command("program = \"/bin/sh\"\nargs = [\"--a={b}\"]"), "must be an argument of its own"),
        (command("program = \"/bin/sh\"\ndirectory = \"/no/such\""), "there is no folder /no/such"),
        (command("program = \"/bin/sh\"\nenv = { WINDLASS_X = \"1\" }"), "is no name"),
        (command("program = \"/bin/sh\"\nretry_exit_codes = [0]"), "they are from 1 to 255"),
        (command("args = []"), "missing field `program`"),
        (webhook(""), "x: it needs a secret or secret_env"),
        (webhook("secret = \"short\""), "a secret has at least 16 bytes"),
        (webhook("secret = \"whsec_???\""), "must be base64"),
        (
            webhook("secret_env = \"WINDLASS_TEST_NOT_SET\""),
            "secret_env: set WINDLASS_TEST_NOT_SET",
        ),
        (webhook("secret = \"sixteen bytes, or\"\nsecret_env = \"X\""), "not both"),
        (webhook("secret = \"sixteen bytes, or\"\nsecret_old = \"short\""), "at least 16 bytes"),
        (webhook("contract = \"x\""), "there are the contracts runs, tasks, jobs and ingest"),
        (webhook("events = { states = [\"done\"] }"), "unknown variant"),
        ("[[webhooks]]\nname = \"a b\"".to_owned(), "use 1 to 64 letters"),
        ("[[webhooks]]\nname = \"x\"\nurl = \"ftp://e.com\"".to_owned(), "begin it with https://"),
        (
            "[[webhooks]]\nname = \"x\"\nurl = \"https://u:p@e.com\"".to_owned(),
            "leave name and password out",
        ),
        ("[alerts]\nretrying_share = 20.0".to_owned(), "it is a share, such as 0.2"),
        ("[alerts]\nwebhook = \"x\"".to_owned(), "no webhook is called x; add it as [[webhooks]]"),
        ("[server".to_owned(), "line 1: "),
    ] {
        let why = refused(&text);
        assert!(why.contains(told), "{text}\n{why}");
    }
    let one = webhook("secret = \"sixteen bytes, or\"");
    assert!(refused(&format!("{one}{one}")).contains("there are two called x; rename one"));
}

#[test]
fn no_message_and_no_log_shows_a_secret() {
    for text in [
        "[[webhooks]]\nname = \"x\"\nurl = \"https://e.com\"\nsecret = [\"s3cret\"]",
        "[[webhooks]]\nname = \"x\"\nurl = \"https://e.com\"\nsecret = \"whsec_s3cret\"",
        "[[webhooks]]\nname = \"x\"\nurl = \"s3cret\"",
        "[[webhooks]]\nname = \"x\"\nurl = \"https://s3cret@e.com\"",
        "[[webhooks]]\nname = \"x\"\nsecret = \"s3cret\" \"",
    ] {
        let why = refused(text);
        assert!(!why.contains("s3cret"), "{why}");
    }
    let config = read(WHOLE).unwrap();
    assert!(!format!("{:?}", config.webhooks[0].secrets().unwrap()).contains("49"));
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let why = Config::load(&args(&["--config", "/no/such/file.toml"])).unwrap_err();
    assert!(why.starts_with("cannot read /no/such/file.toml: "), "{why}");
}

#[test]
fn the_configs_in_the_guide_can_be_used() {
    let guide = [
        include_str!("../../../../docs/guide/executors.md"),
        include_str!("../../../../docs/guide/webhooks.md"),
    ];
    for page in guide {
        for block in page.split("```toml\n").skip(1) {
            let block = block.split("```").next().expect("it ends");
            // The variable is not set here.
            let block =
                block.replace("secret_env = \"PAGER_SECRET\"", "secret = \"0123456789abcdef\"");
            read(&block).unwrap_or_else(|why| panic!("{block}\n{why}"));
        }
    }
}

/// The keys that the parser takes in a section: it tells them when it is given one that nobody knows.
fn taken(head: &str) -> Vec<String> {
    let told = refused(&format!("{head}\nzzzzzzzzzzzzzzzzzzzzzzzzzzzz = 1\n"));
    let (_, names) = told.split_once("there are ").expect("it tells what there is");
    names.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_table_of_keys_is_what_the_parser_takes() {
    for section in keys::SECTIONS {
        let head = match section.sort {
            keys::Sort::Many => format!("[[{}]]", section.name),
            keys::Sort::One | keys::Sort::Named => format!("[{}]", section.name),
        };
        let mut expected: Vec<String> = section.keys.iter().map(|it| it.name.to_owned()).collect();
        // Its sections stand in the table as such.
        expected.extend((section.name == "executors.command").then(|| "allow".to_owned()));
        let mut taken = taken(&head);
        expected.sort();
        taken.sort();
        assert_eq!(taken, expected, "{head}");
    }
    let sections: Vec<_> = keys::SECTIONS.iter().map(|it| it.name.split('.').next()).collect();
    for name in taken("") {
        assert!(sections.contains(&Some(name.as_str())), "{name}");
    }
}

#[test]
fn the_file_that_is_written_says_nothing_and_all_that_could_be_said() {
    let nothing = format!("{:?}", Config::load(&ServerArgs::default()).unwrap());
    let template = template();
    assert_eq!(format!("{:?}", read(&template).unwrap()), nothing);
    // With each usual value uncommented it still says the same: the values that stand there are the usual ones.
    let mut said = 0;
    let mut text = String::new();
    for section in keys::SECTIONS.iter().filter(|section| section.sort == keys::Sort::One) {
        text.push_str(&format!("[{}]\n", section.name));
        for key in section.keys {
            if let keys::Value::Usual(value) = key.value {
                let line = format!("{} = {value}\n", key.name);
                assert!(template.contains(&format!("# {line}")), "{line}");
                text.push_str(&line);
                said += 1;
            }
        }
    }
    assert_eq!(format!("{:?}", read(&text).unwrap()), nothing);
    assert!(said > 20);
}

#[test]
fn every_setting_of_the_server_is_a_flag_and_a_variable_too() {
    use clap::CommandFactory as _;
    let command = Typed::command();
    for key in keys::SECTIONS[0].keys {
        let arg = command.get_arguments().find(|arg| arg.get_id() == key.name);
        let arg = arg.unwrap_or_else(|| panic!("there is no flag for {}", key.name));
        assert_eq!(arg.get_long(), Some(key.name.replace('_', "-").as_str()));
        let variable = format!("WINDLASS_{}", key.name.to_ascii_uppercase());
        assert_eq!(arg.get_env().and_then(|it| it.to_str()), Some(variable.as_str()));
    }
}

/// The file below variables.
fn under(said: &[(&str, &str)], text: &str) -> Result<Config, String> {
    let said = said.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    Config::parse(&ServerArgs::default(), &said.collect(), Path::new("windlass.toml"), text)
}

#[test]
fn every_value_and_every_list_of_the_file_has_a_variable() {
    let flags = ["store", "listen", "dev"];
    for section in keys::SECTIONS.iter().filter(|section| section.sort == keys::Sort::One) {
        for key in section.keys.iter().filter(|key| !flags.contains(&key.name)) {
            let name = variable(section.name, key.name).expect("it has one");
            // The example of a key stands for another value; what is usual is not seen.
            let other = match key.bounds {
                Some((least, _)) => (least + 1).to_string(),
                None => match key.value.text() {
                    "true" => "off".to_owned(),
                    "false" => "yes".to_owned(),
                    "0.2" => "0.5".to_owned(),
                    text if text.starts_with('[') => "a.example, b.example".to_owned(),
                    text => format!("{}x", text.trim_matches('"')),
                },
            };
            let told = format!("{:?}", under(&[(&name, &other)], ""));
            let usual = format!("{:?}", under(&[], ""));
            assert_ne!(told, usual, "{name} says nothing");
            // Nobody else is named so.
            assert_eq!(variables().filter(|it| *it == name).count(), 1, "{name}");
        }
    }
    assert_eq!(variable("webhooks", "url"), None);
    assert_eq!(variable("alerts", "nothing"), None);
}

#[test]
fn a_variable_stands_above_the_file() {
    let file =
        "[alerts]\nlease_churn = 3\ndlq_per_minute = 4\n[executors.http]\nqueues = [\"a\"]\n";
    let said = [
        ("WINDLASS_ALERTS_LEASE_CHURN", "7"),
        ("WINDLASS_ALERTS_RETRYING_SHARE", "0.5"),
        ("WINDLASS_EXECUTORS_HTTP_QUEUES", "calls, slow"),
        ("WINDLASS_EXECUTORS_HTTP_ENABLED", "off"),
        ("WINDLASS_GRACE_MS", "9"),
        ("WINDLASS_ALERTS_DLQ_PER_MINUTE", ""),
    ];
    let config = under(&said, file).unwrap();
    assert_eq!((config.alerts.lease_churn, config.alerts.dlq_per_minute), (7, 4));
    assert!((config.alerts.retrying_share - 0.5).abs() < f64::EPSILON);
    assert_eq!(config.executors.http.queues, ["calls", "slow"]);
    assert!(!config.executors.http.enabled);
    assert_eq!(config.server.settings.grace, Duration::from_millis(9));
    assert_eq!(config.server.settings.alerts.interruptions_per_minute, 7);
}

#[test]
fn a_variable_that_cannot_be_used_is_named() {
    for (name, text, told) in [
        ("WINDLASS_ALERTS_LEASE_CHURN", "0", "it must be from 1 to 1000000000, not 0"),
        ("WINDLASS_ALERTS_LEASE_CHURN", "many", "expected u64"),
        ("WINDLASS_EXECUTORS_HTTP_ENABLED", "perhaps", "say true or false"),
        ("WINDLASS_EXECUTORS_HTTP_QUEUES", ",", "name at least one queue"),
        ("WINDLASS_TRACES_ENDPOINT", "nowhere", "it must be a URL"),
    ] {
        let why = under(&[(name, text)], "[alerts]\nlease_churn = 3\n").unwrap_err();
        assert!(why.starts_with(&format!("{name}: ")) && why.contains(told), "{why}");
    }
}

#[test]
fn the_bounds_of_the_table_are_those_of_the_parser() {
    for section in keys::SECTIONS.iter().filter(|section| section.sort == keys::Sort::One) {
        for key in section.keys {
            let Some((least, most)) = key.bounds else { continue };
            let line = |value: u64| format!("[{}]\n{} = {value}\n", section.name, key.name);
            for fine in [least, most] {
                read(&line(fine)).unwrap_or_else(|why| panic!("{}: {why}", key.name));
            }
            let why = refused(&line(most + 1));
            assert!(why.contains(&format!("from {least} to {most}")), "{why}");
        }
    }
}

#[test]
fn each_value_is_told_with_where_it_comes_from() {
    let file = "[server]\n\ngrace_ms = 5\nlisten = \"127.0.0.1:1\"\nstore = \"postgres://u:s3cret@h/d\"\n\
        [executors.command.allow.x]\nprogram = \"/bin/sh\"\nenv = { KEY = \"s3cret\" }\n\
        [[webhooks]]\nname = \"x\"\nurl = \"https://e.com/s3cret\"\nsecret = \"s3cret and more\"\n";
    let given = |_: &str, name: &str| match name {
        "listen" => Some(("127.0.0.1:2".to_owned(), Origin::Flag)),
        "dev" => Some(("1".to_owned(), Origin::Environment)),
        _ => None,
    };
    let entries = entries(given, file);
    let told = |key: &str| {
        let entry = entries.iter().find(|entry| format!("{}.{}", entry.section, entry.key) == key);
        let entry = entry.unwrap_or_else(|| panic!("{key} is not told"));
        (entry.shown().map_or_else(String::new, |value| value.to_string()), entry.origin.clone())
    };
    for (key, value, origin) in [
        ("server.grace_ms", "5", Origin::File(Some(3))),
        ("server.listen", "\"127.0.0.1:2\"", Origin::Flag),
        ("server.dev", "true", Origin::Environment),
        ("server.calls_max", "2000", Origin::Default),
        ("server.tls_key", "", Origin::Default),
        ("server.store", "\"postgres://h/d\"", Origin::File(Some(5))),
        ("executors.command.allow.x.program", "\"/bin/sh\"", Origin::File(Some(7))),
        ("webhooks.0.name", "\"x\"", Origin::File(None)),
        ("webhooks.0.max_retries", "12", Origin::Default),
    ] {
        assert_eq!(told(key), (value.to_owned(), origin), "{key}");
    }
    assert!(
        entries.iter().all(|it| it.shown().is_none_or(|it| !it.to_string().contains("s3cret")))
    );
}
