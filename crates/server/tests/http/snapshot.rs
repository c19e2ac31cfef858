//! Whole answers, written down: what was asked, and everything that came back.
//!
//! A page is a file in `snapshots/`. Both stores are compared with the same one, so that nobody can tell them apart.
//! Ids and times are replaced by names that are the same each time; what a test sent itself stays as it is.

use std::{
    collections::HashMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use reqwest::Method;

use crate::{
    client::{Answer, client, send},
    json::laid_out,
    server::Server,
};

/// One file of exchanges.
pub(crate) struct Page<'a> {
    server: &'a Server,
    name: &'static str,
    text: String,
}

/// Headers that are part of the promise. The rest is for connections, or the same everywhere.
const SHOWN: &[&str] = &["content-type", "retry-after", "www-authenticate", "allow", "location"];

/// Headers that every answer has.
const ALWAYS: &[(&str, &str)] =
    &[("cache-control", "no-store"), ("x-content-type-options", "nosniff")];

/// The longest body that is written down.
const LONGEST: usize = 20_000;

impl<'a> Page<'a> {
    pub(crate) fn new(server: &'a Server, name: &'static str, about: &str) -> Self {
        Self { server, name, text: format!("# {about}\n") }
    }

    pub(crate) async fn get(&mut self, about: &str, path: &str) -> Answer {
        self.ask(about, Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&mut self, about: &str, path: &str, body: &str) -> Answer {
        let headers = [("content-type", "application/json")];
        let headers = if body.is_empty() { &[][..] } else { &headers };
        self.ask(about, Method::POST, path, headers, body).await
    }

    /// Sends a request, and writes down what was asked and what came back.
    pub(crate) async fn ask(
        &mut self,
        about: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = client().request(method.clone(), self.server.url(path));
        write!(self.text, "\n### {about}\n{method} {path}\n").expect("text takes text");
        for (name, value) in headers {
            request = request.header(*name, *value);
            writeln!(self.text, "{name}: {value}").expect("text takes text");
        }
        if !body.is_empty() {
            request = request.body(body.to_owned());
            writeln!(self.text, "\n{body}").expect("text takes text");
        }
        let answer = send(request).await.expect("it answers");
        self.write_down(&answer);
        answer
    }

    fn write_down(&mut self, answer: &Answer) {
        let header = |name| answer.headers.get(name).and_then(|value| value.to_str().ok());
        for (name, value) in ALWAYS {
            assert_eq!(header(*name), Some(*value), "{name}, in all answers");
        }
        assert!(header("x-trace-id").is_some(), "every answer has a trace");
        writeln!(self.text, "\nHTTP {}", answer.status).expect("text takes text");
        for name in SHOWN {
            if let Some(value) = header(*name) {
                writeln!(self.text, "{name}: {value}").expect("text takes text");
            }
        }
        let body = match header("content-type").unwrap_or("") {
            // Written for people or for makers of clients, and too long for a page.
            _ if answer.text.len() > LONGEST => format!("(more than {LONGEST} bytes)"),
            json if json.contains("json") => laid_out(&answer.text),
            // Figures differ; their names, kinds and meanings do not.
            _ => {
                let lines = answer.text.lines().filter(|line| line.starts_with('#'));
                lines.collect::<Vec<_>>().join("\n")
            }
        };
        writeln!(self.text, "\n{body}").expect("text takes text");
    }

    /// Compares the page with the file, or writes it if `WINDLASS_BLESS` is set.
    pub(crate) fn finish(self) {
        let (path, text) = (folder().join(self.name).with_extension("http"), named(&self.text));
        if env::var_os("WINDLASS_BLESS").is_some() {
            // In one step: the test of the other store may read it at this moment.
            let new = folder().join(format!("{}-{}", self.name, self.server.address()));
            fs::write(&new, &text).expect("the folder can be written");
            fs::rename(&new, &path).expect("the file can be renamed");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if expected == text {
            return;
        }
        let is_same = |(at, line): &(usize, &str)| expected.lines().nth(*at) == Some(line);
        let lines: Vec<_> = text.lines().enumerate().skip_while(is_same).take(12).collect();
        let now = lines.iter().map(|(at, line)| format!("{:>4} {line}\n", at + 1));
        let now = now.collect::<String>();
        let at = lines.first().map_or(text.lines().count(), |(at, _)| *at);
        let was = expected.lines().skip(at).take(12).collect::<Vec<_>>().join("\n     ");
        panic!(
            "{} differs (`make bless` writes it anew). Now it is\n{now}and it was\n     {was}",
            path.display()
        );
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/snapshots")
}

/// The method and path of every request that is written down.
pub(crate) fn requests() -> Vec<(String, String)> {
    let mut requests = Vec::new();
    for entry in fs::read_dir(folder()).expect("the folder can be read") {
        let text = fs::read_to_string(entry.expect("it can be read").path()).unwrap_or_default();
        let is_line = |before: &str| before.starts_with("### ");
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| is_line(pair[0])) {
            let (method, path) = pair[1].split_once(' ').expect("a method and a path");
            let path = path.split('?').next().unwrap_or(path);
            requests.push((method.to_owned(), path.to_owned()));
        }
    }
    requests
}

/// The text with names in place of what differs from run to run: ids are numbered as they come.
fn named(text: &str) -> String {
    let mut names = Names::default();
    let mut named = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let at_word = !named.ends_with(|before: char| before.is_ascii_alphanumeric());
        let (len, name) = match at_word.then(|| names.find(rest)).flatten() {
            Some((len, name)) => (len, name),
            None => (first.len_utf8(), first.to_string()),
        };
        named.push_str(&name);
        rest = &rest[len..];
    }
    named
}

#[derive(Default)]
struct Names {
    known: HashMap<String, String>,
    counts: HashMap<&'static str, u32>,
}

impl Names {
    /// What the text begins with, if that has a name: its length and the name.
    fn find(&mut self, text: &str) -> Option<(usize, String)> {
        for prefix in ["job_", "dlq_", "claim_", "tok_"] {
            let digits = text.strip_prefix(prefix).unwrap_or("").bytes();
            let digits = digits.take_while(u8::is_ascii_alphanumeric).count();
            // A test's own ids begin with zeros, and stay.
            if digits == 26 && !text[prefix.len()..].starts_with("0000") {
                let len = prefix.len() + 26;
                return Some((len, self.number(prefix, &text[..len])));
            }
        }
        if let Some(len) = time_len(text) {
            return Some((len, "<time>".to_owned()));
        }
        if let Some(secret) = text.strip_prefix("windlass_01") {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            let len = "windlass_01".len() + secret.bytes().take_while(is_part).count();
            return Some((len, "<secret>".to_owned()));
        }
        if let Some(len) = cursor_len(text) {
            return Some((len, "<cursor>".to_owned()));
        }
        let hex = text.bytes().take_while(u8::is_ascii_hexdigit).count();
        let prefix = match hex {
            32 => "trace_",
            64 => "hash_",
            _ => return None,
        };
        let is_whole = !text[hex..].starts_with(|next: char| next.is_alphanumeric());
        is_whole.then(|| (hex, self.number(prefix, &text[..hex])))
    }

