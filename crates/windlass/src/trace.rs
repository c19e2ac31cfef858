//! Where a job stands in a trace, as W3C has it.
//!
//! A job keeps the id of its trace and nothing else. The spans of its life have ids that follow from the job: whoever knows it
//! knows the span of its enqueue and of each execution, on any machine, and nothing has to be stored or sent along.

use std::{fmt, str::FromStr};

use windlass_kernel::{Digest, Job, JobId, TraceId};

/// A place in a trace. As text it is a `traceparent`.
///
/// ```
/// use windlass::TraceContext;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context: TraceContext = text.parse().unwrap();
/// assert_eq!(context.span, 0x00f0_67aa_0ba9_02b7);
/// assert_eq!(context.to_string(), text);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; never 0.
    pub trace: u128,
    /// The span in it; never 0.
    pub span: u64,
    /// Does somebody record it?
    pub sampled: bool,
}

impl TraceContext {
    /// A span of this trace. If its text is no id of W3C, the id follows from it.
    pub fn new(trace: &TraceId, span: u64) -> Self {
        Self { trace: trace_of(trace), span: span.max(1), sampled: true }
    }

    /// The span in which this job was enqueued.
    pub fn of_enqueue(trace: &TraceId, job_id: JobId) -> Self {
        let random = u64::try_from(job_id.as_u128() & u128::from(u64::MAX)).unwrap_or(1);
        Self::new(trace, random)
    }

    /// The span in which the job runs that was claimed last. What its handler calls is told this one.
    pub fn of_execution(job: &Job) -> Self {
        let digest = Digest::of(&job.attempt_id());
        Self::new(&job.spec.trace_id, u64::from_be_bytes(first(digest.as_bytes())))
    }
}

/// The id of a trace: what the text says, if it is one of W3C, and else what follows from it.
fn trace_of(trace: &TraceId) -> u128 {
    let text = trace.as_str();
    if let Some(id) = hex(text, 32) {
        return id;
    }
    if let Ok(context) = text.parse::<TraceContext>() {
        return context.trace;
    }
    u128::from_be_bytes(first(Digest::of(text).as_bytes())).max(1)
}

fn first<const N: usize>(bytes: &[u8; 32]) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&bytes[..N]);
    first
}

/// So many lower-case digits that are not all zero.
fn hex(text: &str, len: usize) -> Option<u128> {
    let are_digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() != len || !are_digits {
        return None;
    }
    u128::from_str_radix(text, 16).ok().filter(|number| *number != 0)
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl FromStr for TraceContext {
    type Err = &'static str;

    /// Reads a `traceparent` of any version that begins like the first.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNFIT: &str = "it is no traceparent";
        let mut parts = text.split('-');
        let mut part = || parts.next().ok_or(UNFIT);
        let (version, trace, span, flags) = (part()?, part()?, part()?, part()?);
        let is_first = version == "00";
        if version.len() != 2 || version == "ff" || (is_first && parts.next().is_some()) {
            return Err(UNFIT);
        }
        let flags = match flags.len() {
            2 => u8::from_str_radix(flags, 16).map_err(|_| UNFIT)?,
            _ => return Err(UNFIT),
        };
        let span = hex(span, 16).and_then(|span| u64::try_from(span).ok()).ok_or(UNFIT)?;
        Ok(Self { trace: hex(trace, 32).ok_or(UNFIT)?, span, sampled: flags & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_as_w3c_says() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let check = |text: &str, is_one: bool| {
            assert_eq!(text.parse::<TraceContext>().is_ok(), is_one, "{text}");
        };
        check(&format!("00-{trace}-00f067aa0ba902b7-01"), true);
        check(&format!("00-{trace}-00f067aa0ba902b7-00"), true);
        check(&format!("cc-{trace}-00f067aa0ba902b7-01-more"), true);
        check(&format!("00-{trace}-00f067aa0ba902b7-01-more"), false);
        check(&format!("ff-{trace}-00f067aa0ba902b7-01"), false);
        check(&format!("00-{trace}-0000000000000000-01"), false);
        check(&format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), false);
        check(&format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()), false);
        check(&format!("00-{trace}-00f067aa0ba902b7"), false);
        check("", false);
    }

    #[test]
    fn every_trace_has_an_id_and_the_same_text_has_the_same() {
        let of = |text: &str| trace_of(&TraceId::new(text).unwrap());
        assert_eq!(
            of("4bf92f3577b34da6a3ce929d0e0e4736"),
            0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736
        );
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(of(parent), of("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(of("trace-run-1"), of("trace-run-1"));
        assert_ne!(of("trace-run-1"), of("trace-run-2"));
        assert_ne!(of(&"0".repeat(32)), 0);
    }
}
