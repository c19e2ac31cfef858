//! What can be checked about the source without taste.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use windlass_kernel::Failure;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below `crates/` with this ending.
fn files(ending: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the source can be read") {
            let path = entry.expect("the source can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == ending) {
                let text = fs::read_to_string(&path).expect("the source can be read");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no .{ending} file was found");
    found
}

#[test]
fn every_module_says_what_it_is_for() {
    for (path, text) in files("rs") {
        assert!(text.starts_with("//! "), "{} has no first line of its own", path.display());
    }
}

/// Files that only one of two twin folders has, and why.
const WITHOUT_TWIN: [(&str, &str); 1] = [(
    "sqlite/row/lease.rs",
    "on PostgreSQL leases are read by the statements that lock their jobs or sessions",
)];

/// Rows and reads have one file a noun in each database, with the same name: what is new in one is new in both.
#[test]
fn twins_have_the_same_files() {
    let store = root().join("crates/store/src");
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(store.join(folder)).expect("the source can be read");
        let name =
            |entry: std::io::Result<fs::DirEntry>| entry.expect("it can be read").file_name();
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect()
    };
    let mut alone = BTreeSet::new();
    for folder in ["row", "read"] {
        let [sqlite, postgres] =
            ["sqlite", "postgres"].map(|database| format!("{database}/{folder}"));
        let (of_sqlite, of_postgres) = (names(&sqlite), names(&postgres));
        alone.extend(of_sqlite.difference(&of_postgres).map(|file| format!("{sqlite}/{file}")));
        alone.extend(of_postgres.difference(&of_sqlite).map(|file| format!("{postgres}/{file}")));
    }
    let expected = WITHOUT_TWIN.map(|(file, _)| file.to_owned());
    assert_eq!(alone, BTreeSet::from(expected), "a twin is missing, or has another name");
}

/// What is compiled into the crates that are shipped, without tests and comments.
fn shipped_code() -> Vec<(PathBuf, String)> {
    let files = files("rs");
    let is_mod = |line: &str| line.strip_prefix("mod ")?.strip_suffix(';').map(str::to_owned);
    let mut tests = vec!["testkit".to_owned(), "tests".to_owned(), "examples".to_owned()];
    for (_, text) in &files {
        let after = text.split("#[cfg(test)]\n").skip(1);
        tests.extend(after.filter_map(|text| is_mod(text.lines().next()?)));
    }
    let is_test = |path: &Path| {
        let path = path.strip_prefix(root()).expect("it is below the root").with_extension("");
        path.iter().any(|part| tests.iter().any(|test| part.to_str() == Some(test)))
    };
    // On one line, however it was broken.
    let code = |text: &str| {
        let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    };
    let shipped = files.into_iter().filter(|(path, _)| !is_test(path));
    shipped.map(|(path, text)| (path, code(&text))).collect()
}

#[test]
fn every_code_that_we_give_to_a_failure_is_in_the_table() {
    let is_known = |code: &str| Failure::CODES.iter().any(|info| info.code == code);
    let mut seen = BTreeSet::new();
    for (path, code) in shipped_code() {
        let path = path.display();
        for users in ["Failure::transient(", "Failure::permanent("] {
            assert!(!code.contains(users), "{path}: {users}) is for users; ours is Failure::own()");
        }
        let own = code.split("Failure::own(").skip(1);
        for given in own.chain(code.split("Failure { code: ").skip(1)) {
            let given = given.trim().split([',', '.']).next().unwrap_or_default();
            assert!(is_known(given), "{path}: {given} is not in the table of failure.rs");
            seen.insert(given.to_owned());
        }
    }
    let table: BTreeSet<_> = Failure::CODES.iter().map(|info| info.code.to_owned()).collect();
    assert_eq!(seen, table, "nobody gives the others");
}

#[test]
fn every_story_has_a_title() {
    for (path, text) in files("story") {
        assert!(text.starts_with("# "), "{} begins without a title", path.display());
    }
}

#[test]
fn the_documents_are_there() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/states.md",
        "docs/errors.md",
        "docs/contracts.md",
        "docs/benchmarks.md",
    ] {
        let text = fs::read_to_string(root().join(name)).unwrap_or_default();
        assert!(!text.trim().is_empty(), "{name} is missing");
    }
}

#[test]
fn the_page_on_contracts_names_stories_and_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/contracts.md")).unwrap();
    let mut names = 0;
    for quoted in page.split('`').skip(1).step_by(2) {
        if let Some(story) = quoted.strip_suffix(".story") {
            let path = format!("crates/testkit/stories/{story}.story");
            assert!(root().join(&path).exists(), "{path} does not exist");
            names += 1;
        } else if let Some((file, test)) = quoted.split_once(".rs: ") {
            let text = fs::read_to_string(root().join(format!("crates/{file}.rs")));
            let found = text.is_ok_and(|text| text.contains(&format!("fn {test}(")));
            assert!(found, "{quoted} does not exist");
            names += 1;
        }
    }
    assert!(names > 40, "only {names} names were found");
}
