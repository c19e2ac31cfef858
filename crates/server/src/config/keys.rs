//! Every key of the file: what it is for, what it may be, and what it is if nothing is said.
//!
//! The file that `windlass config init` writes is made from this table, the bounds of the server's settings are read
//! from it, and a test compares it with what the parser takes and with the flags. So none of them can forget a key.

use std::ops::RangeInclusive;

use self::Value::{Example, Usual};

/// A key of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What it is for, in a sentence.
    pub(crate) about: &'static str,
    /// What it is if nothing is said, as the file has it; if it then is nothing, an example.
    pub(crate) value: Value,
    /// From where to where, if it is a number.
    pub(crate) bounds: Option<(u64, u64)>,
    /// Does a server take another value without a restart?
    pub(crate) reloads: bool,
}

/// A value as the file has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// It holds if nothing is said.
    Usual(&'static str),
    /// It is only an example: if nothing is said, there is nothing.
    Example(&'static str),
}

impl Value {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Value::Usual(text) | Value::Example(text) => text,
        }
    }
}

/// A section of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    /// What stands in brackets.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// How often it is there.
    pub(crate) sort: Sort,
    pub(crate) keys: &'static [Key],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Once.
    One,
    /// As often as one likes, under names of one's own.
    Named,
    /// As often as one likes, in double brackets.
    Many,
}

const fn key(name: &'static str, value: Value, about: &'static str) -> Key {
    Key { name, about, value, bounds: None, reloads: false }
}

const fn number(
    name: &'static str,
    usual: &'static str,
    bounds: (u64, u64),
    about: &'static str,
) -> Key {
    Key { name, about, value: Value::Usual(usual), bounds: Some(bounds), reloads: false }
}

/// The same, which a server takes without a restart.
const fn live(key: Key) -> Key {
    Key { reloads: true, ..key }
}

const SOME_TIME: (u64, u64) = (1, 3_600_000);
const COUNT: (u64, u64) = (1, 1_000_000_000);

