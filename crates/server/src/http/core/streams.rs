//! Places of streams: each tenant has so many, and those of one are of no use to another.

use windlass_kernel::TenantId;
use windlass_store::read::Scope;

use crate::http::core::{
    problem::Problem,
    under_way::{Entry, UnderWay},
};

/// The most streams of one tenant at once: bells and feeds together.
pub(crate) const STREAMS_MAX: usize = 1_000;

/// How many streams are open, for each tenant.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: UnderWay<Option<TenantId>>,
}

/// The place of one stream, which is free again when this is dropped.
pub(crate) type StreamPlace = Entry<Option<TenantId>>;

impl Streams {
    /// A place, if the tenant has one left.
    pub(crate) fn enter(&self, scope: &Scope) -> Result<StreamPlace, Problem> {
        let full = || {
            let detail =
                format!("{STREAMS_MAX} streams of this tenant are open: close some, or share one");
            Problem { retry_after: Some(5), ..Problem::overloaded(detail) }
        };
        self.open.enter(scope.tenant().cloned(), STREAMS_MAX).ok_or_else(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_its_own_places() {
        let streams = Streams::default();
        let [a, b] = ["a", "b"].map(|name| Scope::Of(TenantId::new(name).unwrap()));
        let mut held: Vec<_> = (0..STREAMS_MAX).map(|_| streams.enter(&a).unwrap()).collect();
        assert_eq!(streams.enter(&a).unwrap_err().code, "OVERLOADED");
        let other = streams.enter(&b).unwrap();
        held.pop();
        held.push(streams.enter(&a).unwrap());
        drop((held, other));
    }
}
