//! Names of things, each its own type, so that a queue can never be passed where a kind is meant.
//!
//! Ids are made outside (from time and randomness) and come in as values. Text is bounded and free of
//! control characters, so every name can be stored, logged and shown as it is.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Serialize};

use crate::{Refusal, own_names::is_own};

/// A 128-bit id with a prefix, written as 26 characters of Crockford's base 32, which sort like the id.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(u128);

        impl $name {
            /// What its text begins with.
            pub const PREFIX: &'static str = $prefix;

            /// Wraps 128 bits, usually those of a version 7 UUID.
            pub const fn from_u128(bits: u128) -> Self {
                Self(bits)
            }

            /// The bits, as a store keeps them.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(as_text(&base32(self.0)))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Refusal;

            fn from_str(text: &str) -> Result<Self, Refusal> {
                let digits = text.strip_prefix($prefix).ok_or_else(|| {
                    Refusal::invalid("id", concat!("must begin with \"", $prefix, "\""))
                })?;
                parse_base32(digits).map(Self).ok_or_else(|| {
                    Refusal::invalid("id", "must end in 26 characters of base 32, as it was given out")
                })
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                [$prefix, as_text(&base32(id.0))].concat()
            }
        }

        impl TryFrom<String> for $name {
            type Error = Refusal;

            fn try_from(text: String) -> Result<Self, Refusal> {
                text.parse()
            }
        }
    };
}

id!(
    /// One job, for its whole life.
    JobId, "job_"
);
id!(
    /// One dead letter.
    DlqId, "dlq_"
);
id!(
    /// One token that lets somebody in.
    TokenId, "tok_"
);
id!(
    /// One claim: the same claim again gets the same leases.
    ClaimId, "claim_"
);

impl JobId {
    /// Its text without the prefix.
    pub fn digits(self) -> [u8; 26] {
        base32(self.0)
    }

    fn text(self) -> [u8; 30] {
        let mut text = *b"job_00000000000000000000000000";
        text[4..].copy_from_slice(&self.digits());
        text
    }
}

impl DlqId {
    /// The letter of a job. A job fails once at the most, so its id names the letter too.
    pub fn of_job(job_id: JobId) -> Self {
        Self(job_id.0)
    }

    /// The job whose letter it is.
    pub fn job_id(self) -> JobId {
        JobId(self.0)
    }
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The 26 digits of an id. By hand: ids are written far too often for the formatting machinery.
#[expect(
    clippy::cast_possible_truncation,
    reason = "each part is masked or shifted to what is kept"
)]
fn base32(bits: u128) -> [u8; 26] {
    let digit = |bits: u64, place: usize| ALPHABET[(bits >> (place * 5)) as usize & 31];
    // In parts that fit a register: two digits, twelve and twelve.
    let part = |from: u32| (bits >> from) as u64;
    let parts = [part(120), part(60), part(0)];
    let mut text = [0; 26];
    for (place, byte) in text.iter_mut().rev().enumerate() {
        *byte = digit(parts[2 - place / 12], place % 12);
    }
    text
}

/// Text that was just made of digits.
fn as_text(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).expect("digits are ASCII")
}

/// The value of each digit, by its character; 255 for what is none.
const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value: u8 = 0;
    while value < 32 {
        values[ALPHABET[value as usize] as usize] = value;
        value += 1;
    }
    values
};

fn parse_base32(text: &str) -> Option<u128> {
    // 26 digits hold 130 bits; the first may use only three of its five.
    if text.len() != 26 || text.as_bytes()[0] > b'7' {
        return None;
    }
    let mut bits = 0u128;
    for byte in text.bytes() {
        let value = VALUES[usize::from(byte)];
        if value == 255 {
            return None;
        }
        bits = (bits << 5) | u128::from(value);
    }
    Some(bits)
}

