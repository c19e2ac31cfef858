//! Plays a page, from top to bottom.

use std::{
    env, fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    compare::{Ids, is_shown, lacks},
    page::{Block, Page, Role, Step, root},
    stage::{PATIENCE, Ran, Stage},
};

/// Plays the page. What is named in `other` means something else here.
pub(crate) fn play(path: &str, other: &[(&str, &str)]) {
    let page = Page::read(path);
    let stage = Stage::new(&page.text(), other);
    let (ids, last) = (Ids::default(), String::new());
    let mut player = Player { page, stage, ids, last, written: Vec::new(), failed: Vec::new() };
    for block in player.page.blocks() {
        player.block(&block);
    }
    player.write();
    assert!(player.failed.is_empty(), "{}", player.failed.join("\n"));
}

struct Player {
    page: Page,
    stage: Stage,
    ids: Ids,
    /// What was printed last.
    last: String,
    /// What should stand in the page instead: from where, how many lines, and which.
    written: Vec<(usize, usize, Vec<String>)>,
    /// Commands that failed and should not have.
    failed: Vec<String>,
}

impl Player {
    fn block(&mut self, block: &Block) {
        let text = block.lines.join("\n");
        match (&block.role, block.language.as_str()) {
            (Role::NotHere(why), _) => assert!(why.len() > 9, "{}: why?", self.place(block.at)),
            (Role::File(name), _) => self.stage.write(name, &(text + "\n")),
            (Role::From(path), _) => self.check_pieces(block, path),
            (Role::Background, "sh") => self.stay(block.at, &text, &[]),
            (Role::Background, "console") => {
                for step in block.steps() {
                    self.stay(step.at, &step.command, &step.shown);
                }
            }
            (Role::Plain, "sh") => {
                let ran = self.stage.run(&format!("set -e\n{}", self.ids.as_meant(&text)));
                if ran.status != 0 {
                    self.fails(block.at, &text, &ran);
                }
                self.last = ran.printed;
            }
            (Role::Plain | Role::UntilSo, "console") => self.steps(&block.steps(), &block.role),
            (Role::Plain, "json") => self.check_answer(block, &text),
            (_, language) => {
                let place = self.place(block.at);
                panic!("{place}: a block of {language:?} that is neither run nor marked")
            }
        }
    }

    /// Runs commands one after the other, and compares what they print.
    fn steps(&mut self, steps: &[Step], role: &Role) {
        for (number, step) in steps.iter().enumerate() {
            let began = Instant::now();
            let ran = loop {
                let ran = self.stage.run(&self.ids.as_meant(&step.command));
                let is_so = self.is_so(step, &ran);
                let patience = if blesses() { PATIENCE / 10 } else { PATIENCE };
                if is_so || *role != Role::UntilSo || began.elapsed() > patience {
                    break ran;
                }
                thread::sleep(Duration::from_millis(100));
            };
            let is_asked = steps.get(number + 1).is_some_and(|next| next.command == "echo $?");
            if ran.status != 0 && !is_asked {
                self.fails(step.at, &step.command, &ran);
            }
            self.compare(step.at, &step.command, &step.shown, &ran.printed);
            self.last = ran.printed;
        }
    }

    /// Notes that a command failed, or fails.
    fn fails(&mut self, at: usize, command: &str, ran: &Ran) {
        let (place, Ran { printed, status }) = (self.place(at), ran);
        self.failed.push(format!("{place}: {command}\nends with {status} and prints\n{printed}"));
        assert!(blesses(), "{}", self.failed.join("\n"));
    }

    fn is_so(&self, step: &Step, ran: &Ran) -> bool {
        is_shown(&step.shown, &lines(&ran.printed), &mut self.ids.clone())
    }

    /// Starts a command that stays, and waits until it has printed what is shown.
    fn stay(&mut self, at: usize, command: &str, shown: &[String]) {
        let mut so_far = shown.to_vec();
        so_far.push("...".to_owned());
        let ids = self.ids.clone();
        let is_enough = |printed: &str| is_shown(&so_far, &lines(printed), &mut ids.clone());
        let printed = self.stage.start(command, is_enough);
        if !is_shown(&so_far, &lines(&printed), &mut self.ids) {
            self.differs(at, command, shown, &printed);
        }
    }

    fn compare(&mut self, at: usize, command: &str, shown: &[String], printed: &str) {
        if !is_shown(shown, &lines(printed), &mut self.ids) {
            self.differs(at, command, shown, printed);
        }
    }

    /// Notes what should be shown, or fails.
    fn differs(&mut self, at: usize, command: &str, shown: &[String], printed: &str) {
        let printed = self.ids.as_shown(printed);
        if blesses() {
            self.written.push((at, shown.len(), lines(&printed)));
            return;
        }
        let (place, shown) = (self.place(at), shown.join("\n"));
        panic!("{place}: {command}\nprints\n{printed}\nand the page shows\n{shown}");
    }

    /// The last document that was printed has all that the page shows.
    fn check_answer(&self, block: &Block, text: &str) {
        let place = self.place(block.at);
        let shown = serde_json::from_str(text).unwrap_or_else(|why| panic!("{place}: {why}"));
        // Before it there may be other answers, and words to people.
        let mut starts = self.last.match_indices('{').map(|(at, _)| &self.last[at..]);
        let last = starts.find_map(|text| serde_json::from_str::<Value>(text).ok());
        let last = last.unwrap_or_else(|| panic!("{place}: nothing was answered: {}", self.last));
        let lacks = lacks(&shown, &last).map(|why| format!("{place}: {why}\n{last}"));
        assert_eq!(lacks, None);
    }

    /// Each run of lines without a gap stands like this in the file, but for how far it is indented. `// …` is a gap.
    fn check_pieces(&self, block: &Block, path: &str) {
        let place = self.place(block.at);
        let file = fs::read_to_string(root().join(path));
        let file = file.unwrap_or_else(|why| panic!("{place}: {path}: {why}"));
        let file: Vec<&str> = file.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
        let is_gap = |line: &String| line.trim().is_empty() || line.trim_end().ends_with(" …");
        for piece in block.lines.split(is_gap).filter(|piece| !piece.is_empty()) {
            let piece: Vec<&str> = piece.iter().map(|line| line.trim()).collect();
            let is_there = file.windows(piece.len()).any(|lines| lines == piece);
            assert!(is_there, "{place}: this is not in {path}:\n{}", piece.join("\n"));
        }
    }

    /// Where something stands, as an editor opens it.
    fn place(&self, at: usize) -> String {
        format!("{}:{}", self.page.path, at + 1)
    }

    /// Writes into the page what was printed, where that differs.
    fn write(&mut self) {
        if self.written.is_empty() {
            return;
        }
        for (at, count, lines) in self.written.drain(..).rev() {
            self.page.lines.splice(at..at + count, lines);
        }
        let text = self.page.text() + "\n";
        fs::write(root().join(&self.page.path), text).expect("the page can be written");
    }
}

/// Is what was printed to be written into the page?
fn blesses() -> bool {
    env::var_os("WINDLASS_BLESS").is_some()
}

/// The lines of a text, without empty ones at its end.
fn lines(text: &str) -> Vec<String> {
    text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
}
