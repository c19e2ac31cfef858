//! JSON that passes byte for byte.

use serde_json::value::RawValue;
use windlass_kernel::{Payload, Refusal};

/// Stored JSON as it stands.
pub fn raw(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}

/// A payload as it stands.
pub(crate) fn raw_payload(payload: &Payload) -> Result<Box<RawValue>, Refusal> {
    RawValue::from_string(payload.as_str().to_owned())
        .map_err(|why| Refusal::invalid("payload", why.to_string()))
}
