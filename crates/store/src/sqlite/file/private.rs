//! Files that only their owner can read: they hold the payloads of every tenant.
//!
//! A new file is private from its first moment, whatever the process lets new files be. SQLite gives the log and the
//! index beside a database the mode of the database itself. A database that was there keeps the mode that it has: a
//! person may have meant it.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

/// Options with which a file that is made is its owner's alone.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes an empty file, unless there is one.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    match options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Takes a file that is there away from all others.
pub(crate) fn claim(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    let _ = file;
    Ok(())
}
