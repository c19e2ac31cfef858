//! Retention.
use windlass_kernel::Retention;

use super::Inner;
use crate::{Error, read::Pruned};

/// Where a pass stands.
#[derive(Default)]
pub(super) struct Sweep;

impl Inner {
    pub(super) async fn prune(&self, _: &Retention, _: usize) -> Result<Pruned, Error> {
        Ok(Pruned::default())
    }
}
