//! Names that are the server's own: they begin with `windlass.`.
//!
//! The server runs jobs for itself, such as deliveries of webhooks and acts on many, and trusts what their payloads say.
//! So no caller can give such a name to a kind, a queue, a schedule, a rule or an idempotency scope, on whichever road
//! the op comes. The server says that a job is its own by
//! [`Idempotency::Server`](crate::ops::Idempotency::Server), which no document and no row of the inbox can say.

use crate::Refusal;

/// What they begin with.
pub const OWN_PREFIX: &str = "windlass.";

/// Is it one of the server's own names?
pub fn is_own(name: &str) -> bool {
    name.starts_with(OWN_PREFIX)
}

/// Refuses a name that a caller gave if it is one of the server's own.
pub fn check_not_own(field: &'static str, name: &str) -> Result<(), Refusal> {
    if is_own(name) {
        return Err(Refusal::invalid(
            field,
            "must not begin with windlass.: such names are the server's own",
        ));
    }
    Ok(())
}
