//! What can be checked about the source without taste.

use std::{
    fs,
    path::{Path, PathBuf},
};

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
