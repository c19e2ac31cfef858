//! Dead letters: what is left of a job that failed, until someone decides.
//!
//! A letter is written in the transaction that fails its job. It can be requeued (a new job takes over)
//! or discarded (by two different people, with a reason), once. Its approvals are its history: one row
//! for each person who had a say.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    About, By, Cause, Digest, DlqId, Epoch, Failure, Job, JobId, Note, Principal, State, TenantId,
    Timestamp, machine::words,
};

/// What is left of a job that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its id.
    pub id: DlqId,
    /// Who it belongs to.
    pub tenant: TenantId,
    /// The job that failed.
    pub job_id: JobId,
    /// What became of it.
    pub state: LetterState,
    /// Why the job failed.
    pub why: Cause,
    /// What went wrong.
    pub failure: Failure,
    /// The state in which the job was when it was given up.
    pub began_in: State,
    /// The attempt that failed last.
    pub attempt: u32,
    /// The last epoch.
    pub epoch: Epoch,
    /// The digest of the job's payload.
    pub payload_digest: Digest,
    /// When it was written.
    pub created_at: Timestamp,
    /// The job that took over.
    pub requeued_as: Option<JobId>,
    /// Who asked to discard it.
    pub discard_requested_by: Option<Principal>,
    /// Why it should be discarded.
    pub discard_reason: Option<String>,
    /// When it was requeued or discarded.
    pub closed_at: Option<Timestamp>,
}

impl DeadLetter {
    /// The letter of `job`, which is being given up.
    pub(crate) fn new(
        job: &Job,
        why: Cause,
        failure: Failure,
        began_in: State,
        now: Timestamp,
    ) -> Self {
        Self {
            id: DlqId::of_job(job.id),
            tenant: job.spec.tenant.clone(),
            job_id: job.id,
            state: LetterState::Open,
            why,
            failure,
            began_in,
            attempt: job.attempt,
            epoch: job.epoch,
            payload_digest: job.spec.payload_digest,
            created_at: now,
            requeued_as: None,
            discard_requested_by: None,
            discard_reason: None,
            closed_at: None,
        }
    }

    /// What it has in common with other letters of its code: the message of its failure, [`normalised`].
    pub fn cause(&self) -> String {
        normalised(&self.failure.message)
    }

    /// What is told of it: what somebody did with it.
    pub(crate) fn note(&self, what: &'static str, by: &By) -> Note {
        let note = Note::new(self.tenant.clone(), About::Letter(self.id), what, by.clone());
        Note { job_id: Some(self.job_id), ..note }
    }
}

/// The longest text that [`normalised`] gives back, in characters.
pub const NORMALISED_MAX: usize = 200;

/// What stands for a part of a message that is another each time.
const PART: char = '…';

/// The message of a failure without what is another each time, so that letters of one cause are found together:
/// numbers, digests, ids, quoted text and paths become `…`, and whitespace is one space. Quoted text stays where it is
/// all that tells one cause from another: where at most one word stands beside it, as in `KeyError: 'width'`. It is cut
/// at [`NORMALISED_MAX`] characters, and to do it again changes nothing.
pub fn normalised(message: &str) -> String {
    let mut text = without_parts(message);
    // What is cut may end in something that has become a part by that. Each step makes parts, or less text.
    loop {
        let again = without_parts(&text);
        if again == text {
            return text;
        }
        text = again;
    }
}

/// One step on the way to what [`normalised`] gives back.
fn without_parts(message: &str) -> String {
    let mut text = String::new();
    let unquoted = unquoted(message);
    let is_word = |word: &&str| word.chars().any(char::is_alphabetic);
    let is_told = unquoted.split_whitespace().filter(is_word).count() > 1;
    for word in if is_told { &unquoted } else { message }.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        push_word(word, &mut text);
    }
    // Parts beside each other are one: it does not matter how many digits there were.
    for joint in ["", ".", ",", ":", "-"] {
        text = text.replace(&format!("{PART}{joint}{PART}"), &PART.to_string());
    }
    let cut: String = text.chars().take(NORMALISED_MAX).collect();
    cut.trim_end().to_owned()
}