    fn number(&mut self, prefix: &'static str, id: &str) -> String {
        if let Some(name) = self.known.get(id) {
            return name.clone();
        }
        let count = self.counts.entry(prefix).or_default();
        *count += 1;
        let name = format!("<{prefix}{count}>");
        self.known.insert(id.to_owned(), name.clone());
        name
    }
}

/// The length of a time of these years, such as `2026-01-02T03:04:05.678Z`. Tests name times of another century.
fn time_len(text: &str) -> Option<usize> {
    let shape = "20dd-dd-ddTdd:dd:dd";
    let fits = |(byte, shape): (u8, u8)| byte == shape || shape == b'd' && byte.is_ascii_digit();
    if text.len() < shape.len() || !text.bytes().zip(shape.bytes()).all(fits) {
        return None;
    }
    let rest = &text[shape.len()..];
    let fraction = rest.bytes().take_while(|byte| *byte == b'.' || byte.is_ascii_digit()).count();
    rest[fraction..].starts_with('Z').then_some(shape.len() + fraction + 1)
}

/// The length of the place of a list, such as `0-1a1e6794f48743594bdeda5f471961c`, in its quotes.
fn cursor_len(text: &str) -> Option<usize> {
    let (place, _) = text.split_once('"')?;
    let (number, id) = place.split_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_number && is_id).then_some(place.len())
}

#[test]
fn what_differs_from_run_to_run_has_a_name() {
    let text = "job_01KZ000000000000000000000A:1 at 2026-01-02T03:04:05.678Z, \
                2126-01-02T03:04:05Z, job_00000000000000000000000007";
    let expected = "<job_1>:1 at <time>, 2126-01-02T03:04:05Z, job_00000000000000000000000007";
    assert_eq!(named(text), expected);
}
