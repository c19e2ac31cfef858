//! Mail: what came for a job from outside, kept until its handler asks for it.

use serde::{Deserialize, Serialize};

use crate::{
    Actor, Digest, Failure, JobId, Payload, Refusal, State, Timestamp,
    ids::{Channel, CorrelationKey, MessageId},
    job::WaitOn,
};

/// What mail is known by within its job. The same name comes once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailName {
    /// A signal. There is one for each key, for ever.
    Signal(CorrelationKey),
    /// A message of a channel. They are taken in the order in which they came.
    Message {
        /// The channel.
        channel: Channel,
        /// Tells it from all others of the channel.
        id: MessageId,
    },
    /// The end of a child.
    Child(JobId),
}

impl MailName {
    /// The text that a row is known by.
    pub fn text(&self) -> String {
        match self {
            MailName::Signal(key) => format!("s{key}"),
            MailName::Message { channel, id } => {
                format!("m{}:{channel}{id}", channel.as_str().len())
            }
            MailName::Child(job_id) => format!("c{job_id}"),
        }
    }

    /// The name that a row has by this text.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let bad = || Refusal::invalid("mail", "has no such name");
        let (sort, rest) = text.split_at_checked(1).ok_or_else(bad)?;
        match sort {
            "s" => CorrelationKey::new(rest).map(MailName::Signal),
            "c" => rest.parse().map(MailName::Child),
            "m" => {
                let (length, rest) = rest.split_once(':').ok_or_else(bad)?;
                let length = length.parse().map_err(|_| bad())?;
                let (channel, id) = rest.split_at_checked(length).ok_or_else(bad)?;
                let (channel, id) = (Channel::new(channel)?, MessageId::new(id)?);
                Ok(MailName::Message { channel, id })
            }
            _ => Err(bad()),
        }
    }

    /// Does it end such a wait?
    pub fn ends(&self, wait: &WaitOn) -> bool {
        match (self, wait) {
            (_, WaitOn::Any(all)) => all.iter().any(|one| self.ends(one)),
            (MailName::Signal(key), WaitOn::Signal(awaited)) => key == awaited,
            (MailName::Message { channel, .. }, WaitOn::Message(awaited)) => channel == awaited,
            (MailName::Child(child), WaitOn::Child(awaited)) => child == awaited,
            _ => false,
        }
    }
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailContent {
    /// This.
    Payload(Payload),
    /// A no: whoever waits for it gets this failure.
    Rejected(Failure),
    /// A child came to this end.
    Ended(State),
}

impl MailContent {
    /// What tells two contents apart.
    pub fn digest(&self) -> Digest {
        match self {
            MailContent::Payload(payload) => payload.digest(),
            MailContent::Rejected(failure) => {
                let failure = serde_json::to_string(failure).expect("a failure is plain data");
                Digest::of(&format!("rejected {failure}"))
            }
            MailContent::Ended(state) => Digest::of(&format!("ended {state}")),
        }
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        match self {
            MailContent::Payload(payload) => payload.as_str().len(),
            MailContent::Rejected(failure) => failure.message.len(),
            MailContent::Ended(_) => 0,
        }
    }
}

/// Something that came for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Whom it is for.
    pub job_id: JobId,
    /// What it is known by.
    pub name: MailName,
    /// Its place in the order in which mail came, from 1.
    pub number: u32,
    /// What came.
    pub content: MailContent,
    /// When.
    pub at: Timestamp,
    /// Who sent it.
    pub by: Actor,
    /// Has the handler taken it? A message is taken once; a signal can be looked at again.
    pub taken: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_as_it_was_written() {
        let channel = |text| Channel::new(text).unwrap();
        let id = |text| MessageId::new(text).unwrap();
        let names = [
            MailName::Signal(CorrelationKey::new("a:b").unwrap()),
            MailName::Message { channel: channel("7:x"), id: id("y") },
            MailName::Message { channel: channel("7:"), id: id("xy") },
            MailName::Message { channel: channel("ä"), id: id("ö") },
            MailName::Child(JobId::from_u128(7)),
        ];
        for (place, name) in names.iter().enumerate() {
            assert_eq!(MailName::parse(&name.text()).as_ref(), Ok(name));
            assert!(names[..place].iter().all(|other| other.text() != name.text()));
        }
        for text in ["", "x", "m", "m3", "m9:ab", "c7", "s", "mä:b"] {
            assert!(MailName::parse(text).is_err(), "{text:?} was taken");
        }
    }
}