/// Bounded text: not empty, at most `$max` bytes, no control characters.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest text it takes, in bytes.
            pub const MAX_BYTES: usize = $max;

            /// Checks the text and takes it.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Refusal> {
                let text = text.as_ref();
                if let Some(why) = unfit(text, Self::MAX_BYTES) {
                    return Err(Refusal::invalid($field, why));
                }
                Ok(Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> String {
                text.0.as_ref().to_owned()
            }
        }

        impl TryFrom<String> for $name {
            type Error = Refusal;

            fn try_from(text: String) -> Result<Self, Refusal> {
                Self::new(text)
            }
        }

        impl FromStr for $name {
            type Err = Refusal;

            fn from_str(text: &str) -> Result<Self, Refusal> {
                Self::new(text)
            }
        }
    };
}

pub(crate) fn unfit(text: &str, max_bytes: usize) -> Option<String> {
    if text.is_empty() {
        Some("must not be empty".to_owned())
    } else if text.len() > max_bytes {
        Some(format!("must be at most {max_bytes} bytes long, not {}", text.len()))
    } else if text.chars().any(char::is_control) {
        Some("must not contain control characters".to_owned())
    } else {
        None
    }
}

text!(
    /// Who a job belongs to.
    TenantId, "tenant", 64
);
text!(
    /// Where a job waits for a worker.
    Queue, "queue", 128
);
text!(
    /// What a job does: it picks the handler.
    Kind, "kind", 128
);
text!(
    /// What a job is a run of. Re-runs of the same thing share it.
    TaskId, "task_id", 200
);
text!(
    /// The caller's name for one request, so that asking twice creates once.
    IdempotencyKey, "idempotency_key", 256
);
text!(
    /// Where an idempotency key is unique.
    IdempotencyScope, "idempotency_scope", 128
);
text!(
    /// One worker session: a fresh id at each start of a process.
    WorkerId, "worker_id", 128
);
text!(
    /// A person or program that acts.
    Principal, "principal", 128
);
text!(
    /// Joins what belongs to one request across systems.
    TraceId, "trace_id", 200
);
text!(
    /// A label for filters.
    Tag, "tag", 128
);
text!(
    /// What a waiting job waits for.
    CorrelationKey, "correlation_key", 256
);
text!(
    /// A durable step within its job: its name, and its place among those of the same name.
    StepKey, "step_key", 300
);
text!(
    /// Where messages for a job come in their order.
    Channel, "channel", 128
);
text!(
    /// Tells a message from all others of its channel.
    MessageId, "message_id", 128
);
text!(
    /// The name of a rule.
    RuleName, "rule", 128
);
text!(
    /// What a job has in common with others, such as a customer: limits and turns can be by key.
    LimitKey, "limit_key", 256
);
text!(
    /// What only one job that is not at its end can have.
    UniqueKey, "unique_key", 256
);

text!(
    /// A schedule that makes jobs.
    ScheduleName, "schedule", 160
);
text!(
    /// What people call a token.
    TokenLabel, "label", 128
);
text!(
    /// Whoever follows the feed and says how far it has come.
    MarkName, "mark", 128
);

impl TenantId {
    /// Whom what concerns the whole store is told to: rules that name no tenant.
    pub fn of_store() -> Self {
        Self("_windlass".into())
    }
}

impl TaskId {
    /// The task of a job that was given none: itself.
    pub fn of_job(job_id: JobId) -> Self {
        Self(as_text(&job_id.text()).into())
    }
}

impl TraceId {
    /// The trace of a new job that was given none: `trace-run-<job>-<uuid>`, with a UUID of version 4.
    pub fn made_for(job_id: JobId, random: u128) -> Self {
        const VERSION: u128 = 0xf << 76;
        const VARIANT: u128 = 0b11 << 62;
        Self::for_run(job_id, (random & !VERSION & !VARIANT) | 0x4 << 76 | 0b10 << 62)
    }

    /// The trace that was made from this chance, with its bits as they are: older traces have no version in them, and
    /// stay what they were.
    pub fn for_run(job_id: JobId, random: u128) -> Self {
        let mut text = Self::RUN;
        text[10..40].copy_from_slice(&job_id.text());
        for (place, byte) in random.to_be_bytes().into_iter().enumerate() {
            text[Self::RANDOM[place]..][..2].copy_from_slice(&hex(byte));
        }
        Self(as_text(&text).into())
    }

