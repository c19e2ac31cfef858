//! Accepting a clock: a person says that the clock which a store follows is right, although it jumped ahead.
//!
//! The store does not follow such a jump by itself. What is decided here is only what is told of it; that time does not
//! go back holds in any case.

use std::time::Duration;

use crate::{
    By, TenantId,
    note::{About, Note},
};

/// Takes the clock as it is from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptClock {
    /// Whose act it is. It concerns the whole store.
    pub tenant: TenantId,
    /// By how much it was ahead when whoever asks saw it.
    pub ahead: Duration,
    /// In the words of whoever asks.
    pub reason: Option<String>,
    /// Who says so.
    pub by: By,
}

impl AcceptClock {
    /// What is told of it.
    pub fn note(&self) -> Note {
        let ahead_ms = u64::try_from(self.ahead.as_millis()).unwrap_or(u64::MAX);
        let note = Note::new(self.tenant.clone(), About::Clock, "accepted", self.by.clone());
        let note = note.with("ahead_ms", ahead_ms);
        match &self.reason {
            Some(reason) => note.with("reason", reason.as_str()),
            None => note,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Actor, Principal};

    #[test]
    fn it_is_an_act_that_says_who_and_why() {
        let by: By = Actor::User(Principal::new("alice").unwrap()).into();
        let reason = Some("the time server was away".to_owned());
        let tenant = TenantId::of_store();
        let note = AcceptClock { tenant, ahead: Duration::from_secs(3_600), reason, by }.note();
        assert!(note.is_act());
        assert_eq!(
            note.line(),
            r#"{"about":"clock","name":"clock","what":"accepted","actor":"user:alice","detail":{"ahead_ms":3600000,"reason":"the time server was away"}}"#
        );
    }
}
