//! Parse: the text of a file becomes its stories.
//!
//! A block of `#` lines after a blank line begins a story and is its title; other `#` lines are remarks.
//! A first block with nothing under it speaks of the whole file. Every other line is one step. A line
//! that cannot be read is an error that names it.

use std::fmt;

use super::{
    step::Step,
    words::{Result, Words},
};

/// One story: what happens in a world of its own.
#[derive(Debug)]
pub struct Story {
    /// What it tells, in a sentence or two.
    pub title: String,
    /// What happens, in order.
    pub lines: Vec<Line>,
}

/// One line of a story.
#[derive(Debug)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    /// The line as it was written.
    pub text: String,
    /// What it means.
    pub(super) step: Step,
}

/// A line that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Error {
    /// Its number in the file, from 1.
    pub number: usize,
    /// The line as it was written.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  {}", self.number, self.text, self.why)
    }
}

/// Reads all stories of a file.
pub fn parse(text: &str) -> std::result::Result<Vec<Story>, Error> {
    let mut stories: Vec<Story> = Vec::new();
    let mut before = Before::Blank;
    for (place, line) in text.lines().enumerate() {
        let line = line.trim();
        let error = |why: String| Error { number: place + 1, text: line.to_owned(), why };
        before = if line.is_empty() {
            Before::Blank
        } else if let Some(remark) = line.strip_prefix('#') {
            match before {
                Before::Blank => begin(&mut stories, remark.trim()).map_err(error)?,
                Before::Title => go_on(&mut stories, remark.trim()),
                Before::Step => {}
            }
            if before == Before::Step { Before::Step } else { Before::Title }
        } else {
            let story = stories.last_mut().ok_or_else(|| {
                error("a story begins with a # line that says what it tells".to_owned())
            })?;
            let step = read_step(line).map_err(error)?;
            story.lines.push(Line { number: place + 1, text: line.to_owned(), step });
            Before::Step
        };
    }
    if stories.len() > 1 && stories[0].lines.is_empty() {
        stories.remove(0);
    }
    match stories.iter().find(|story| story.lines.is_empty()) {
        None if !stories.is_empty() => Ok(stories),
        empty => {
            let text = empty.map_or_else(String::new, |story| story.title.clone());
            let why = "a story has at least one step".to_owned();
            Err(Error { number: 1, text, why })
        }
    }
}

/// What the line before was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Blank,
    Title,
    Step,
}

fn begin(stories: &mut Vec<Story>, title: &str) -> Result<()> {
    if stories.len() > 1 && stories.last().is_some_and(|story| story.lines.is_empty()) {
        return Err("the story before has no steps".to_owned());
    }
    stories.push(Story { title: title.to_owned(), lines: Vec::new() });
    Ok(())
}

fn go_on(stories: &mut [Story], title: &str) {
    if let Some(story) = stories.last_mut() {
        story.title.push(' ');
        story.title.push_str(title);
    }
}

fn read_step(line: &str) -> Result<Step> {
    let (happens, expected) = Words::of_line(line)?;
    Step::read(happens, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a story of this one line is refused, and in which words.
    fn check_refused(line: &str, why: &str) {
        let error = parse(&format!("# A story.\nenqueue j1 -> queued\n{line}\n")).unwrap_err();
        assert_eq!((error.number, error.text.as_str()), (3, line));
        assert!(error.why.contains(why), "{line:?} says: {}", error.why);
    }

    #[test]
    fn a_block_of_remarks_begins_a_story() {
        let text = "# About the file.\n\n# One\n# and a half.\nenqueue j1\n# A remark.\n\nstart j1\n\n\
                    # Two.\nenqueue j1 -> queued\n";
        let stories = parse(text).unwrap();
        let told: Vec<_> = stories.iter().map(|s| (s.title.as_str(), s.lines.len())).collect();
        assert_eq!(told, [("One and a half.", 2), ("Two.", 1)]);
        assert_eq!(stories[0].lines[1].number, 8);
    }

    #[test]
    fn a_file_without_a_story_is_refused() {
        assert!(parse("").is_err());
        assert!(parse("# Nothing happens.\n").is_err());
        assert!(parse("enqueue j1 -> queued\n").is_err());
        assert!(parse("# A.\nenqueue j1\n\n# B.\n\n# C.\nenqueue j1\n").is_err());
        assert!(parse("# A.\nenqueue j1\n\n# B.\n").is_err());
    }

    #[test]
    fn a_wrong_verb_or_key_is_named_with_those_that_are_known() {
        check_refused("enqeue j1", "there is no verb \"enqeue\"; known are: enqueue");
        check_refused("claim j1 byy w1", "there is no word for claim \"byy\"; known are: by lease");
        check_refused("enqueue j2 colour red", "there is no word for enqueue \"colour\"");
        check_refused("expect j1 -> queued mood good", "there is no field \"mood\"");
        check_refused("settle j1 maybe", "there is no outcome \"maybe\"");
        check_refused("wait j1 rain", "there is no wait \"rain\"");
    }

    #[test]
    fn a_wrong_value_is_named_with_what_it_must_be() {
        check_refused("claim job1", "a job is called j1, j2 and so on, not \"job1\"");
        check_refused("pass 60", "the time must be a time like 10s, not \"60\"");
        check_refused("start j1 epoch one", "epoch must be a number, not \"one\"");
        check_refused("expect j1 -> sleeping", "there is no state \"sleeping\"");
        check_refused("expect j1 -> queued epoch one", "epoch must be a number, not \"one\"");
        check_refused("expect j1 -> queued recorded maybe", "recorded must be yes or no");
        check_refused("claim j1 -> refused STALE", "there is no code \"STALE\"");
        check_refused("events j1 -> enqueued sneezed", "there is no cause \"sneezed\"");
        check_refused("replay j1 -> queued ready", "there is no status \"ready\"");
        check_refused("enqueue j2 payload {", "what begins like JSON is not JSON");
    }

    #[test]
    fn a_word_too_few_or_too_many_is_named() {
        check_refused("claim", "the job is missing");
        check_refused("claim j1 by", "by is missing");
        check_refused("start j1 epoch", "epoch is missing");
        check_refused("requeue j1 by alice", "as is missing");
        check_refused("discard j1 by alice", "because is missing");
        check_refused("die w1 w2", "\"w2\" is one word too many");
        check_refused("expect j1", "an arrow and what is expected are missing");
        check_refused("expect j1 -> queued epoch", "epoch is missing");
        check_refused("claim j1 by w1 by w2", "by is said twice");
        check_refused("expect j1 -> queued epoch 1 epoch 2", "epoch is said twice");
        check_refused("enqueue j2 at 1s after 1s", "one of at and after");
        check_refused("enqueue j2 scope red", "a scope has a key");
        check_refused("wait j1 time 1s for 2s", "\"for\" is one word too many");
    }
}