    /// The chance that the trace of this job was made from, if it was made so.
    pub fn random_of(&self, job_id: JobId) -> Option<u128> {
        let text: &[u8; 77] = self.0.as_bytes().try_into().ok()?;
        let mut random = [0; 16];
        for (place, byte) in random.iter_mut().enumerate() {
            let from = Self::RANDOM[place];
            *byte = unhex(text[from])? << 4 | unhex(text[from + 1])?;
        }
        let mut same = Self::RUN;
        same[10..40].copy_from_slice(&job_id.text());
        let dashes = [40, 49, 54, 59, 64];
        let is_same = same[..40] == text[..40] && dashes.iter().all(|at| text[*at] == b'-');
        is_same.then(|| u128::from_be_bytes(random))
    }

    const RUN: [u8; 77] =
        *b"trace-run-job_00000000000000000000000000-00000000-0000-0000-0000-000000000000";
    /// Where the digits of each random byte stand.
    const RANDOM: [usize; 16] = [41, 43, 45, 47, 50, 52, 55, 57, 60, 62, 65, 67, 69, 71, 73, 75];
}

/// The two hexadecimal digits of a byte.
pub(crate) fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// The value of a hexadecimal digit as [`hex`] writes it.
fn unhex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl IdempotencyKey {
    /// The key of an enqueue that was given none: the id of its job.
    pub fn of_job(job_id: JobId) -> Self {
        Self(TaskId::of_job(job_id).0)
    }

    /// The key of an enqueue that was given neither key nor task: the same id, and the same text.
    pub fn of_own_task(task_id: &TaskId) -> Self {
        Self(task_id.0.clone())
    }
}

impl IdempotencyScope {
    /// Begins the scopes that callers cannot name.
    pub const RESERVED: char = '_';

    /// Where the keys of enqueues without a key live, so that no caller's key can meet a job id.
    pub fn own_id() -> Self {
        static OWN_ID: LazyLock<IdempotencyScope> =
            LazyLock::new(|| IdempotencyScope("_job".into()));
        OWN_ID.clone()
    }

    /// Is it where the keys of enqueues without a key live?
    pub fn is_own_id(&self) -> bool {
        &*self.0 == "_job"
    }

    /// Where the keys of contract `runs` live.
    pub fn runs() -> Self {
        Self("_runs".into())
    }

    /// Where the slots of schedules live.
    pub fn slots() -> Self {
        Self("_schedules".into())
    }

    /// Where the keys of the server's own jobs live.
    pub fn server() -> Self {
        Self("_windlass".into())
    }

    /// A caller's key without a scope.
    pub fn default_scope() -> Self {
        Self("default".into())
    }

    /// Is it one of Windlass's own?
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(Self::RESERVED) || is_own(&self.0)
    }
}