/// Every section, in the order of the file.
pub(crate) static SECTIONS: &[Section] = &[
    Section {
        name: "server",
        about: "The server itself. Each key is a flag too: --grace-ms. Its variable has no section: WINDLASS_GRACE_MS.",
        sort: Sort::One,
        keys: &[
            key(
                "store",
                Usual("\"sqlite:windlass.db\""),
                "The database: sqlite:FILE or postgres://HOST/DATABASE.",
            ),
            key(
                "listen",
                Usual("\"127.0.0.1:7117\""),
                "Where to listen. Off this machine it needs tokens.",
            ),
            key(
                "dev",
                Usual("false"),
                "For development on this machine: no token is needed, and jobs can be run by a call.",
            ),
            live(number(
                "body_bytes_max",
                "8388608",
                (1_024, 1_073_741_824),
                "The most bytes of a request's body.",
            )),
            live(number(
                "memory_bytes_max",
                "536870912",
                (1_048_576, 1_099_511_627_776),
                "The most bytes of bodies and answers at once; a tenant has a quarter of them.",
            )),
            live(number(
                "body_timeout_ms",
                "30000",
                SOME_TIME,
                "How long a body may take to come.",
            )),
            number(
                "header_timeout_ms",
                "10000",
                SOME_TIME,
                "How long the head of a request may take to come.",
            ),
            number("connections_max", "10000", (1, 1_000_000), "The most connections at once."),
            live(number(
                "calls_max",
                "2000",
                (1, 1_000_000),
                "The most calls at once, but for those of workers.",
            )),
            live(number(
                "calls_per_second",
                "50000",
                (1, 10_000_000),
                "How many calls a second a principal may make.",
            )),
            live(number(
                "grace_ms",
                "10000",
                SOME_TIME,
                "How long what is open may take to end, when the server stops.",
            )),
            key(
                "tls_certificate",
                Example("\"/etc/windlass/cert.pem\""),
                "The certificate of the server and its chain, in PEM. With it goes tls_key.",
            ),
            key(
                "tls_key",
                Example("\"/etc/windlass/key.pem\""),
                "The key of the certificate, in PEM.",
            ),
        ],
    },
    Section {
        name: "alerts",
        about: "From where on something is worth telling a person.",
        sort: Sort::One,
        keys: &[
            live(key(
                "retrying_share",
                Usual("0.2"),
                "The share of open jobs that wait for a retry, from 0 to 1.",
            )),
            live(number(
                "retrying_jobs_min",
                "20",
                COUNT,
                "With fewer open jobs than this the share says nothing.",
            )),
            live(number("dlq_per_minute", "10", COUNT, "New dead letters of a tenant a minute.")),
            live(number(
                "invalid_transitions",
                "5",
                COUNT,
                "Illegal moves that were refused, a minute.",
            )),
            live(number(
                "queue_age_ms",
                "300000",
                (1, 31_536_000_000),
                "How long a job may be ready without being started.",
            )),
            live(number("lease_churn", "20", COUNT, "Jobs that lost their worker, a minute.")),
            live(number(
                "skipped_slots",
                "1",
                COUNT,
                "Slots of the schedules of a tenant that were missed, a minute.",
            )),
            live(number("look_every_ms", "5000", (100, 3_600_000), "How often to look.")),
            key("webhook", Example("\"pager\""), "The webhook that is told, by its name."),
        ],
    },
    Section {
        name: "traces",
        about: "Calls and executions as spans, told to a collector by OTLP.",
        sort: Sort::One,
        keys: &[
            key(
                "endpoint",
                Example("\"http://127.0.0.1:4318\""),
                "A collector that takes OTLP over HTTP.",
            ),
            key("service_name", Usual("\"windlass\""), "The name under which the spans are found."),
        ],
    },
    Section {
        name: "executors.http",
        about: "The executor that calls other servers.",
        sort: Sort::One,
        keys: &[
            key("enabled", Usual("true"), "Does it run here?"),
            key("queues", Usual("[\"default\"]"), "The queues that it works on."),
            number("concurrency", "16", (1, 10_000), "How many calls at once."),
            key(
                "allow",
                Usual("[]"),
                "What it may call although it is not public: hosts and networks, such as \"10.0.0.0/8\".",
            ),
            number("timeout_ms", "30000", SOME_TIME, "The longest that a call may take."),
            number("response_bytes_max", "65536", (0, 163_840), "How much of an answer is kept."),
            key("follow_redirects", Usual("false"), "Does it go where an answer sends it?"),
        ],
    },
    Section {
        name: "executors.command",
        about: "The executor that runs programs of this machine: those that are named here, and no others.",
        sort: Sort::One,
        keys: &[
            key("enabled", Usual("false"), "Does it run here?"),
            key("queues", Usual("[\"default\"]"), "The queues that it works on."),
            number("concurrency", "4", (1, 256), "How many programs at once."),
        ],
    },
    Section {
        name: "executors.command.allow.NAME",
        about: "A program that may be run, under the name that jobs call it by.",
        sort: Sort::Named,
        keys: &[
            key("program", Example("\"/usr/bin/convert\""), "The whole path of the program."),
            key(
                "args",
                Usual("[]"),
                "Its arguments; a job fills in what stands in braces: \"{file}\".",
            ),
            key("env", Usual("{}"), "Its environment: nothing else is in it."),
            key("directory", Usual("\"/\""), "Where it runs."),
            number("output_bytes_max", "65536", (0, 81_920), "How much is kept of each pipe."),
            key("retry_exit_codes", Usual("[]"), "The exit codes besides 75 that are tried again."),
        ],
    },
    Section {
        name: "webhooks",
        about: "Someone who is told what happens.",
        sort: Sort::Many,
        keys: &[
            key("name", Example("\"pager\""), "Its name."),
            key("url", Example("\"https://example.com/hook\""), "Where it is told."),
            key(
                "secret",
                Example("\"whsec_…\""),
                "What deliveries are signed with, or secret_env.",
            ),
            key("secret_env", Example("\"PAGER_SECRET\""), "The variable that has the secret."),
            key(
                "secret_old",
                Example("\"whsec_…\""),
                "The secret before this one: while it is there, both sign.",
            ),
            key("secret_old_env", Example("\"PAGER_SECRET_OLD\""), "The variable that has it."),
            key("tenant", Usual("\"default\""), "Whose events it is told."),
            key("contract", Example("\"tasks\""), "In whose words: runs, tasks, jobs or ingest."),
            key("feed", Usual("true"), "Is it told events? One that is not is for alerts alone."),
            key(
                "events",
                Usual("{}"),
                "Which events: { states = [\"failed\"], kinds = [], queues = [] }.",
            ),
            number("max_retries", "12", (0, 100), "How many times a delivery is tried again."),
            number(
                "backoff_ms",
                "5000",
                SOME_TIME,
                "The wait before the first retry, which doubles each time.",
            ),
            number("timeout_ms", "15000", (1, 300_000), "How long a delivery may take."),
        ],
    },
];

/// The bounds of a number of `[server]`.
pub(super) fn bounds(name: &str) -> RangeInclusive<u64> {
    let key = SECTIONS[0].keys.iter().find(|key| key.name == name);
    let (least, most) = key.and_then(|key| key.bounds).expect("each number has its bounds");
    least..=most
}

/// A file that says nothing, and all that could be said.
pub(crate) fn template() -> String {
    let mut text = String::from(
        "# How a Windlass server is set up. What is commented out has the value that stands there.\n\
         # Flags stand above WINDLASS_* variables, and those above this file. Check it: windlass config check FILE\n\
         # A variable is named by section and key: WINDLASS_ALERTS_LEASE_CHURN=7, WINDLASS_EXECUTORS_HTTP_QUEUES=a,b.\n\
         # What is marked (reload) is read again when the server gets SIGHUP; all else needs a restart.\n",
    );
    for section in SECTIONS {
        let Section { name, about, sort, keys } = section;
        let head = match sort {
            Sort::One => format!("[{name}]"),
            // One that is there has to say something.
            Sort::Named => format!("# [{name}]"),
            Sort::Many => format!("# [[{name}]]"),
        };
        text.push_str(&format!("\n{head}\n# {about}\n"));
        for Key { name, about, value, reloads, .. } in *keys {
            let reload = if *reloads { " (reload)" } else { "" };
            text.push_str(&format!("\n# {about}{reload}\n# {name} = {}\n", value.text()));
        }
    }
    text
}
