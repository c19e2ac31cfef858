//! The schema as its migrations make it, and every statement prepared on it.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use common::*;
use rusqlite::Connection;

/// What the migrations made, in an order that does not change.
const SCHEMA: &str = "
    SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL
    ORDER BY tbl_name, type <> 'table', name";

#[test]
fn the_schema_is_what_the_file_shows() {
    let test = FileStore::new();
    let sql = test.sql();
    let mut statement = sql.prepare(SCHEMA).unwrap();
    let parts = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let parts: Vec<String> = parts.map(|part| part.unwrap() + ";\n").collect();
    let title =
        "-- The schema, as its migrations make it. Written by a test; `make bless` renews it.\n\n";
    compare("schema/sqlite.sql", &format!("{title}{}", parts.join("\n")));
}

/// Compares a file with what the code says, or writes it if `WINDLASS_BLESS` is set.
fn compare(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if env::var_os("WINDLASS_BLESS").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{name} is out of date; run `make bless`");
}

#[test]
fn every_statement_can_be_prepared() {
    let test = FileStore::new();
    let sql = test.sql();
    let files = source_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite"));
    let files: Vec<_> =
        files.into_iter().map(|path| (fs::read_to_string(&path).unwrap(), path)).collect();
    let sources: String = files.iter().map(|(source, _)| source.as_str()).collect();
    let mut prepared = 0;
    for (source, path) in &files {
        for (name, statement) in statements(source, &sources) {
            check_statement(&sql, &format!("{} in {}", name, path.display()), &statement);
            prepared += 1;
        }
    }
    assert!(prepared > 150, "only {prepared} statements were found");
}

/// Every file in a folder and in those below it, but for the checker's: it makes tables of its own, and its tests run every
/// statement that it has.
fn source_files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| !path.ends_with("sqlite/check"));
    paths.flat_map(|path| if path.is_dir() { source_files(&path) } else { vec![path] }).collect()
}

/// It can be prepared, and its parameters are numbered without a gap.
fn check_statement(sql: &Connection, name: &str, text: &str) {
    let statement = sql.prepare(text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    for number in 1..=statement.parameter_count() {
        let parameter = statement.parameter_name(number);
        assert_eq!(parameter, Some(&*format!("?{number}")), "a parameter of {name} is not used");
    }
}

/// The statements of a source file: its constants of type `&str`, with their names.
///
/// It reads the source, so that a new statement cannot be forgotten. A constant is a string, or strings
/// and macros of `sources` that `concat!` puts together.
fn statements(source: &str, sources: &str) -> Vec<(String, String)> {
    let constants = source.split("const ").skip(1).filter_map(|part| {
        let (name, rest) = part.split_once(": &str =")?;
        let is_name = name.chars().all(|it| it.is_ascii_uppercase() || it == '_');
        is_name.then(|| (name.to_owned(), text_of(rest, sources)))
    });
    constants.collect()
}

/// The text of an expression that ends at its semicolon.
fn text_of(expression: &str, sources: &str) -> String {
    let (mut text, mut rest) = (String::new(), expression);
    loop {
        let at = rest.find(['"', ';', '!']).expect("a constant ends with a semicolon");
        let after = &rest[at + 1..];
        rest = match rest.as_bytes()[at] {
            b';' => return text,
            b'"' => {
                let (string, after) = after.split_once('"').expect("a string ends");
                text.push_str(string);
                after
            }
            _ => {
                let name = rest[..at].rsplit(|it: char| !it.is_alphanumeric() && it != '_');
                let name = name.into_iter().next().unwrap_or_default();
                if name != "concat" {
                    let (_, body) = sources.split_once(&format!("macro_rules! {name} ")).unwrap();
                    text.push_str(body.split('"').nth(1).unwrap());
                }
                after
            }
        };
    }
}