/// The fencing token of one job: it grows with each claim and never falls.
///
/// It is made of the store's incarnation (high) and a count (low), so a store that was restored from an
/// old copy never hands out an epoch that some worker already holds. It stays below 2^53, which every
/// JSON reader keeps exactly.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch of a job that was never claimed.
    pub const ZERO: Epoch = Epoch(0);

    /// The largest incarnation that keeps epochs exact in JSON.
    pub const INCARNATION_MAX: u32 = (1 << 21) - 1;

    /// Wraps a number from a row or a request.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, as rows and requests show it.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next epoch in a store of this incarnation.
    pub fn next(self, incarnation: u32) -> Self {
        let floor = u64::from(incarnation.min(Self::INCARNATION_MAX)) << 32;
        Self(self.0.max(floor) + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        for bits in [0, 1, 31, 32, 1 << 64, u128::MAX, 0x0198_c0ff_ee00_7000_8000_0000_0000_0001] {
            let id = JobId::from_u128(bits);
            let text = id.to_string();
            assert_eq!(text.len(), 30, "{text}");
            assert_eq!(text.parse::<JobId>().unwrap(), id);
            assert_eq!(id.as_u128(), bits);
            assert_eq!(format!("{id:?}"), text);
        }
        assert_eq!(JobId::from_u128(33).to_string(), "job_00000000000000000000000011");
    }

    #[test]
    fn ids_sort_as_their_text() {
        let ids = [3u128, 1 << 100, u128::MAX, 40].map(DlqId::from_u128);
        let mut by_bits = ids;
        by_bits.sort();
        let mut by_text = ids;
        by_text.sort_by_key(ToString::to_string);
        assert_eq!(by_bits, by_text);
    }

    #[test]
    fn an_id_that_is_not_ours_is_refused() {
        for text in [
            "",
            "job_",
            "dlq_00000000000000000000000001",
            "job_0000000000000000000000000",
            "job_000000000000000000000000001",
            "job_80000000000000000000000000",
            "job_0000000000000000000000000i",
            "job_0000000000000000000000000A",
            "JOB_00000000000000000000000001",
            "job_0000000000000000000000000é",
        ] {
            assert!(text.parse::<JobId>().is_err(), "{text:?} was taken");
        }
        assert!("job_7zzzzzzzzzzzzzzzzzzzzzzzzz".parse::<JobId>().is_ok());
    }

    #[test]
    fn text_is_bounded_and_clean() {
        assert_eq!(Queue::new("mail").unwrap().as_str(), "mail");
        assert!(Queue::new("x".repeat(128)).is_ok());
        assert!(Queue::new("x".repeat(129)).is_err());
        for text in ["", "a\0b", "a\nb", "\u{7f}", "\u{85}"] {
            assert!(Queue::new(text).is_err(), "{text:?} was taken");
        }
        assert!(serde_json::from_str::<Queue>("\"\"").is_err());
        assert_eq!(serde_json::to_string(&Queue::new("é").unwrap()).unwrap(), "\"é\"");
    }

    #[test]
    fn an_epoch_grows_and_a_restored_store_jumps_ahead() {
        assert_eq!(Epoch::ZERO.next(0), Epoch::new(1));
        assert_eq!(Epoch::new(7).next(0), Epoch::new(8));
        assert_eq!(Epoch::new(7).next(1), Epoch::new((1 << 32) + 1));
        assert_eq!(Epoch::new((1 << 32) + 5).next(1), Epoch::new((1 << 32) + 6));
        assert_eq!(Epoch::new((3 << 32) + 5).next(1), Epoch::new((3 << 32) + 6));
        assert!(Epoch::ZERO.next(u32::MAX).get() < 1 << 53);
    }

    #[test]
    fn the_uuid_of_a_made_trace_is_one_of_version_4() {
        let id = JobId::from_u128(1);
        for random in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef, 7 << 77, 3 << 61] {
            let trace = TraceId::made_for(id, random);
            let uuid = &trace.as_str()[41..];
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
            // Nothing else is lost, and what a row keeps of it gives the same trace again.
            let kept = trace.random_of(id).unwrap();
            assert_eq!((kept ^ random) & !(0xf << 76 | 0b11 << 62), 0, "{uuid}");
            assert_eq!(TraceId::for_run(id, kept), trace);
        }
    }

    #[test]
    fn a_made_trace_names_its_run() {
        let id = JobId::from_u128(1);
        let trace = TraceId::for_run(id, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(
            trace.as_str(),
            "trace-run-job_00000000000000000000000001-01234567-89ab-cdef-0123-456789abcdef"
        );
        assert_eq!(trace.random_of(id), Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        assert_eq!(trace.random_of(JobId::from_u128(2)), None);
        let text = trace.as_str();
        for place in 0..text.len() {
            let changed = format!("{}x{}", &text[..place], &text[place + 1..]);
            assert_eq!(TraceId::new(&changed).unwrap().random_of(id), None, "{changed}");
            assert_eq!(TraceId::new(&text[..=place]).unwrap().random_of(id).is_some(), place == 76);
        }
        assert_eq!(TraceId::new(text.to_uppercase()).unwrap().random_of(id), None);
    }
}
