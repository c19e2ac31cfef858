//! What is measured: the store from outside, the clock of this machine, and the room on its disk.

use std::path::Path;

use windlass_kernel::Timestamp;
use windlass_store::{Error, Survey, postgres, sqlite};

use crate::cli::{look::view::now, store::StoreName};

/// What was measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// What the store is called.
    pub(super) name: String,
    pub(super) survey: Survey,
    /// What time it is on this machine.
    pub(super) now: Timestamp,
    /// The room on the disk, if the store is on one of ours.
    pub(super) space: Option<Space>,
}

/// The room on a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) free_bytes: u64,
    pub(super) total_bytes: u64,
}

impl Measured {
    pub(super) async fn of(name: &StoreName) -> Result<Self, Error> {
        let (name, survey, space) = match name {
            StoreName::File(path) => {
                (path.display().to_string(), sqlite::survey(path)?, space(path))
            }
            StoreName::Server(options) => (options.name(), postgres::survey(options).await?, None),
        };
        Ok(Self { name, survey, now: now(), space })
    }
}

/// The room on the disk where a file is.
pub(super) fn space(path: &Path) -> Option<Space> {
    let found = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Some(Space { free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_on_a_disk_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let space = space(folder.path()).unwrap();
        assert!(0 < space.free_bytes && space.free_bytes <= space.total_bytes, "{space:?}");
        assert!(space.total_bytes > 1_000_000, "it is counted in bytes: {space:?}");
        assert!(super::space(&folder.path().join("nothing")).is_none());
    }
}
