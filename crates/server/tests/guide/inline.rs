//! What stands in the text of a page: links that lead somewhere, and commands that exist.

use crate::{
    page::{Page, root},
    shell::Shell,
};

/// Each link to a file leads to one, and each to a heading, too.
pub(crate) fn check_links(path: &str) {
    let page = Page::read(path);
    let folder = root().join(path);
    let folder = folder.parent().expect("it is in a folder");
    for target in page.prose().iter().flat_map(|(_, line)| line.split("](").skip(1)) {
        let target = target.split(')').next().unwrap_or_default();
        if target.contains("://") {
            continue;
        }
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let full = if file.is_empty() { root().join(path) } else { folder.join(file) };
        assert!(full.exists(), "{path}: there is no {target}");
        if !heading.is_empty() {
            let text = std::fs::read_to_string(&full).expect("it can be read");
            let headings = text.lines().filter(|line| line.starts_with('#')).map(anchor);
            assert!(headings.collect::<Vec<_>>().contains(&heading.to_owned()), "{path}: {target}");
        }
    }
}

/// What a heading is called in a link.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.collect::<String>().replace(' ', "-")
}

/// Each command that is named between backticks exists, and has the flags that are named with it.
pub(crate) fn check_commands(path: &str) {
    let page = Page::read(path);
    let shell = Shell::new();
    for (number, line) in page.prose() {
        for code in line.split('`').skip(1).step_by(2) {
            let Some(words) = code.strip_prefix("windlass ") else { continue };
            let words: Vec<&str> = words.split_whitespace().collect();
            let is_plain =
                |word: &&&str| word.bytes().all(|it| it.is_ascii_lowercase() || it == b'-');
            let is_name = |word: &&&str| is_plain(word) && !word.starts_with('-');
            let names: Vec<&str> = words.iter().take_while(is_name).copied().collect();
            let help = shell.quiet(&format!("windlass {} --help", names.join(" ")));
            assert_eq!(help.code, 0, "{path}:{number}: {code}\n{}", help.stderr);
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap_or_default();
                assert!(help.stdout.contains(flag), "{path}:{number}: {code} has no {flag}");
            }
        }
    }
}

#[test]
fn a_heading_has_a_name() {
    assert_eq!(anchor("## What is promised, and why?"), "what-is-promised-and-why");
}