/// The text with each quoted part replaced. A quote that is not closed, or that stands inside of a word, is no quote.
fn unquoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '\'', '`']) {
        let (before, from) = rest.split_at(at);
        let quote = &from[..1];
        let is_inside =
            before.chars().next_back().is_some_and(|it| it.is_alphanumeric() || it == PART);
        out.push_str(before);
        match from[1..].find(quote).filter(|_| !is_inside) {
            Some(length) => {
                out.push(PART);
                rest = &from[length + 2..];
            }
            None => {
                out.push_str(quote);
                rest = &from[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// A word without what is another each time.
fn push_word(word: &str, out: &mut String) {
    let inner = word.trim_matches(|it: char| "()[]{}<>,;:.!?".contains(it));
    let is_path = inner.contains(['/', '\\']) && inner.chars().any(char::is_alphanumeric);
    if is_path {
        let (before, after) = word.split_once(inner).unwrap_or(("", ""));
        out.push_str(before);
        out.push(PART);
        return out.push_str(after);
    }
    // Ids of ours and uuids have signs in the middle.
    let mut piece = String::new();
    for next in word.chars().chain([' ']) {
        if next.is_alphanumeric() || next == '_' || next == '-' || next == PART {
            piece.push(next);
            continue;
        }
        push_piece(&std::mem::take(&mut piece), out);
        out.extend(Some(next).filter(|it| *it != ' '));
    }
}

/// Letters stay; a piece that is a digest, a uuid or an id of ours goes as a whole, and of others what is a number.
fn push_piece(piece: &str, out: &mut String) {
    let has_digit = piece.chars().any(char::is_numeric);
    let is_hex = |it: char| it.is_ascii_hexdigit() || it == '-';
    let is_long_hex = piece.len() >= 8 && piece.chars().all(is_hex) && has_digit;
    let is_own_id = piece.rsplit_once('_').is_some_and(|(_, digits)| {
        digits.len() == 26 && digits.chars().all(|it| it.is_ascii_alphanumeric())
    });
    if is_long_hex || is_own_id || piece.starts_with("0x") && has_digit {
        return out.push(PART);
    }
    for next in piece.chars() {
        out.push(if next.is_numeric() { PART } else { next });
    }
}

words!(
    /// What became of a dead letter.
    LetterState {
        /// Nobody has decided.
        Open = "open",
        /// One person wants it discarded.
        DiscardRequested = "discard_requested",
        /// Two people discarded it.
        Discarded = "discarded",
        /// A new job took over.
        Requeued = "requeued",
    }
);

impl LetterState {
    /// Is there nothing left to decide?
    pub const fn is_closed(self) -> bool {
        matches!(self, LetterState::Discarded | LetterState::Requeued)
    }
}

/// One person's say on a dead letter. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The letter.
    pub dlq_id: DlqId,
    /// Who.
    pub principal: Principal,
    /// What they did: the request, or the consent to it.
    pub step: ApprovalStep,
    /// Why, in the words of the first.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

words!(
    /// A step on the way to discarding a letter.
    ApprovalStep {
        /// The first person asks.
        Requested = "requested",
        /// The second person agrees.
        Approved = "approved",
    }
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_another_each_time_is_left_out() {
        let check = |message: &str, expected: &str| assert_eq!(normalised(message), expected);
        check("there is no such user", "there is no such user");
        check("timed out after 3512 ms", "timed out after … ms");
        check("timed out after 12.5s (try 3/7)", "timed out after …s (try …)");
        check("no user \"ann\" in 'acme'", "no user … in …");
        check("the server didn't answer, and can't", "the server didn't answer, and can't");
        check("job_01j9zzzzzzzzzzzzzzzzzzzzzz is gone", "… is gone");
        check("key 0b7c1f0e-6a51-4b6f-9a39-7d7b7f1f5a20 is taken", "key … is taken");
        check("digest deadbeef01 differs from 0xff", "digest … differs from …");
        check("cannot open /var/lib/w1/data.db: denied", "cannot open …: denied");
        check("GET https://example.test/a?b=1 said 503", "GET … said …");
        check("  a\tb \n c  ", "a b c");
        check("", "");
        check("HTTP 404", "HTTP …");
        check("unknown user 'ann'", "unknown user …");
        check("'width'", "'width'");
        check("KeyError: 'height'", "KeyError: 'height'");
        check("'order 17 of ann'", "'order … of ann'");
        check("\"12\" '/var/lib/a.db'", "\"…\" …");
        check("facade of beef", "facade of beef");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let long = "ä ".repeat(500);
        let short = normalised(&long);
        assert!(short.chars().count() <= NORMALISED_MAX && short.starts_with("ä ä"));
    }

    proptest! {
        #[test]
        fn to_do_it_again_changes_nothing(message in "\\PC{0,300}|[ -~]{0,300}|[a-f0-9\"' _/-]{0,60}") {
            let once = normalised(&message);
            prop_assert_eq!(normalised(&once), once);
        }

        #[test]
        fn messages_that_differ_in_numbers_alone_are_the_same(
            words in prop::collection::vec("[a-z]{1,7}", 1..8),
            numbers in prop::collection::vec((any::<u64>(), any::<u64>()), 8),
        ) {
            let message = |pick: fn(&(u64, u64)) -> u64| {
                let both = words.iter().zip(&numbers);
                both.map(|(word, pair)| format!("{word} {}", pick(pair))).collect::<Vec<_>>().join(", ")
            };
            prop_assert_eq!(normalised(&message(|pair| pair.0)), normalised(&message(|pair| pair.1)));
        }

        #[test]
        fn it_is_never_too_long(message in "\\PC{0,600}") {
            prop_assert!(normalised(&message).chars().count() <= NORMALISED_MAX);
        }
    }
}
