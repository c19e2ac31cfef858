//! Who holds a lease: a session, and the principal behind it.
//!
//! A worker that comes with a token has a session that is called `tenant/principal/worker`. The name is stored with the
//! lease, so it says on every node and after every restart to whom the lease belongs: the tenant and the principal of
//! the token, whichever of its tokens is used next. Workers inside an engine, and workers without a token, have plain
//! names and no principal; so do sessions of versions that did not know principals. Names that begin with `windlass.`
//! are sessions of the server's own workers.
//!
//! Always true: only the principal that claimed a lease writes about it. Nobody but a server's own worker writes about
//! what that worker holds.

use std::fmt::Write as _;

use crate::{Actor, Digest, Principal, Refusal, WorkerId, own_names::is_own};

/// The principal of a worker that has a token, as the names of its sessions have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder(String);

/// The longest part that a tenant or a principal has in the name of a session.
const PART_MAX: usize = 40;

impl Holder {
    /// The holder of this principal in this tenant. Whoever works for every tenant says so by `*`.
    pub fn new(tenant: &str, principal: &Principal) -> Self {
        Self(format!("{}/{}", part(tenant), part(principal.as_str())))
    }

    /// The name of a session of theirs.
    pub fn session(&self, worker: &WorkerId) -> Result<WorkerId, Refusal> {
        WorkerId::new(format!("{}/{worker}", self.0)).map_err(|_| {
            let most = WorkerId::MAX_BYTES - self.0.len() - 1;
            Refusal::invalid("worker_id", format!("must be at most {most} bytes long here"))
        })
    }

    /// Stands for all of their sessions, where the worker did not say which one it is.
    pub fn any_session(&self) -> WorkerId {
        WorkerId::new(format!("{}/", self.0)).expect("both parts are short")
    }
}

/// A name as part of another: without a slash, and short. What is too long ends in its digest.
fn part(name: &str) -> String {
    let mut text = String::new();
    for each in name.chars() {
        match each {
            '/' | '%' => write!(text, "%{:02X}", u32::from(each)).expect("text can be written"),
            _ => text.push(each),
        }
    }
    if text.len() > PART_MAX {
        let digest = Digest::of(name).to_string();
        let digest = &digest[digest.len() - 16..];
        let mut end = PART_MAX - 17;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text = format!("{text}~{digest}");
    }
    text
}

/// Is this the session of a principal of this tenant, or one of a version that did not know principals?
pub fn is_session_of(tenant: &str, worker: &WorkerId) -> bool {
    let of = |tenant: &str| {
        worker.as_str().strip_prefix(tenant).is_some_and(|rest| rest.starts_with('/'))
    };
    of(&part(tenant)) || (holder_of(worker).is_none() && of(tenant))
}

/// The holder that the name of a session tells, such as `acme/ann`.
fn holder_of(worker: &WorkerId) -> Option<&str> {
    let (holder, _) = worker.as_str().rsplit_once('/')?;
    holder.contains('/').then_some(holder)
}

/// What the worker calls itself.
fn own_name(worker: &WorkerId) -> &str {
    worker.as_str().rsplit_once('/').map_or(worker.as_str(), |(_, name)| name)
}

/// May whoever acts write about a lease of this session?
pub(crate) fn may_write(session: &WorkerId, actor: &Actor) -> bool {
    let holder = holder_of(session);
    let Actor::Worker(writer) = actor else {
        return holder.is_none() && !is_own(session.as_str());
    };
    if writer == session {
        return true;
    }
    if is_own(session.as_str()) {
        return false;
    }
    match holder {
        Some(holder) => own_name(writer).is_empty() && holder_of(writer) == Some(holder),
        // Whoever has a lease without a principal is among friends: an engine, or one caller without a token.
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(tenant: &str, principal: &str) -> Holder {
        Holder::new(tenant, &Principal::new(principal).unwrap())
    }

    fn worker(name: &str) -> WorkerId {
        WorkerId::new(name).unwrap()
    }

    fn writes(session: &WorkerId, writer: &WorkerId) -> bool {
        may_write(session, &Actor::Worker(writer.clone()))
    }

    #[test]
    fn a_lease_belongs_to_the_principal_that_claimed_it() {
        let (ann, eve) = (holder("acme", "ann"), holder("acme", "eve"));
        let session = ann.session(&worker("w1")).unwrap();
        assert_eq!(session.as_str(), "acme/ann/w1");
        assert!(writes(&session, &session) && writes(&session, &ann.any_session()));
        let others = [
            eve.any_session(),
            eve.session(&worker("w1")).unwrap(),
            ann.session(&worker("w2")).unwrap(),
            holder("other", "ann").any_session(),
            holder("*", "ann").any_session(),
            worker("w1"),
            worker("acme/w1"),
        ];
        for other in &others {
            assert!(!writes(&session, other), "{other} wrote");
        }
        assert!(!may_write(&session, &Actor::User(Principal::new("ann").unwrap())));
    }

    #[test]
    fn what_the_servers_own_workers_hold_is_theirs_alone() {
        let session = worker("windlass.http-1");
        assert!(writes(&session, &session));
        let near = holder("default", "ann").session(&session).unwrap();
        for other in [&near, &worker("windlass.http-2"), &holder("acme", "ann").any_session()] {
            assert!(!writes(&session, other), "{other} wrote");
        }
        assert!(!may_write(&session, &Actor::User(Principal::new("dev").unwrap())));
    }

    #[test]
    fn a_session_without_a_principal_is_open_to_its_tenant() {
        let ann = holder("acme", "ann");
        for session in ["acme/w1", "w1"].map(worker) {
            assert!(writes(&session, &ann.session(&worker("w1")).unwrap()));
            assert!(writes(&session, &ann.any_session()));
            assert!(writes(&session, &worker("w2")));
            assert!(may_write(&session, &Actor::User(Principal::new("dev").unwrap())));
        }
    }

    #[test]
    fn two_holders_never_have_one_name() {
        let long = |end: &str| format!("{}{end}", "x".repeat(100));
        let names = [
            holder("acme", "eu/bob"),
            holder("acme/eu", "bob"),
            holder("acme%2Feu", "bob"),
            holder("acme", &long("a")),
            holder("acme", &long("b")),
            holder(&"é".repeat(30), "bob"),
            holder(&"é".repeat(31), "bob"),
        ];
        for (place, name) in names.iter().enumerate() {
            assert!(!names[..place].contains(name), "{name:?}");
            assert!(name.session(&worker("w")).is_ok(), "{name:?}");
        }
        assert!(is_session_of("acme", &worker("acme/ann/w1")));
        assert!(is_session_of("acme", &worker("acme/w1")));
        assert!(!is_session_of("acme", &holder("acme/eu", "bob").any_session()));
        assert!(is_session_of("acme/eu", &holder("acme/eu", "bob").any_session()));
    }
}
