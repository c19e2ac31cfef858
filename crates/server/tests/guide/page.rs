//! A page, and the blocks in it.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

/// A page of the README or the guide.
pub(crate) struct Page {
    /// Its path, from the root.
    pub(crate) path: String,
    pub(crate) lines: Vec<String>,
}

/// A fenced block of code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) role: Role,
    /// Where its lines begin in the page, from 0.
    pub(crate) at: usize,
    pub(crate) lines: Vec<String>,
}

/// What the comment above a block says of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// There is no comment.
    Plain,
    Background,
    UntilSo,
    /// With the reason.
    NotHere(String),
    File(String),
    From(String),
}

/// A command that is shown with what it prints.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    /// Where its output stands in the page, from 0, and how many lines it has.
    pub(crate) at: usize,
    pub(crate) shown: Vec<String>,
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        let text = fs::read_to_string(root().join(path));
        let text = text.unwrap_or_else(|why| panic!("{path}: {why}"));
        Self { path: path.to_owned(), lines: text.lines().map(str::to_owned).collect() }
    }

    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// Its blocks, from top to bottom.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let (mut blocks, mut at) = (Vec::new(), 0);
        while at < self.lines.len() {
            let Some(language) = self.lines[at].strip_prefix("```") else {
                at += 1;
                continue;
            };
            let begin = at + 1;
            let inside = self.lines[begin..].iter().position(|line| line == "```");
            let inside = inside.unwrap_or_else(|| panic!("{}:{at} has no end", self.path));
            blocks.push(Block {
                language: language.to_owned(),
                role: self.role(at),
                at: begin,
                lines: self.lines[begin..begin + inside].to_vec(),
            });
            at = begin + inside + 1;
        }
        blocks
    }

    /// The lines that are no code.
    pub(crate) fn prose(&self) -> Vec<(usize, &str)> {
        let mut is_code = false;
        let lines = self.lines.iter().enumerate();
        let prose = lines.filter(|(_, line)| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        });
        prose.map(|(at, line)| (at + 1, line.as_str())).collect()
    }

    /// What the line above the fence says.
    fn role(&self, fence: usize) -> Role {
        let above = fence.checked_sub(1).map(|at| self.lines[at].trim()).unwrap_or_default();
        let Some(said) = above.strip_prefix("<!-- ").and_then(|it| it.strip_suffix(" -->")) else {
            return Role::Plain;
        };
        let role = match said.split_once(": ") {
            Some(("file", name)) => Some(Role::File(name.to_owned())),
            Some(("from", path)) => Some(Role::From(path.to_owned())),
            Some(("runs", "background")) => Some(Role::Background),
            Some(("runs", "until it prints this")) => Some(Role::UntilSo),
            Some(("runs", said)) => {
                said.strip_prefix("not here, ").map(|why| Role::NotHere(why.to_owned()))
            }
            _ => None,
        };
        role.unwrap_or_else(|| panic!("{}:{fence}: {above} means nothing", self.path))
    }
}

impl Block {
    /// The commands of a `console` block. A line that ends with `\` goes on in the next one.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            let goes_on = |step: &&mut Step| step.shown.is_empty() && step.command.ends_with('\\');
            if let Some(step) = steps.last_mut().filter(goes_on) {
                step.command.push_str(&format!("\n{line}"));
                step.at += 1;
            } else if let Some(command) = line.strip_prefix("$ ") {
                let at = self.at + number + 1;
                steps.push(Step { command: command.to_owned(), at, shown: Vec::new() });
            } else {
                let step = steps.last_mut();
                step.expect("a block begins with a command").shown.push(line.clone());
            }
        }
        for step in &mut steps {
            while step.shown.last().is_some_and(|line| line.trim().is_empty()) {
                step.shown.pop();
            }
        }
        steps
    }
}

#[test]
fn a_block_has_commands_with_what_they_print() {
    let text =
        "Text.\n<!-- runs: background -->\n```console\n$ one \\\n  more\nsaid\n\n$ two\n```\n";
    let page = Page { path: String::new(), lines: text.lines().map(str::to_owned).collect() };
    let blocks = page.blocks();
    assert_eq!((blocks.len(), &blocks[0].role), (1, &Role::Background));
    let steps = blocks[0].steps();
    assert_eq!((steps[0].command.as_str(), steps[0].at), ("one \\\n  more", 5));
    assert_eq!(
        (steps[0].shown.as_slice(), steps[1].command.as_str()),
        (&["said".to_owned()][..], "two")
    );
    assert_eq!(page.prose(), [(1, "Text."), (2, "<!-- runs: background -->")]);
}
